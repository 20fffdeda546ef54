// What quick sums answer: see quick_sums.h. Compiled for each vector target, most of all for fused multiplications.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/quick_sums.h"
#include "kernels/cpu/targets.h"
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
    known[i] = known[i] && elements[i] > 0 && KnownMean(At(sums, i), elements[i], value + i);
  }
  std::memcpy(out, value, static_cast<std::size_t>(count) * sizeof(double));
}

void StoreMoments(Op op, const QuickSums& sums, const QuickSums& squares, std::int64_t count,
                  const std::int64_t* elements, std::int64_t ddof, std::byte* out, bool* known) {
  for (std::int64_t i = 0; i < count; ++i) {
    double value = std::numeric_limits<double>::quiet_NaN();
    TwoDoubles answer;
    bool in_range = true;
    if (op == Op::kL2) {
      answer = RootOf(Normalized({squares.sum[i], squares.rest[i], squares.lost[i] * (1 + 0x1p-20)}));
    } else if (elements[i] > ddof) {
      in_range = Variance(At(sums, i), At(squares, i), elements[i], ddof, &answer);
      if (op == Op::kStd) answer = RootOf(answer);
    }
    if (op == Op::kL2 || elements[i] > ddof) known[i] = known[i] && in_range && RoundTwo(answer, &value);
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof(value)), &value, sizeof(value));
  }
}

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
