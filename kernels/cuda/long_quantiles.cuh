// The selection of any number of quantiles from an output of any length by a block: see quantiles.cu.
#ifndef REDUCED_KERNELS_CUDA_LONG_QUANTILES_CUH_
#define REDUCED_KERNELS_CUDA_LONG_QUANTILES_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/key_planes.cuh"
#include "kernels/cuda/quantiles.h"
#include "kernels/cuda/selection.h"
#include "kernels/cuda/vector16.cuh"
#include "kernels/folds/quantile_points.h"

namespace reduced {

inline constexpr std::int64_t kHasNan = -1;  // in place of how many numbers an output has

// An output of up to `room` positions is sorted in shared memory. A longer one is counted by the highest digit of its
// keys; then the keys of neighbouring bins that have wanted ranks, up to `room` of them, are gathered in shared memory
// and sorted there, and so on until all ranks are found. A bin of more keys is counted by its next digit first.
template <class Word>
class LongSelector {
 public:
  static constexpr Word kMost = static_cast<Word>(~Word{0});
  static constexpr int kBits = 8 * sizeof(Word);
  static constexpr int kDigit = kBits > 8 ? 11 : 8;
  static constexpr int kBins = 1 << kDigit;
  static constexpr bool kSorts = kBits > 8;  // else the first digit is all of a key

  static constexpr std::int64_t SharedBytes(std::int64_t room, bool is_counted) {
    return static_cast<std::int64_t>(sizeof(Shared)) + (is_counted ? 2 * kBins * 4 : 0) +
           (room * static_cast<std::int64_t>(sizeof(Word)) + 15) / 16 * 16;
  }

  __device__ LongSelector(const QuantilesLaunch& launch, const KeyFormat& format, bool neighbours, int room,
                          const GroupPart& part, std::byte* memory)
      : launch_(launch),
        format_(format),
        part_(part),
        neighbours_(neighbours),
        positions_(static_cast<int>(part.end)),
        room_(static_cast<unsigned>(room)),
        is_sorted_(kSorts && positions_ <= room),
        shared_(*reinterpret_cast<Shared*>(memory)),
        counts_(reinterpret_cast<unsigned*>(memory + sizeof(Shared))),
        keys_(reinterpret_cast<Word*>(counts_ + (is_sorted_ ? 0 : 2 * kBins))) {}

  // How many elements have a rank, or kHasNan. Their keys are in `found`, two for each quantile.
  __device__ std::int64_t Run(Word* found) {
    if (Rank() == 0) shared_.held = shared_.largest = shared_.absent = 0;
    const Range all = {0, static_cast<Word>(kMost - 1), kBits - kDigit};
    if (is_sorted_) {
      __syncthreads();
      Pass<false>(all, nullptr, true);
      __syncthreads();
    } else {
      Count(all, counts_);
    }
    const unsigned numbers = static_cast<unsigned>(positions_) - shared_.largest;  // those with the largest key aside
    const unsigned nans = format_.is_float ? shared_.largest - shared_.absent : 0;
    if (nans > 0 && !launch_.omit_nan) return kHasNan;
    numbers_ = format_.is_float ? numbers : positions_ - static_cast<std::int64_t>(shared_.absent);
    if (numbers_ == 0) return 0;
    for (int i = Rank(); i < 2 * launch_.of_each; i += Size()) found[i] = kMost;  // the ranks behind the others
    if (is_sorted_) {
      Sort();
      Answer(0, numbers, found);
    } else if constexpr (kSorts) {
      Find(all, numbers, found);
    } else {
      FindByCounts(found);
    }
    __syncthreads();
    return numbers_;
  }

 private:
  // Keys from `lo` to lo + span, in bins of 2^shift.
  struct Range {
    Word lo = 0;
    Word span = 0;
    int shift = 0;

    __device__ bool Has(Word key) const { return static_cast<Word>(key - lo) <= span; }
    __device__ Word Begin(unsigned bin) const { return static_cast<Word>(lo + static_cast<Word>(Word(bin) << shift)); }
    __device__ Range Bins(unsigned first, unsigned last) const {
      const Word begin = Begin(first);
      const auto size = static_cast<Word>(Begin(last) - begin + static_cast<Word>((Word{1} << shift) - 1));
      const auto rest = static_cast<Word>(span - static_cast<Word>(begin - lo));
      return {begin, size < rest ? size : rest, max(0, shift - kDigit)};
    }
  };
  struct Bin {
    unsigned number = 0;
    unsigned below = 0;  // keys in lesser bins
    unsigned size = 0;
  };
  // In shared memory, followed by the counts of the first digit and of another one, and by the keys.
  struct Shared {
    alignas(16) Bin bin;
    unsigned held;     // keys that were gathered
    unsigned largest;  // positions with the largest key
    unsigned absent;   // of these, those without an element
    unsigned least;
  };

  static __device__ int Rank() { return static_cast<int>(threadIdx.x); }
  static __device__ int Size() { return static_cast<int>(blockDim.x); }

  // Visits all positions of the output: counts the keys of a range by their bins, or gathers them. The first pass also
  // counts the positions that have no rank.
  template <bool kCount>
  __device__ __noinline__ void Pass(Range range, unsigned* counts, bool is_first) {
    // Copies of members, which could change with each key that is stored.
    const KeyFormat format = format_;
    const int positions = positions_;
    const unsigned room = room_;
    Word* const keys = keys_;
    Shared& shared = shared_;
    constexpr int kElements = Vector16<Word>::kElements;
    constexpr int kInFlight = kElements > 4 ? 2 : 4;  // many narrow elements take registers
    unsigned largest = 0, absent = 0;
    const auto visit = [&](Word raw, bool is_there) {
      const Word key = is_there ? PlainKeyOf(raw, format) : kMost;
      largest += key == kMost ? 1 : 0;
      absent += is_there ? 0 : 1;
      if (!range.Has(key)) return;
      if constexpr (kCount) {
        atomicAdd(&counts[static_cast<Word>(key - range.lo) >> range.shift], 1U);
      } else {
        const unsigned at = atomicAdd(&shared.held, 1U);
        if (at < room) keys[at] = key;  // another process may change elements
      }
    };
    const GroupArray& array = launch_.array;
    const int step = kInFlight * Size();
    if (!neighbours_) {
      const GroupWalk<Word> walk(array, part_.start, part_.column);
      for (int begin = Rank(); begin < positions; begin += step) {
        Word raw[kInFlight] = {};
        bool is_there[kInFlight] = {};
        std::int64_t index;
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
          const int at = begin + i * Size();
          if (at < positions) is_there[i] = walk.Load(at, &raw[i], &index);
        }
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
          const int at = begin + i * Size();
          if (at < positions) visit(raw[i], is_there[i]);
        }
      }
    } else {
      const Word* const data = static_cast<const Word*>(array.data) + part_.start;
      const auto beyond = static_cast<int>(reinterpret_cast<std::uintptr_t>(data) % 16 / sizeof(Word));
      const int head = min(positions, (kElements - beyond) % kElements);
      const int vectors = (positions - head) / kElements;
      const auto* const body = reinterpret_cast<const uint4*>(data + head);
      for (int begin = Rank(); begin < vectors; begin += step) {
        Vector16<Word> loaded[kInFlight];
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
          const int at = begin + i * Size();
          if (at < vectors) loaded[i] = LoadOnce<Word>(body + at);
        }
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
          const int at = begin + i * Size();
          if (at >= vectors) break;
#pragma unroll
          for (int e = 0; e < kElements; ++e) visit(loaded[i].element[e], true);
        }
      }
      const int in_body = vectors * kElements;
      for (int i = Rank(); i < positions - in_body; i += Size()) {
        visit(data[i < head ? i : i + in_body], true);
      }
    }
    if (is_first && largest > 0) atomicAdd(&shared.largest, largest);
    if (is_first && absent > 0) atomicAdd(&shared.absent, absent);
  }

  __device__ void Count(const Range& range, unsigned* counts) {
    __syncthreads();
    for (int i = Rank(); i < kBins / 4; i += Size()) reinterpret_cast<uint4*>(counts)[i] = {};
    __syncthreads();
    Pass<true>(range, counts, counts == counts_);
    __syncthreads();
  }

  // Finds the keys of all wanted ranks below `numbers`, those of ever greater ones.
  __device__ void Find(const Range& all, unsigned numbers, Word* found) {
    for (unsigned covered = 0;;) {
      const unsigned rank = LeastRank(covered);
      if (rank >= numbers) return;
      Range range = all;
      const unsigned* counts = counts_;
      unsigned begin = 0, end = numbers;  // ranks of the range
      Bin bin = BinOf(counts, rank);
      while (range.shift > 0 && bin.size > room_) {
        begin += bin.below;
        end = begin + bin.size;
        range = range.Bins(bin.number, bin.number);
        Count(range, counts_ + kBins);
        counts = counts_ + kBins;
        bin = BinOf(counts, rank - begin);
      }
      const unsigned from = begin + bin.below;
      unsigned upto = from + bin.size;
      if (range.shift == 0) {
        if (Rank() == 0) {
          shared_.held = 1;
          keys_[0] = range.Begin(bin.number);
        }
        __syncthreads();
      } else {
        // The bins up to the last one with a wanted rank for which there is room.
        if (upto < end) {
          const unsigned limit = from + room_;
          const unsigned reach = limit < end ? begin + BinOf(counts, limit - begin).below : end;
          const Bin last = BinOf(counts, GreatestRank(max(reach, rank + 1)) - begin);
          range = range.Bins(bin.number, max(bin.number, last.number));
          upto = max(upto, begin + last.below + last.size);
        } else {
          range = range.Bins(bin.number, bin.number);
        }
        if (Rank() == 0) shared_.held = 0;
        __syncthreads();
        Pass<false>(range, nullptr, false);
        __syncthreads();
        Sort();
      }
      covered = max(upto, rank + 1);
      Answer(from, covered, found);
      __syncthreads();
    }
  }

  // Likewise, where the counts are those of keys.
  __device__ void FindByCounts(Word* found) {
    if (Rank() < kLanes) {
      constexpr int kMine = kBins / kLanes;
      unsigned* const mine = counts_ + Rank() * kMine;
      for (int i = 1; i < kMine; ++i) mine[i] += mine[i - 1];
      unsigned upto = mine[kMine - 1];
      for (int lanes = 1; lanes < kLanes; lanes *= 2) {
        const unsigned other = __shfl_up_sync(kAllLanes, upto, lanes);
        if (Rank() >= lanes) upto += other;
      }
      const unsigned before = upto - mine[kMine - 1];
      for (int i = 0; i < kMine; ++i) mine[i] += before;
    }
    __syncthreads();
    for (int i = Rank(); i < 2 * launch_.of_each; i += Size()) {
      const unsigned rank = RankOf(i);
      int key = 0;  // the first one with more elements up to it, or the largest
      for (int step = kBins / 2; step > 0; step /= 2) {
        if (counts_[key + step - 1] <= rank) key += step;
      }
      found[i] = static_cast<Word>(key);
    }
  }

  __device__ unsigned RankOf(int i) const {
    const QuantilePoint point = PointOf(launch_.quantiles[i / 2], numbers_, launch_.method);
    return static_cast<unsigned>(i % 2 == 0 ? point.lower : point.higher);
  }
  // The least wanted rank from `first` on, or the largest number.
  __device__ unsigned LeastRank(unsigned first) {
    unsigned least = ~0U;
    for (int i = Rank(); i < 2 * launch_.of_each; i += Size()) {
      const unsigned rank = RankOf(i);
      if (rank >= first) least = min(least, rank);
    }
    return Least(least);
  }
  // The greatest one before `end`.
  __device__ unsigned GreatestRank(unsigned end) {
    unsigned greatest = 0;
    for (int i = Rank(); i < 2 * launch_.of_each; i += Size()) {
      const unsigned rank = RankOf(i);
      if (rank < end) greatest = max(greatest, rank);
    }
    return ~Least(~greatest);
  }
  __device__ unsigned Least(unsigned x) {
    x = __reduce_min_sync(kAllLanes, x);
    if (Rank() == 0) shared_.least = ~0U;
    __syncthreads();
    if (Rank() % kLanes == 0) atomicMin(&shared_.least, x);
    __syncthreads();
    x = shared_.least;
    __syncthreads();
    return x;
  }

  // Stores the keys of the ranks from `from` to upto - 1, which are those of keys_, or all the same one.
  __device__ void Answer(unsigned from, unsigned upto, Word* found) {
    const unsigned held = min(shared_.held, room_);
    for (int i = Rank(); i < 2 * launch_.of_each; i += Size()) {
      const unsigned rank = RankOf(i);
      if (rank >= from && rank < upto) found[i] = keys_[min(rank - from, max(held, 1U) - 1)];
    }
  }

  // The bin that has the rank. Elements that another process changes may leave it out; then it is any.
  __device__ Bin BinOf(const unsigned* counts, unsigned rank) {
    if (Rank() < kLanes) FindBin<kBins>(counts, rank, 0, 0);
    __syncthreads();
    const Bin bin = shared_.bin;
    __syncthreads();
    return bin;
  }
  // By a warp: among `kAmong` bins from `first`, before which there are `below` keys.
  template <int kAmong>
  __device__ void FindBin(const unsigned* counts, unsigned rank, int first, unsigned below) {
    constexpr int kMine = (kAmong + kLanes - 1) / kLanes;
    const int lane = Rank(), mine = first + lane * kMine;
    unsigned sum = 0;
    if constexpr (kMine % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kMine / 4; ++i) {
        const uint4 some = reinterpret_cast<const uint4*>(counts)[mine / 4 + i];
        sum += some.x + some.y + some.z + some.w;
      }
    } else if (lane * kMine < kAmong) {
#pragma unroll
      for (int i = 0; i < kMine; ++i) sum += counts[mine + i];
    }
    unsigned upto = sum;
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) {
      const unsigned other = __shfl_up_sync(kAllLanes, upto, lanes);
      if (lane >= lanes) upto += other;
    }
    const unsigned those = __ballot_sync(kAllLanes, rank - below < upto);
    const int owner = max(0, __ffs(static_cast<int>(those)) - 1);
    const unsigned before = below + upto - sum;
    if constexpr (kMine > 1) {
      FindBin<kMine>(counts, rank, first + owner * kMine, __shfl_sync(kAllLanes, before, owner));
    } else if (lane == owner) {
      shared_.bin = {static_cast<unsigned>(mine), before, sum};
    }
  }

  // Bitonic, of any number of keys: each comparison brings the lesser one to the lower place, so that places behind the
  // last one need not be there.
  __device__ void Sort() {
    const auto count = static_cast<int>(min(shared_.held, room_));
    Word* const keys = keys_;
    for (int size = 2; size / 2 < count; size *= 2) {
      for (int distance = size / 2; distance > 0; distance /= 2) {
        const int flip = distance == size / 2 ? size - 1 : distance;
        for (int i = Rank();; i += Size()) {
          const int low = 2 * i - (i & (distance - 1)), high = low ^ flip;
          if (low >= count) break;
          if (high >= count) continue;
          const Word a = keys[low], b = keys[high];
          if (a > b) {
            keys[low] = b;
            keys[high] = a;
          }
        }
        __syncthreads();
      }
    }
  }

  const QuantilesLaunch& launch_;
  const KeyFormat& format_;
  const GroupPart& part_;
  const bool neighbours_;
  const int positions_;
  const unsigned room_;
  const bool is_sorted_;
  Shared& shared_;
  unsigned* const counts_;
  Word* const keys_;
  std::int64_t numbers_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_LONG_QUANTILES_CUH_
