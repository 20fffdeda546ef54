#include "kernels/cpu/quick_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quick_sums.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/doubles-inl.h"

#ifndef REDUCED_KERNELS_CPU_QUICK_SUMS_CC_
#define REDUCED_KERNELS_CPU_QUICK_SUMS_CC_
namespace reduced {

inline constexpr std::int64_t kLanes = 16;      // outputs side by side
inline constexpr std::int64_t kRowsAtOnce = 8;  // of columns, before the next lanes have their turn

// Adds x to sum + rest; what can't be added exactly goes to `lost`, as any other value than 0.
inline void AddExactly(double x, double* sum, double* rest, double* lost) {
  const double s = *sum + x;
  const double b = s - *sum;
  const double error = (*sum - (s - b)) + (x - b);
  const double e = *rest + error;
  const double c = e - *rest;
  *lost += std::fabs((*rest - (e - c)) + (error - c));
  *sum = s;
  *rest = e;
}

}  // namespace reduced
#endif

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

QuickSumsOf Quick(DType /*dtype*/) { return {}; }

#else

namespace hn = hwy::HWY_NAMESPACE;

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
  for (std::int64_t i = 0; i < count; ++i, rows += stride) {
    for (int v = 0; v < kVectors; ++v) {
      const V x = LoadDoubles<T>(kTag, rows + v * kWidth * static_cast<std::int64_t>(sizeof(T)));
      const V next = hn::Add(s[v], x);
      const V b = hn::Sub(next, s[v]);
      const V error = hn::Add(hn::Sub(s[v], hn::Sub(next, b)), hn::Sub(x, b));
      const V more = hn::Add(e[v], error);
      const V c = hn::Sub(more, e[v]);
      l[v] = hn::Add(l[v], hn::Abs(hn::Add(hn::Sub(e[v], hn::Sub(more, c)), hn::Sub(error, c))));
      s[v] = next;
      e[v] = more;
    }
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

HWY_INLINE void Begin(QuickSums* sums) {
  std::fill_n(sums->sum, kQuickOutputs, -0.0);  // to which -0 adds -0, and +0 adds +0
  std::fill_n(sums->rest, kQuickOutputs, 0.0);
  std::fill_n(sums->lost, kQuickOutputs, 0.0);
}

template <class T>
void Columns(const Layout& layout, const std::byte* start, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  Begin(into);
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

template <class T>
void Rows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickSums* into) {
  constexpr std::int64_t kBytes = sizeof(T);
  Begin(into);
  const std::int64_t row = elements * kBytes;
  std::int64_t g = 0;
  if (elements < kLongRow) {
    std::byte across[kLongRow * kLanes * kBytes];
    for (; g + kLanes <= count; g += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const std::byte* const from = start + (g + lane) * row;
        for (std::int64_t i = 0; i < elements; ++i) {
          std::memcpy(across + (i * kLanes + lane) * kBytes, from + i * kBytes, kBytes);
        }
      }
      AddRows<T>(across, elements, kLanes * kBytes, into->sum + g, into->rest + g, into->lost + g);
    }
    for (; g < count; ++g) {
      for (std::int64_t i = 0; i < elements; ++i) {
        AddExactly(ElementAt<T>(start + g * row + i * kBytes), into->sum + g, into->rest + g, into->lost + g);
      }
    }
    return;
  }
  for (; g < count; ++g) {
    const std::byte* const from = start + g * row;
    double sum[kLanes], rest[kLanes] = {}, lost[kLanes] = {};
    std::fill_n(sum, kLanes, -0.0);
    const std::int64_t whole = elements / kLanes;
    AddRows<T>(from, whole, kLanes * kBytes, sum, rest, lost);
    for (std::int64_t i = whole * kLanes; i < elements; ++i) {
      AddExactly(ElementAt<T>(from + i * kBytes), into->sum + g, into->rest + g, into->lost + g);
    }
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      AddExactly(sum[lane], into->sum + g, into->rest + g, into->lost + g);
      if (rest[lane] != 0) AddExactly(rest[lane], into->sum + g, into->rest + g, into->lost + g);
      into->lost[g] += lost[lane];
    }
  }
}

QuickSumsOf Quick(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> QuickSumsOf {
    if constexpr (kIsFloat<T>) {
      return {&Columns<T>, &Rows<T>};
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
  return sums.rest[i] == 0 ? sums.sum[i] : sums.sum[i] + sums.rest[i];
}

std::optional<double> QuickMean(const QuickSums& sums, std::int64_t i, std::int64_t elements) {
  const std::optional<double> sum = QuickSum(sums, i);
  if (!sum.has_value() || elements >= std::int64_t{1} << 53) return std::nullopt;
  const auto n = static_cast<double>(elements);
  const double s = sums.sum[i], e = sums.rest[i];
  if (e == 0) return s / n;
  // The sum is h + l. With q = fl(h / n) the mean is q + (h - q n + l) / n, of which the second part is a rounded c: if
  // q + c rounds to the same double whatever c's error, that is the mean.
  const double h = *sum;
  const double b = h - s;
  const double l = (s - (h - b)) + (e - b);
  const double q = h / n;
  if (!(std::fabs(h) > 1e-250 && std::fabs(h) < 1e300)) return std::nullopt;  // nothing below underflows or overflows
  const double c = (std::fma(-q, n, h) + l) / n;
  const double low = q + c * (1 - 0x1p-48), high = q + c * (1 + 0x1p-48);
  if (low == high) return low;
  return std::nullopt;
}

}  // namespace reduced
#endif
