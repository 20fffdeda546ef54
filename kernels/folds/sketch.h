// The sketch of distinct: HyperLogLog (P. Flajolet et al., 2007) with 2^14 registers. A value is its sort key, in 64
// bits; its hash is the finalizer of MurmurHash3. The top 14 bits of the hash are the register, which has the largest
// number of leading zeros of the others, plus one.
#ifndef REDUCED_KERNELS_FOLDS_SKETCH_H_
#define REDUCED_KERNELS_FOLDS_SKETCH_H_

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/algebra/portable.h"

namespace reduced {

inline constexpr int kSketchBits = 14;
inline constexpr int kRegisters = 1 << kSketchBits;
inline constexpr int kMostOfRegister = 64 - kSketchBits + 1;  // their values are 0 to this

REDUCED_HD std::uint64_t HashOf(std::uint64_t key) {
  key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdULL;
  key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return key ^ (key >> 33);
}

REDUCED_HD std::uint32_t RegisterOf(std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash >> (64 - kSketchBits));
}
REDUCED_HD std::uint32_t ZerosOf(std::uint64_t hash) {
  // The last bit ends the zeros of a hash that has no other.
  const std::uint64_t others = hash << kSketchBits | std::uint64_t{1} << (kSketchBits - 1);
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__clzll(static_cast<long long>(others))) + 1;
#else
  return static_cast<std::uint32_t>(std::countl_zero(others)) + 1;
#endif
}

// How many values it has seen. Whoever computes it, the registers have the same bits, and so the estimate.
std::uint64_t EstimateDistinct(std::span<const std::uint8_t, kRegisters> registers);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_SKETCH_H_
