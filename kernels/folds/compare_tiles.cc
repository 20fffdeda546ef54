// See compare_tiles.h. Compiled without contraction: a tolerance is rounded twice, as in NumPy.
#include "kernels/folds/compare_tiles.h"

#include <algorithm>
#include <type_traits>

#include "kernels/algebra/vector_targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/folds/compare_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

bool CompareAll(const TermTile&, const CompareRules&, ComparedTile*) { return false; }

#else

namespace hn = hwy::HWY_NAMESPACE;
using DPair = hn::CappedTag<double, kTermTileStep>;

// The tile has no subnormal numbers of dtypes other than f64.
bool CompareAll(const TermTile& tile, const CompareRules& rules, ComparedTile* found) {
  const DPair d;
  const hn::RebindToUnsigned<DPair> du;
  const hn::RebindToSigned<DPair> di;
  const auto rtol = hn::Set(d, rules.rtol), atol = hn::Set(d, rules.atol);
  // A little less than the best one: a product is rounded.
  const auto best_rel = hn::Set(d, rules.best_rel * (1 - 0x1p-50));
  const auto least_normal = hn::Set(d, rules.steps.least_normal);
  const auto below = hn::Set(di, rules.steps.below);
  const int dropped_bits = rules.steps.dropped_bits;
  const auto zero = hn::Zero(d);
  auto greatest = zero;
  auto greatest_steps = hn::Zero(du);
  auto more_rel = hn::MaskFromVec(zero);
  const auto steps_to = [&](auto x) HWY_ATTR {
    const auto magnitude = hn::Abs(x);
    const auto all = hn::Sub(hn::ShiftRightSame(hn::BitCast(di, magnitude), dropped_bits), below);
    const auto steps = hn::IfThenElse(hn::RebindMask(di, hn::Lt(magnitude, least_normal)), hn::Zero(di), all);
    return hn::IfThenElse(hn::RebindMask(di, hn::Lt(x, zero)), hn::Neg(steps), steps);
  };
  std::size_t matches = 0, equal_bits = 0;
  const std::int64_t count = (tile.count + kTermTileStep - 1) / kTermTileStep * kTermTileStep;
  constexpr std::int64_t kLanes = hn::MaxLanes(DPair());
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const auto x = hn::Load(d, tile.x + i), y = hn::Load(d, tile.y + i);
    const auto difference = hn::Abs(hn::Sub(x, y)), magnitude = hn::Abs(y);
    // An infinite tolerance times 0 is NaN.
    const auto near = hn::Le(difference, hn::Add(atol, hn::Mul(rtol, magnitude)));
    matches += hn::CountTrue(d, hn::Or(near, hn::Eq(difference, zero)));
    equal_bits += hn::CountTrue(du, hn::Eq(hn::BitCast(du, x), hn::BitCast(du, y)));
    greatest = hn::Max(greatest, difference);
    more_rel = hn::Or(more_rel, hn::Gt(difference, hn::Mul(best_rel, magnitude)));
    if (rules.counts_steps) {
      const auto a = steps_to(x), b = steps_to(y);
      const auto steps = hn::Sub(hn::BitCast(du, hn::Max(a, b)), hn::BitCast(du, hn::Min(a, b)));
      greatest_steps = hn::Max(greatest_steps, steps);
    }
  }
  found->mismatches = count - static_cast<std::int64_t>(matches);  // the zeros behind the pairs match
  found->different_bits = count - static_cast<std::int64_t>(equal_bits);
  found->greatest = hn::GetLane(hn::MaxOfLanes(d, greatest));
  found->greatest_steps = hn::GetLane(hn::MaxOfLanes(du, greatest_steps));
  found->more_rel = !hn::AllFalse(d, more_rel);
  return true;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {
namespace {

template <class T>
ValueSteps StepsOf() {
  using Format = FloatFormat<T>;
  const auto power = [](int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  };
  if constexpr (std::is_same_v<T, double>) return {};
  return {52 - Format::kFraction, std::int64_t{1023 - Format::kBias} << Format::kFraction, power(1 - Format::kBias),
          power(Format::kBias - 1 + Format::kFraction), Format::kInfinity};
}

}  // namespace

ValueSteps ValueSteps::Of(DType x, DType y) {
  if (x != y) return x == DType::kF64 || y == DType::kF64 ? StepsOf<double>() : StepsOf<float>();
  return VisitDType(x, []<class T>(std::type_identity<T>) -> ValueSteps {
    if constexpr (kIsFloat<T>) return StepsOf<T>();
    return {};
  });
}

HWY_EXPORT(CompareAll);

bool CompareWholeTile(const TermTile& tile, const Magnitudes& of_x, const Magnitudes& of_y, const CompareRules& rules,
                      ComparedTile* found) {
  // Then a product with a relative difference has all its bits, where it matters.
  constexpr int kSmallestUnit = -900;
  const auto small = [&](const Magnitudes& of_tile, const Magnitudes& of_dtype) {
    return of_tile.any && (of_tile.unit < kSmallestUnit || (rules.counts_steps && of_tile.unit == of_dtype.unit));
  };
  if (small(tile.of_x, of_x) || small(tile.of_y, of_y)) return false;
  return HWY_DYNAMIC_DISPATCH(CompareAll)(tile, rules, found);
}

}  // namespace reduced
#endif
