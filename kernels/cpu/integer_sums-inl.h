// kSum, kAbsSum and kSumSquares of bool and the integers, once for each vector target. Elements are added as unsigned
// numbers, split in halves so that a lane holds the sum over a tile.
#if defined(REDUCED_KERNELS_CPU_INTEGER_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDUCED_KERNELS_CPU_INTEGER_SUMS_INL_H_
#undef REDUCED_KERNELS_CPU_INTEGER_SUMS_INL_H_
#else
#define REDUCED_KERNELS_CPU_INTEGER_SUMS_INL_H_
#endif

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

static_assert(kTileBytes <= 32768, "the sums of a tile of 16-bit elements fit in 32 bits");

enum class As {
  kOffset,     // x + 2^(bits - 1) if T is signed, else x
  kMagnitude,  // |x|
};

template <class T>
using UnsignedLane = std::make_unsigned_t<KeyLane<T>>;

// A vector of elements as unsigned numbers.
template <class T, As kAs>
HWY_INLINE hn::Vec<hn::ScalableTag<UnsignedLane<T>>> LoadUnsigned(const std::byte* p) {
  const hn::ScalableTag<UnsignedLane<T>> du;
  const auto v = LoadKeyLanes<T>(p);
  if constexpr (!kIsSigned<T>) {
    return v;
  } else if constexpr (kAs == As::kMagnitude) {
    return hn::BitCast(du, hn::Abs(v));  // the lowest integer becomes 2^(bits - 1), as unsigned
  } else {
    return hn::Xor(hn::BitCast(du, v), hn::Set(du, static_cast<UnsignedLane<T>>(1) << (8 * sizeof(T) - 1)));
  }
}

// The sum of vectors of unsigned lanes: of bytes by the instruction for it, of wider ones by halves in lanes of twice
// the width (of 64-bit ones: of the same).
template <class U>
struct LaneSum {
  using Wide = std::conditional_t<sizeof(U) == 2, std::uint32_t, std::uint64_t>;
  using DW = hn::ScalableTag<Wide>;
  static constexpr int kHalfBits = sizeof(U) == 2 ? 16 : 32;
  hn::Vec<DW> low;
  hn::Vec<DW> high;

  HWY_INLINE LaneSum() : low(hn::Zero(DW())), high(hn::Zero(DW())) {}
  HWY_INLINE void Add(hn::Vec<hn::ScalableTag<U>> v) {
    if constexpr (sizeof(U) == 1) {
      low = hn::Add(low, hn::SumsOf8(v));
    } else {
      const auto wide = hn::BitCast(DW(), v);
      low = hn::Add(low, hn::And(wide, hn::Set(DW(), (Wide{1} << kHalfBits) - 1)));
      high = hn::Add(high, hn::ShiftRight<kHalfBits>(wide));
    }
  }
  HWY_INLINE void Merge(const LaneSum& other) {
    low = hn::Add(low, other.low);
    high = hn::Add(high, other.high);
  }
  HWY_INLINE UInt128 Total() const {
    const UInt128 lows = ReduceLanes(DW(), low, Plus());
    if constexpr (sizeof(U) == 1) return lows;
    const UInt128 highs = ReduceLanes(DW(), high, Plus());
    return lows + (sizeof(U) == 8 ? highs << 32 : highs);
  }
};

template <class T, As kAs>
struct IntSumAcc {
  using Element = T;
  static constexpr std::int64_t kElements = hn::MaxLanes(KeyTag<T>());
  LaneSum<UnsignedLane<T>> sum;

  HWY_INLINE IntSumAcc() {}
  HWY_INLINE void Add(const std::byte* p) { sum.Add(LoadUnsigned<T, kAs>(p)); }
  HWY_INLINE void Merge(const IntSumAcc& other) { sum.Merge(other.sum); }
};

template <class T>
struct Vectors<SumOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename SumOf<T>::Local* local) {
    IntSumAcc<T, As::kOffset> acc;
    const std::int64_t done = FoldVectors(tile, acc);
    constexpr Int128 kOffset = kIsSigned<T> ? Int128{1} << (8 * sizeof(T) - 1) : 0;
    local->sum += acc.sum.Total() - static_cast<UInt128>(kOffset * done);
    return done;
  }
};

template <class T>
struct Vectors<AbsSumOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename AbsSumOf<T>::Local* local) {
    IntSumAcc<T, As::kMagnitude> acc;
    const std::int64_t done = FoldVectors(tile, acc);
    local->sum += acc.sum.Total();
    return done;
  }
};

// ---- squares of magnitudes, by width

template <class U>
struct SquareSum;

template <>
struct SquareSum<std::uint8_t> {  // even and odd bytes as 16-bit lanes; pairs of their squares as 32-bit ones
  using D16 = hn::ScalableTag<std::int16_t>;
  using D32 = hn::ScalableTag<std::int32_t>;
  hn::Vec<D32> sum;
  hn::Vec<D32> rest;  // unused on x86

  HWY_INLINE SquareSum() : sum(hn::Zero(D32())), rest(hn::Zero(D32())) {}
  HWY_INLINE void Add(hn::Vec<hn::ScalableTag<std::uint8_t>> v) {
    const hn::ScalableTag<std::uint16_t> du16;
    const auto pairs = hn::BitCast(du16, v);
    const auto even = hn::BitCast(D16(), hn::And(pairs, hn::Set(du16, 0xff)));
    const auto odd = hn::BitCast(D16(), hn::ShiftRight<8>(pairs));
    sum = hn::ReorderWidenMulAccumulate(D32(), even, even, sum, rest);
    sum = hn::ReorderWidenMulAccumulate(D32(), odd, odd, sum, rest);
  }
  HWY_INLINE void Merge(const SquareSum& other) {
    sum = hn::Add(sum, other.sum);
    rest = hn::Add(rest, other.rest);
  }
  HWY_INLINE UInt192 Total() const {
    static_assert(kTileBytes * 255 * 255 < std::int64_t{1} << 31);
    return UInt192{{static_cast<std::uint64_t>(ReduceLanes(D32(), hn::Add(sum, rest), Plus())), 0, 0}};
  }
};

HWY_INLINE UInt192 Widened(UInt128 x) {
  return UInt192{{static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(x >> 64), 0}};
}

template <>
struct SquareSum<std::uint16_t> {  // the two halves of each square
  LaneSum<std::uint16_t> low;
  LaneSum<std::uint16_t> high;

  HWY_INLINE SquareSum() {}
  HWY_INLINE void Add(hn::Vec<hn::ScalableTag<std::uint16_t>> v) {
    low.Add(hn::Mul(v, v));
    high.Add(hn::MulHigh(v, v));
  }
  HWY_INLINE void Merge(const SquareSum& other) {
    low.Merge(other.low);
    high.Merge(other.high);
  }
  HWY_INLINE UInt192 Total() const { return Widened(low.Total() + (high.Total() << 16)); }
};

// The lower and upper 32 bits of 64-bit lanes, where MulEven takes its factors.
using D32 = hn::ScalableTag<std::uint32_t>;
HWY_INLINE hn::Vec<D32> UpperToEven(hn::Vec<hn::ScalableTag<std::uint64_t>> v) {
  return hn::BitCast(D32(), hn::ShiftRight<32>(v));
}

template <>
struct SquareSum<std::uint32_t> {
  LaneSum<std::uint64_t> sum;

  HWY_INLINE SquareSum() {}
  HWY_INLINE void Add(hn::Vec<D32> v) {
    const auto odd = UpperToEven(hn::BitCast(hn::ScalableTag<std::uint64_t>(), v));
    sum.Add(hn::MulEven(v, v));
    sum.Add(hn::MulEven(odd, odd));
  }
  HWY_INLINE void Merge(const SquareSum& other) { sum.Merge(other.sum); }
  HWY_INLINE UInt192 Total() const { return Widened(sum.Total()); }
};

template <>
struct SquareSum<std::uint64_t> {  // (h 2^32 + l)^2 = h^2 2^64 + h l 2^33 + l^2
  LaneSum<std::uint64_t> low_low;
  LaneSum<std::uint64_t> high_low;
  LaneSum<std::uint64_t> high_high;

  HWY_INLINE SquareSum() {}
  HWY_INLINE void Add(hn::Vec<hn::ScalableTag<std::uint64_t>> v) {
    const auto low = hn::BitCast(D32(), v);
    const auto high = UpperToEven(v);
    low_low.Add(hn::MulEven(low, low));
    high_low.Add(hn::MulEven(high, low));
    high_high.Add(hn::MulEven(high, high));
  }
  HWY_INLINE void Merge(const SquareSum& other) {
    low_low.Merge(other.low_low);
    high_low.Merge(other.high_low);
    high_high.Merge(other.high_high);
  }
  HWY_INLINE UInt192 Total() const {
    const UInt128 upper = high_high.Total();
    UInt192 total{{0, static_cast<std::uint64_t>(upper), static_cast<std::uint64_t>(upper >> 64)}};
    Increase(total, Widened(high_low.Total() << 33));
    Increase(total, Widened(low_low.Total()));
    return total;
  }
};

template <class T>
struct IntSquaresAcc {
  using Element = T;
  static constexpr std::int64_t kElements = hn::MaxLanes(KeyTag<T>());
  SquareSum<UnsignedLane<T>> sum;

  HWY_INLINE IntSquaresAcc() {}
  HWY_INLINE void Add(const std::byte* p) { sum.Add(LoadUnsigned<T, As::kMagnitude>(p)); }
  HWY_INLINE void Merge(const IntSquaresAcc& other) { sum.Merge(other.sum); }
};

template <class T>
struct Vectors<SumSquaresOf<T>> {
  static std::int64_t Fold(const Tile& tile, typename SumSquaresOf<T>::Local* local) {
    IntSquaresAcc<T> acc;
    const std::int64_t done = FoldVectors(tile, acc);
    const UInt192 total = acc.sum.Total();
    if constexpr (sizeof(T) == 8) {
      local->sum = total;
    } else {
      local->sum += static_cast<UInt128>(total.word[1]) << 64 | total.word[0];
    }
    return done;
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#endif  // include guard
