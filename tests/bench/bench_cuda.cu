// The CUDA pipeline against the two things it is measured by, in one process: the fastest plain read of the same memory
// (the roofline) and CUB. Device-resident random data; launches back to back, and as a CUDA graph, timed by events,
// best mean of several rounds.
//
//   bench_cuda           sums against CUB by size; every kind of op against the roofline at 4 GiB
//   bench_cuda --sweep   time by grid size, the measurement behind GridBlocks() in pipelines/single_pass.cu
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cub/device/device_reduce.cuh>
#include <string>
#include <vector>

#include "kernels/algebra/spec.h"
#include "kernels/cuda/pipeline.h"

namespace reduced {
namespace {

#define CHECK_CUDA(call)                                                                             \
  do {                                                                                               \
    if (const cudaError_t error = (call); error != cudaSuccess) {                                    \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error)); \
      std::exit(1);                                                                                  \
    }                                                                                                \
  } while (false)

constexpr std::int64_t kKiB = std::int64_t{1} << 10;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

bool failed = false;

// Random bits; for floats, random values in [-1, 1).
template <class T>
__global__ void Fill(T* data, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    std::uint64_t z = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u + 0x1234567;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const double unit = static_cast<double>(static_cast<std::int64_t>(z)) * 0x1p-63;
    if constexpr (std::is_floating_point_v<T>) {
      data[i] = static_cast<T>(unit);
    } else if constexpr (std::is_same_v<T, Half>) {
      data[i].bits = __half_as_ushort(__float2half(static_cast<float>(unit)));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      data[i].bits = static_cast<std::uint16_t>(__float_as_uint(static_cast<float>(unit)) >> 16);
    } else if constexpr (std::is_same_v<T, Bool>) {
      data[i].byte = z & 1;
    } else {
      data[i] = static_cast<T>(z);
    }
  }
}

// Reads everything, keeps almost nothing: what the memory allows.
template <int kInFlight>
__global__ void __launch_bounds__(512) ReadAll(const uint4* data, std::int64_t vectors, unsigned* sink) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  unsigned seen = 0;
  std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; v + (kInFlight - 1) * threads < vectors; v += kInFlight * threads) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) loaded[i] = __ldcs(data + v + i * threads);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) seen ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
  }
  for (; v < vectors; v += threads) seen ^= __ldcs(data + v).x;
  if (seen == 0x9e3779b9) *sink = seen;  // keeps the loads
}

class Bench {
 public:
  Bench() {
    CHECK_CUDA(cudaGetDeviceProperties(&properties_, 0));
    CHECK_CUDA(cudaMalloc(&data_, kBytes + kMiB));
    CHECK_CUDA(cudaMalloc(&scratch_, kScratchBytes));
    CHECK_CUDA(cudaMemset(scratch_, 0, kScratchBytes));
    CHECK_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&out_), sizeof(Partial), cudaHostAllocMapped));
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaEventCreate(&begin_));
    CHECK_CUDA(cudaEventCreate(&end_));
    std::printf("%s, %d multiprocessors\n", properties_.name, properties_.multiProcessorCount);
  }

  // Microseconds from `work`, which enqueues on stream_, to the end of what it enqueued; the best of several rounds.
  template <class Work>
  double TimeOnce(int rounds, Work work) {
    work();
    double best = 1e30;
    for (int round = 0; round < rounds; ++round) {
      CHECK_CUDA(cudaEventRecord(begin_, stream_));
      work();
      CHECK_CUDA(cudaEventRecord(end_, stream_));
      CHECK_CUDA(cudaEventSynchronize(end_));
      float millis = 0;
      CHECK_CUDA(cudaEventElapsedTime(&millis, begin_, end_));
      best = std::min(best, 1e3 * millis);
    }
    return best;
  }

  static int Repeats(std::int64_t bytes) {
    return static_cast<int>(std::clamp<std::int64_t>(4 * kGiB / std::max<std::int64_t>(bytes, 1), 5, 200));
  }

  // Microseconds of one of several calls of `enqueue` back to back: of small work, mostly what the host takes to
  // launch.
  template <class Enqueue>
  double Time(std::int64_t bytes, Enqueue enqueue) {
    const int repeats = Repeats(bytes);
    return TimeOnce(bytes < 64 * kMiB ? 40 : 5,
                    [&] {
                      for (int i = 0; i < repeats; ++i) enqueue();
                    }) /
           repeats;
  }

  // The same as a CUDA graph: what the device takes, without the host.
  template <class Enqueue>
  double TimeInGraph(std::int64_t bytes, Enqueue enqueue) {
    const int repeats = Repeats(bytes);
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < repeats; ++i) enqueue();
    cudaGraph_t graph = nullptr;
    CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    return TimeGraph(graph) / repeats;
  }

  // Takes the graph.
  double TimeGraph(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    const double us = TimeOnce(5, [&] { CHECK_CUDA(cudaGraphLaunch(exec, stream_)); });
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return us;
  }

  Launch LaunchOf(const ReduceSpec& spec, std::int64_t offset = 0, int grid_blocks = 0) const {
    return {.dtype = spec.dtype,
            .accumulators = AccumulatorsFor(spec),
            .data = data_ + offset,
            .count = spec.count,
            .scratch = scratch_,
            .out = out_,
            .multiprocessors = properties_.multiProcessorCount,
            .grid_blocks = grid_blocks,
            .stream = stream_};
  }

  double TimePipeline(DType dtype, const std::vector<OpCall>& ops, std::int64_t bytes, std::int64_t offset = 0,
                      int grid_blocks = 0) {
    const ReduceSpec spec{.dtype = dtype, .count = bytes / RowOf(dtype).bytes, .ops = ops};
    std::memset(static_cast<void*>(out_), 0xa5, sizeof(Partial));
    const Launch launch = LaunchOf(spec, offset, grid_blocks);
    const double us = Time(bytes, [&] { CHECK_CUDA(kSinglePass.launch(launch)); });
    if (out_->count != spec.count) {
      std::printf("WRONG: the pipeline did not write its result\n");
      failed = true;
    }
    return us;
  }

  template <class T>
  void FillWith() {
    Fill<<<4096, 256>>>(reinterpret_cast<T*>(data_), static_cast<std::int64_t>((kBytes + kMiB) / sizeof(T)));
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  // The fastest plain read of 4 GiB, GB/s.
  double MeasureRoofline() {
    const auto* const vectors = reinterpret_cast<const uint4*>(data_);
    double best = 1e30;
    for (const int per_multiprocessor : {4, 8, 16, 32}) {
      const int blocks = per_multiprocessor * properties_.multiProcessorCount;
      auto* const sink = static_cast<unsigned*>(scratch_) + 1000;
      best = std::min(best, Time(kBytes, [&] { ReadAll<4><<<blocks, 512, 0, stream_>>>(vectors, kBytes / 16, sink); }));
      best = std::min(best, Time(kBytes, [&] { ReadAll<8><<<blocks, 512, 0, stream_>>>(vectors, kBytes / 16, sink); }));
    }
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemset(scratch_, 0, kScratchBytes));
    roofline_ = kBytes / best / 1e3;
    std::printf("roofline: reads %.0f GB/s (4 GiB in %.1f us)\n", roofline_, best);
    return best;
  }

  template <class T>
  void AgainstCub() {
    FillWith<T>();
    const DType dtype = kDTypeOf<T>;
    T* cub_out = nullptr;
    void* cub_scratch = nullptr;
    std::size_t cub_bytes = 0;
    const auto* const data = reinterpret_cast<const T*>(data_);
    CHECK_CUDA(cub::DeviceReduce::Sum(nullptr, cub_bytes, data, cub_out, kBytes / std::int64_t{sizeof(T)}));
    CHECK_CUDA(cudaMalloc(&cub_scratch, cub_bytes + kMiB));
    CHECK_CUDA(cudaMalloc(&cub_out, sizeof(T)));
    for (const std::int64_t bytes :
         {4 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, kGiB, 4 * kGiB}) {
      const std::int64_t count = bytes / std::int64_t{sizeof(T)};
      std::size_t room = cub_bytes + kMiB;
      const auto launch_cub = [&] {
        CHECK_CUDA(cub::DeviceReduce::Sum(cub_scratch, room, data, cub_out, count, stream_));
      };
      const double cub = Time(bytes, launch_cub);
      const double ours = TimePipeline(dtype, {Op::kSum}, bytes);
      const double cub_in_graph = TimeInGraph(bytes, launch_cub);
      const Launch launch = LaunchOf({.dtype = dtype, .count = count, .ops = {Op::kSum}});
      const double ours_in_graph = TimeInGraph(bytes, [&] { CHECK_CUDA(kSinglePass.launch(launch)); });
      T theirs;
      CHECK_CUDA(cudaMemcpy(&theirs, cub_out, sizeof(T), cudaMemcpyDeviceToHost));
      bool agrees = true;
      if constexpr (std::is_integral_v<T>) {
        agrees = static_cast<T>(out_->int_sum) == theirs;
      } else {
        agrees = std::abs(out_->float_sum - static_cast<double>(theirs)) <=
                 1e-2 * std::sqrt(static_cast<double>(count)) + 1e-6;
      }
      if (!agrees) failed = true;
      std::printf(
          "%-4s sum %9lld KiB   %9.2f us %7.0f GB/s %5.3f of roofline   CUB %9.2f us   %5.2fx   in a graph %9.2f us   "
          "CUB %9.2f us   %5.2fx%s\n",
          std::string(RowOf(dtype).name).c_str(), static_cast<long long>(bytes / kKiB), ours, bytes / ours / 1e3,
          bytes / ours / 1e3 / roofline_, cub, cub / ours, ours_in_graph, cub_in_graph, cub_in_graph / ours_in_graph,
          agrees ? "" : "  WRONG");
    }
    CHECK_CUDA(cudaFree(cub_scratch));
    CHECK_CUDA(cudaFree(cub_out));
  }

  template <class T>
  void AgainstRoofline() {
    FillWith<T>();
    const DType dtype = kDTypeOf<T>;
    const auto row = [&](const char* name, const std::vector<OpCall>& ops, std::int64_t offset = 0) {
      const double us = TimePipeline(dtype, ops, kBytes, offset);
      std::printf("%-4s %-22s %9.1f us %7.0f GB/s %5.3f of roofline\n", std::string(RowOf(dtype).name).c_str(), name,
                  us, kBytes / us / 1e3, kBytes / us / 1e3 / roofline_);
    };
    row("sum", {Op::kSum});
    row("sum, 1 element off", {Op::kSum}, sizeof(T));
    row("min max argmin argmax", {Op::kMin});
    row("var", {Op::kVar});
    row("l2", {Op::kL2});
    row("prod", {Op::kProd});
    row("describe",
        {Op::kNanCount, Op::kMin, Op::kMax, Op::kArgmin, Op::kArgmax, Op::kSum, Op::kMean, Op::kVar, Op::kL2});
  }

  // 32 reductions of 1 MiB each, one after the other and on 8 streams, as CUDA graphs: what the device makes of them,
  // without what the host takes to launch them.
  void Concurrent() {
    FillWith<float>();
    constexpr int kReductions = 32;
    constexpr int kStreams = 8;
    void* scratch = nullptr;
    Partial* out = nullptr;
    CHECK_CUDA(cudaMalloc(&scratch, kStreams * kScratchBytes));
    CHECK_CUDA(cudaMemset(scratch, 0, kStreams * kScratchBytes));
    CHECK_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&out), kReductions * sizeof(Partial), cudaHostAllocMapped));
    std::memset(static_cast<void*>(out), 0xa5, kReductions * sizeof(Partial));
    cudaStream_t streams[kStreams];
    cudaEvent_t fork = nullptr;
    cudaEvent_t joins[kStreams];
    CHECK_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    for (int s = 0; s < kStreams; ++s) {
      CHECK_CUDA(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
      CHECK_CUDA(cudaEventCreateWithFlags(&joins[s], cudaEventDisableTiming));
    }
    double us[2];
    const int ways[] = {1, kStreams};
    for (int way = 0; way < 2; ++way) {
      CHECK_CUDA(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
      CHECK_CUDA(cudaEventRecord(fork, streams[0]));
      for (int s = 1; s < ways[way]; ++s) CHECK_CUDA(cudaStreamWaitEvent(streams[s], fork));
      for (int i = 0; i < kReductions; ++i) {
        const int s = i % ways[way];
        CHECK_CUDA(kSinglePass.launch({.dtype = DType::kF32,
                                       .accumulators = SetOf(Accumulator::kSum),
                                       .data = data_ + i * kMiB,
                                       .count = kMiB / std::int64_t{sizeof(float)},
                                       .scratch = static_cast<unsigned char*>(scratch) + s * kScratchBytes,
                                       .out = out + i,
                                       .multiprocessors = properties_.multiProcessorCount,
                                       .stream = streams[s]}));
      }
      for (int s = 1; s < ways[way]; ++s) {
        CHECK_CUDA(cudaEventRecord(joins[s], streams[s]));
        CHECK_CUDA(cudaStreamWaitEvent(streams[0], joins[s]));
      }
      cudaGraph_t graph = nullptr;
      CHECK_CUDA(cudaStreamEndCapture(streams[0], &graph));
      us[way] = TimeGraph(graph);
      for (int i = 0; i < kReductions; ++i) {
        if (out[i].count == kMiB / std::int64_t{sizeof(float)}) continue;
        std::printf("WRONG: reduction %d did not write its result\n", i);
        failed = true;
      }
    }
    std::printf("32 f32 sums of 1 MiB: one after the other %.1f us, on 8 streams %.1f us, %.2fx the throughput\n",
                us[0], us[1], us[0] / us[1]);
    for (int s = 0; s < kStreams; ++s) {
      CHECK_CUDA(cudaStreamDestroy(streams[s]));
      CHECK_CUDA(cudaEventDestroy(joins[s]));
    }
    CHECK_CUDA(cudaEventDestroy(fork));
    CHECK_CUDA(cudaFree(scratch));
    CHECK_CUDA(cudaFreeHost(out));
  }

  void Sweep() {
    FillWith<float>();
    for (const std::int64_t bytes : {64 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, kGiB, 4 * kGiB}) {
      std::printf("f32 sum %9lld KiB:", static_cast<long long>(bytes / kKiB));
      for (const int blocks : {33, 66, 132, 264, 528, 1056, 2112}) {
        std::printf("  %d: %.2f us", blocks, TimePipeline(DType::kF32, {Op::kSum}, bytes, 0, blocks));
      }
      std::printf("\n");
    }
  }

 private:
  static constexpr std::int64_t kBytes = 4 * kGiB;

  cudaDeviceProp properties_{};
  unsigned char* data_ = nullptr;
  void* scratch_ = nullptr;
  Partial* out_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  double roofline_ = 0;
};

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) {
  using reduced::BFloat16;
  using reduced::Half;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device\n");
    return 0;
  }
  reduced::Bench bench;
  if (argc > 1 && std::strcmp(argv[1], "--sweep") == 0) {
    bench.Sweep();
    return 0;
  }
  bench.FillWith<float>();
  bench.MeasureRoofline();
  bench.AgainstRoofline<std::int8_t>();
  bench.AgainstRoofline<Half>();
  bench.AgainstRoofline<BFloat16>();
  bench.AgainstRoofline<std::int32_t>();
  bench.AgainstRoofline<std::int64_t>();
  bench.AgainstRoofline<float>();
  bench.AgainstRoofline<double>();
  bench.AgainstCub<double>();
  bench.AgainstCub<std::int64_t>();
  bench.AgainstCub<std::int32_t>();
  bench.AgainstCub<float>();
  bench.Concurrent();
  return reduced::failed ? 1 : 0;
}
