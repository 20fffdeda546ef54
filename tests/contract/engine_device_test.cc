// Arrays that lie in device memory. Built with CUDA only.
#include <cuda_runtime.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/waits.h"
#include "tests/contract/device_array.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"

namespace reduced::test {
namespace {

class EngineDeviceMemory : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  // All ops on a copy in device memory; the memory is as it was afterwards.
  void Check(DataKind kind, std::int64_t count, std::size_t misalignment, NanPolicy policy) {
    const Bytes array = MakeData(kind, dtype(), count, 4);
    DeviceArray device(array.size(), misalignment);
    ASSERT_NE(device.data(), nullptr);
    device.Write(0, array.data(), array.size());
    const Bytes before = device.Read();
    ReduceSpec spec = Spec(dtype(), count);
    spec.nan_policy = policy;
    const absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = device.array()});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_FALSE(result->timing.host_to_device_us.has_value());
    CheckAnswers(Study(dtype(), array.data(), count), spec, result->state);
    EXPECT_EQ(device.Read(), before) << "the array or what surrounds it was written to";
  }
};

TEST_P(EngineDeviceMemory, EverySize) {
  std::vector<std::int64_t> counts = {255,  256,  257,    511,    512,    513,     1023,      1024,      1025,     4095,
                                      4096, 4097, 65'535, 65'537, 99'991, 262'145, 1'000'007, 4'194'304, 4'194'305};
  for (std::int64_t count = 0; count < 70; ++count) counts.push_back(count);
  for (const std::int64_t count : counts) {
    for (const DataKind kind : {DataKind::kFull, DataKind::kUniform, DataKind::kSomeNan, DataKind::kFarFromZero}) {
      const DataKindRow& row = kDataKinds[static_cast<int>(kind)];
      if (!Applies(row, dtype()) || (count > 300'000 && kind != DataKind::kUniform)) continue;
      SCOPED_TRACE(std::string(row.name));
      Check(kind, count, 0, count % 2 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit);
      if (HasFailure()) return;
    }
  }
}

TEST_P(EngineDeviceMemory, AnyByteAddress) {
  for (const std::int64_t count : {1, 2, 3, 17, 64, 1025, 70'001}) {
    for (std::size_t misalignment = 0; misalignment < 18; ++misalignment) {
      SCOPED_TRACE(misalignment);
      Check(DataKind::kUniform, count, misalignment, NanPolicy::kPropagate);
      if (RowOf(dtype()).is_float) Check(DataKind::kSomeNan, count, misalignment, NanPolicy::kOmit);
      if (HasFailure()) return;
    }
  }
}

// The thread that asks reduces a small array itself, but not while a large job may keep the device busy.
class EngineThreads : public EngineTest<EngineKind> {
 protected:
  // The thread that brought the answer to a small job.
  std::thread::id ThreadOfSmall() {
    std::thread::id thread;
    absl::Notification done;
    engine().Reduce(Job{.spec = Spec(DType::kF32, 1000), .array = {.data = ones_.data()}},
                    [&](const absl::StatusOr<Answer>& result) {
                      EXPECT_TRUE(result.ok()) << result.status();
                      thread = std::this_thread::get_id();
                      done.Notify();
                    });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
    return thread;
  }

  static constexpr absl::Duration kPatience = absl::Seconds(60);
  const std::vector<float> ones_ = std::vector<float>(1000, 1.0F);
};

TEST_P(EngineThreads, ASmallJobNeverWaitsForALargeOneOnItsCallersThread) {
  EXPECT_EQ(ThreadOfSmall(), std::this_thread::get_id());
  // A job that has a lane until its event comes: behind a host function that waits.
  DeviceArray array(4000, 0);
  ASSERT_NE(array.data(), nullptr);
  array.Write(0, ones_.data(), 4000);
  absl::Notification release;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  const auto wait = [](void* until) {
    static_cast<absl::Notification*>(until)->WaitForNotificationWithTimeout(kPatience);
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream, wait, &release), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  Job large{.spec = Spec(DType::kF32, 1000), .array = array.array()};
  large.array.ready = event;
  absl::Notification done;
  engine().Reduce(large, [&](const absl::StatusOr<Answer>& result) {
    EXPECT_TRUE(result.ok()) << result.status();
    done.Notify();
  });
  EXPECT_NE(ThreadOfSmall(), std::this_thread::get_id());
  EXPECT_FALSE(done.HasBeenNotified());
  release.Notify();
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(ThreadOfSmall(), std::this_thread::get_id());
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

// The device's memory is taken, but for what other tests may need: arrays are refused, all else goes on, and arrays can
// be had again as soon as there is room.
TEST_P(EngineThreads, AFullDeviceHasNotFailed) {
  constexpr std::size_t kLeft = std::size_t{4} << 30;
  constexpr std::int64_t kBytes = std::int64_t{8} << 30;
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  if (free < 4 * kLeft) GTEST_SKIP() << "the device has only " << free << " bytes left";
  EngineOptions options = Options();
  options.cuda_array_bytes = std::int64_t{1} << 51;  // more than there is: the device itself refuses
  const Started own = StartOwn(options);
  ASSERT_NE(own.engine, nullptr);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* filling = nullptr;
  ASSERT_EQ(cudaMalloc(&filling, free - kLeft), cudaSuccess);
  const std::vector<float> ones(1'000'000, 1.0F);
  const Job job{.spec = Spec(DType::kF32, 1'000'000), .array = {.data = ones.data()}};
  for (int i = 0; i < 3; ++i) {
    const absl::Status refused = own.engine->Allocate(kBytes).status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_TRUE(own.engine->Health().ok()) << own.engine->Health();
    EXPECT_EQ(own.engine->info().array_bytes, 0);
    EXPECT_TRUE(ReduceAndWait(*own.engine, job).ok());
  }
  ASSERT_EQ(cudaFree(filling), cudaSuccess);
  const absl::Status after = own.engine->Allocate(kBytes).status();
  EXPECT_TRUE(after.ok()) << after;
}

// The pool returns the memory of freed arrays to the driver.
TEST_P(EngineThreads, FreedMemoryGoesBackToTheDevice) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  constexpr std::int64_t kMost = CudaArrays::kKept + (std::int64_t{32} << 20);  // pools take memory in pieces
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  DeviceWaits waits(kPatience);
  const auto arrays = CudaArrays::Make(0, "cuda:0", 2 * kBytes, absl::Milliseconds(20), properties, waits);
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const auto kept = (*arrays)->Allocate(1000);
  ASSERT_TRUE(kept.ok()) << kept.status();
  for (int turn = 0; turn < 3; ++turn) {
    auto array = (*arrays)->Allocate(kBytes);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_GE((*arrays)->reserved_bytes(), kBytes);
    array->reset();
    const absl::Time end = absl::Now() + kPatience;
    while ((*arrays)->reserved_bytes() > kMost && absl::Now() < end) std::this_thread::yield();
    EXPECT_LE((*arrays)->reserved_bytes(), kMost);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, EngineThreads, ::testing::Values(EngineKind::kCuda), NameOfKind);

// Only on the engine that has device memory.
INSTANTIATE_TEST_SUITE_P(Cuda, EngineDeviceMemory,
                         ::testing::Combine(::testing::Values(EngineKind::kCuda), ::testing::ValuesIn(AllDTypes())),
                         NameOfDType);

}  // namespace
}  // namespace reduced::test
