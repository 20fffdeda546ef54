// The rungs of the ladder that run on the host, on one thread: what the kernels are compared with.
#ifndef REDUCED_KERNELS_LADDER_HOST_RUNGS_H_
#define REDUCED_KERNELS_LADDER_HOST_RUNGS_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/algebra/spec.h"

namespace reduced {

// Whether to give up, asked every few hundred microseconds: what is returned then is of no use.
using Stop = absl::FunctionRef<bool()>;

struct HostRung {
  // Bytes of the copy of the array that is reduced in its place, and what makes it before the clock starts; null: none.
  std::size_t (*scratch_bytes)(const ReduceSpec& spec);
  void (*prepare)(const ReduceSpec& spec, const void* data, void* scratch, Stop stop);
  // Reduces an array of any length at any address. RungSupports() the spec's only op. Values of the ladder's monoids
  // take at most `longest` <= kLongestStretch elements each; further ones are combined as partials, which hold any
  // number of them.
  Partial (*reduce)(const ReduceSpec& spec, const void* data, void* scratch, std::int64_t longest, Stop stop);
};

// A sum of 32-bit elements has 64 bits: it holds as many of them.
inline constexpr std::int64_t kLongestStretch = std::int64_t{1} << 31;

extern const HostRung kSequential;
extern const HostRung kRecursivePairs;

}  // namespace reduced

#endif  // REDUCED_KERNELS_LADDER_HOST_RUNGS_H_
