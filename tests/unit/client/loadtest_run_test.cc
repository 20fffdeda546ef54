// Load tests of a server within the process, which is right, wrong, slow or stalled as each test wants.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <tuple>

#include "absl/time/clock.h"
#include "client/reducectl/loadtest/loadtest.h"
#include "client/reducectl/loadtest/reference.h"
#include "client/reducectl/loadtest/run.h"
#include "client/reducectl/loadtest/work.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::HasSubstr;

// Sums f32, as a server does.
grpc::Status Sum(const v1::ReduceRequest& request, v1::ReduceResponse* response) {
  double sum = 0;
  for (std::size_t i = 0; i + 4 <= request.inline_data().size(); i += 4) {
    float element = 0;
    std::memcpy(&element, request.inline_data().data() + i, 4);
    sum += element;
  }
  auto* const result = response->add_results();
  result->set_op(v1::OP_SUM);
  result->mutable_value()->set_dtype(v1::DTYPE_F64);
  result->mutable_value()->set_f(sum);
  response->mutable_timing()->set_receive_us(3);
  response->mutable_timing()->set_kernel_us(5);
  response->mutable_timing()->set_total_us(10);
  return grpc::Status::OK;
}

class LoadtestRunTest : public CallTest {
 protected:
  void SetUp() override {
    CallTest::SetUp();
    service_.on_reduce = Sum;
  }

  std::unique_ptr<Work> MakeWork(int connections = 1, bool include_fill = false) {
    Kind kind;
    kind.via = "inline";
    kind.sizes.list = {64, 4096};
    auto work = Work::Prepare(
        {kind},
        {.include_fill = include_fill, .connections = connections, .client = {.server = address_, .timeout = kLong}});
    EXPECT_TRUE(work.ok()) << work.status();
    const absl::Status probed = (*work)->Probe();
    EXPECT_TRUE(probed.ok()) << probed;
    return *std::move(work);
  }

  StepOptions Closed(int concurrency, int threads, std::int64_t count) {
    StepOptions options;
    options.concurrency = concurrency;
    options.threads = threads;
    options.count = count;
    options.warmup = absl::Milliseconds(5);
    options.verify = 1;
    return options;
  }

  LoadtestArguments Arguments() {
    LoadtestArguments arguments;
    arguments.kind.via = "inline";
    arguments.count = 200;
    arguments.warmup = absl::ZeroDuration();
    arguments.max_spread = 1e9;
    return arguments;
  }

  ExitCode Run(const LoadtestArguments& arguments) {
    return RunLoadtest({.server = address_, .server_given = true, .timeout = kLong}, arguments);
  }
};

TEST_F(LoadtestRunTest, ResidentArraysLieWhereTheyAreReduced) {
  std::vector<std::string> devices;
  service_.on_put = [&](const v1::PutArrayRequest& request) {
    if (request.has_header()) devices.push_back(request.header().device());
    return grpc::Status::OK;
  };
  std::vector<Kind> kinds(3);
  for (Kind& kind : kinds) {
    kind.via = "resident";
    kind.sizes.list = {1 << 20};  // one array
  }
  kinds[1].engine = "cpu";
  kinds[2].engine = "cuda";
  const auto work = Work::Prepare(kinds, {.client = {.server = address_, .timeout = kLong}});
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_EQ(devices, (std::vector<std::string>{"", "cpu", ""}));
}

TEST_F(LoadtestRunTest, ClosedLoopsMeasureWhatTheyAreAskedFor) {
  for (const auto& [concurrency, threads, connections, fill] : std::vector<std::tuple<int, int, int, bool>>{
           {1, 0, 1, false}, {4, 4, 2, true}, {6, 2, 3, false}, {5, 1, 1, true}}) {
    const auto work = MakeWork(connections, fill);
    const auto step = RunStep(*work, Closed(concurrency, threads, 500));
    ASSERT_TRUE(step.ok()) << step.status();
    const Tally& tally = step->tally;
    EXPECT_EQ(tally.answered, 500);
    EXPECT_EQ(tally.verified, 500);
    EXPECT_EQ(tally.wrong, 0) << tally.first_wrong;
    EXPECT_EQ(tally.failed(), 0);
    EXPECT_EQ(tally.corrected.count(), 500);
    EXPECT_EQ(tally.corrected.max_ns(), tally.uncorrected.max_ns());  // nothing waits for its turn
    EXPECT_EQ(tally.stages[kClientStage].count(), fill ? 500 : 0);
    const auto stage = [&tally](absl::string_view name) -> const Histogram& {
      const auto* const row = std::find_if(std::begin(kStageRows), std::end(kStageRows),
                                           [name](const StageRow& each) { return each.name == name; });
      return tally.stages.at(static_cast<std::size_t>(row - std::begin(kStageRows)));
    };
    EXPECT_EQ(stage("queue").count(), 0);
    EXPECT_NEAR(stage("kernel").PercentileNs(50), 5000, 50);
    EXPECT_NEAR(stage("reply").PercentileNs(50), 2000, 20);
    EXPECT_GT(step->seconds, 0);
  }
}

TEST_F(LoadtestRunTest, OpenLoopsKeepTheirPlan) {
  const auto work = MakeWork();
  for (const int threads : {0, 1}) {
    for (const ArrivalKind arrivals : {ArrivalKind::kConstant, ArrivalKind::kPoisson}) {
      StepOptions options = Closed(8, threads, 0);
      options.rate = 400;
      options.arrivals = arrivals;
      options.duration = absl::Seconds(1);
      const auto step = RunStep(*work, options);
      ASSERT_TRUE(step.ok()) << step.status();
      // Whatever the machine does meanwhile, what is due is counted: sent, or not any more.
      const auto due = static_cast<double>(step->tally.answered + step->tally.unsent);
      EXPECT_NEAR(due, 400, arrivals == ArrivalKind::kConstant ? 2 : 100);
      EXPECT_EQ(step->tally.corrected.count(), step->tally.answered + step->tally.unsent);
      EXPECT_EQ(step->seconds, 1);
      EXPECT_LE(step->tally.uncorrected.max_ns(), step->tally.corrected.max_ns());
    }
  }
}

// While a server stands still an open loop that waits for it sends nothing: what would have been sent is missing in the
// uncorrected figures, and shows in the corrected ones.
TEST_F(LoadtestRunTest, AStallShowsInTheCorrectedPercentilesOnly) {
  constexpr absl::Duration kStall = absl::Milliseconds(600);
  const auto work = MakeWork();
  for (const int threads : {0, 1}) {
    std::atomic<int> calls = 0;
    absl::Mutex mutex;
    absl::Time until = absl::InfinitePast();
    service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
      absl::Duration left;
      {
        const absl::MutexLock lock(&mutex);
        if (++calls == 300) until = absl::Now() + kStall;
        left = until - absl::Now();
      }
      absl::SleepFor(left);  // every request, until then
      return Sum(request, response);
    };
    StepOptions options = Closed(2, threads, 0);
    options.rate = 500;
    options.duration = absl::Seconds(2);
    const auto step = RunStep(*work, options);
    ASSERT_TRUE(step.ok()) << step.status();
    const auto stall_ns = static_cast<double>(absl::ToInt64Nanoseconds(kStall));
    // A third of a second's worth of requests, a sixth of all, waited for half of the stall or more.
    EXPECT_GT(step->tally.corrected.PercentileNs(90), stall_ns / 4);
    EXPECT_GT(step->tally.corrected.PercentileNs(99), stall_ns / 2);
    // Only those under way noticed: at most 2 of 1000.
    EXPECT_LT(step->tally.uncorrected.PercentileNs(99), step->tally.corrected.PercentileNs(99) / 2);
    EXPECT_GE(step->tally.uncorrected.max_ns(), stall_ns * 0.9);
  }
}

TEST_F(LoadtestRunTest, ARateThatCannotBeHeldIsSaidToBe) {
  const auto work = MakeWork();
  absl::Mutex mutex;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    const absl::MutexLock lock(&mutex);
    absl::SleepFor(absl::Milliseconds(10));  // 100 a second at most
    return Sum(request, response);
  };
  StepOptions options = Closed(2, 0, 0);
  options.rate = 1000;
  options.duration = absl::Milliseconds(500);
  const auto step = RunStep(*work, options);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_FALSE(step->RateHeld());
  EXPECT_NEAR(static_cast<double>(step->tally.answered + step->tally.unsent), 500, 2);
  EXPECT_GT(step->tally.unsent, 2);
  EXPECT_EQ(step->tally.corrected.count(), step->tally.answered + step->tally.unsent);
  EXPECT_EQ(step->tally.uncorrected.count(), step->tally.answered);
  EXPECT_GT(step->tally.corrected.PercentileNs(99), 400e6);  // those that were never sent have waited, too
}

TEST_F(LoadtestRunTest, WrongAnswersAreCaught) {
  const auto work = MakeWork();
  std::atomic<int> calls = 0;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    const grpc::Status status = Sum(request, response);
    auto* const value = response->mutable_results(0)->mutable_value();
    if (++calls % 10 == 0) value->set_f(value->f() + 0.25);
    return status;
  };
  auto step = RunStep(*work, Closed(2, 0, 1000));
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_NEAR(static_cast<double>(step->tally.wrong), 100, 3);
  EXPECT_THAT(step->tally.first_wrong, HasSubstr("sum is "));
  StepOptions sampled = Closed(2, 0, 1000);
  sampled.verify = 0.1;
  step = RunStep(*work, sampled);
  ASSERT_TRUE(step.ok());
  EXPECT_NEAR(static_cast<double>(step->tally.verified), 100, 4);
}

TEST_F(LoadtestRunTest, ErrorsAreCountedByCode) {
  const auto work = MakeWork();
  std::atomic<int> calls = 0;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    if (++calls % 4 == 0) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full up");
    return Sum(request, response);
  };
  for (const int threads : {2, 1}) {
    const auto step = RunStep(*work, Closed(2, threads, 400));
    ASSERT_TRUE(step.ok()) << step.status();
    constexpr auto kCode = static_cast<std::size_t>(grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_NEAR(static_cast<double>(step->tally.errors[kCode]), 100, 3);
    EXPECT_EQ(step->tally.failed() + step->tally.answered, 400);
    EXPECT_THAT(step->tally.messages[kCode], HasSubstr("full up"));
  }
}

TEST_F(LoadtestRunTest, AnInterruptEndsItEarly) {
  const auto work = MakeWork();
  for (const double rate : {0.0, 0.5}) {
    std::atomic<bool> interrupt = true;
    StepOptions options = Closed(2, 0, 0);
    options.rate = rate;
    options.duration = absl::Hours(1);
    options.warmup = absl::ZeroDuration();
    options.interrupt = &interrupt;
    const auto step = RunStep(*work, options);
    ASSERT_TRUE(step.ok());
    EXPECT_TRUE(step->interrupted);
    EXPECT_LT(step->seconds, 60);
  }
}

TEST_F(LoadtestRunTest, ExitCodes) {
  EXPECT_EQ(Run(Arguments()), kOk);

  LoadtestArguments strict = Arguments();
  strict.objectives = *ParseObjectives("p50=1ns");
  EXPECT_EQ(Run(strict), kMissed);
  strict.find_max = true;
  strict.count = 0;
  strict.duration = absl::Milliseconds(200);
  strict.rates = {100, 200};
  EXPECT_EQ(Run(strict), kMissed);
  strict.objectives = *ParseObjectives("p50=10s");
  EXPECT_EQ(Run(strict), kOk);

  LoadtestArguments unstable = Arguments();
  unstable.count = 0;
  unstable.duration = absl::Milliseconds(300);
  unstable.max_spread = -1;  // which no load test keeps to
  EXPECT_EQ(Run(unstable), kUnstable);

  std::atomic<int> calls = 0;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    if (++calls > 20) return grpc::Status(grpc::StatusCode::INTERNAL, "broken");
    return Sum(request, response);
  };
  EXPECT_EQ(Run(Arguments()), kServer);

  calls = 0;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    const grpc::Status status = Sum(request, response);
    if (++calls > 20) response->mutable_results(0)->mutable_value()->set_f(1e9);
    return status;
  };
  LoadtestArguments verified = Arguments();
  verified.verify = 1;
  EXPECT_EQ(Run(verified), kWrong);
  EXPECT_EQ(Run(Arguments()), kWrong);  // the first one already: no load is worth it
}

}  // namespace
}  // namespace reduced::client
