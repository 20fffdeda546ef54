// Sort keys on the device, and the bins that a selection counts them in.
#ifndef REDUCED_KERNELS_CUDA_KEY_BINS_CUH_
#define REDUCED_KERNELS_CUDA_KEY_BINS_CUH_

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/selection.h"

namespace reduced {

// A key as shuffles take it.
template <class Word>
using Bits = std::conditional_t<sizeof(Word) == 8, std::uint64_t, unsigned>;

// The key of an element with the bits `raw` in a format that no option changes. Integers are treated as floats, which
// saves a branch: none of their keys is outside of their bounds.
template <class Word>
__device__ inline Word PlainKeyOf(Word raw, KeyFormat format) {
  format.is_float = true;
  format.zeros_join = format.omit_nan = format.descends = format.nan_first = false;
  bool counts;
  return KeyOf(raw, format, &counts);
}

// Assigns the keys [lo, lo + span] to bins of equal width. A greater key is never in a lesser bin.
template <class Word, int kDigit>
class KeyBins {
 public:
  static constexpr unsigned kCount = 1U << kDigit;
  static constexpr bool kMayBeByValue = sizeof(Word) >= 4;

  KeyBins() = default;
  // Bins of 2^shift keys.
  __device__ KeyBins(Word least, Word greatest) : lo(least), span(static_cast<Word>(greatest - least)) {
    const int bits =
        sizeof(Word) == 8 ? 64 - __clzll(static_cast<long long>(span)) : 32 - __clz(static_cast<int>(span));
    shift = max(0, bits - kDigit);
  }
  // Makes the bins equally wide in value, if the keys are those of floats with a finite range. The exponents of most
  // distributions differ little, so that few bins of keys would have most elements.
  __device__ void UseValues(const KeyFormat& format) {
    if (!kMayBeByValue || !format.is_float || span == 0) return;
    first_ = ValueOf(lo);
    scale_ = static_cast<Value>(kCount) / (ValueOf(static_cast<Word>(lo + span)) - first_);
    by_value = scale_ > 0 && scale_ <= std::numeric_limits<Value>::max();
  }

  __device__ bool Has(Word key) const { return static_cast<Word>(key - lo) <= span; }
  // Of a key that is there.
  __device__ unsigned ByKey(Word key) const { return static_cast<unsigned>(static_cast<Word>(key - lo) >> shift); }
  __device__ unsigned ByValue(Word key) const {
    return min(static_cast<unsigned>((ValueOf(key) - first_) * scale_), kCount - 1);
  }
  // The keys of one bin, if not by value.
  __device__ KeyBins Within(unsigned bin) const {
    const auto begin = static_cast<Word>(lo + static_cast<Word>(Word(bin) << shift));
    const auto rest = static_cast<Word>(span - static_cast<Word>(begin - lo));
    return {begin, static_cast<Word>(begin + min(rest, static_cast<Word>((Word{1} << shift) - 1)))};
  }

  Word lo = 0;
  Word span = 0;
  int shift = 0;
  bool by_value = false;

 private:
  using Value = std::conditional_t<sizeof(Word) == 8, double, float>;
  static __device__ Value ValueOf(Word key) {
    constexpr Bits<Word> kSign = Bits<Word>{1} << (8 * sizeof(Bits<Word>) - 1);
    return std::bit_cast<Value>(Bits<Word>{key} ^ (Bits<Word>{key} >= kSign ? kSign : ~Bits<Word>{0}));
  }

  Value first_ = 0;
  Value scale_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_KEY_BINS_CUH_
