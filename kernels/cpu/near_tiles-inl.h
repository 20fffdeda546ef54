// Exact sums of tiles whose elements are near to each other in size, once for each vector target, and what
// exact_tiles.cc shares with them: no include guard but Highway's. Compiled as exact_tiles.cc is: each operation rounds
// by itself.
#if defined(REDUCED_KERNELS_CPU_NEAR_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDUCED_KERNELS_CPU_NEAR_TILES_INL_H_
#undef REDUCED_KERNELS_CPU_NEAR_TILES_INL_H_
#else
#define REDUCED_KERNELS_CPU_NEAR_TILES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/algebra/doubles-inl.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cpu/exact_tiles.h"
#include "kernels/cpu/extent.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void AddElements(const ExactTile& tile, std::int64_t first, AccumulatorSet set, ExactSums* into) {
  for (std::int64_t i = first; i < tile.count; ++i) {
    Add(ToDouble(ElementAt<T>(tile.data, i)), set, tile.specials_counted, into);
  }
}

#if HWY_TARGET != HWY_SCALAR

using DExact = hn::ScalableTag<double>;
using VExact = hn::Vec<DExact>;
constexpr std::int64_t kExactLanes = hn::MaxLanes(DExact());
constexpr std::int64_t kStep = 2 * kExactLanes;  // two vectors take turns, so that no addition waits for another

constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// Notes whether the first `count` elements of a tile are all -0, which is all there is to know of zeros.
template <class T>
HWY_INLINE void LookAtZeros(const ExactTile& tile, std::int64_t count, bool any_but_zeros, ExactSums* into) {
  if (any_but_zeros) into->not_only_negative_zeros = true;
  for (std::int64_t i = 0; i < count && !into->not_only_negative_zeros; ++i) {
    const double x = ToDouble(ElementAt<T>(tile.data, i));
    into->not_only_negative_zeros = x == 0 && !std::signbit(x);
  }
}

// Of the first `count` elements of a tile. None if there are NaNs, infinities, or too few elements for a vector.
template <class T>
HWY_INLINE std::optional<Extent> FindExtent(const ExactTile& tile, std::int64_t count) {
  using Format = FloatFormat<T>;
  using Word = typename Format::Word;
  const hn::ScalableTag<Word> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  if (count < kLanes) return std::nullopt;
  // Twice the bits of an element, in the order of magnitudes. Less 1, a zero is the largest.
  const auto one = hn::Set(d, Word{1});
  auto largest = hn::Zero(d);
  auto smallest = hn::Set(d, static_cast<Word>(~Word{0}));
  auto largest_odd = largest;
  auto smallest_odd = smallest;
  const auto take = [&](std::int64_t at, auto& most, auto& least) HWY_ATTR {
    const std::byte* const p = tile.data + at * static_cast<std::int64_t>(sizeof(T));
    const auto bits = hn::LoadU(d, reinterpret_cast<const Word*>(p));
    const auto pattern = hn::Add(bits, bits);
    most = hn::Max(most, pattern);
    least = hn::Min(least, hn::Sub(pattern, one));
  };
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    FetchAhead(tile.data + i * static_cast<std::int64_t>(sizeof(T)), 2 * kLanes * sizeof(T));
    take(i, largest, smallest);
    take(i + kLanes, largest_odd, smallest_odd);
  }
  for (; i < count; i += kLanes) take(std::min(i, count - kLanes), largest, smallest);
  largest = hn::Max(largest, largest_odd);
  smallest = hn::Min(smallest, smallest_odd);
  return ExtentOf<T>(hn::GetLane(hn::MaxOfLanes(d, largest)), hn::GetLane(hn::MinOfLanes(d, smallest)));
}

// How tiles of T that are near are summed up, with kBins bins of a sum; sums of squares have twice as many.
template <class T, int kBins>
struct NearTile {
  static constexpr bool kF64 = std::is_same_v<T, double>;
  // So many sets of bins take turns, so that no addition waits for another.
  static constexpr std::int64_t kTurns = kBins == 1 ? 4 : 2;
  static constexpr std::int64_t kElements =
      std::min(kExactTileElements, kExactTileBytes / static_cast<std::int64_t>(sizeof(T)));
  // Deposits in a lane of a bin: a square of f64 is two.
  static constexpr std::int64_t kDeposits = kElements / (kTurns * kExactLanes) * (kF64 ? 2 : 1);
  // As kBinBits; more, since bins get fewer deposits.
  static constexpr int kBits = 52 - (std::bit_width(static_cast<std::uint64_t>(kDeposits)) - 1);
  static_assert(std::has_single_bit(static_cast<std::uint64_t>(kDeposits)));
};

// Adds x to the bins from kFirst up to, without, kEnd, of which the last one takes whole what is left.
template <int kFirst, int kEnd, int kSize>
HWY_INLINE void Split(VExact (&bin)[kSize], VExact x) {
  const VExact sum = hn::Add(bin[kFirst], x);
  if constexpr (kFirst + 1 < kEnd) Split<kFirst + 1, kEnd>(bin, hn::Sub(x, hn::Sub(sum, bin[kFirst])));
  bin[kFirst] = sum;
}

// The bins of one turn; the last one's unit is that of the elements, or of their squares, and those before are kBits
// apart. What a bin leaves over is at most half its unit, which is what the next one takes.
template <class T, AccumulatorSet kSet, int kBins>
struct NearBins {
  static constexpr bool Has(Accumulator a) { return (kSet & SetOf(a)) != 0; }
  using Tile = NearTile<T, kBins>;

  VExact sum[kBins];
  VExact abs_sum[kBins];
  VExact squares[2 * kBins];

  HWY_INLINE void Anchor(int unit) {
    if constexpr (Has(Accumulator::kSum)) AnchorSum(sum, unit);
    if constexpr (Has(Accumulator::kAbsSum)) AnchorSum(abs_sum, unit);
    if constexpr (Has(Accumulator::kSumSquares)) AnchorSum(squares, 2 * unit);
  }
  HWY_INLINE void Deposit(VExact x) {
    if constexpr (Has(Accumulator::kSum)) Split<0, kBins>(sum, x);
    if constexpr (Has(Accumulator::kAbsSum)) Split<0, kBins>(abs_sum, hn::Abs(x));
    if constexpr (Has(Accumulator::kSumSquares) && Tile::kF64) {
      // What a product rounds to, and the rest. The former is a multiple of the third bin's unit: it has 53 digits from
      // 2^(2 unit + 104) on, as elements are not subnormal (FoldTileIfNear).
      static_assert(Tile::kBits <= 52);
      const VExact square = hn::Mul(x, x);
      Split<0, 3>(squares, square);
      Split<1, 4>(squares, hn::MulSub(x, x, square));
    } else if constexpr (Has(Accumulator::kSumSquares) && kBins > 1) {
      // A product of two floats of up to 32 bits is one of f64.
      Split<0, 2 * kBins>(squares, hn::Mul(x, x));
    } else if constexpr (Has(Accumulator::kSumSquares)) {  // what it has of the first bin's units, and the rest
      const VExact high = hn::MulAdd(x, x, squares[0]);
      squares[1] = hn::Add(squares[1], hn::MulSub(x, x, hn::Sub(high, squares[0])));
      squares[0] = high;
    }
  }
  // The bits of the other's bins, as integers: what they are more than those of their anchors is counted in units.
  HWY_INLINE void Join(const NearBins& other) {
    if constexpr (Has(Accumulator::kSum)) JoinSum(sum, other.sum);
    if constexpr (Has(Accumulator::kAbsSum)) JoinSum(abs_sum, other.abs_sum);
    if constexpr (Has(Accumulator::kSumSquares)) JoinSum(squares, other.squares);
  }
  // Once all turns are joined.
  HWY_INLINE void Flush(int unit, ExactSums* into) const {
    if constexpr (Has(Accumulator::kSum)) FlushSum(sum, unit, into->sum);
    if constexpr (Has(Accumulator::kAbsSum)) FlushSum(abs_sum, unit, into->abs_sum);
    if constexpr (Has(Accumulator::kSumSquares)) FlushSum(squares, 2 * unit, into->sum_squares);
  }

 private:
  // `unit`: of the last bin. Indices are constants, else compilers keep the bins in memory.
  template <int kBin, int kSize>
  static double AnchorOf(int unit) {
    return 1.5 * PowerOfTwo(52 + unit + (kSize - 1 - kBin) * Tile::kBits);
  }
  template <int kBin = 0, int kSize>
  static HWY_INLINE void AnchorSum(VExact (&bin)[kSize], int unit) {
    bin[kBin] = hn::Set(DExact(), AnchorOf<kBin, kSize>(unit));
    if constexpr (kBin + 1 < kSize) AnchorSum<kBin + 1>(bin, unit);
  }
  template <int kBin = 0, int kSize>
  static HWY_INLINE void JoinSum(VExact (&bin)[kSize], const VExact (&other)[kSize]) {
    const hn::RebindToUnsigned<DExact> d;
    bin[kBin] = hn::BitCast(DExact(), hn::Add(hn::BitCast(d, bin[kBin]), hn::BitCast(d, other[kBin])));
    if constexpr (kBin + 1 < kSize) JoinSum<kBin + 1>(bin, other);
  }
  template <int kBin = 0, int kSize, class Number>
  static HWY_INLINE void FlushSum(const VExact (&bin)[kSize], int unit, Number& into) {
    alignas(64) double lanes[kExactLanes];
    hn::Store(bin[kBin], DExact(), lanes);
    std::uint64_t units = 0;
    for (const double lane : lanes) units += std::bit_cast<std::uint64_t>(lane);
    units -= Tile::kTurns * kExactLanes * std::bit_cast<std::uint64_t>(AnchorOf<kBin, kSize>(unit));
    into.Add(static_cast<std::int64_t>(units), unit + (kSize - 1 - kBin) * Tile::kBits);
    if constexpr (kBin + 1 < kSize) FlushSum<kBin + 1>(bin, unit, into);
  }
};

template <class T, AccumulatorSet kSet, int kBins>
HWY_INLINE void AddNear(const ExactTile& tile, std::int64_t count, int unit, ExactSums* into) {
  constexpr std::int64_t kVectorBytes = kExactLanes * sizeof(T);
  using Bins = NearBins<T, kSet, kBins>;
  constexpr std::int64_t kTurns = Bins::Tile::kTurns;
  const DExact d;
  Bins a;
  a.Anchor(unit);
  Bins b = a;
  Bins c = a;
  Bins e = a;
  const std::byte* p = tile.data;
  std::int64_t left = count / kExactLanes;  // vectors: an even number
  for (; left >= kTurns; left -= kTurns, p += kTurns * kVectorBytes) {
    // The tiles to come: their extents are found faster than they would arrive.
    FetchAhead(p + kExactTileBytes, kTurns * kVectorBytes);
    a.Deposit(LoadDoubles<T>(d, p));
    b.Deposit(LoadDoubles<T>(d, p + kVectorBytes));
    if constexpr (kTurns == 2) continue;
    c.Deposit(LoadDoubles<T>(d, p + 2 * kVectorBytes));
    e.Deposit(LoadDoubles<T>(d, p + 3 * kVectorBytes));
  }
  if (left > 0) {
    a.Deposit(LoadDoubles<T>(d, p));
    b.Deposit(LoadDoubles<T>(d, p + kVectorBytes));
  }
  a.Join(b);
  if constexpr (kTurns == 4) {
    a.Join(c);
    a.Join(e);
  }
  a.Flush(unit, into);
}

// Sums of squares of f64, alone or with the sum, of elements that are near enough: each element is split into three
// limbs, x = a + b + c, and the six products of limbs are summed by fused multiplications. With the sum that takes 15
// operations for a vector, six of them fused, where bins take 20. Limbs are so short that every product, and every sum
// of products in a lane of a tile, is an integer of at most 2^53 units: nothing is rounded.
//
// Source of the limbs, there called slices: K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, "Error-free transformations of
// matrix multiplication by using fast routines of matrix multiplication and its applications" (2012).
struct LimbTile {
  static constexpr std::int64_t kElements = kExactTileBytes / static_cast<std::int64_t>(sizeof(double));
  static constexpr int kDepositBits = std::bit_width(static_cast<std::uint64_t>(kElements / kExactLanes)) - 1;
  // |a| is at most 2^kFirst of its units; |b| and |c|, which are what rounding leaves, at most 2^(kOthers - 1) of
  // theirs.
  static constexpr int kFirst = (53 - kDepositBits) / 2;
  static constexpr int kOthers = (55 - kDepositBits) / 2;
  static_assert(kFirst + kOthers - 1 + kDepositBits <= 53);
  static constexpr int kBits = kFirst + 2 * kOthers;
  // Products, sums of them, and the powers of two that make integers of them are numbers of f64 between these.
  static constexpr int kSmallestUnit = -500;
  static constexpr int kLargestTop = 450;
};

// In each lane the sum of each limb, and of each product of limbs. `unit`: of the elements.
template <AccumulatorSet kSet>
struct Limbs {
  static constexpr bool kSum = (kSet & SetOf(Accumulator::kSum)) != 0;
  static constexpr int kOthers = LimbTile::kOthers;

  VExact first_anchor, second_anchor;
  VExact a, b, c;
  VExact aa, ab, ac, bb, bc, cc;

  HWY_INLINE explicit Limbs(int unit) {
    const DExact d;
    first_anchor = hn::Set(d, 1.5 * PowerOfTwo(52 + unit + 2 * kOthers));
    second_anchor = hn::Set(d, 1.5 * PowerOfTwo(52 + unit + kOthers));
    a = b = c = aa = ab = ac = bb = bc = cc = hn::Zero(d);
  }
  HWY_INLINE void Deposit(VExact x) {
    const VExact first = hn::Sub(hn::Add(x, first_anchor), first_anchor);
    const VExact rest = hn::Sub(x, first);
    const VExact second = hn::Sub(hn::Add(rest, second_anchor), second_anchor);
    const VExact third = hn::Sub(rest, second);
    if constexpr (kSum) {
      a = hn::Add(a, first);
      b = hn::Add(b, second);
      c = hn::Add(c, third);
    }
    aa = hn::MulAdd(first, first, aa);
    ab = hn::MulAdd(first, second, ab);
    ac = hn::MulAdd(first, third, ac);
    bb = hn::MulAdd(second, second, bb);
    bc = hn::MulAdd(second, third, bc);
    cc = hn::MulAdd(third, third, cc);
  }
  HWY_INLINE void Flush(int unit, ExactSums* into) const {
    if constexpr (kSum) {
      FlushLimb(a, unit + 2 * kOthers, 0, into->sum);
      FlushLimb(b, unit + kOthers, 0, into->sum);
      FlushLimb(c, unit, 0, into->sum);
    }
    FlushLimb(aa, 2 * unit + 4 * kOthers, 0, into->sum_squares);
    FlushLimb(ab, 2 * unit + 3 * kOthers, 1, into->sum_squares);
    FlushLimb(ac, 2 * unit + 2 * kOthers, 1, into->sum_squares);
    FlushLimb(bb, 2 * unit + 2 * kOthers, 0, into->sum_squares);
    FlushLimb(bc, 2 * unit + kOthers, 1, into->sum_squares);
    FlushLimb(cc, 2 * unit, 0, into->sum_squares);
  }

 private:
  // Adds 2^shift times the lanes of `sum`, multiples of 2^unit.
  template <class Number>
  static HWY_INLINE void FlushLimb(VExact sum, int unit, int shift, Number& into) {
    const DExact d;
    const hn::RebindToSigned<DExact> di;
    const auto units = hn::ConvertTo(di, hn::Mul(sum, hn::Set(d, PowerOfTwo(-unit))));
    into.Add(hn::GetLane(hn::SumOfLanes(di, units)), unit + shift);
  }
};

// Adds the squares, and the elements, of the first `count` of a tile by limbs, if these hold them.
template <class T, AccumulatorSet kSet>
HWY_INLINE bool AddedInLimbs(const ExactTile& tile, std::int64_t count, const Extent& extent, ExactSums* into) {
  constexpr AccumulatorSet kSquares = SetOf(Accumulator::kSumSquares);
  if constexpr (std::is_same_v<T, double> && (kSet == kSquares || kSet == (kSquares | SetOf(Accumulator::kSum)))) {
    if (extent.top - extent.unit > LimbTile::kBits || extent.unit < LimbTile::kSmallestUnit ||
        extent.top > LimbTile::kLargestTop) {
      return false;
    }
    const DExact d;
    Limbs<kSet> limbs(extent.unit);
    constexpr std::int64_t kVectorBytes = kExactLanes * sizeof(T);
    const std::byte* p = tile.data;
    for (std::int64_t left = count; left > 0; left -= kStep, p += 2 * kVectorBytes) {
      FetchAhead(p + kExactTileBytes, 2 * kVectorBytes);
      limbs.Deposit(LoadDoubles<T>(d, p));
      limbs.Deposit(LoadDoubles<T>(d, p + kVectorBytes));
    }
    limbs.Flush(extent.unit, into);
    return true;
  }
  return false;
}

// Of floats of 16 bits, the sums of two each: of kPairs elements at p.
constexpr std::int64_t kPairs = 4 * kExactLanes;
template <class T>
HWY_INLINE void LoadPairs(const std::byte* p, VExact* low, VExact* high) {
  const DExact d;
  const hn::Repartition<float, DExact> df;
  const hn::Half<decltype(df)> half;
  auto sums = hn::Zero(df);
  if constexpr (std::is_same_v<T, BFloat16>) {  // the upper half of a float
    const hn::RebindToUnsigned<decltype(df)> du;
    const auto both = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(p));
    sums = hn::Add(hn::BitCast(df, hn::ShiftLeft<16>(both)), hn::BitCast(df, hn::And(both, hn::Set(du, 0xffff0000U))));
  } else {
    const hn::Rebind<hwy::float16_t, decltype(df)> dh;
    const auto* const elements = reinterpret_cast<const hwy::float16_t*>(p);
    sums = hn::Add(hn::PromoteTo(df, hn::LoadU(dh, elements)), hn::PromoteTo(df, hn::LoadU(dh, elements + kPairs / 2)));
  }
  *low = hn::PromoteTo(d, hn::LowerHalf(half, sums));
  *high = hn::PromoteTo(d, hn::UpperHalf(half, sums));
}

// As AddNear by one bin, two elements at a time, whose sum f32 holds.
template <class T>
HWY_INLINE void AddNearPairs(const ExactTile& tile, std::int64_t count, int unit, ExactSums* into) {
  constexpr std::int64_t kVectorBytes = kExactLanes * sizeof(T);
  constexpr std::int64_t kPairBytes = kPairs * sizeof(T);
  NearBins<T, SetOf(Accumulator::kSum), 1> a;
  a.Anchor(unit);
  auto b = a;
  auto c = a;
  auto e = a;
  const std::byte* p = tile.data;
  std::int64_t left = count;
  for (; left >= 2 * kPairs; left -= 2 * kPairs, p += 2 * kPairBytes) {
    FetchAhead(p + kExactTileBytes, 2 * kPairBytes);
    VExact low, high;
    LoadPairs<T>(p, &low, &high);
    a.Deposit(low);
    b.Deposit(high);
    LoadPairs<T>(p + kPairBytes, &low, &high);
    c.Deposit(low);
    e.Deposit(high);
  }
  for (; left > 0; left -= kExactLanes, p += kVectorBytes) a.Deposit(LoadDoubles<T>(DExact(), p));
  a.Join(b);
  a.Join(c);
  a.Join(e);
  a.Flush(unit, into);
}

// Adds the first `count` elements of a tile in pairs if f32 holds the sum of any two elements: `bits` from the first of
// the largest to the last of the smallest.
template <class T, AccumulatorSet kSet>
HWY_INLINE bool AddedInPairs(const ExactTile& tile, std::int64_t count, const Extent& extent, int bits,
                             ExactSums* into) {
  if constexpr (sizeof(T) == 2 && kSet == SetOf(Accumulator::kSum)) {
    if (bits + 1 <= 24 && extent.top + 1 <= 127) {
      AddNearPairs<T>(tile, count, extent.unit, into);
      return true;
    }
  }
  return false;
}

// The numbers of bins that tiles of T are near by, ascending. One is enough for all f16, seven for all f32 and bf16.
template <class T>
struct NearBinsOf {
  using Counts = std::integer_sequence<int, 1, 2, 7>;
  static constexpr int kMost = 7;
};
template <>
struct NearBinsOf<Half> {
  using Counts = std::integer_sequence<int, 1>;
  static constexpr int kMost = 1;
};
template <>
struct NearBinsOf<double> {
  using Counts = std::integer_sequence<int, 2>;
  static constexpr int kMost = 2;
};

// With as few bins as `bits` from the largest number's first to the smallest one's last take.
template <class T, AccumulatorSet kSet, int... kCounts>
HWY_INLINE void AddNear(std::integer_sequence<int, kCounts...>, const ExactTile& tile, std::int64_t count, int bits,
                        int unit, ExactSums* into) {
  bool added = false;
  ((added || bits >= kCounts * NearTile<T, kCounts>::kBits ||
    (AddNear<T, kSet, kCounts>(tile, count, unit, into), added = true)),
   ...);
}

template <class T, AccumulatorSet kSet>
Nearness FoldTileIfNear(const ExactTile& tile, ExactSums* into) {
  using Near = NearBinsOf<T>;
  constexpr int kBits = NearTile<T, Near::kMost>::kBits;
  const std::int64_t count = tile.count / kStep * kStep;
  const std::optional<Extent> found = tile.extent.has_value() ? tile.extent : FindExtent<T>(tile, count);
  if (!found.has_value()) return Nearness::kOther;
  const Extent extent = *found;
  const int bits = extent.top - extent.unit;
  if (bits >= Near::kMost * kBits) return Nearness::kTooFar;
  if constexpr (std::is_same_v<T, double>) {  // what f64 can anchor, and products that are multiples of its smallest
    constexpr int kTimes = (kSet & SetOf(Accumulator::kSumSquares)) != 0 ? 2 : 1;
    constexpr int kHighest = 1023 - 52 - (kTimes * Near::kMost - 1) * kBits;
    if (kTimes * extent.unit < -1074 || kTimes * extent.unit > kHighest) return Nearness::kTooFar;
  }
  if (!extent.any) {
    FetchAhead(tile.data + kExactTileBytes, count * static_cast<std::int64_t>(sizeof(T)));  // as AddNear does
  } else if (!AddedInPairs<T, kSet>(tile, count, extent, bits, into) &&
             !AddedInLimbs<T, kSet>(tile, count, extent, into)) {
    AddNear<T, kSet>(typename Near::Counts(), tile, count, bits, extent.unit, into);
  }
  if ((kSet & SetOf(Accumulator::kSum)) != 0) LookAtZeros<T>(tile, count, extent.any, into);
  AddElements<T>(tile, count, kSet, into);
  return Nearness::kNear;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#endif  // include guard
