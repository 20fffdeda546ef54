#include "kernels/cpu/widen.h"

#include <cstring>

#include "kernels/algebra/float_format.h"
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/widen.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using DWiden = hn::ScalableTag<std::uint16_t>;

// `bits`: an element in each lane. Gives the bits of the float of 16 bits.
template <class T>
HWY_INLINE hn::Vec<DWiden> Widen(hn::Vec<DWiden> bits) {
  const DWiden d;
  if constexpr (std::is_same_v<T, F8E5M2>) {
    return hn::ShiftLeft<8>(bits);
  } else if constexpr (std::is_same_v<T, F8E8M0>) {
    // The least number is subnormal in 16 bits, and the highest bits alone would be an infinity's.
    const auto ends = hn::Or(hn::Eq(bits, hn::Zero(d)), hn::Eq(bits, hn::Set(d, std::uint16_t{0xff})));
    return hn::Or(hn::ShiftLeft<7>(bits), hn::IfThenElseZero(ends, hn::Set(d, std::uint16_t{0x40})));
  } else {
    static_assert(std::is_same_v<T, F8E4M3>);
    // The high bytes of 0 to 7 times 2^-9, which are normal numbers in 16 bits.
    alignas(16) static constexpr std::uint8_t kSubnormal[16] = {0, 0x18, 0x1c, 0x1e, 0x20, 0x21, 0x22, 0x23};
    const hn::Repartition<std::uint8_t, DWiden> d8;
    const auto magnitude = hn::And(bits, hn::Set(d, std::uint16_t{0x7f}));
    const auto sign = hn::ShiftLeft<8>(hn::Xor(bits, magnitude));
    const auto last = hn::And(magnitude, hn::Set(d, std::uint16_t{7}));
    const auto subnormal =
        hn::ShiftLeft<8>(hn::BitCast(d, hn::TableLookupBytes(hn::LoadDup128(d8, kSubnormal), hn::BitCast(d8, last))));
    // The bias of the exponent is 8 more in 16 bits.
    const auto normal = hn::Add(hn::ShiftLeft<7>(magnitude), hn::Set(d, std::uint16_t{8 << 10}));
    auto wide = hn::IfThenElse(hn::Eq(magnitude, last), subnormal, normal);
    wide = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, std::uint16_t{0x7f})), hn::Set(d, std::uint16_t{0x7e00}), wide);
    return hn::Or(wide, sign);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class T>
void WidenAll(const std::byte* elements, std::int64_t count, std::byte* to) {
  using Wide = typename WideOf<T>::Type;
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const DWiden d;
  const hn::Rebind<std::uint8_t, DWiden> d8;
  constexpr std::int64_t kLanes = hn::MaxLanes(DWiden());
  for (; i + kLanes <= count; i += kLanes) {
    const auto bits = hn::PromoteTo(d, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(elements + i)));
    hn::StoreU(Widen<T>(bits), d, reinterpret_cast<std::uint16_t*>(to) + i);
  }
#endif
  for (; i < count; ++i) {
    const auto wide = FromDouble<Wide>(ToDouble(ElementAt<T>(elements, i)));
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(Wide)), &wide, sizeof(Wide));
  }
}

WidenElements ChooseWiden(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> WidenElements {
    if constexpr (kIsF8<T>) return &WidenAll<T>;
    return nullptr;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(ChooseWiden);

WidenElements WidenElementsOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(ChooseWiden)(dtype); }

}  // namespace reduced
#endif
