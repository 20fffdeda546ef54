// Outputs along axes in registers: what a thread knows of an output, or of a part of it, and how that becomes an
// answer. For the device, and for the host where a device is simulated.
//
// A fold takes elements as the words of their bits (PreparedWord), a few at a time, and their positions in the output;
// folds of parts are merged in any order. Integers, and the keys of extrema, have one fold for each size of element:
// what depends on the dtype is data (QuickElements). Finish() writes an output's answers or, if they are not known so,
// returns false: then the output is to be folded to a state and finalized on the host.
//
// Sums of floats are two doubles (exact/two_doubles.h). The doubles of a few elements whose exponents are close are
// first added without rounding. Sources are named there.
#ifndef REDUCED_KERNELS_CUDA_QUICK_FOLDS_H_
#define REDUCED_KERNELS_CUDA_QUICK_FOLDS_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/portable.h"
#include "kernels/exact/two_doubles.h"

namespace reduced {

// What words are elements of.
struct QuickElements {
  DType dtype = DType::kF32;
  bool is_bool = false;         // any byte but 0 is 1
  bool is_unsigned = false;     // integers; not bool
  std::uint64_t flip = 0;       // of unsigned integers: the top bit, without which they compare as signed ones
  std::uint64_t fold = 0;       // of floats: all bits but the sign, which negative ones have inverted in their key
  std::uint64_t magnitude = 0;  // of floats: all bits but the sign; else all bits
  std::int64_t infinity = 0;    // the bits, and the key, of infinity; integers: of the largest key
  std::uint64_t quiet_nan = 0;  // the bits of the NaN that answers are
  bool omit_nan = false;
  bool exact = true;           // sums that have lost something are no answers
  bool positions_low = false;  // where the lowest element is, is asked for
  bool positions_high = false;
  std::int64_t count = 0;  // elements of an output, less than 2^31
  std::int64_t ddof = 0;
};

QuickElements QuickElementsOf(DType dtype);

// Where the answers to an op go: to an array of results in device memory.
struct QuickAnswer {
  Op op = Op::kSum;
  std::byte* results = nullptr;
};

// Loops whose elements are to be in registers.
#ifdef __CUDA_ARCH__
#define REDUCED_UNROLL _Pragma("unroll")
#else
#define REDUCED_UNROLL
#endif

// What is seldom called and would take registers from what is not.
#ifdef __CUDACC__
#define REDUCED_SELDOM __host__ __device__ __noinline__
#else
#define REDUCED_SELDOM
#endif

inline constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

template <class To, class From>
REDUCED_HD To BitsAs(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// Where the elements are that a fold takes at once: kRun neighbours, then as many `step` positions further, and so on.
template <int kRun>
struct QuickPositions {
  std::uint32_t first = 0;
  std::uint32_t step = 1;

  REDUCED_HD std::uint32_t operator()(int i) const { return first + i / kRun * step + i % kRun; }
};

// Elements of a fold at once.
template <class Word, int kCount>
struct QuickTile {
  Word word[kCount];
};

// The word that folds take for an element: unsigned integers as the signed ones that are in the same order, and 1 for
// every byte of bool but 0.
template <class Word>
REDUCED_HD Word PreparedWord(Word word, const QuickElements& of) {
  return static_cast<Word>(of.is_bool ? (word != 0 ? 1 : 0) : word ^ of.flip);
}

template <class Value>
REDUCED_HD void StoreAnswer(const QuickAnswer& answer, std::int64_t output, Value value) {
  reinterpret_cast<Value*>(answer.results)[output] = value;
}

template <int kBytes>
using WordOfBytes = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t, std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

// Sums and means of floats.
template <class T>
struct QuickFloatSum {
  using Word = typename FloatFormat<T>::Word;
  enum : std::uint32_t { kPositiveInfinity = 1, kNegativeInfinity = 2 };

  double sum = -0.0;  // to which -0 adds -0, and +0 adds +0
  double rest = 0;
  double lost = 0;  // at most, from sum + rest
  std::uint32_t flags = 0;
  std::uint32_t nans = 0;

  REDUCED_HD static double Value(Word word) { return ToDouble(BitsAs<T>(word)); }
  // What stands for an element that isn't there, beside `first`, which is.
  REDUCED_HD static Word Absent(Word /*first*/, const QuickElements&) {
    return static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));  // -0
  }

  REDUCED_HD void AddOne(double x) { lost += std::fabs(AddToTwo(x, &sum, &rest)); }
  REDUCED_HD void AddAny(double x) {
    if (x - x == 0) return AddOne(x);
    if (x != x) {
      ++nans;
    } else {
      flags |= x > 0 ? kPositiveInfinity : kNegativeInfinity;
    }
  }

  // Adds elements, of which the first `n` >= 1 are there. Positions do not matter.
  template <int kCount, class Position>
  REDUCED_HD void Add(const Word (&x)[kCount], int n, Position, const QuickElements&) {
    if constexpr (std::is_same_v<T, double>) {
      const QuickFloatSum before = *this;
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) AddOne(Value(x[i]));
      if (sum - sum == 0) return;
      *this = before;
    } else {
      double total = Value(x[0]);
      REDUCED_UNROLL
      for (int i = 1; i < kCount; ++i) total += Value(x[i]);
      if (AddedWithoutRounding(x, total)) return AddOne(total);
    }
    *this = AddedOneByOne(*this, Copy(x), n);
  }

  template <int kCount>
  REDUCED_HD static QuickTile<Word, kCount> Copy(const Word (&x)[kCount]) {
    QuickTile<Word, kCount> tile;
    REDUCED_UNROLL
    for (int i = 0; i < kCount; ++i) tile.word[i] = x[i];
    return tile;
  }
  template <int kCount>
  REDUCED_SELDOM static QuickFloatSum AddedOneByOne(QuickFloatSum fold, QuickTile<Word, kCount> tile, int n) {
    for (int i = 0; i < n; ++i) fold.AddAny(Value(tile.word[i]));
    return fold;
  }

  REDUCED_HD void Merge(const QuickFloatSum& other) {
    AddOne(other.sum);
    AddOne(other.rest == 0 ? -0.0 : other.rest);  // -0 changes nothing
    lost += other.lost;
    flags |= other.flags;
    nans += other.nans;
  }

  // Nothing but a sum.
  REDUCED_HD bool plain() const { return rest == 0 && lost == 0 && (flags | nans) == 0; }
  REDUCED_HD TwoDoubles two() const { return {sum, rest, lost}; }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    const std::int64_t counted = of.count - (of.omit_nan ? nans : 0);
    const bool infinite = (flags & (kPositiveInfinity | kNegativeInfinity)) != 0;
    double special = (flags & kPositiveInfinity) != 0 ? BitsAs<double>(std::uint64_t{0x7ff0000000000000})
                                                      : BitsAs<double>(std::uint64_t{0xfff0000000000000});
    const bool both = (flags & kPositiveInfinity) != 0 && (flags & kNegativeInfinity) != 0;
    const bool nan = both || (nans > 0 && !of.omit_nan);
    if (nan) special = BitsAs<double>(std::uint64_t{0x7ff8000000000000});
    if (!infinite && !nan && !(sum - sum == 0)) return false;  // it has overflowed
    for (int i = 0; i < ops; ++i) {
      const QuickAnswer& answer = answers[i];
      if (answer.op == Op::kCount) {
        StoreAnswer(answer, output, counted);
        continue;
      }
      if (answer.op == Op::kNanCount) {
        StoreAnswer(answer, output, std::int64_t{nans});
        continue;
      }
      double value = special;
      if (!infinite && !nan) {
        if (counted == 0) {
          value = answer.op == Op::kSum ? 0.0 : BitsAs<double>(std::uint64_t{0x7ff8000000000000});
        } else if (!(answer.op == Op::kSum ? KnownSum(two(), &value) : KnownMean(two(), counted, &value)) && of.exact) {
          return false;
        }
      }
      StoreAnswer(answer, output, value);
    }
    return true;
  }
  // Whether f64 adds the elements without rounding, in any order: they are finite, and those that aren't zero differ by
  // few powers of two. By their bits, as integers: magnitudes compare as those do. Multiples of 2^-24 below 2^16, as
  // all numbers of f16 are, never round.
  template <int kCount>
  REDUCED_HD static bool AddedWithoutRounding(const Word (&x)[kCount], double total) {
    if constexpr (std::is_same_v<T, Half>) {
      return total - total == 0;
    } else {
      return AreClose<53 - FloatFormat<T>::kSignificant - kLog2<kCount>>(x);
    }
  }
  template <int kCount>
  static constexpr int kLog2 = kCount <= 1   ? 0
                               : kCount <= 2 ? 1
                               : kCount <= 4 ? 2
                               : kCount <= 8 ? 3
                                             : 4;
  // Whether they are finite, and the exponents of those that aren't zero differ by at most kMostApart.
  template <std::uint32_t kMostApart, int kCount>
  REDUCED_HD static bool AreClose(const Word (&x)[kCount]) {
    using Format = FloatFormat<T>;
    static_assert(kCount <= 16);
    constexpr std::uint32_t kMagnitude = (std::uint32_t{1} << (8 * sizeof(Word) - 1)) - 1;
    std::uint32_t largest = 0, least_less_one = ~std::uint32_t{0};
    REDUCED_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t magnitude = x[i] & kMagnitude;
      const std::uint32_t less_one = magnitude - 1;  // of 0: the largest, so that it drops out
      largest = largest > magnitude ? largest : magnitude;
      least_less_one = least_less_one < less_one ? least_less_one : less_one;
    }
    return largest < Format::kInfinity &&
           largest >> Format::kFraction <= (least_less_one >> Format::kFraction) + kMostApart;
  }
};

// Sums and means of integers and bool: in 64 bits, or in 128 those of 64 bits. Unsigned ones are taken as signed, 2^(w
// - 1) less each.
template <int kBytes>
struct QuickIntegerSum {
  using Word = WordOfBytes<kBytes>;
  using Signed = std::make_signed_t<Word>;

  std::uint64_t sum = 0;
  std::conditional_t<kBytes == 8, std::int64_t, char> high = 0;  // 64 more bits

  REDUCED_HD static Word Absent(Word /*first*/, const QuickElements&) { return 0; }

  REDUCED_HD void AddWide(std::uint64_t low, std::int64_t more) {
    sum += low;
    if constexpr (kBytes == 8) high += more + (sum < low ? 1 : 0);
  }

  template <int kCount, class Position>
  REDUCED_HD void Add(const Word (&x)[kCount], int /*n*/, Position, const QuickElements&) {
    if constexpr (kBytes == 8) {
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const auto value = static_cast<std::int64_t>(x[i]);
        AddWide(static_cast<std::uint64_t>(value), value >> 63);
      }
    } else {
      using Few = std::conditional_t<kBytes == 4, std::int64_t, std::int32_t>;  // which a few elements fit in
      sum += static_cast<std::uint64_t>(std::int64_t{TotalOf<Few>(x)});
    }
  }

  REDUCED_HD void Merge(const QuickIntegerSum& other) { AddWide(other.sum, other.high); }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    Int128 total = static_cast<std::int64_t>(sum);
    if constexpr (kBytes == 8)
      total = static_cast<Int128>(static_cast<UInt128>(static_cast<std::uint64_t>(high)) << 64 | sum);
    if (of.is_unsigned) total += Int128{of.count} << (8 * kBytes - 1);
    const bool negative = total < 0;
    const auto magnitude = static_cast<UInt128>(negative ? -total : total);
    const bool wide = magnitude >> 63 != 0;  // beyond what has its mean here; sums of u64 may still fit
    const bool fits = !wide || (of.is_unsigned && magnitude >> 64 == 0);
    for (int i = 0; i < ops; ++i) {
      const QuickAnswer& answer = answers[i];
      if (answer.op == Op::kCount) {
        StoreAnswer(answer, output, of.count);
      } else if (answer.op == Op::kNanCount) {
        StoreAnswer(answer, output, std::int64_t{0});
      } else if (answer.op == Op::kSum) {
        if (!fits) return false;  // or it is -2^63
        StoreAnswer(answer, output, static_cast<std::uint64_t>(total));
      } else {
        if (wide) return false;
        const auto whole = static_cast<std::int64_t>(magnitude);
        double most = static_cast<double>(whole);
        if (most >= 0x1p63) return false;
        double mean;
        if (!RoundedMean(most, static_cast<double>(whole - static_cast<std::int64_t>(most)), of.count, &mean)) {
          return false;
        }
        StoreAnswer(answer, output, negative ? -mean : mean);
      }
    }
    return true;
  }

 private:
  template <class Few, int kCount>
  REDUCED_HD static Few TotalOf(const Word (&x)[kCount]) {
    Few total = 0;
#ifdef __CUDA_ARCH__
    if constexpr (kBytes == 1 && kCount % 4 == 0) {  // four in an instruction
      unsigned words[kCount / 4];
      memcpy(words, x, sizeof(words));
      REDUCED_UNROLL
      for (int i = 0; i < kCount / 4; ++i) {
        total = __dp4a(static_cast<int>(words[i]), 0x01010101, total);
      }
      return total;
    } else
#endif
    {
      REDUCED_UNROLL
      for (int i = 0; i < kCount; ++i) {
        total += static_cast<Signed>(x[i]);
      }
      return total;
    }
  }
};

// Extrema by their keys (algebra/order_key.h), and where they are first.
template <int kBytes>
struct QuickExtremum {
  using Word = WordOfBytes<kBytes>;
  using Key = std::conditional_t<kBytes == 8, std::int64_t, std::int32_t>;
  static constexpr Key kLargest =
      static_cast<Key>((std::uint64_t{1} << (8 * sizeof(Key) - 1)) - 1);  // what no lower key is above

  Key low = kLargest;
  Key high = -kLargest - 1;
  std::uint32_t low_at = kNowhere;  // also: no element. Any other number, if positions aren't asked for
  std::uint32_t high_at = kNowhere;
  std::uint32_t nan_at = kNowhere;
  std::uint32_t nans = 0;

  REDUCED_HD static Word Absent(Word first, const QuickElements&) { return first; }

  REDUCED_HD static Key KeyOf(Word word, const QuickElements& of) {
    const auto key = static_cast<Key>(static_cast<std::make_signed_t<Word>>(word));
    if constexpr (kBytes == 1) {
      return key;  // there are no floats of a byte
    } else {
      return key ^ ((key >> (8 * sizeof(Key) - 1)) & static_cast<Key>(of.fold));
    }
  }
  // The element that has the key.
  REDUCED_HD static Word WordOf(Key key, const QuickElements& of) {
    return static_cast<Word>(static_cast<Word>(key ^ ((key >> (8 * sizeof(Key) - 1)) & static_cast<Key>(of.fold))) ^
                             static_cast<Word>(of.flip));
  }

  // Adds elements, of which the first `n` >= 1 are there; position(i): of the i-th, ascending.
  template <int kCount, class Position>
  REDUCED_HD void Add(const Word (&x)[kCount], int n, Position position, const QuickElements& of) {
    const auto infinity = static_cast<Key>(of.infinity);
    Key lowest, highest;
    Bounds(x, of, &lowest, &highest);
    if (highest > infinity || lowest < ~infinity) {
      *this = AddedWithNans(*this, TileOf(x), n, position, of);
      return;
    }
    if (lowest < low || low_at == kNowhere) {
      low = lowest;
      low_at = of.positions_low ? position(Find(x, lowest, of)) : 0;
    }
    if (highest > high || high_at == kNowhere) {
      high = highest;
      high_at = of.positions_high ? position(Find(x, highest, of)) : 0;
    }
  }

  REDUCED_HD void Merge(const QuickExtremum& other) {
    if (other.low < low || (other.low == low && other.low_at < low_at)) {
      low = other.low;
      low_at = other.low_at;
    }
    if (other.high > high || (other.high == high && other.high_at < high_at)) {
      high = other.high;
      high_at = other.high_at;
    }
    nan_at = other.nan_at < nan_at ? other.nan_at : nan_at;
    nans += other.nans;
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    const bool nan = nan_at != kNowhere && !of.omit_nan;
    if (!nan && low_at == kNowhere) return false;  // nothing but NaNs
    for (int i = 0; i < ops; ++i) {
      const QuickAnswer& answer = answers[i];
      const bool lowest = answer.op == Op::kMin || answer.op == Op::kArgmin;
      if (answer.op == Op::kCount) {
        StoreAnswer(answer, output, of.count - (of.omit_nan ? std::int64_t{nans} : 0));
      } else if (answer.op == Op::kNanCount) {
        StoreAnswer(answer, output, std::int64_t{nans});
      } else if (answer.op == Op::kArgmin || answer.op == Op::kArgmax) {
        StoreAnswer(answer, output, std::uint64_t{nan ? nan_at : lowest ? low_at : high_at});
      } else if (answer.op == Op::kRange) {
        if (!StoreRange(answer, output, nan, of)) return false;
      } else {
        StoreAnswer(answer, output, nan ? static_cast<Word>(of.quiet_nan) : WordOf(lowest ? low : high, of));
      }
    }
    return true;
  }

 private:
  // Which of the elements is the first with that key.
  template <int kCount>
  REDUCED_HD static int Find(const Word (&x)[kCount], Key key, const QuickElements& of) {
    int found = 0;
    REDUCED_UNROLL
    for (int i = kCount - 1; i > 0; --i) found = KeyOf(x[i], of) == key ? i : found;
    return KeyOf(x[0], of) == key ? 0 : found;
  }

  template <int kCount>
  REDUCED_HD static QuickTile<Word, kCount> TileOf(const Word (&x)[kCount]) {
    QuickTile<Word, kCount> tile;
    REDUCED_UNROLL
    for (int i = 0; i < kCount; ++i) tile.word[i] = x[i];
    return tile;
  }
  template <int kCount, class Position>
  REDUCED_SELDOM static QuickExtremum AddedWithNans(QuickExtremum fold, QuickTile<Word, kCount> tile, int n,
                                                    Position position, const QuickElements& of) {
    const auto infinity = static_cast<Key>(of.infinity);
    for (int i = 0; i < n; ++i) {
      const Key key = KeyOf(tile.word[i], of);
      if (key > infinity || key < ~infinity) {
        if (fold.nan_at == kNowhere) fold.nan_at = position(i);  // positions ascend
        ++fold.nans;
        continue;
      }
      if (key < fold.low || fold.low_at == kNowhere) {
        fold.low = key;
        fold.low_at = position(i);
      }
      if (key > fold.high || fold.high_at == kNowhere) {
        fold.high = key;
        fold.high_at = position(i);
      }
    }
    return fold;
  }

  // The lowest and the highest key; on the device two keys of 16 bits by one instruction.
  template <int kCount>
  REDUCED_HD static void Bounds(const Word (&x)[kCount], const QuickElements& of, Key* lowest, Key* highest) {
#ifdef __CUDA_ARCH__
    if constexpr (kBytes <= 2 && kCount % 4 == 0) {
      constexpr int kWords = kCount * kBytes / 4;
      unsigned words[kWords];
      memcpy(words, x, sizeof(words));
      unsigned low_pair = 0x7fff7fffU, high_pair = 0x80008000U;
      const auto take = [&](unsigned pair) {
        low_pair = __vmins2(low_pair, pair);
        high_pair = __vmaxs2(high_pair, pair);
      };
      const unsigned inverted = static_cast<unsigned>(of.fold) * 0x00010001U;
      REDUCED_UNROLL
      for (int i = 0; i < kWords; ++i) {
        if constexpr (kBytes == 2) {
          take(words[i] ^ (((words[i] >> 15) & 0x00010001U) * 0x7fffU & inverted));
        } else {  // bytes 0 and 1, then 2 and 3, each with its sign
          unsigned lower, upper;
          asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(lower) : "r"(words[i]));
          asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(upper) : "r"(words[i]));
          take(lower);
          take(upper);
        }
      }
      const auto half = [](unsigned pair, int shift) { return static_cast<Key>(static_cast<short>(pair >> shift)); };
      *lowest = min(half(low_pair, 0), half(low_pair, 16));
      *highest = max(half(high_pair, 0), half(high_pair, 16));
      return;
    } else
#endif
    {
      *lowest = *highest = KeyOf(x[0], of);
      REDUCED_UNROLL
      for (int i = 1; i < kCount; ++i) {
        const Key key = KeyOf(x[i], of);
        *lowest = key < *lowest ? key : *lowest;
        *highest = key > *highest ? key : *highest;
      }
    }
  }

  REDUCED_HD bool StoreRange(const QuickAnswer& answer, std::int64_t output, bool nan, const QuickElements& of) const {
    if (of.fold == 0) {  // integers, which differ by what their keys do
      StoreAnswer(answer, output,
                  static_cast<std::uint64_t>(std::int64_t{high}) - static_cast<std::uint64_t>(std::int64_t{low}));
      return true;
    }
    double range = BitsAs<double>(std::uint64_t{0x7ff8000000000000});
    if (!nan) range = ValueOf(WordOf(high, of), of) - ValueOf(WordOf(low, of), of);
    if (!nan && range != range) return false;  // infinities of one sign: the host's NaN
    StoreAnswer(answer, output, range);
    return true;
  }
  REDUCED_HD static double ValueOf(Word word, const QuickElements& of) {
    if constexpr (kBytes == 2) {
      return of.dtype == DType::kF16 ? ToDouble(Half{word}) : ToDouble(BFloat16{word});
    } else if constexpr (kBytes == 4) {
      return BitsAs<float>(word);
    } else if constexpr (kBytes == 8) {
      return BitsAs<double>(word);
    } else {
      return 0;  // there are no floats of a byte
    }
  }
};

// How many elements are not zero, and how many NaN.
template <int kBytes>
struct QuickCount {
  using Word = WordOfBytes<kBytes>;

  std::uint32_t nonzero = 0;
  std::uint32_t nans = 0;

  REDUCED_HD static Word Absent(Word /*first*/, const QuickElements& of) { return static_cast<Word>(of.flip); }

  template <int kCount, class Position>
  REDUCED_HD void Add(const Word (&x)[kCount], int /*n*/, Position, const QuickElements& of) {
    const auto zero = static_cast<Word>(of.flip), mask = static_cast<Word>(of.magnitude);
    const auto infinity = static_cast<Word>(of.infinity);
    REDUCED_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const auto magnitude = static_cast<Word>(x[i] & mask);
      nonzero += magnitude != zero ? 1 : 0;
      nans += of.fold != 0 && magnitude > infinity ? 1 : 0;
    }
  }

  REDUCED_HD void Merge(const QuickCount& other) {
    nonzero += other.nonzero;
    nans += other.nans;
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    const std::int64_t left_out = of.omit_nan ? nans : 0;
    const std::int64_t counted = of.count - left_out, some = nonzero - left_out;
    for (int i = 0; i < ops; ++i) {
      const QuickAnswer& answer = answers[i];
      switch (answer.op) {
        case Op::kAny:
          StoreAnswer(answer, output, static_cast<std::uint8_t>(some > 0 ? 1 : 0));
          break;
        case Op::kAll:
          StoreAnswer(answer, output, static_cast<std::uint8_t>(some == counted ? 1 : 0));
          break;
        case Op::kCountNonzero:
          StoreAnswer(answer, output, some);
          break;
        case Op::kNanCount:
          StoreAnswer(answer, output, std::int64_t{nans});
          break;
        default:
          StoreAnswer(answer, output, counted);
          break;
      }
    }
    return true;
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_FOLDS_H_
