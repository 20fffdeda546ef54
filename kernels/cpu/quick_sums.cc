#include "kernels/cpu/quick_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/algebra/float_format.h"
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quick_sums.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/doubles-inl.h"
#include "kernels/cpu/transpose-inl.h"

#ifndef REDUCED_KERNELS_CPU_QUICK_SUMS_CC_
#define REDUCED_KERNELS_CPU_QUICK_SUMS_CC_
namespace reduced {

inline constexpr std::int64_t kLanes = 16;       // outputs side by side
inline constexpr std::int64_t kRowsAtOnce = 32;  // of columns, before the next lanes have their turn

}  // namespace reduced
#endif

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

QuickSumsOf Quick(DType /*dtype*/) { return {}; }

#else

namespace hn = hwy::HWY_NAMESPACE;

static_assert(kLanes == kAcross);

// Rows of which f64 adds the elements of a lane before they are added exactly, if it does not round their sum. Those
// of f16 are multiples of 2^-24 and less than 2^16: it never does, but for infinities and NaNs, which lose the sum.
template <class T>
constexpr std::int64_t kTogether = std::is_same_v<T, double> ? 1
                                   : std::is_same_v<T, Half> ? 4096
                                                             : 16;

// Whether f64 adds `count` rows of kLanes elements, at most kTogether, lane by lane, without rounding: they are finite,
// and those of a lane that aren't zero differ by few powers of two. By their bits, as integers: magnitudes compare as
// those do.
template <class T>
HWY_INLINE bool AddsWithoutRounding(const std::byte* rows, std::int64_t count, std::int64_t stride) {
  if constexpr (std::is_same_v<T, Half>) return true;
  using Format = FloatFormat<T>;
  using Word = typename Format::Word;
  using D = hn::CappedTag<Word, kLanes>;
  constexpr D kTag;
  constexpr int kWidth = hn::MaxLanes(D());
  constexpr int kMostApart = 53 - Format::kSignificant - std::bit_width(static_cast<std::uint64_t>(kTogether<T> - 1));
  for (int lane = 0; lane < kLanes; lane += kWidth) {
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

// Adds `count` rows of kLanes elements, `stride` bytes apart, to kLanes sums.
template <class T>
HWY_INLINE void AddRows(const std::byte* rows, std::int64_t count, std::int64_t stride, double* sum, double* rest,
                        double* lost) {
  using D = hn::CappedTag<double, kLanes>;
  constexpr D kTag;
  constexpr int kWidth = hn::MaxLanes(D());
  constexpr int kVectors = kLanes / kWidth;
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
  const auto add_some = [&](std::int64_t n) {
    const bool together = n > 1 && AddsWithoutRounding<T>(rows, n, stride);
    for (int v = 0; v < kVectors; ++v) {
      if (together) {
        V x = load(rows, v);
        for (std::int64_t r = 1; r < n; ++r) x = hn::Add(x, load(rows + r * stride, v));
        add(x, v);
      } else {
        for (std::int64_t r = 0; r < n; ++r) add(load(rows + r * stride, v), v);
      }
    }
  };
  if constexpr (kTogether<T> == 1) {
    for (; count > 0; --count, rows += stride) {
      for (int v = 0; v < kVectors; ++v) add(load(rows, v), v);
    }
  } else {
    for (; count >= kTogether<T>; count -= kTogether<T>, rows += kTogether<T> * stride) add_some(kTogether<T>);
    if (count > 0) add_some(count);
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(s[v], kTag, sum + v * kWidth);
    hn::StoreU(e[v], kTag, rest + v * kWidth);
    hn::StoreU(l[v], kTag, lost + v * kWidth);
  }
}

template <class T>
HWY_INLINE double ElementAt(const std::byte* at) {
  T x;
  std::memcpy(&x, at, sizeof(T));
  return ToDouble(x);
}

// Whether so many are all 0, or -0.
HWY_INLINE bool AllZero(const double* x, std::int64_t count) {
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < count; ++i) bits |= std::bit_cast<std::uint64_t>(x[i]) << 1;
  return bits == 0;
}

template <class T>
void Columns(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  ClearSums(count, into);
  const std::int64_t size = layout.reduced.empty() ? 1 : layout.reduced.back().size;
  const std::int64_t stride = layout.reduced.empty() ? 0 : layout.reduced.back().stride * kBytes;
  for (std::int64_t run = 0; run < layout.elements; run += size) {
    const std::byte* const first = start + layout.At(run) * kBytes;
    for (std::int64_t i = 0; i < size; i += kRowsAtOnce) {
      const std::byte* const rows = first + i * stride;
      const std::int64_t n = std::min(kRowsAtOnce, size - i);
      std::int64_t g = 0;
      for (; g + kLanes <= count; g += kLanes) {
        AddRows<T>(rows + g * kBytes, n, stride, into->sum + g, into->rest + g, into->lost + g);
      }
      for (; g < count; ++g) {
        for (std::int64_t r = 0; r < n; ++r) {
          AddExactly(ElementAt<T>(rows + r * stride + g * kBytes), into->sum + g, into->rest + g, into->lost + g);
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

// Whether as many rows as are transposed together, of at least a byte each, follow those from row g on.
HWY_INLINE bool MayReadOn(std::int64_t g, std::int64_t count) { return g + 2 * kAcross <= count; }

// Adds a long row to the sums of kLanes interleaved parts of it.
template <class T>
HWY_INLINE void AddParts(const std::byte* from, std::int64_t elements, double* sum, double* rest, double* lost) {
  constexpr std::int64_t kBytes = sizeof(T);
  const std::int64_t whole = elements / kLanes;
  AddRows<T>(from, whole, kLanes * kBytes, sum, rest, lost);
  if (const std::int64_t tail = elements - whole * kLanes; tail > 0) {
    std::byte padded[kLanes * kBytes];
    Pad<T>(from + whole * kLanes * kBytes, tail, padded);
    AddRows<T>(padded, 1, kLanes * kBytes, sum, rest, lost);
  }
}

// Adds a long row.
template <class T>
HWY_INLINE void AddLongRow(const std::byte* from, std::int64_t elements, double* into_sum, double* into_rest,
                           double* into_lost) {
  double sum[kLanes], rest[kLanes] = {}, lost[kLanes] = {};
  std::fill_n(sum, kLanes, -0.0);
  AddParts<T>(from, elements, sum, rest, lost);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) {
      const double more = rest[lane + half];
      AddExactly(sum[lane + half], sum + lane, rest + lane, lost + lane);
      AddExactly(more == 0 ? -0.0 : more, sum + lane, rest + lane, lost + lane);  // -0 changes nothing
      lost[lane] += lost[lane + half];
    }
  }
  AddExactly(sum[0], into_sum, into_rest, into_lost);
  AddExactly(rest[0] == 0 ? -0.0 : rest[0], into_sum, into_rest, into_lost);
  *into_lost += lost[0];
}

// Adds kLanes long rows: the parts of all of them side by side in the end, as rows of kLanes sums.
template <class T>
HWY_INLINE void AddLongRows(const std::byte* rows, std::int64_t elements, double* into_sum, double* into_rest,
                            double* into_lost) {
  double sum[kLanes * kLanes], rest[kLanes * kLanes] = {}, lost[kLanes * kLanes] = {};
  std::fill_n(sum, kLanes * kLanes, -0.0);
  for (std::int64_t r = 0; r < kLanes; ++r) {
    const std::byte* const from = rows + r * elements * static_cast<std::int64_t>(sizeof(T));
    AddParts<T>(from, elements, sum + r * kLanes, rest + r * kLanes, lost + r * kLanes);
  }
  const auto add = [&](const double* parts) {
    std::uint64_t across[kLanes * kLanes];
    TransposeRows(reinterpret_cast<const std::byte*>(parts), kLanes, /*more=*/false, across);
    AddRows<double>(reinterpret_cast<const std::byte*>(across), kLanes, kLanes * sizeof(double), into_sum, into_rest,
                    into_lost);
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
template <class T>
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
  const auto look = [&](hn::Vec<Words> magnitudes) {
    largest = hn::Max(largest, magnitudes);
    least_less_one = hn::Min(least_less_one, hn::Sub(magnitudes, hn::Set(kWords, 1U)));
  };
  const auto magnitudes_at = [&](const std::byte* at) {
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
  const auto add = [&](const std::byte* at) {
    for (int lane = 0; lane < kLanes; lane += kWidth) {
      auto& sum = sums[lane / kWidth % 2];
      sum = hn::Add(sum, LoadDoubles<T>(kTag, at + lane * kBytes));
    }
    for (int lane = 0; kLooks && lane < kLanes; lane += kWordWidth) look(magnitudes_at(at + lane * kBytes));
  };
  // Of kLanes elements those from `first` to before `last`.
  const auto add_some = [&](const std::byte* at, std::int64_t first, std::int64_t last) {
    const auto there = [&](auto tag, int lane) {
      const auto before = [&](std::int64_t end) {
        return hn::FirstN(tag, static_cast<std::size_t>(std::max<std::int64_t>(end - lane, 0)));
      };
      return hn::AndNot(before(first), before(last));
    };
    for (int lane = 0; lane < kLanes; lane += kWidth) {
      auto& sum = sums[lane / kWidth % 2];
      sum = hn::Add(sum, hn::IfThenElse(there(kTag, lane), LoadDoubles<T>(kTag, at + lane * kBytes), nothing));
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

// Absent also if there are more than a few, and of f64.
template <class T>
HWY_INLINE std::optional<double> PlainSumOf(const std::byte* from, std::int64_t elements, std::int64_t more) {
  if constexpr (!std::is_same_v<T, double>) {
    if (elements <= kFew) return PlainSum<T>(from, elements, more);
  }
  return std::nullopt;
}

// The sums of kLanes rows, if each is known so; false if not, and all sums are as before.
template <class T>
HWY_INLINE bool PlainSums(const std::byte* rows, std::int64_t elements, double* sums) {
  for (std::int64_t r = 0; r < kLanes; ++r) {
    const std::optional<double> sum =
        PlainSumOf<T>(rows + r * elements * static_cast<std::int64_t>(sizeof(T)), elements, 0);
    if (!sum.has_value()) {
      std::fill_n(sums, r, -0.0);
      return false;
    }
    sums[r] = *sum;
  }
  return true;
}

template <class T>
void Rows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  ClearSums(count, into);
  const std::int64_t row = elements * kBytes;
  std::int64_t g = 0;
  for (; g + kLanes <= count; g += kLanes) {
    const std::byte* const rows = start + g * row;
    if (elements >= kLanes && PlainSums<T>(rows, elements, into->sum + g)) continue;
    if (elements < kLongRow) {
      WordOf<T> across[kLongRow * kLanes];
      TransposeRows(rows, elements, MayReadOn(g, count), across);
      AddRows<T>(reinterpret_cast<const std::byte*>(across), elements, kLanes * kBytes, into->sum + g, into->rest + g,
                 into->lost + g);
    } else {
      AddLongRows<T>(rows, elements, into->sum + g, into->rest + g, into->lost + g);
    }
  }
  for (; g < count; ++g) {
    const std::optional<double> sum = PlainSumOf<T>(start + g * row, elements, (count - 1 - g) * elements);
    if (sum.has_value()) {
      into->sum[g] = *sum;
    } else {
      AddLongRow<T>(start + g * row, elements, into->sum + g, into->rest + g, into->lost + g);
    }
  }
}

template <class T>
void Segments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickSums* into) {
  ClearSums(count, into);
  for (std::int64_t g = 0; g < count; ++g) {
    const std::byte* const from = start + bounds[g] * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t elements = bounds[g + 1] - bounds[g];
    if (elements == 0) {
      into->sum[g] = 0;
      continue;
    }
    if (const std::optional<double> sum = PlainSumOf<T>(from, elements, bounds[count] - bounds[g + 1]);
        sum.has_value()) {
      into->sum[g] = *sum;
      continue;
    }
    if (elements >= kLongRow) {
      AddLongRow<T>(from, elements, into->sum + g, into->rest + g, into->lost + g);
    } else {
      double sum = -0.0, rest = 0, lost = 0;
      for (std::int64_t i = 0; i < elements; ++i) {
        AddExactly(ElementAt<T>(from + i * static_cast<std::int64_t>(sizeof(T))), &sum, &rest, &lost);
      }
      into->sum[g] = sum;
      into->rest[g] = rest;
      into->lost[g] = lost;
    }
  }
}

// Integers of up to 32 bits, by loops that the compiler makes vectors of: their sums fit in 64 bits.
template <class T>
HWY_INLINE std::int64_t IntegerAt(const std::byte* at) {
  T x;
  std::memcpy(&x, at, sizeof(T));
  return static_cast<std::int64_t>(ToInteger(x));
}

// As doubles, which hold them: kQuickIntegerBytes.
HWY_INLINE void TakeIntegers(const std::int64_t* sums, std::int64_t count, QuickSums* into) {
  for (std::int64_t g = 0; g < count; ++g) into->sum[g] = static_cast<double>(sums[g]);
  std::fill_n(into->rest, count, 0.0);
  std::fill_n(into->lost, count, 0.0);
}

template <class T>
void IntegerColumns(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  // In 32 bits, where as many rows as that fit.
  using Narrow = std::conditional_t<sizeof(T) < 4, std::int32_t, std::int64_t>;
  constexpr std::int64_t kMostRows = 32768;
  std::int64_t sums[kQuickOutputs] = {};
  const std::int64_t size = layout.reduced.empty() ? 1 : layout.reduced.back().size;
  const std::int64_t stride = layout.reduced.empty() ? 0 : layout.reduced.back().stride * kBytes;
  for (std::int64_t run = 0; run < layout.elements; run += size) {
    const std::byte* row = start + layout.At(run) * kBytes;
    for (std::int64_t left = size; left > 0; left -= kMostRows) {
      Narrow narrow[kQuickOutputs] = {};
      for (std::int64_t i = std::min(left, kMostRows); i > 0; --i, row += stride) {
        for (std::int64_t g = 0; g < count; ++g) narrow[g] += static_cast<Narrow>(IntegerAt<T>(row + g * kBytes));
      }
      for (std::int64_t g = 0; g < count; ++g) sums[g] += narrow[g];
    }
  }
  TakeIntegers(sums, count, into);
}

// Adds a few transposed rows: in 32 bits, where they fit, or in 64.
template <class T>
HWY_INLINE void AddAcross(const WordOf<T>* across, std::int64_t elements, std::int64_t* sums) {
  using Stored = std::conditional_t<std::is_same_v<T, Bool>, std::uint8_t, T>;
  using Sum = std::conditional_t<sizeof(T) < 4, std::int32_t,
                                 std::conditional_t<std::is_signed_v<Stored>, std::int64_t, std::uint64_t> >;
  using D = hn::CappedTag<Sum, kLanes>;
  constexpr D kTag;
  const hn::Rebind<Stored, D> stored;
  for (int lane = 0; lane < kLanes; lane += hn::MaxLanes(D())) {
    auto sum = hn::Zero(kTag);
    for (std::int64_t i = 0; i < elements; ++i) {
      auto v = hn::LoadU(stored, reinterpret_cast<const Stored*>(across + i * kLanes + lane));
      if constexpr (std::is_same_v<T, Bool>) v = hn::Min(v, hn::Set(stored, Stored{1}));
      sum = hn::Add(sum, hn::PromoteTo(kTag, v));
    }
    Sum each[hn::MaxLanes(D())];
    hn::StoreU(sum, kTag, each);
    for (int i = 0; i < static_cast<int>(hn::MaxLanes(D())); ++i) sums[lane + i] = static_cast<std::int64_t>(each[i]);
  }
}

template <class T>
void IntegerRows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  constexpr std::int64_t kShortRow = sizeof(T) < 4 ? 64 : 24;
  std::int64_t sums[kQuickOutputs] = {};
  std::int64_t g = 0;
  for (; elements < kShortRow && g + kLanes <= count; g += kLanes) {
    WordOf<T> across[kShortRow * kLanes];
    TransposeRows(start + g * elements * kBytes, elements, MayReadOn(g, count), across);
    AddAcross<T>(across, elements, sums + g);
  }
  for (; g < count; ++g) {
    const std::byte* const row = start + g * elements * kBytes;
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < elements; ++i) sum += IntegerAt<T>(row + i * kBytes);
    sums[g] = sum;
  }
  TakeIntegers(sums, count, into);
}

template <class T>
void IntegerSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickSums* into) {
  std::int64_t sums[kQuickOutputs];
  for (std::int64_t g = 0; g < count; ++g) {
    std::int64_t sum = 0;
    for (std::int64_t i = bounds[g]; i < bounds[g + 1]; ++i) {
      sum += IntegerAt<T>(start + i * static_cast<std::int64_t>(sizeof(T)));
    }
    sums[g] = sum;
  }
  TakeIntegers(sums, count, into);
}

template <class Result>
bool StoreSums(const QuickSums& sums, std::int64_t count, std::byte* out) {
  if (!AllZero(sums.lost, count)) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    Result sum;
    if constexpr (std::is_same_v<Result, double>) {
      const double rounded = sums.sum[i] + sums.rest[i];
      sum = sums.rest[i] == 0 ? sums.sum[i] : rounded;  // -0 + 0 is not -0
    } else {
      sum = static_cast<std::int64_t>(sums.sum[i]) + static_cast<std::int64_t>(sums.rest[i]);
    }
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof(sum)), &sum, sizeof(sum));
  }
  return true;
}

bool StoreMeans(const QuickSums& sums, std::int64_t count, std::int64_t elements, std::byte* out) {
  if (elements >= std::int64_t{1} << 53 || !AllZero(sums.lost, count) || !AllZero(sums.rest, count)) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    const double mean = sums.sum[i] / static_cast<double>(elements);
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof(mean)), &mean, sizeof(mean));
  }
  return true;
}

QuickSumsOf Quick(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> QuickSumsOf {
    if constexpr (kIsFloat<T>) {
      return {&Columns<T>, &Rows<T>, &Segments<T>, &StoreSums<double>, &StoreMeans};
    } else if constexpr (sizeof(T) <= 4) {
      return {&IntegerColumns<T>, &IntegerRows<T>, &IntegerSegments<T>, &StoreSums<std::int64_t>, &StoreMeans};
    } else {
      return {};
    }
  });
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(Quick);

QuickSumsOf QuickSumsFor(DType dtype) { return HWY_DYNAMIC_DISPATCH(Quick)(dtype); }

std::optional<double> QuickSum(const QuickSums& sums, std::int64_t i) {
  if (!(sums.lost[i] == 0)) return std::nullopt;
  return RoundedSum(sums.sum[i], sums.rest[i]);
}

std::optional<double> QuickMean(const QuickSums& sums, std::int64_t i, std::int64_t elements) {
  double mean;
  if (!(sums.lost[i] == 0) || !RoundedMean(sums.sum[i], sums.rest[i], elements, &mean)) return std::nullopt;
  return mean;
}

}  // namespace reduced
#endif
