// See exact_tiles.h. Compiled without contraction of floating-point expressions: the splitting depends on each
// operation's own rounding.
#include "kernels/cpu/exact_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/algebra/float_format.h"
#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/exact_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/doubles-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

// The number of `into` that accumulator kA sums up in.
template <Accumulator kA>
HWY_INLINE auto& SumOfKind(ExactSums* into) {
  if constexpr (kA == Accumulator::kSum) return into->sum;
  if constexpr (kA == Accumulator::kAbsSum) return into->abs_sum;
  if constexpr (kA == Accumulator::kSumSquares) return into->sum_squares;
}

template <class T>
HWY_INLINE void AddElements(const ExactTile& tile, std::int64_t first, AccumulatorSet set, ExactSums* into) {
  for (std::int64_t i = first; i < tile.count; ++i) {
    Add(ToDouble(ElementAt<T>(tile.data, i)), set, tile.specials_counted, into);
  }
}

#if HWY_TARGET == HWY_SCALAR

template <class T, Accumulator kA>
void FoldTileExactly(const ExactTile& tile, ExactOutlook*, ExactSums* into) {
  AddElements<T>(tile, 0, SetOf(kA), into);
}

#else

using DExact = hn::ScalableTag<double>;
using VExact = hn::Vec<DExact>;
constexpr std::int64_t kExactLanes = hn::MaxLanes(DExact());
constexpr std::int64_t kStep = 2 * kExactLanes;  // two vectors take turns, so that no addition waits for another

// Bins are so far apart, and a bin takes magnitudes up to 2^(kBinBits - 1) of its units. It holds 2^(52 - kBinBits) of
// them a lane, which is as many as a vector of two lanes gets of a tile's elements.
constexpr int kBinBits = 42;
static_assert(kExactTileElements / 2 <= std::int64_t{1} << (52 - kBinBits));

// What f64 can anchor: the first anchor must be finite, the last unit is that of the smallest number.
constexpr int kLargestTop = 1010;
constexpr int kSmallestTop = -1000;

constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// Where bin b is that begins with numbers of up to 2^top.
constexpr int UnitOf(int top, int b) { return std::max(top - (kBinBits - 1) - b * kBinBits, -1074); }
constexpr double AnchorOf(int top, int b) { return 1.5 * PowerOfTwo(52 + UnitOf(top, b)); }

// The lowest top for `largest` > 0.
HWY_INLINE int TopFor(double largest) {
  return std::max(static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> 52) - 1022, kSmallestTop);
}

// How accumulator kA sees elements T: as kValues numbers of f64 whose sum is, exactly, what is to be summed up.
template <class T, Accumulator kA>
struct TermsOf {
  static constexpr bool kTwo = kA == Accumulator::kSumSquares && std::is_same_v<T, double>;
  static constexpr int kValues = kTwo ? 2 : 1;
  // Enough for numbers of some 50 binades.
  static constexpr int kBins = kTwo ? 4 : std::is_same_v<T, double> || kA == Accumulator::kSumSquares ? 3 : 2;
  // Other elements are added by Add: NaNs and infinities; those that can't be anchored; those whose square is too large
  // or too small for its two terms to be exact.
  static constexpr double kLargest = kTwo ? 0x1p500 : std::is_same_v<T, double> ? PowerOfTwo(kLargestTop) : 0x1p200;
  static constexpr double kSmallest = kTwo ? 0x1p-480 : 0;

  // The first term and, if there are two, the second, at most 2^-53 of the first.
  static HWY_INLINE VExact First(VExact x) {
    if constexpr (kA == Accumulator::kSum) return x;
    if constexpr (kA == Accumulator::kAbsSum) return hn::Abs(x);
    if constexpr (kA == Accumulator::kSumSquares) return hn::Mul(x, x);
  }
  static HWY_INLINE VExact Second(VExact x, VExact square) {
#if HWY_NATIVE_FMA
    return hn::MulSub(x, x, square);
#else  // T. J. Dekker, "A floating-point technique for extending the available precision" (1971)
    const VExact scaled = hn::Mul(x, hn::Set(DExact(), 0x1p27 + 1));
    const VExact high = hn::Sub(scaled, hn::Sub(scaled, x));
    const VExact low = hn::Sub(x, high);
    const VExact both = hn::Mul(high, low);
    const VExact rest = hn::Add(hn::Add(hn::Sub(hn::Mul(high, high), square), both), both);
    return hn::Add(rest, hn::Mul(low, low));
#endif
  }
  static HWY_INLINE auto Ordinary(VExact x) {
    const DExact d;
    const VExact magnitude = hn::Abs(x);
    const auto small_enough = hn::Le(magnitude, hn::Set(d, kLargest));
    if constexpr (!kTwo) return small_enough;
    return hn::And(small_enough, hn::Or(hn::Ge(magnitude, hn::Set(d, kSmallest)), hn::Eq(x, hn::Zero(d))));
  }
};

template <int kBins>
struct Bins {
  VExact bin[kBins];

  HWY_INLINE explicit Bins(int top) {
    for (int b = 0; b < kBins; ++b) bin[b] = hn::Set(DExact(), AnchorOf(top, b));
  }
  // Adds x to the bins from `first` on; gives what is left over.
  template <int kFirst = 0>
  HWY_INLINE VExact Deposit(VExact x) {
#pragma GCC unroll 8
    for (int b = kFirst; b < kBins; ++b) {
      const VExact sum = hn::Add(bin[b], x);
      x = hn::Sub(x, hn::Sub(sum, bin[b]));
      bin[b] = sum;
    }
    return x;
  }
};

// Adds what two sets of bins, anchored for `top`, have.
template <int kBins, class Number>
HWY_INLINE void Flush(const Bins<kBins>& x, const Bins<kBins>& y, int top, Number& into) {
  const DExact d;
  for (int b = 0; b < kBins; ++b) {
    alignas(64) double lanes[2 * kExactLanes];
    hn::Store(x.bin[b], d, lanes);
    hn::Store(y.bin[b], d, lanes + kExactLanes);
    std::uint64_t units = 0;
    for (const double lane : lanes) units += std::bit_cast<std::uint64_t>(lane);
    units -= 2 * kExactLanes * std::bit_cast<std::uint64_t>(AnchorOf(top, b));
    into.Add(static_cast<std::int64_t>(units), UnitOf(top, b));
  }
}

HWY_INLINE double LargestLane(VExact v) {
  const DExact d;
  alignas(64) double lanes[kExactLanes];
  hn::Store(v, d, lanes);
  return *std::max_element(lanes, lanes + kExactLanes);
}

// Whether all bits but signs are 0.
HWY_INLINE bool NothingIn(VExact v) {
  const hn::RebindToUnsigned<DExact> du;
  const auto bits = hn::BitCast(du, v);
  return hn::AllTrue(du, hn::Eq(hn::Add(bits, bits), hn::Zero(du)));
}

// Of the first `count` elements of a tile: if all go as expected, adds them and gives true.
template <class T, Accumulator kA>
HWY_INLINE bool FoldExpected(const ExactTile& tile, std::int64_t count, int top, double* largest, ExactSums* into) {
  using Terms = TermsOf<T, kA>;
  constexpr std::int64_t kVectorBytes = kExactLanes * sizeof(T);
  const DExact d;
  Bins<Terms::kBins> even(top);
  Bins<Terms::kBins> odd(top);
  VExact left = hn::Zero(d);
  VExact largest_even = left;
  VExact largest_odd = left;
  const auto deposit = [&](const std::byte* p, Bins<Terms::kBins>& bins, VExact& lane_largest) HWY_ATTR {
    const VExact x = LoadDoubles<T>(d, p);
    const VExact first = Terms::First(x);
    // Any NaN, or infinity, leaves a NaN over.
    lane_largest = hn::Max(lane_largest, kA == Accumulator::kSum ? hn::Abs(first) : first);
    left = hn::Or(left, bins.Deposit(first));
    if constexpr (Terms::kTwo) {
      left = hn::Or(left, bins.template Deposit<1>(Terms::Second(x, first)));
      left = hn::Or(left, hn::IfThenZeroElse(Terms::Ordinary(x), hn::Set(d, 1.0)));
    }
  };
  for (std::int64_t i = 0; i < count; i += kStep) {
    const std::byte* const p = tile.data + i * static_cast<std::int64_t>(sizeof(T));
    FetchAhead(p, 2 * kVectorBytes);
    deposit(p, even, largest_even);
    deposit(p + kVectorBytes, odd, largest_odd);
  }
  *largest = std::max(LargestLane(largest_even), LargestLane(largest_odd));
  if (!NothingIn(left) || !(*largest <= PowerOfTwo(top))) return false;
  Flush(even, odd, top, SumOfKind<kA>(into));
  return true;
}

// Adds the numbers of a buffer of `count`, whatever they are up to 2^kLargestTop, and leaves zeros in it; gives the
// number of rounds that took. `largest`: of their magnitudes.
template <class Number>
HWY_INLINE int FoldBuffer(double* buffer, std::int64_t count, double largest, Number& into) {
  constexpr int kBufferBins = 3;
  const DExact d;
  int rounds = 0;
  for (; largest > 0; ++rounds) {
    const int top = TopFor(largest);
    Bins<kBufferBins> even(top);
    Bins<kBufferBins> odd(top);
    VExact most = hn::Zero(d);
    for (std::int64_t i = 0; i < count; i += kStep) {
      const VExact x = even.Deposit(hn::Load(d, buffer + i));
      const VExact y = odd.Deposit(hn::Load(d, buffer + i + kExactLanes));
      most = hn::Max(most, hn::Max(hn::Abs(x), hn::Abs(y)));
      hn::Store(x, d, buffer + i);
      hn::Store(y, d, buffer + i + kExactLanes);
    }
    Flush(even, odd, top, into);
    largest = LargestLane(most);
  }
  return rounds;
}

// Adds the first `count` elements of a tile, whatever they are. `largest`: of their terms' magnitudes, but for those
// that are added by themselves.
template <class T, Accumulator kA>
int FoldUnexpected(const ExactTile& tile, std::int64_t count, double* largest, ExactSums* into) {
  using Terms = TermsOf<T, kA>;
  static_assert(kExactTileBytes / static_cast<std::int64_t>(sizeof(double)) * 2 <= kExactTileElements);
  alignas(64) double buffer[kExactTileElements];
  const DExact d;
  VExact most = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += kExactLanes) {
    VExact x = LoadDoubles<T>(d, tile.data + i * static_cast<std::int64_t>(sizeof(T)));
    const auto ordinary = Terms::Ordinary(x);
    if (!hn::AllTrue(d, ordinary)) {
      alignas(64) double others[kExactLanes];
      alignas(64) double ones[kExactLanes];
      hn::Store(x, d, others);
      hn::Store(hn::IfThenElseZero(ordinary, hn::Set(d, 1.0)), d, ones);
      for (std::int64_t lane = 0; lane < kExactLanes; ++lane) {
        if (ones[lane] == 0) Add(others[lane], SetOf(kA), tile.specials_counted, into);
      }
      x = hn::IfThenElseZero(ordinary, x);
    }
    const VExact first = Terms::First(x);
    most = hn::Max(most, hn::Abs(first));
    hn::Store(first, d, buffer + i);
    if constexpr (Terms::kTwo) hn::Store(Terms::Second(x, first), d, buffer + count + i);
  }
  *largest = LargestLane(most);
  return FoldBuffer(buffer, Terms::kValues * count, *largest, SumOfKind<kA>(into));
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

template <class T, Accumulator kA>
void FoldTileExactly(const ExactTile& tile, ExactOutlook* outlook, ExactSums* into) {
  // More than fluctuates from tile to tile.
  constexpr int kSlack = 2;
  // So many tiles are not even tried.
  constexpr int kPatience = 16;
  const std::int64_t count = tile.count / kStep * kStep;
  double largest = 0;
  bool done = false;
  if (outlook->wide > 0) {
    --outlook->wide;
  } else if (outlook->top != ExactOutlook::kNoTop) {
    done = FoldExpected<T, kA>(tile, count, outlook->top, &largest, into);
  }
  if (!done) {
    const int rounds = FoldUnexpected<T, kA>(tile, count, &largest, into);
    if (largest > 0) outlook->top = std::min(TopFor(largest) + kSlack, kLargestTop);
    if (rounds > 1) outlook->wide = kPatience;
  }
  if constexpr (kA == Accumulator::kSum) LookAtZeros<T>(tile, count, largest > 0, into);
  AddElements<T>(tile, count, SetOf(kA), into);
}

// ---- tiles of elements that are near to each other in size

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

// Does so if f32 holds the sum of any two elements: `bits` from the first of the largest to the last of the smallest.
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

// SetSpecialsAside of the elements that fill whole vectors; returns how many these are.
template <class T>
HWY_INLINE std::int64_t SetSpecialsOfVectorsAside(const ExactTile& tile, std::byte* finite, ExactSums* into) {
  const KeyTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(KeyTag<T>());
  constexpr KeyLane<T> kSign = std::numeric_limits<KeyLane<T> >::min();  // and -0
  constexpr KeyLane<T> kRest = std::numeric_limits<KeyLane<T> >::max();
  std::size_t specials = 0;
  std::size_t nans = 0;
  std::size_t negative_infinities = 0;
  std::int64_t i = 0;
  for (; i + kLanes <= tile.count; i += kLanes) {
    const std::int64_t at = i * static_cast<std::int64_t>(sizeof(T));
    FetchAhead(tile.data + at + kExactTileBytes, kLanes * sizeof(T));
    const auto v = LoadKeyLanes<T>(tile.data + at);
    const auto magnitude = hn::And(v, hn::Set(d, kRest));
    const auto special = hn::Gt(magnitude, hn::Set(d, static_cast<KeyLane<T> >(kInfinityKey<T> - 1)));
    specials += hn::CountTrue(d, special);
    nans += hn::CountTrue(d, hn::Gt(magnitude, hn::Set(d, kInfinityKey<T>)));
    negative_infinities += hn::CountTrue(d, hn::Eq(v, hn::Set(d, static_cast<KeyLane<T> >(kInfinityKey<T> | kSign))));
    hn::StoreU(hn::IfThenElse(special, hn::Set(d, kSign), v), d, reinterpret_cast<KeyLane<T>*>(finite + at));
  }
  into->nans += static_cast<std::int64_t>(nans);
  into->negative_infinities += static_cast<std::int64_t>(negative_infinities);
  into->positive_infinities += static_cast<std::int64_t>(specials - nans - negative_infinities);
  return i;
}

#endif  // HWY_TARGET == HWY_SCALAR

template <class T, AccumulatorSet kSet>
constexpr FoldIfNear NearFoldFor() {
#if HWY_TARGET != HWY_SCALAR
  // Products before they are rounded take an instruction of their own.
  constexpr bool kSquares = (kSet & SetOf(Accumulator::kSumSquares)) != 0;
  if constexpr (HWY_NATIVE_FMA || !kSquares) return &FoldTileIfNear<T, kSet>;
#endif
  return nullptr;
}

template <class T>
bool SetSpecialsAsideOf(const ExactTile& tile, AccumulatorSet accumulators, std::byte* finite, ExactSums* into) {
  const std::int64_t before = into->specials();
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  done = SetSpecialsOfVectorsAside<T>(tile, finite, into);
#endif
  for (std::int64_t i = done; i < tile.count; ++i) {
    T x = ElementAt<T>(tile.data, i);
    if (!std::isfinite(ToDouble(x))) {
      Add(ToDouble(x), /*set=*/0, /*elsewhere=*/false, into);
      x = FromDouble<T>(-0.0);
    }
    std::memcpy(finite + i * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
  }
  const std::int64_t infinities = into->positive_infinities + into->negative_infinities;
  if (infinities > 0 && (accumulators & SetOf(Accumulator::kSum)) != 0) into->not_only_negative_zeros = true;
  return into->specials() != before;
}

template <class T>
constexpr ExactTileFolds ExactFoldsFor() {
  static_assert(kExactAccumulators == 7);
  return {.of = {&FoldTileExactly<T, Accumulator::kSum>, &FoldTileExactly<T, Accumulator::kAbsSum>,
                 &FoldTileExactly<T, Accumulator::kSumSquares>},
          .if_near = {nullptr, NearFoldFor<T, 1>(), NearFoldFor<T, 2>(), NearFoldFor<T, 3>(), NearFoldFor<T, 4>(),
                      NearFoldFor<T, 5>(), NearFoldFor<T, 6>(), NearFoldFor<T, 7>()},
          .set_specials_aside = &SetSpecialsAsideOf<T>};
}

const ExactTileFolds* ExactFolds(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> const ExactTileFolds* {
    if constexpr (kIsFloat<T>) {
      static constexpr ExactTileFolds kFolds = ExactFoldsFor<T>();
      return &kFolds;
    }
    return nullptr;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(ExactFolds);

const ExactTileFolds& ExactTileFoldsOf(DType dtype) { return *HWY_DYNAMIC_DISPATCH(ExactFolds)(dtype); }

ExactFolder::ExactFolder(DType dtype, AccumulatorSet accumulators)
    : accumulators_(accumulators),
      element_bytes_(RowOf(dtype).bytes),
      tile_elements_(std::min(kExactTileElements, kExactTileBytes / element_bytes_)),
      fold_if_near_(ExactTileFoldsOf(dtype).if_near[accumulators]),
      set_specials_aside_(ExactTileFoldsOf(dtype).set_specials_aside) {
  const ExactTileFolds& folds = ExactTileFoldsOf(dtype);
  for (std::size_t a = 0; a < folds.of.size(); ++a) {
    if ((accumulators & SetOf(static_cast<Accumulator>(a))) != 0) folds_[fold_count_++] = folds.of[a];
  }
}

void ExactFolder::Fold(const void* elements, std::int64_t count, const std::optional<Extent>& extent) {
  const auto* const begin = static_cast<const std::byte*>(elements);
  for (std::int64_t done = 0; done < count; done += tile_elements_) {
    FoldTile(
        {.data = begin + done * element_bytes_, .count = std::min(tile_elements_, count - done), .extent = extent});
  }
}

void ExactFolder::FoldTile(ExactTile tile) {
  constexpr int kPatience = 16;  // so many tiles are not even tried
  alignas(64) std::byte finite[kExactTileBytes];
  const auto set_specials_aside = [&] {
    specials_ = set_specials_aside_(tile, accumulators_, finite, &sums_);
    if (specials_) tile = {.data = finite, .count = tile.count, .specials_counted = true};
  };
  if (tile.extent.has_value()) specials_ = false;
  if (specials_) set_specials_aside();
  if (far_ > 0) {
    --far_;
  } else if (fold_if_near_ != nullptr) {
    Nearness nearness = fold_if_near_(tile, &sums_);
    if (nearness == Nearness::kOther && !tile.specials_counted) {
      set_specials_aside();
      if (specials_) nearness = fold_if_near_(tile, &sums_);
    }
    if (nearness == Nearness::kNear) return;
    if (nearness == Nearness::kTooFar) far_ = kPatience;
  }
  const std::int64_t before = sums_.specials();
  for (std::size_t i = 0; i < fold_count_; ++i) {
    folds_[i](tile, &outlooks_[i], &sums_);
    tile.specials_counted = true;
  }
  specials_ = specials_ || sums_.specials() != before;
}

}  // namespace reduced
#endif
