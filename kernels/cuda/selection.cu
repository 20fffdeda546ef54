#include <algorithm>

#include "kernels/cuda/selection.h"
#include "kernels/cuda/visit_elements.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr unsigned kAll = ~0U;

int BlocksFor(std::int64_t count, int bytes, int multiprocessors) {
  const std::int64_t wanted = (count * bytes + 16 * kThreads - 1) / (16 * kThreads);
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::int64_t{kBlocks} * multiprocessors));
}

// Where a warp puts the keys that it gathers.
template <class Word>
class Gatherer {
 public:
  __device__ Gatherer(const CountKeysLaunch& launch)
      : gather_(static_cast<Word*>(launch.gather)),
        room_(launch.room),
        chunk_(launch.chunk),
        cursor_(&launch.counted->gathered),
        used_(launch.chunk) {}

  // By a whole warp.
  __device__ void Add(Word key, bool wanted) {
    const unsigned lanes = __ballot_sync(kAll, wanted);
    if (lanes == 0) return;
    const int lane = threadIdx.x % 32;
    const int wants = __popc(lanes);
    if (used_ + wants > chunk_) {
      Fill();
      const int size = chunk_ > 0 ? chunk_ : wants;
      if (lane == 0) base_ = atomicAdd(cursor_, static_cast<unsigned long long>(size));
      base_ = __shfl_sync(kAll, base_, 0);
      used_ = 0;
    }
    const auto at = static_cast<std::int64_t>(base_) + used_ + __popc(lanes & ((1U << lane) - 1));
    if (wanted && at < room_) gather_[at] = key;
    used_ = chunk_ > 0 ? used_ + wants : 0;
  }
  // Fills what is left of the chunk with the largest key.
  __device__ void Fill() {
    for (int i = used_ + static_cast<int>(threadIdx.x % 32); i < chunk_; i += 32) {
      const auto at = static_cast<std::int64_t>(base_) + i;
      if (at < room_) gather_[at] = static_cast<Word>(~Word{0});
    }
  }

 private:
  Word* const gather_;
  const std::int64_t room_;
  const int chunk_;
  unsigned long long* const cursor_;
  unsigned long long base_ = 0;
  int used_;
};

// kRanges: at least as many as the launch has. kPlain: IsPlain(launch.format).
template <class Word, int kRanges, bool kPlain>
__global__ void __launch_bounds__(kThreads, kBlocks) CountKeys(const __grid_constant__ CountKeysLaunch launch) {
  extern __shared__ unsigned counts[];
  constexpr int kBounded = kRanges < CountedKeys::kBoundedRanges ? kRanges : CountedKeys::kBoundedRanges;
  const int all = launch.count_of_ranges << launch.digit;
  for (int i = threadIdx.x; i < all; i += kThreads) counts[i] = 0;
  __syncthreads();
  Word least[kBounded], largest[kBounded];
#pragma unroll
  for (int r = 0; r < kBounded; ++r) {
    least[r] = static_cast<Word>(~Word{0});
    largest[r] = 0;
  }
  const KeyFormat format = kPlain ? Plain(launch.format) : launch.format;
  Gatherer<Word> gatherer(launch);
  const bool gathers = launch.gather != nullptr;
  VisitElements(static_cast<const Word*>(launch.data), launch.count, launch.stretch,
                [&](Word raw, bool is_there, std::int64_t) {
                  const Word key = KeyOf(raw, format, &is_there);
                  bool wanted = false;
#pragma unroll
                  for (int r = 0; r < kRanges; ++r) {
                    if (kRanges > 1 && r >= launch.count_of_ranges) break;
                    const auto beyond = static_cast<Word>(key - static_cast<Word>(launch.ranges[r].lo));
                    if (!is_there || beyond > static_cast<Word>(launch.ranges[r].span)) continue;
                    wanted = true;
                    const auto digit = static_cast<unsigned>(beyond >> launch.ranges[r].shift);
                    atomicAdd(&counts[(static_cast<unsigned>(r) << launch.digit) + digit], 1U);
                    if (r < kBounded) {
                      least[r] = key < least[r] ? key : least[r];
                      largest[r] = key > largest[r] ? key : largest[r];
                    }
                  }
                  if (gathers) gatherer.Add(key, wanted);
                });
  if (gathers) gatherer.Fill();
#pragma unroll
  for (int r = 0; r < kBounded; ++r) {
    auto inverse = static_cast<unsigned long long>(static_cast<Word>(~least[r]));
    unsigned long long most = largest[r];
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      inverse = max(inverse, __shfl_xor_sync(kAll, inverse, lanes));
      most = max(most, __shfl_xor_sync(kAll, most, lanes));
    }
    if (threadIdx.x % 32 == 0 && r < launch.count_of_ranges) {
      atomicMax(&launch.counted->inverse_least[r], inverse);
      atomicMax(&launch.counted->largest[r], most);
    }
  }
  __syncthreads();
  auto* const total = reinterpret_cast<unsigned long long*>(launch.counted + 1);
  for (int i = threadIdx.x; i < all; i += kThreads) {
    if (counts[i] > 0) atomicAdd(&total[i], static_cast<unsigned long long>(counts[i]));
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads, kBlocks) GatherKeys(const __grid_constant__ GatherKeysLaunch launch) {
  const KeyFormat plain = Plain(launch.format);
  const auto unwanted = static_cast<Word>(launch.first_unwanted);
  const auto unwanted_span = static_cast<Word>(launch.last_unwanted - launch.first_unwanted);
  const auto least = static_cast<Word>(launch.least);
  const auto span = static_cast<Word>(launch.most - launch.least);
  bool full = false;  // as this warp knows; then it counts no more
  VisitElements(static_cast<const Word*>(launch.data) + launch.first, launch.count, 1,
                [&](Word raw, bool is_there, std::int64_t index) {
                  if (launch.has_unwanted) {
                    const auto beyond = static_cast<Word>(KeyOf(raw, plain, &is_there) - unwanted);
                    if (!__any_sync(kAll, is_there && beyond > unwanted_span)) return;
                  }
                  const Word key = KeyOf(raw, launch.format, &is_there);
                  const bool wanted = is_there && static_cast<Word>(key - least) <= span;
                  const unsigned lanes = __ballot_sync(kAll, wanted);
                  if (lanes == 0 || full) return;
                  const int lane = threadIdx.x % 32;
                  unsigned long long base = 0;
                  if (lane == 0) base = atomicAdd(launch.found, static_cast<unsigned long long>(__popc(lanes)));
                  base = __shfl_sync(kAll, base, 0);
                  const auto at = static_cast<std::int64_t>(base) + __popc(lanes & ((1U << lane) - 1));
                  full = static_cast<std::int64_t>(base) > launch.room;
                  if (wanted && at < launch.room) launch.keys[at] = {key, launch.first + index};
                });
}

template <class Word, int kRanges, bool kPlain>
cudaError_t Count(const CountKeysLaunch& launch) {
  const auto shared = static_cast<std::size_t>(launch.shared_bytes());
  // All that a block can have: other threads launch it with more or less.
  const cudaError_t error =
      cudaFuncSetAttribute(CountKeys<Word, kRanges, kPlain>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(launch.most_shared_bytes));
  if (error != cudaSuccess) return error;
  CountKeys<Word, kRanges, kPlain>
      <<<BlocksFor(launch.count, sizeof(Word), launch.multiprocessors), kThreads, shared, launch.stream>>>(launch);
  return cudaGetLastError();
}

template <class Word>
cudaError_t CountOf(const CountKeysLaunch& launch) {
  constexpr int kFew = CountedKeys::kBoundedRanges, kMost = CountedKeys::kMostRanges;
  if (!IsPlain(launch.format)) return Count<Word, 1, false>(launch);
  if constexpr (sizeof(Word) > 1) {  // a pass knows all keys of 8 bits
    if (launch.count_of_ranges > kFew) return Count<Word, kMost, true>(launch);
    if (launch.count_of_ranges > 1) return Count<Word, kFew, true>(launch);
  }
  return Count<Word, 1, true>(launch);
}

template <class Word>
cudaError_t Gather(const GatherKeysLaunch& launch) {
  GatherKeys<Word>
      <<<BlocksFor(launch.count, sizeof(Word), launch.multiprocessors), kThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

std::int64_t UnusedOfChunks(int multiprocessors) {
  return std::int64_t{kBlocks} * multiprocessors * (kThreads / 32) * kGatherChunk;
}

cudaError_t LaunchCountKeys(const CountKeysLaunch& launch) {
  switch (launch.format.bytes) {
    case 1:
      return CountOf<std::uint8_t>(launch);
    case 2:
      return CountOf<std::uint16_t>(launch);
    case 4:
      return CountOf<std::uint32_t>(launch);
    default:
      return CountOf<std::uint64_t>(launch);
  }
}

cudaError_t LaunchGatherKeys(const GatherKeysLaunch& launch) {
  switch (launch.format.bytes) {
    case 1:
      return Gather<std::uint8_t>(launch);
    case 2:
      return Gather<std::uint16_t>(launch);
    case 4:
      return Gather<std::uint32_t>(launch);
    default:
      return Gather<std::uint64_t>(launch);
  }
}

}  // namespace reduced
