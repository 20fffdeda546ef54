// What becomes of a job: answered exactly once, in time or refused, whatever else goes on.
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"

namespace reduced::test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr std::int64_t kQueuedCount = 4 << 20;  // f32 elements: more than any engine reduces on the calling thread

// Gathers the answers of many jobs. Thread-safe. Outlives the engines that its callbacks are given to.
class Inbox {
 public:
  // A `done` for one job; the answer is kept under `id`.
  Engine::Done Expect(int id) {
    absl::MutexLock lock(&mutex_);
    ++expected_;
    return [this, id](absl::StatusOr<Answer> result) {
      absl::MutexLock lock(&mutex_);
      answers_.emplace_back(id, std::move(result));
    };
  }

  // Waits until there are as many answers as were expected; in the order they came.
  std::vector<std::pair<int, absl::StatusOr<Answer>>> Wait() {
    absl::MutexLock lock(&mutex_);
    const auto all = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return answers_.size() >= expected_; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&all), kPatience)) ADD_FAILURE() << "a job was not answered";
    EXPECT_EQ(answers_.size(), expected_);
    return answers_;
  }

  std::size_t size() const {
    absl::MutexLock lock(&mutex_);
    return answers_.size();
  }

 private:
  mutable absl::Mutex mutex_;
  std::size_t expected_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<int, absl::StatusOr<Answer>>> answers_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusCode CodeOf(const std::pair<int, absl::StatusOr<Answer>>& answer) { return answer.second.status().code(); }

class EngineJobs : public EngineTest<EngineKind> {
 protected:
  static EngineOptions OneLane(int queue_limit) {
    EngineOptions options = Options();
    options.cpu_lanes = 1;
    options.cuda_lanes = 1;
    options.chunk_bytes = 1 << 20;
    options.queue_limit = queue_limit;
    return options;
  }

  Job QueuedJob() const {
    ReduceSpec spec = Spec(DType::kF32, kQueuedCount);
    spec.ops = {Op::kSum};
    return {.spec = spec, .array = {large_.data(), MemorySpace::kHost}};
  }

 private:
  const std::vector<float> large_ = std::vector<float>(kQueuedCount, 1.0F);
};

// Keeps a lane busy from construction to Release: `done` runs on the lane and doesn't return before.
class HeldLane {
 public:
  HeldLane(Engine& engine, Job job) {
    engine.Reduce(std::move(job), [this, caller = std::this_thread::get_id()](absl::StatusOr<Answer> result) {
      status_ = result.status();
      inline_ = std::this_thread::get_id() == caller;
      held_.Notify();
      if (!inline_) release_.WaitForNotificationWithTimeout(kPatience);
      finished_.Notify();
    });
    held_.WaitForNotificationWithTimeout(kPatience);
    EXPECT_TRUE(held_.HasBeenNotified()) << "the job was not answered";
    EXPECT_FALSE(inline_) << "a large array was reduced on the calling thread";
  }
  ~HeldLane() { Release().IgnoreError(); }

  // Returns when the job's `done` has. OK if the job was.
  absl::Status Release() {
    if (!release_.HasBeenNotified()) release_.Notify();
    EXPECT_TRUE(finished_.WaitForNotificationWithTimeout(kPatience));
    return status_;
  }

 private:
  absl::Notification held_, release_, finished_;
  absl::Status status_;
  bool inline_ = false;
};

void WaitUntil(absl::Time time) {
  absl::Notification never;
  never.WaitForNotificationWithDeadline(time);
  while (absl::Now() < time) {
  }
}

TEST_P(EngineJobs, SayWhatRanAndHowLong) {
  const absl::StatusOr<Answer> result = ReduceAndWait(engine(), QueuedJob());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->ran.engine, kind());
  EXPECT_EQ(result->ran.device, engine().info().name);
  const PipelineRow* const pipeline = FindPipeline(result->ran.pipeline);
  ASSERT_NE(pipeline, nullptr) << result->ran.pipeline;
  EXPECT_EQ(pipeline->engine, kind());
  const Timing& timing = result->timing;
  ASSERT_TRUE(timing.kernel_us.has_value());
  EXPECT_GT(*timing.kernel_us, 0);
  EXPECT_TRUE(timing.queue_us.has_value());  // a lane ran it
  EXPECT_EQ(timing.host_to_device_us.has_value(), kind() == EngineKind::kCuda);
  EXPECT_FALSE(timing.device_to_host_us.has_value());  // the kernel writes its result to host memory
  for (const auto& stage :
       {timing.queue_us, timing.host_copy_us, timing.host_to_device_us, timing.kernel_us, timing.device_to_host_us}) {
    EXPECT_GE(stage.value_or(0), 0);
    EXPECT_LT(stage.value_or(0), absl::ToDoubleMicroseconds(kPatience));
  }
}

TEST_P(EngineJobs, RunAnyPipelineByItsName) {
  for (const PipelineRow& pipeline : Pipelines()) {
    if (pipeline.engine != kind()) continue;
    Job job = QueuedJob();
    job.spec.pipeline = std::string(pipeline.name);
    const absl::StatusOr<Answer> result = ReduceAndWait(engine(), job);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->ran.pipeline, pipeline.name);
    EXPECT_EQ(result->state.partial.float_sum, kQueuedCount);
  }
}

TEST_P(EngineJobs, DescribeTheirEngine) {
  EXPECT_TRUE(engine().Health().ok()) << engine().Health();
  const DeviceInfo info = engine().info();
  EXPECT_EQ(engine().kind(), kind());
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.model.empty());
  EXPECT_FALSE(info.details.empty());
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_GT(info.parallel_units, 0);
  EXPECT_EQ(info.lanes, kind() == EngineKind::kCpu ? Options().cpu_lanes : Options().cuda_lanes);
  EXPECT_EQ(info.queue_limit, Options().queue_limit);
  EXPECT_GT(engine().calibration().fixed_us, 0);
  EXPECT_GT(engine().calibration().host_gb_per_s, 0);
}

TEST_P(EngineJobs, AreNotStartedAfterTheDeadline) {
  for (const absl::Time deadline : {absl::InfinitePast(), absl::Now() - absl::Microseconds(1)}) {
    Job job = QueuedJob();
    job.deadline = deadline;
    EXPECT_EQ(ReduceAndWait(engine(), job).status().code(), absl::StatusCode::kDeadlineExceeded);
    job.spec.count = 1000;  // on the calling thread, perhaps
    EXPECT_EQ(ReduceAndWait(engine(), job).status().code(), absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_P(EngineJobs, AreNotStartedOnceCancelled) {
  Job job = QueuedJob();
  job.cancelled = std::make_shared<std::atomic<bool>>(true);
  EXPECT_EQ(ReduceAndWait(engine(), job).status().code(), absl::StatusCode::kCancelled);
  job.spec.count = 1000;
  EXPECT_EQ(ReduceAndWait(engine(), job).status().code(), absl::StatusCode::kCancelled);
  job.cancelled->store(false);
  EXPECT_TRUE(ReduceAndWait(engine(), job).ok());
}

// They leave the queue though the lane is held.
TEST_P(EngineJobs, SeeDeadlineAndCancellationWhileTheyWait) {
  Inbox inbox;
  const Started own = StartOwn(OneLane(8));
  ASSERT_NE(own.engine, nullptr);
  HeldLane held(*own.engine, QueuedJob());
  Job late = QueuedJob();
  late.deadline = absl::Now() + absl::Milliseconds(500);  // longer than the queue is thought to be
  Job unwanted = QueuedJob();
  unwanted.cancelled = std::make_shared<std::atomic<bool>>(false);
  own.engine->Reduce(late, inbox.Expect(0));
  own.engine->Reduce(unwanted, inbox.Expect(1));
  own.engine->Reduce(QueuedJob(), inbox.Expect(2));
  EXPECT_EQ(inbox.size(), 0U);
  unwanted.cancelled->store(true);
  WaitUntil(late.deadline);
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (inbox.size() < 2U && absl::Now() < patience) std::this_thread::yield();
  ASSERT_EQ(inbox.size(), 2U);
  EXPECT_TRUE(held.Release().ok());
  const auto answers = inbox.Wait();
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[0].first, 1);
  EXPECT_EQ(CodeOf(answers[0]), absl::StatusCode::kCancelled) << answers[0].second.status().ToString();
  EXPECT_EQ(answers[1].first, 0);
  EXPECT_EQ(CodeOf(answers[1]), absl::StatusCode::kDeadlineExceeded) << answers[1].second.status().ToString();
  EXPECT_EQ(CodeOf(answers[2]), absl::StatusCode::kOk) << answers[2].second.status().ToString();
}

TEST_P(EngineJobs, AreRefusedAtOnceWhenTheQueueIsFull) {
  Inbox inbox;
  const Started own = StartOwn(OneLane(2));
  ASSERT_NE(own.engine, nullptr);
  HeldLane held(*own.engine, QueuedJob());
  EXPECT_EQ(own.engine->info().lanes_busy, 1);
  own.engine->Reduce(QueuedJob(), inbox.Expect(0));
  own.engine->Reduce(QueuedJob(), inbox.Expect(1));
  EXPECT_EQ(own.engine->info().queue_length, 2);
  EXPECT_EQ(inbox.size(), 0U);
  own.engine->Reduce(QueuedJob(), inbox.Expect(2));
  EXPECT_EQ(inbox.size(), 1U) << "answered before Reduce returns";
  EXPECT_TRUE(held.Release().ok());
  const auto answers = inbox.Wait();
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[0].first, 2);
  EXPECT_EQ(CodeOf(answers[0]), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(answers[0].second.status().message()), ::testing::HasSubstr("2"));  // the limit
  EXPECT_EQ(CodeOf(answers[1]), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(answers[2]), absl::StatusCode::kOk);
  EXPECT_TRUE(ReduceAndWait(*own.engine, QueuedJob()).ok());
}

TEST_P(EngineJobs, AreCancelledWhenTheEngineGoes) {
  Inbox inbox;
  Started own = StartOwn(OneLane(8));
  ASSERT_NE(own.engine, nullptr);
  HeldLane held(*own.engine, QueuedJob());
  for (int i = 0; i < 3; ++i) own.engine->Reduce(QueuedJob(), inbox.Expect(i));
  std::thread destroyer([&own] { own.owner.reset(); });
  // The queue is answered while the lane is still held, which the destructor waits for.
  for (const auto& answer : inbox.Wait()) EXPECT_EQ(CodeOf(answer), absl::StatusCode::kCancelled);
  EXPECT_TRUE(held.Release().ok());
  destroyer.join();
  EXPECT_EQ(inbox.size(), 3U);
}

TEST_P(EngineJobs, RunSideBySide) {
  const std::int64_t count = kSlowBuild ? 20'000 : 100'000;
  struct Work {
    Job job;
    Bytes array;
    Facts facts;
  };
  std::vector<Work> works;
  for (const DTypeRow& row : kDTypes) {
    for (const std::int64_t each : {std::int64_t{33}, count / row.bytes, count}) {
      Work work;
      work.array = MakeData(row.is_float ? DataKind::kSomeNan : DataKind::kUniform, row.dtype, each, 9);
      work.facts = Study(row.dtype, work.array.data(), each);
      work.job = {.spec = Spec(row.dtype, each), .array = {work.array.data(), MemorySpace::kHost}};
      work.job.spec.nan_policy = NanPolicy::kOmit;
      works.push_back(std::move(work));
    }
  }
  // As many at a time as the queue takes, from several threads.
  Inbox inbox;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < static_cast<int>(works.size()); i += 4) engine().Reduce(works[i].job, inbox.Expect(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [id, result] : inbox.Wait()) {
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    CheckAnswers(works[id].facts, works[id].job.spec, result->state);
  }
}

// Jobs of every fate at once: each is answered exactly once, with a status that it can have.
TEST_P(EngineJobs, AreEachAnsweredOnceInAStorm) {
  EngineOptions options = OneLane(3);
  options.cpu_lanes = options.cuda_lanes = 2;
  Inbox inbox;
  Started own = StartOwn(options);
  ASSERT_NE(own.engine, nullptr);
  const int per_thread = kSlowBuild ? 40 : 100;
  std::vector<std::thread> threads;
  std::vector<CancelFlag> flags(4 * per_thread);
  for (CancelFlag& flag : flags) flag = std::make_shared<std::atomic<bool>>(false);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = t * per_thread; i < (t + 1) * per_thread; ++i) {
        Job job = QueuedJob();
        job.spec.count = std::int64_t{1} << (random() % (kSlowBuild ? 20 : 23));
        job.cancelled = flags[i];
        if (random() % 3 == 0) job.deadline = absl::Now() + absl::Microseconds(random() % 1000);
        own.engine->Reduce(std::move(job), inbox.Expect(i));
        if (random() % 3 == 0) flags[i]->store(true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto answers = inbox.Wait();
  own.owner.reset();
  EXPECT_EQ(inbox.size(), flags.size());
  std::vector<int> times(flags.size());
  for (const auto& answer : answers) {
    ++times[answer.first];
    EXPECT_THAT(CodeOf(answer),
                ::testing::AnyOf(absl::StatusCode::kOk, absl::StatusCode::kCancelled,
                                 absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kResourceExhausted));
    if (answer.second.ok()) {
      EXPECT_EQ(answer.second->state.partial.float_sum, static_cast<double>(answer.second->state.partial.count));
    }
  }
  EXPECT_THAT(times, ::testing::Each(1));
}

TEST_P(EngineJobs, OfAnotherDevicesMemoryAreRefused) {
  Job job = QueuedJob();
  job.array.space = MemorySpace::kDevice;
  for (const int device : {kNoDevice, 7}) {
    job.array.device = device;
    for (const std::int64_t count : {job.spec.count, std::int64_t{10}}) {
      job.spec.count = count;
      EXPECT_EQ(ReduceAndWait(engine(), job).status().code(), absl::StatusCode::kFailedPrecondition);
    }
  }
}

REDUCED_INSTANTIATE_BY_KIND(EngineJobs);

}  // namespace
}  // namespace reduced::test
