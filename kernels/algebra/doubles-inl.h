// Float elements widened to f64, once for each vector target: no include guard but Highway's.
#if defined(REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_
#undef REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_
#else
#define REDUCED_KERNELS_ALGEBRA_DOUBLES_INL_H_
#endif

#include <cstddef>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/algebra/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

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
