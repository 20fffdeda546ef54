// The parts of exact sums on a CUDA device: how an element is looked at, the bins that split it, and digits that
// several threads add to. See exact_sums.cuh.
#ifndef REDUCED_KERNELS_CUDA_EXACT_TERMS_CUH_
#define REDUCED_KERNELS_CUDA_EXACT_TERMS_CUH_

#if defined(__USE_FAST_MATH__) || defined(__FAST_MATH__)
#error "exact sums need the arithmetic of IEEE 754: don't compile with --use_fast_math"
#endif

#include <cstdint>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/tile_extrema.cuh"
#include "kernels/cuda/vector16.cuh"
#include "kernels/exact/digits.h"

namespace reduced {

// Bins are so far apart, and a bin takes magnitudes up to 2^(kBinBits - 1) of its units: kMaxDeposits of them.
inline constexpr int kBinBits = 41;
inline constexpr int kMaxDeposits = 1 << (52 - kBinBits);

// Bin b's unit is 2^UnitOf, where the first bin takes numbers below 2^top.
__device__ constexpr int UnitOf(int top, int b) {
  const int unit = top - (kBinBits - 1) - b * kBinBits;
  return unit < -1074 ? -1074 : unit;
}
__device__ inline double AnchorOf(int top, int b) {
  return __hiloint2double((52 + UnitOf(top, b) + 1023) << 20 | 0x80000, 0);
}

template <int kSize>
__device__ inline void AnchorBins(double (&bin)[kSize], int top) {
#pragma unroll
  for (int b = 0; b < kSize; ++b) bin[b] = AnchorOf(top, b);
}

// Adds x to the bins from kFirst up to, without, kEnd. x is a multiple of the last one's unit: it takes what is left.
template <int kFirst, int kEnd, int kSize>
__device__ inline void Deposit(double (&bin)[kSize], double x) {
#pragma unroll
  for (int b = kFirst; b < kEnd - 1; ++b) {
    const double sum = __dadd_rn(bin[b], x);
    x = __dsub_rn(x, __dsub_rn(sum, bin[b]));
    bin[b] = sum;
  }
  bin[kEnd - 1] = __dadd_rn(bin[kEnd - 1], x);
}

// The square of a number of at most 26 bits: its first bin takes the product's upper part before that is rounded.
template <int kEnd, int kSize>
__device__ inline void DepositSquare(double (&bin)[kSize], double x) {
  const double sum = __fma_rn(x, x, bin[0]);
  const double rest = __fma_rn(x, x, -__dsub_rn(sum, bin[0]));
  bin[0] = sum;
  Deposit<1, kEnd>(bin, rest);
}

// Of any number: as what a product rounds to and what it rounds off, which a bin further down takes whole.
template <int kEnd, int kSize>
__device__ inline void DepositWideSquare(double (&bin)[kSize], double x) {
  const double square = __dmul_rn(x, x);
  Deposit<0, kEnd - 1>(bin, square);
  Deposit<1, kEnd>(bin, __fma_rn(x, x, -square));
}

// How elements are looked at. Patterns order magnitudes: the bits of an element but its sign; of an f64 the upper
// word's, where a lower word that isn't zero counts as one.
template <class T>
struct ExactElement;
template <>
struct ExactElement<float> {
  static constexpr int kDigits = 24;   // significant bits
  static constexpr int kFieldAt = 23;  // of the exponent, in a pattern
  static constexpr int kBias = 127;
  static constexpr int kLowest = -126;  // smaller than 2^kLowest has fewer digits
  static constexpr int kHighest = 128;  // all finite numbers are below 2^kHighest

  __device__ static unsigned PatternOf(float x) { return __float_as_uint(x) & 0x7fffffffu; }
  __device__ static bool IsNegativeZero(float x) { return __float_as_uint(x) == 0x80000000u; }
  // -0 adds nothing to any sum, and nothing to what is known of it.
  __device__ static float NegativeZero() { return -0.0F; }
};
template <>
struct ExactElement<BFloat16> {
  static constexpr int kDigits = 8;
  static constexpr int kFieldAt = 7;
  static constexpr int kBias = 127;
  static constexpr int kLowest = -126;
  static constexpr int kHighest = 128;

  __device__ static unsigned PatternOf(BFloat16 x) { return x.bits & 0x7fffu; }
  __device__ static bool IsNegativeZero(BFloat16 x) { return x.bits == 0x8000u; }
  __device__ static BFloat16 NegativeZero() { return {0x8000}; }
};
template <>
struct ExactElement<Half> {
  static constexpr int kDigits = 11;
  static constexpr int kFieldAt = 10;
  static constexpr int kBias = 15;
  static constexpr int kLowest = -14;
  static constexpr int kHighest = 16;

  __device__ static unsigned PatternOf(Half x) { return x.bits & 0x7fffu; }
  __device__ static bool IsNegativeZero(Half x) { return x.bits == 0x8000u; }
  __device__ static Half NegativeZero() { return {0x8000}; }
};
template <>
struct ExactElement<double> {
  static constexpr int kDigits = 53;
  static constexpr int kFieldAt = 20;
  static constexpr int kBias = 1023;
  static constexpr int kLowest = -1022;
  static constexpr int kHighest = 1010;  // what f64 can anchor

  __device__ static unsigned PatternOf(double x) {
    return (static_cast<unsigned>(__double2hiint(x)) & 0x7fffffffu) | min(static_cast<unsigned>(__double2loint(x)), 1u);
  }
  __device__ static bool IsNegativeZero(double x) {
    return __double_as_longlong(x) == static_cast<long long>(1ull << 63);
  }
  __device__ static double NegativeZero() { return -0.0; }
};

// What there is between zero and the largest magnitude of some elements, as patterns.
struct PatternRange {
  unsigned largest = 0;
  unsigned least_less_one = ~0u;  // the smallest that isn't zero, less one

  // By what follows from the bits of a word's elements alone, several at once where they are narrow.
  template <class T>
  __device__ __forceinline__ void Include(const Vector16<T>& vector) {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (const unsigned word : vector.Words().word) {
        const unsigned patterns = word & 0x7fff7fffu;
        largest = Max2<false>(largest, patterns);
        least_less_one = __viaddmin_u16x2(patterns, ~0u, least_less_one);
      }
    } else {
#pragma unroll
      for (const T x : vector.element) {
        const unsigned pattern = ExactElement<T>::PatternOf(x);
        largest = max(largest, pattern);
        least_less_one = __viaddmin_u32(pattern, ~0u, least_less_one);
      }
    }
  }
  // Once all of them are included.
  template <class T>
  __device__ __forceinline__ void Settle() {
    if constexpr (sizeof(T) == 2) {
      largest = max(largest & 0xffffu, largest >> 16);
      least_less_one = min(least_less_one & 0xffffu, least_less_one >> 16);
    }
  }
};

inline constexpr int kNoTop = -10000;

// How many bins of each sum take an element.
struct Level {
  int sum = 0;
  int squares = 0;
  int fixed_top = kNoTop;  // the first takes numbers below 2^fixed_top, the last all that is left; kNoTop: bins move
};

// The levels for an array of T of the sums kSums, from the cheapest to the widest: one sum, or kSum and kSumSquares.
template <class T, Accumulator... kSums>
struct ExactLevels {
  static constexpr bool Has(Accumulator a) { return ((kSums == a) || ...); }
  static constexpr bool kAbs = Has(Accumulator::kAbsSum);
  static constexpr bool kSum = kAbs || Has(Accumulator::kSum);
  static constexpr bool kSquares = Has(Accumulator::kSumSquares);
  static constexpr bool kF64 = std::is_same_v<T, double>;

  static constexpr bool kBF16 = std::is_same_v<T, BFloat16>;
  static constexpr int kCount = std::is_same_v<T, Half> || (kF64 && kSquares) ? 1 : kF64 || kSquares ? 2 : 3;
  static __device__ constexpr Level At(int level) {
    if (std::is_same_v<T, Half>) return {.sum = 1, .squares = 2, .fixed_top = 16};
    if (kF64 && kSquares) return {.sum = 2, .squares = 4};
    if (level == 2) return {.sum = 7, .fixed_top = 128};
    return {.sum = (kBF16 ? 1 : 2) + level, .squares = 2 + level};
  }
  static constexpr int kWidest = kCount - 1;

  // What bins can take at all, as exponents: squares of f64 within the exponents of f64.
  static constexpr int kLowest = kF64 && kSquares ? -480 : ExactElement<T>::kLowest;
  static constexpr int kHighest = kF64 && kSquares ? 500 : ExactElement<T>::kHighest;

  // The lowest power of two from which on numbers below 2^top lose nothing in the bins of a level that moves.
  __device__ static int LowestOf(Level level, int top) {
    int lowest = kLowest;
    if (kSum) lowest = max(lowest, UnitOf(top, level.sum - 1) + ExactElement<T>::kDigits - 1);
    if (kSquares) {  // multiples of 2^u have squares that are multiples of 2^2u
      lowest = max(lowest, ((UnitOf(2 * top, level.squares - 1) + 1) >> 1) + ExactElement<T>::kDigits - 1);
    }
    return lowest;
  }
};

// Adds to half a word of shared memory that several threads add to; gives what was there.
__device__ inline unsigned AddToShared(unsigned long long* word, int half, unsigned by) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(word)) + 4 * static_cast<unsigned>(half);
  unsigned before;
  asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(address), "r"(by) : "memory");
  return before;
}

// The same to a whole word, by halves: more than those shared memory can't add to by itself.
__device__ inline void AddToShared(unsigned long long* word, unsigned by) {
  if (AddToShared(word, 0, by) > ~by) AddToShared(word, 1, 1);
}

// Adds value x 2^position, in units of the digits' first bit. The three digits' low halves first, so that none waits
// for another; then what they carried.
__device__ inline void AddUnits(unsigned long long* digits, long long value, int position) {
  const int shift = position & 31;
  const auto low = static_cast<unsigned long long>(value) << shift;
  const auto high = static_cast<unsigned long long>((value >> 1) >> (63 - shift));
  unsigned long long* const digit = digits + (position >> 5);
  const unsigned halves[] = {static_cast<unsigned>(low), static_cast<unsigned>(low >> 32), static_cast<unsigned>(high)};
  bool carried[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) carried[i] = AddToShared(digit + i, 0, halves[i]) > ~halves[i];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const unsigned upper = (carried[i] ? 1u : 0u) + (i == 2 ? static_cast<unsigned>(high >> 32) : 0u);
    if (upper != 0) AddToShared(digit + i, 1, upper);
  }
}

// Adds the first kCount bins of a warp's threads to digits whose first bit is 2^lowest.
template <int kCount, int kSize>
__device__ inline void AddBins(const double (&bin)[kSize], int top, int lowest, unsigned long long* digits) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  long long units = 0;  // of all threads, in the bin of this lane
#pragma unroll
  for (int b = 0; b < kCount; ++b) {
    // A thread's are at most 2^51. In two parts, of which 32 don't overflow 32 bits.
    constexpr int kLowBits = 26;
    const long long own = __double_as_longlong(bin[b]) - __double_as_longlong(AnchorOf(top, b));
    const unsigned low = __reduce_add_sync(kFullWarp, static_cast<unsigned>(own) & ((1u << kLowBits) - 1));
    const int high = __reduce_add_sync(kFullWarp, static_cast<int>(own >> kLowBits));
    if (lane == b) units = static_cast<long long>(low) + (static_cast<long long>(high) << kLowBits);
  }
  if (lane < kCount) AddUnits(digits, units, UnitOf(top, lane) - lowest);
}

// Adds one finite element, whatever it is, to one of the sums.
template <Accumulator kA>
__device__ inline void AddFinite(bool negative, long long magnitude, int exponent, ExactDigits* digits) {
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

// Adds one element to the sums kSums. kCounts: counts it if it isn't finite.
template <bool kCounts, Accumulator... kSums>
__device__ __noinline__ void AddAlone(double x, ExactDigits* digits) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(x));
  const bool negative = bits >> 63 != 0;
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  const auto fraction = static_cast<long long>(bits & ((1ull << 52) - 1));
  if (field == 0x7ff) {
    if constexpr (kCounts) {
      AddToShared(fraction != 0 ? &digits->nans
                  : negative    ? &digits->negative_infinities
                                : &digits->positive_infinities,
                  1u);
    }
    return;
  }
  const long long magnitude = field == 0 ? fraction : fraction | 1ll << 52;
  const int exponent = (field == 0 ? 1 : field) - 1075;
  (AddFinite<kSums>(negative, magnitude, exponent, digits), ...);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_EXACT_TERMS_CUH_
