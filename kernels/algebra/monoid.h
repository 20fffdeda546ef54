// The monoids that the rungs of the ladder reduce by, the same on host and device: one op at a time, in the smallest
// value that answers it. (The production pipelines use accumulator.h, which answers many ops from one state.)
//
//   using M = SumMonoid<float>;            // of elements T: see VisitMonoid
//   M::V::Value value = M::Lift(x);        // what an element is as a value
//   value = M::V::Combine(value, other);   // associative and commutative, up to the rounding of float sums and
//   products M::V::Identity() M::Store(value, index, &partial);      // widened; `index`: of any one of the elements
//
// Several M share a V, so that what only combines values is compiled once for all of them.
#ifndef REDUCED_KERNELS_ALGEBRA_MONOID_H_
#define REDUCED_KERNELS_ALGEBRA_MONOID_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/order_key.h"
#include "kernels/algebra/partial.h"
#include "kernels/algebra/portable.h"

namespace reduced {

template <class N>
struct Plus {
  using Value = N;
  REDUCED_HD static Value Identity() { return {}; }
  REDUCED_HD static Value Combine(Value a, const Value& b) {
    if constexpr (std::is_same_v<Value, UInt192>) {
      Increase(a, b);
    } else {
      a += b;
    }
    return a;
  }
};

template <class Product>
struct Times {
  using Value = Product;
  REDUCED_HD static Value Identity() { return {}; }
  REDUCED_HD static Value Combine(Value a, const Value& b) {
    Multiply(a, b);
    return a;
  }
};

template <class Key>
struct Least {
  using Value = Key;
  REDUCED_HD static Value Identity() { return std::numeric_limits<Key>::max(); }
  REDUCED_HD static Value Combine(Value a, Value b) { return b < a ? b : a; }
};

template <class Word>
struct Union {
  using Value = Word;
  REDUCED_HD static Value Identity() { return 0; }
  REDUCED_HD static Value Combine(Value a, Value b) { return a | b; }
};

template <class Word>
struct SymmetricDifference {
  using Value = Word;
  REDUCED_HD static Value Identity() { return 0; }
  REDUCED_HD static Value Combine(Value a, Value b) { return a ^ b; }
};

// sum, mean
template <class T>
struct SumMonoid {
  using Element = T;
  using V = Plus<NarrowSum<T>>;
  REDUCED_HD static typename V::Value Lift(T x) {
    typename SumOf<T>::State state;
    SumOf<T>::Add(state, x, 0);
    return state.sum;
  }
  REDUCED_HD static void Store(const typename V::Value& value, std::int64_t, Partial* out) {
    SumOf<T>::Store({value}, out);
  }
};

// sum_squares, l2
template <class T>
struct SumSquaresMonoid {
  using Element = T;
  using V = Plus<typename SumSquaresOf<T>::Sum>;
  REDUCED_HD static typename V::Value Lift(T x) {
    typename SumSquaresOf<T>::State state;
    SumSquaresOf<T>::Add(state, x, 0);
    return state.sum;
  }
  REDUCED_HD static void Store(const typename V::Value& value, std::int64_t, Partial* out) {
    SumSquaresOf<T>::Store({value}, out);
  }
};

// prod
template <class T>
struct ProductMonoid {
  using Element = T;
  using V = Times<typename ProductOf<T>::State>;
  REDUCED_HD static typename V::Value Lift(T x) {
    typename V::Value product;
    ProductOf<T>::Add(product, x, 0);
    return product;
  }
  REDUCED_HD static void Store(const typename V::Value& value, std::int64_t, Partial* out) {
    ProductOf<T>::Store(value, out);
  }
};

// any, all, count_nonzero
template <class T>
struct NonzeroMonoid {
  using Element = T;
  using V = Plus<std::int64_t>;
  REDUCED_HD static std::int64_t Lift(T x) { return IsNonzero(x) ? 1 : 0; }
  REDUCED_HD static void Store(std::int64_t value, std::int64_t, Partial* out) { out->nonzero = value; }
};

// min and, with every key inverted, max. A NaN is below every key of another float: see order_key.h.
template <class T, bool kLargest>
struct ExtremumMonoid {
  using Element = T;
  using Key = typename OrderKey<T>::Type;
  using V = Least<Key>;
  static constexpr Key kNan = std::numeric_limits<Key>::min();
  REDUCED_HD static Key Lift(T x) {
    if (IsNan(x)) return kNan;
    const Key key = OrderKey<T>::Of(x);
    return kLargest ? static_cast<Key>(~key) : key;
  }
  REDUCED_HD static void Store(Key value, std::int64_t index, Partial* out) {
    if (kIsFloat<T> && value == kNan) {
      out->extrema.nan_index = index;
    } else if (kLargest) {
      out->extrema.max_key = WidenKey(static_cast<Key>(~value));
      out->extrema.max_index = index;
    } else {
      out->extrema.min_key = WidenKey(value);
      out->extrema.min_index = index;
    }
  }
};
template <class T>
using MinMonoid = ExtremumMonoid<T, false>;
template <class T>
using MaxMonoid = ExtremumMonoid<T, true>;

// bit_or and, with every bit inverted, bit_and
template <class T, bool kAnd>
struct BitsMonoid {
  using Element = T;
  using Word = std::make_unsigned_t<T>;
  using V = Union<Word>;
  REDUCED_HD static Word Lift(T x) { return kAnd ? ~static_cast<Word>(x) : static_cast<Word>(x); }
  REDUCED_HD static void Store(Word value, std::int64_t, Partial* out) {
    if (kAnd) {
      out->bits_and = static_cast<Word>(~value);
    } else {
      out->bits_or = value;
    }
  }
};

// bit_xor
template <class T>
struct XorMonoid {
  using Element = T;
  using Word = std::make_unsigned_t<T>;
  using V = SymmetricDifference<Word>;
  REDUCED_HD static Word Lift(T x) { return static_cast<Word>(x); }
  REDUCED_HD static void Store(Word value, std::int64_t, Partial* out) { out->bits_xor = value; }
};

// Calls visit(std::type_identity<M>{}) for the monoid of an op that RungSupports().
template <class T, class Visitor>
decltype(auto) VisitMonoidOf(Op op, Visitor&& visit) {
  switch (RowOf(op).accumulator) {
    case Accumulator::kSum:
      return visit(std::type_identity<SumMonoid<T>>{});
    case Accumulator::kSumSquares:
      return visit(std::type_identity<SumSquaresMonoid<T>>{});
    case Accumulator::kProduct:
      return visit(std::type_identity<ProductMonoid<T>>{});
    case Accumulator::kExtrema:
      if (op == Op::kMin) return visit(std::type_identity<MinMonoid<T>>{});
      return visit(std::type_identity<MaxMonoid<T>>{});
    case Accumulator::kCounts:
      return visit(std::type_identity<NonzeroMonoid<T>>{});
    default:
      break;
  }
  if constexpr (!kIsFloat<T>) {
    if (op == Op::kBitAnd) return visit(std::type_identity<BitsMonoid<T, true>>{});
    if (op == Op::kBitOr) return visit(std::type_identity<BitsMonoid<T, false>>{});
    if (op == Op::kBitXor) return visit(std::type_identity<XorMonoid<T>>{});
  }
  __builtin_unreachable();
}

template <class Visitor>
decltype(auto) VisitMonoid(Op op, DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::kI32:
      return VisitMonoidOf<std::int32_t>(op, visit);
    case DType::kI64:
      return VisitMonoidOf<std::int64_t>(op, visit);
    case DType::kU32:
      return VisitMonoidOf<std::uint32_t>(op, visit);
    case DType::kF32:
      return VisitMonoidOf<float>(op, visit);
    case DType::kF64:
      return VisitMonoidOf<double>(op, visit);
    default:
      __builtin_unreachable();
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_MONOID_H_
