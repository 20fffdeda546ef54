// Ladder: every pipeline of the CPU measured and found right, wrong ones found out, bad requests, and a ladder's life:
// cancellation, deadline, queue, draining.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/pipelines.h"
#include "tests/service/held_engine.h"
#include "tests/service/ladder_calls.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class LadderTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer; }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  static Climbed Climb(const v1::LadderRequest& request) {
    Climbed climbed = server::Climb(*server_, request);
    EXPECT_TRUE(climbed.status.ok()) << climbed.status.error_message();
    return climbed;
  }

  static TestServer* server_;
};
TestServer* LadderTest::server_ = nullptr;

TEST_F(LadderTest, MeasuresEveryPipelineOfTheCpu) {
  const Climbed climbed = Climb(LadderOf(v1::DTYPE_F32, 100'000, v1::OP_SUM, 3));
  EXPECT_EQ(climbed.start.bytes(), 400'000);
  std::vector<std::string> names;
  for (const v1::LadderStep& step : climbed.steps) {
    SCOPED_TRACE(step.pipeline());
    names.push_back(step.pipeline());
    EXPECT_EQ(step.engine(), v1::ENGINE_CPU);
    EXPECT_EQ(step.device(), "cpu");
    EXPECT_THAT(step.kernel_us(), AllOf(::testing::SizeIs(3), ::testing::Each(::testing::Gt(0))));
    EXPECT_EQ(step.has_scratch_copy_us(), step.pipeline() == "recursive_pairs");
    EXPECT_EQ(step.read_bytes(), step.pipeline() == "recursive_pairs" ? 800'000 : 400'000);  // sums have 8 bytes
    EXPECT_FALSE(step.has_active_threads());
    EXPECT_GT(step.read_gb_per_s(), 0);
    EXPECT_FALSE(step.has_occupancy());
    EXPECT_TRUE(step.correct());
    EXPECT_TRUE(step.same_bits());
    EXPECT_NEAR(step.value().f(), climbed.start.expected().f(), 1e-6);
  }
  EXPECT_THAT(names, ElementsAre("sequential", "recursive_pairs", "tiled_simd"));
}

TEST_F(LadderTest, TakesThePipelinesAskedForInThatOrder) {
  v1::LadderRequest request = LadderOf(v1::DTYPE_I64, 1000, v1::OP_MAX, 0);
  request.add_pipelines("tiled_simd");
  request.add_pipelines("sequential");
  const Climbed climbed = Climb(request);
  ASSERT_EQ(climbed.steps.size(), 2u);
  EXPECT_EQ(climbed.steps[0].pipeline(), "tiled_simd");
  EXPECT_EQ(climbed.steps[1].pipeline(), "sequential");
  EXPECT_EQ(climbed.steps[0].kernel_us_size(), 20);  // the default
}

TEST_F(LadderTest, AnswersOfAKnownFill) {
  struct Known {
    v1::DType dtype;
    double fill;
    v1::Op op;
    std::string answer;
  };
  for (const Known& known : std::vector<Known>{{v1::DTYPE_I32, -3, v1::OP_SUM, "i64:-3003"},
                                               {v1::DTYPE_I32, -3, v1::OP_MEAN, "f64:-3"},
                                               {v1::DTYPE_I32, -3, v1::OP_BIT_AND, "i32:-3"},
                                               {v1::DTYPE_U32, 4294967295, v1::OP_MIN, "u32:4294967295"},
                                               {v1::DTYPE_U8, 2, v1::OP_L1, "u64:2002"},
                                               {v1::DTYPE_BOOL, 1, v1::OP_ALL, "bool:true"},
                                               {v1::DTYPE_F64, 0.5, v1::OP_SUM, "f64:500.5"},
                                               {v1::DTYPE_F64, 0.5, v1::OP_VAR, "f64:0"},
                                               {v1::DTYPE_F64, -0.0, v1::OP_MAX, "f64:-0"},
                                               {v1::DTYPE_F32, 0.1, v1::OP_MAX, "f32:0.10000000149"},
                                               {v1::DTYPE_F16, 0.1, v1::OP_MAX, "f16:0.0999755859375"},
                                               {v1::DTYPE_BF16, 0.1, v1::OP_MAX, "bf16:0.10009765625"},
                                               {v1::DTYPE_F32, 1, v1::OP_PROD, "f64:1"},
                                               // Wraps around: 2^1001.
                                               {v1::DTYPE_I64, 2, v1::OP_PROD, "i64:0"}}) {
    SCOPED_TRACE(absl::StrCat(v1::DType_Name(known.dtype), " ", v1::Op_Name(known.op)));
    v1::LadderRequest request = LadderOf(known.dtype, 1001, known.op);
    request.set_fill(known.fill);
    const Climbed climbed = Climb(request);
    EXPECT_EQ(Text(climbed.start.expected()), known.answer);
    for (const v1::LadderStep& step : climbed.steps) {
      EXPECT_EQ(Text(step.value()), known.answer) << step.pipeline();
      EXPECT_TRUE(step.correct()) << step.pipeline();
    }
  }
}

TEST_F(LadderTest, EveryOpOfEveryDtypeIsRight) {
  for (const DTypeRow& dtype : kDTypes) {
    for (const OpRow& op : kOps) {
      if (!Supports(op.op, dtype.dtype) || !HasAccumulator(op.op)) continue;
      SCOPED_TRACE(absl::StrCat(std::string(dtype.name), " ", std::string(op.name)));
      const Climbed climbed = Climb(LadderOf(static_cast<v1::DType>(dtype.dtype), 2999, static_cast<v1::Op>(op.op)));
      const auto supports = [&](const PipelineRow& row) {
        return row.engine == EngineKind::kCpu && Supports(row, op.op, dtype.dtype);
      };
      EXPECT_EQ(climbed.start.steps(), std::count_if(Pipelines().begin(), Pipelines().end(), supports));
      for (const v1::LadderStep& step : climbed.steps) {
        EXPECT_TRUE(step.correct()) << step.pipeline() << ": " << Text(step.value()) << ", expected "
                                    << Text(climbed.start.expected());
        EXPECT_TRUE(step.same_bits()) << step.pipeline();
      }
    }
  }
}

TEST_F(LadderTest, MeasuresProducts) {
  for (const v1::DType dtype : {v1::DTYPE_I32, v1::DTYPE_F32, v1::DTYPE_F64}) {
    for (const std::int64_t k : {0, 1, 37}) {
      for (const bool source_fill : {false, true}) {
        v1::LadderRequest request = ProductOf(dtype, 21, 33, k);
        request.mutable_matmul()->set_source_fill(source_fill);
        const Climbed climbed = Climb(request);
        EXPECT_EQ(climbed.start.operations(), 2 * 21 * 33 * k);
        EXPECT_EQ(climbed.start.bytes(), (21 * k + k * 33 + 21 * 33) * (dtype == v1::DTYPE_F64 ? 8 : 4));
        ASSERT_EQ(climbed.steps.size(), 1u);
        EXPECT_EQ(climbed.steps[0].pipeline(), "matmul_host");
        EXPECT_TRUE(climbed.steps[0].correct());
        EXPECT_TRUE(climbed.steps[0].same_bits());
        EXPECT_EQ(climbed.steps[0].kernel_us_size(), 2);
        EXPECT_FALSE(climbed.steps[0].has_value());
      }
    }
  }
}

TEST_F(LadderTest, ALongProductStopsForTheDeadline) {
  LadderStream stream(server_->client(), ProductOf(v1::DTYPE_F64, 4000, 4000, 1000), absl::Milliseconds(200));
  const absl::Time start = absl::Now();
  stream.ReadAll();
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(LadderTest, TheSameSeedIsTheSameArray) {
  const auto expected = [](std::uint64_t seed) {
    v1::LadderRequest request = LadderOf(v1::DTYPE_I32, 10'001, v1::OP_BIT_XOR, 1);
    request.set_seed(seed);
    return Text(Climb(request).start.expected());
  };
  EXPECT_EQ(expected(7), expected(7));
  EXPECT_NE(expected(7), expected(8));
}

// The CPU engine, but for what `spoil` makes of its answers.
class SpoilingEngine final : public SharedEngine {
 public:
  using Spoil = std::function<void(std::vector<State>*)>;
  explicit SpoilingEngine(Spoil spoil) : spoil_(std::move(spoil)) {}

  void Measure(Job job, int repeats, Measured done) override {
    SharedEngine::Measure(std::move(job), repeats,
                          [spoil = spoil_, done = std::move(done)](absl::StatusOr<Measurement> measured) mutable {
                            if (measured.ok()) spoil(&measured->states);
                            std::move(done)(std::move(measured));
                          });
  }

 private:
  const Spoil spoil_;
};

TEST(LadderVerdictTest, WrongAnswersAreFoundOut) {
  struct Case {
    std::string name;
    v1::DType dtype;
    v1::Op op;
    SpoilingEngine::Spoil spoil;  // the states of 3 repeats on 1024 ones
    bool correct;
    bool same_bits;
  };
  const double last_place = 0x1p-42;  // of 1024; 1024 additions may lose half of one each
  for (const Case& each : std::vector<Case>{
           {"Untouched", v1::DTYPE_F64, v1::OP_SUM, [](auto*) {}, true, true},
           {"OneOfThree", v1::DTYPE_F64, v1::OP_SUM, [](auto* all) { (*all)[1].partial.float_sum += 1; }, false, false},
           {"AllAlike", v1::DTYPE_F64, v1::OP_SUM,
            [](auto* all) {
              for (State& state : *all) state.partial.float_sum += 1;
            },
            false, true},
           {"Rounded", v1::DTYPE_F64, v1::OP_SUM, [=](auto* all) { (*all)[1].partial.float_sum += last_place; }, true,
            false},
           {"RoundedTooMuch", v1::DTYPE_F64, v1::OP_SUM,
            [=](auto* all) { (*all)[1].partial.float_sum += 1024 * last_place; }, false, false},
           {"RoundedMean", v1::DTYPE_F64, v1::OP_MEAN, [=](auto* all) { (*all)[1].partial.float_sum += last_place; },
            true, false},
           {"RoundedNorm", v1::DTYPE_F64, v1::OP_L2,
            [=](auto* all) { (*all)[1].partial.float_sum_squares += 64 * last_place; }, true, false},
           {"WrongNorm", v1::DTYPE_F64, v1::OP_L2, [](auto* all) { (*all)[1].partial.float_sum_squares += 1; }, false,
            false},
           {"Infinite", v1::DTYPE_F64, v1::OP_SUM, [](auto* all) { (*all)[2].partial.float_sum = HUGE_VAL; }, false,
            false},
           {"WrongInteger", v1::DTYPE_I32, v1::OP_SUM, [](auto* all) { (*all)[2].partial.int_sum += 1; }, false, false},
           {"WrongMeanOfIntegers", v1::DTYPE_I32, v1::OP_MEAN, [](auto* all) { (*all)[0].partial.int_sum += 1; }, false,
            false},
           {"WrongCount", v1::DTYPE_F32, v1::OP_ALL, [](auto* all) { (*all)[0].partial.nonzero -= 1; }, false, false},
           {"WrongExtremum", v1::DTYPE_F32, v1::OP_MIN, [](auto* all) { (*all)[0].partial.extrema.min_key -= 1; },
            false, false},
       }) {
    SCOPED_TRACE(each.name);
    TestServer server(ServerOptions(), OnlyEngine(std::make_unique<SpoilingEngine>(each.spoil)));
    v1::LadderRequest request = LadderOf(each.dtype, 1024, each.op, 3);
    request.set_fill(1);
    request.add_pipelines("tiled_simd");
    const Climbed climbed = Climb(server, request);
    EXPECT_TRUE(climbed.status.ok()) << climbed.status.error_message();
    ASSERT_EQ(climbed.steps.size(), 1u);
    EXPECT_EQ(climbed.steps[0].correct(), each.correct) << Text(climbed.steps[0].value());
    EXPECT_EQ(climbed.steps[0].same_bits(), each.same_bits);
  }
}

// The CPU engine, and what it was asked to measure.
class ListeningEngine final : public SharedEngine {
 public:
  using Asked = std::vector<std::pair<std::string, int>>;  // pipeline and repeats
  explicit ListeningEngine(Asked* asked) : asked_(*asked) {}

  void Measure(Job job, int repeats, Measured done) override {
    asked_.emplace_back(job.spec.pipeline, repeats);  // one measurement at a time
    SharedEngine::Measure(std::move(job), repeats, std::move(done));
  }

 private:
  Asked& asked_;
};

TEST(LadderTurnsTest, RungsOfTheCpuTakeTurns) {
  ListeningEngine::Asked asked;
  TestServer server(ServerOptions(), OnlyEngine(std::make_unique<ListeningEngine>(&asked)));
  const auto climb = [&](std::vector<std::string> pipelines, int repeats) {
    asked.clear();
    v1::LadderRequest request = LadderOf(v1::DTYPE_I32, 1000, v1::OP_SUM, repeats);
    for (std::string& each : pipelines) request.add_pipelines(std::move(each));
    const Climbed climbed = Climb(server, request);
    EXPECT_TRUE(climbed.status.ok()) << climbed.status.error_message();
    for (const v1::LadderStep& step : climbed.steps) EXPECT_EQ(step.kernel_us_size(), repeats);
    return asked;
  };
  const std::string a = "tiled_simd", b = "sequential";
  EXPECT_THAT(climb({a, b}, 10), ElementsAre(Pair(a, 2), Pair(b, 2), Pair(a, 3), Pair(b, 3),  //
                                             Pair(a, 2), Pair(b, 2), Pair(a, 3), Pair(b, 3)));
  EXPECT_THAT(climb({a, b}, 2), ElementsAre(Pair(a, 1), Pair(b, 1), Pair(a, 1), Pair(b, 1)));
  EXPECT_THAT(climb({a, b}, 1), ElementsAre(Pair(a, 1), Pair(b, 1)));
  EXPECT_THAT(climb({a}, 10), ElementsAre(Pair(a, 10)));  // it has no other to take turns with
}

// The CPU engine is there, but has no lane for it.
TEST(LadderEngineTest, ARefusalEndsTheLadder) {
  HeldServer server(0);
  EXPECT_EQ(Climb(*server, LadderOf(v1::DTYPE_F32, 1000, v1::OP_SUM)).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

v1::LadderRequest SmallLadder() { return LadderOf(v1::DTYPE_F32, 1000, v1::OP_SUM, 1); }

// Reads what a held engine has been asked for so far: the expected answer, then rungs, as many as `steps`.
void ReadHeld(HeldServer& server, LadderStream& stream, int steps) {
  v1::LadderReply reply;
  for (int i = 0; i <= steps; ++i) {
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    server.engine().ReleaseFirst();
    ASSERT_TRUE(stream.Read(&reply));
    EXPECT_EQ(reply.has_start(), i == 0);
  }
}

TEST(LadderLifeTest, StepsComeAsTheyAreMeasured) {
  HeldServer server(1);
  LadderStream stream(server->client(), SmallLadder());
  ReadHeld(server, stream, 3);
  EXPECT_THAT(stream.ReadAll(), ::testing::IsEmpty());
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(LadderLifeTest, ACancelledOneFreesTheLane) {
  HeldServer server(1);
  {
    LadderStream stream(server->client(), SmallLadder());
    ReadHeld(server, stream, 1);
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    const CancelFlag cancelled = server.engine().cancelled();
    EXPECT_FALSE(*cancelled);
    stream.context().TryCancel();
    EXPECT_TRUE(AwaitTrue(*cancelled));
    EXPECT_THAT(stream.ReadAll(), ::testing::IsEmpty());
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  server.engine().Release();
  EXPECT_TRUE(Climb(*server, SmallLadder()).status.ok());
}

TEST(LadderLifeTest, CancelledBetweenTheRepeatsOfARung) {
  TestServer server;
  v1::LadderRequest request = LadderOf(v1::DTYPE_F64, 1 << 20, v1::OP_PROD, 1000);
  request.add_pipelines("sequential");
  {
    LadderStream stream(server.client(), request);
    v1::LadderReply start;
    ASSERT_TRUE(stream.Read(&start));
    stream.context().TryCancel();
  }
  // The lane is free long before the 1000 repeats, seconds each under a sanitizer, could have been done.
  EXPECT_TRUE(Climb(server, SmallLadder()).status.ok());
}

TEST(LadderLifeTest, TheDeadlineReachesTheEngine) {
  HeldServer server(1);
  LadderStream stream(server->client(), SmallLadder(), absl::Milliseconds(50));
  EXPECT_THAT(stream.ReadAll(), ::testing::IsEmpty());
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  if (server.engine().AwaitHeld(1, absl::Seconds(5))) {  // else it was too late before the engine saw it: fine as well
    EXPECT_TRUE(AwaitTrue(*server.engine().cancelled()));
  }
  server.engine().Release();
  EXPECT_TRUE(Climb(*server, SmallLadder()).status.ok());
}

// Ladders in threads of their own, and how they ended.
class PendingLadders {
 public:
  PendingLadders(TestServer& server, int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this, &server] { Run(server); });
  }
  ~PendingLadders() { Join(); }

  // Waits until `count` have ended: false after kPatience.
  bool AwaitEnded(int count) {
    const absl::MutexLock lock(&mutex_);
    const auto there = [this, count]()
                           ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return static_cast<int>(ended_.size()) >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }
  // The codes of all, in the order in which they ended.
  std::vector<grpc::StatusCode> Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    const absl::MutexLock lock(&mutex_);
    return ended_;
  }

 private:
  void Run(TestServer& server) {
    LadderStream stream(server.client(), SmallLadder());
    stream.ReadAll();
    const grpc::Status status = stream.Finish();
    const bool has_hint = stream.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms") == 1;
    EXPECT_EQ(has_hint, status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    const absl::MutexLock lock(&mutex_);
    ended_.push_back(status.error_code());
  }

  absl::Mutex mutex_;
  std::vector<grpc::StatusCode> ended_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

TEST(LadderLifeTest, OneRunsSomeWaitOneTooManyIsRefused) {
  HeldServer server(8);
  PendingLadders ladders(*server, 6);
  ASSERT_TRUE(ladders.AwaitEnded(1));  // so five were taken
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  EXPECT_EQ(server.engine().held(), 1);
  server.engine().Release();
  std::vector<grpc::StatusCode> expected(6, grpc::StatusCode::OK);
  expected.front() = grpc::StatusCode::RESOURCE_EXHAUSTED;
  EXPECT_EQ(ladders.Join(), expected);
}

TEST(LadderDrainTest, RunningFinishNewAreRefused) {
  HeldServer server(1);
  LadderStream running(server->client(), SmallLadder());
  ReadHeld(server, running, 1);
  server->server().Drain();
  const Climbed refused = Climb(*server, SmallLadder());
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("draining"));

  std::thread shutdown([&server] { server->server().Shutdown(kPatience); });
  server.engine().Release();
  EXPECT_EQ(running.ReadAll().size(), 2u);
  EXPECT_TRUE(running.Finish().ok());
  shutdown.join();
}

TEST(LadderDrainTest, WhatRunsOrWaitsTooLongIsCancelled) {
  HeldServer server(1);
  PendingLadders ladders(*server, 2);
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag cancelled = server.engine().cancelled();
  std::thread shutdown([&server] { server->server().Shutdown(absl::Milliseconds(1)); });
  EXPECT_TRUE(AwaitTrue(*cancelled));
  server.engine().Release();
  shutdown.join();
  EXPECT_THAT(ladders.Join(), ::testing::Each(::testing::Ne(grpc::StatusCode::OK)));
}

}  // namespace
}  // namespace reduced::server
