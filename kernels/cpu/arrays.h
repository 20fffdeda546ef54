// Host memory for arrays: Engine::Allocate of the CPU engine, and what rungs of the ladder need.
#ifndef REDUCED_KERNELS_CPU_ARRAYS_H_
#define REDUCED_KERNELS_CPU_ARRAYS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/engine/array.h"
#include "kernels/engine/array_budget.h"

namespace reduced {

// `bytes` >= 0 of zeros, counted in `budget`, which outlives the memory, until that is freed. It has pages of its own,
// so that freeing it gives them back to the system. RESOURCE_EXHAUSTED: as ArrayBudget::Take, or the system has none.
absl::StatusOr<std::unique_ptr<ArrayMemory>> AllocateCpuArray(std::int64_t bytes, ArrayBudget& budget,
                                                              std::uint64_t caller = 0);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_ARRAYS_H_
