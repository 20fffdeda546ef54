// Compiled for each vector target: see quick_bits.h.
#include "kernels/cpu/quick_bits.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quick_bits.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

// As many bits as an element has; of bool (kBool), 1 if it is not 0.
template <class Word, bool kBool>
HWY_INLINE Word WordAt(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  if constexpr (kBool) return word != 0 ? 1 : 0;
  return word;
}

// Of no element.
template <class Word, bool kBool, Op kOp>
constexpr Word kNoBits = kOp != Op::kBitAnd ? 0
                         : kBool            ? 1
                                            : std::numeric_limits<Word>::max();

template <Op kOp, class Word>
HWY_INLINE Word Join(Word a, Word b) {
  if constexpr (kOp == Op::kBitAnd) return static_cast<Word>(a & b);
  if constexpr (kOp == Op::kBitOr) return static_cast<Word>(a | b);
  return static_cast<Word>(a ^ b);
}

template <class Word, bool kBool, Op kOp>
struct BitsOfOutputs {
  static constexpr std::int64_t kBytes = sizeof(Word);
  static constexpr Word kNone = kNoBits<Word, kBool, kOp>;

  static void Columns(const Layout& layout, const std::byte* start, std::int64_t count, QuickBits* into) {
    Word joined[kQuickOutputs];
    std::fill_n(joined, count, kNone);
    const Dimension inner = layout.reduced.empty() ? Dimension{.size = 1} : layout.reduced.back();
    const std::int64_t stride = inner.stride * kBytes;
    for (std::int64_t run = 0; run < layout.elements; run += inner.size) {
      const std::byte* row = start + layout.At(run) * kBytes;
      std::int64_t i = 0;
      for (; i + 4 <= inner.size; i += 4, row += 4 * stride) {  // fewer loads and stores of what is joined
        for (std::int64_t g = 0; g < count; ++g) {
          const std::byte* const at = row + g * kBytes;
          const Word some = Join<kOp>(WordAt<Word, kBool>(at), WordAt<Word, kBool>(at + stride));
          const Word more = Join<kOp>(WordAt<Word, kBool>(at + 2 * stride), WordAt<Word, kBool>(at + 3 * stride));
          joined[g] = Join<kOp>(joined[g], Join<kOp>(some, more));
        }
      }
      for (; i < inner.size; ++i, row += stride) {
        for (std::int64_t g = 0; g < count; ++g) {
          joined[g] = Join<kOp>(joined[g], WordAt<Word, kBool>(row + g * kBytes));
        }
      }
    }
    std::copy_n(joined, count, into->words);
  }

  static HWY_INLINE Word One(const std::byte* from, std::int64_t elements) {
    Word joined = kNone;
    for (std::int64_t i = 0; i < elements; ++i) joined = Join<kOp>(joined, WordAt<Word, kBool>(from + i * kBytes));
    return joined;
  }

  static void Rows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickBits* into) {
    for (std::int64_t g = 0; g < count; ++g) into->words[g] = One(start + g * elements * kBytes, elements);
  }

  static void Segments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickBits* into) {
    for (std::int64_t g = 0; g < count; ++g) {
      into->words[g] = One(start + bounds[g] * kBytes, bounds[g + 1] - bounds[g]);
    }
  }

  static void Clear(std::int64_t count, QuickBits* into) { std::fill_n(into->words, count, kNone); }

  static void Merge(const QuickBits& from, std::int64_t at, std::int64_t count, QuickBits* into) {
    for (std::int64_t g = 0; g < count; ++g) into->words[g] = Join<kOp>(into->words[g], from.words[at + g]);
  }

  static void Store(const QuickBits& bits, std::int64_t count, std::byte* out) {
    for (std::int64_t g = 0; g < count; ++g) {
      const auto word = static_cast<Word>(bits.words[g]);
      std::memcpy(out + g * kBytes, &word, sizeof(word));
    }
  }

  static constexpr QuickBitsOf kAll{&Columns, &Rows, &Segments, &Clear, &Merge, &Store};
};

template <class Word, bool kBool>
QuickBitsOf BitsOfOp(Op op) {
  switch (op) {
    case Op::kBitAnd:
      return BitsOfOutputs<Word, kBool, Op::kBitAnd>::kAll;
    case Op::kBitOr:
      return BitsOfOutputs<Word, kBool, Op::kBitOr>::kAll;
    default:
      return BitsOfOutputs<Word, kBool, Op::kBitXor>::kAll;
  }
}

QuickBitsOf ChooseBits(DType dtype, Op op) {
  if (RowOf(dtype).is_float) return {};
  if (dtype == DType::kBool) return BitsOfOp<std::uint8_t, true>(op);
  switch (RowOf(dtype).bytes) {
    case 1:
      return BitsOfOp<std::uint8_t, false>(op);
    case 2:
      return BitsOfOp<std::uint16_t, false>(op);
    case 4:
      return BitsOfOp<std::uint32_t, false>(op);
    default:
      return BitsOfOp<std::uint64_t, false>(op);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(ChooseBits);

QuickBitsOf QuickBitsFor(DType dtype, Op op) { return HWY_DYNAMIC_DISPATCH(ChooseBits)(dtype, op); }

}  // namespace reduced
#endif
