// What is the CPU engine's own: which thread runs what, the same bits for any number of threads, stopping on the way.
// The contract that it shares with the other engines is tested in tests/contract.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cpu/engine.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr std::int64_t kInlineBytes = 256 << 10;

EngineOptions Options(int threads, int lanes = 1, int queue_limit = 8) {
  EngineOptions options;
  options.cpu_threads = threads;
  options.cpu_lanes = lanes;
  options.queue_limit = queue_limit;
  return options;
}

Job JobOf(DType dtype, std::int64_t count, std::vector<OpCall> ops, const void* data) {
  return {.spec = {.dtype = dtype, .count = count, .ops = std::move(ops)}, .array = {data}};
}

// 64 GiB that can be read: the page of zeros, again and again. Takes far longer to reduce than any test waits.
class EndlessArray {
 public:
  EndlessArray()
      : memory_(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0)) {}
  ~EndlessArray() {
    if (ok()) munmap(memory_, kBytes);
  }
  bool ok() const { return memory_ != MAP_FAILED; }
  Job Sum() const { return JobOf(DType::kF32, kBytes / 4, {Op::kSum}, memory_); }

 private:
  static constexpr std::size_t kBytes = std::size_t{64} << 30;
  void* memory_;
};

// Until a lane is busy, or patience ends.
bool WaitForABusyLane(const Engine& engine) {
  const absl::Time end = absl::Now() + kPatience;
  while (engine.info().lanes_busy == 0 && absl::Now() < end) std::this_thread::yield();
  return engine.info().lanes_busy > 0;
}

TEST(CpuEngine, ReducesOnTheLaneThatItsThreadHolds) {
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2));
  const std::vector<std::int8_t> array(kInlineBytes + 1, 1);
  std::thread::id lane;
  std::vector<std::thread::id> ran;
  absl::Notification done;
  engine->OnLane({.spec = {.dtype = DType::kU8, .count = 1000}}, [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(engine->info().lanes_busy, 1);
    lane = std::this_thread::get_id();
    for (const Op op : {Op::kSum, Op::kFingerprint}) {
      for (const std::int64_t count : {std::int64_t{1}, kInlineBytes + 1}) {
        engine->Reduce(JobOf(DType::kI8, count, {op}, array.data()), [&](absl::StatusOr<Answer> result) {
          EXPECT_TRUE(result.ok()) << result.status().ToString();
          ran.push_back(std::this_thread::get_id());
        });
      }
    }
    done.Notify();
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(ran, std::vector<std::thread::id>(4, lane)) << "each within its call";
  EXPECT_NE(lane, std::this_thread::get_id());
  // Without the lane a large job goes to one again, and who holds it is told of an error of the queue.
  absl::Notification after;
  engine->Reduce(JobOf(DType::kI8, kInlineBytes + 1, {Op::kSum}, array.data()), [&](absl::StatusOr<Answer> result) {
    EXPECT_TRUE(result.ok() && result->timing.queue_us.has_value());
    after.Notify();
  });
  ASSERT_TRUE(after.WaitForNotificationWithTimeout(kPatience));
  engine->OnLane({.spec = {}, .cancelled = std::make_shared<std::atomic<bool>>(true)},
                 [](const absl::Status& status) { EXPECT_TRUE(absl::IsCancelled(status)) << status; });
}

TEST(CpuEngine, ReducesSmallArraysOnTheCallingThreadAndOthersOnALane) {
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2));
  const std::vector<std::int8_t> array(kInlineBytes + 1, 1);
  for (const std::int64_t count : {std::int64_t{0}, kInlineBytes, kInlineBytes + 1}) {
    std::thread::id ran;
    absl::Notification done;
    engine->Reduce(JobOf(DType::kI8, count, {Op::kSum}, array.data()), [&](absl::StatusOr<Answer> result) {
      ran = std::this_thread::get_id();
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      EXPECT_EQ(static_cast<std::int64_t>(result->state.partial.int_sum), count);
      EXPECT_EQ(result->timing.queue_us.has_value(), count > kInlineBytes);
      done.Notify();
    });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
    EXPECT_EQ(ran == std::this_thread::get_id(), count <= kInlineBytes);
  }
}

TEST(CpuEngine, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kF64, DType::kI32}) {
    const std::int64_t count = test::kSlowBuild ? 300'001 : 3'000'001;
    const test::Bytes array = test::MakeData(test::DataKind::kUniform, dtype, count, 5);
    const Job job = JobOf(dtype, count, test::OpsOf(dtype), array.data());
    ReduceSpec spec = job.spec;
    spec.overflow_policy = OverflowPolicy::kWrap;
    std::vector<Value> first;
    const std::vector<int> all_threads = test::kSlowBuild ? std::vector{1, 3} : std::vector{1, 2, 3, 8};
    for (const int threads : all_threads) {
      const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(threads));
      EXPECT_EQ(engine->info().parallel_units, threads);
      for (int run = 0; run < (test::kSlowBuild ? 1 : 3); ++run) {
        const absl::StatusOr<Answer> result = test::ReduceAndWait(*engine, job);
        ASSERT_TRUE(result.ok()) << result.status().ToString();
        const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result->state);
        ASSERT_TRUE(values.ok()) << values.status().ToString();
        if (first.empty()) first = *values;
        for (std::size_t i = 0; i < first.size(); ++i) {
          EXPECT_TRUE(test::SameBits((*values)[i], first[i]))
              << RowOf(spec.ops[i]).name << " by " << threads << " threads: " << test::ToString((*values)[i])
              << ", by 1: " << test::ToString(first[i]);
        }
      }
    }
  }
}

TEST(CpuEngine, StopsOnTheWayWhenCancelled) {
  const EndlessArray array;
  if (!array.ok()) GTEST_SKIP() << "64 GiB of address space can't be had";
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2));
  Job job = array.Sum();
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  const CancelFlag cancelled = job.cancelled;
  absl::Notification done;
  engine->Reduce(std::move(job), [&](absl::StatusOr<Answer> result) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status().ToString();
    done.Notify();
  });
  EXPECT_TRUE(WaitForABusyLane(*engine));
  cancelled->store(true);
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
}

// An array has millions of tasks that haven't begun: they must not be begun one by one.
TEST(CpuEngine, StopsAtOnceHoweverLargeTheArray) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 46;
  const int file = memfd_create("sparse", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, kBytes), 0);
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2));
  Job job = JobOf(DType::kF32, kBytes / 4, {Op::kSum}, nullptr);
  job.array.space = MemorySpace::kFile;
  job.array.file = file;
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  const CancelFlag cancelled = job.cancelled;
  absl::Notification done;
  engine->Reduce(std::move(job), [&](absl::StatusOr<Answer> result) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status().ToString();
    done.Notify();
  });
  EXPECT_TRUE(WaitForABusyLane(*engine));
  cancelled->store(true);
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  close(file);
}

// By the slow rungs, too.
TEST(CpuEngine, StopsARungOnTheWay) {
  const EndlessArray array;
  if (!array.ok()) GTEST_SKIP() << "64 GiB of address space can't be had";
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2));
  Job job = array.Sum();
  job.spec.precision = Precision::kF64;
  job.spec.pipeline = "sequential";
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  const CancelFlag cancelled = job.cancelled;
  absl::Notification done;
  engine->Reduce(std::move(job), [&](absl::StatusOr<Answer> result) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status().ToString();
    done.Notify();
  });
  EXPECT_TRUE(WaitForABusyLane(*engine));
  cancelled->store(true);
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(5)));
}

TEST(CpuEngine, StopsOnTheWayWhenTheDeadlinePasses) {
  const EndlessArray array;
  if (!array.ok()) GTEST_SKIP() << "64 GiB of address space can't be had";
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2));
  Job job = array.Sum();
  job.deadline = absl::Now() + absl::Milliseconds(20);
  const absl::Status status = test::ReduceAndWait(*engine, job).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_FALSE(status.message().empty());
}

TEST(CpuEngine, RefusesWhatTheQueueCannotHoldAndAnswersTheRest) {
  const EndlessArray array;
  if (!array.ok()) GTEST_SKIP() << "64 GiB of address space can't be had";
  std::vector<absl::StatusCode> codes(3, absl::StatusCode::kUnknown);
  absl::BlockingCounter answered(3);
  {
    const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2, /*lanes=*/1, /*queue_limit=*/1));
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    const auto submit = [&](int i) {
      Job job = array.Sum();
      job.cancelled = cancelled;
      engine->Reduce(std::move(job), [&, i](absl::StatusOr<Answer> result) {
        codes[i] = result.status().code();
        answered.DecrementCount();
      });
    };
    submit(0);
    ASSERT_TRUE(WaitForABusyLane(*engine));
    submit(1);
    EXPECT_EQ(engine->info().queue_length, 1);
    submit(2);
    EXPECT_EQ(codes[2], absl::StatusCode::kResourceExhausted);  // at once
    cancelled->store(true);
  }
  answered.Wait();  // the engine is gone: every job was answered
  EXPECT_EQ(codes[0], absl::StatusCode::kCancelled);
  EXPECT_EQ(codes[1], absl::StatusCode::kCancelled);
}

TEST(CpuEngine, ReducesManyArraysAtOnce) {
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(2, /*lanes=*/3, /*queue_limit=*/1000));
  const std::vector<std::int32_t> array(400'000, 7);
  constexpr int kCallers = 4;
  constexpr int kCalls = 40;
  std::atomic<int> right = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int call = 0; call < kCalls; ++call) {
        const std::int64_t count = (call + caller) % 2 == 0 ? 1000 + call : 400'000 - call;
        const absl::StatusOr<Answer> result =
            test::ReduceAndWait(*engine, JobOf(DType::kI32, count, {Op::kSum, Op::kArgmax}, array.data()));
        if (result.ok() && result->state.partial.int_sum == 7 * count && result->state.partial.extrema.max_index == 0)
          ++right;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(right, kCallers * kCalls);
}

TEST(CpuEngine, DescribesItselfAndIsCalibrated) {
  const std::unique_ptr<Engine> engine = MakeCpuEngine(Options(/*threads=*/0));
  const DeviceInfo info = engine->info();
  EXPECT_EQ(info.name, "cpu");
  EXPECT_FALSE(info.model.empty());
  EXPECT_EQ(info.model.find('\n'), std::string::npos);
  EXPECT_GT(info.memory_bytes, 1 << 20);
  EXPECT_GE(info.parallel_units, 1);
  EXPECT_LE(info.parallel_units, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_EQ(info.details.find("vectors: "), 0U);
  const Calibration calibration = engine->calibration();
  EXPECT_GT(calibration.fixed_us, 0);
  EXPECT_LT(calibration.fixed_us, 1000);
  EXPECT_GE(calibration.host_gb_per_s, test::kSlowBuild ? 0.01 : 0.5);
}

}  // namespace
}  // namespace reduced
