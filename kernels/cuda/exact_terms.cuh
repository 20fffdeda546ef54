// The parts of exact sums on a CUDA device: how an element becomes terms of f64, the bins that split them, and digits
// that several threads add to. See exact_sums.cu.
#ifndef REDUCED_KERNELS_CUDA_EXACT_TERMS_CUH_
#define REDUCED_KERNELS_CUDA_EXACT_TERMS_CUH_

#if defined(__USE_FAST_MATH__) || defined(__FAST_MATH__)
#error "exact sums need the arithmetic of IEEE 754: don't compile with --use_fast_math"
#endif

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/dtype.h"
#include "kernels/exact/exact_digits.h"
#include "kernels/op.h"

namespace reduced {

// Bins are so far apart, and a bin takes magnitudes up to 2^(kBinBits - 1) of its units: kMaxDeposits of them.
inline constexpr int kBinBits = 41;
inline constexpr int kMaxDeposits = 1 << (52 - kBinBits);

// What f64 can anchor: see cpu/exact_tiles.cc.
inline constexpr int kLargestTop = 1010;
inline constexpr int kSmallestTop = -1000;
inline constexpr int kNoTop = -10000;

// Magnitudes are compared by the upper word of their bits.
__device__ inline unsigned UpperMagnitude(double x) { return static_cast<unsigned>(__double2hiint(x)) & 0x7fffffffu; }
constexpr unsigned UpperOfPower(int exponent) { return static_cast<unsigned>(exponent + 1023) << 20; }

// As UpperMagnitude, but 0 only of zeros.
__device__ inline unsigned UpperMagnitudeOr1(double x) {
  return UpperMagnitude(x) | (__double2loint(x) != 0 ? 1u : 0u);
}

// The lowest top, such that all magnitudes are below 2^top, for the largest of their upper words.
__device__ inline int TopFor(unsigned largest_upper) {
  return max(static_cast<int>(largest_upper >> 20) - 1022, kSmallestTop);
}

// Bin b's unit is 2^UnitOf, where the first bin takes numbers of up to 2^top.
__device__ inline int UnitOf(int top, int b) { return max(top - (kBinBits - 1) - b * kBinBits, -1074); }
__device__ inline double AnchorOf(int top, int b) {
  return __hiloint2double(static_cast<int>(UpperOfPower(52 + UnitOf(top, b)) | 0x80000u), 0);
}

// Adds x to bins from kFirst on; gives what is left over.
template <int kFirst, int kBins>
__device__ inline double Deposit(double (&bin)[kBins], double x) {
#pragma unroll
  for (int b = kFirst; b < kBins; ++b) {
    const double sum = __dadd_rn(bin[b], x);
    x = __dsub_rn(x, __dsub_rn(sum, bin[b]));
    bin[b] = sum;
  }
  return x;
}

// To shared or global memory that several threads add to.
__device__ inline void AddTo(unsigned long long* digit, unsigned long long by) {
  if (by != 0) atomicAdd(digit, by);
}

// Adds value x 2^position, in units of the digits' first bit.
__device__ inline void AddUnits(unsigned long long* digits, long long value, int position) {
  const int shift = position & 31;
  const auto low = static_cast<unsigned long long>(value) << shift;
  const long long high = (value >> 1) >> (63 - shift);
  unsigned long long* const digit = digits + (position >> 5);
  AddTo(digit, low & 0xffffffffu);
  AddTo(digit + 1, low >> 32);
  AddTo(digit + 2, static_cast<unsigned long long>(high));
}

// How accumulator kA sees elements T: as in cpu/exact_tiles.cc.
template <class T, Accumulator kA>
struct ExactTerms {
  static constexpr bool kTwo = kA == Accumulator::kSumSquares && std::is_same_v<T, double>;
  static constexpr int kValues = kTwo ? 2 : 1;
  static constexpr int kBins = kTwo ? 4 : std::is_same_v<T, double> || kA == Accumulator::kSumSquares ? 3 : 2;
  static constexpr int kLow = kA == Accumulator::kSumSquares ? ExactSquares::kLow : ExactSum::kLow;
  // Others are added by AddAlone: from here on, and, unless they are 0, below there.
  static constexpr unsigned kTooLarge = kTwo                        ? UpperOfPower(500)
                                        : std::is_same_v<T, double> ? UpperOfPower(kLargestTop)
                                                                    : 0x7ff00000u;
  static constexpr unsigned kSmallest = kTwo ? UpperOfPower(-480) : 0;

  __device__ static double First(double x) {
    if constexpr (kA == Accumulator::kSum) return x;
    if constexpr (kA == Accumulator::kAbsSum) return fabs(x);
    if constexpr (kA == Accumulator::kSumSquares) return __dmul_rn(x, x);
  }
  __device__ static double Second(double x, double square) { return __fma_rn(x, x, -square); }
  __device__ static bool Ordinary(double x) {
    const unsigned upper = UpperMagnitudeOr1(x);
    return upper < kTooLarge && (!kTwo || upper >= kSmallest || upper == 0);
  }
  __device__ static unsigned long long* DigitsOf(ExactDigits* digits) {
    if constexpr (kA == Accumulator::kSum) return digits->sum;
    if constexpr (kA == Accumulator::kAbsSum) return digits->abs_sum;
    if constexpr (kA == Accumulator::kSumSquares) return digits->sum_squares;
  }
};

// Adds one element, whatever it is, to one of the sums. kCounts: counts it if it isn't finite.
template <Accumulator kA, bool kCounts>
__device__ inline void AddAlone(double x, ExactDigits* digits) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(x));
  const bool negative = bits >> 63 != 0;
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  auto magnitude = static_cast<long long>(bits & ((1ull << 52) - 1));
  if (field == 0x7ff) {
    if constexpr (kCounts) {
      AddTo(magnitude != 0 ? &digits->nans : negative ? &digits->negative_infinities : &digits->positive_infinities, 1);
    }
    return;
  }
  if (field != 0) magnitude |= 1ll << 52;
  const int exponent = (field == 0 ? 1 : field) - 1075;
  if constexpr (kA == Accumulator::kSum) {
    AddUnits(digits->sum, negative ? -magnitude : magnitude, exponent - ExactSum::kLow);
  } else if constexpr (kA == Accumulator::kAbsSum) {
    AddUnits(digits->abs_sum, magnitude, exponent - ExactSum::kLow);
  } else {
    const auto m = static_cast<unsigned long long>(magnitude);
    const unsigned long long low = m * m;
    const unsigned long long high = __umul64hi(m, m);
    constexpr int kHalf = 53;
    const int position = 2 * exponent - ExactSquares::kLow;
    AddUnits(digits->sum_squares, static_cast<long long>(low & ((1ull << kHalf) - 1)), position);
    AddUnits(digits->sum_squares, static_cast<long long>((high << (64 - kHalf)) | (low >> kHalf)), position + kHalf);
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_EXACT_TERMS_CUH_
