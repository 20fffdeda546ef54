// Outputs in registers, along axes and of groups: what a thread knows of an output, or of a part of it, and how that
// becomes an answer. This is what folds have in common; quick_sums.h, quick_moments.h, quick_wide_moments.h,
// quick_extrema.h, quick_bits.h and quick_products.h have them. For the device, and for the host where a device is
// simulated.
//
// A fold takes elements as the words of their bits (PreparedWord), a tile at a time, and their positions in the output;
// folds of parts are merged in any order. Integers, and the keys of extrema, have one fold for each size of element:
// what depends on the dtype is data (QuickElements). Finish() writes an output's answers or, if they are not known so,
// returns false: then the output is to be folded to a state and finalized on the host.
#ifndef REDUCED_KERNELS_CUDA_QUICK_FOLDS_H_
#define REDUCED_KERNELS_CUDA_QUICK_FOLDS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/algebra/answer.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/portable.h"

namespace reduced {

// What words are elements of.
struct QuickElements {
  DType dtype = DType::kF32;
  bool is_bool = false;      // any byte but 0 is 1
  bool is_unsigned = false;  // integers; not bool
  // Folds of sums take absolute values. Those of signed integers are unsigned ones, as is_unsigned and flip say.
  bool absolute = false;
  // The overflow policy of sums and products of integers that 64 bits don't hold. If neither is set, the host decides.
  bool wraps = false;
  bool saturates = false;
  std::uint64_t flip = 0;       // of unsigned integers: the top bit, without which they compare as signed ones
  std::uint64_t fold = 0;       // of floats: all bits but the sign, which negative ones have inverted in their key
  std::uint64_t magnitude = 0;  // of floats: all bits but the sign; else all bits
  std::int64_t infinity = 0;    // the bits, and the key, of infinity; integers: of the largest key
  std::uint64_t quiet_nan = 0;  // the bits of the NaN that answers are
  bool omit_nan = false;
  bool positions_low = false;  // where the lowest element is, is asked for
  bool positions_high = false;
  std::int64_t count = 0;  // elements of an output, fewer than EndOfQuickElements()
  std::int64_t ddof = 0;
};

// Where the answers to an op go: to an array of results. On the device at a multiple of their size, on the host
// anywhere.
struct QuickAnswer {
  Op op = Op::kSum;
  std::byte* results = nullptr;
};
inline constexpr int kMostQuickOps = 8;  // that a fold answers

inline constexpr int kQuickFoldBytes = 56;  // of a fold, at most

// Loops whose elements are to be in registers.
#ifdef __CUDA_ARCH__
#define REDUCED_UNROLL _Pragma("unroll")
#else
#define REDUCED_UNROLL
#endif

// What is seldom called and would take registers from what is not. Folds go to it by value, so that they need not be in
// memory.
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

// Elements that a fold takes at once, as they lie in memory: those of less than 32 bits are packed, the first lowest.
template <class Word, int kCount>
struct QuickTile {
  using Pack = std::conditional_t<sizeof(Word) == 8, std::uint64_t, std::uint32_t>;
  static constexpr int kBits = 8 * sizeof(Word);
  static constexpr int kPacked = sizeof(Word) < 4 ? 4 / sizeof(Word) : 1;  // elements of a pack

  Pack pack[(kCount + kPacked - 1) / kPacked];

  REDUCED_HD Word operator[](int i) const { return static_cast<Word>(pack[i / kPacked] >> (kBits * (i % kPacked))); }
  REDUCED_HD void Set(int i, Word word) {
    const int shift = kBits * (i % kPacked);
    Pack& to = pack[i / kPacked];
    to = static_cast<Pack>((to & ~(static_cast<Pack>(static_cast<Word>(~Word{0})) << shift)) | Pack{word} << shift);
  }
};

// As many ones as a pack has elements, one in the lowest bit of each.
template <class Word>
inline constexpr std::uint64_t kEachOfPack = sizeof(Word) == 1   ? 0x01010101
                                             : sizeof(Word) == 2 ? 0x00010001
                                                                 : 1;

// The absolute values of a pack of signed integers, as unsigned ones: that of the lowest integer is 2^(w - 1).
template <class Word, class Pack>
REDUCED_HD Pack AbsoluteOf(Pack pack) {
  const Pack negative = (pack >> (8 * sizeof(Word) - 1)) & static_cast<Pack>(kEachOfPack<Word>);
  return (pack ^ (negative * static_cast<Word>(~Word{0}))) + negative;  // nothing is carried to the next element
}

// The word that folds take for an element, or for its absolute value: unsigned integers as the signed ones that are in
// the same order, and 1 for every byte of bool but 0. Only floats have a `fold`.
template <class Word>
REDUCED_HD Word PreparedWord(Word word, const QuickElements& of) {
  if (of.is_bool) return word != 0 ? 1 : 0;
  typename QuickTile<Word, 1>::Pack pack = word;
  if (of.absolute) pack = of.fold != 0 ? pack & static_cast<Word>(of.magnitude) : AbsoluteOf<Word>(pack);
  return static_cast<Word>(pack ^ of.flip);
}

template <class Value>
REDUCED_HD void StoreAnswer(const QuickAnswer& answer, std::int64_t output, Value value) {
#ifdef __CUDA_ARCH__
  reinterpret_cast<Value*>(answer.results)[output] = value;
#else
  memcpy(answer.results + output * static_cast<std::int64_t>(sizeof(value)), &value, sizeof(value));
#endif
}

// Stores the answers to `ops` ops, of which all folds answer `count` and `nan_count`. store(answer) stores the answer
// to another op; false, and then the output is left open, if it is not known. nans: how many elements are NaN.
template <class Store>
REDUCED_HD bool StoreEachAnswer(const QuickAnswer* answers, int ops, std::int64_t output, std::int64_t nans,
                                const QuickElements& of, Store store) {
  for (int i = 0; i < ops; ++i) {
    const QuickAnswer& answer = answers[i];
    if (answer.op == Op::kCount || answer.op == Op::kNanCount) {
      StoreAnswer(answer, output, CountAnswer(answer.op, {.elements = of.count, .nans = nans}, of.omit_nan));
    } else if (!store(answer)) {
      return false;
    }
  }
  return true;
}

// Stores an integer of which `bits` are the low 64. False: these don't hold it (fits), and no policy says what the
// answer is then. is_unsigned: as the answer is.
REDUCED_HD bool StoreInteger(const QuickAnswer& answer, std::int64_t output, std::uint64_t bits, bool fits,
                             bool negative, bool is_unsigned, const QuickElements& of) {
  if (!fits && !of.saturates && !of.wraps) return false;
  StoreAnswer(answer, output, fits || of.wraps ? bits : SaturatedBits(negative, is_unsigned));
  return true;
}

template <int kBytes>
using WordOfBytes = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t, std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_FOLDS_H_
