// What quick sums answer: see quick_sums.h. Compiled for each vector target: variances and roots of several outputs are
// computed side by side.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/quick_sums.h"
#include "kernels/cpu/targets.h"
#include "kernels/exact/known_answers.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quick_stores.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

HWY_INLINE TwoDoubles At(const QuickSums& sums, std::int64_t i) { return {sums.sum[i], sums.rest[i], sums.lost[i]}; }

void StoreF64Sums(const QuickSums& sums, std::int64_t count, std::byte* out, bool* known) {
  double value[kQuickOutputs];
  for (std::int64_t i = 0; i < count; ++i) value[i] = RoundedSum(sums.sum[i], sums.rest[i]);
  if (!AllZero(sums.lost, count)) {
    for (std::int64_t i = 0; i < count; ++i) known[i] = KnownSum(At(sums, i), value + i) && known[i];
  }
  std::memcpy(out, value, static_cast<std::size_t>(count) * sizeof(double));
}

template <class Result>
void StoreIntegerSums(const QuickSums& sums, std::int64_t count, std::byte* out, bool* known) {
  constexpr double kMost = std::is_signed_v<Result> ? 0x1p63 - 0x1p54 : 0x1p64 - 0x1p54;
  for (std::int64_t i = 0; i < count; ++i) {
    known[i] = known[i] && sums.lost[i] == 0 && std::fabs(sums.sum[i]) < kMost && std::fabs(sums.rest[i]) < 0x1p53;
    if (!known[i]) continue;
    const Result sum = static_cast<Result>(sums.sum[i]) + static_cast<Result>(static_cast<std::int64_t>(sums.rest[i]));
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof(sum)), &sum, sizeof(sum));
  }
}

void StoreMeans(const QuickSums& sums, std::int64_t count, const std::int64_t* elements, std::byte* out, bool* known) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  double value[kQuickOutputs];
  bool easy = AllZero(sums.lost, count) && AllZero(sums.rest, count);
  for (std::int64_t i = 0; i < count; ++i) {
    easy = easy && elements[i] > 0 && elements[i] < kMost;
    value[i] = sums.sum[i] / static_cast<double>(elements[i]);
  }
  for (std::int64_t i = 0; !easy && i < count; ++i) {
    known[i] = KnownSumAnswer(Op::kMean, At(sums, i), elements[i], value + i) && known[i];
  }
  std::memcpy(out, value, static_cast<std::size_t>(count) * sizeof(double));
}

// One output's variance, or a root.
HWY_INLINE void StoreMoment(Op op, const QuickSums& sums, const QuickSums& squares, std::int64_t i,
                            std::int64_t elements, std::int64_t ddof, std::byte* out, bool* known) {
  double value = 0;
  known[i] = KnownAnswer(op, At(sums, i), At(squares, i), elements, ddof, &value) && known[i];
  std::memcpy(out + i * static_cast<std::int64_t>(sizeof(value)), &value, sizeof(value));
}

#if HWY_TARGET != HWY_SCALAR && HWY_NATIVE_FMA

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;
using M = hn::Mask<D>;
constexpr D kTag;
constexpr std::int64_t kWidth = hn::MaxLanes(D());
static_assert(kQuickOutputs % kWidth == 0);

HWY_INLINE V Constant(double x) { return hn::Set(kTag, x); }

// TwoDoubles of several outputs, and as there Normalized(), DividedBy(), RootOf() and RoundTwo().
struct ManyTwos {
  V value;
  V rest;
  V error;
};

HWY_INLINE ManyTwos ManyAt(const QuickSums& sums, std::int64_t i) {
  return {hn::LoadU(kTag, sums.sum + i), hn::LoadU(kTag, sums.rest + i), hn::LoadU(kTag, sums.lost + i)};
}

HWY_INLINE ManyTwos Normalized(const ManyTwos& x) {
  const V value = hn::Add(x.value, x.rest);
  const V b = hn::Sub(value, x.value);
  return {value, hn::Add(hn::Sub(x.value, hn::Sub(value, b)), hn::Sub(x.rest, b)), x.error};
}

HWY_INLINE ManyTwos DividedBy(const ManyTwos& x, V divisor) {
  const V inverse = hn::Div(Constant(1), divisor), quotient = hn::Mul(x.value, inverse);
  const V left = hn::Add(hn::NegMulAdd(quotient, divisor, x.value), x.rest);
  const V error =
      hn::MulAdd(hn::Mul(x.error, inverse), Constant(1 + 0x1p-50), hn::Mul(hn::Abs(quotient), Constant(0x1p-98)));
  return Normalized({quotient, hn::Mul(left, inverse), error});
}

HWY_INLINE ManyTwos RootOf(const ManyTwos& x) {
  const V root = hn::Sqrt(x.value), inverse = hn::Div(Constant(1), root);
  const V left = hn::Add(hn::NegMulAdd(root, root, x.value), x.rest);
  const V error = hn::MulAdd(hn::Mul(x.error, inverse), Constant(1 + 0x1p-50), hn::Mul(root, Constant(0x1p-98)));
  return Normalized({root, hn::Mul(left, hn::Mul(inverse, Constant(0.5))), error});
}

HWY_INLINE M RoundTwo(const ManyTwos& x, V* rounded) {
  const V error = hn::MulAdd(hn::Abs(x.rest), Constant(0x1p-51), x.error);
  *rounded = hn::Add(x.value, hn::Sub(x.rest, error));
  return hn::Eq(*rounded, hn::Add(x.value, hn::Add(x.rest, error)));
}

// Variance() of so many elements, which are whole numbers. Here small terms are rounded, six times in all, and the
// square of the sum's rest, which is 2^-54 of another term, is left out: that is less than 2^-50 of the terms'
// magnitudes. False: it is beyond what is computed so.
HWY_INLINE M Variances(const ManyTwos& sum, const ManyTwos& squares, V counts, V ddof, ManyTwos* variances) {
  const ManyTwos known = Normalized(sum);
  const V s = known.value, rest = known.rest, q = squares.value;
  const V size = hn::Abs(s);
  // n Q - S^2: the two products, what rounding takes from them, and what the rests have to do with it.
  const V product = hn::Mul(counts, q), square = hn::Mul(s, s);
  const V product_left = hn::MulSub(counts, q, product), square_left = hn::MulSub(s, s, square);
  const V product_rest = hn::Mul(counts, squares.rest), square_rest = hn::Mul(hn::Add(s, s), rest);
  const V total = hn::Sub(product, square);
  const V b = hn::Sub(total, product);
  const V total_left = hn::Sub(hn::Sub(product, hn::Sub(total, b)), hn::Add(square, b));
  const V low = hn::Add(total_left, hn::Sub(hn::Add(product_left, product_rest), hn::Add(square_left, square_rest)));
  V terms = hn::Add(hn::Abs(product_left), hn::Abs(square_left));
  terms = hn::Add(terms, hn::Add(hn::Abs(product_rest), hn::Abs(square_rest)));
  terms = hn::Add(terms, hn::Abs(total_left));
  V error = hn::MulAdd(terms, Constant(0x1p-50), Constant(0x1p-1000));  // more than is lost where products underflow
  error = hn::MulAdd(counts, squares.error, error);
  error = hn::MulAdd(hn::Mul(Constant(3), size), sum.error, error);
  error = hn::Mul(error, Constant(1 + 0x1p-20));
  *variances = DividedBy(Normalized({total, low, error}), hn::Mul(counts, hn::Sub(counts, ddof)));
  // Then no other product underflows or overflows, and the divisor is exact.
  M in_range = hn::And(hn::Gt(q, Constant(1e-200)), hn::Lt(q, Constant(1e200)));
  in_range = hn::And(in_range, hn::Or(hn::Eq(s, hn::Zero(kTag)), hn::Gt(size, Constant(1e-120))));
  in_range = hn::And(in_range, hn::And(hn::Gt(counts, ddof), hn::Lt(counts, Constant(0x1p26))));
  return hn::And(in_range, hn::Gt(variances->value, hn::Zero(kTag)));
}

void StoreMoments(Op op, const QuickSums& sums, const QuickSums& squares, std::int64_t count,
                  const std::int64_t* elements, std::int64_t ddof, std::byte* out, bool* known) {
  const auto one = [&](std::int64_t i) { StoreMoment(op, sums, squares, i, elements[i], ddof, out, known); };
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    ManyTwos answers = ManyAt(squares, i);
    M settled = hn::Gt(answers.value, hn::Zero(kTag));
    if (op == Op::kL2) {
      answers.error = hn::Mul(answers.error, Constant(1 + 0x1p-20));
      answers = Normalized(answers);
    } else {
      double counts[kWidth];
      for (std::int64_t lane = 0; lane < kWidth; ++lane) counts[lane] = static_cast<double>(elements[i + lane]);
      settled = Variances(ManyAt(sums, i), ManyAt(squares, i), hn::LoadU(kTag, counts),
                          Constant(static_cast<double>(ddof)), &answers);
    }
    if (op != Op::kVar) answers = RootOf(answers);
    V rounded;
    settled = hn::And(settled, RoundTwo(answers, &rounded));
    double values[kWidth];
    hn::StoreU(rounded, kTag, values);
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof(double)), values, sizeof(values));
    if (hn::AllTrue(kTag, settled)) continue;
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(kTag, settled, bits);
    for (std::int64_t lane = 0; lane < kWidth; ++lane) {
      if ((bits[lane / 8] >> (lane % 8) & 1) == 0) one(i + lane);
    }
  }
  for (; i < count; ++i) one(i);
}

#else

void StoreMoments(Op op, const QuickSums& sums, const QuickSums& squares, std::int64_t count,
                  const std::int64_t* elements, std::int64_t ddof, std::byte* out, bool* known) {
  for (std::int64_t i = 0; i < count; ++i) StoreMoment(op, sums, squares, i, elements[i], ddof, out, known);
}

#endif

QuickStores Stores() {
  return {&StoreF64Sums, &StoreIntegerSums<std::int64_t>, &StoreIntegerSums<std::uint64_t>, &StoreMeans, &StoreMoments};
}

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(Stores);

QuickStores QuickStoresFor() { return HWY_DYNAMIC_DISPATCH(Stores)(); }

}  // namespace reduced
#endif
