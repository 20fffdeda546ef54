// The selection of an output's quantiles by a warp or a block: see quantiles.cu.
#ifndef REDUCED_KERNELS_CUDA_QUANTILE_SELECTOR_CUH_
#define REDUCED_KERNELS_CUDA_QUANTILE_SELECTOR_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/key_bins.cuh"
#include "kernels/cuda/quantiles.h"
#include "kernels/cuda/selection.h"
#include "kernels/cuda/vector16.cuh"
#include "kernels/folds/quantile_points.h"

namespace reduced {

inline constexpr unsigned kAllLanes = ~0U;
inline constexpr int kLanes = 32;
inline constexpr std::int64_t kHasNan = -1, kLeft = -2;  // in place of how many numbers an output has

// Which outputs a launch selects from: those of more than `shortest` positions, and of at most `longest`.
struct Share {
  bool neighbours = false;  // LieOf(array) == Lie::kNeighbours
  int room = 0;             // keys of an output in shared memory
  std::int64_t shortest = -1;
  std::int64_t longest = 0;
};

// Selects from an output of at most `width` positions, a power of two up to 32, by as many neighbouring lanes.
template <class Word>
__device__ void SelectFew(const QuantilesLaunch& launch, const KeyFormat& format, const GroupPart& part,
                          std::int64_t item, int width) {
  constexpr Word kMost = static_cast<Word>(~Word{0});
  const int lane = static_cast<int>(threadIdx.x) % width;
  Word raw{};
  std::int64_t index;
  const bool is_there =
      lane < part.end && GroupWalk<Word>(launch.array, part.start, part.column).Load(lane, &raw, &index);
  const Word key = is_there ? PlainKeyOf(raw, format) : kMost;
  int rank = 0;
#pragma unroll 4
  for (int i = 0; i < width; ++i) {
    const auto other = static_cast<Word>(__shfl_sync(kAllLanes, Bits<Word>{key}, i, width));
    rank += other < key || (other == key && i < lane) ? 1 : 0;
  }
  const unsigned group = (kAllLanes >> (kLanes - width)) << (threadIdx.x % kLanes - static_cast<unsigned>(lane));
  const bool is_nan = is_there && format.is_float && key == kMost;
  const unsigned nans = __ballot_sync(kAllLanes, is_nan) & group;
  const int ranked = __popc(__ballot_sync(kAllLanes, is_there && !is_nan) & group);
  const std::int64_t numbers = nans != 0 && !launch.omit_nan ? kHasNan : ranked;
  if (lane == 0) launch.numbers[item] = numbers;
  if (numbers <= 0) return;
  auto* const found = static_cast<Word*>(launch.keys) + 2 * item * launch.of_each;
  for (int q = 0; q < launch.of_each; ++q) {
    const QuantilePoint point = PointOf(launch.quantiles[q], numbers, launch.method);
    if (rank == point.lower) found[2 * q] = key;
    if (rank == point.higher) found[2 * q + 1] = key;
  }
}

// Selects from one output. kBlock: by the threads of a block; else by a warp. kCached: the keys of each output fit in
// its shared memory; else those of a shorter one may.
template <class Word, bool kBlock, bool kCached>
class Selector {
 public:
  static constexpr Word kMost = static_cast<Word>(~Word{0});
  static constexpr int kElements = Vector16<Word>::kElements;
  static constexpr int kDigit = kBlock && sizeof(Word) > 1 ? 11 : 8;  // bits of a pass
  static constexpr int kBins = 1 << kDigit;
  using Range = KeyBins<Word, kDigit>;
  // The first digit is all of a byte.
  static constexpr bool kMayBeCached = sizeof(Word) > 1;
  static_assert(kMayBeCached || !kCached);

  // In shared memory, followed by the keys.
  struct Shared {
    alignas(16) unsigned first[kBins];  // counts of bins_
    unsigned counts[kBins];             // of narrower bins
    Word list[kLanes];                  // the keys of a bin
    unsigned listed;
    unsigned largest;  // positions with the largest key
    unsigned absent;   // of these, those without an element
    unsigned bin;      // that has the rank
    unsigned below;    // keys in lesser bins
    unsigned size;     // of the bin
    Word lower, higher;
    bool has_higher;
    unsigned long long least;
  };
  REDUCED_HD static constexpr std::int64_t SharedBytes(std::int64_t room) {
    if (!kMayBeCached) room = 0;
    return static_cast<std::int64_t>(sizeof(Shared)) + (room * static_cast<std::int64_t>(sizeof(Word)) + 15) / 16 * 16;
  }

  __device__ Selector(const QuantilesLaunch& launch, const KeyFormat& format, const Share& share, const GroupPart& part,
                      std::byte* memory)
      : launch_(launch),
        format_(format),
        part_(part),
        neighbours_(share.neighbours),
        shared_(*reinterpret_cast<Shared*>(memory)),
        keys_(reinterpret_cast<Word*>(memory + sizeof(Shared))),
        positions_(static_cast<int>(part.end)),
        is_cached_(kCached || (kMayBeCached && positions_ <= share.room)),
        // Selecting by one digit after the other takes as long as sorting then.
        is_sorted_(is_cached_ && launch.of_each > max(1, min(16, positions_ / 64))) {}

  // Of the output `item` of the launch.
  __device__ void Run(std::int64_t item) {
    Read();
    const std::int64_t numbers = Numbers();
    if (Rank() == 0) launch_.numbers[item] = numbers;
    if (numbers <= 0) return;
    auto* const found = static_cast<Word*>(launch_.keys) + 2 * item * launch_.of_each;
    if (is_sorted_) Sort();
    for (int q = is_sorted_ ? Rank() : 0; q < launch_.of_each; q += is_sorted_ ? Size() : 1) {
      const QuantilePoint point = PointOf(launch_.quantiles[q], numbers, launch_.method);
      Word lower, higher;
      if (is_sorted_) {
        lower = keys_[point.lower];
        higher = keys_[point.higher];
      } else {
        Select(static_cast<unsigned>(point.lower), static_cast<unsigned>(point.higher), &lower, &higher);
        if (Rank() != 0) continue;
      }
      found[2 * q] = lower;
      found[2 * q + 1] = higher;
    }
  }

 private:
  static __device__ int Rank() { return static_cast<int>(kBlock ? threadIdx.x : threadIdx.x % kLanes); }
  static __device__ int Size() { return static_cast<int>(kBlock ? blockDim.x : kLanes); }
  static __device__ void Sync() {
    if (kBlock) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  static __device__ void Clear(unsigned (&counts)[kBins]) {
    for (int i = Rank(); i < kBins / 4; i += Size()) reinterpret_cast<uint4*>(counts)[i] = {};
  }

  // Calls visit(key, is_there, place) for all positions of the output in the array, in any order. Each has a place.
  template <class Visit>
  __device__ void VisitArray(const Visit& visit) const {
    constexpr int kInFlight = kElements > 4 ? 2 : 4;  // many narrow elements take registers
    const auto add = [&](Word raw, bool is_there, int place) {
      visit(is_there ? PlainKeyOf(raw, format_) : kMost, is_there, place);
    };
    const GroupArray& array = launch_.array;
    const int step = kInFlight * Size();
    if (!neighbours_) {
      const GroupWalk<Word> walk(array, part_.start, part_.column);
      for (int begin = Rank(); begin < positions_; begin += step) {
        Word raw[kInFlight] = {};
        bool is_there[kInFlight] = {};
        std::int64_t index;
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
          const int at = begin + i * Size();
          if (at < positions_) is_there[i] = walk.Load(at, &raw[i], &index);
        }
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
          const int at = begin + i * Size();
          if (at < positions_) add(raw[i], is_there[i], at);
        }
      }
      return;
    }
    const Word* const data = static_cast<const Word*>(array.data) + part_.start;
    const auto beyond = static_cast<int>(reinterpret_cast<std::uintptr_t>(data) % 16 / sizeof(Word));
    const int head = min(positions_, (kElements - beyond) % kElements);
    const int vectors = (positions_ - head) / kElements;
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
          // Neighbouring lanes have neighbouring places, which are in different banks.
#pragma unroll
        for (int e = 0; e < kElements; ++e) add(loaded[i].element[e], true, e * vectors + at);
      }
    }
    const int in_body = vectors * kElements;
    for (int i = Rank(); i < positions_ - in_body; i += Size()) {
      add(data[i < head ? i : i + in_body], true, in_body + i);
    }
  }

  // Calls visit(key) for all positions, from shared memory if they are there.
  template <class Visit>
  __device__ void VisitKeys(const Visit& visit) const {
    if constexpr (!kCached) {
      if (!is_cached_) return VisitArray([&](Word key, bool, int) { visit(key); });
    }
    VisitCached(visit);
  }
  template <class Visit>
  __device__ void VisitCached(const Visit& visit) const {
    for (int v = Rank(); v * kElements < positions_; v += Size()) {
      Vector16<Word> some;
      memcpy(&some, reinterpret_cast<const uint4*>(keys_) + v, sizeof(some));
#pragma unroll
      for (int e = 0; e < kElements; ++e) visit(some.element[e]);
    }
  }

  // Calls visit(key, bin) for all keys of the bins.
  template <class Visit>
  __device__ void VisitBins(const Range& bins, const Visit& visit) const {
    if constexpr (kMayBeCached && Range::kMayBeByValue) {
      if (bins.by_value) {  // which are the bins of cached keys
        return VisitCached([&](Word key) {
          if (bins.Has(key)) visit(key, bins.ByValue(key));
        });
      }
    }
    VisitKeys([&](Word key) {
      if (bins.Has(key)) visit(key, bins.ByKey(key));
    });
  }

  // Counts the keys of `bins`.
  __device__ void Count(const Range& bins, unsigned (&counts)[kBins]) {
    Sync();
    Clear(counts);
    Sync();
    VisitBins(bins, [&](Word, unsigned bin) { atomicAdd(&counts[bin], 1U); });
    Sync();
  }

  // Counts all positions in bins_. Caches the keys, or counts them while it reads them.
  __device__ void Read() {
    if (Rank() == 0) shared_.largest = shared_.absent = 0;
    if (!is_cached_) {
      bins_ = {0, static_cast<Word>(kMost - 1)};
      Clear(shared_.first);
    }
    Sync();
    unsigned largest = 0, absent = 0;
    Bounds bounds;
    VisitArray([&](Word key, bool is_there, int place) {
      if (kMayBeCached && is_cached_) {
        keys_[place] = key;
        bounds.Add(key);
      } else if (key != kMost) {
        atomicAdd(&shared_.first[bins_.ByKey(key)], 1U);
      }
      largest += key == kMost ? 1 : 0;
      absent += is_there ? 0 : 1;
    });
    if (largest > 0) atomicAdd(&shared_.largest, largest);
    if (absent > 0) atomicAdd(&shared_.absent, absent);
    // The last vector of keys is full: of the largest ones, which change no rank.
    const int end = (positions_ + kElements - 1) / kElements * kElements;
    for (int i = positions_ + Rank(); is_cached_ && i < end; i += Size()) keys_[i] = kMost;
    Sync();
    if (!is_cached_ || is_sorted_) return;
    bins_ = OfAll(bounds);
    bins_.UseValues(format_);
    if (bins_.span > 0) Count(bins_, shared_.first);
  }

  // How many elements have a rank.
  __device__ std::int64_t Numbers() const {
    const unsigned there = static_cast<unsigned>(positions_) - shared_.absent;
    if (!format_.is_float) return there;
    const unsigned nans = shared_.largest - shared_.absent;
    return nans > 0 && !launch_.omit_nan ? kHasNan : static_cast<std::int64_t>(there - nans);
  }

  // The keys of two ranks, which are equal or neighbours.
  __device__ void Select(unsigned rank, unsigned next, Word* lower, Word* higher) {
    *lower = *higher = kMost;
    unsigned below = 0, size = static_cast<unsigned>(positions_) - shared_.largest;
    if (rank >= size) return;
    Range bins = bins_;
    for (bool is_first = true; bins.span > 0; is_first = false) {
      if (kMayBeCached && !is_first) Count(bins, shared_.counts);
      Sync();
      if (Rank() < kLanes) FindBin(is_first ? shared_.first : shared_.counts, rank - below);
      Sync();
      const unsigned bin = shared_.bin;
      below += shared_.below;
      size = shared_.size;
      if (kMayBeCached && size <= kLanes && (bins.by_value || bins.shift > 0)) {
        FindInList(bins, bin, rank - below, next - below);
        *lower = shared_.lower;
        *higher = shared_.higher;
        if (!shared_.has_higher) *higher = Next(*lower);
        return;
      }
      bins = Narrow(bins, bin);
    }
    *lower = *higher = bins.lo;
    if (next >= below + size) *higher = Next(bins.lo);
  }

  // The keys of one bin.
  __device__ Range Narrow(const Range& bins, unsigned bin) {
    if (!bins.by_value) return bins.Within(bin);
    Bounds bounds;
    VisitCached([&](Word key) {
      if (bins.Has(key) && bins.ByValue(key) == bin) bounds.Add(key);
    });
    return OfAll(bounds);
  }

  // Finds the keys of two ranks among those of a bin, which has at most 32. The next one may be in another bin.
  __device__ void FindInList(const Range& bins, unsigned bin, unsigned rank, unsigned next) {
    if (Rank() == 0) shared_.listed = 0;
    Sync();
    VisitBins(bins, [&](Word key, unsigned in) {
      if (in != bin) return;
      const unsigned at = atomicAdd(&shared_.listed, 1U);
      if (at < kLanes) shared_.list[at] = key;  // another process may change elements
    });
    Sync();
    if (Rank() < kLanes) {
      const unsigned listed = min(shared_.listed, unsigned{kLanes});
      const bool is_listed = Rank() < static_cast<int>(listed);
      const Bits<Word> key = is_listed ? shared_.list[Rank()] : kMost;
      unsigned less = 0, upto = 0;
      for (unsigned i = 0; i < listed; ++i) {
        const Bits<Word> other = __shfl_sync(kAllLanes, key, static_cast<int>(i));
        less += other < key ? 1 : 0;
        upto += other <= key ? 1 : 0;
      }
      const unsigned those = __ballot_sync(kAllLanes, is_listed && less <= rank && rank < upto);
      const int lane = max(0, __ffs(static_cast<int>(those)) - 1);
      const unsigned after = __shfl_sync(kAllLanes, upto, lane);
      const unsigned greater = __ballot_sync(kAllLanes, is_listed && less == after);
      if (Rank() == lane) shared_.lower = static_cast<Word>(key);
      if (Rank() == (next < after ? lane : __ffs(static_cast<int>(greater)) - 1)) {
        shared_.higher = static_cast<Word>(key);
      }
      if (Rank() == 0) shared_.has_higher = next < after || greater != 0;
    }
    Sync();
  }

  // By a warp: finds the bin that has the rank among `kAmong` bins from `first`, before which there are `below` keys.
  // Elements that another process changes may leave it out; then it is any.
  template <int kAmong = kBins>
  __device__ void FindBin(const unsigned (&counts)[kBins], unsigned rank, int first = 0, unsigned below = 0) {
    constexpr int kMine = (kAmong + kLanes - 1) / kLanes;
    const int lane = static_cast<int>(threadIdx.x % kLanes), mine = first + lane * kMine;
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
      shared_.bin = static_cast<unsigned>(mine);
      shared_.below = before;
      shared_.size = sum;
    }
  }

  // The bounds of some keys but the largest one.
  struct Bounds {
    Word least = kMost;
    Word beyond = 0;  // one more than the greatest one
    __device__ void Add(Word key) {
      least = min(least, key);
      beyond = max(beyond, static_cast<Word>(key + 1));
    }
  };
  // The keys within the bounds of all threads.
  __device__ Range OfAll(const Bounds& bounds) {
    const Word least = LeastOfAll(bounds.least);
    const auto beyond = static_cast<Word>(~LeastOfAll(static_cast<Word>(~bounds.beyond)));
    if (beyond == 0) return {};
    return {least, static_cast<Word>(beyond - 1)};
  }

  // The least of all threads' keys.
  __device__ Word LeastOfAll(Word key) {
    Bits<Word> least = key;
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
      least = min(least, __shfl_xor_sync(kAllLanes, least, lanes));
    }
    if constexpr (kBlock) {
      if (Rank() == 0) shared_.least = kMost;
      Sync();
      if (Rank() % kLanes == 0) atomicMin(&shared_.least, static_cast<unsigned long long>(least));
      Sync();
      least = static_cast<Bits<Word>>(shared_.least);
      Sync();
    }
    return static_cast<Word>(least);
  }

  // The least key that is greater, or the largest one.
  __device__ Word Next(Word key) {
    Word next = kMost;
    VisitKeys([&](Word other) { next = other > key && other < next ? other : next; });
    return LeastOfAll(next);
  }

  // Bitonic, of any number of keys: each comparison brings the lesser one to the lower place, so that places behind the
  // last one need not be there.
  __device__ void Sort() {
    for (int size = 2; size / 2 < positions_; size *= 2) {
      for (int distance = size / 2; distance > 0; distance /= 2) {
        const int flip = distance == size / 2 ? size - 1 : distance;
        for (int i = Rank();; i += Size()) {
          const int low = 2 * i - (i & (distance - 1)), high = low ^ flip;
          if (low >= positions_) break;
          if (high >= positions_) continue;
          const Word a = keys_[low], b = keys_[high];
          if (a > b) {
            keys_[low] = b;
            keys_[high] = a;
          }
        }
        Sync();
      }
    }
  }

  const QuantilesLaunch& launch_;
  const KeyFormat& format_;
  const GroupPart& part_;
  const bool neighbours_;
  Shared& shared_;
  Word* const keys_;
  const int positions_;
  const bool is_cached_;
  const bool is_sorted_;
  Range bins_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUANTILE_SELECTOR_CUH_
