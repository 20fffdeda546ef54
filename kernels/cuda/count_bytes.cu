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
constexpr int kVector = 16;   // bytes
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

// Finds the first place of each wanted element, which `out` has the counts of. Warps go through the array in its order,
// and end where others have found all before.
__global__ void __launch_bounds__(kThreads) FindPlaces(const __grid_constant__ CountBytesLaunch launch) {
  constexpr int kAhead = 4;
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
  // Whether a word may have what this warp still looks for.
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
  // By a whole warp, whose lanes have their places in the array's order; whether one has what is wanted.
  const auto report = [&](int wanted, bool has, std::int64_t index) {
    const unsigned lanes = __ballot_sync(kAll, has);
    if (lanes != 0 && lane == __ffs(static_cast<int>(lanes)) - 1) {
      atomicMax(found[wanted], ~static_cast<unsigned long long>(launch.base_index + index));
    }
    return lanes != 0;
  };
  if (blockIdx.x == 0 && threadIdx.x < kLanes) {
    const bool is_there = lane < bytes.edges;
    const std::int64_t index = bytes.EdgeIndex(lane);
    const unsigned value = is_there ? bytes.data[index] : 0;
#pragma unroll
    for (int wanted = 0; wanted < kWanted; ++wanted) {
      report(wanted, is_there && wants[wanted] && is(wanted, value), index);
    }
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x - lane;
  for (; v < bytes.vectors; v += kAhead * step) {
    Vector16<std::uint8_t> loaded[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t at = v + lane + i * step;
      if (at < bytes.vectors) loaded[i] = LoadOnce<std::uint8_t>(bytes.body() + at);
    }
    bool all_done = true;
#pragma unroll
    for (int wanted = 0; wanted < kWanted; ++wanted) {
      unsigned long long before = 0;
      if (lane == 0) before = *const_cast<volatile unsigned long long*>(found[wanted]);
      before = __shfl_sync(kAll, before, 0);
      const std::int64_t index = launch.base_index + bytes.head + v * kVector;
      done[wanted] = done[wanted] || (before != 0 && static_cast<std::int64_t>(~before) < index);
      all_done = all_done && done[wanted];
    }
    if (all_done) return;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t at = v + lane + i * step;
      bool may = false;
      for (const unsigned word : loaded[i].Words().word) may = may || may_have(word);
      may = may && at < bytes.vectors;
      if (!__any_sync(kAll, may)) continue;
#pragma unroll
      for (int wanted = 0; wanted < kWanted; ++wanted) {
        if (done[wanted]) continue;
        int first = kVector;
#pragma unroll
        for (int e = kVector - 1; e >= 0; --e) {
          if (is(wanted, loaded[i].element[e])) first = e;
        }
        const bool has = may && first < kVector;
        done[wanted] = report(wanted, has, bytes.head + at * kVector + first);
      }
    }
  }
}

}  // namespace

cudaError_t LaunchCountBytes(const CountBytesLaunch& launch) {
  constexpr std::int64_t kBlockBytes = std::int64_t{kVector} * kThreads;
  const std::int64_t wanted = (launch.count + kBlockBytes - 1) / kBlockBytes;
  const auto blocks = [&](int of_each) {
    return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::int64_t{of_each} * launch.multiprocessors));
  };
  CountBytes<<<blocks(kBlocks), kThreads, kTableBytes, launch.stream>>>(launch.data, launch.count, launch.out);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || !launch.finds_places) return error;
  FindPlaces<<<blocks(1), kThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace reduced
