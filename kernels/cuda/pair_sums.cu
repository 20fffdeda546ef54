// How exact sums of pairs are added up at the rate of memory: as in exact_sums.cuh, f64 bins take a term by a few
// additions, without a rounding that is not kept. A product of f32 or narrower elements is exact in f64; one of f64 is
// what it rounds to and, by fma, what it rounds off.
//
// Each warp has a window for the magnitudes of x and one for those of y, of kSpread powers of two. Where all of a tile
// lies in the windows, which is one comparison of the extremes of its bits, every term of it fits in the bins, whose
// places follow from the windows. The windows follow the elements: where a tile has larger ones, or mostly smaller
// ones, they move. The few elements outside are added to the digits of the block by themselves.
//
// Bytes and operations: f32 pairs have 8 bytes and take 9 operations of f64 a product (3 bins), of which an H100 has
// about 45 in the time that they come from memory; five sums take about 31, because those of elements alone begin with
// the sum of a tile.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/exact_terms.cuh"
#include "kernels/cuda/pair_slices.h"
#include "kernels/cuda/pair_sums.h"

namespace reduced {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 8;  // pairs of a thread

template <SumTerm... kAll>
struct TermList {
  static constexpr int kCount = sizeof...(kAll);
  static constexpr SumTerm kTerms[] = {kAll...};
  static constexpr bool Has(SumTerm term) { return ((kAll == term) || ...); }
  __device__ static constexpr SumTerm At(int i) {
    constexpr SumTerm terms[] = {kAll...};
    return terms[i];
  }
};
using Dot = TermList<SumTerm::kXY>;
using WeightedMean = TermList<SumTerm::kY, SumTerm::kXY>;
using Correlation = TermList<SumTerm::kX, SumTerm::kY, SumTerm::kXY, SumTerm::kXX, SumTerm::kYY>;
using Squares = TermList<SumTerm::kXY, SumTerm::kXX, SumTerm::kYY>;
using Distance = TermList<SumTerm::kDistance>;
// Blocks of a multiprocessor, as many as have the registers.
template <class T, class Terms>
constexpr int kBlocks = Terms::kCount* static_cast<int>(sizeof(T)) > 12 ? 2 : 3;

constexpr bool IsProduct(SumTerm term) { return term == SumTerm::kXY || term == SumTerm::kXX || term == SumTerm::kYY; }

// How the elements are added.
template <class T>
struct PairElement : ExactElement<T> {
  static constexpr bool kF64 = std::is_same_v<T, double>;
  static constexpr int kBins = kF64 ? 4 : 3;
  // From the top of the first bin down to the unit of the last one.
  static constexpr int kBits = kBinBits - 1 + (kBins - 1) * kBinBits;
  // Elements of a window differ by so many powers of two at most: two of its smallest have a product whose last digit
  // is not below the last bin's unit.
  static constexpr int kSpread = (kBits - 2 * (ExactElement<T>::kDigits - 1) - 1) / 2;
  // Products of f64 within its exponents, with all of their digits.
  static constexpr int kWindowLowest = kF64 ? -480 : ExactElement<T>::kLowest;
  static constexpr int kWindowHighest = kF64 ? 500 : ExactElement<T>::kHighest;
};

// Elements whose magnitudes are from 2^(top - kSpread) to below 2^top. None, before there are any.
template <class T>
struct Window {
  using Element = PairElement<T>;

  __device__ bool Takes(const PatternRange& range) const {
    return range.largest < low + span && range.least_less_one >= low - 1;
  }
  __device__ bool Has(T x) const {
    const unsigned pattern = Element::PatternOf(x);
    return pattern - low < span || pattern == 0;
  }
  __device__ static unsigned PatternOfPower(int exponent) {
    return static_cast<unsigned>(exponent + Element::kBias) << Element::kFieldAt;
  }
  // Moves where the numbers below 2^end lie; if they are too small, it takes zeros only.
  __device__ void MoveTo(int end) {
    constexpr int kRoom = Element::kSpread / 4;  // above
    top = min(end + kRoom, Element::kWindowHighest);
    top = max(top, Element::kWindowLowest);
    const int lowest = top - Element::kSpread;
    // The smallest digit of subnormal numbers is that of the smallest others.
    const bool all = !Element::kF64 && lowest <= Element::kLowest;
    low = all ? 1 : PatternOfPower(max(lowest, Element::kWindowLowest));
    span = PatternOfPower(top) - low;
  }

  int top = 0;
  unsigned low = 1;
  unsigned span = 0;
};

// What finite elements are: a whole number times a power of two.
struct Whole {
  bool negative;
  long long magnitude;
  int exponent;
};
__device__ inline Whole WholeOf(double x) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(x));
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  const auto fraction = static_cast<long long>(bits & ((1ull << 52) - 1));
  return {bits >> 63 != 0, field == 0 ? fraction : fraction | 1ll << 52, (field == 0 ? 1 : field) - 1075};
}

__device__ inline void AddElement(double x, bool negate, int unit, unsigned long long* digits) {
  const Whole w = WholeOf(x);
  AddUnits(digits, w.negative != negate ? -w.magnitude : w.magnitude, w.exponent - unit);
}
__device__ inline void AddProduct(double x, double y, int unit, unsigned long long* digits) {
  constexpr int kHalf = 53;
  const Whole a = WholeOf(x), b = WholeOf(y);
  const auto m = static_cast<unsigned long long>(a.magnitude), n = static_cast<unsigned long long>(b.magnitude);
  const unsigned long long low = m * n, high = __umul64hi(m, n);
  const auto lower = static_cast<long long>(low & ((1ull << kHalf) - 1));
  const auto upper = static_cast<long long>((high << (64 - kHalf)) | (low >> kHalf));
  const bool negative = a.negative != b.negative;
  const int position = a.exponent + b.exponent - unit;
  AddUnits(digits, negative ? -lower : lower, position);
  AddUnits(digits, negative ? -upper : upper, position + kHalf);
}

// The sums of the block, in shared memory.
template <class Terms>
struct BlockDigits {
  unsigned long long digit[Terms::kCount][PairDigits::kDigits];
  unsigned long long nans;
  unsigned long long infinities;
};

// Adds one pair, whatever it is. Not inline: a pointer to the sums of a thread would keep these in memory.
template <class Terms>
__device__ __noinline__ void AddAlone(double x, double y, BlockDigits<Terms>* to) {
  if (x != x || y != y) return AddToShared(&to->nans, 1u);
  if (isinf(x) || isinf(y)) return AddToShared(&to->infinities, 1u);
#pragma unroll
  for (int i = 0; i < Terms::kCount; ++i) {
    const SumTerm term = Terms::At(i);
    unsigned long long* const digits = to->digit[i];
    const int unit = PairUnit(term);
    if (term == SumTerm::kX) AddElement(x, false, unit, digits);
    if (term == SumTerm::kY) AddElement(y, false, unit, digits);
    if (term == SumTerm::kXY) AddProduct(x, y, unit, digits);
    if (term == SumTerm::kXX) AddProduct(x, x, unit, digits);
    if (term == SumTerm::kYY) AddProduct(y, y, unit, digits);
    if (term == SumTerm::kDistance) {
      AddElement(x, x < y, unit, digits);
      AddElement(y, x >= y, unit, digits);
    }
  }
}

// A thread's share of the sums. Unless it says otherwise, a function is called by all threads of a warp, which have the
// same of everything but bins.
template <class T, class Terms>
class WarpPairSums {
  using Element = PairElement<T>;
  static constexpr int kBins = Element::kBins;
  static constexpr int kTileDeposits = kTile * 2;
  // By how many powers of two the elements of a tile may differ, if there are sums of elements alone.
  static constexpr bool kOfElements = Terms::Has(SumTerm::kX) || Terms::Has(SumTerm::kY);
  static constexpr int kNarrowSpread = kOfElements ? 53 - Element::kDigits - 3 : 0;
  static_assert(kTile <= 1 << 3);

 public:
  __device__ explicit WarpPairSums(BlockDigits<Terms>* digits) : digits_(digits) { Anchor(); }

  __device__ __forceinline__ void Add(T (&x)[kTile], T (&y)[kTile]) {
    if (deposits_ + kTileDeposits > kMaxDeposits) Flush();
    const PatternRange of_x = RangeOf(x), of_y = RangeOf(y);
    if (!__all_sync(kFullWarp, x_.Takes(of_x) && y_.Takes(of_y))) TakeOut(x, y);
    deposits_ += kTileDeposits;
    // Where f64 has the sum of a thread's elements exactly, the bins take that alone.
    const bool adds_first =
        kNarrowSpread > 0 && __all_sync(kFullWarp, max(SpreadOf(of_x), SpreadOf(of_y)) <= kNarrowSpread);
    if (adds_first) {
      double sum_of_x = 0, sum_of_y = 0;
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        const double a = ToDouble(x[i]), b = ToDouble(y[i]);
        sum_of_x = __dadd_rn(sum_of_x, a);
        sum_of_y = __dadd_rn(sum_of_y, b);
        Deposit<0, false>(a, b);
      }
      Deposit<0, true>(sum_of_x, sum_of_y);
    } else {
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        const double a = ToDouble(x[i]), b = ToDouble(y[i]);
        Deposit<0, false>(a, b);
        Deposit<0, true>(a, b);
      }
    }
  }

  // Bins to digits.
  __device__ void Flush() {
    if (deposits_ == 0) return;
    FlushFrom<0>();
    Anchor();
  }

 private:
  __device__ static PatternRange RangeOf(const T (&elements)[kTile]) {
    PatternRange range;
#pragma unroll
    for (const T x : elements) {
      const unsigned pattern = ExactElement<T>::PatternOf(x);
      range.largest = max(range.largest, pattern);
      range.least_less_one = __viaddmin_u32(pattern, ~0u, range.least_less_one);
    }
    return range;
  }

  // By how many powers of two the magnitudes of a thread's elements differ, or one more. Negative if there are none.
  __device__ static int SpreadOf(const PatternRange& range) {
    return static_cast<int>(range.largest >> Element::kFieldAt) -
           static_cast<int>(range.least_less_one >> Element::kFieldAt);
  }

  // Below which power of two the terms are.
  __device__ int TopOf(SumTerm term) const {
    if (term == SumTerm::kX) return x_.top;
    if (term == SumTerm::kY) return y_.top;
    if (term == SumTerm::kXY) return x_.top + y_.top;
    if (term == SumTerm::kXX) return 2 * x_.top;
    if (term == SumTerm::kYY) return 2 * y_.top;
    return max(x_.top, y_.top) + 1;
  }

  __device__ void Anchor() {
    deposits_ = 0;
#pragma unroll
    for (int i = 0; i < Terms::kCount; ++i) AnchorBins(bin_[i], TopOf(Terms::At(i)));
  }

  template <int kAt>
  __device__ void FlushFrom() {
    if constexpr (kAt < Terms::kCount) {
      constexpr SumTerm kTerm = Terms::kTerms[kAt];
      AddBins<kBins>(bin_[kAt], TopOf(kTerm), PairUnit(kTerm), digits_->digit[kAt]);
      FlushFrom<kAt + 1>();
    }
  }

  // Terms of elements alone, or the others.
  template <int kAt, bool kElements>
  __device__ __forceinline__ void Deposit(double x, double y) {
    if constexpr (kAt < Terms::kCount) {
      constexpr SumTerm kTerm = Terms::kTerms[kAt];
      double(&bin)[kBins] = bin_[kAt];
      if constexpr (kElements != (kTerm == SumTerm::kX || kTerm == SumTerm::kY)) {
        // in the other call
      } else if constexpr (IsProduct(kTerm)) {
        const double a = kTerm == SumTerm::kYY ? y : x, b = kTerm == SumTerm::kXX ? x : y;
        const double product = __dmul_rn(a, b);
        reduced::Deposit<0, kBins>(bin, product);
        if constexpr (Element::kF64) reduced::Deposit<1, kBins>(bin, __fma_rn(a, b, -product));
      } else if constexpr (kTerm == SumTerm::kDistance) {  // |x - y|, and what the difference rounds off, with its sign
        const double difference = __dsub_rn(x, y);
        const double b = __dsub_rn(x, difference);
        const double rest = __dadd_rn(__dsub_rn(x, __dadd_rn(difference, b)), __dsub_rn(b, y));
        reduced::Deposit<0, kBins>(bin, fabs(difference));
        reduced::Deposit<1, kBins>(bin, difference < 0 ? -rest : rest);
      } else {
        reduced::Deposit<0, kBins>(bin, kTerm == SumTerm::kX ? x : y);
      }
      Deposit<kAt + 1, kElements>(x, y);
    }
  }

  __device__ unsigned CountOutside(const T (&x)[kTile], const T (&y)[kTile]) const {
    unsigned outside = 0;
#pragma unroll
    for (int i = 0; i < kTile; ++i) outside += x_.Has(x[i]) && y_.Has(y[i]) ? 0 : 1;
    return __reduce_add_sync(kFullWarp, outside);
  }

  // Below which power of two the finite elements of the warp's tile are. False: all of them are zeros.
  __device__ static bool EndOf(const T (&elements)[kTile], int* end) {
    constexpr unsigned kFinite = static_cast<unsigned>(Element::kHighest + Element::kBias) << Element::kFieldAt;
    unsigned largest = 0;
#pragma unroll
    for (const T x : elements) {
      const unsigned pattern = Element::PatternOf(x);
      if (pattern < kFinite) largest = max(largest, pattern);
    }
    largest = __reduce_max_sync(kFullWarp, largest);
    *end = static_cast<int>(largest >> Element::kFieldAt) - Element::kBias + 1;
    return largest != 0;
  }

  // Leaves zeros instead of pairs outside of the windows. Moves these before, if that is worth it.
  __device__ __forceinline__ void TakeOut(T (&x)[kTile], T (&y)[kTile]) {
    constexpr unsigned kFew = kWarpSize * kTile / 32;
    if (x_.span == 0 || y_.span == 0 || CountOutside(x, y) > kFew) {
      int x_end = 0, y_end = 0;
      const bool has_x = EndOf(x, &x_end), has_y = EndOf(y, &y_end);
      if (has_x || has_y) {
        Flush();
        if constexpr (Terms::kTerms[0] == SumTerm::kDistance) {  // has digits of both
          x_end = y_end = max(has_x ? x_end : y_end, has_y ? y_end : x_end);
        }
        if (has_x || x_end == y_end) x_.MoveTo(x_end);
        if (has_y || x_end == y_end) y_.MoveTo(y_end);
        Anchor();
      }
    }
#pragma unroll 1
    for (int i = 0; i < kTile; ++i) {
      T a = x[0], b = y[0];
#pragma unroll
      for (int j = 0; j < kTile; ++j) {
        if (j == i) a = x[j], b = y[j];
      }
      if (x_.Has(a) && y_.Has(b)) continue;
      AddAlone<Terms>(ToDouble(a), ToDouble(b), digits_);
#pragma unroll
      for (int j = 0; j < kTile; ++j) {
        if (j == i) x[j] = y[j] = T{};
      }
    }
  }

  BlockDigits<Terms>* const digits_;
  double bin_[Terms::kCount][kBins];
  Window<T> x_, y_;
  int deposits_ = 0;  // since the bins were empty
};

// Adds up pairs by a block, and adds that to *out. pair(i, &x, &y) is pair i of those from `begin` on, every `step`-th
// tile of the block's.
template <class T, class Terms, class Pair>
__device__ __forceinline__ void AddPairs(std::int64_t begin, std::int64_t step, std::int64_t count, PairDigits* out,
                                         Pair pair) {
  __shared__ BlockDigits<Terms> digits;
  auto* const words = reinterpret_cast<unsigned long long*>(&digits);
  constexpr int kWords = sizeof(digits) / sizeof(*words);
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += kThreads) words[i] = 0;
  __syncthreads();
  WarpPairSums<T, Terms> sums(&digits);
  // Whole tiles of blocks; each load of a warp is of neighbouring elements.
  constexpr std::int64_t kBlockTile = std::int64_t{kThreads} * kTile;
  for (begin *= kBlockTile; begin < count; begin += step * kBlockTile) {
    T x[kTile], y[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const std::int64_t at = begin + i * kThreads + static_cast<int>(threadIdx.x);
      x[i] = y[i] = T{};
      if (at < count) pair(at, &x[i], &y[i]);
    }
    sums.Add(x, y);
  }
  sums.Flush();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < Terms::kCount * PairDigits::kDigits; i += kThreads) {
    if (words[i] != 0) atomicAdd(&out->digit[0][0] + i, words[i]);
  }
  if (threadIdx.x == 0 && digits.nans != 0) atomicAdd(&out->nans, digits.nans);
  if (threadIdx.x == 0 && digits.infinities != 0) atomicAdd(&out->infinities, digits.infinities);
}

template <class T, class Terms>
__global__ void __launch_bounds__(kThreads, (kBlocks<T, Terms>))
    PairSumsKernel(const T* __restrict__ x_data, const T* __restrict__ y_data, std::int64_t count, PairDigits* out) {
  AddPairs<T, Terms>(blockIdx.x, gridDim.x, count, out,
                     [=](std::int64_t at, T* x, T* y) { *x = x_data[at], *y = y_data[at]; });
}

// Of some outputs of a partition: blockIdx.x of them, by gridDim.y blocks each.
template <class T, class Terms>
__global__ void __launch_bounds__(kThreads, (kBlocks<T, Terms>))
    PairDigitsKernel(const __grid_constant__ PairDigitsLaunch launch) {
  const PairArray& array = launch.array;
  const PairOffset start = PairOffsetOf(array.kept, launch.which[blockIdx.x], array.kept.count);
  const T* const x_data = static_cast<const T*>(array.x) + start.x;
  const T* const y_data = static_cast<const T*>(array.y) + start.y;
  AddPairs<T, Terms>(blockIdx.y, gridDim.y, array.elements, launch.out + blockIdx.x, [&](std::int64_t at, T* x, T* y) {
    const PairOffset offset = PairOffsetOf(array.reduced, at, array.reduced.count);
    *x = x_data[offset.x];
    *y = y_data[offset.y];
  });
}

template <class T, class Terms>
cudaError_t LaunchKernel(const PairSumsLaunch& launch) {
  constexpr std::int64_t kBlockTile = std::int64_t{kThreads} * kTile;
  const std::int64_t tiles = (launch.count + kBlockTile - 1) / kBlockTile;
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(tiles, std::int64_t{kBlocks<T, Terms>} * launch.multiprocessors));
  PairSumsKernel<T, Terms><<<blocks, kThreads, 0, launch.stream>>>(
      static_cast<const T*>(launch.x), static_cast<const T*>(launch.y), launch.count, launch.out);
  return cudaGetLastError();
}

// Calls visit(terms) with the list that has these; false: there is none.
template <class Visit>
bool VisitTerms(std::span<const SumTerm> terms, const Visit& visit) {
  const auto is = [&]<class Terms>(Terms list) {
    if (!std::equal(terms.begin(), terms.end(), Terms::kTerms, Terms::kTerms + Terms::kCount)) return false;
    visit(list);
    return true;
  };
  return is(Dot()) || is(WeightedMean()) || is(Correlation()) || is(Squares()) || is(Distance());
}

}  // namespace

bool HasPairKernel(std::span<const SumTerm> terms) {
  return VisitTerms(terms, [](auto) {});
}

cudaError_t LaunchPairSums(const PairSumsLaunch& launch) {
  cudaError_t error = cudaErrorInvalidValue;
  VisitTerms(launch.terms, [&]<class Terms>(Terms) {
    error = VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
      if constexpr (kIsFloat<T>) return LaunchKernel<T, Terms>(launch);
      return cudaErrorInvalidValue;
    });
  });
  return error;
}

cudaError_t LaunchPairDigits(const PairDigitsLaunch& launch) {
  constexpr std::int64_t kBlockTile = std::int64_t{kThreads} * kTile;
  const std::int64_t tiles = (launch.array.elements + kBlockTile - 1) / kBlockTile;
  const std::int64_t wanted = (4 * launch.multiprocessors + launch.count - 1) / launch.count;
  const dim3 grid(static_cast<unsigned>(launch.count), static_cast<unsigned>(std::min(tiles, wanted)));
  const auto kernel = [&]<class T, class Terms>(std::type_identity<T>, Terms) {
    PairDigitsKernel<T, Terms><<<grid, kThreads, 0, launch.stream>>>(launch);
    return cudaGetLastError();
  };
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T> type) {
    if constexpr (kIsFloat<T>) {
      return launch.terms.size() == 1 ? kernel(type, Distance()) : kernel(type, Correlation());
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace reduced
