// Counts in shared memory, of which each lane of a warp has a column of its own: whatever the elements are, the 32
// additions of an instruction go to 32 banks, so that none waits for another. The warps of a block share the table.
#include <algorithm>

#include "kernels/cuda/count_bytes.h"
#include "kernels/cuda/vector16.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 1024;
constexpr int kBlocks = 2;    // of a multiprocessor
constexpr int kInFlight = 2;  // vectors of a thread
constexpr int kPlaceThreads = 512;
constexpr int kVector = 16;  // bytes
constexpr int kLanes = 32;
constexpr int kTableBytes = kByteValues * kLanes * static_cast<int>(sizeof(unsigned));
constexpr unsigned kAll = ~0U;

// The bytes of an array: a few up to a multiple of 16, vectors, and a few more.
struct Bytes {
  const std::uint8_t* data;
  std::int64_t head;
  std::int64_t vectors;
  std::int64_t edges;  // before and behind the vectors: fewer than 32

  __device__ Bytes(const void* bytes, std::int64_t count) : data(static_cast<const std::uint8_t*>(bytes)) {
    const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % kVector);
    const std::int64_t before = beyond == 0 ? 0 : kVector - beyond;
    head = before < count ? before : count;
    vectors = (count - head) / kVector;
    edges = count - vectors * kVector;
  }
  __device__ const uint4* body() const { return reinterpret_cast<const uint4*>(data + head); }
  __device__ std::int64_t EdgeIndex(int lane) const { return lane < head ? lane : lane + vectors * kVector; }
};

// `row`: an element times the bytes of a row of the table, with any other bits.
__device__ __forceinline__ void CountRow(std::byte* column, unsigned row) {
  constexpr unsigned kRows = (kByteValues - 1) * kLanes * sizeof(unsigned);
  atomicAdd(reinterpret_cast<unsigned*>(column + (row & kRows)), 1U);
}

__global__ void __launch_bounds__(kThreads, kBlocks) CountBytes(const void* data, std::int64_t count, ByteCounts* out) {
  extern __shared__ unsigned table[];
  for (int i = threadIdx.x; i < kByteValues * kLanes; i += kThreads) table[i] = 0;
  __syncthreads();
  const int lane = threadIdx.x % kLanes;
  auto* const column = reinterpret_cast<std::byte*>(table + lane);
  const Bytes bytes(data, count);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; v < bytes.vectors; v += kInFlight * step) {
    Vector16<std::uint8_t>::Packed loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (v + i * step < bytes.vectors) loaded[i] = LoadOnce<std::uint8_t>(bytes.body() + v + i * step).Words();
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (v + i * step >= bytes.vectors) break;
#pragma unroll
      for (const unsigned word : loaded[i].word) {
        static_assert(kLanes * sizeof(unsigned) == 1 << 7);
        CountRow(column, word << 7);
        CountRow(column, word >> 1);
        CountRow(column, word >> 9);
        CountRow(column, word >> 17);
      }
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < bytes.edges) CountRow(column, bytes.data[bytes.EdgeIndex(lane)] << 7);
  __syncthreads();
  for (int value = threadIdx.x / kLanes; value < kByteValues; value += kThreads / kLanes) {
    const auto sum = static_cast<unsigned long long>(__reduce_add_sync(kAll, table[value * kLanes + lane]));
    if (lane == 0 && sum > 0) atomicAdd(&out->counts[value], sum);
  }
}

// What is looked for.
enum Wanted : int { kLeast, kGreatest, kNan, kWanted };

// Finds the first place of each wanted element, which `out` has the counts of. Blocks go through the array in its
// order, and end where others have found all before.
__global__ void __launch_bounds__(kPlaceThreads, kBlocks) FindPlaces(const __grid_constant__ CountBytesLaunch launch) {
  constexpr int kAhead = 4;
  constexpr unsigned kNowhere = ~0U;
  constexpr unsigned kTop = 0x80808080U, kOne = 0x01010101U;
  __shared__ unsigned least_key, greatest_key, has_nan;
  if (threadIdx.x == 0) {
    least_key = ~0U;
    greatest_key = has_nan = 0;
  }
  __syncthreads();
  KeyFormat format = launch.format;
  format.omit_nan = false;
  const auto key_of = [&format](unsigned value) -> unsigned {
    bool counts = true;
    return KeyOf(static_cast<std::uint8_t>(value), format, &counts);
  };
  const auto is_nan = [](unsigned key) { return key == 0xff; };
  if (threadIdx.x < kByteValues && launch.out->counts[threadIdx.x] > 0) {
    const unsigned key = key_of(threadIdx.x);
    if (is_nan(key)) {
      has_nan = launch.format.omit_nan ? 0 : 1;
    } else {
      atomicMin(&least_key, key);
      atomicMax(&greatest_key, key);
    }
  }
  __syncthreads();
  __shared__ unsigned least_value, greatest_value;
  if (threadIdx.x < kByteValues && key_of(threadIdx.x) == least_key) least_value = threadIdx.x;
  if (threadIdx.x < kByteValues && key_of(threadIdx.x) == greatest_key) greatest_value = threadIdx.x;
  __syncthreads();
  const bool has_numbers = least_key <= greatest_key;
  const unsigned least = has_numbers ? least_value : 0, greatest = has_numbers ? greatest_value : 0;
  const bool wants[kWanted] = {has_numbers, has_numbers, has_nan != 0};
  unsigned long long* const found[kWanted] = {&launch.out->inverse_least, &launch.out->inverse_greatest,
                                              &launch.out->inverse_nan};
  const auto is = [&](int wanted, unsigned value) {
    return wanted == kNan ? is_nan(key_of(value)) : value == (wanted == kLeast ? least : greatest);
  };
  // Whether a word may have what is still looked for.
  const unsigned least_bytes = least * kOne, greatest_bytes = greatest * kOne;
  const auto zeros = [](unsigned word) { return (word - kOne) & ~word & kTop; };
  // NaNs are the bits beyond the greatest number's, whatever the sign.
  const unsigned to_top = (0x80 - (static_cast<unsigned>(format.greatest + 1) & 0x7f)) * kOne;
  const unsigned any_sign = format.sign != 0 ? kTop : 0;
  bool done[kWanted] = {!wants[kLeast], !wants[kGreatest], !wants[kNan]};
  const auto may_have = [&](unsigned word) {
    unsigned tops = done[kLeast] ? 0 : zeros(word ^ least_bytes);
    if (!done[kGreatest]) tops |= zeros(word ^ greatest_bytes);
    if (!done[kNan]) tops |= ((word & ~kTop) + to_top) & (word | any_sign) & kTop;
    return tops != 0;
  };

  const int lane = threadIdx.x % kLanes;
  const Bytes bytes(launch.data, launch.count);
  const auto report = [&](int wanted, std::int64_t index) {
    atomicMax(found[wanted], ~static_cast<unsigned long long>(launch.base_index + index));
  };
  if (blockIdx.x == 0 && threadIdx.x < bytes.edges) {
    const std::int64_t index = bytes.EdgeIndex(lane);
    for (int wanted = 0; wanted < kWanted; ++wanted) {
      if (wants[wanted] && is(wanted, bytes.data[index])) report(wanted, index);
    }
  }
  // What others know, and where this block's piece has what is wanted first, in bytes from its beginning.
  __shared__ unsigned long long known[kWanted];
  __shared__ unsigned first[kWanted];
  if (threadIdx.x < kWanted) first[threadIdx.x] = kNowhere;
  constexpr std::int64_t kPiece = std::int64_t{kPlaceThreads} * kAhead;  // vectors
  for (std::int64_t piece = blockIdx.x * kPiece; piece < bytes.vectors; piece += gridDim.x * kPiece) {
    Vector16<std::uint8_t> loaded[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t at = piece + i * kPlaceThreads + threadIdx.x;
      if (at < bytes.vectors) loaded[i] = LoadOnce<std::uint8_t>(bytes.body() + at);
    }
    if (threadIdx.x < kWanted) {
      known[threadIdx.x] = *const_cast<volatile unsigned long long*>(found[threadIdx.x]);
    }
    __syncthreads();
    const std::int64_t begin = bytes.head + piece * kVector;
#pragma unroll
    for (int wanted = 0; wanted < kWanted; ++wanted) {
      const auto before = static_cast<std::int64_t>(~known[wanted]);
      done[wanted] = done[wanted] || (known[wanted] != 0 && before < launch.base_index + begin);
    }
    if (done[kLeast] && done[kGreatest] && done[kNan]) return;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      bool may = false;
      for (const unsigned word : loaded[i].Words().word) may = may || may_have(word);
      may = may && piece + i * kPlaceThreads + threadIdx.x < bytes.vectors;
      if (!__any_sync(kAll, may)) continue;
#pragma unroll
      for (int wanted = 0; wanted < kWanted; ++wanted) {
        if (done[wanted]) continue;
        unsigned at = kNowhere;
#pragma unroll
        for (int e = kVector - 1; e >= 0; --e) {
          if (may && is(wanted, loaded[i].element[e])) at = (i * kPlaceThreads + threadIdx.x) * kVector + e;
        }
        at = __reduce_min_sync(kAll, at);
        if (lane == 0 && at != kNowhere) atomicMin(&first[wanted], at);
      }
    }
    __syncthreads();
    if (threadIdx.x < kWanted && first[threadIdx.x] != kNowhere) {
      report(static_cast<int>(threadIdx.x), begin + first[threadIdx.x]);
      first[threadIdx.x] = kNowhere;
    }
  }
}

}  // namespace

cudaError_t LaunchCountBytes(const CountBytesLaunch& launch) {
  constexpr std::int64_t kBlockBytes = std::int64_t{kVector} * kThreads;
  const std::int64_t wanted = (launch.count + kBlockBytes - 1) / kBlockBytes;
  const auto blocks =
      static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::int64_t{kBlocks} * launch.multiprocessors));
  CountBytes<<<blocks, kThreads, kTableBytes, launch.stream>>>(launch.data, launch.count, launch.out);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || !launch.finds_places) return error;
  FindPlaces<<<blocks, kPlaceThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace reduced
