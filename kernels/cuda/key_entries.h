// What tables by key (key_tables.h) have of a group: how an element becomes an entry, or a part of one, and how entries
// become answers, by the folds of quick_folds.h. For the device, and for the host where a device is simulated.
//
// A float falls apart into bins: integers of `bits` bits each, in units that are 2^bits apart, so few bits that the
// rows of an array do not overflow 64. Most elements have bits in one bin only, of f64 in two or three. In shared
// memory there is one bin; elements with bits below it, which are few, go to another in global memory, whole. What is
// too large, or has bits below the last bin, is listed.
#ifndef REDUCED_KERNELS_CUDA_KEY_ENTRIES_H_
#define REDUCED_KERNELS_CUDA_KEY_ENTRIES_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/float_format.h"
#include "kernels/algebra/portable.h"
#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/quick_extrema.h"
#include "kernels/cuda/quick_sums.h"

namespace reduced {

// Which floats bins take: those whose exponent, as the format has it, is from `base` to base + span.
struct KeyUnits {
  int bits = 0;  // of a bin
  int base = 0;
  int span = 0;
  int low = 0;  // the bin for elements below those has a unit so many powers of two below
};

// How many bits a number has.
REDUCED_HD int BitWidth(std::uint64_t x) {
#ifdef __CUDA_ARCH__
  return 64 - __clzll(static_cast<long long>(x));
#else
  return std::bit_width(x);
#endif
}

// Bits of a bin to which so many rows are added: all bins together have less than 127 then.
REDUCED_HD int KeyBinBits(int bins, std::int64_t rows) {
  const int spare = BitWidth(static_cast<std::uint64_t>(rows));
  const int narrow = (126 - spare) / bins;
  return narrow < 62 - spare ? narrow : 62 - spare;
}

// `largest`: the pattern of a magnitude; 0: none is known. room: as many powers of two beyond it are taken.
template <class T>
REDUCED_HD KeyUnits KeyUnitsFor(std::uint64_t largest, int room, int bins, int bits) {
  using Format = FloatFormat<T>;
  constexpr int kMost = 2 * Format::kBias;  // of finite numbers
  int top = (largest == 0 ? Format::kBias : static_cast<int>(largest >> Format::kFraction)) + room;
  top = top > kMost ? kMost : top;
  const int span = bins * bits - Format::kSignificant;
  const int base = top - span > 1 ? top - span : 1;
  return {bits, base, span < kMost - base ? span : kMost - base};
}
// The exponent of the least unit.
template <class T>
REDUCED_HD int KeyUnitOf(const KeyUnits& units) {
  return units.base - units.low - FloatFormat<T>::kBias - FloatFormat<T>::kFraction;
}
inline constexpr int kSampledRoom = 6;

// Where the bins of sums are.
struct KeyBins {
  int count = 0;
  int place[kMostKeyBins] = {};  // KeyTable::place
};
// Of a table of so many rows. Those in shared memory first are sums of the lower and of the upper halves of 64 bits;
// then, of floats, there is the bin for elements below, which are not cut.
template <class T>
KeyBins KeyBinsFor(std::int64_t rows, bool shared) {
  constexpr bool kFloat = kIsFloat<T>;
  if (!shared) {
    constexpr int kCount = (kFloat ? 2 : 1) + (sizeof(T) == 8 ? 1 : 0);
    const int step = kFloat ? KeyBinBits(kCount, rows) : 32;
    return {kCount, {0, step, 2 * step}};
  }
  int low = 0;
  if constexpr (kFloat) low = KeyBinBits(1, rows) - FloatFormat<T>::kSignificant;
  return {kFloat ? 3 : 2, {low, low + 32, 0}};
}

enum class KeyTerm : std::uint8_t { kFits, kLow, kNegativeZero, kNan, kPositiveInfinity, kNegativeInfinity, kListed };

// A float as digits 2^shift, in units of 2^base as the format has it.
template <class T>
struct ScaledFloat {
  using Format = FloatFormat<T>;
  using Word = typename Format::Word;
  static constexpr Word kSign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  static constexpr Word kHidden = static_cast<Word>(Word{1} << Format::kFraction);

  Word magnitude;
  std::uint64_t digits;
  int shift;
  bool negative;

  REDUCED_HD ScaledFloat(Word word, const KeyUnits& units)
      : magnitude(static_cast<Word>(word & static_cast<Word>(kSign - 1))), negative(magnitude != word) {
    const int field = static_cast<int>(magnitude >> Format::kFraction);
    digits = static_cast<Word>(magnitude & static_cast<Word>(kHidden - 1)) | (field == 0 ? Word{0} : kHidden);
    shift = (field == 0 ? 1 : field) - units.base;
  }
  // Whether it is a multiple of the lowest bin's unit that is not too large, and not -0.
  REDUCED_HD bool fits(const KeyUnits& units) const {
    return static_cast<unsigned>(shift) <= static_cast<unsigned>(units.span) && !(negative && magnitude == 0);
  }
  // Writes its parts in the bins, if it fits.
  template <int kBins>
  REDUCED_HD void Split(const KeyUnits& units, std::int64_t (&part)[kBins]) const {
    REDUCED_UNROLL
    for (int b = 0; b < kBins; ++b) {
      std::uint64_t slice;
      if constexpr (kBins == 1) {
        slice = digits << shift;
      } else {
        const int down = b * units.bits - shift;
        slice = down >= 0 ? (down < 64 ? digits >> down : 0) : (-down < units.bits ? digits << -down : 0);
        if (b < kBins - 1) slice &= (std::uint64_t{1} << units.bits) - 1;
      }
      part[b] = static_cast<std::int64_t>(negative ? std::uint64_t{0} - slice : slice);
    }
  }
};

// An element's parts in the bins, or in the low one: zeros, unless it is kFits or kLow.
template <class T, int kBins>
REDUCED_HD KeyTerm TermOf(typename FloatFormat<T>::Word word, const KeyUnits& units, std::int64_t (&part)[kBins]) {
  using Format = FloatFormat<T>;
  ScaledFloat<T> x(word, units);
  REDUCED_UNROLL
  for (std::int64_t& each : part) each = 0;
  if (!x.fits(units)) {
    if (x.magnitude == 0) return x.negative ? KeyTerm::kNegativeZero : KeyTerm::kFits;
    if (x.magnitude > Format::kInfinity) return KeyTerm::kNan;
    if (x.magnitude == Format::kInfinity) {
      return x.negative ? KeyTerm::kNegativeInfinity : KeyTerm::kPositiveInfinity;
    }
    if (x.shift < 0 && x.shift + units.low >= 0) {
      const std::uint64_t low = x.digits << (x.shift + units.low);
      part[0] = static_cast<std::int64_t>(x.negative ? std::uint64_t{0} - low : low);
      return KeyTerm::kLow;
    }
    // A number of zero bits at the end may be shifted out.
    const int below = -x.shift;
    if (below < 0 || below >= Format::kSignificant || (x.digits & ((std::uint64_t{1} << below) - 1)) != 0) {
      return KeyTerm::kListed;
    }
    x.digits >>= below;
    x.shift = 0;
  }
  x.Split(units, part);
  return KeyTerm::kFits;
}

// An integer's or bool's parts: itself, or the lower and the upper half of one of 64 bits.
template <class Word, int kBins>
REDUCED_HD void IntegerTermOf(Word word, const QuickElements& of, std::int64_t (&part)[kBins]) {
  if (of.is_bool) {
    part[0] = word != 0 ? 1 : 0;
    return;
  }
  const auto value = of.is_unsigned ? static_cast<std::int64_t>(std::uint64_t{word})
                                    : static_cast<std::int64_t>(static_cast<std::make_signed_t<Word>>(word));
  if constexpr (kBins == 1) {
    part[0] = value;
  } else {
    part[0] = static_cast<std::int64_t>(static_cast<std::uint32_t>(value));
    part[1] = of.is_unsigned ? static_cast<std::int64_t>(static_cast<std::uint64_t>(value) >> 32) : value >> 32;
  }
}

// An element as an extremum's entry, of which the greatest is the group's: its key, or that inverted for the lowest,
// and of elements of up to 32 bits the row below it, inverted. A NaN is beyond all. `word` is prepared.
template <int kBytes>
REDUCED_HD bool IsNanKey(typename QuickExtremum<kBytes>::Key key, const QuickElements& of) {
  const auto infinity = static_cast<typename QuickExtremum<kBytes>::Key>(of.infinity);
  return key > infinity || key < ~infinity;
}
template <int kBytes>
REDUCED_HD std::uint64_t EntryOf(typename QuickExtremum<kBytes>::Key key, bool nan, bool highest, std::uint32_t row) {
  using Order = std::make_unsigned_t<typename QuickExtremum<kBytes>::Key>;
  constexpr Order kTop = Order{1} << (8 * sizeof(Order) - 1);
  const auto above = static_cast<Order>(static_cast<Order>(key) ^ kTop);
  const Order order = nan ? ~Order{0} : highest ? above : ~above;
  if constexpr (kBytes == 8) return order;
  return std::uint64_t{order} << 32 | static_cast<std::uint32_t>(~row);
}

REDUCED_HD std::uint32_t KeyFlagsOf(const KeyTable& table, std::int64_t group) {
  return table.flags[group >> 2] >> (8 * (group & 3)) & 255;
}

REDUCED_HD KeyRecord KeyRecordOf(const KeyTable& table, std::int64_t group) {
  KeyRecord record;
  for (int b = 0; b < kMostKeyBins; ++b) {
    if (b < table.bins_used) record.bins[b] = table.bins[b][group];
  }
  for (int i = 0; i < 2; ++i) {
    record.extrema[i] = table.extrema[i] == nullptr ? 0 : table.extrema[i][group];
    record.at[i] = table.at[i] == nullptr ? 0 : table.at[i][group];
  }
  record.count = table.counts == nullptr ? 0 : table.counts[group];
  record.nans = table.nans == nullptr ? 0 : table.nans[group];
  record.flags = KeyFlagsOf(table, group);
  return record;
}

// A sum in the least units.
REDUCED_HD Int128 TotalOf(const KeyRecord& record, const KeyTable& table) {
  UInt128 total = 0;
  for (int b = 0; b < table.bins_used; ++b) {
    total += static_cast<UInt128>(static_cast<Int128>(static_cast<std::int64_t>(record.bins[b]))) << table.place[b];
  }
  return static_cast<Int128>(total);
}
REDUCED_HD bool IsNegativeZero(const KeyRecord& record) {  // of a sum of 0
  return (record.flags & (kKeyNegativeZero | kKeyOther)) == kKeyNegativeZero;
}

// The folds of all elements of a group.
template <class T>
REDUCED_HD void FoldOf(const KeyRecord& record, const KeyAnswersLaunch& launch, QuickFloatSum<T>* fold) {
  const Int128 total = TotalOf(record, launch.table);
  fold->flags = ((record.flags & kKeyPositiveInfinity) != 0 ? QuickFloatSum<T>::kPositiveInfinity : 0U) |
                ((record.flags & kKeyNegativeInfinity) != 0 ? QuickFloatSum<T>::kNegativeInfinity : 0U);
  fold->nans = launch.table.nans != nullptr ? record.nans : (record.flags & kKeyNan) != 0 ? 1 : 0;
  if (total == 0) {
    fold->sum = IsNegativeZero(record) ? -0.0 : 0.0;
    return;
  }
  const auto magnitude = static_cast<UInt128>(total < 0 ? -total : total);
  constexpr int kDigits = 53;
  for (int at = 2 * kDigits; at >= 0; at -= kDigits) {
    const auto digits = static_cast<std::uint64_t>(magnitude >> at) & ((std::uint64_t{1} << kDigits) - 1);
    if (digits == 0) continue;
    const double part = std::ldexp(static_cast<double>(digits), launch.unit + at);
    fold->AddOne(total < 0 ? -part : part);
  }
}
template <int kBytes>
REDUCED_HD void FoldOf(const KeyRecord& record, const KeyAnswersLaunch& launch, QuickIntegerSum<kBytes>* fold) {
  const Int128 total = TotalOf(record, launch.table);
  fold->sum = static_cast<std::uint64_t>(total);
  if constexpr (kBytes == 8) fold->high = static_cast<std::int64_t>(total >> 64);
}
template <int kBytes>
REDUCED_HD void FoldOf(const KeyRecord& record, const KeyAnswersLaunch& launch, QuickExtremum<kBytes>* fold) {
  using Key = typename QuickExtremum<kBytes>::Key;
  using Order = std::make_unsigned_t<Key>;
  fold->nans = record.nans;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t entry = record.extrema[i];
    const bool zero = (record.flags & (i == 0 ? kKeyLowestIsZero : kKeyHighestIsZero)) != 0;
    if (launch.table.extrema[i] == nullptr || (entry == 0 && !zero)) continue;
    const auto order = static_cast<Order>(kBytes == 8 ? entry : entry >> 32);
    const std::uint32_t row = kBytes == 8 ? record.at[i] : ~static_cast<std::uint32_t>(entry);
    if (launch.elements.fold != 0 && order == static_cast<Order>(~Order{0})) {
      if (fold->nan_at == kNowhere || launch.table.at[i] != nullptr) fold->nan_at = row;
      continue;
    }
    const auto key = static_cast<Key>((i == 0 ? ~order : order) ^ Order{1} << (8 * sizeof(Order) - 1));
    if (i == 1) {
      fold->high = key;
      fold->high_at = row;
      if (launch.table.extrema[0] == nullptr) fold->low_at = row;  // there is an element
    } else {
      fold->low = key;
      fold->low_at = row;
    }
  }
}

REDUCED_HD void StoreBits(const QuickAnswer& answer, std::int64_t output, std::uint64_t bits, int bytes) {
  switch (bytes) {
    case 1:
      return StoreAnswer(answer, output, static_cast<std::uint8_t>(bits));
    case 2:
      return StoreAnswer(answer, output, static_cast<std::uint16_t>(bits));
    case 4:
      return StoreAnswer(answer, output, static_cast<std::uint32_t>(bits));
    default:
      return StoreAnswer(answer, output, bits);
  }
}

// Writes the answers of a group as number `output`. False: one is not known.
template <class Fold>
REDUCED_HD bool AnswerKey(const KeyAnswersLaunch& launch, std::int64_t group, std::int64_t output) {
  const KeyRecord record = KeyRecordOf(launch.table, group);
  if ((record.flags & kKeyListed) != 0) return false;
  constexpr bool kIsExtremum = requires(Fold fold) { fold.low_at; };
  Fold fold;
  FoldOf(record, launch, &fold);
  bool none = launch.table.counts != nullptr && record.count == 0;
  if constexpr (kIsExtremum) none = fold.low_at == kNowhere && fold.nan_at == kNowhere;
  if (none) {
    if (kIsExtremum && !launch.fills) return false;
    for (int i = 0; i < launch.ops; ++i) {
      const QuickAnswer& answer = launch.answers[i];
      const bool is_element = answer.op == Op::kMin || answer.op == Op::kMax;
      const bool is_nans = answer.op == Op::kNanCount;
      StoreBits(answer, output, is_nans ? record.nans : launch.empty[i], is_element ? sizeof(typename Fold::Word) : 8);
    }
    return true;
  }
  QuickElements of = launch.elements;
  // Where elements are not counted, no op needs their number; but there are some.
  of.count = launch.table.counts == nullptr ? 1 : record.count;
  if (of.omit_nan) of.count += record.nans;
  return fold.Finish(launch.answers, launch.ops, output, of);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_KEY_ENTRIES_H_
