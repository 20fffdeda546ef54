// Exact sums of products and distances of two arrays on a CUDA device: the launch that adds those of all pairs of
// elements, in one read of both arrays.
#ifndef REDUCED_KERNELS_CUDA_PAIR_SUMS_H_
#define REDUCED_KERNELS_CUDA_PAIR_SUMS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/algebra/dtype.h"
#include "kernels/exact/terms.h"

namespace reduced {

inline constexpr int kMaxPairTerms = 5;

// The sums of some terms (exact/terms.h), as digits that need no carry while they are added to: each sum is that of
// digit[i] x 2^(PairUnit(term) + 32 i), and digits are signed. Pairs with a NaN or an infinity are in none of them. The
// default is the identity.
struct PairDigits {
  static constexpr int kDigits = 134;                                // of products of f64
  static constexpr std::int64_t kMostPairs = std::int64_t{1} << 29;  // that no digit overflows of

  unsigned long long digit[kMaxPairTerms][kDigits] = {};
  unsigned long long nans = 0;        // pairs with a NaN
  unsigned long long infinities = 0;  // other pairs with an infinity
};
constexpr int PairUnit(SumTerm term) {
  return term == SumTerm::kX || term == SumTerm::kY || term == SumTerm::kDistance ? -1074 : -2148;
}

struct PairSumsLaunch {
  DType dtype = DType::kF32;         // of floats, of both arrays
  std::span<const SumTerm> terms{};  // for which HasPairKernel
  const void* x = nullptr;           // device memory, aligned to the size of an element, as y
  const void* y = nullptr;
  std::int64_t count = 0;     // pairs, > 0 and at most kMostPairs
  PairDigits* out = nullptr;  // device memory: the identity before. Digits are in the order of `terms`
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
};

// Whether there is a kernel for these terms.
bool HasPairKernel(std::span<const SumTerm> terms);

// Asynchronous; returns the first error of its launches.
cudaError_t LaunchPairSums(const PairSumsLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_PAIR_SUMS_H_
