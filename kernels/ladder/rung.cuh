// What the rungs of the ladder share. A rung is one kernel by which each block reduces its part of the array; here is
// what surrounds it: where values lie, how it is launched, what becomes of the blocks' results.
//
//   struct InterleavedRung {
//     static constexpr int kDataBlocks = 1;            // blocks of elements that one block reduces
//     template <class V> static auto Kernel(int block_size) { return &InterleavedKernel<V>; }
//   };
//   const CudaPipeline kInterleaved = InPlace<InterleavedRung>::kPipeline;
//
// Kernels take any length, at any block size of kBlockSizes; all threads of a block stay to its end, so that barriers
// are met by all; where the sources count on a warp being in step, __syncwarp says so.
#ifndef REDUCED_KERNELS_LADDER_RUNG_CUH_
#define REDUCED_KERNELS_LADDER_RUNG_CUH_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/monoid.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/pipeline.h"
#include "kernels/engine/pipelines.h"

namespace reduced {

inline constexpr int kMaxBlockSize = 1024;

// ---- device

// Shared memory for one value a thread.
template <class V>
__device__ inline typename V::Value* SharedValues() {
  extern __shared__ uint4 shared_values[];
  return reinterpret_cast<typename V::Value*>(shared_values);
}

// Element `index` as a value; the identity beyond the array.
template <class M>
__device__ inline typename M::V::Value ValueAt(const typename M::Element* data, std::int64_t index,
                                               std::int64_t count) {
  return index < count ? M::Lift(data[index]) : M::V::Identity();
}

// Index of this thread's element when each block has `data_blocks` blocks of elements.
__device__ inline std::int64_t FirstIndex(int data_blocks = 1) {
  return static_cast<std::int64_t>(blockIdx.x) * data_blocks * blockDim.x + threadIdx.x;
}

// Combines the upper half of values[0, 2 * stride) into the lower, then the quarter, as long as `stride` is at least
// `last`. What lies at or beyond `size` isn't there. The whole block calls it.
template <class V>
__device__ inline void FoldHalves(typename V::Value* values, int size, int stride, int last) {
  const int thread = static_cast<int>(threadIdx.x);
  for (; stride >= last; stride /= 2) {
    if (thread < stride && thread + stride < size) {
      values[thread] = V::Combine(values[thread], values[thread + stride]);
    }
    __syncthreads();
  }
}

// The same from stride 32 on by one warp, without block-wide barriers.
template <class V>
__device__ inline void FoldLastWarp(typename V::Value* values, int size) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kWarpSize) return;
#pragma unroll
  for (int stride = kWarpSize; stride > 0; stride /= 2) {
    if (thread < stride && thread + stride < size) {
      values[thread] = V::Combine(values[thread], values[thread + stride]);
    }
    __syncwarp();
  }
}

// Where a block of an in-place rung works.
template <class V>
struct BlockValues {
  typename V::Value* values;
  int size;  // at most the threads of the block
};

// A block's `kDataBlocks` blocks of elements, the others combined into the first one. The whole block calls it.
template <class V, int kDataBlocks>
__device__ inline BlockValues<V> GatherBlocks(typename V::Value* array, std::int64_t count) {
  const std::int64_t block = blockDim.x;
  const std::int64_t first = blockIdx.x * kDataBlocks * block;
  typename V::Value* const values = array + first;
  const std::int64_t left = count - first;
  if (threadIdx.x < left) {
    typename V::Value value = values[threadIdx.x];
#pragma unroll
    for (int b = 1; b < kDataBlocks; ++b) {
      const std::int64_t index = b * block + threadIdx.x;
      if (index < left) value = V::Combine(value, values[index]);
    }
    if (kDataBlocks > 1) values[threadIdx.x] = value;
  }
  __syncthreads();
  return {values, static_cast<int>(min(block, left))};
}

// The warp's combined value, in lane 0.
template <class V>
__device__ inline typename V::Value WarpCombine(typename V::Value value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = V::Combine(value, ShuffleDown(value, offset));
  }
  return value;
}

// The block's combined value, in thread 0: shuffles in each warp, shared memory between them.
template <class V>
__device__ inline typename V::Value BlockCombine(typename V::Value value) {
  typename V::Value* const of_warp = SharedValues<V>();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  value = WarpCombine<V>(value);
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  if (warp == 0) {
    const int warps = static_cast<int>(blockDim.x) / kWarpSize;
    value = WarpCombine<V>(lane < warps ? of_warp[lane] : V::Identity());
  }
  return value;
}

// A value that blocks combine theirs into, in whatever order they come.
template <class V>
struct AtomicValue {
  typename V::Value value;
  unsigned lock;  // for values that no atomic instruction takes
};

template <class V>
__device__ inline void CombineLocked(AtomicValue<V>* into, const typename V::Value& value) {
  while (atomicCAS(&into->lock, 0u, 1u) != 0) __nanosleep(32);
  __threadfence();
  into->value = V::Combine(LoadFromL2(&into->value), value);
  __threadfence();
  atomicExch(&into->lock, 0u);
}

// By one thread of the block.
template <class V>
__device__ inline void AtomicCombine(AtomicValue<V>* into, const typename V::Value& value) {
  using Value = typename V::Value;
  if constexpr (std::is_same_v<V, Plus<double>>) {
    atomicAdd(&into->value, value);
  } else if constexpr (std::is_same_v<V, Plus<std::int64_t>>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&into->value), static_cast<unsigned long long>(value));
  } else if constexpr (std::is_integral_v<Value> && sizeof(Value) == 4) {
    if constexpr (std::is_same_v<V, Least<Value>>) atomicMin(&into->value, value);
    if constexpr (std::is_same_v<V, Union<Value>>) atomicOr(&into->value, value);
    if constexpr (std::is_same_v<V, SymmetricDifference<Value>>) atomicXor(&into->value, value);
  } else if constexpr (std::is_integral_v<Value>) {
    using Word = std::conditional_t<std::is_signed_v<Value>, long long, unsigned long long>;
    auto* const word = reinterpret_cast<Word*>(&into->value);
    if constexpr (std::is_same_v<V, Least<Value>>) atomicMin(word, static_cast<Word>(value));
    if constexpr (std::is_same_v<V, Union<Value>>) atomicOr(word, static_cast<Word>(value));
    if constexpr (std::is_same_v<V, SymmetricDifference<Value>>) atomicXor(word, static_cast<Word>(value));
  } else {
    CombineLocked(into, value);
  }
}

// ---- host; in rung.cu

// Bytes of one value.
std::size_t ValueBytes(const Launch& launch);
// The array's elements as values.
cudaError_t LiftArray(const Launch& launch, void* values);
// An AtomicValue that is the identity.
cudaError_t ResetAtomic(const Launch& launch, void* atomic_value);
// The last pass: one block combines `count` values in a fixed order and stores the result.
cudaError_t StoreResult(const Launch& launch, const void* values, std::int64_t count);

inline int BlockSizeOf(const Launch& launch) { return launch.block_size > 0 ? launch.block_size : kDefaultBlockSize; }

inline std::int64_t BlocksFor(const Launch& launch, int data_blocks) {
  const std::int64_t elements = static_cast<std::int64_t>(data_blocks) * BlockSizeOf(launch);
  return (launch.count + elements - 1) / elements;
}

template <class Visitor>
decltype(auto) VisitMonoidOf(const Launch& launch, Visitor&& visit) {
  return VisitMonoid(launch.op, launch.dtype, visit);
}

template <class Kernel>
cudaError_t OccupancyOf(Kernel kernel, int block_size, std::size_t shared_bytes, Occupancy* occupancy) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  int device = 0;
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  occupancy->block_size = block_size;
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&occupancy->max_threads_per_multiprocessor, cudaDevAttrMaxThreadsPerMultiProcessor,
                                   device);
  }
  if (error != cudaSuccess) return error;
  occupancy->registers = attributes.numRegs;
  occupancy->shared_bytes = static_cast<int>(attributes.sharedSizeBytes + shared_bytes);
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occupancy->blocks_per_multiprocessor, kernel, block_size,
                                                       shared_bytes);
}

// In place in global memory, on a copy. Kernel: (values, count, results), one result a block.
template <class Rung>
struct InPlace {
  static std::size_t CopyBytes(const Launch& launch) {
    return static_cast<std::size_t>(launch.count) * ValueBytes(launch);
  }
  static std::size_t ScratchBytes(const Launch& launch) {
    return CopyBytes(launch) + static_cast<std::size_t>(BlocksFor(launch, Rung::kDataBlocks)) * ValueBytes(launch);
  }
  static cudaError_t Prepare(const Launch& launch) { return LiftArray(launch, launch.scratch); }
  static cudaError_t Run(const Launch& launch) {
    const std::int64_t blocks = BlocksFor(launch, Rung::kDataBlocks);
    const int block_size = BlockSizeOf(launch);
    return VisitMonoidOf(launch, [&]<class M>(std::type_identity<M>) {
      auto* const values = static_cast<typename M::V::Value*>(launch.scratch);
      const auto kernel = Rung::template Kernel<typename M::V>(block_size);
      kernel<<<static_cast<unsigned>(blocks), block_size, 0, launch.stream>>>(values, launch.count,
                                                                              values + launch.count);
      const cudaError_t error = cudaGetLastError();
      return error == cudaSuccess ? StoreResult(launch, values + launch.count, blocks) : error;
    });
  }
  static cudaError_t Describe(const Launch& launch, Occupancy* occupancy) {
    const int block_size = BlockSizeOf(launch);
    return VisitMonoidOf(launch, [&]<class M>(std::type_identity<M>) {
      return OccupancyOf(Rung::template Kernel<typename M::V>(block_size), block_size, 0, occupancy);
    });
  }
  static constexpr CudaPipeline kPipeline = {&ScratchBytes, &Prepare, &Run, &Describe, &CopyBytes};
};

// Through shared memory or registers, from the array itself. Kernel: (data, count, results), with shared memory for one
// value a thread; one result a block or, if Rung::kAtomic, one AtomicValue for all.
template <class Rung>
struct Direct {
  static std::int64_t Blocks(const Launch& launch) {
    return std::min(BlocksFor(launch, Rung::kDataBlocks), Rung::kMaxBlocks);
  }
  static std::size_t SharedBytes(const Launch& launch) {
    return static_cast<std::size_t>(BlockSizeOf(launch)) * ValueBytes(launch);
  }
  static std::size_t ScratchBytes(const Launch& launch) {
    return (Rung::kAtomic ? 2 : static_cast<std::size_t>(Blocks(launch))) * ValueBytes(launch);
  }
  static cudaError_t Prepare(const Launch& launch) { return ResetAtomic(launch, launch.scratch); }
  static cudaError_t Run(const Launch& launch) {
    const std::int64_t blocks = Blocks(launch);
    return VisitMonoidOf(launch, [&]<class M>(std::type_identity<M>) {
      auto* const results = static_cast<typename M::V::Value*>(launch.scratch);
      const auto kernel = Rung::template Kernel<M>();
      kernel<<<static_cast<unsigned>(blocks), BlockSizeOf(launch), SharedBytes(launch), launch.stream>>>(
          static_cast<const typename M::Element*>(launch.data), launch.count, results);
      const cudaError_t error = cudaGetLastError();
      return error == cudaSuccess ? StoreResult(launch, results, Rung::kAtomic ? 1 : blocks) : error;
    });
  }
  static cudaError_t Describe(const Launch& launch, Occupancy* occupancy) {
    return VisitMonoidOf(launch, [&]<class M>(std::type_identity<M>) {
      return OccupancyOf(Rung::template Kernel<M>(), BlockSizeOf(launch), SharedBytes(launch), occupancy);
    });
  }
  static constexpr CudaPipeline kPipeline = {&ScratchBytes, Rung::kAtomic ? &Prepare : nullptr, &Run, &Describe};
};

// What most rungs of Direct are; theirs override it.
struct DirectTraits {
  static constexpr int kDataBlocks = 1;  // blocks of elements that one block reduces
  static constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int64_t>::max();  // beyond it blocks take more
  static constexpr bool kAtomic = false;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_LADDER_RUNG_CUH_
