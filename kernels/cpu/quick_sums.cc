#include "kernels/cpu/quick_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/algebra/float_format.h"
#include "kernels/cpu/row_order.h"
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quick_sums.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/algebra/doubles-inl.h"
#include "kernels/cpu/transpose-inl.h"

#ifndef REDUCED_KERNELS_CPU_QUICK_SUMS_CC_
#define REDUCED_KERNELS_CPU_QUICK_SUMS_CC_
namespace reduced {

inline constexpr std::int64_t kLanes = 16;  // outputs side by side

}  // namespace reduced
#endif

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

QuickSumsOf FloatSums(DType /*dtype*/, Term /*term*/) { return {}; }

#else

namespace hn = hwy::HWY_NAMESPACE;

static_assert(kLanes == kAcross);

// Whether the term of an element takes two doubles: a product of two of them.
template <class T, Term kTerm>
constexpr bool kTwo = kTerm == Term::kSquare && sizeof(T) == 8;

// The term that is added for an element x, or the first of two.
template <Term kTerm, class V>
HWY_INLINE V TermOf(V x) {
  if constexpr (kTerm == Term::kMagnitude) return hn::Abs(x);
  if constexpr (kTerm == Term::kSquare) return hn::Mul(x, x);
  return x;
}

// Rows of which f64 adds the terms of a lane before they are added exactly, if it does not round their sum. Elements of
// f16 are multiples of 2^-24 and less than 2^16: it never does, but for infinities and NaNs, which lose the sum. Sums
// of squares of f32 are always rounded; then it is what two-sum takes from them that f64 adds without rounding.
template <class T, Term kTerm>
constexpr std::int64_t kTogether = sizeof(T) == 8                                     ? 1
                                   : std::is_same_v<T, Half>&& kTerm != Term::kSquare ? 4096
                                                                                      : 16;
template <class T, Term kTerm>
constexpr bool kRounds = kTerm == Term::kSquare && sizeof(T) == 4;

// Outputs side by side of columns: four vectors, so that additions, of which each waits for the one before it, keep the
// processor busy.
constexpr int kColumnLanes = std::max<int>(kLanes, 4 * hn::MaxLanes(hn::ScalableTag<double>()));

// Whether f64 adds `count` rows of kSide elements, at most kTogether, as said there, lane by lane, without rounding:
// elements are finite, and those of a lane that aren't zero differ by few powers of two. By their bits, as integers:
// magnitudes compare as those do.
template <class T, Term kTerm, int kSide>
HWY_INLINE bool AddsWithoutRounding(const std::byte* rows, std::int64_t count, std::int64_t stride) {
  constexpr bool kSquare = kTerm == Term::kSquare;
  if constexpr (std::is_same_v<T, Half> && !kSquare) return true;
  using Format = FloatFormat<T>;
  using Word = typename Format::Word;
  using D = hn::CappedTag<Word, kSide>;
  constexpr D kTag;
  constexpr int kWidth = hn::MaxLanes(D());
  constexpr int kCarries = std::bit_width(static_cast<std::uint64_t>(kTogether<T, kTerm> - 1));
  constexpr int kMostApart = kSquare && !kRounds<T, kTerm> ? (53 - 2 * Format::kSignificant - kCarries) / 2
                                                           : 53 - Format::kSignificant - kCarries;
  for (int lane = 0; lane < kSide; lane += kWidth) {
    auto largest = hn::Zero(kTag);
    auto least_less_one = hn::Set(kTag, std::numeric_limits<Word>::max());
    for (std::int64_t r = 0; r < count; ++r) {
      const auto* const at = rows + r * stride + lane * static_cast<std::int64_t>(sizeof(T));
      const auto bits = hn::And(hn::LoadU(kTag, reinterpret_cast<const Word*>(at)),
                                hn::Set(kTag, static_cast<Word>(std::numeric_limits<Word>::max() / 2)));
      largest = hn::Max(largest, bits);
      least_less_one = hn::Min(least_less_one, hn::Sub(bits, hn::Set(kTag, Word{1})));
    }
    const auto most = hn::Add(hn::ShiftRight<Format::kFraction>(least_less_one), hn::Set(kTag, Word{kMostApart}));
    const auto finite = hn::Set(kTag, static_cast<Word>(Format::kInfinity - 1));
    const auto exponent = hn::ShiftRight<Format::kFraction>(largest);
    if (!hn::AllTrue(kTag, hn::Eq(hn::Max(exponent, most), most))) return false;
    if (!hn::AllTrue(kTag, hn::Eq(hn::Max(largest, finite), finite))) return false;
  }
  return true;
}

// Adds the terms of `count` rows of kSide elements, `stride` bytes apart, to kSide sums.
template <class T, Term kTerm, int kSide = kLanes>
HWY_INLINE void AddRows(const std::byte* rows, std::int64_t count, std::int64_t stride, double* sum, double* rest,
                        double* lost) {
  using D = hn::CappedTag<double, kSide>;
  constexpr D kTag;
  constexpr int kWidth = hn::MaxLanes(D());
  constexpr int kVectors = kSide / kWidth;
  using V = hn::Vec<D>;
  V s[kVectors], e[kVectors], l[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    s[v] = hn::LoadU(kTag, sum + v * kWidth);
    e[v] = hn::LoadU(kTag, rest + v * kWidth);
    l[v] = hn::LoadU(kTag, lost + v * kWidth);
  }
  const auto load = [&](const std::byte* row, int v) {
    return LoadDoubles<T>(kTag, row + v * kWidth * static_cast<std::int64_t>(sizeof(T)));
  };
  const auto add = [&](V x, int v) {
    const V next = hn::Add(s[v], x);
    const V b = hn::Sub(next, s[v]);
    const V error = hn::Add(hn::Sub(s[v], hn::Sub(next, b)), hn::Sub(x, b));
    const V more = hn::Add(e[v], error);
    const V c = hn::Sub(more, e[v]);
    l[v] = hn::Add(l[v], hn::Abs(hn::Add(hn::Sub(e[v], hn::Sub(more, c)), hn::Sub(error, c))));
    s[v] = next;
    e[v] = more;
  };
  const auto add_term = [&](V x, int v) {
    const V term = TermOf<kTerm>(x);
    add(term, v);
    if constexpr (kTwo<T, kTerm>) {
      add(hn::MulSub(x, x, term), v);
      const auto inexact = hn::And(hn::Lt(hn::Abs(x), hn::Set(kTag, kExactSquare)), hn::Ne(x, hn::Zero(kTag)));
      l[v] = hn::Add(l[v], hn::IfThenElseZero(inexact, hn::Set(kTag, kSquareError)));
    }
  };
  if constexpr (kTogether<T, kTerm> == 1) {
    for (; count > 0; --count, rows += stride) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) add_term(load(rows, v), v);
    }
  } else {
    for (; count > 0; count -= kTogether<T, kTerm>, rows += kTogether<T, kTerm> * stride) {
      const std::int64_t n = std::min(count, kTogether<T, kTerm>);
      const bool together = n > 1 && AddsWithoutRounding<T, kTerm, kSide>(rows, n, stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        if (together) {
          V total = TermOf<kTerm>(load(rows, v));
          [[maybe_unused]] V taken = hn::Zero(kTag);
          for (std::int64_t r = 1; r < n; ++r) {
            const V x = TermOf<kTerm>(load(rows + r * stride, v));
            const V next = hn::Add(total, x);
            if constexpr (kRounds<T, kTerm>) {
              const V b = hn::Sub(next, total);
              taken = hn::Add(taken, hn::Add(hn::Sub(total, hn::Sub(next, b)), hn::Sub(x, b)));
            }
            total = next;
          }
          add(total, v);
          if constexpr (kRounds<T, kTerm>) add(taken, v);
        } else {
          for (std::int64_t r = 0; r < n; ++r) add_term(load(rows + r * stride, v), v);
        }
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(s[v], kTag, sum + v * kWidth);
    hn::StoreU(e[v], kTag, rest + v * kWidth);
    hn::StoreU(l[v], kTag, lost + v * kWidth);
  }
}

// Adds the term of the element at an address.
template <class T, Term kTerm>
HWY_INLINE void AddElement(const std::byte* at, double* sum, double* rest, double* lost) {
  T x;
  std::memcpy(&x, at, sizeof(T));
  AddTerm<kTerm>(x, sum, rest, lost);
}

template <class T, Term kTerm>
void Columns(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  ClearSums(count, into);
  const RowOrder order = RowOrder::Of(layout, count, kBytes, /*least=*/kTogether<T, kTerm> > 1 ? 4 : 1);
  for (std::int64_t run = 0; run < layout.elements; run += order.size) {
    const std::byte* const start_of_run = start + layout.At(run) * kBytes;
    for (std::int64_t i = 0; i < order.size; i += order.at_once) {
      const std::byte* const first = start_of_run + i * order.stride;
      const std::int64_t n = std::min(order.at_once, order.size - i);
      order.Fetch(first, n);
      std::int64_t g = 0;
      for (; g + kColumnLanes <= count; g += kColumnLanes) {
        AddRows<T, kTerm, kColumnLanes>(first + g * kBytes, n, order.stride, into->sum + g, into->rest + g,
                                        into->lost + g);
      }
      for (; g + kLanes <= count; g += kLanes) {
        AddRows<T, kTerm>(first + g * kBytes, n, order.stride, into->sum + g, into->rest + g, into->lost + g);
      }
      for (; g < count; ++g) {
        for (std::int64_t r = 0; r < n; ++r) {
          AddElement<T, kTerm>(first + r * order.stride + g * kBytes, into->sum + g, into->rest + g, into->lost + g);
        }
      }
    }
  }
}

// Rows of fewer elements are transposed.
constexpr std::int64_t kLongRow = 4 * kLanes;

// Copies fewer than kLanes elements, and -0 after them, which changes no sum.
template <class T>
HWY_INLINE void Pad(const std::byte* from, std::int64_t elements, std::byte* padded) {
  constexpr std::int64_t kBytes = sizeof(T);
  constexpr auto kNothing = static_cast<WordOf<T> >(WordOf<T>{1} << (8 * kBytes - 1));
  for (std::int64_t i = 0; i < kLanes; ++i) std::memcpy(padded + i * kBytes, &kNothing, kBytes);
  for (std::int64_t i = 0; i < elements; ++i) std::memcpy(padded + i * kBytes, from + i * kBytes, kBytes);
}

// Adds a long row to the sums of kLanes interleaved parts of it.
template <class T, Term kTerm>
HWY_INLINE void AddParts(const std::byte* from, std::int64_t elements, double* sum, double* rest, double* lost) {
  constexpr std::int64_t kBytes = sizeof(T);
  const std::int64_t whole = elements / kLanes;
  AddRows<T, kTerm>(from, whole, kLanes * kBytes, sum, rest, lost);
  if (const std::int64_t tail = elements - whole * kLanes; tail > 0) {
    std::byte padded[kLanes * kBytes];
    Pad<T>(from + whole * kLanes * kBytes, tail, padded);
    AddRows<T, kTerm>(padded, 1, kLanes * kBytes, sum, rest, lost);
  }
}

// Adds a long row.
template <class T, Term kTerm>
HWY_INLINE void AddLongRow(const std::byte* from, std::int64_t elements, double* into_sum, double* into_rest,
                           double* into_lost) {
  double sum[kLanes], rest[kLanes] = {}, lost[kLanes] = {};
  std::fill_n(sum, kLanes, -0.0);
  AddParts<T, kTerm>(from, elements, sum, rest, lost);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) {
      MergeExactly(sum[lane + half], rest[lane + half], lost[lane + half], sum + lane, rest + lane, lost + lane);
    }
  }
  MergeExactly(sum[0], rest[0], lost[0], into_sum, into_rest, into_lost);
}

// Adds kLanes long rows: the parts of all of them side by side in the end, as rows of kLanes sums.
template <class T, Term kTerm>
HWY_INLINE void AddLongRows(const std::byte* rows, std::int64_t elements, double* into_sum, double* into_rest,
                            double* into_lost) {
  double sum[kLanes * kLanes], rest[kLanes * kLanes] = {}, lost[kLanes * kLanes] = {};
  std::fill_n(sum, kLanes * kLanes, -0.0);
  for (std::int64_t r = 0; r < kLanes; ++r) {
    const std::byte* const from = rows + r * elements * static_cast<std::int64_t>(sizeof(T));
    AddParts<T, kTerm>(from, elements, sum + r * kLanes, rest + r * kLanes, lost + r * kLanes);
  }
  const auto add = [&](const double* parts) {
    std::uint64_t across[kLanes * kLanes];
    TransposeRows(reinterpret_cast<const std::byte*>(parts), kLanes, /*more=*/false, across);
    AddRows<double, Term::kElement>(reinterpret_cast<const std::byte*>(across), kLanes, kLanes * sizeof(double),
                                    into_sum, into_rest, into_lost);
  };
  add(sum);
  if (!AllZero(rest, kLanes * kLanes)) {
    for (double& more : rest) more = more == 0 ? -0.0 : more;  // -0 changes nothing
    add(rest);
  }
  if (!AllZero(lost, kLanes * kLanes)) {
    for (std::int64_t i = 0; i < kLanes * kLanes; ++i) into_lost[i / kLanes] += lost[i];
  }
}

// Of so many elements, f64 may add all in one go.
constexpr std::int64_t kFew = 256;

// The sum of a few elements, at least one, if f64 adds them without rounding, whatever the order: as in
// AddsWithoutRounding, but for all lanes together. `more`: as many elements as that may be read, if not used, after
// them.
template <class T, Term kTerm>
HWY_INLINE std::optional<double> PlainSum(const std::byte* from, std::int64_t elements, std::int64_t more) {
  using D = hn::CappedTag<double, kLanes>;
  constexpr D kTag;
  constexpr int kWidth = hn::MaxLanes(D());
  constexpr std::int64_t kBytes = sizeof(T);
  using Format = FloatFormat<T>;
  using Words = hn::CappedTag<std::uint32_t, kLanes>;
  constexpr Words kWords;
  constexpr int kWordWidth = hn::MaxLanes(Words());
  const auto nothing = hn::Set(kTag, -0.0);  // to which -0 adds -0, and +0 adds +0
  hn::Vec<D> sums[2] = {nothing, nothing};
  auto largest = hn::Zero(kWords);
  auto least_less_one = hn::Set(kWords, ~std::uint32_t{0});
  // Inlined by force: gcc would call these for each of many short outputs.
  const auto look = [&](hn::Vec<Words> magnitudes) __attribute__((always_inline)) {
    largest = hn::Max(largest, magnitudes);
    least_less_one = hn::Min(least_less_one, hn::Sub(magnitudes, hn::Set(kWords, 1U)));
  };
  const auto magnitudes_at = [&](const std::byte* at) __attribute__((always_inline)) {
    const hn::Rebind<typename Format::Word, Words> stored;
    const auto words = hn::LoadU(stored, reinterpret_cast<const typename Format::Word*>(at));
    const auto magnitudes = hn::And(words, hn::Set(stored, std::numeric_limits<typename Format::Word>::max() / 2));
    if constexpr (sizeof(T) == 2) {
      return hn::PromoteTo(kWords, magnitudes);
    } else {
      return magnitudes;
    }
  };
  constexpr bool kLooks = !std::is_same_v<T, Half>;
  const auto add = [&](const std::byte* at) __attribute__((always_inline)) {
    for (int lane = 0; lane < kLanes; lane += kWidth) {
      auto& sum = sums[lane / kWidth % 2];
      sum = hn::Add(sum, TermOf<kTerm>(LoadDoubles<T>(kTag, at + lane * kBytes)));
    }
    for (int lane = 0; kLooks && lane < kLanes; lane += kWordWidth) look(magnitudes_at(at + lane * kBytes));
  };
  // Of kLanes elements those from `first` to before `last`.
  const auto add_some = [&](const std::byte* at, std::int64_t first, std::int64_t last) __attribute__((always_inline)) {
    const auto there = [&](auto tag, int lane) __attribute__((always_inline)) {
      const auto before = [&](std::int64_t end) __attribute__((always_inline)) {
        return hn::FirstN(tag, static_cast<std::size_t>(std::max<std::int64_t>(end - lane, 0)));
      };
      return hn::AndNot(before(first), before(last));
    };
    for (int lane = 0; lane < kLanes; lane += kWidth) {
      auto& sum = sums[lane / kWidth % 2];
      const auto x = TermOf<kTerm>(LoadDoubles<T>(kTag, at + lane * kBytes));
      sum = hn::Add(sum, hn::IfThenElse(there(kTag, lane), x, nothing));
    }
    for (int lane = 0; kLooks && lane < kLanes; lane += kWordWidth) {
      look(hn::IfThenElseZero(there(kWords, lane), magnitudes_at(at + lane * kBytes)));
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) add(from + i * kBytes);
  if (i < elements && elements > kLanes) {
    add_some(from + (elements - kLanes) * kBytes, i - (elements - kLanes), kLanes);
  } else if (i < elements && elements + more >= kLanes) {
    add_some(from, 0, elements);
  } else if (i < elements) {
    std::byte padded[kLanes * kBytes];
    Pad<T>(from, elements, padded);
    add(padded);
  }
  if constexpr (kLooks) {
    constexpr int kMostApart = 53 - Format::kSignificant - std::bit_width(static_cast<std::uint64_t>(kFew - 1));
    const std::uint32_t most = hn::GetLane(hn::MaxOfLanes(kWords, largest));
    const std::uint32_t least = hn::GetLane(hn::MinOfLanes(kWords, least_less_one));
    if (most >= Format::kInfinity || most >> Format::kFraction > (least >> Format::kFraction) + kMostApart) {
      return std::nullopt;
    }
  }
  const double sum = hn::GetLane(hn::SumOfLanes(kTag, hn::Add(sums[0], sums[1])));
  if (!kLooks && !std::isfinite(sum)) return std::nullopt;
  return sum;
}

// The sum of a few f64, at least one, as sum + rest, if f64 adds two parts of them without rounding, whatever the
// order: multiples of a unit, and what is left. False: it does not, and nothing is written. `more`: as in PlainSum.
//
// The largest magnitude is less than 2^(e + 1). Added to and taken from 1.5 x 2^(e + 8), an element is rounded to a
// multiple of 2^(e - 44); kFew of them have a sum of at most 2^(e + 9), to which 53 bits suffice. What is left is at
// most 2^(e - 45), and kFew of that at most 2^(e - 37): it is added without rounding if it consists of multiples of
// 2^(e - 90).
template <Term kTerm>
HWY_INLINE bool SumInParts(const std::byte* from, std::int64_t elements, std::int64_t more, double* sum, double* rest) {
  using D = hn::CappedTag<double, kLanes>;
  constexpr D d;
  constexpr hn::RebindToUnsigned<D> words;
  constexpr std::int64_t kWidth = hn::MaxLanes(D());
  using Format = FloatFormat<double>;
  using V = hn::Vec<D>;
  static_assert(kFew == 256);
  constexpr std::uint64_t kOne = std::uint64_t{1} << Format::kFraction;  // of an exponent
  constexpr std::uint64_t kHalf = kOne / 2;
  constexpr std::uint64_t kAbove = 8 * kOne, kBelow = 38 * kOne;
  if (elements < kWidth && elements + more < kWidth) return false;
  // Calls function(elements) for vectors of them, the last of which may have zeros.
  const auto for_vectors = [&](const auto& function) __attribute__((always_inline)) {
    const auto* const at = reinterpret_cast<const double*>(from);
    const auto take = [&](V x) __attribute__((always_inline)) { function(TermOf<kTerm>(x)); };
    std::int64_t i = 0;
    for (; i + kWidth <= elements; i += kWidth) take(hn::LoadU(d, at + i));
    if (i == elements) return;
    if (elements >= kWidth) {
      const auto taken = hn::FirstN(d, static_cast<std::size_t>(kWidth - (elements - i)));
      take(hn::IfThenZeroElse(taken, hn::LoadU(d, at + elements - kWidth)));
    } else {
      take(hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(elements)), hn::LoadU(d, at)));
    }
  };
  auto largest = hn::Zero(d);
  for_vectors([&](V x) __attribute__((always_inline)) { largest = hn::Max(largest, hn::Abs(x)); });
  const double most = hn::GetLane(hn::MaxOfLanes(d, largest));
  if (most == 0) {        // zeros, or NaNs among what Max has passed over
    double total = -0.0;  // to which -0 adds -0, and +0 adds +0
    for (std::int64_t i = 0; i < elements; ++i) {
      double x;
      std::memcpy(&x, from + i * static_cast<std::int64_t>(sizeof(x)), sizeof(x));
      total += kTerm == Term::kMagnitude ? std::fabs(x) : x;
    }
    if (total != 0) return false;
    *sum = total;
    *rest = 0;
    return true;
  }
  const auto exponent = hn::And(hn::BitCast(words, hn::Set(d, most)), hn::Set(words, ~(kOne - 1)));
  // Neither anchor leaves the normal numbers; the sums don't overflow.
  if (hn::GetLane(exponent) - (kBelow + kOne) >= Format::kInfinity - (kBelow + kOne) - 2 * kAbove) return false;
  const auto half = hn::Set(words, kHalf);
  const V anchor = hn::BitCast(d, hn::Or(hn::Add(exponent, hn::Set(words, kAbove)), half));
  const V lower = hn::BitCast(d, hn::Or(hn::Sub(exponent, hn::Set(words, kBelow)), half));
  V sums = hn::Zero(d), rests = hn::Zero(d), lost = hn::Zero(d);
  for_vectors([&](V x) __attribute__((always_inline)) {
    const V part = hn::Sub(hn::Add(x, anchor), anchor);
    const V left = hn::Sub(x, part);
    sums = hn::Add(sums, part);
    rests = hn::Add(rests, left);
    lost = hn::Or(lost, hn::Sub(left, hn::Sub(hn::Add(left, lower), lower)));  // all bits 0 if nothing, NaN of a NaN
  });
  if (!hn::AllTrue(d, hn::Eq(lost, hn::Zero(d)))) return false;
  *sum = hn::GetLane(hn::SumOfLanes(d, sums));
  *rest = hn::GetLane(hn::SumOfLanes(d, rests));
  return true;
}

// The sum of elements, at least one, as sum + rest, if it is known so. False: it is not, as that of squares or of more
// than a few, and nothing is written.
template <class T, Term kTerm>
HWY_INLINE bool PlainSumOf(const std::byte* from, std::int64_t elements, std::int64_t more, double* sum, double* rest) {
  if constexpr (kTerm == Term::kSquare) {
    return false;
  } else if constexpr (std::is_same_v<T, double>) {
    return elements <= kFew && SumInParts<kTerm>(from, elements, more, sum, rest);
  } else {
    if (elements > kFew) return false;
    const std::optional<double> plain = PlainSum<T, kTerm>(from, elements, more);
    if (!plain.has_value()) return false;
    *sum = *plain;
    *rest = 0;
    return true;
  }
}

// The sums of kLanes rows, if each is known so; false if not, and all sums are as before.
template <class T, Term kTerm>
HWY_INLINE bool PlainSums(const std::byte* rows, std::int64_t elements, double* sums, double* rests) {
  for (std::int64_t r = 0; r < kLanes; ++r) {
    const std::byte* const row = rows + r * elements * static_cast<std::int64_t>(sizeof(T));
    if (!PlainSumOf<T, kTerm>(row, elements, 0, sums + r, rests + r)) {
      std::fill_n(sums, r, -0.0);
      std::fill_n(rests, r, 0.0);
      return false;
    }
  }
  return true;
}

template <class T, Term kTerm>
void Rows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  ClearSums(count, into);
  const std::int64_t row = elements * kBytes;
  std::int64_t g = 0;
  for (; g + kLanes <= count; g += kLanes) {
    const std::byte* const rows = start + g * row;
    if (elements >= kLanes && PlainSums<T, kTerm>(rows, elements, into->sum + g, into->rest + g)) continue;
    if (elements < kLongRow) {
      WordOf<T> across[kLongRow * kLanes];
      TransposeRows(rows, elements, MayReadOn(g, count), across);
      AddRows<T, kTerm>(reinterpret_cast<const std::byte*>(across), elements, kLanes * kBytes, into->sum + g,
                        into->rest + g, into->lost + g);
    } else {
      AddLongRows<T, kTerm>(rows, elements, into->sum + g, into->rest + g, into->lost + g);
    }
  }
  for (; g < count; ++g) {
    const std::byte* const from = start + g * row;
    if (!PlainSumOf<T, kTerm>(from, elements, (count - 1 - g) * elements, into->sum + g, into->rest + g)) {
      AddLongRow<T, kTerm>(from, elements, into->sum + g, into->rest + g, into->lost + g);
    }
  }
}

// Segments of so many elements and fewer are added element by element, which is faster than by vectors.
constexpr std::int64_t kVeryFew = 6;

template <class T, Term kTerm>
void Segments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickSums* into) {
  ClearSums(count, into);
  for (std::int64_t g = 0; g < count; ++g) {
    const std::byte* const from = start + bounds[g] * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t elements = bounds[g + 1] - bounds[g];
    if (elements == 0) {
      into->sum[g] = 0;
      continue;
    }
    if (elements > kVeryFew &&
        PlainSumOf<T, kTerm>(from, elements, bounds[count] - bounds[g + 1], into->sum + g, into->rest + g)) {
      continue;
    }
    if (elements >= kLongRow) {
      AddLongRow<T, kTerm>(from, elements, into->sum + g, into->rest + g, into->lost + g);
    } else {
      double sum = -0.0, rest = 0, lost = 0;
      for (std::int64_t i = 0; i < elements; ++i) {
        AddElement<T, kTerm>(from + i * static_cast<std::int64_t>(sizeof(T)), &sum, &rest, &lost);
      }
      into->sum[g] = sum;
      into->rest[g] = rest;
      into->lost[g] = lost;
    }
  }
}

template <Term kTerm>
QuickSumsOf FloatSumsOf(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> QuickSumsOf {
    // Products before they are rounded take an instruction of their own.
    if constexpr (kIsFloat<T> && !kIsF8<T> && (HWY_NATIVE_FMA || !kTwo<T, kTerm>)) {
      return {&Columns<T, kTerm>, &Rows<T, kTerm>, &Segments<T, kTerm>};
    }
    return {};
  });
}

QuickSumsOf FloatSums(DType dtype, Term term) {
  switch (term) {
    case Term::kElement:
      return FloatSumsOf<Term::kElement>(dtype);
    case Term::kMagnitude:
      return FloatSumsOf<Term::kMagnitude>(dtype);
    case Term::kSquare:
      return FloatSumsOf<Term::kSquare>(dtype);
    default:
      return {};
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(FloatSums);

QuickSumsOf FloatQuickSums(DType dtype, Term term) { return HWY_DYNAMIC_DISPATCH(FloatSums)(dtype, term); }

QuickSumsOf QuickSumsFor(DType dtype, Term term) {
  const bool counts = term == Term::kNonzero || term == Term::kNan;
  return RowOf(dtype).is_float && !counts ? FloatQuickSums(dtype, term) : IntegerQuickSums(dtype, term);
}

}  // namespace reduced
#endif
