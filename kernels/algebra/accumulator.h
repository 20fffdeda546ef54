// The accumulators: for each, one struct template over the element type, used by both engines.
//
//   using A = SumOf<float>;
//   A::Local local;                  // the identity; what a thread folds elements into
//   A::Add(local, x, index);         // in ascending index order
//   A::State state = A::Settle(local);  // what partial results are combined in
//   A::Merge(state, other);          // in any order, up to the rounding of float sums
//   A::Store(state, &partial);       // widened; the fields of other accumulators are left alone
//   A::Combine(later, &partial);     // the fields of A of two partials, whatever their dtype
//
// AllAccumulators<T> lists those of a dtype: every engine folds what is in that list. To add one: its enumerator
// (op.h), its fields (partial.h), its struct here and its place in the list; engines need no change, and may specialise
// it.
//
// A default-constructed Local or State is the identity. Everything is trivially copyable. An engine that leaves NaNs
// out (NanPolicy::kOmit) doesn't Add them, except to CountsOf. Ranges: a Local takes at most 2^31 elements.
//
// Variance: each Local sums deviations d from its own first element, and d^2; locals are then merged by the update of
// Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance" (1983). Whatever the mean, the relative error
// of a Local of m elements is some m * 2^-53, and no more than m^2 * 2^-53 even if its first element is far from all
// others, since sum(d^2) <= (1 + m) * M2.
#ifndef REDUCED_KERNELS_ALGEBRA_ACCUMULATOR_H_
#define REDUCED_KERNELS_ALGEBRA_ACCUMULATOR_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/order_key.h"
#include "kernels/algebra/partial.h"
#include "kernels/algebra/portable.h"

namespace reduced {

// Partial sums of integers: 64 bits hold 2^31 elements of up to 32 bits; wider elements take 128.
template <class T>
using NarrowSum = std::conditional_t<kIsFloat<T>, double, std::conditional_t<(sizeof(T) < 8), std::int64_t, Sum128>>;

template <class T>
struct SumOf {
  static constexpr Accumulator kAccumulator = Accumulator::kSum;
  struct State {
    NarrowSum<T> sum{};
  };
  using Local = State;
  REDUCED_HD static void Add(Local& a, T x, std::int64_t) {
    if constexpr (kIsFloat<T>) {
      a.sum += ToDouble(x);
    } else if constexpr (sizeof(T) < 8) {
      a.sum += ToInteger(x);
    } else {
      a.sum += static_cast<UInt128>(static_cast<Int128>(x));
    }
  }
  REDUCED_HD static State Settle(const Local& a) { return a; }
  REDUCED_HD static void Merge(State& into, const State& later) { into.sum += later.sum; }
  REDUCED_HD static void Store(const State& state, Partial* out) {
    if constexpr (kIsFloat<T>) {
      out->float_sum = state.sum;
    } else {
      out->int_sum = static_cast<Int128>(ValueOf(state.sum));
    }
  }
  static void Combine(const Partial& later, Partial* into) {
    into->float_sum += later.float_sum;
    into->int_sum += later.int_sum;
  }
};

template <class T>
struct AbsSumOf {
  static constexpr Accumulator kAccumulator = Accumulator::kAbsSum;
  struct State {
    std::conditional_t<kIsFloat<T>, double, std::conditional_t<(sizeof(T) < 8), std::uint64_t, Sum128>> sum{};
  };
  using Local = State;
  REDUCED_HD static void Add(Local& a, T x, std::int64_t) {
    if constexpr (kIsFloat<T>) {
      const double value = ToDouble(x);
      a.sum += DoubleFromBits(DoubleBits(value) & ~(std::uint64_t{1} << 63));
    } else {
      a.sum += Magnitude(x);
    }
  }
  REDUCED_HD static State Settle(const Local& a) { return a; }
  REDUCED_HD static void Merge(State& into, const State& later) { into.sum += later.sum; }
  REDUCED_HD static void Store(const State& state, Partial* out) {
    if constexpr (kIsFloat<T>) {
      out->float_abs_sum = state.sum;
    } else {
      out->int_abs_sum = ValueOf(state.sum);
    }
  }
  static void Combine(const Partial& later, Partial* into) {
    into->float_abs_sum += later.float_abs_sum;
    into->int_abs_sum += later.int_abs_sum;
  }
};

template <class T>
struct SumSquaresOf {
  static constexpr Accumulator kAccumulator = Accumulator::kSumSquares;
  // 16-bit elements square to 32 bits, 32-bit ones to 64, 64-bit ones to 128; each with room for the count.
  using Sum = std::conditional_t<
      kIsFloat<T>, double,
      std::conditional_t<(sizeof(T) < 4), std::uint64_t, std::conditional_t<(sizeof(T) < 8), Sum128, UInt192>>>;
  struct State {
    Sum sum{};
  };
  using Local = State;
  REDUCED_HD static void Add(Local& a, T x, std::int64_t) {
    if constexpr (kIsFloat<T>) {
      const double value = ToDouble(x);
      a.sum += value * value;
    } else if constexpr (sizeof(T) < 8) {
      const std::uint64_t magnitude = Magnitude(x);
      a.sum += magnitude * magnitude;
    } else {
      const std::uint64_t magnitude = Magnitude(x);
      const UInt128 square = static_cast<UInt128>(magnitude) * magnitude;
      Increase(a.sum, UInt192{{static_cast<std::uint64_t>(square), static_cast<std::uint64_t>(square >> 64), 0}});
    }
  }
  REDUCED_HD static State Settle(const Local& a) { return a; }
  REDUCED_HD static void Merge(State& into, const State& later) {
    if constexpr (std::is_same_v<Sum, UInt192>) {
      Increase(into.sum, later.sum);
    } else {
      into.sum += later.sum;
    }
  }
  REDUCED_HD static void Store(const State& state, Partial* out) {
    if constexpr (kIsFloat<T>) {
      out->float_sum_squares = state.sum;
    } else if constexpr (std::is_same_v<Sum, UInt192>) {
      out->int_sum_squares = state.sum;
    } else {
      const UInt128 sum = ValueOf(state.sum);
      out->int_sum_squares = UInt192{{static_cast<std::uint64_t>(sum), static_cast<std::uint64_t>(sum >> 64), 0}};
    }
  }
  static void Combine(const Partial& later, Partial* into) {
    into->float_sum_squares += later.float_sum_squares;
    Increase(into->int_sum_squares, later.int_sum_squares);
  }
};

// Floats only.
template <class T>
struct MomentsOf {
  static_assert(kIsFloat<T>);
  static constexpr Accumulator kAccumulator = Accumulator::kMoments;
  struct Local {
    T pivot{};
    std::int64_t count = 0;
    double sum = 0;          // of x - pivot
    double sum_squares = 0;  // of (x - pivot)^2
  };
  struct State {  // MomentsState, with the pivot as an element
    T pivot{};
    std::int64_t count = 0;
    double offset = 0;
    double m2 = 0;
  };
  REDUCED_HD static void Add(Local& a, T x, std::int64_t) {
    if (a.count == 0) a.pivot = x;
    const double deviation = ToDouble(x) - ToDouble(a.pivot);
    ++a.count;
    a.sum += deviation;
    a.sum_squares += deviation * deviation;
  }
  REDUCED_HD static State Settle(const Local& a) {
    State state;
    if (a.count == 0) return state;
    state.pivot = a.pivot;
    state.count = a.count;
    state.offset = a.sum / static_cast<double>(a.count);
    const double m2 = a.sum_squares - a.sum * state.offset;
    state.m2 = m2 < 0 ? 0 : m2;  // a NaN stays one
    return state;
  }
  REDUCED_HD static void Merge(State& into, const State& later) {
    MergeMoments(into, later, ToDouble(later.pivot) - ToDouble(into.pivot));
  }
  REDUCED_HD static void Store(const State& state, Partial* out) {
    out->moments = {state.count, ToDouble(state.pivot), state.offset, state.m2};
  }
  static void Combine(const Partial& later, Partial* into) { MergeMoments(into->moments, later.moments); }
};

template <class T>
struct ProductOf {
  static constexpr Accumulator kAccumulator = Accumulator::kProduct;
  using State = std::conditional_t<kIsFloat<T>, FloatProduct, IntProduct>;
  using Local = State;
  REDUCED_HD static void Add(Local& a, T x, std::int64_t) {
    State factor;
    if constexpr (kIsFloat<T>) {
      factor.mantissa = ToDouble(x);
      Normalize(factor);
    } else {
      const auto value = ToInteger(x);
      factor.wrapped = static_cast<std::uint64_t>(value);
      factor.zero = value == 0;
      factor.magnitude = factor.zero ? 1 : Magnitude(x);
      factor.negative = IsNegative(x);
    }
    Multiply(a, factor);
  }
  REDUCED_HD static State Settle(const Local& a) { return a; }
  REDUCED_HD static void Merge(State& into, const State& later) { Multiply(into, later); }
  REDUCED_HD static void Store(const State& state, Partial* out) {
    if constexpr (kIsFloat<T>) {
      out->float_product = state;
    } else {
      out->int_product = state;
    }
  }
  static void Combine(const Partial& later, Partial* into) {
    Multiply(into->float_product, later.float_product);
    Multiply(into->int_product, later.int_product);
  }
};

template <class T>
struct ExtremaOf {
  static constexpr Accumulator kAccumulator = Accumulator::kExtrema;
  using Key = typename OrderKey<T>::Type;
  struct Local {
    Key min_key = std::numeric_limits<Key>::max();
    Key max_key = std::numeric_limits<Key>::min();
    std::int64_t min_index = kNoIndex;
    std::int64_t max_index = kNoIndex;
    std::int64_t nan_index = kNoIndex;
  };
  using State = ExtremaState;
  REDUCED_HD static void Add(Local& a, T x, std::int64_t index) {
    if (IsNan(x)) {
      if (a.nan_index == kNoIndex) a.nan_index = index;
      return;
    }
    const Key key = OrderKey<T>::Of(x);
    if (key < a.min_key || a.min_index == kNoIndex) {
      a.min_key = key;
      a.min_index = index;
    }
    if (key > a.max_key || a.max_index == kNoIndex) {
      a.max_key = key;
      a.max_index = index;
    }
  }
  REDUCED_HD static State Settle(const Local& a) {
    return {WidenKey(a.min_key), WidenKey(a.max_key), a.min_index, a.max_index, a.nan_index};
  }
  REDUCED_HD static void Merge(State& into, const State& other) { MergeExtrema(into, other); }
  REDUCED_HD static void Store(const State& state, Partial* out) { out->extrema = state; }
  static void Combine(const Partial& later, Partial* into) { MergeExtrema(into->extrema, later.extrema); }
};

// Integers and bool only.
template <class T>
struct BitsOf {
  static constexpr Accumulator kAccumulator = Accumulator::kBits;
  struct State {
    std::uint64_t bits_and = ~std::uint64_t{0};
    std::uint64_t bits_or = 0;
    std::uint64_t bits_xor = 0;
  };
  using Local = State;
  REDUCED_HD static void Add(Local& a, T x, std::int64_t) {
    const auto bits = static_cast<std::uint64_t>(ToInteger(x));
    a.bits_and &= bits;
    a.bits_or |= bits;
    a.bits_xor ^= bits;
  }
  REDUCED_HD static State Settle(const Local& a) { return a; }
  REDUCED_HD static void Merge(State& into, const State& later) {
    into.bits_and &= later.bits_and;
    into.bits_or |= later.bits_or;
    into.bits_xor ^= later.bits_xor;
  }
  REDUCED_HD static void Store(const State& state, Partial* out) {
    out->bits_and = state.bits_and;
    out->bits_or = state.bits_or;
    out->bits_xor = state.bits_xor;
  }
  static void Combine(const Partial& later, Partial* into) {
    into->bits_and &= later.bits_and;
    into->bits_or |= later.bits_or;
    into->bits_xor ^= later.bits_xor;
  }
};

template <class T>
struct CountsOf {
  static constexpr Accumulator kAccumulator = Accumulator::kCounts;
  struct State {
    std::int64_t nonzero = 0;
    std::int64_t nan = 0;
  };
  using Local = State;
  REDUCED_HD static void Add(Local& a, T x, std::int64_t) {
    a.nonzero += IsNonzero(x) ? 1 : 0;
    a.nan += IsNan(x) ? 1 : 0;
  }
  REDUCED_HD static State Settle(const Local& a) { return a; }
  REDUCED_HD static void Merge(State& into, const State& later) {
    into.nonzero += later.nonzero;
    into.nan += later.nan;
  }
  REDUCED_HD static void Store(const State& state, Partial* out) {
    out->nonzero = state.nonzero;
    out->nan = state.nan;
  }
  static void Combine(const Partial& later, Partial* into) {
    into->nonzero += later.nonzero;
    into->nan += later.nan;
  }
};

// Accumulators as a list of types: ForEach(f) calls f(std::type_identity<A>{}) for each, in this order.
template <class... As>
struct AccumulatorList {
  static constexpr AccumulatorSet kSet = (SetOf(As::kAccumulator) | ... | 0);
  template <class Function>
  static constexpr void ForEach(Function&& f) {
    (f(std::type_identity<As>{}), ...);
  }
};

// Those of elements T.
template <class T>
using AllAccumulators = std::conditional_t<
    kIsFloat<T>,
    AccumulatorList<SumOf<T>, AbsSumOf<T>, SumSquaresOf<T>, MomentsOf<T>, ProductOf<T>, ExtremaOf<T>, CountsOf<T>>,
    AccumulatorList<SumOf<T>, AbsSumOf<T>, SumSquaresOf<T>, ProductOf<T>, ExtremaOf<T>, BitsOf<T>, CountsOf<T>>>;

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_ACCUMULATOR_H_
