// The sums of integers, and the numbers of elements of any dtype that are counted: see quick_sums.h.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/algebra/float_format.h"
#include "kernels/cpu/quick_sums.h"
#include "kernels/cpu/row_order.h"
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quick_integer_sums.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

QuickSumsOf IntegerSums(DType /*dtype*/, Term /*term*/) { return {}; }

#else

namespace hn = hwy::HWY_NAMESPACE;

// By loops that the compiler makes vectors of. Terms of up to 32 bits are added in 64, in which their sum fits, the low
// and the high halves of squares of 32 bits apart. Of elements of 64 bits, sums that may not fit are not known, nor are
// squares of what needs more than 32. Of floats, elements are only counted, by their bits.
template <class T>
using StoredAs = std::conditional_t<std::is_same_v<T, Bool> || kIsFloat<T>, WordOf<T>, T>;

template <class T, Term kTerm>
constexpr bool kHalves = sizeof(T) >= 4 && kTerm == Term::kSquare;
template <Term kTerm>
constexpr bool kCounts = kTerm == Term::kNonzero || kTerm == Term::kNan;
// What terms are added in, where it is not in halves: as many rows as IntegerColumns adds in one go fit.
template <class T, Term kTerm>
using IntegerTerm = std::conditional_t<sizeof(T) == 1 || (sizeof(T) == 2 && kTerm != Term::kSquare) ||
                                           (sizeof(T) == 4 && kCounts<kTerm>),
                                       std::int32_t, std::conditional_t<sizeof(T) == 8, std::uint64_t, std::int64_t> >;

// Whether sums may not fit.
template <class T, Term kTerm>
constexpr bool kWide = sizeof(T) == 8 && !kCounts<kTerm>;

template <class T>
HWY_INLINE StoredAs<T> IntegerAt(const std::byte* at) {
  StoredAs<T> x;
  std::memcpy(&x, at, sizeof(T));
  if constexpr (std::is_same_v<T, Bool>) return x != 0 ? 1 : 0;
  return x;
}

// |x|, without overflow.
template <class T>
HWY_INLINE std::make_unsigned_t<T> MagnitudeOf(T x) {
  using Unsigned = std::make_unsigned_t<T>;
  return static_cast<Unsigned>(x < 0 ? Unsigned{0} - static_cast<Unsigned>(x) : static_cast<Unsigned>(x));
}

// Of floats, twice the bits of the largest magnitude that is not counted.
template <class T, Term kTerm>
constexpr WordOf<T> kNotCounted = kTerm == Term::kNan ? static_cast<WordOf<T> >(2 * FloatFormat<T>::kInfinity) : 0;

template <class T, Term kTerm>
HWY_INLINE IntegerTerm<T, kTerm> TermOfInteger(StoredAs<T> x) {
  using To = IntegerTerm<T, kTerm>;
  if constexpr (kIsFloat<T>) {
    static_assert(kCounts<kTerm>);
    return static_cast<StoredAs<T> >(x + x) > kNotCounted<T, kTerm> ? 1 : 0;  // without the sign
  } else if constexpr (kTerm == Term::kElement) {
    return static_cast<To>(x);
  } else if constexpr (kTerm == Term::kMagnitude) {
    return static_cast<To>(MagnitudeOf(x));
  } else if constexpr (kTerm == Term::kSquare) {
    return static_cast<To>(static_cast<To>(x) * static_cast<To>(x));
  } else {
    static_assert(kTerm == Term::kNonzero);
    return x != 0 ? 1 : 0;
  }
}

// Bits of which the highest tells how large x is.
template <class T>
HWY_INLINE std::uint64_t SizeOf(T x) {
  if constexpr (std::is_signed_v<T>) {
    return static_cast<std::uint64_t>(x ^ (x >> 63));
  } else {
    return x;
  }
}

// Writes the sum of output g: of at most kQuickIntegerBytes, so that a double holds that of up to 32 bits.
HWY_INLINE void TakeInteger(std::int64_t sum, std::int64_t g, QuickSums* into) {
  into->sum[g] = static_cast<double>(sum);
  into->rest[g] = into->lost[g] = 0;
}
// `sizes`: of all magnitudes.
HWY_INLINE void TakeHalves(std::uint64_t low, std::uint64_t high, std::uint64_t sizes, std::int64_t g,
                           QuickSums* into) {
  const TwoDoubles all = Normalized({static_cast<double>(high) * 0x1p32, static_cast<double>(low), 0});
  into->sum[g] = all.value;
  into->rest[g] = all.rest;
  into->lost[g] = sizes >> 32 == 0 ? 0 : std::numeric_limits<double>::infinity();
}
// `sizes`: of all elements, by SizeOf, or of as many.
HWY_INLINE void TakeWide(std::uint64_t sum, bool is_signed, std::uint64_t sizes, std::int64_t elements, std::int64_t g,
                         QuickSums* into) {
  const int bits = std::bit_width(sizes) + std::bit_width(static_cast<std::uint64_t>(elements));
  const auto value = is_signed ? static_cast<double>(static_cast<std::int64_t>(sum)) : static_cast<double>(sum);
  into->lost[g] = bits > 62 ? std::numeric_limits<double>::infinity() : 0;
  into->sum[g] = into->lost[g] == 0 ? value : 0;
  into->rest[g] =
      into->lost[g] == 0 ? static_cast<double>(static_cast<std::int64_t>(sum) - static_cast<std::int64_t>(value)) : 0;
}

// Adds `elements` integers, one output's.
template <class T, Term kTerm>
HWY_INLINE void AddIntegers(const std::byte* from, std::int64_t elements, std::int64_t g, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  if constexpr (kHalves<T, kTerm>) {
    std::uint64_t low = 0, high = 0, sizes = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      const std::uint64_t magnitude = MagnitudeOf(IntegerAt<T>(from + i * kBytes));
      const std::uint64_t square = magnitude * magnitude;
      low += square & 0xffffffff;
      high += square >> 32;
      if constexpr (sizeof(T) == 8) sizes |= magnitude;
    }
    TakeHalves(low, high, sizes, g, into);
  } else if constexpr (kWide<T, kTerm>) {
    std::uint64_t sum = 0, sizes = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      const T x = IntegerAt<T>(from + i * kBytes);
      sum += TermOfInteger<T, kTerm>(x);
      sizes |= SizeOf(x);
    }
    TakeWide(sum, std::is_signed_v<T>, sizes, elements, g, into);
  } else {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      sum += static_cast<std::int64_t>(TermOfInteger<T, kTerm>(IntegerAt<T>(from + i * kBytes)));
    }
    TakeInteger(sum, g, into);
  }
}

template <class T, Term kTerm>
void IntegerColumns(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  constexpr bool kInHalves = kHalves<T, kTerm>;
  constexpr std::int64_t kMostRows = 32768;
  std::uint64_t sums[kQuickOutputs] = {};                                   // or their low halves
  [[maybe_unused]] std::uint64_t high[kInHalves ? kQuickOutputs : 1] = {};  // the high ones
  [[maybe_unused]] std::uint64_t sizes[kWide<T, kTerm> ? kQuickOutputs : 1] = {};
  const RowOrder order = RowOrder::Of(layout, count, kBytes, /*least=*/1);
  constexpr std::int64_t kRows = 8;             // at once, where there are gaps between rows,
  constexpr std::int64_t kSide = 256 / kBytes;  // of columns side by side
  for (std::int64_t run = 0; run < layout.elements; run += order.size) {
    const std::byte* first = start + layout.At(run) * kBytes;
    for (std::int64_t left = order.size; left > 0; left -= kMostRows) {
      [[maybe_unused]] IntegerTerm<T, kTerm> some[kInHalves ? 1 : kQuickOutputs] = {};
      // Inlined by force: gcc would call it for each row.
      const auto add = [&](const std::byte* row, std::int64_t from, std::int64_t to) __attribute__((always_inline)) {
        for (std::int64_t g = from; g < to; ++g) {
          const StoredAs<T> x = IntegerAt<T>(row + g * kBytes);
          if constexpr (kInHalves) {
            const std::uint64_t magnitude = MagnitudeOf(x);
            const std::uint64_t square = magnitude * magnitude;
            sums[g] += square & 0xffffffff;
            high[g] += square >> 32;
            if constexpr (kWide<T, kTerm>) sizes[g] |= magnitude;
          } else {
            some[g] += TermOfInteger<T, kTerm>(x);
            if constexpr (kWide<T, kTerm>) sizes[g] |= SizeOf(x);
          }
        }
      };
      for (std::int64_t i = std::min(left, kMostRows); i > 0;) {
        if (order.at_once == 1) {
          add(first, 0, count);
          first += order.stride;
          --i;
          continue;
        }
        const std::int64_t n = std::min(i, kRows);
        for (std::int64_t g = 0; g < count; g += kSide) {
          for (std::int64_t r = 0; r < n; ++r) add(first + r * order.stride, g, std::min(count, g + kSide));
        }
        first += n * order.stride;
        i -= n;
      }
      if constexpr (!kInHalves) {
        for (std::int64_t g = 0; g < count; ++g) sums[g] += static_cast<std::uint64_t>(some[g]);
      }
    }
  }
  for (std::int64_t g = 0; g < count; ++g) {
    if constexpr (kInHalves) {
      TakeHalves(sums[g], high[g], kWide<T, kTerm> ? sizes[g] : 0, g, into);
    } else if constexpr (kWide<T, kTerm>) {
      TakeWide(sums[g], std::is_signed_v<T>, sizes[g], layout.elements, g, into);
    } else {
      TakeInteger(static_cast<std::int64_t>(sums[g]), g, into);
    }
  }
}

// Adds a few transposed rows, of elements or of what is counted: in 32 bits, where they fit, or in 64.
template <class T, Term kTerm>
HWY_INLINE void AddAcross(const WordOf<T>* across, std::int64_t elements, std::int64_t g, QuickSums* into) {
  constexpr bool kBits = kCounts<kTerm> || std::is_same_v<T, Bool>;
  using Stored = std::conditional_t<kBits, WordOf<T>, StoredAs<T> >;
  using Sum = std::conditional_t<sizeof(T) < 4, std::int32_t,
                                 std::conditional_t<std::is_signed_v<Stored>, std::int64_t, std::uint64_t> >;
  using D = hn::CappedTag<Sum, kAcross>;
  constexpr D kTag;
  const hn::Rebind<Stored, D> stored;
  for (int lane = 0; lane < kAcross; lane += hn::MaxLanes(D())) {
    auto sum = hn::Zero(kTag);
    for (std::int64_t i = 0; i < elements; ++i) {
      auto v = hn::LoadU(stored, reinterpret_cast<const Stored*>(across + i * kAcross + lane));
      if constexpr (kIsFloat<T>) {
        const auto counted = hn::Gt(hn::Add(v, v), hn::Set(stored, kNotCounted<T, kTerm>));
        v = hn::IfThenElseZero(counted, hn::Set(stored, Stored{1}));
      } else if constexpr (kBits) {
        v = hn::Min(v, hn::Set(stored, Stored{1}));
      }
      if constexpr (sizeof(T) < 8) {
        sum = hn::Add(sum, hn::PromoteTo(kTag, v));
      } else {
        sum = hn::Add(sum, v);
      }
    }
    Sum each[hn::MaxLanes(D())];
    hn::StoreU(sum, kTag, each);
    for (int i = 0; i < static_cast<int>(hn::MaxLanes(D())); ++i) {
      TakeInteger(static_cast<std::int64_t>(each[i]), g + lane + i, into);
    }
  }
}

template <class T, Term kTerm>
void IntegerRows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickSums* into) {
  const std::int64_t row = elements * static_cast<std::int64_t>(sizeof(T));
  std::int64_t g = 0;
  if constexpr (kCounts<kTerm> || (kTerm == Term::kElement && sizeof(T) < 8)) {
    constexpr std::int64_t kShortRow = sizeof(T) < 4 ? 64 : 24;
    for (; elements < kShortRow && g + kAcross <= count; g += kAcross) {
      WordOf<T> across[kShortRow * kAcross];
      TransposeRows(start + g * row, elements, MayReadOn(g, count), across);
      AddAcross<T, kTerm>(across, elements, g, into);
    }
  }
  for (; g < count; ++g) AddIntegers<T, kTerm>(start + g * row, elements, g, into);
}

template <class T, Term kTerm>
void IntegerSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickSums* into) {
  for (std::int64_t g = 0; g < count; ++g) {
    const std::byte* const from = start + bounds[g] * static_cast<std::int64_t>(sizeof(T));
    AddIntegers<T, kTerm>(from, bounds[g + 1] - bounds[g], g, into);
  }
}

template <Term kTerm>
QuickSumsOf IntegerSumsOf(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> QuickSumsOf {
    if constexpr (!kIsF8<T> && (kIsFloat<T> ? kCounts<kTerm> : kTerm != Term::kNan)) {
      return {&IntegerColumns<T, kTerm>, &IntegerRows<T, kTerm>, &IntegerSegments<T, kTerm>};
    }
    return {};
  });
}

QuickSumsOf IntegerSums(DType dtype, Term term) {
  switch (term) {
    case Term::kElement:
      return IntegerSumsOf<Term::kElement>(dtype);
    case Term::kMagnitude:
      return IntegerSumsOf<Term::kMagnitude>(dtype);
    case Term::kSquare:
      return IntegerSumsOf<Term::kSquare>(dtype);
    case Term::kNonzero:
      return IntegerSumsOf<Term::kNonzero>(dtype);
    case Term::kNan:
      return IntegerSumsOf<Term::kNan>(dtype);
  }
  __builtin_unreachable();
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(IntegerSums);

QuickSumsOf IntegerQuickSums(DType dtype, Term term) { return HWY_DYNAMIC_DISPATCH(IntegerSums)(dtype, term); }

}  // namespace reduced
#endif
