// Every call of CUDA that the engine makes may fail, on a device that needs no GPU. The engine answers honestly, leaves
// nothing behind, and goes on, unless the device is lost.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cuda/engine.h"
#include "kernels/cuda/quick_folds.h"
#include "kernels/cuda/waits.h"
#include "kernels/engine/engines.h"
#include "kernels/system/failpoint.h"
#include "server/lifetime.h"
#include "server/observe/log.h"
#include "server/self_check.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::test::faults {
namespace {

using failpoint::Armed;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr std::int64_t kFew = 1000;     // elements: reduced on the calling thread
constexpr std::int64_t kMany = 20'000;  // several chunks

std::int64_t SumTo(std::int64_t count) { return count * (count + 1) / 2; }

const std::vector<float>& Numbers() {  // 1, 2, 3...
  static const auto* const numbers = [] {
    auto* const all = new std::vector<float>(kMany);
    std::iota(all->begin(), all->end(), 1.0F);
    return all;
  }();
  return *numbers;
}
constexpr std::int64_t kBytes = kMany * std::int64_t{sizeof(float)};

EngineOptions Small() {
  EngineOptions options;
  options.cuda_lanes = 2;
  options.chunk_bytes = 16 << 10;
  options.cuda_staging_bytes = 8 << 20;
  options.cuda_array_bytes = std::int64_t{8} << 30;
  options.cuda_keeps = absl::InfiniteDuration();  // else a thread calls the device at any time
  return options;
}

ReduceSpec SpecOf(std::int64_t count, const std::string& pipeline = "") {
  ReduceSpec spec{.dtype = DType::kF32, .count = count, .ops = {Op::kSum}, .engine = EngineKind::kCuda};
  spec.pipeline = pipeline;
  spec.precision = pipeline.empty() ? Precision::kExact : Precision::kF64;
  if (pipeline.empty()) spec.ops.push_back(Op::kMax);
  return spec;
}

void ExpectSum(const ReduceSpec& spec, const State& state) {
  const absl::StatusOr<std::vector<Value>> values = Finalize(spec, state);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(std::get<double>(values->front().value), static_cast<double>(SumTo(spec.count)));
}

// The sum of the array, of the numbers from 1 on, if there is an answer; else why not.
absl::Status Sum(Engine& engine, const ArrayRef& array, std::int64_t count, const std::string& pipeline = "",
                 CancelFlag cancelled = nullptr) {
  const Job job{.spec = SpecOf(count, pipeline), .array = array, .cancelled = std::move(cancelled)};
  absl::StatusOr<Answer> answer = absl::InternalError("no answer");
  absl::Notification done;
  engine.Reduce(job, [&](absl::StatusOr<Answer> result) {
    answer = std::move(result);
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  if (answer.ok()) ExpectSum(job.spec, answer->state);
  return answer.status();
}

absl::Status Measure(Engine& engine, const std::string& pipeline) {
  const Job job{.spec = SpecOf(kFew, pipeline), .array = {.data = Numbers().data()}};
  absl::StatusOr<Measurement> answer = absl::InternalError("no answer");
  absl::Notification done;
  engine.Measure(job, 2, [&](absl::StatusOr<Measurement> result) {
    answer = std::move(result);
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  if (!answer.ok()) return answer.status();
  EXPECT_EQ(answer->states.size(), 2);
  for (const State& state : answer->states) ExpectSum(job.spec, state);
  return absl::OkStatus();
}

// Elements at a byte address that their size does not divide.
absl::Status Unaligned(Engine& engine) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(kBytes + 1);
  if (!memory.ok()) return memory.status();
  const absl::Status written = (*memory)->Write(1, Numbers().data(), kBytes);
  if (!written.ok()) return written;
  ArrayRef array = (*memory)->array();
  array.data = static_cast<const std::byte*>(array.data) + 1;
  return Sum(engine, array, kMany);
}

absl::Status Resident(Engine& engine) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(kBytes);
  if (!memory.ok()) return memory.status();
  const absl::Status written = (*memory)->Write(0, Numbers().data(), kBytes);
  if (!written.ok()) return written;
  return Sum(engine, (*memory)->array(), kMany);
}

absl::Status InFile(Engine& engine) {
  const int file = memfd_create("test", MFD_CLOEXEC);
  const absl::Cleanup close_file = [file] { close(file); };
  EXPECT_EQ(write(file, Numbers().data(), kBytes), kBytes);
  return Sum(engine, {.space = MemorySpace::kFile, .file = file}, kMany);
}

absl::Status Staged(Engine& engine) {
  const StagingBuffer buffer = engine.Stage(kBytes);
  EXPECT_NE(buffer.data(), nullptr);
  std::memcpy(buffer.data(), Numbers().data(), kBytes);
  return Sum(engine, buffer.array(), kMany);
}

absl::Status Pinned(Engine& engine) {
  absl::StatusOr<std::shared_ptr<const void>> pin = engine.Pin(Numbers().data(), kBytes);
  if (!pin.ok()) return pin.status();
  return Sum(engine, {.data = Numbers().data(), .space = MemorySpace::kPinnedHost}, kMany);
}

absl::Status Opened(Engine& engine) {
  auto* const memory = const_cast<float*>(Numbers().data());
  const SharedDeviceMemory shared{.handle = fake_cuda::MemoryHandle(memory, kBytes),
                                  .device_uuid = engine.info().uuid,
                                  .offset = 0,
                                  .bytes = kBytes,
                                  .event = fake_cuda::EventHandle()};
  absl::StatusOr<HeldArray> array = engine.Open(shared);
  if (!array.ok()) return array.status();
  return Sum(engine, array->array, kMany);
}

// What op gives, `times` times, for two segments, by two keys, or of all that a mask leaves, of that array: of the
// numbers up to kFew and those that follow.
enum class By : std::uint8_t { kSegments, kKeys, kMask };
absl::Status Grouped(Engine& engine, const ArrayRef& array, By by, Op op, int times) {
  const std::vector<std::int64_t> offsets = {0, kFew, kMany};
  std::vector<std::uint8_t> second(kMany, 1);  // keys, or a mask
  std::fill_n(second.begin(), kFew, 0);
  Partition partition{.layout = LayoutOf(std::vector<std::int64_t>{kMany}, {true}), .rows = kMany};
  if (by == By::kSegments) partition.segments = Segments{{DType::kI64, 3, {offsets.data()}}};
  if (by == By::kKeys) partition.keys = Keys{{DType::kU8, kMany, {second.data()}}};
  if (by == By::kMask) partition.mask = Mask{{DType::kBool, kMany, {second.data()}}};
  std::vector<double> got;
  absl::Status answer = absl::InternalError("no answer");
  absl::Notification done;
  const ReduceSpec spec{.dtype = DType::kF32,
                        .count = kMany,
                        .ops = std::vector<OpCall>(times, op),
                        .precision = Precision::kExact,
                        .engine = EngineKind::kCuda};
  const auto place = [&](std::int64_t outputs, std::int64_t, const std::byte*) {
    got.resize(static_cast<std::size_t>(outputs));
    return std::vector<std::byte*>(times, reinterpret_cast<std::byte*>(got.data()));
  };
  engine.Reduce({.spec = spec, .array = array, .partition = partition, .place = place},
                [&](const absl::StatusOr<Answer>& result) {
                  answer = result.status();
                  done.Notify();
                });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  if (!answer.ok()) return answer;
  const auto first = static_cast<double>(SumTo(kFew)), rest = static_cast<double>(SumTo(kMany) - SumTo(kFew));
  EXPECT_EQ(got, by == By::kMask ? std::vector<double>{rest} : std::vector<double>({first, rest}));
  return absl::OkStatus();
}

// Beside an array in device memory.
absl::Status Grouped(Engine& engine, By by, Op op, int times = 1) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(kBytes);
  if (!memory.ok()) return memory.status();
  const absl::Status written = (*memory)->Write(0, Numbers().data(), kBytes);
  if (!written.ok()) return written;
  return Grouped(engine, (*memory)->array(), by, op, times);
}

// Of an array in host memory, while the device has no room for it, or for sorting its rows.
absl::Status InPieces(Engine& engine, By by) {
  const std::int64_t room = by == By::kKeys ? 5 * kBytes / 2 : kBytes / 2;
  const absl::StatusOr<std::unique_ptr<ArrayMemory>> rest = engine.Allocate(engine.info().array_bytes_limit - room);
  if (!rest.ok()) return rest.status();
  return Grouped(engine, {.data = Numbers().data()}, by, Op::kSum, 1);
}

// Rows of numbers, whose results take several chunks; one row is nothing but NaNs, which its state answers.
absl::Status AlongAxes(Engine& engine) {
  constexpr std::int64_t kRow = 4, kRows = kMany / kRow;
  std::vector<float> rows = Numbers();
  std::fill_n(rows.begin() + kRow, kRow, std::numeric_limits<float>::quiet_NaN());
  ReduceSpec spec = SpecOf(kMany);
  spec.nan_policy = NanPolicy::kOmit;
  spec.empty_policy = EmptyPolicy::kFill;
  std::vector<double> sums(kRows);
  std::vector<float> most(kRows);
  const auto place = [&](std::int64_t, std::int64_t, const std::byte*) {
    return std::vector<std::byte*>{reinterpret_cast<std::byte*>(sums.data()),
                                   reinterpret_cast<std::byte*>(most.data())};
  };
  Job job{.spec = spec,
          .array = {.data = rows.data()},
          .partition = Partition{.layout = LayoutOf(std::vector<std::int64_t>{kRows, kRow}, {false, true})},
          .place = place};
  absl::Status status = absl::InternalError("no answer");
  absl::Notification done;
  engine.Reduce(std::move(job), [&](const absl::StatusOr<Answer>& result) {
    status = result.status();
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  if (!status.ok()) return status;
  EXPECT_EQ(sums[1], 0);
  EXPECT_TRUE(std::isnan(most[1]));
  for (std::int64_t row = 2; row < kRows; ++row) {
    const auto first = static_cast<double>(row * kRow + 1);
    EXPECT_EQ(sums[static_cast<std::size_t>(row)], 4 * first + 6);
    EXPECT_EQ(most[static_cast<std::size_t>(row)], static_cast<float>(first + 3));
  }
  return status;
}

// Ops about the distribution of an array on the device: if that has no memory for one of them, the host answers it.
absl::Status Distributions(Engine& engine) {
  const absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(kBytes);
  if (!memory.ok()) return memory.status();
  if (absl::Status written = (*memory)->Write(0, Numbers().data(), kBytes); !written.ok()) return written;
  ReduceSpec spec = SpecOf(kMany);
  spec.ops = {Op::kMedian,
              {Op::kHistogram, {.edges = {1, 101, 20'001}}},
              {Op::kArgTopK, {.k = 2}},
              Op::kDistinct,
              Op::kDistinctExact,
              Op::kFingerprint,
              OpCall(Op::kCompare).With(spec.dtype)};
  double median = 0, compared[kComparisonFigures] = {};
  std::uint64_t counts[2] = {}, indexes[2] = {}, about = 0, distinct = 0, fingerprint[2] = {};
  const auto place = [&](std::int64_t, std::int64_t, const std::byte*) {
    std::vector<std::byte*> places = {reinterpret_cast<std::byte*>(&median)};
    for (std::uint64_t* const each : {counts, indexes, &about, &distinct, fingerprint}) {
      places.push_back(reinterpret_cast<std::byte*>(each));
    }
    places.push_back(reinterpret_cast<std::byte*>(compared));
    return places;
  };
  Job job{.spec = spec,
          .array = (*memory)->array(),
          .partition = Partition{.layout = LayoutOf(std::vector<std::int64_t>{kMany}, {true})},
          .y = OtherArray{{spec.dtype, kMany, (*memory)->array()}},  // equal
          .place = place};
  absl::Status status = absl::InternalError("no answer");
  absl::Notification done;
  engine.Reduce(std::move(job), [&](const absl::StatusOr<Answer>& result) {
    status = result.status();
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  if (!status.ok()) return status;
  EXPECT_EQ(median, (kMany + 1) / 2.0);
  EXPECT_EQ(counts[0], 100U);
  EXPECT_EQ(counts[1], kMany - 100U);
  EXPECT_EQ(indexes[0], kMany - 1U);
  EXPECT_EQ(indexes[1], kMany - 2U);
  EXPECT_NEAR(static_cast<double>(about), kMany, 0.03 * kMany);
  EXPECT_EQ(distinct, std::uint64_t{kMany});
  static const std::uint64_t first = fingerprint[0];  // of the first call, whichever engine answered it
  EXPECT_EQ(fingerprint[0], first);
  EXPECT_EQ(compared[0], 0);  // mismatches
  EXPECT_EQ(compared[4], 0);  // the greatest difference
  return status;
}

// Resident arrays that are reduced together, and one of the host beside them.
absl::Status Together(Engine& engine) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(kBytes);
  if (!memory.ok()) return memory.status();
  const absl::Status written = (*memory)->Write(0, Numbers().data(), kBytes);
  if (!written.ok()) return written;
  std::vector<Job> jobs;
  for (const std::int64_t count : {std::int64_t{1}, kFew, kMany, kFew + 1, std::int64_t{7}}) {
    jobs.push_back({.spec = SpecOf(count), .array = (*memory)->array()});
  }
  jobs[3].array = {.data = Numbers().data()};
  std::vector<ReduceSpec> specs;
  for (const Job& job : jobs) specs.push_back(job.spec);
  absl::StatusOr<std::vector<Answer>> answers = absl::InternalError("no answer");
  absl::Notification done;
  engine.ReduceMany(std::move(jobs), [&](std::size_t, absl::StatusOr<std::vector<Answer>> result) {
    answers = std::move(result);
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  if (!answers.ok()) return answers.status();
  for (std::size_t i = 0; i < specs.size(); ++i) ExpectSum(specs[i], (*answers)[i].state);
  return absl::OkStatus();
}

struct Work {
  const char* name;
  absl::Status (*run)(Engine& engine);
};
const Work kWork[] = {
    {"Few", [](Engine& engine) { return Sum(engine, {.data = Numbers().data()}, kFew); }},
    {"Many", [](Engine& engine) { return Sum(engine, {.data = Numbers().data()}, kMany); }},
    {"InFile", InFile},
    {"Staged", Staged},
    {"Resident", Resident},
    {"Unaligned", Unaligned},
    {"Rung", [](Engine& engine) { return Sum(engine, {.data = Numbers().data()}, kMany, "unroll2"); }},
    {"Cub", [](Engine& engine) { return Sum(engine, {.data = Numbers().data()}, kMany, "cub"); }},
    {"MeasureRung", [](Engine& engine) { return Measure(engine, "unroll2"); }},
    {"MeasureSinglePass", [](Engine& engine) { return Measure(engine, "single_pass"); }},
    {"Pinned", Pinned},
    {"Opened", Opened},
    {"Segments", [](Engine& engine) { return Grouped(engine, By::kSegments, Op::kSum); }},
    {"Keys", [](Engine& engine) { return Grouped(engine, By::kKeys, Op::kSum); }},
    {"KeysToStates", [](Engine& engine) { return Grouped(engine, By::kKeys, Op::kL1, kMostQuickOps + 1); }},
    {"Mask", [](Engine& engine) { return Grouped(engine, By::kMask, Op::kSum); }},
    {"MaskToStates", [](Engine& engine) { return Grouped(engine, By::kMask, Op::kL1, kMostQuickOps + 1); }},
    {"SegmentsInPieces", [](Engine& engine) { return InPieces(engine, By::kSegments); }},
    {"KeysInPieces", [](Engine& engine) { return InPieces(engine, By::kKeys); }},
    {"MaskInPieces", [](Engine& engine) { return InPieces(engine, By::kMask); }},
    {"AlongAxes", AlongAxes},
    {"Distributions", Distributions},
    {"Together", Together},
};

class FaultsTest : public ::testing::TestWithParam<Work> {
 protected:
  static void SetUpTestSuite() {
    fake_cuda::Heal();
    absl::StatusOr<std::unique_ptr<Engine>> engine = MakeCudaEngine(Small(), 0);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = engine->release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    EXPECT_EQ(fake_cuda::Use(), fake_cuda::InUse());
  }
  void SetUp() override { fake_cuda::Heal(); }

  static void ExpectIdle(const fake_cuda::InUse& idle) {
    EXPECT_TRUE(Becomes(kPatience, [] { return engine_->info().lanes_busy == 0; }));
    EXPECT_EQ(engine_->info().queue_length, 0);
    EXPECT_EQ(engine_->info().array_bytes, 0);
    EXPECT_EQ(fake_cuda::Use(), idle);
  }

  static inline Engine* engine_ = nullptr;
};

TEST_P(FaultsTest, AnyCallMayFail) {
  const auto work = GetParam().run;
  ASSERT_TRUE(work(*engine_).ok()) << work(*engine_);
  const fake_cuda::InUse idle = fake_cuda::Use();
  fake_cuda::Heal();
  ASSERT_TRUE(work(*engine_).ok());
  const std::map<std::string, int> calls = fake_cuda::Calls();
  ASSERT_GE(calls.at("LaunchKernel"), 1);
  int faults = 0;
  for (const auto& [function, count] : calls) {
    for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorUnknown, cudaErrorIllegalAddress}) {
      for (int n = 1; n <= count + 1; ++n) {
        SCOPED_TRACE(absl::StrCat("call ", n, " of ", function, " returns error ", error));
        fake_cuda::Heal();
        fake_cuda::FailCall(function, n, error);
        const absl::Status status = work(*engine_);
        if (!fake_cuda::HasFailed()) break;
        ++faults;
        if (!status.ok()) {
          EXPECT_FALSE(status.message().empty());
          const bool no_memory = error == cudaErrorMemoryAllocation;
          EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsFailedPrecondition(status) ||
                      (no_memory && absl::IsResourceExhausted(status)))
              << status;
        }
        const bool lost = error == cudaErrorIllegalAddress;
        const absl::Status health = engine_->Health();
        EXPECT_EQ(absl::IsUnavailable(health), lost) << health;
        if (lost) {
          EXPECT_FALSE(work(*engine_).ok());
          fake_cuda::Heal();
        }
        ExpectIdle(idle);
        const absl::Status next = work(*engine_);
        EXPECT_TRUE(next.ok()) << "the next one: " << next;
        if (HasFailure()) return;  // the first is enough
      }
    }
  }
  EXPECT_GE(faults, 10);
}

INSTANTIATE_TEST_SUITE_P(All, FaultsTest, ::testing::ValuesIn(kWork), [](const auto& info) { return info.param.name; });

TEST(StartTest, AnyCallMayFail) {
  fake_cuda::Heal();
  ASSERT_TRUE(MakeCudaEngine(Small(), 0).ok());
  const std::map<std::string, int> calls = fake_cuda::Calls();
  int failed = 0;
  for (const auto& [function, count] : calls) {
    for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}) {
      if (error == cudaErrorMemoryAllocation && function.find("lloc") == std::string::npos) continue;
      // Each call of those that make lanes and arrays, some of those of the calibration.
      for (int n = 1; n <= count; n = n < 3 ? n + 1 : 16 * n) {
        SCOPED_TRACE(absl::StrCat("call ", n, " of ", function, " returns error ", error));
        fake_cuda::Heal();
        fake_cuda::FailCall(function, n, error);
        absl::StatusOr<std::unique_ptr<Engine>> engine = MakeCudaEngine(Small(), 0);
        if (!engine.ok()) {
          ++failed;
          EXPECT_FALSE(engine.status().message().empty());
        } else if (error == cudaErrorIllegalAddress && fake_cuda::HasFailed()) {
          EXPECT_FALSE((*engine)->Health().ok());
        }
        engine = absl::CancelledError();
        EXPECT_EQ(fake_cuda::Use(), fake_cuda::InUse());
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GE(failed, 20);
  fake_cuda::Heal();
}

// A device without room for an array, or for what a measurement needs, has not failed.
TEST(MemoryTest, ItsEndIsNoFailure) {
  fake_cuda::Heal();
  const std::unique_ptr<Engine> engine = *MakeCudaEngine(Small(), 0);
  fake_cuda::SetMemory(std::size_t{64} << 20);
  const absl::Status none = engine->Allocate(std::int64_t{1} << 30).status();
  EXPECT_TRUE(absl::IsResourceExhausted(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("1073741824"));
  const absl::Status unmeasured = Measure(*engine, "unroll2");
  EXPECT_TRUE(absl::IsResourceExhausted(unmeasured)) << unmeasured;
  EXPECT_TRUE(engine->Health().ok());
  EXPECT_EQ(engine->info().array_bytes, 0);
  EXPECT_TRUE(Resident(*engine).ok());
  fake_cuda::Heal();
  EXPECT_TRUE(engine->Allocate(std::int64_t{1} << 30).ok());
  EXPECT_TRUE(Measure(*engine, "unroll2").ok());
}

// All devices of the process report the error of one.
TEST(FaultTest, IsOfTheDeviceWhoseLaneSawItFirst) {
  fake_cuda::Heal();
  const std::unique_ptr<Engine> first = *MakeCudaEngine(Small(), 0), second = *MakeCudaEngine(Small(), 1);
  fake_cuda::FailCall("LaunchKernel", 1, cudaErrorIllegalAddress);
  const absl::Status seen = Sum(*second, {.data = Numbers().data()}, kFew);
  EXPECT_TRUE(absl::IsUnavailable(seen));
  EXPECT_THAT(std::string(seen.message()), HasSubstr("cuda:1: "));
  EXPECT_TRUE(absl::IsUnavailable(Sum(*first, {.data = Numbers().data()}, kFew)));
  EXPECT_THAT(std::string(first->Health().message()), HasSubstr("first seen on cuda:1"));
  EXPECT_THAT(std::string(second->Health().message()), testing::Not(HasSubstr("first seen")));
  fake_cuda::Heal();
  EXPECT_TRUE((*MakeCudaEngine(Small(), 0))->Health().ok());
}

// What a device has done is counted from the start on, without its calibration.
TEST(WorkTest, IsCounted) {
  fake_cuda::Heal();
  const std::unique_ptr<Engine> engine = *MakeCudaEngine(Small(), 0);
  EXPECT_EQ(engine->info().reductions, 0);
  EXPECT_TRUE(Sum(*engine, {.data = Numbers().data()}, kFew).ok());
  EXPECT_TRUE(Sum(*engine, {.data = Numbers().data()}, kMany).ok());
  EXPECT_EQ(engine->info().reductions, 2);
  EXPECT_EQ(engine->info().reduced_bytes, kBytes + kFew * std::int64_t{sizeof(float)});
  fake_cuda::FailCall("LaunchKernel", 1, cudaErrorIllegalAddress);
  EXPECT_FALSE(Sum(*engine, {.data = Numbers().data()}, kFew).ok());
  EXPECT_EQ(engine->info().reductions, 2) << "what fails is no work";
  fake_cuda::Heal();
}

// An array whose event has not passed waits without holding the device up, and can be cancelled.
TEST(EventTest, IsWaitedForUntilTheCallerHasGone) {
  fake_cuda::Heal();
  const std::unique_ptr<Engine> engine = *MakeCudaEngine(Small(), 0);
  const SharedDeviceMemory shared{.handle = fake_cuda::MemoryHandle(const_cast<float*>(Numbers().data()), kBytes),
                                  .device_uuid = engine->info().uuid,
                                  .offset = 0,
                                  .bytes = kBytes,
                                  .event = fake_cuda::EventHandle()};
  const HeldArray array = *engine->Open(shared);
  fake_cuda::SetEventPassed(false);
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  std::thread caller([&] { EXPECT_TRUE(absl::IsCancelled(Sum(*engine, array.array, kMany, "", cancelled))); });
  EXPECT_TRUE(Becomes(kPatience, [] { return fake_cuda::Calls()["cudaEventQuery"] > 2; }));
  EXPECT_TRUE(engine->Health().ok());
  *cancelled = true;
  caller.join();
  fake_cuda::SetEventPassed(true);
  EXPECT_TRUE(Sum(*engine, array.array, kMany).ok());
}

// The pool is trimmed once for each array that was freed, no earlier than cuda_keeps later.
TEST(ArraysTest, FreedMemoryGoesBack) {
  fake_cuda::Heal();
  EngineOptions options = Small();
  options.cuda_keeps = absl::Milliseconds(20);
  const std::unique_ptr<Engine> engine = *MakeCudaEngine(options, 0);
  const auto trims = [] { return fake_cuda::Calls()["cudaMemPoolTrimTo"]; };
  EXPECT_TRUE(Becomes(kPatience, [&] { return trims() == 1; })) << "its calibration had an array";
  for (int i = 2; i <= 4; ++i) {
    std::unique_ptr<ArrayMemory> array = *engine->Allocate(kBytes);
    EXPECT_EQ(trims(), i - 1);
    const absl::Time begin = absl::Now();
    array.reset();
    EXPECT_TRUE(Becomes(kPatience, [&] { return trims() == i; }));
    EXPECT_GE(absl::Now() - begin, options.cuda_keeps);
  }
}

// What another process has of the memory, and a quarter of the rest, is not for arrays.
TEST(ArraysTest, HaveThreeQuartersOfWhatIsFreeAtTheStart) {
  fake_cuda::Heal();
  EngineOptions options = Small();
  options.cuda_array_bytes.reset();
  constexpr std::int64_t kFree = std::int64_t{4} << 30, kLanes = 32 << 20;  // kLanes: more than those of Small() take
  fake_cuda::SetMemory(kFree);
  for (const std::int64_t others : {std::int64_t{0}, std::int64_t{1} << 30}) {
    void* other = nullptr;
    ASSERT_TRUE(others == 0 || cudaMalloc(&other, static_cast<std::size_t>(others)) == cudaSuccess);
    const std::int64_t limit = (*MakeCudaEngine(options, 0))->info().array_bytes_limit;
    EXPECT_LE(limit, (kFree - others) / 4 * 3);
    EXPECT_GE(limit, (kFree - others - kLanes) / 4 * 3);
    EXPECT_EQ(cudaFree(other), cudaSuccess);
  }
  options.cuda_array_bytes = 2 * kFree;
  EXPECT_EQ((*MakeCudaEngine(options, 0))->info().array_bytes_limit, 2 * kFree) << "a number is taken as it is";
  fake_cuda::Heal();
}

TEST(HangTest, IsAFailureAfterTheTimeout) {
  fake_cuda::Heal();
  EngineOptions options = Small();
  options.device_timeout = absl::Milliseconds(20);
  for (const Work& work : kWork) {
    SCOPED_TRACE(work.name);
    constexpr std::string_view kSome[] = {"Few", "Many", "Resident", "Rung", "MeasureRung"};
    if (std::find(std::begin(kSome), std::end(kSome), work.name) == std::end(kSome)) continue;
    const std::unique_ptr<Engine> engine = *MakeCudaEngine(options, 0);
    fake_cuda::Hang();
    std::thread caller([&] { work.run(*engine).IgnoreError(); });
    EXPECT_TRUE(Becomes(kPatience, [&] { return !engine->Health().ok(); }));
    const absl::Status health = engine->Health();
    EXPECT_TRUE(absl::IsUnavailable(health));
    EXPECT_THAT(std::string(health.message()), HasSubstr("hangs"));
    EXPECT_THAT(std::string(health.message()), HasSubstr("--device_timeout"));
    fake_cuda::Heal();
    caller.join();
    EXPECT_FALSE(engine->Health().ok()) << "what hung once is not trusted again";
  }
}

// What the calling thread reduces itself must not wait for a large job's kernel.
TEST(SmallTest, DoesNotKeepItsCallerWhileALargeJobRuns) {
  fake_cuda::Heal();
  const std::unique_ptr<Engine> engine = *MakeCudaEngine(Small(), 0);
  ASSERT_TRUE(Becomes(kPatience, [&] { return engine->info().lanes_busy == 0; }));  // that of its last measurement
  fake_cuda::Hang();
  std::thread large([&] { Sum(*engine, {.data = Numbers().data()}, kMany).IgnoreError(); });
  EXPECT_TRUE(Becomes(kPatience, [&] { return engine->info().lanes_busy == 1; }));
  absl::Notification returned;
  absl::Notification done;
  std::thread caller([&] {
    engine->Reduce(Job{.spec = SpecOf(kFew), .array = {.data = Numbers().data()}},
                   [&](const absl::StatusOr<Answer>&) { done.Notify(); });
    returned.Notify();
  });
  EXPECT_TRUE(returned.WaitForNotificationWithTimeout(kPatience));
  EXPECT_FALSE(done.HasBeenNotified());
  fake_cuda::Heal();
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  caller.join();
  large.join();
}

TEST(HangTest, ALongWaitThatWasPredictedIsNone) {
  DeviceWaits waits(absl::Milliseconds(1));
  const DeviceWaits::Wait wait(waits, /*expected_us=*/36e6);  // an hour, a hundred times longer
  absl::SleepFor(absl::Milliseconds(2));
  EXPECT_TRUE(waits.Check().ok());
}

// The failpoints of kernels/cuda: what the caller gets; empty: OK.
struct Scenario {
  std::string_view name;
  absl::Status (*run)(Engine& engine);
  absl::StatusCode code;
};
const Scenario kScenarios[] = {
    {"cuda/allocate_array", Resident, absl::StatusCode::kResourceExhausted},
    {"cuda/copy", kWork[1].run, absl::StatusCode::kUnavailable},
    {"cuda/event", Opened, absl::StatusCode::kUnavailable},
    {"cuda/hang", kWork[1].run, absl::StatusCode::kOk},
    {"cuda/launch", kWork[1].run, absl::StatusCode::kUnavailable},
    {"cuda/lost", [](Engine& engine) { return engine.Health(); }, absl::StatusCode::kUnavailable},
    {"cuda/open", Opened, absl::StatusCode::kFailedPrecondition},
    {"cuda/pin", Pinned, absl::StatusCode::kFailedPrecondition},
    {"cuda/scratch", kWork[6].run, absl::StatusCode::kResourceExhausted},
    {"cuda/slab",
     [](Engine&) {
       const absl::StatusOr<std::unique_ptr<Engine>> engine = MakeCudaEngine(Small(), 0);
       return engine.ok() ? Staged(**engine) : engine.status();
     },
     absl::StatusCode::kOk},
};

class CudaFailpointsTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(CudaFailpointsTest, Fires) {
  const auto scenario = std::find_if(std::begin(kScenarios), std::end(kScenarios),
                                     [](const Scenario& each) { return each.name == GetParam(); });
  ASSERT_NE(scenario, std::end(kScenarios)) << "nothing makes it fire";
  fake_cuda::Heal();
  const std::unique_ptr<Engine> engine = *MakeCudaEngine(Small(), 0);
  const std::int64_t before = failpoint::Fired(GetParam());
  {
    const Armed fault(GetParam(), {.times = 1});
    const absl::Status status = scenario->run(*engine);
    EXPECT_EQ(status.code(), scenario->code) << status;
  }
  EXPECT_EQ(failpoint::Fired(GetParam()), before + 1);
  EXPECT_TRUE(engine->Health().ok());
  const absl::Status later = scenario->run(*engine);
  EXPECT_TRUE(later.ok()) << later;
}

std::vector<std::string_view> NamesHere() {
  std::vector<std::string_view> names;
  for (const std::string_view name : failpoint::kNames) {
    if (name.starts_with("cuda/")) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, CudaFailpointsTest, ::testing::ValuesIn(NamesHere()),
                         [](const auto& info) { return std::string(info.param.substr(info.param.find('/') + 1)); });

// A device that hangs while its server starts: the process says so and ends.
TEST(HangingStartTest, EndsWhileTheEngineCalibrates) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        server::SetUpLog(/*json=*/false, "info");
        fake_cuda::Heal();
        fake_cuda::Hang();
        EngineOptions options = Small();
        options.device_timeout = absl::Milliseconds(50);
        options.on_hang = &server::EndHung;
        std::thread([] {
          absl::SleepFor(absl::Seconds(20));
          _exit(100);
        }).detach();
        Engines::Start(options).status().IgnoreError();
        _exit(101);
      },
      ::testing::ExitedWithCode(server::kDeviceFailed), "while the server started.*cuda:0: .*hangs.*--device_timeout");
}

TEST(HangingStartTest, EndsDuringTheSelfCheck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        server::SetUpLog(/*json=*/false, "info");
        fake_cuda::Heal();
        EngineOptions options = Small();
        options.device_timeout = absl::Milliseconds(50);
        options.on_hang = &server::EndHung;
        const std::unique_ptr<Engines> engines = *Engines::Start(options);
        fake_cuda::Hang();
        std::thread([] {
          absl::SleepFor(absl::Seconds(20));
          _exit(100);
        }).detach();
        server::SelfCheck(*engines, options.on_hang).IgnoreError();
        _exit(101);
      },
      ::testing::ExitedWithCode(server::kDeviceFailed), "while the server started.*cuda:0: .*hangs.*--device_timeout");
}

// A server whose device hangs: its health, its callers and its end.
TEST(HangingServerTest, ExitsWith2AndItsCallersHearOfIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        server::SetUpLog(/*json=*/false, "info");  // to standard error, which the test reads
        const sigset_t stop = server::BlockStopSignals();
        fake_cuda::Heal();
        EngineOptions engines = Small();
        engines.device_timeout = absl::Milliseconds(50);
        server::TestServer server({}, *Engines::Start(engines));
        server::HealthWatch watch(server.client(), "");
        if (watch.Next() != server::kServing) _exit(100);
        fake_cuda::Hang();
        v1::ReduceRequest request = server::SmallSum();
        request.mutable_options()->set_engine(v1::ENGINE_CUDA);
        std::thread([&] {
          v1::ReduceResponse response;
          const grpc::Status status = server.client().Reduce(request, &response);
          std::cerr << "the caller hears: " << status.error_code() << ' ' << status.error_message() << std::endl;
        }).detach();
        std::thread([&] {
          if (watch.Next() != server::kNotServing) _exit(102);
          absl::SleepFor(absl::Seconds(5));
          _exit(103);  // the 5 seconds are over
        }).detach();
        std::exit(server::ServeUntilStopped(server.server(), stop, absl::Hours(1), absl::Hours(1)));
      },
      ::testing::ExitedWithCode(server::kDeviceFailed), "a device failed.*hangs(.|\n)*the caller hears: 14 .+");
}

}  // namespace
}  // namespace reduced::test::faults
