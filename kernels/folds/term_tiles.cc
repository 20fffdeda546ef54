// See term_tiles.h. Compiled without contraction of floating-point expressions: the splitting depends on each
// operation's own rounding.
#include "kernels/folds/term_tiles.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/algebra/portable.h"
#include "kernels/algebra/vector_targets.h"
#include "kernels/exact/fixed_point.h"
#include "kernels/folds/elements.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/folds/term_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/algebra/doubles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {
namespace {

// What the bits of the largest and the smallest magnitudes tell, without those of zeros: twice the bits of a double;
// of the smallest less 1.
bool TermMagnitudesOf(std::uint64_t largest, std::uint64_t smallest, const Magnitudes& of_dtype, Magnitudes* found) {
  const auto exponent = [](std::uint64_t pattern) { return static_cast<int>(pattern >> 53); };
  constexpr int kNotFinite = 0x7ff;
  *found = Magnitudes();
  if (exponent(largest) == kNotFinite) return false;
  const std::uint64_t least = smallest + 1;
  if (least == 0) return true;
  const int unit = std::max(exponent(least), 1) - 1023 - (of_dtype.digits - 1);
  *found = {.top = exponent(largest) - 1022, .unit = std::max(unit, of_dtype.unit), .any = true};
  found->digits = std::min(of_dtype.digits, found->top - found->unit);
  return true;
}

#if HWY_TARGET == HWY_SCALAR

// Everything is added element by element.
template <class T>
bool LoadTerms(const void* elements, std::int64_t count, const Magnitudes& of_dtype, double* to, Magnitudes* found) {
  std::uint64_t largest = 0, smallest = ~std::uint64_t{0};
  bool doubles = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const T element = ElementAt<T>(elements, i);
    if constexpr (kIsFloat<T>) {
      to[i] = ToDouble(element);
    } else {
      to[i] = static_cast<double>(ToInteger(element));
    }
    const std::uint64_t pattern = std::bit_cast<std::uint64_t>(to[i]) << 1;
    largest = std::max(largest, pattern);
    smallest = std::min(smallest, pattern - 1);
  }
  if constexpr (sizeof(T) == 8 && !kIsFloat<T>) doubles = largest < std::bit_cast<std::uint64_t>(0x1p53) << 1;
  return TermMagnitudesOf(largest, smallest, of_dtype, found) && doubles;
}

template <SumTerm kTerm>
bool FoldTerm(const TermTile&, int, std::span<std::uint64_t>) {
  return false;
}

#else

using DTerm = hn::CappedTag<double, kTermTileStep>;
using VTerm = hn::Vec<DTerm>;
constexpr std::int64_t kTermLanes = hn::MaxLanes(DTerm());
static_assert(kTermTileStep % kTermLanes == 0);

// So far ahead memory is asked for tiles to come, while this one is loaded. Beyond an array that is harmless.
constexpr std::int64_t kTermAheadBytes = 2048;

template <class T>
bool LoadTerms(const void* elements, std::int64_t count, const Magnitudes& of_dtype, double* to, Magnitudes* found) {
  const DTerm d;
  const hn::RebindToUnsigned<DTerm> du;
  const auto* const from = static_cast<const std::byte*>(elements);
  const auto one = hn::Set(du, std::uint64_t{1});
  auto largest = hn::Zero(du);
  auto smallest = hn::Set(du, ~std::uint64_t{0});
  const auto take = [&](VTerm x) HWY_ATTR {
    const auto bits = hn::BitCast(du, x);
    const auto pattern = hn::Add(bits, bits);
    largest = hn::Max(largest, pattern);
    smallest = hn::Min(smallest, hn::Sub(pattern, one));
  };
  std::int64_t done = 0;
  if constexpr (kIsFloat<T>) {
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));  // elements of a cache line
    for (; done + kLine <= count; done += kLine) {
      const std::byte* const p = from + done * static_cast<std::int64_t>(sizeof(T));
      __builtin_prefetch(p + kTermAheadBytes, /*rw=*/0, /*locality=*/2);
#pragma GCC unroll 16
      for (std::int64_t lane = 0; lane < kLine; lane += kTermLanes) {
        const VTerm x = LoadDoubles<T>(d, p + lane * static_cast<std::int64_t>(sizeof(T)));
        hn::Store(x, d, to + done + lane);
        take(x);
      }
    }
  }
  std::int64_t i = done;
  for (; i < count; ++i) {
    const T element = ElementAt<T>(elements, i);
    if constexpr (kIsFloat<T>) {
      to[i] = ToDouble(element);
    } else {
      to[i] = static_cast<double>(ToInteger(element));
    }
  }
  for (; i % kTermTileStep != 0; ++i) to[i] = 0;
  for (; done < i; done += kTermLanes) take(hn::Load(d, to + done));
  const std::uint64_t most = hn::GetLane(hn::MaxOfLanes(du, largest));
  const bool finite = TermMagnitudesOf(most, hn::GetLane(hn::MinOfLanes(du, smallest)), of_dtype, found);
  // Integers beyond may have been rounded.
  const bool doubles = kIsFloat<T> || sizeof(T) < 8 || most < std::bit_cast<std::uint64_t>(0x1p53) << 1;
  return finite && doubles;
}

// Bins are so far apart. A bin takes magnitudes up to 2^(kTermBits - 1) of its units, and holds 2^51 of them a lane.
constexpr int kTermBits = 40;
constexpr int kMostTermDoubles = 6;
static_assert(kMostTermDoubles * kTermTileElements / 2 <= std::int64_t{1} << (51 - (kTermBits - 1)));
// Of the terms: what is computed of them neither overflows nor underflows, and the bins have anchors.
constexpr int kLargestTermTop = 600;
constexpr int kSmallestTermUnit = -1074;

constexpr double TermPowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

template <int kBins>
struct TermBins {
  VTerm bin[kBins];

  // `unit`: of the last bin.
  static int UnitOf(int unit, int b) { return unit + (kBins - 1 - b) * kTermBits; }
  static double AnchorOf(int unit, int b) { return 1.5 * TermPowerOfTwo(52 + UnitOf(unit, b)); }

  HWY_INLINE explicit TermBins(int unit) {
#pragma GCC unroll 8
    for (int b = 0; b < kBins; ++b) bin[b] = hn::Set(DTerm(), AnchorOf(unit, b));
  }
  // Adds x to the bins from `kFrom` on: each rounds it to its unit and leaves the rest to the next one.
  template <int kFrom>
  HWY_INLINE void Deposit(VTerm x) {
#pragma GCC unroll 8
    for (int b = kFrom; b < kBins - 1; ++b) {
      const VTerm sum = hn::Add(bin[b], x);
      x = hn::Sub(x, hn::Sub(sum, bin[b]));
      bin[b] = sum;
    }
    bin[kBins - 1] = hn::Add(bin[kBins - 1], x);
  }
  // What the bits of the bins are more than those of their anchors is counted in units.
  HWY_INLINE void Flush(int unit, int low, std::span<std::uint64_t> words) const {
#pragma GCC unroll 8
    for (int b = 0; b < kBins; ++b) {
      alignas(64) double lanes[kTermLanes];
      hn::Store(bin[b], DTerm(), lanes);
      std::uint64_t units = 0;
      for (const double lane : lanes) units += std::bit_cast<std::uint64_t>(lane);
      units -= kTermLanes * std::bit_cast<std::uint64_t>(AnchorOf(unit, b));
      if (units != 0) AddAt(static_cast<std::int64_t>(units), static_cast<unsigned>(UnitOf(unit, b) - low), words);
    }
  }
};

// Bins for terms of any extent: integers of 128 bits, 32 bits apart, that doubles are added to one by one.
class WideTermBins {
 public:
  explicit WideTermBins(int unit) : first_(unit - kSpare) {}

  template <int kFrom>
  void Deposit(VTerm x) {
    alignas(64) double lanes[kTermLanes];
    hn::Store(x, DTerm(), lanes);
    for (const double lane : lanes) {
      const auto bits = std::bit_cast<std::uint64_t>(lane);
      const auto field = static_cast<int>(bits >> 52 & 0x7ff);
      const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
      const auto mantissa = static_cast<Int128>(field == 0 ? fraction : fraction | std::uint64_t{1} << 52);
      const int position = std::max(field, 1) - 1075 - first_;
      if (mantissa == 0) continue;
      const Int128 shifted = mantissa << (position % kApart);
      bin_[position / kApart] += lane < 0 ? -shifted : shifted;
    }
  }
  void Flush(int /*unit*/, int low, std::span<std::uint64_t> words) const {
    for (int b = 0; b < kBins; ++b) {
      Int128 units = bin_[b];
      int position = first_ + b * kApart - low;
      if (position < 0) units >>= -position;  // all terms are multiples of 2^low
      for (position = std::max(position, 0); units != 0 && units != -1; units >>= 32, position += 32) {
        AddAt(static_cast<std::uint32_t>(units), static_cast<unsigned>(position), words);
      }
      if (units == -1) AddAt(-1, static_cast<unsigned>(position), words);
    }
  }

 private:
  static constexpr int kApart = 32;
  static constexpr int kSpare = 53;  // a double's last bit may be below the unit, and 0
  static constexpr int kBins = (kLargestTermTop - kSmallestTermUnit + kSpare) / kApart + 1;

  const int first_;
  Int128 bin_[kBins] = {};
};

// Terms as doubles, each deposited from the bin on that 53 more bits below allow.
struct ElementDoubles {
  template <class Bins>
  static HWY_INLINE void Deposit(VTerm x, VTerm, Bins& bins) {
    bins.template Deposit<0>(x);
  }
};

// The product, from bin kFrom on. kExact: it is a double.
template <bool kExact, int kFrom, class Bins>
HWY_INLINE void DepositProduct(VTerm x, VTerm y, Bins& bins) {
  const VTerm product = hn::Mul(x, y);
  bins.template Deposit<kFrom>(product);
  if constexpr (!kExact) bins.template Deposit<kFrom + 1>(hn::MulSub(x, y, product));
}
template <bool kExact>
struct ProductDoubles {
  template <class Bins>
  static HWY_INLINE void Deposit(VTerm x, VTerm y, Bins& bins) {
    DepositProduct<kExact, 0>(x, y, bins);
  }
};

// x^2 y. kExact: x^2 is a double.
template <bool kExact>
struct TripleDoubles {
  template <class Bins>
  static HWY_INLINE void Deposit(VTerm x, VTerm y, Bins& bins) {
    const VTerm square = hn::Mul(x, x);
    DepositProduct<false, 0>(square, y, bins);
    if constexpr (!kExact) DepositProduct<false, 1>(hn::MulSub(x, x, square), y, bins);
  }
};

// x^4, likewise.
template <bool kExact>
struct FourthPowerDoubles {
  template <class Bins>
  static HWY_INLINE void Deposit(VTerm x, VTerm, Bins& bins) {
    const VTerm square = hn::Mul(x, x);
    DepositProduct<false, 0>(square, square, bins);
    if constexpr (kExact) return;
    const VTerm rest = hn::MulSub(x, x, square);
    DepositProduct<false, 1>(hn::Add(square, square), rest, bins);
    DepositProduct<false, 2>(rest, rest, bins);
  }
};

// |x - y|. kExact: the difference is a double.
template <bool kExact>
struct DistanceDoubles {
  template <class Bins>
  static HWY_INLINE void Deposit(VTerm x, VTerm y, Bins& bins) {
    const VTerm difference = hn::Sub(x, y);
    bins.template Deposit<0>(hn::Abs(difference));
    if constexpr (kExact) return;
    const VTerm b = hn::Sub(difference, x);
    const VTerm rest = hn::Sub(hn::Sub(x, hn::Sub(difference, b)), hn::Add(y, b));
    bins.template Deposit<1>(hn::Xor(rest, hn::And(difference, hn::Set(DTerm(), -0.0))));
  }
};

template <bool kExact>
struct SquaredDistanceDoubles {
  template <class Bins>
  static HWY_INLINE void Deposit(VTerm x, VTerm y, Bins& bins) {
    if constexpr (kExact) {
      const VTerm difference = hn::Sub(x, y);
      DepositProduct<false, 0>(difference, difference, bins);
    } else {
      DepositProduct<false, 0>(x, x, bins);
      DepositProduct<false, 0>(y, y, bins);
      DepositProduct<false, 0>(hn::Mul(x, hn::Set(DTerm(), -2.0)), y, bins);
    }
  }
};

template <class Doubles, class Bins>
void AddTerms(const TermTile& tile, const double* x, const double* y, int unit, int low,
              std::span<std::uint64_t> words) {
  const DTerm d;
  Bins bins(unit);
  const std::int64_t count = (tile.count + kTermTileStep - 1) / kTermTileStep * kTermTileStep;
  for (std::int64_t i = 0; i < count; i += kTermLanes) {
    __builtin_prefetch(tile.x_ahead + i * tile.x_bytes, /*rw=*/0, /*locality=*/2);
    __builtin_prefetch(tile.y_ahead + i * tile.y_bytes, /*rw=*/0, /*locality=*/2);
    Doubles::Deposit(hn::Load(d, x + i), hn::Load(d, y + i), bins);
  }
  bins.Flush(unit, low, words);
}

// By as few bins as hold the terms.
template <class Doubles>
void AddTermsBy(const TermTile& tile, const double* x, const double* y, const Magnitudes& of, int low,
                std::span<std::uint64_t> words) {
  const int bits = of.top - of.unit;
  const auto add = bits < 2 * kTermBits   ? &AddTerms<Doubles, TermBins<2> >
                   : bits < 4 * kTermBits ? &AddTerms<Doubles, TermBins<4> >
                   : bits < 8 * kTermBits ? &AddTerms<Doubles, TermBins<8> >
                                          : &AddTerms<Doubles, WideTermBins>;
  add(tile, x, y, of.unit, low, words);
}

template <SumTerm kTerm>
bool FoldTerm(const TermTile& tile, int low, std::span<std::uint64_t> words) {
  constexpr TermPowers kPowers = PowersIn(kTerm);
  constexpr bool kOfX = kPowers.distance == 0 && kPowers.y == 0, kOfY = kPowers.distance == 0 && kPowers.x == 0;
  const double* const first = kOfY ? tile.y : tile.x;
  const double* const second = kOfX ? tile.x : tile.y;
  const Magnitudes& of_first = kOfY ? tile.of_y : tile.of_x;
  const Magnitudes& of_second = kOfX ? tile.of_x : tile.of_y;
  const Magnitudes of = MagnitudesOf(kTerm, tile.of_x, tile.of_y);
  if (!of.any) return true;
  const auto far = [](const Magnitudes& each) { return each.top > kLargestTermTop || each.unit < kSmallestTermUnit; };
  if (far(of)) return false;
  constexpr int kDigits = std::numeric_limits<double>::digits;
  const auto add = [&]<class Doubles>(std::type_identity<Doubles>) {
    AddTermsBy<Doubles>(tile, first, second, of, low, words);
    return true;
  };
  if constexpr (kPowers.x + kPowers.y == 1) return add(std::type_identity<ElementDoubles>());
  constexpr bool kProduct = kPowers.x + kPowers.y == 2;
  if constexpr (kProduct) {
    if (of_first.digits + of_second.digits <= kDigits) return add(std::type_identity<ProductDoubles<true> >());
  }
  if constexpr (kTerm == SumTerm::kDistance) {
    return of.top - of.unit <= kDigits ? add(std::type_identity<DistanceDoubles<true> >())
                                       : add(std::type_identity<DistanceDoubles<false> >());
  }
#if HWY_NATIVE_FMA  // Products before they are rounded take an instruction of their own.
  if constexpr (kProduct) return add(std::type_identity<ProductDoubles<false> >());
  if constexpr (kTerm == SumTerm::kSquaredDistance) {
    return of.top - of.unit <= 2 * kDigits ? add(std::type_identity<SquaredDistanceDoubles<true> >())
                                           : add(std::type_identity<SquaredDistanceDoubles<false> >());
  }
  if (far(MagnitudesOf(SumTerm::kXX, tile.of_x, tile.of_y))) return false;
  [[maybe_unused]] const bool exact = 2 * of_first.digits <= kDigits;
  if constexpr (kTerm == SumTerm::kXXY || kTerm == SumTerm::kXXX) {
    return exact ? add(std::type_identity<TripleDoubles<true> >()) : add(std::type_identity<TripleDoubles<false> >());
  }
  if constexpr (kTerm == SumTerm::kXXXX) {
    return exact ? add(std::type_identity<FourthPowerDoubles<true> >())
                 : add(std::type_identity<FourthPowerDoubles<false> >());
  }
#endif
  return false;
}

#endif  // HWY_TARGET == HWY_SCALAR

template <std::size_t... kTerm>
constexpr std::array<FoldTermTile, kSumTerms> TermFoldsFor(std::index_sequence<kTerm...>) {
  return {&FoldTerm<static_cast<SumTerm>(kTerm)>...};
}

const TermTileFolds* TermFolds() {
  static constexpr TermTileFolds kFolds = {
#define REDUCED_X(enumerator, number, name, type) &LoadTerms<type>,
      .load = {REDUCED_DTYPES(REDUCED_X)},
#undef REDUCED_X
      .of = TermFoldsFor(std::make_index_sequence<kSumTerms>())};
  return &kFolds;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(TermFolds);

const TermTileFolds& TermTileFoldsHere() { return *HWY_DYNAMIC_DISPATCH(TermFolds)(); }

}  // namespace reduced
#endif
