// Selection among a few elements for each thread by the bits of their sort keys.
//
// A thread has the keys of 32 elements as planes: word b of KeyPlanes has bit b of each key, so that an instruction
// takes 32 elements. Planes are made by transposing the bits of elements as they lie in memory; then they are turned
// into those of sort keys, and NaNs are found, for all 32 at once. A selection decides bit by bit, from the highest
// one: how many of the candidates have a zero there says in which half the wanted rank lies. Once the two neighbours of
// a quantile lie in different halves, they are the greatest and the least of these, which each thread finds for itself.
// That takes the same time whatever the distribution.
//
// Source of the transposition: H. S. Warren, Hacker's Delight, 2nd edition, section 7-3.
#ifndef REDUCED_KERNELS_CUDA_KEY_PLANES_CUH_
#define REDUCED_KERNELS_CUDA_KEY_PLANES_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/selection.h"

namespace reduced {

inline constexpr unsigned kAllLanes = ~0U;
inline constexpr int kLanes = 32;

// The key of an element with the bits `raw` in a format that no option changes. Integers are treated as floats, which
// saves a branch: none of their keys is outside of their bounds.
template <class Word>
__device__ inline Word PlainKeyOf(Word raw, KeyFormat format) {
  format.is_float = true;
  format.zeros_join = format.omit_nan = format.descends = format.nan_first = false;
  bool counts;
  return KeyOf(raw, format, &counts);
}

// A key as shuffles take it.
template <class Word>
using Bits = std::conditional_t<sizeof(Word) == 8, std::uint64_t, unsigned>;

// The least of the keys of neighbouring lanes, as many as `width`, a power of two.
template <class Key>
__device__ inline Key LeastOfLanes(Key key, int width) {
  for (int lanes = width / 2; lanes > 0; lanes /= 2) key = min(key, __shfl_xor_sync(kAllLanes, key, lanes));
  return key;
}

// In shared memory, of a block that is a team.
struct TeamMemory {
  unsigned sums[2][kLanes];
  unsigned long long least[kLanes];
};

// The threads that have the elements of an output.
enum class TeamKind : std::uint8_t {
  kLanes,  // neighbouring lanes, 16 at most: a power of two
  kWarp,
  kBlock,
};
template <TeamKind kKind>
class Team {
 public:
  __device__ Team(int width, TeamMemory* shared) : width_(kKind == TeamKind::kWarp ? kLanes : width), shared_(shared) {}

  __device__ int Rank() const { return static_cast<int>(threadIdx.x) & (width_ - 1); }

  // All threads call the following, and have the result: of their team.
  __device__ unsigned Sum(unsigned x) {
    if constexpr (kKind == TeamKind::kLanes) {
#pragma unroll
      for (int lanes = 1; lanes < kLanes / 2; lanes *= 2) {
        if (lanes < width_) x += __shfl_xor_sync(kAllLanes, x, lanes);
      }
    } else {
      x = __reduce_add_sync(kAllLanes, x);
    }
    if constexpr (kKind == TeamKind::kBlock) {
      unsigned(&sums)[kLanes] = shared_->sums[turn_];  // others may still read those of the turn before
      turn_ ^= 1;
      if (Lane() == 0) sums[Warp()] = x;
      __syncthreads();
      x = __reduce_add_sync(kAllLanes, Lane() < width_ / kLanes ? sums[Lane()] : 0);
    }
    return x;
  }
  // Whether any team of the warp has it.
  __device__ bool Any(bool x) const { return kKind == TeamKind::kLanes ? __any_sync(kAllLanes, x) != 0 : x; }

  template <class Word>
  __device__ Word Least(Word key) {
    Bits<Word> least = LeastOfLanes(Bits<Word>{key}, min(width_, kLanes));
    if constexpr (kKind == TeamKind::kBlock) {
      __syncthreads();
      if (Lane() == 0) shared_->least[Warp()] = least;
      __syncthreads();
      least = LeastOfLanes(Lane() < width_ / kLanes ? static_cast<Bits<Word>>(shared_->least[Lane()]) : least, kLanes);
    }
    return static_cast<Word>(least);
  }
  template <class Word>
  __device__ Word Greatest(Word key) {
    return static_cast<Word>(~Least(static_cast<Word>(~key)));
  }

 private:
  static __device__ int Lane() { return static_cast<int>(threadIdx.x % kLanes); }
  static __device__ int Warp() { return static_cast<int>(threadIdx.x / kLanes); }

  const int width_;
  TeamMemory* const shared_;
  int turn_ = 0;
};

// Up to 32 elements of a thread.
template <class Word>
class KeyPlanes {
 public:
  static constexpr int kElements = 32;
  static constexpr int kBits = 8 * sizeof(Word);
  static constexpr int kVectors = kElements * sizeof(Word) / 16;
  static constexpr int kRows = kBits < 32 ? kBits : 32;  // words of 32 bits that are transposed together

  // Has the elements that load(i, &raw) finds, for i from 0 to 31.
  template <class Load>
  __device__ void LoadElements(const Load& load) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      Word raw{};
      if (load(i, &raw)) there_ |= 1U << i;
      if constexpr (sizeof(Word) == 8) {
        plane_[i] = static_cast<unsigned>(raw);
        plane_[kRows + i] = static_cast<unsigned>(raw >> 32);
      } else if (i < kRows) {
        plane_[i] = raw;
      } else {
        plane_[i % kRows] |= static_cast<unsigned>(raw) << (i / kRows * kBits % 32);
      }
    }
  }
  // Has those of the 16 bytes that load(i, &raw) finds, for i below kVectors.
  template <class Load>
  __device__ void LoadVectors(const Load& load) {
    constexpr unsigned kOfWord = sizeof(Word) == 1 ? 0x01010101U : sizeof(Word) == 2 ? 0x00010001U : 1U;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      uint4 raw{};
      const bool is_there = load(i, &raw);
      if constexpr (sizeof(Word) == 8) {
        plane_[2 * i] = raw.x;
        plane_[2 * i + 1] = raw.z;
        plane_[kRows + 2 * i] = raw.y;
        plane_[kRows + 2 * i + 1] = raw.w;
        if (is_there) there_ |= 3U << (2 * i);
      } else {
        plane_[4 * i] = raw.x;
        plane_[4 * i + 1] = raw.y;
        plane_[4 * i + 2] = raw.z;
        plane_[4 * i + 3] = raw.w;
        if (is_there) there_ |= 15 * kOfWord << (4 * i);
      }
    }
  }

  // Makes the planes of keys from those of elements.
  __device__ void MakeKeys(const KeyFormat& format) {
    Transpose(&plane_[0]);
    if constexpr (sizeof(Word) == 8) Transpose(&plane_[kRows]);
    if (sizeof(Word) == 1 && format.is_bool) {
#pragma unroll
      for (int b = 1; b < kBits; ++b) {
        plane_[0] |= plane_[b];
        plane_[b] = 0;
      }
    }
    const unsigned sign = format.sign != 0 ? ~0U : 0;
    if (format.is_float) {
      // The magnitude is greater than infinity's: compared from the lowest bit on.
      const auto infinity = static_cast<Word>(format.greatest ^ format.sign);
#pragma unroll
      for (int b = 0; b < kBits; ++b) {
        const unsigned plane = plane_[b] & (b == kBits - 1 ? ~sign : ~0U);
        nan_ = (infinity >> b & 1) != 0 ? nan_ & plane : nan_ | plane;
      }
      nan_ &= there_;
      const unsigned flip = format.negative != 0 ? plane_[kBits - 1] : 0;
#pragma unroll
      for (int b = 0; b < kBits - 1; ++b) plane_[b] ^= flip;
    }
    plane_[kBits - 1] ^= sign;
  }

  // Which elements are there, and which of them are NaNs, bit by bit.
  __device__ unsigned there() const { return there_; }
  __device__ unsigned nan() const { return nan_; }

  // Finds the keys of ranks `rank` and `next`, which are equal or neighbours, among the elements that are no NaNs,
  // `size` of the team. size <= 1: any answer does if there is none.
  template <TeamKind kKind>
  __device__ void Select(Team<kKind>& team, unsigned size, unsigned rank, unsigned next, Word* lower,
                         Word* higher) const {
    unsigned low = there_ & ~nan_, high = low;
    bool apart = size <= 1;
#pragma unroll
    for (int b = kBits - 1; b >= 0; --b) {
      if (!team.Any(!apart)) break;
      const unsigned plane = plane_[b];
      const unsigned zeros = team.Sum(static_cast<unsigned>(__popc(static_cast<int>(low & ~plane))));
      if (kKind == TeamKind::kLanes && apart) continue;
      const bool low_is_one = rank >= zeros, high_is_one = next >= zeros;
      high = low & (high_is_one ? plane : ~plane);
      low &= low_is_one ? plane : ~plane;
      const unsigned skipped = low_is_one ? zeros : 0;
      size = low_is_one ? size - zeros : zeros;
      rank -= skipped;
      next -= skipped;
      apart = low_is_one != high_is_one || size <= 1;
    }
    // Those that are left have the same higher bits.
    Word low_key = 0, high_key = static_cast<Word>(~Word{0});
    if (kKind != TeamKind::kBlock || __any_sync(kAllLanes, (low | high) != 0)) {
#pragma unroll
      for (int b = kBits - 1; b >= 0; --b) {
        const auto bit = static_cast<Word>(Word{1} << b);
        const unsigned ones = low & plane_[b], zeros = high & ~plane_[b];
        if (ones != 0) {
          low = ones;
          low_key |= bit;
        }
        if (zeros != 0) {
          high = zeros;
          high_key ^= bit;
        }
      }
    }
    *lower = team.Greatest(low_key);
    *higher = team.Least(high_key);
  }

 private:
  // Exchanges bit j of word i and bit i of word j; of words of several elements within each.
  static __device__ void Transpose(unsigned* words) {
#pragma unroll
    for (int step = kRows / 2; step > 0; step /= 2) {
      // The bits whose numbers do not have `step`.
      const unsigned mask = step == 16  ? 0x0000ffffU
                            : step == 8 ? 0x00ff00ffU
                            : step == 4 ? 0x0f0f0f0fU
                            : step == 2 ? 0x33333333U
                                        : 0x55555555U;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if ((i & step) != 0) continue;
        const unsigned a = words[i], b = words[i + step];
        if (step >= 8) {  // whole bytes
          words[i] = __byte_perm(a, b, step == 16 ? 0x5410 : 0x6240);
          words[i + step] = __byte_perm(a, b, step == 16 ? 0x7632 : 0x7351);
        } else {
          words[i] = (a & mask) | (b & mask) << step;
          words[i + step] = (a >> step & mask) | (b & ~mask);
        }
      }
    }
  }

  unsigned plane_[kBits];
  unsigned there_ = 0;
  unsigned nan_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_KEY_PLANES_CUH_
