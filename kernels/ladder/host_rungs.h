// The rungs of the ladder that run on the host, on one thread: what the kernels are compared with.
#ifndef REDUCED_KERNELS_LADDER_HOST_RUNGS_H_
#define REDUCED_KERNELS_LADDER_HOST_RUNGS_H_

#include <cstddef>

#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/algebra/spec.h"

namespace reduced {

struct HostRung {
  // Bytes of scratch memory, and what fills it before the clock starts; null: needs none.
  std::size_t (*scratch_bytes)(const ReduceSpec& spec);
  void (*prepare)(const ReduceSpec& spec, const void* data, void* scratch);
  // Of an array of any length at any address. RungSupports() the spec's only op.
  Partial (*reduce)(const ReduceSpec& spec, const void* data, void* scratch);
};

extern const HostRung kSequential;
extern const HostRung kRecursivePairs;

}  // namespace reduced

#endif  // REDUCED_KERNELS_LADDER_HOST_RUNGS_H_
