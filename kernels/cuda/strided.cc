#include "kernels/cuda/strided.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/gather.h"

namespace reduced {

static_assert(kMostGathered == kMostStrides);

absl::Status CudaLane::GatherArrays(Job& job, CudaArrays& arrays, std::vector<std::unique_ptr<ArrayMemory>>* memory,
                                    Timing* timing) {
  const auto gather = [&](DType dtype, std::int64_t count, ArrayRef* array) -> absl::Status {
    if (array->strided == nullptr) return absl::OkStatus();
    const StageRange range("gather");
    if (const absl::Status status = AwaitReady(job, *array); !status.ok()) return status;
    const int width = RowOf(dtype).bytes;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> room = arrays.Allocate(count * width);
    if (!room.ok()) {
      return absl::Status(room.status().code(), absl::StrCat("an array with strides is copied to the device's memory: ",
                                                             std::string(room.status().message())));
    }
    memory->push_back(*std::move(room));
    const ArrayRef to = memory->back()->array();
    const StridedReader& strided = *array->strided;
    GatherLaunch launch{.data = strided.data(),
                        .width = width,
                        .swaps = strided.swaps(),
                        .first = array->offset / width,
                        .count = count,
                        .to = const_cast<void*>(to.data),
                        .dimensions = static_cast<int>(strided.dimensions().size()),
                        .multiprocessors = multiprocessors_,
                        .stream = kernel_stream_};
    for (int i = 0; i < launch.dimensions; ++i) {
      launch.sizes[i] = strided.dimensions()[static_cast<std::size_t>(i)].size;
      launch.strides[i] = strided.dimensions()[static_cast<std::size_t>(i)].stride;
    }
    *array = to;
    if (count == 0) return absl::OkStatus();
    const Slot& slot = slots_[0];
    cudaGetLastError();  // as in StartKernel
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.prepare_begin, kernel_stream_));
    const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : LaunchGather(launch);
    if (error != cudaSuccess) return DeviceError(error, "launching a copy of an array with strides");
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, kernel_stream_));
    // Other streams read the copy, too.
    REDUCED_RETURN_IF_CUDA_ERROR(AwaitEvent(slot.kernel_begin));
    return AddTime(slot.prepare_begin, slot.kernel_begin, &Timing::scratch_copy_us, timing);
  };
  absl::Status status = gather(job.spec.dtype, job.spec.count, &job.array);
  if (!job.partition.has_value()) return status;
  for (const auto& [field, side] : SidesOf(job)) {
    if (status.ok()) status = gather(side->dtype, side->count, &side->array);
  }
  return status;
}

}  // namespace reduced
