// Fold of quick_folds.h: the bits of integers and bool, joined by and, or, xor.
#ifndef REDUCED_KERNELS_CUDA_QUICK_BITS_H_
#define REDUCED_KERNELS_CUDA_QUICK_BITS_H_

#include <cstdint>

#include "kernels/cuda/quick_folds.h"

namespace reduced {

// Of whole packs, whose elements are joined in the end. Elements are taken as they are: `flip` is 0.
template <int kBytes>
struct QuickBitwise {
  using Word = WordOfBytes<kBytes>;
  using Pack = typename QuickTile<Word, 1>::Pack;
  static constexpr int kBits = 8 * kBytes, kPackBits = 8 * sizeof(Pack);
  static constexpr bool kCountsPadding = true;

  Pack all = static_cast<Pack>(~Pack{0});
  Pack any = 0;
  Pack odd = 0;

  REDUCED_HD static Word Padding(Word first, const QuickElements&) { return first; }
  // Takes back n elements of padding, which are all `padding`: an even number of them has changed nothing.
  REDUCED_HD void Forget(int n, Word padding, const QuickElements&) {
    if (n % 2 != 0) odd ^= padding;
  }

  // Adds elements, of which those after the first `n` >= 1 are padding. Positions do not matter.
  template <int kCount, class Position>
  REDUCED_HD void Add(const QuickTile<Word, kCount>& x, int n, Position, const QuickElements& of) {
    constexpr int kPacked = QuickTile<Word, kCount>::kPacked,
                  kLast = kCount % kPacked;  // elements of the last pack; 0: all
    REDUCED_UNROLL
    for (int i = 0; i < kCount; i += kPacked) {
      const Pack unused = i + kPacked > kCount ? static_cast<Pack>(~Pack{0} << (kBits * kLast)) : 0;
      const Pack pack = x.pack[i / kPacked];
      all &= pack | unused;
      any |= pack & ~unused;
      odd ^= pack & ~unused;
    }
    if (n < kCount) Forget(kCount - n, x[kCount - 1], of);
  }

  REDUCED_HD void Merge(const QuickBitwise& other) {
    all &= other.all;
    any |= other.any;
    odd ^= other.odd;
  }

  REDUCED_HD bool Finish(const QuickAnswer* answers, int ops, std::int64_t output, const QuickElements& of) const {
    QuickBitwise joined = *this;
    REDUCED_UNROLL
    for (int bits = kPackBits / 2; bits >= kBits; bits /= 2) {
      joined.Merge({static_cast<Pack>(joined.all >> bits), static_cast<Pack>(joined.any >> bits),
                    static_cast<Pack>(joined.odd >> bits)});
    }
    return StoreEachAnswer(answers, ops, output, 0, of, [&](const QuickAnswer& answer) {
      const Pack bits = answer.op == Op::kBitAnd ? joined.all : answer.op == Op::kBitOr ? joined.any : joined.odd;
      StoreAnswer(answer, output, static_cast<Word>(bits));
      return true;
    });
  }
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_BITS_H_
