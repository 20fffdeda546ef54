// What the kernels of reductions along axes fold in registers, and how answers are made of it on the device.
//
//   Fold<T, kBundle> fold;
//   fold.Tile(x, position, step, omit_nan);     // elements at position, position + step, ...: ascending positions
//   Fold<T, kBundle>::State state = fold.Settle();
//   Merge(&state, other);                       // in any order: everything is exact
//   Finish(slices, output, state);              // writes the answers, or lists the output
//
// A sum of floats is kept as two doubles: s, rounded at each addition, and e, the sum of what rounding took from s,
// which two additions find that are rounded down and up: where both agree, nothing was lost (the first part is D.
// Knuth's two-sum, "The Art of Computer Programming", volume 2, 4.2.2; for the second, interval arithmetic). Elements
// of up to 32 bits are first added up tile by tile, rounded down and up alike, which loses something only where
// exponents are far apart; then they are added one by one. State.e is NaN where something was lost.
#ifndef REDUCED_KERNELS_CUDA_SLICE_FOLDS_CUH_
#define REDUCED_KERNELS_CUDA_SLICE_FOLDS_CUH_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cuda/slices.h"

namespace reduced {

inline constexpr unsigned kNoPosition = 0xffffffffu;

__device__ inline double NanOf64() { return __longlong_as_double(0x7ff8000000000000); }

// s + what is left over, exactly.
__device__ inline double TwoSum(double a, double b, double* error) {
  const double s = __dadd_rn(a, b);
  const double t = __dsub_rn(s, a);
  *error = __dadd_rn(__dsub_rn(a, __dsub_rn(s, t)), __dsub_rn(b, t));
  return s;
}

// s + e; e is NaN if something was lost, or s is no number.
struct DoubleSum {
  double s = -0.0;  // to which -0 adds -0, and +0 adds +0
  double e = 0;
};
__device__ inline void Merge(DoubleSum* into, const DoubleSum& other) {
  double error;
  into->s = TwoSum(into->s, other.s, &error);
  const double low = __dadd_rd(__dadd_rd(into->e, other.e), error);
  const double high = __dadd_ru(__dadd_ru(into->e, other.e), error);
  into->e = low == high ? high : NanOf64();
}

// The sum of a thread.
struct DoubleFold {
  double s = -0.0;
  double low = 0;  // between these lies what rounding took from s
  double high = 0;

  __device__ void AddError(double error) {
    low = __dadd_rd(low, error);
    high = __dadd_ru(high, error);
  }
  __device__ void Add(double x) {
    double error;
    s = TwoSum(s, x, &error);
    AddError(error);
  }
  // At once if that loses nothing.
  template <int kCount>
  __device__ void AddTile(const double (&x)[kCount]) {
    double down = x[0], up = x[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) {
      down = __dadd_rd(down, x[i]);
      up = __dadd_ru(up, x[i]);  // has the sign that a sum of zeros has
    }
    if (down == up) return Add(up);
#pragma unroll
    for (int i = 0; i < kCount; ++i) Add(x[i]);
  }
  __device__ DoubleSum Settle() const { return {s, low == high ? high : NanOf64()}; }
};

// What a bundle has not. Types of their own, so that they take no memory.
template <int kWhich>
struct NoFold {};

// The extrema of integers of up to 32 bits in 32, to be shuffled as words.
template <class T>
using PositionKey =
    std::conditional_t<sizeof(T) == 8, typename OrderKey<T>::Type,
                       std::conditional_t<std::is_same_v<T, std::uint32_t>, std::uint32_t, std::int32_t>>;

// As ExtremaState, with positions in 32 bits.
template <class T>
struct PositionExtrema {
  using Key = PositionKey<T>;
  Key min_key = std::numeric_limits<Key>::max();
  Key max_key = std::numeric_limits<Key>::min();
  unsigned min_position = kNoPosition;
  unsigned max_position = kNoPosition;
  unsigned nan_position = kNoPosition;
  unsigned unused = 0;

  __device__ void Add(T x, unsigned position) {
    if (IsNan(x)) {
      nan_position = min(nan_position, position);
      return;
    }
    const Key key = OrderKey<T>::Of(x);
    // The keys of floats are inside the range of Key, so that the first one is smaller and larger.
    const bool first = !kIsFloat<T> && min_position == kNoPosition;
    if (key < min_key || first) {
      min_key = key;
      min_position = position;
    }
    if (key > max_key || first) {
      max_key = key;
      max_position = position;
    }
  }
};
template <class T>
__device__ inline void Merge(PositionExtrema<T>* into, const PositionExtrema<T>& other) {
  if (other.min_key < into->min_key || (other.min_key == into->min_key && other.min_position < into->min_position)) {
    into->min_key = other.min_key;
    into->min_position = other.min_position;
  }
  if (other.max_key > into->max_key || (other.max_key == into->max_key && other.max_position < into->max_position)) {
    into->max_key = other.max_key;
    into->max_position = other.max_position;
  }
  into->nan_position = min(into->nan_position, other.nan_position);
}

struct Counts32 {
  unsigned nonzero = 0;
  unsigned nan = 0;
};

template <int kWhich>
__device__ inline void Merge(NoFold<kWhich>*, const NoFold<kWhich>&) {}
__device__ inline void Merge(Counts32* into, const Counts32& other) {
  into->nonzero += other.nonzero;
  into->nan += other.nan;
}
struct IntegerSum64 {
  std::int64_t sum = 0;
};
struct IntegerSum128 {
  Sum128 sum;
};
__device__ inline void Merge(IntegerSum64* into, const IntegerSum64& other) { into->sum += other.sum; }
__device__ inline void Merge(IntegerSum128* into, const IntegerSum128& other) { into->sum += other.sum; }

template <class T, SliceBundle kBundle>
struct SliceFold {
  static constexpr bool kFloat = kIsFloat<T>;
  static constexpr bool kSums = kBundle != SliceBundle::kExtrema;
  static constexpr bool kSquares = kBundle == SliceBundle::kPowers || kBundle == SliceBundle::kDescription;
  static constexpr bool kExtrema = kBundle == SliceBundle::kExtrema || kBundle == SliceBundle::kDescription;
  static constexpr bool kCounts = kBundle == SliceBundle::kDescription;
  using IntegerSum = std::conditional_t<sizeof(T) == 8, IntegerSum128, IntegerSum64>;

  template <bool kHas, class Part, int kWhich>
  using If = std::conditional_t<kHas, Part, NoFold<kWhich>>;

  struct State {
    [[no_unique_address]] If<kSums, std::conditional_t<kFloat, DoubleSum, IntegerSum>, 0> sum;
    [[no_unique_address]] If<kSquares, DoubleSum, 1> squares;
    [[no_unique_address]] If<kExtrema, PositionExtrema<T>, 2> extrema;
    [[no_unique_address]] If<kCounts, Counts32, 3> counts;
  };

  If<kSums, std::conditional_t<kFloat, DoubleFold, IntegerSum>, 0> sum;
  If<kSquares, DoubleFold, 1> squares;
  If<kExtrema, PositionExtrema<T>, 2> extrema;
  If<kCounts, Counts32, 3> counts;

  template <int kCount>
  __device__ __forceinline__ void Tile(const T (&x)[kCount], unsigned position, unsigned step, bool omit_nan) {
    if constexpr (kExtrema) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) extrema.Add(x[i], position + static_cast<unsigned>(i) * step);
    }
    if constexpr (kCounts) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        counts.nonzero += IsNonzero(x[i]) ? 1 : 0;
        counts.nan += IsNan(x[i]) ? 1 : 0;
      }
    }
    if constexpr (kSums && kFloat) {
      double value[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        value[i] = ToDouble(x[i]);
        if (kCounts && omit_nan && IsNan(x[i])) value[i] = -0.0;
      }
      AddFloats(value);
    } else if constexpr (kSums) {
      AddIntegers(x);
    }
  }

  __device__ State Settle() const {
    State state;
    if constexpr (kSums && kFloat) state.sum = sum.Settle();
    if constexpr (kSums && !kFloat) state.sum = sum;
    if constexpr (kSquares) state.squares = squares.Settle();
    state.extrema = extrema;
    state.counts = counts;
    return state;
  }

 private:
  template <int kCount>
  __device__ __forceinline__ void AddFloats(const double (&value)[kCount]) {
    if constexpr (std::is_same_v<T, double>) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.Add(value[i]);
    } else {
      sum.AddTile(value);
    }
    if constexpr (kSquares) {
      double square[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) square[i] = __dmul_rn(value[i], value[i]);
      if constexpr (std::is_same_v<T, double>) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          squares.Add(square[i]);
          // What the product's rounding took is a double, too, unless the product is tiny.
          const bool tiny = square[i] < 0x1p-900 && value[i] != 0;
          squares.AddError(tiny ? NanOf64() : __fma_rn(value[i], value[i], -square[i]));
        }
      } else if constexpr (sizeof(T) == 2) {
        squares.AddTile(square);
      } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i) squares.Add(square[i]);  // of 48 bits: few tiles would lose nothing
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ void AddIntegers(const T (&x)[kCount]) {
    if constexpr (sizeof(T) < 4) {
      int tile = 0;
#pragma unroll
      for (int i = 0; i < kCount; ++i) tile += ToInteger(x[i]);
      sum.sum += tile;
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.sum += ToInteger(x[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.sum += static_cast<UInt128>(static_cast<Int128>(x[i]));
    }
  }
};

template <class State>
__device__ inline void MergeStates(State* into, const State& other) {
  Merge(&into->sum, other.sum);
  Merge(&into->squares, other.squares);
  Merge(&into->extrema, other.extrema);
  Merge(&into->counts, other.counts);
}

// A number that is known up to a small error: false if rounding could go either way, or the error is NaN.
__device__ inline bool RoundTo(double value, double rest, double error, double* to) {
  const double low = __dadd_rn(value, __dsub_rd(rest, error));
  const double high = __dadd_rn(value, __dadd_ru(rest, error));
  *to = low;
  return low == high;
}

// Numbers that are neither so small nor so large that what follows underflows or overflows.
__device__ inline bool IsModerate(double x) { return fabs(x) > 1e-140 && fabs(x) < 1e140; }

// What rounding a quotient or root leaves is known to so many parts of itself.
inline constexpr double kRestError = 0x1p-45;

// (s + e) / n, rounded once: as QuickMean (cpu/quick_sums.cc).
__device__ inline bool RoundMean(const DoubleSum& sum, double n, double* to) {
  double l;
  const double h = TwoSum(sum.s, sum.e, &l);
  if (l == 0) {
    *to = __ddiv_rn(sum.e == 0 ? sum.s : h, n);
    return true;
  }
  if (!IsModerate(h)) return false;
  const double q = __ddiv_rn(h, n);
  const double c = __ddiv_rn(__dadd_rn(__fma_rn(-q, n, h), l), n);
  return RoundTo(q, c, fabs(c) * kRestError, to);
}

// The root of h + l, |l| being at most half a unit in the last place of h or little more, and uncertain by `error`.
__device__ inline bool RoundRoot(double h, double l, double error, double* to) {
  const double y = __dsqrt_rn(h);
  const double c = __ddiv_rn(__dadd_rn(__fma_rn(-y, y, h), l), 2 * y);
  return RoundTo(y, c, __ddiv_ru(error, y) + fabs(c) * kRestError, to);
}

// (n Q - S^2) / (n (n - ddof)), or its root. In two doubles, whose error is at most some 2^-104 of n Q.
__device__ inline bool RoundDeviation(const DoubleSum& sum, const DoubleSum& squares, double n, double ddof, bool root,
                                      double* to) {
  double sl, ql;
  const double sh = TwoSum(sum.s, sum.e, &sl);
  const double qh = TwoSum(squares.s, squares.e, &ql);
  const double divisor = n * (n - ddof);
  if (qh == 0) {
    *to = 0;
    return true;
  }
  if (!IsModerate(qh) || !(divisor < 0x1p53)) return false;
  // n Q = p + pe, S^2 = r + re. Of short outputs they are exact, and so are ties, which must be known as such.
  const double p = n * qh;
  const double tail = __dmul_rn(n, ql);
  double lost;
  const double pe = TwoSum(__fma_rn(n, qh, -p), tail, &lost);
  bool exact = sl == 0 && __fma_rn(n, ql, -tail) == 0 && lost == 0;
  const double r = __dmul_rn(sh, sh);
  const double re = __fma_rn(sh, sh, -r) + 2 * sh * sl;
  double de, low;
  double d = TwoSum(p, -r, &de);
  const double rests = TwoSum(pe, -re, &lost);
  exact = exact && lost == 0;
  de = TwoSum(de, rests, &lost);
  exact = exact && lost == 0;
  d = TwoSum(d, de, &low);
  if (exact && d == 0) {  // all elements are equal
    *to = 0;
    return true;
  }
  if (!(d > p * 0x1p-45)) return false;
  const double q = __ddiv_rn(d, divisor);
  const double rest = TwoSum(__fma_rn(-q, divisor, d), low, &lost);
  const double c = __ddiv_rn(rest, divisor);
  const bool exact_rest = lost == 0 && __fma_rn(-c, divisor, rest) == 0;
  const double rest_error = (exact ? 0 : p * 0x1p-99 / divisor) + (exact_rest ? 0 : fabs(c) * kRestError);
  return root ? RoundRoot(q, c, rest_error, to) : RoundTo(q, c, rest_error, to);
}

template <class T>
__device__ inline T ElementOf(PositionKey<T> key) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<std::uint8_t>(key)};
  } else if constexpr (kIsFloat<T>) {
    using Word = typename FloatFormat<T>::Word;
    constexpr auto kMost = std::numeric_limits<std::make_signed_t<Word>>::max();
    const auto bits = static_cast<Word>(key < 0 ? key ^ kMost : key);
    T x;
    memcpy(&x, &bits, sizeof x);
    return x;
  } else {
    return static_cast<T>(key);
  }
}

// The answers of one output; false where they are not known.
template <class T, SliceBundle kBundle>
struct SliceFinish {
  using F = SliceFold<T, kBundle>;
  const QuickSlices& slices;
  std::int64_t output;
  const typename F::State& state;

  template <class Answer>
  __device__ bool Put(int op, Answer answer) const {
    static_cast<Answer*>(slices.answers[op])[output] = answer;
    return true;
  }
  __device__ double count() const {
    double n = static_cast<double>(slices.array.elements);
    if constexpr (F::kCounts) n -= slices.omit_nan ? state.counts.nan : 0;
    return n;
  }

  __device__ bool PutSum(int i, Op op) const {
    if constexpr (F::kSums && F::kFloat) {
      const double n = count();
      if (n == 0) return false;
      const DoubleSum& sum = state.sum;
      if (sum.s - sum.s != 0) {  // infinities or NaNs; of doubles perhaps an overflow
        if (std::is_same_v<T, double>) return false;
        const double value = isnan(sum.s) ? NanOf64() : sum.s;
        return Put(i, value);
      }
      if (isnan(sum.e)) return false;
      if (op == Op::kSum) {
        const double value = sum.e == 0 ? sum.s : __dadd_rn(sum.s, sum.e);
        if (std::is_same_v<T, double> && value - value != 0) return false;
        return Put(i, value);
      }
      double mean;
      return RoundMean(sum, n, &mean) && Put(i, mean);
    } else if constexpr (F::kSums) {
      const auto n = static_cast<double>(slices.array.elements);
      std::int64_t low;
      bool fits = true;  // into the result's type
      if constexpr (sizeof(T) == 8) {
        low = static_cast<std::int64_t>(state.sum.sum.low);
        fits = state.sum.sum.high == (kIsSigned<T> ? static_cast<std::uint64_t>(low >> 63) : 0);
      } else {
        low = state.sum.sum;
      }
      if (op == Op::kSum) return fits && Put(i, low);
      if (!fits || low > 1ll << 53 || low < (kIsSigned<T> ? -(1ll << 53) : 0)) return false;
      return Put(i, __ddiv_rn(static_cast<double>(low), n));
    }
    return false;
  }

  __device__ bool PutPower(int i, Op op) const {
    if constexpr (F::kSquares) {
      const double n = count();
      const bool deviates = op == Op::kVar || op == Op::kStd;
      const auto ddof = static_cast<double>(slices.ddof);
      if (deviates && n <= ddof) return Put(i, NanOf64());
      if (n == 0) return false;
      const DoubleSum& sum = state.sum;
      const DoubleSum& squares = state.squares;
      if (squares.s - squares.s != 0) {
        if (std::is_same_v<T, double>) return false;
        return Put(i, deviates || isnan(squares.s) ? NanOf64() : squares.s);
      }
      if (isnan(squares.e) || (deviates && isnan(sum.e))) return false;
      double value;
      if (deviates) return RoundDeviation(sum, squares, n, ddof, op == Op::kStd, &value) && Put(i, value);
      double rest;
      value = TwoSum(squares.s, squares.e, &rest);
      if (value - value != 0) return false;
      if (op == Op::kSumSquares || value == 0) return Put(i, value == 0 ? 0.0 : value);
      return IsModerate(value) && RoundRoot(value, rest, 0, &value) && Put(i, value);
    }
    return false;
  }

  __device__ bool PutExtremum(int i, Op op) const {
    if constexpr (F::kExtrema) {
      const PositionExtrema<T>& extrema = state.extrema;
      const bool is_min = op == Op::kMin || op == Op::kArgmin;
      const bool index = op == Op::kArgmin || op == Op::kArgmax;
      if (extrema.nan_position != kNoPosition && !slices.omit_nan) {
        if (index) return Put(i, static_cast<std::uint64_t>(extrema.nan_position));
        if (op == Op::kRange) return Put(i, NanOf64());
        T nan;
        memcpy(&nan, &slices.element_nan, sizeof nan);
        return Put(i, nan);
      }
      const unsigned position = is_min ? extrema.min_position : extrema.max_position;
      if (position == kNoPosition) return false;
      if (index) return Put(i, static_cast<std::uint64_t>(position));
      if (op != Op::kRange) return Put(i, ElementOf<T>(is_min ? extrema.min_key : extrema.max_key));
      if constexpr (F::kFloat) {
        const double range = ToDouble(ElementOf<T>(extrema.max_key)) - ToDouble(ElementOf<T>(extrema.min_key));
        return Put(i, isnan(range) ? NanOf64() : range);
      } else {
        return Put(i, static_cast<std::uint64_t>(extrema.max_key) - static_cast<std::uint64_t>(extrema.min_key));
      }
    }
    return false;
  }

  __device__ bool PutCount(int i, Op op) const {
    if constexpr (F::kCounts) {
      const std::int64_t omitted = slices.omit_nan ? state.counts.nan : 0;
      const std::int64_t counted = slices.array.elements - omitted;
      const std::int64_t nonzero = state.counts.nonzero - omitted;
      if (op == Op::kAny) return Put(i, nonzero > 0);
      if (op == Op::kAll) return Put(i, nonzero == counted);
      return Put(i, static_cast<std::uint64_t>(op == Op::kCount          ? counted
                                               : op == Op::kCountNonzero ? nonzero
                                                                         : std::int64_t{state.counts.nan}));
    }
    return false;
  }

  __device__ bool Answer(int i) const {
    const Op op = slices.op[i];
    if (op == Op::kSum || op == Op::kMean) return PutSum(i, op);
    if (op == Op::kVar || op == Op::kStd || op == Op::kSumSquares || op == Op::kL2) return PutPower(i, op);
    if (op == Op::kMin || op == Op::kMax || op == Op::kArgmin || op == Op::kArgmax || op == Op::kRange) {
      return PutExtremum(i, op);
    }
    return PutCount(i, op);
  }
};

template <class T, SliceBundle kBundle>
__device__ __forceinline__ void Finish(const QuickSlices& slices, std::int64_t output,
                                       const typename SliceFold<T, kBundle>::State& state) {
  const SliceFinish<T, kBundle> finish{slices, output, state};
  bool known = true;
#pragma unroll 1
  for (int i = 0; i < slices.ops; ++i) known = finish.Answer(i) && known;
  if (!known) slices.redo[atomicAdd(slices.redo_count, 1ull)] = output;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_SLICE_FOLDS_CUH_
