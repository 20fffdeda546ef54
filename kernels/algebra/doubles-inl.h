// Float elements widened to f64, once for each vector target: no include guard but Highway's.
#if defined(REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_
#undef REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_
#else
#define REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Floats T of 8 bits at p as f32.
template <class T, class DF>
HWY_INLINE hn::Vec<DF> LoadF8(DF df, const std::byte* p) {
  using Format = FloatFormat<T>;
  constexpr int kShift = 23 - Format::kFraction;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::uint8_t, DF> d8;
  const auto bits = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(p)));
  if constexpr (!Format::kSigned) {
    // The least number is subnormal in f32, and the highest bits alone would be an infinity's.
    const auto ends = hn::Or(hn::Eq(bits, hn::Zero(di)), hn::Eq(bits, hn::Set(di, Format::kNan)));
    return hn::BitCast(df, hn::Or(hn::ShiftLeft<kShift>(bits), hn::IfThenElseZero(ends, hn::Set(di, 1 << 22))));
  } else {
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7f));
    const auto sign = hn::BitCast(df, hn::ShiftLeft<24>(hn::Xor(bits, magnitude)));
    const auto shifted = hn::ShiftLeft<kShift>(magnitude);
    const auto unit = hn::Set(df, std::bit_cast<float>((127 + Format::kUnit) << 23));
    const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(df, magnitude), unit));
    const auto normal = hn::Add(shifted, hn::Set(di, (127 - Format::kBias) << 23));
    constexpr bool kHasInfinities = Format::kBeyond != Format::kNan;
    const auto special = kHasInfinities ? hn::Or(shifted, hn::Set(di, 0x7f800000)) : hn::Set(di, 0x7fc00000);
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, 1 << Format::kFraction));
    const auto is_special = hn::Gt(magnitude, hn::Set(di, Format::kBeyond - 1));
    const auto wide = hn::IfThenElse(is_special, special, hn::IfThenElse(is_subnormal, subnormal, normal));
    const auto with_sign = hn::Or(hn::BitCast(df, wide), sign);
    // A type with one NaN of either sign has the NaN of ToDouble.
    return kHasInfinities ? with_sign
                          : hn::IfThenElse(hn::RebindMask(df, is_special), hn::BitCast(df, special), with_sign);
  }
}

// As many elements at p as D has lanes, as f64.
template <class T, class D>
HWY_INLINE hn::Vec<D> LoadDoubles(D d, const std::byte* p) {
  const hn::Rebind<float, D> df;
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(d, reinterpret_cast<const double*>(p));
  } else if constexpr (std::is_same_v<T, float>) {
    return hn::PromoteTo(d, hn::LoadU(df, reinterpret_cast<const float*>(p)));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<hwy::bfloat16_t, D> db;
    return hn::PromoteTo(d, hn::PromoteTo(df, hn::LoadU(db, reinterpret_cast<const hwy::bfloat16_t*>(p))));
  } else if constexpr (kIsF8<T>) {
    return hn::PromoteTo(d, LoadF8<T>(df, p));
  } else {
    const hn::Rebind<hwy::float16_t, D> dh;
    const auto v = hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#if HWY_TARGET == HWY_SSE4
    // Has no instruction for it, and Highway 1.0.3 makes ordinary numbers from 2^16 up of infinities and NaNs.
    const auto infinity = hn::Set(df, std::numeric_limits<float>::infinity());
    return hn::PromoteTo(d, hn::IfThenElse(hn::Lt(hn::Abs(v), hn::Set(df, 0x1p16f)), v, hn::Or(v, infinity)));
#else
    return hn::PromoteTo(d, v);
#endif
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#endif  // include guard
