// single_pass: the default CUDA pipeline. Everything in one launch, one read of the array.
//
// Why it is fast: a reduction is bound by memory, so each thread keeps several independent 16-byte loads in flight and
// folds them in registers; warps merge by shuffles, blocks through shared memory. Instead of a second launch over the
// blocks' results, the last block to finish (it draws the last ticket) merges them, in index order: the same bits run
// after run. The ticket counter wraps round to 0 by itself, so nothing has to be reset between launches, and the result
// goes straight to `out`, which the engine maps from pinned host memory: no copy back. Where the device has thread
// block clusters, a small array is one cluster: its blocks merge through distributed shared memory, which saves the two
// trips to global memory that tickets take.
//
// Sources: M. Harris, "Optimizing Parallel Reduction in CUDA"; CUDA C++ Programming Guide, "Memory Fence Functions"
// (the last-block technique) and "Distributed Shared Memory".
//
// Kernels are instantiated for the accumulators that are asked for most, alone and together as statistics of an array
// take them, and once for all accumulators, which serves every other set; that one tests at run time which are wanted.
// Floats have one more, which leaves out NaNs.
#include <cooperative_groups.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/pipeline.h"

namespace reduced {
namespace {

constexpr int kVectorsInFlight = 4;
constexpr int kMaxBlocks = 2112;
constexpr int kClusterBlocks = 16;          // at most in one cluster
constexpr std::uintptr_t kLineBytes = 128;  // what a warp's loads should start on
constexpr std::size_t kTicketBytes = 256;   // before the states, in the scratch memory

struct Arguments {
  const void* data;
  std::int64_t count;
  std::int64_t base_index;
  AccumulatorSet set;
  unsigned* ticket;
  unsigned char* states;  // of each accumulator in turn, one for each block
  Partial* out;
};

// Which kernel it is.
enum class Mode {
  kFixed,    // takes all its accumulators, always
  kChosen,   // takes those of its accumulators that the launch names
  kOmitNan,  // the same, and leaves out NaNs
};

// A thread's share of the work: its state for each of several accumulators.
template <class T, Mode kMode, class... As>
struct Folds {};
template <class T, Mode kMode, class A, class... Rest>
struct Folds<T, kMode, A, Rest...> {
  std::conditional_t<kMode == Mode::kOmitNan, OmittingFold<A, T>, Fold<A, T>> fold;
  Folds<T, kMode, Rest...> rest;
};

// Calls f with each accumulator that is wanted.
template <class Function, class T, Mode kMode, class A, class... Rest>
__device__ inline void ForEach(AccumulatorSet set, Folds<T, kMode, A, Rest...>& folds, Function f) {
  if (kMode == Mode::kFixed || (set & SetOf(A::kAccumulator)) != 0) f(std::type_identity<A>{}, folds.fold);
  if constexpr (sizeof...(Rest) > 0) ForEach(set, folds.rest, f);
}

// Bytes of one accumulator's states of that many blocks, such that the next accumulator's are aligned.
template <class State>
__host__ __device__ constexpr std::size_t StatesBytes(unsigned blocks) {
  static_assert(alignof(State) <= 16);
  return (sizeof(State) * blocks + 15) / 16 * 16;
}

// Threads of a block, and blocks that should fit on a multiprocessor, which tells the compiler how many registers it
// has. Measured on an H200 (tests/bench/bench_cuda).
struct Shape {
  int threads;
  int min_blocks;
};
template <class... As>
constexpr Shape ShapeOf() {
  if (sizeof...(As) > 3) return {256, 2};
  if (sizeof...(As) > 1) return {256, 3};
  constexpr auto kWhich = (SetOf(As::kAccumulator) | ...);
  return {512, kWhich == SetOf(Accumulator::kMoments) ? 2 : kWhich == SetOf(Accumulator::kExtrema) ? 3 : 4};
}

// Threads that fit on a multiprocessor of the architecture compiled for.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1100)
constexpr int kThreadsPerMultiprocessor = 1536;
#else
constexpr int kThreadsPerMultiprocessor = 2048;
#endif
template <class... As>
constexpr int MinBlocks() {
  return std::min(ShapeOf<As...>().min_blocks, kThreadsPerMultiprocessor / ShapeOf<As...>().threads);
}

template <class T, Mode kMode, class... As>
__global__ void __launch_bounds__(ShapeOf<As...>().threads, MinBlocks<As...>()) SinglePassKernel(Arguments args) {
  constexpr int kBlockThreads = ShapeOf<As...>().threads;
  constexpr int kElements = Vector16<T>::kElements;
  const T* const data = static_cast<const T*>(args.data);
  // The array is a head up to the first line boundary, whole vectors, and a tail; each edge has fewer elements than a
  // block has threads.
  const std::int64_t to_boundary =
      static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(data) & (kLineBytes - 1)) /
      static_cast<std::int64_t>(sizeof(T));
  const std::int64_t head = to_boundary < args.count ? to_boundary : args.count;
  const Walk<T> walk{.vectors = reinterpret_cast<const uint4*>(data + head),
                     .count = (args.count - head) / kElements,
                     .thread = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x,
                     .threads = static_cast<std::int64_t>(gridDim.x) * kBlockThreads,
                     .base_index = args.base_index + head};

  Folds<T, kMode, As...> folds;
  unsigned slot = 0;
  std::int64_t vector = walk.thread;
  for (; vector + (kVectorsInFlight - 1) * walk.threads < walk.count; vector += kVectorsInFlight * walk.threads) {
    Vector16<T> tile[kVectorsInFlight];
#pragma unroll
    for (int v = 0; v < kVectorsInFlight; ++v) tile[v] = LoadOnce<T>(walk.vectors + vector + v * walk.threads);
    ForEach(args.set, folds, [&](auto, auto& fold) { fold.Tile(tile, slot, walk); });
    slot += kVectorsInFlight;
  }
  for (; vector < walk.count; vector += walk.threads) {
    const Vector16<T> tile[1] = {LoadOnce<T>(walk.vectors + vector)};
    ForEach(args.set, folds, [&](auto, auto& fold) { fold.Tile(tile, slot, walk); });
    ++slot;
  }

  // The state of the whole block, in thread 0.
  constexpr std::size_t kStateBytes = std::max({sizeof(typename As::State)...});
  __shared__ alignas(16) unsigned char shared[kBlockThreads / kWarpSize * kStateBytes];
  const auto state_of_block = [&]<class A>(std::type_identity<A>, auto& fold) {
    typename A::State state = fold.Settle(walk);
    if (const std::int64_t tail_begin = head + walk.count * kElements;
        walk.thread < head || walk.thread < args.count - tail_begin) {
      typename A::Local edges;
      const auto add = [&](std::int64_t i) {
        const T x = data[i];
        const bool left_out = kMode == Mode::kOmitNan && A::kAccumulator != Accumulator::kCounts && IsNan(x);
        if (!left_out) A::Add(edges, x, args.base_index + i);
      };
      if (walk.thread < head) add(walk.thread);
      if (walk.thread < args.count - tail_begin) add(tail_begin + walk.thread);
      A::Merge(state, A::Settle(edges));
    }
    return BlockReduce<A, kBlockThreads>(state, shared);
  };

  if (gridDim.x == 1) {
    ForEach(args.set, folds, [&]<class A>(std::type_identity<A> which, auto& fold) {
      const typename A::State state = state_of_block(which, fold);
      if (threadIdx.x == 0) A::Store(state, args.out);
    });
    if (threadIdx.x == 0) args.out->count = args.count;
    return;
  }

#if __CUDA_ARCH__ >= 900
  // One cluster: its blocks put their states into the first one's shared memory, which is nearer than global memory.
  if (auto cluster = cooperative_groups::this_cluster(); cluster.num_blocks() == gridDim.x) {
    __shared__ alignas(16) unsigned char gathered[kClusterBlocks * (StatesBytes<typename As::State>(1) + ...)];
    cluster.sync();  // all blocks have started: their shared memory may be written
    auto* gather = cluster.map_shared_rank(gathered, 0);
    ForEach(args.set, folds, [&]<class A>(std::type_identity<A> which, auto& fold) {
      using State = typename A::State;
      const State state = state_of_block(which, fold);
      if (threadIdx.x == 0) reinterpret_cast<State*>(gather)[blockIdx.x] = state;
      gather += StatesBytes<State>(kClusterBlocks);
    });
    cluster.sync();
    if (blockIdx.x != 0 || threadIdx.x >= kWarpSize) return;
    auto* states = gathered;
    ForEach(args.set, folds, [&]<class A>(std::type_identity<A>, auto&) {
      using State = typename A::State;
      const State state = WarpReduce<A, kClusterBlocks>(
          threadIdx.x < gridDim.x ? reinterpret_cast<State*>(states)[threadIdx.x] : State{});
      if (threadIdx.x == 0) A::Store(state, args.out);
      states += StatesBytes<State>(kClusterBlocks);
    });
    if (threadIdx.x == 0) args.out->count = args.count;
    return;
  }
#endif

  unsigned char* states = args.states;
  ForEach(args.set, folds, [&]<class A>(std::type_identity<A> which, auto& fold) {
    using State = typename A::State;
    const State state = state_of_block(which, fold);
    if (threadIdx.x == 0) reinterpret_cast<State*>(states)[blockIdx.x] = state;
    states += StatesBytes<State>(gridDim.x);
  });

  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(args.ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();

  states = args.states;
  ForEach(args.set, folds, [&]<class A>(std::type_identity<A>, auto&) {
    using State = typename A::State;
    State state{};
    for (unsigned block = threadIdx.x; block < gridDim.x; block += kBlockThreads) {
      const State other = LoadFromL2(reinterpret_cast<const State*>(states) + block);
      A::Merge(state, other);
    }
    state = BlockReduce<A, kBlockThreads>(state, shared);
    if (threadIdx.x == 0) A::Store(state, args.out);
    states += StatesBytes<State>(gridDim.x);
  });
  if (threadIdx.x == 0) args.out->count = args.count;
}

// Blocks for that many bytes: few for small arrays, where merging the blocks costs more than it saves; 8 to a
// multiprocessor for large ones, so that enough loads are in flight. Measured on an H200: tests/bench/bench_cuda
// --sweep.
int GridBlocks(std::int64_t bytes, int threads, const Launch& launch) {
  const std::int64_t bytes_per_pass = std::int64_t{16} * kVectorsInFlight * threads;
  const std::int64_t useful = std::max<std::int64_t>(1, (bytes + bytes_per_pass - 1) / bytes_per_pass);
  if (launch.clusters && bytes <= (std::int64_t{1} << 20))
    return static_cast<int>(std::min<std::int64_t>(useful, kClusterBlocks));
  const std::int64_t large = std::min<std::int64_t>({useful, launch.multiprocessors * 8, kMaxBlocks});
  if (bytes > (std::int64_t{256} << 20)) return static_cast<int>(large);
  // All threads make the same number of passes, as far as can be: what is left over is loaded one vector at a time.
  const std::int64_t most = launch.multiprocessors * (bytes <= (std::int64_t{4} << 20) ? 1 : 2);
  const std::int64_t passes = (useful + most - 1) / most;
  return static_cast<int>((useful + passes - 1) / passes);
}

template <class T, Mode kMode, class... As>
cudaError_t LaunchKernel(const Launch& launch) {
  static_assert((StatesBytes<typename As::State>(kMaxBlocks) + ...) + kTicketBytes <= kScratchBytes);
  constexpr Shape kShape = ShapeOf<As...>();
  const std::int64_t bytes = launch.count * static_cast<std::int64_t>(sizeof(T));
  const int blocks =
      launch.grid_blocks > 0 ? std::min(launch.grid_blocks, kMaxBlocks) : GridBlocks(bytes, kShape.threads, launch);
  auto* const scratch = static_cast<unsigned char*>(launch.scratch);
  const Arguments args{.data = launch.data,
                       .count = launch.count,
                       .base_index = launch.base_index,
                       .set = launch.accumulators,
                       .ticket = reinterpret_cast<unsigned*>(scratch),
                       .states = scratch + kTicketBytes,
                       .out = launch.out};
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  const bool one_cluster = launch.clusters && blocks > 1 && blocks <= kClusterBlocks;
  if (one_cluster && blocks > 8) {  // more than every device has to offer
    const cudaError_t error =
        cudaFuncSetAttribute(SinglePassKernel<T, kMode, As...>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  const cudaLaunchConfig_t config{.gridDim = dim3(blocks),
                                  .blockDim = dim3(kShape.threads),
                                  .dynamicSmemBytes = 0,
                                  .stream = launch.stream,
                                  .attrs = &cluster,
                                  .numAttrs = one_cluster ? 1u : 0u};
  return cudaLaunchKernelEx(&config, SinglePassKernel<T, kMode, As...>, args);
}

template <class... As>
constexpr AccumulatorSet SetOfAll() {
  return (SetOf(As::kAccumulator) | ...);
}

// The kernels of one element type.
template <class T>
cudaError_t LaunchFor(const Launch& launch) {
  const AccumulatorSet set = launch.accumulators;
  if constexpr (kIsFloat<T>) {
    if (launch.omit_nan) {
      return LaunchKernel<T, Mode::kOmitNan, SumOf<T>, AbsSumOf<T>, SumSquaresOf<T>, MomentsOf<T>, ProductOf<T>,
                          ExtremaOf<T>, CountsOf<T>>(launch);
    }
  }
  if (set == SetOf(Accumulator::kSum)) return LaunchKernel<T, Mode::kFixed, SumOf<T>>(launch);
  if (set == SetOf(Accumulator::kExtrema)) return LaunchKernel<T, Mode::kFixed, ExtremaOf<T>>(launch);
  if (set == SetOf(Accumulator::kMoments)) return LaunchKernel<T, Mode::kFixed, MomentsOf<T>>(launch);
  if (set == SetOf(Accumulator::kSumSquares)) return LaunchKernel<T, Mode::kFixed, SumSquaresOf<T>>(launch);
  if ((set & ~SetOfAll<SumOf<T>, SumSquaresOf<T>, MomentsOf<T>, ExtremaOf<T>, CountsOf<T>>()) == 0) {
    return LaunchKernel<T, Mode::kFixed, PowerSumsOf<T>, ExtremaOf<T>, CountsOf<T>>(launch);
  }
  if constexpr (kIsFloat<T>) {
    return LaunchKernel<T, Mode::kChosen, SumOf<T>, AbsSumOf<T>, SumSquaresOf<T>, MomentsOf<T>, ProductOf<T>,
                        ExtremaOf<T>, CountsOf<T>>(launch);
  } else {
    return LaunchKernel<T, Mode::kChosen, SumOf<T>, AbsSumOf<T>, SumSquaresOf<T>, MomentsOf<T>, ProductOf<T>,
                        ExtremaOf<T>, BitsOf<T>, CountsOf<T>>(launch);
  }
}

}  // namespace

const CudaPipeline kSinglePass = {
    .scratch_bytes = nullptr,
    .prepare = nullptr,
    .launch =
        [](const Launch& launch) {
          return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) { return LaunchFor<T>(launch); });
        },
    .occupancy = nullptr};

}  // namespace reduced
