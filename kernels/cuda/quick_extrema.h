// Folds of quick_folds.h: extrema with their positions, and counts.
#ifndef REDUCED_KERNELS_CUDA_QUICK_EXTREMA_H_
#define REDUCED_KERNELS_CUDA_QUICK_EXTREMA_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/algebra/order_key.h"
#include "kernels/cuda/quick_folds.h"

namespace reduced {

// Extrema by their keys (algebra/order_key.h), and where they are first.
template <int kBytes>
struct QuickExtremum {
  using Word = WordOfBytes<kBytes>;
  using Key = std::conditional_t<kBytes == 8, std::int64_t, std::int32_t>;
  static constexpr bool kCountsPadding = true;
  static constexpr Key kLargest =
      static_cast<Key>((std::uint64_t{1} << (8 * sizeof(Key) - 1)) - 1);  // what no lower key is above

  Key low = kLargest;
  Key high = -kLargest - 1;
  std::uint32_t low_at = kNowhere;  // also: no element. Any other number, if positions aren't asked for
  std::uint32_t high_at = kNowhere;
  std::uint32_t nan_at = kNowhere;
  std::uint32_t nans = 0;

  REDUCED_HD static Word Padding(Word first, const QuickElements&) { return first; }
  // Takes back n elements of padding, which are all `padding`.
  REDUCED_HD void Forget(int n, Word padding, const QuickElements& of) {
    const Key key = KeyOf(padding, of);
    const auto infinity = static_cast<Key>(of.infinity);
    if (key > infinity || key < ~infinity) nans -= static_cast<std::uint32_t>(n);
  }

  REDUCED_HD static Key KeyOf(Word word, const QuickElements& of) {
    const auto key = static_cast<Key>(static_cast<std::make_signed_t<Word>>(word));
    if constexpr (kBytes == 1) {
      return key;  // there are no floats of a byte
    } else {
      return FoldedKey(key, static_cast<Key>(of.fold));
    }
  }
  // The word that has the key, and the element.
  REDUCED_HD static Word PreparedOf(Key key, const QuickElements& of) {
    return static_cast<Word>(FoldedKey(key, static_cast<Key>(of.fold)));
  }
  REDUCED_HD static Word WordOf(Key key, const QuickElements& of) {
    return static_cast<Word>(PreparedOf(key, of) ^ static_cast<Word>(of.flip));
  }

  // Adds elements, of which those after the first `n` >= 1 are padding; position(i): of the i-th, ascending.
  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int n, Position position, const QuickElements& of) {
    const auto infinity = static_cast<Key>(of.infinity);
    Key lowest, highest;
    Bounds(x, of, &lowest, &highest);
    if (highest > infinity || lowest < ~infinity) {
      *this = AddedWithNans(*this, x, n, position, of);
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
    return StoreEachAnswer(answers, ops, output, nans, of, [&](const QuickAnswer& answer) {
      const bool lowest = IsOfLowest(answer.op);
      if (answer.op == Op::kRange) return StoreRange(answer, output, nan, of);
      if (HasPosition(answer.op)) {
        StoreAnswer(answer, output, std::uint64_t{nan ? nan_at : lowest ? low_at : high_at});
      } else {
        StoreAnswer(answer, output, nan ? static_cast<Word>(of.quiet_nan) : WordOf(lowest ? low : high, of));
      }
      return true;
    });
  }

 private:
  // Which of the elements is the first with that key. One has it.
  template <int kCount>
  REDUCED_HD static int Find(const QuickTile<Word, kCount>& x, Key key, const QuickElements& of) {
    const Word word = PreparedOf(key, of);
#ifdef __CUDA_ARCH__
    if constexpr (kBytes <= 2 && kCount % x.kPacked == 0) {  // all of a pack by one comparison
      const unsigned words = word * (kBytes == 1 ? 0x01010101U : 0x00010001U);
      int found = 0;
      unsigned equal = 0;
      REDUCED_UNROLL
      for (int i = kCount / x.kPacked - 1; i >= 0; --i) {
        const unsigned these = kBytes == 1 ? __vcmpeq4(x.pack[i], words) : __vcmpeq2(x.pack[i], words);
        found = these != 0 ? i : found;
        equal = these != 0 ? these : equal;
      }
      return found * x.kPacked + (__ffs(static_cast<int>(equal)) - 1) / (8 * kBytes);
    } else
#endif
    {
      int found = 0;
      REDUCED_UNROLL
      for (int i = kCount - 1; i > 0; --i) found = x[i] == word ? i : found;
      return x[0] == word ? 0 : found;
    }
  }

  template <int kCount, class Position>
  REDUCED_SELDOM static QuickExtremum AddedWithNans(QuickExtremum fold, QuickTile<Word, kCount> tile, int n,
                                                    Position position, const QuickElements& of) {
    const auto infinity = static_cast<Key>(of.infinity);
    for (int i = 0; i < n; ++i) {
      const Key key = KeyOf(tile[i], of);
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
  REDUCED_HD static void Bounds(const QuickTile<Word, kCount>& x, const QuickElements& of, Key* lowest, Key* highest) {
#ifdef __CUDA_ARCH__
    if constexpr (kBytes <= 2 && kCount % 4 == 0) {
      unsigned low_pair = 0x7fff7fffU, high_pair = 0x80008000U;
      const auto take = [&](unsigned pair) {
        low_pair = __vmins2(low_pair, pair);
        high_pair = __vmaxs2(high_pair, pair);
      };
      const unsigned inverted = static_cast<unsigned>(of.fold) * 0x00010001U;
      REDUCED_UNROLL
      for (const unsigned pack : x.pack) {
        if constexpr (kBytes == 2) {
          take(pack ^ (((pack >> 15) & 0x00010001U) * 0x7fffU & inverted));
        } else {  // bytes 0 and 1, then 2 and 3, each with its sign
          unsigned lower, upper;
          asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(lower) : "r"(pack));
          asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(upper) : "r"(pack));
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

  REDUCED_HD static Word Padding(Word /*first*/, const QuickElements& of) { return static_cast<Word>(of.flip); }

  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int /*n*/, Position, const QuickElements& of) {
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
    for (int i = 0; i < ops; ++i) {
      const QuickAnswer& answer = answers[i];
      const std::int64_t value = CountAnswer(answer.op, {of.count, nonzero, nans}, of.omit_nan);
      if (answer.op == Op::kAny || answer.op == Op::kAll) {
        StoreAnswer(answer, output, static_cast<std::uint8_t>(value));
      } else {
        StoreAnswer(answer, output, value);
      }
    }
    return true;
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_EXTREMA_H_
