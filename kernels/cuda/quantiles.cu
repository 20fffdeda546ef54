// Quantiles of many outputs: a warp or a block selects those of an output, without a look at any other.
//
// The sort keys of an output are copied to shared memory, where they are counted by their highest 8 bits. The bin that
// has the wanted rank is found, its keys are counted by their next 8 bits, and so on: a radix selection, whose later
// passes read shared memory only. Of many quantiles, or of very short outputs, the keys are sorted instead. What has no
// rank, NaNs and elements that a mask leaves out, has the largest key, behind all others. A second kernel answers from
// the two neighbours of each quantile.
//
// What is to be expected of 1 GiB of f32 in rows of 1024: it is read once; 4 MiB of numbers and keys are written and
// read, and 2 MiB of answers written. A lane executes some 50 instructions for each element, the issue of which takes
// an H100 about two plain reads; three quantiles take 40 more. Outputs whose keys do not fit in shared memory are read
// once for each digit, of 11 bits then, and once more if the neighbours differ: f32 four times.
//
// Compiled without contraction of operations: what is between two elements is rounded operation by operation.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/sort_key.h"
#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/quantiles.h"
#include "kernels/cuda/selection.h"
#include "kernels/cuda/vector16.cuh"
#include "kernels/folds/quantile_points.h"

namespace reduced {
namespace {

constexpr unsigned kAllLanes = ~0U;
constexpr int kLanes = 32;
constexpr int kWarpsOfBlock = 8;       // if each has an output of its own; of columns they read the same sectors
constexpr int kBytesOfWarp = 4 << 10;  // of the keys of an output that a warp has
constexpr int kBytesOfThread = 128;    // of a block
constexpr int kLeastThreads = 128, kMostThreads = 1024;  // of a block
constexpr int kMostBytesOfBlock = 128 << 10;             // of keys in shared memory
constexpr int kShortDigit = 8, kLongDigit = 11;          // bits of a pass; the second if keys are not in shared memory
constexpr std::int64_t kHasNan = -1, kLeft = -2;         // in place of how many numbers an output has

// Which outputs a launch selects from: those of more than `shortest` positions, and of at most `longest`.
struct Share {
  bool neighbours = false;  // LieOf(array) == Lie::kNeighbours
  int room = 0;             // keys of an output in shared memory
  std::int64_t shortest = -1;
  std::int64_t longest = 0;
};

// Selects from one output. kBlock: by the threads of a block; else by a warp.
template <class Word, bool kBlock, int kDigit>
class Selector {
 public:
  static constexpr int kBits = 8 * sizeof(Word);
  static constexpr int kBins = 1 << kDigit;
  static constexpr Word kMost = static_cast<Word>(~Word{0});
  static constexpr int kElements = Vector16<Word>::kElements;
  // Whether an output's keys may be in shared memory, and whether they may not. The first digit is all of a byte.
  static constexpr bool kMayBeCached = sizeof(Word) > 1 && kDigit == kShortDigit;
  static constexpr bool kMayBeUncached = kBlock || !kMayBeCached;

  // In shared memory, followed by the keys.
  struct Shared {
    alignas(16) unsigned first[kBins];  // counts of the highest digit
    unsigned counts[kBins];             // of another one
    unsigned largest;                   // positions with the largest key
    unsigned absent;                    // of these, those without an element
    unsigned bin;                       // that has the rank
    unsigned below;                     // of its rank, among those with the same higher digits
    unsigned size;
    std::uint64_t next;
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
        is_cached_(kMayBeCached && positions_ <= share.room),
        // Selecting by one digit after the other takes as long as sorting then.
        is_sorted_(is_cached_ && launch.of_each > min(16, positions_ / 64)) {}

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
        unsigned upto;
        lower = higher = Select(static_cast<unsigned>(point.lower), &upto);
        if (point.higher >= upto) higher = Next(lower);
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
      bool counts = is_there;
      const Word key = KeyOf(raw, format_, &counts);
      visit(is_there ? key : kMost, is_there, place);
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
    if constexpr (kMayBeUncached) {
      if (!is_cached_) return VisitArray([&](Word key, bool, int) { visit(key); });
    }
    for (int v = Rank(); v * kElements < positions_; v += Size()) {
      Vector16<Word> some;
      memcpy(&some, reinterpret_cast<const uint4*>(keys_) + v, sizeof(some));
#pragma unroll
      for (int e = 0; e < kElements; ++e) visit(some.element[e]);
    }
  }

  // Counts all positions by the highest digit of their keys, and caches these.
  __device__ void Read() {
    Clear(shared_.first);
    if (Rank() == 0) shared_.largest = shared_.absent = 0;
    Sync();
    VisitArray([&](Word key, bool is_there, int place) {
      if (is_cached_) keys_[place] = key;
      if (!is_sorted_) atomicAdd(&shared_.first[key >> (kBits - kFirst)], 1U);
      if (key == kMost) atomicAdd(&shared_.largest, 1U);
      if (!is_there) atomicAdd(&shared_.absent, 1U);
    });
    // The last vector of keys is full: of the largest ones, which change no rank.
    const int end = (positions_ + kElements - 1) / kElements * kElements;
    for (int i = positions_ + Rank(); is_cached_ && i < end; i += Size()) keys_[i] = kMost;
    Sync();
  }

  // How many elements have a rank.
  __device__ std::int64_t Numbers() const {
    const unsigned there = static_cast<unsigned>(positions_) - shared_.absent;
    if (!format_.is_float) return there;
    const unsigned nans = shared_.largest - shared_.absent;
    return nans > 0 && !launch_.omit_nan ? kHasNan : static_cast<std::int64_t>(there - nans);
  }

  // The key of that rank; *upto: how many keys are not greater.
  __device__ Word Select(unsigned rank, unsigned* upto) {
    Word prefix = 0;
    *upto = 0;
    for (int unknown = kBits; unknown > 0;) {
      const int shift = max(0, unknown - kDigit);
      const bool is_first = unknown == kBits;
      if (!is_first) {
        Clear(shared_.counts);
        Sync();
        VisitKeys([&](Word key) {
          if (key >> unknown != prefix >> unknown) return;
          atomicAdd(&shared_.counts[static_cast<unsigned>(key >> shift) & (kBins - 1)], 1U);
        });
      }
      Sync();
      if (Rank() < kLanes) FindBin(is_first ? shared_.first : shared_.counts, rank - *upto);
      Sync();
      const unsigned mask = (1U << (unknown - shift)) - 1;
      prefix = static_cast<Word>(prefix | static_cast<Word>(Word(shared_.bin & mask) << shift));
      *upto += shared_.below;
      unknown = shift;
    }
    *upto += shared_.size;
    return prefix;
  }

  // By a warp: finds the bin that has the rank. Elements that another process changes may leave it out; then it is any.
  __device__ void FindBin(const unsigned (&counts)[kBins], unsigned rank) {
    constexpr int kMine = kBins / kLanes;
    const int lane = static_cast<int>(threadIdx.x % kLanes);
    unsigned sum = 0;
#pragma unroll
    for (int i = 0; i < kMine / 4; ++i) {
      const uint4 some = reinterpret_cast<const uint4*>(counts)[lane * (kMine / 4) + i];
      sum += some.x + some.y + some.z + some.w;
    }
    unsigned upto = sum;
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) {
      const unsigned other = __shfl_up_sync(kAllLanes, upto, lanes);
      if (lane >= lanes) upto += other;
    }
    unsigned below = upto - sum;
    if (rank < below || (rank >= upto && lane < kLanes - 1)) return;
    int bin = lane * kMine;
    for (const int last = bin + kMine - 1; bin < last && rank - below >= counts[bin]; ++bin) below += counts[bin];
    shared_.bin = static_cast<unsigned>(bin);
    shared_.below = below;
    shared_.size = counts[bin];
  }

  // The least key that is greater, or the largest one.
  __device__ Word Next(Word key) {
    Word next = kMost;
    VisitKeys([&](Word other) { next = other > key && other < next ? other : next; });
    if (Rank() == 0) shared_.next = kMost;
    Sync();
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
      next = static_cast<Word>(min(std::uint64_t{next}, __shfl_xor_sync(kAllLanes, std::uint64_t{next}, lanes)));
    }
    if (Rank() % kLanes == 0) atomicMin(reinterpret_cast<unsigned long long*>(&shared_.next), std::uint64_t{next});
    Sync();
    return static_cast<Word>(shared_.next);
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

  static constexpr int kFirst = kDigit < kBits ? kDigit : kBits;  // bits of the highest digit

  const QuantilesLaunch& launch_;
  const KeyFormat& format_;
  const GroupPart& part_;
  const bool neighbours_;
  Shared& shared_;
  Word* const keys_;
  const int positions_;
  const bool is_cached_;
  const bool is_sorted_;
};

template <class Word, bool kBlock, int kDigit>
__global__ void __launch_bounds__(kBlock ? kMostThreads : kWarpsOfBlock* kLanes, kBlock ? 1 : 4)
    SelectKernel(const __grid_constant__ QuantilesLaunch launch, const __grid_constant__ KeyFormat format,
                 const __grid_constant__ Share share) {
  extern __shared__ uint4 shared_memory[];
  using Output = Selector<Word, kBlock, kDigit>;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t item = kBlock ? std::int64_t{blockIdx.x} : std::int64_t{blockIdx.x} * kWarpsOfBlock + warp;
  if (item >= launch.count) return;
  const GroupPart part = WholeOutput(launch.outputs, launch.array, launch.first + item);
  if (part.end <= share.shortest) return;
  if (part.end > share.longest) {
    if (threadIdx.x % kLanes == 0) launch.numbers[item] = kLeft;
    return;
  }
  auto* const memory = reinterpret_cast<std::byte*>(shared_memory);
  Output(launch, format, share, part, memory + (kBlock ? 0 : warp * Output::SharedBytes(share.room))).Run(item);
}

// Answers from the keys: FinishQuantiles of folds/quantile_answers.h.
template <class T>
__global__ void __launch_bounds__(kItemThreads) FinishKernel(const __grid_constant__ QuantilesLaunch launch) {
  using Key = SortKey<T>;
  ForEachItem(launch.count * launch.of_each, [&](std::int64_t i) {
    const std::int64_t item = i / launch.of_each, q = i - item * launch.of_each;
    const std::int64_t numbers = launch.numbers[item];
    if (q == 0) launch.left[item] = numbers == kLeft ? kTooLong : numbers == 0 ? kNotKnown : kAnswered;
    if (numbers == kLeft) return;
    const bool is_known = numbers > 0;
    const auto* const keys = static_cast<const typename Key::Type*>(launch.keys) + 2 * i;
    const T none = kIsFloat<T> ? Key::Element(Key::kNan) : T{};
    const T lower = is_known ? Key::Element(keys[0]) : none;
    if (!AnswersInF64(launch.method)) {
      reinterpret_cast<T*>(launch.answers)[i] = lower;
      return;
    }
    double answer = __longlong_as_double(0x7ff8'0000'0000'0000);
    if (is_known) {
      const QuantilePoint point = PointOf(launch.quantiles[q], numbers, launch.method);
      answer = BetweenElements(lower, Key::Element(keys[1]), point.weight, launch.is_median);
    }
    reinterpret_cast<double*>(launch.answers)[i] = answer;
  });
}

template <class Word, bool kBlock, int kDigit>
cudaError_t LaunchSelect(const QuantilesLaunch& launch, const KeyFormat& format, const Share& share, int threads) {
  using Output = Selector<Word, kBlock, kDigit>;
  constexpr int kOutputs = kBlock ? 1 : kWarpsOfBlock;
  const auto kernel = SelectKernel<Word, kBlock, kDigit>;
  const std::int64_t shared = kOutputs * Output::SharedBytes(share.room);
  // All that a block can have: other threads launch it with more or less.
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(launch.most_shared_bytes));
  if (error != cudaSuccess) return error;
  const auto blocks = static_cast<unsigned>((launch.count + kOutputs - 1) / kOutputs);
  kernel<<<blocks, static_cast<unsigned>(threads), static_cast<std::size_t>(shared), launch.stream>>>(launch, format,
                                                                                                      share);
  return cudaGetLastError();
}

// Outputs of a few KiB have a warp each, longer ones a block, whose shared memory has as many keys as an output has, or
// twice as many as it has on average.
template <class Word>
cudaError_t LaunchSelects(const QuantilesLaunch& launch, const KeyFormat& format) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Word));
  constexpr std::int64_t kOfWarp = kBytesOfWarp / kWidth;
  constexpr int kDigit = sizeof(Word) == 1 ? kShortDigit : kLongDigit;
  const bool is_uniform = launch.outputs.bounds == nullptr;
  Share share{.neighbours = LieOf(launch.array) == Lie::kNeighbours};
  if (!is_uniform || launch.positions <= kOfWarp) {
    share.room = static_cast<int>(is_uniform ? launch.positions : kOfWarp);
    share.longest = kOfWarp;
    const cudaError_t error = LaunchSelect<Word, false, kShortDigit>(launch, format, share, kWarpsOfBlock * kLanes);
    if (is_uniform || error != cudaSuccess) return error;
    share.shortest = kOfWarp;
  }
  const std::int64_t wanted = is_uniform ? launch.positions : std::max(2 * launch.positions, kOfWarp);
  const std::int64_t most_bytes = std::min<std::int64_t>(
      kMostBytesOfBlock, launch.most_shared_bytes - Selector<Word, true, kShortDigit>::SharedBytes(0));
  const bool caches = wanted * kWidth <= most_bytes;
  share.room = static_cast<int>(caches ? wanted : 0);
  share.longest = launch.longest;
  const auto threads = static_cast<int>(std::bit_floor(
      static_cast<unsigned>(std::clamp<std::int64_t>(wanted * kWidth / kBytesOfThread, kLeastThreads, kMostThreads))));
  return caches ? LaunchSelect<Word, true, kShortDigit>(launch, format, share, threads)
                : LaunchSelect<Word, true, kDigit>(launch, format, share, threads);
}

}  // namespace

cudaError_t LaunchQuantiles(const QuantilesLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    const cudaError_t error = LaunchSelects<typename SortKey<T>::Type>(launch, KeyFormatOf<T>());
    if (error != cudaSuccess) return error;
    FinishKernel<T><<<BlocksForItems(launch.count * launch.of_each), kItemThreads, 0, launch.stream>>>(launch);
    return cudaGetLastError();
  });
}

}  // namespace reduced
