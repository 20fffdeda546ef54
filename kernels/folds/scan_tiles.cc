// See scan_tiles.h. Compiled without contraction: positions are rounded as those of the bins' edges were.
#include "kernels/folds/scan_tiles.h"

#include <limits>
#include <type_traits>

#include "kernels/algebra/order_key.h"
#include "kernels/algebra/vector_targets.h"
#include "kernels/folds/elements.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/folds/scan_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;
#endif

template <class Real>
std::int32_t BinOf(Real x, const BinRule<Real>& rule) {
  if (!(x >= rule.first && x <= rule.last)) return rule.outside;
  const Real position = (x - rule.from) * rule.scale;
  const auto bin = static_cast<std::int32_t>(position);
  const Real beyond = position - static_cast<Real>(bin);
  return beyond >= rule.margin && beyond <= 1 - rule.margin ? bin : -1;
}

template <class Real>
void BinsOf(const std::byte* elements, std::int64_t count, const BinRule<Real>& rule, std::int32_t* bins) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<Real, kScanBlock> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::CappedTag<Real, kScanBlock>());
  const auto first = hn::Set(d, rule.first), last = hn::Set(d, rule.last), from = hn::Set(d, rule.from);
  const auto scale = hn::Set(d, rule.scale), least = hn::Set(d, rule.margin), most = hn::Set(d, 1 - rule.margin);
  const auto outside = hn::Set(d, static_cast<Real>(rule.outside)), unsure = hn::Set(d, Real{-1});
  for (; i + kLanes <= count; i += kLanes) {
    const auto x = hn::LoadU(d, reinterpret_cast<const Real*>(elements + i * static_cast<std::int64_t>(sizeof(Real))));
    const auto position = hn::Mul(hn::Sub(x, from), scale);
    const auto whole = hn::Trunc(position), beyond = hn::Sub(position, whole);
    const auto sure = hn::And(hn::Ge(beyond, least), hn::Le(beyond, most));
    const auto within = hn::And(hn::Ge(x, first), hn::Le(x, last));
    const auto bin = hn::IfThenElse(within, hn::IfThenElse(sure, whole, unsure), outside);
    if constexpr (sizeof(Real) == 4) {
      hn::StoreU(hn::ConvertTo(di, bin), di, bins + i);
    } else {
      hn::StoreU(hn::DemoteTo(di, bin), di, bins + i);
    }
  }
#endif
  for (; i < count; ++i) bins[i] = BinOf(ElementAt<Real>(elements, i), rule);
}

template <class T, bool kAbove>
std::int64_t FindBlockOf(const std::byte* elements, std::int64_t begin, std::int64_t blocks, const void* of_bound) {
  const T bound = ElementAt<T>(of_bound, 0);
  for (std::int64_t block = begin; block < blocks; ++block) {
    const std::byte* const at = elements + block * kScanBlock * static_cast<std::int64_t>(sizeof(T));
#if HWY_TARGET == HWY_SCALAR
    for (std::int64_t i = 0; i < kScanBlock; ++i) {
      const T x = ElementAt<T>(at, i);
      if (kAbove ? !(x > bound) : !(x < bound)) return block;
    }
#else
    const hn::CappedTag<T, kScanBlock> d;
    constexpr std::int64_t kLanes = hn::MaxLanes(hn::CappedTag<T, kScanBlock>());
    const auto limit = hn::Set(d, bound);
    auto all = hn::Eq(limit, limit);
    for (std::int64_t i = 0; i < kScanBlock; i += kLanes) {
      const auto x = hn::LoadU(d, reinterpret_cast<const T*>(at + i * static_cast<std::int64_t>(sizeof(T))));
      all = hn::And(all, kAbove ? hn::Gt(x, limit) : hn::Lt(x, limit));
    }
    if (!hn::AllTrue(d, all)) return block;
#endif
  }
  return blocks;
}

template <class T>
typename OrderKey<T>::Type KeyOf(T x) {
  using Key = typename OrderKey<T>::Type;
  return kIsFloat<T> && IsNan(x) ? std::numeric_limits<Key>::max() : OrderKey<T>::Of(x);
}

template <class T>
std::int64_t ScanBracketOf(const std::byte* elements, std::int64_t count, const void* of_bracket, BracketCounts* counts,
                           void* to) {
  using Key = typename OrderKey<T>::Type;
  const auto [lower, upper] = ElementAt<KeyBracket<Key>>(of_bracket, 0);
  Key* const between = static_cast<Key*>(to);
  BracketCounts more;
  std::int64_t has = 0, i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<T, kScanBlock> dt;
  const hn::Rebind<Key, decltype(dt)> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::CappedTag<T, kScanBlock>());
  const auto low = hn::Set(d, lower), high = hn::Set(d, upper), most = hn::Set(d, std::numeric_limits<Key>::max());
  auto below_low = hn::Zero(d), above_low = below_low, below_high = below_low, above_high = below_low, nans = below_low;
  for (; i + kLanes <= count; i += kLanes) {
    const auto x = hn::LoadU(dt, reinterpret_cast<const T*>(elements + i * static_cast<std::int64_t>(sizeof(T))));
    auto key = hn::BitCast(d, x);
    if constexpr (kIsFloat<T>) {
      const auto nan = hn::RebindMask(d, hn::IsNaN(x));
      key = hn::IfThenElse(nan, most, hn::Xor(key, hn::And(hn::BroadcastSignBit(key), most)));
      nans = hn::Sub(nans, hn::VecFromMask(d, nan));
    }
    const auto is_above_low = hn::Gt(key, low), is_below_high = hn::Lt(key, high);
    below_low = hn::Sub(below_low, hn::VecFromMask(d, hn::Lt(key, low)));
    above_low = hn::Sub(above_low, hn::VecFromMask(d, is_above_low));
    below_high = hn::Sub(below_high, hn::VecFromMask(d, is_below_high));
    above_high = hn::Sub(above_high, hn::VecFromMask(d, hn::Gt(key, high)));
    const auto within = hn::And(is_above_low, is_below_high);
    if (!hn::AllFalse(d, within)) has += static_cast<std::int64_t>(hn::CompressStore(key, within, d, between + has));
  }
  const auto sum = [&](auto lanes) { return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(d, lanes))); };
  more = {sum(below_low), sum(above_low), sum(below_high), sum(above_high), sum(nans)};
#endif
  for (; i < count; ++i) {
    const T x = ElementAt<T>(elements, i);
    const Key key = KeyOf(x);
    more += {key<lower, key> lower, key<upper, key> upper, kIsFloat<T> && IsNan(x)};
    if (key > lower && key < upper) between[has++] = key;
  }
  *counts += more;
  return has;
}

template <class T>
constexpr ScanBracket ScanBracketFor() {
  if constexpr (sizeof(T) >= 4) return &ScanBracketOf<T>;
  return nullptr;
}

template <class T, bool kAbove>
constexpr FindBlock FindBlockFor() {
  if constexpr (std::is_arithmetic_v<T>) return &FindBlockOf<T, kAbove>;
  return nullptr;
}

const ScanTiles* Scans() {
  static constexpr ScanTiles kScans = {
#define REDUCED_X(enumerator, number, name, type) FindBlockFor<type, true>(),
      .not_above = {REDUCED_DTYPES(REDUCED_X)},
#undef REDUCED_X
#define REDUCED_X(enumerator, number, name, type) FindBlockFor<type, false>(),
      .not_below = {REDUCED_DTYPES(REDUCED_X)},
#undef REDUCED_X
#define REDUCED_X(enumerator, number, name, type) ScanBracketFor<type>(),
      .bracket = {REDUCED_DTYPES(REDUCED_X)},
#undef REDUCED_X
      .f32_bins = &BinsOf<float>,
      .f64_bins = &BinsOf<double>};
  return &kScans;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(Scans);

const ScanTiles& ScanTilesHere() { return *HWY_DYNAMIC_DISPATCH(Scans)(); }

}  // namespace reduced
#endif
