// Engine::ReduceMany: every array is answered as a Reduce of it alone, bit for bit, in whatever company.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/layout.h"
#include "tests/contract/answers.h"
#include "tests/contract/device_array.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced::test {
namespace {

struct ManyReply {
  std::size_t failed = 0;
  absl::StatusOr<std::vector<Answer>> answers;
};
ManyReply ReduceManyAndWait(Engine& engine, std::vector<Job> jobs) {
  ManyReply reply;
  absl::Notification done;
  engine.ReduceMany(std::move(jobs), [&](std::size_t failed, absl::StatusOr<std::vector<Answer>> answers) {
    reply = {failed, std::move(answers)};
    done.Notify();
  });
  done.WaitForNotification();
  return reply;
}

// One array of a request, and what is asked of it.
struct Asked {
  Bytes elements;
  ArrayRef array;
  ReduceSpec spec;
};

// The answers to an array, as bytes, and the state of an op of the distribution.
struct Told {
  absl::Status status;
  State state;
  std::unique_ptr<Answers> places;
  std::vector<State> states;
};

class EngineMany : public EngineTest<EngineKind> {
 protected:
  void SetUp() override {
    EngineTest<EngineKind>::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    memory_ = std::make_unique<DeviceArray>(kMemory, 0);
  }

  // Adds an array, which begins `past` bytes after a multiple of 64 of device memory, or in host memory.
  void Add(DType dtype, std::int64_t count, std::vector<OpCall> ops, DataKind kind = DataKind::kUniform,
           std::size_t past = 0, bool on_device = true) {
    Asked asked;
    asked.elements = MakeData(RowOf(dtype).is_float || kind < DataKind::kSomeNan ? kind : DataKind::kFull, dtype, count,
                              asked_.size() + 1);
    std::erase_if(ops, [&](const OpCall& call) { return !Supports(call.op, dtype); });
    asked.spec = Spec(dtype, count);
    asked.spec.ops = std::move(ops);
    asked.spec.precision = Precision::kExact;
    asked.spec.overflow_policy = OverflowPolicy::kWrap;
    asked.spec.empty_policy = EmptyPolicy::kFill;
    if (on_device) {
      used_ = (used_ + 63) / 64 * 64 + past;
      ASSERT_LE(used_ + asked.elements.size(), kMemory);
      if (count > 0) memory_->Write(used_, asked.elements.data(), asked.elements.size());
      asked.array = memory_->array();
      asked.array.data = memory_->data() + used_;
      used_ += asked.elements.size();
    }
    asked_.push_back(std::move(asked));
    if (!on_device) asked_.back().array = {.data = asked_.back().elements.data()};
  }

  // A job as the service makes it: with ops of the distribution the array is a partition with one output.
  Job JobOf(const Asked& asked, bool states, Told* told) const {
    Job job{.spec = asked.spec, .array = asked.array};
    if (AnsweredByAccumulators(asked.spec)) return job;
    const std::int64_t shape[] = {asked.spec.count};
    job.partition = Partition{.layout = LayoutOf(shape, {true}), .rows = asked.spec.count};
    told->places = std::make_unique<Answers>(asked.spec, 1);
    job.place = told->places->Place();
    if (states) job.states = &told->states;
    return job;
  }

  static void ExpectSame(const Asked& asked, const Told& many, const Told& alone) {
    ASSERT_EQ(many.status, alone.status);
    if (many.places != nullptr) {
      EXPECT_TRUE(many.places->memory == alone.places->memory);
      ASSERT_EQ(many.states.size(), alone.states.size());
      for (std::size_t i = 0; i < many.states.size(); ++i) {
        EXPECT_EQ(many.states[i].partial.count, alone.states[i].partial.count);
        ASSERT_EQ(many.states[i].entries.size(), alone.states[i].entries.size());
        for (std::size_t op = 0; op < alone.states[i].entries.size(); ++op) {
          EXPECT_EQ(many.states[i].entries[op].keys, alone.states[i].entries[op].keys);
          EXPECT_EQ(many.states[i].entries[op].values, alone.states[i].entries[op].values);
        }
      }
      return;
    }
    ASSERT_EQ(many.state.exact == nullptr, alone.state.exact == nullptr);
    if (alone.state.exact != nullptr) {
      EXPECT_TRUE(*many.state.exact == *alone.state.exact);
    }
    for (const OpCall& call : asked.spec.ops) {
      std::byte got[8] = {}, expected[8] = {};
      const absl::StatusOr<Value> value = Finalize(asked.spec, call, many.state);
      const absl::StatusOr<Value> right = Finalize(asked.spec, call, alone.state);
      ASSERT_EQ(value.status(), right.status());
      if (!right.ok()) continue;
      StoreValue(*value, got);
      StoreValue(*right, expected);
      EXPECT_EQ(std::memcmp(got, expected, sizeof(got)), 0)
          << RowOf(call.op).name << ": " << ToString(*value) << ", not " << ToString(*right);
    }
  }

  // All that were added, together, are as each alone, here and on the CPU. Forgets them.
  void Check(Engine& by, NanPolicy policy = NanPolicy::kPropagate, bool states = false) {
    for (Asked& asked : asked_) asked.spec.nan_policy = policy;
    std::vector<Told> many(asked_.size());
    std::vector<Job> jobs;
    for (std::size_t i = 0; i < asked_.size(); ++i) jobs.push_back(JobOf(asked_[i], states, &many[i]));
    ManyReply reply = ReduceManyAndWait(by, std::move(jobs));
    ASSERT_TRUE(reply.answers.ok()) << reply.failed << ": " << reply.answers.status();
    ASSERT_EQ(reply.answers->size(), asked_.size());
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      const Asked& asked = asked_[i];
      SCOPED_TRACE(::testing::Message() << "array " << i << ", " << Describe(asked.spec, "") << ", states " << states);
      Answer& answer = (*reply.answers)[i];
      EXPECT_EQ(answer.ran.engine, kind());
      EXPECT_TRUE(answer.timing.kernel_us.has_value() || asked.spec.count == 0);
      many[i].state = std::move(answer.state);
      for (const bool on_cpu : {false, true}) {
        Told alone;
        Job job = JobOf(asked, states, &alone);
        if (on_cpu) {
          job.array = {.data = asked.elements.data()};
          job.spec.engine = EngineKind::kCpu;
        }
        absl::StatusOr<Answer> one = ReduceAndWait(on_cpu ? engine_for(0) : by, job);
        alone.status = one.status();
        if (one.ok()) alone.state = std::move(one->state);
        ExpectSame(asked, many[i], alone);
      }
    }
    asked_.clear();
    used_ = 0;
  }

  static constexpr std::size_t kMemory = std::size_t{48} << 20;
  std::unique_ptr<DeviceArray> memory_;
  std::size_t used_ = 0;
  std::vector<Asked> asked_;
};

// Those that have a launch for many arrays, and others.
const std::vector<std::vector<OpCall>> kQuestions = {
    {Op::kSum, Op::kMin, Op::kMax, Op::kL2, Op::kNanCount, Op::kCount, Op::kMean, Op::kStd, Op::kArgmin},
    {Op::kL2},
    {Op::kSum},
    {Op::kSum, Op::kArgmax},
    {Op::kVar},
    {Op::kMin, Op::kArgmax, Op::kNanCount, Op::kAny},
    {Op::kCountNonzero},
    {Op::kFingerprint},
    {Op::kSum, Op::kFingerprint, Op::kMax, Op::kL2},
    {Op::kL1, Op::kSum},
    {Op::kMedian, Op::kSum},
    {Op::kRange, Op::kBitXor, Op::kSum},
};
constexpr std::int64_t kCounts[] = {0, 1, 2, 63, 64, 1000, 5000, 70'001};

TEST_P(EngineMany, AnswerEveryDTypeTogether) {
  for (const std::vector<OpCall>& ops : kQuestions) {
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      for (const DTypeRow& dtype : kDTypes) {
        for (const std::int64_t count : kCounts) {
          Add(dtype.dtype, kSlowBuild ? count / 7 : count, ops,
              count % 2 == 0 ? DataKind::kSomeNan : DataKind::kUniform);
          if (asked_.back().spec.ops.empty()) asked_.pop_back();
        }
      }
      Check(engine(), policy);
    }
  }
}

// Bytes before the first vector, and arrays that are no elements' multiple of their size from address 0.
TEST_P(EngineMany, AnswerWhereverArraysBegin) {
  const Started own = StartOwn({});  // with room for all in one launch
  ASSERT_NE(own.engine, nullptr);
  for (const std::vector<OpCall>& ops : {kQuestions[0], kQuestions[1], kQuestions[5], kQuestions[8]}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64, DType::kI8, DType::kI64}) {
      for (std::size_t past = 0; past < 20; ++past) {
        Add(dtype, 40 + 977 * static_cast<std::int64_t>(past % 3), ops, DataKind::kFull, past);
      }
    }
    Check(*own.engine);
  }
}

TEST_P(EngineMany, AnswerOneHugeArrayBesideManyTinyOnes) {
  const Started own = StartOwn({});
  ASSERT_NE(own.engine, nullptr);
  for (const std::vector<OpCall>& ops : {kQuestions[0], kQuestions[1], kQuestions[3], kQuestions[5], kQuestions[7]}) {
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kU8}) {
      for (int i = 0; i < 700; ++i) {
        const std::int64_t huge = (std::int64_t{24} << 20) / RowOf(dtype).bytes / (kSlowBuild ? 16 : 1);
        Add(dtype, i == 500 ? huge + 7 : 1 + i * i % 301, ops, i % 50 == 0 ? DataKind::kSomeNan : DataKind::kUniform,
            static_cast<std::size_t>(RowOf(dtype).bytes) * (i % 5));
      }
      Check(*own.engine, NanPolicy::kOmit);
    }
  }
}

TEST_P(EngineMany, AnswerWithStates) {
  for (const std::vector<OpCall>& ops : {kQuestions[7], kQuestions[8], kQuestions[10]}) {
    for (const DTypeRow& dtype : kDTypes) {
      for (const std::int64_t count : {0, 1, 1000, 40'000}) Add(dtype.dtype, count, ops);
    }
    Check(engine(), NanPolicy::kPropagate, /*states=*/true);
  }
}

TEST_P(EngineMany, AnswerArraysOfTheHostBesideThoseOfTheDevice) {
  for (const DType dtype : {DType::kBF16, DType::kI32, DType::kF8E4M3}) {
    for (int i = 0; i < 9; ++i) Add(dtype, 3000 * i, kQuestions[0], DataKind::kFull, 0, /*on_device=*/i % 3 != 1);
  }
  Check(engine());
}

TEST_P(EngineMany, NameTheOneThatFails) {
  for (int i = 0; i < 4; ++i) Add(DType::kF32, 1000, kQuestions[0]);
  const auto jobs = [&] {
    std::vector<Job> all;
    for (const Asked& asked : asked_) all.push_back({.spec = asked.spec, .array = asked.array});
    return all;
  };
  std::vector<Job> elsewhere = jobs();
  elsewhere[2].array.device = 7;
  ManyReply reply = ReduceManyAndWait(engine(), elsewhere);
  EXPECT_EQ(reply.answers.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reply.failed, 2U);
  for (const bool cancelled : {false, true}) {
    std::vector<Job> late = jobs();
    const CancelFlag flag = std::make_shared<std::atomic<bool>>(true);
    for (Job& job : late) {
      if (cancelled) job.cancelled = flag;
      if (!cancelled) job.deadline = absl::InfinitePast();
    }
    EXPECT_EQ(ReduceManyAndWait(engine(), late).answers.status().code(),
              cancelled ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(ReduceManyAndWait(engine(), jobs()).answers.ok());
}

// Answers of both kinds of kernels are wanted of one array, and one of them has none.
TEST_P(EngineMany, KeepErrorsOfOps) {
  Add(DType::kI64, 1000, {Op::kFingerprint, Op::kSum, Op::kMax}, DataKind::kLarge);
  Asked& asked = asked_.front();
  asked.spec.overflow_policy = OverflowPolicy::kError;
  for (const bool each : {false, true}) {
    std::vector<absl::Status> errors[2];
    Told told[2];
    Job many = JobOf(asked, false, &told[0]), alone = JobOf(asked, false, &told[1]);
    if (each) many.errors = &errors[0], alone.errors = &errors[1];
    const ManyReply reply = ReduceManyAndWait(engine(), {many});
    EXPECT_EQ(reply.answers.status(), ReduceAndWait(engine(), alone).status());
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_EQ(reply.answers.ok(), each);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, EngineMany, ::testing::Values(EngineKind::kCuda), NameOfKind);

}  // namespace
}  // namespace reduced::test
