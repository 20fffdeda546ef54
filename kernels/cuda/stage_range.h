// The stages of a reduction on the timeline of Nsight Systems. Without a profiler a range costs a few nanoseconds.
#ifndef REDUCED_KERNELS_CUDA_STAGE_RANGE_H_
#define REDUCED_KERNELS_CUDA_STAGE_RANGE_H_

#include <nvtx3/nvToolsExt.h>

namespace reduced {

// Of the thread that makes it, until it is destroyed. Ranges nest.
class StageRange {
 public:
  explicit StageRange(const char* name) { nvtxRangePushA(name); }
  ~StageRange() { nvtxRangePop(); }
  StageRange(const StageRange&) = delete;
  StageRange& operator=(const StageRange&) = delete;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_STAGE_RANGE_H_
