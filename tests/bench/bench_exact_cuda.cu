// Exact sums beside plain ones on a CUDA device, in one process: device-resident arrays, launches back to back, timed
// by events, the best mean of several rounds. ROOFLINE: of the fastest plain read of as many bytes.
//
// usage: bench_exact_cuda [BYTES]   of the sizes it has; default all
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <type_traits>

#include "kernels/cuda/exact_sums.h"
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

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kBytes = 4096 * kMiB;
struct Size {
  const char* name;
  std::int64_t bytes;
  int repeats;
};
constexpr Size kSizes[] = {
    {"4 KiB", kMiB / 256, 200}, {"1 MiB", kMiB, 200}, {"64 MiB", 64 * kMiB, 50}, {"4 GiB", kBytes, 4}};

enum class Data { kUniform, kNormal, kLognormal, kSixtyBinades, kFull, kZeros, kHalfZeros, kSomeNan, kOutliers };
constexpr const char* kNames[] = {"uniform",    "normal", "lognormal, sigma 5", "60 binades", "all exponents", "zeros",
                                  "half zeros", "1% NaN", "one outlier a tile"};

__device__ std::uint64_t Mix(std::uint64_t z) {  // splitmix64
  z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <class T>
__device__ T Narrowed(double x) {
  if constexpr (std::is_same_v<T, Half>) return {__half_as_ushort(__double2half(x))};
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<std::uint16_t>(__float_as_uint(static_cast<float>(x)) >> 16)};
  }
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
}

template <class T>
__global__ void Fill(T* data, std::int64_t count, Data kind) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::uint64_t a = Mix(2 * static_cast<std::uint64_t>(i));
    const std::uint64_t b = Mix(2 * static_cast<std::uint64_t>(i) + 1);
    const double unit = static_cast<double>(a >> 11) * 0x1p-53;
    const double normal = sqrt(-2 * log(1 - unit)) * cospi(2 * static_cast<double>(b >> 11) * 0x1p-53);
    const int range = sizeof(T) == 8 ? 2000 : 250;
    const int exponent = kind == Data::kFull ? static_cast<int>(b % range) - range / 2 : static_cast<int>(b % 60) - 30;
    double x = 2 * unit - 1;
    if (kind == Data::kNormal) x = normal;
    if (kind == Data::kLognormal) x = exp(5 * normal);
    if (kind == Data::kZeros || (kind == Data::kHalfZeros && b % 2 == 0)) x = 0;
    if (kind == Data::kSomeNan && b % 100 == 0) x = nan("");
    if (kind == Data::kOutliers && b % 512 == 0) x = scalbn(x, sizeof(T) == 2 ? 12 : 60);
    if (kind == Data::kSixtyBinades || kind == Data::kFull) x = scalbn(x < 0 ? unit - 2 : unit + 1, exponent);
    data[i] = Narrowed<T>(x);
  }
}

class Bench {
 public:
  explicit Bench(std::int64_t only_bytes) : only_bytes_(only_bytes) {
    CHECK_CUDA(cudaGetDeviceProperties(&properties_, 0));
    CHECK_CUDA(cudaMalloc(&data_, kBytes));
    CHECK_CUDA(cudaMalloc(&scratch_, kScratchBytes));
    CHECK_CUDA(cudaMemset(scratch_, 0, kScratchBytes));
    CHECK_CUDA(cudaMalloc(&exact_scratch_, kExactScratchBytes));
    CHECK_CUDA(cudaMemset(exact_scratch_, 0, kExactScratchBytes));
    CHECK_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&out_), sizeof(Partial), cudaHostAllocMapped));
    CHECK_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&exact_out_), sizeof(ExactDigits), cudaHostAllocMapped));
    *exact_out_ = ExactDigits{};
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaEventCreate(&begin_));
    CHECK_CUDA(cudaEventCreate(&end_));
    std::printf("%s, %d multiprocessors\n", properties_.name, properties_.multiProcessorCount);
    std::printf("%-4s %-20s %-8s %8s %9s %9s %7s %9s\n", "", "", "", "", "plain us", "exact us", "ratio", "roofline");
  }

  template <class T>
  void Run(DType dtype) {
    const AccumulatorSet sum = SetOf(Accumulator::kSum);
    const AccumulatorSet squares = SetOf(Accumulator::kSumSquares);
    const AccumulatorSet extrema = SetOf(Accumulator::kExtrema);
    const AccumulatorSet order = extrema | SetOf(Accumulator::kCounts);
    for (int kind = 0; kind < static_cast<int>(std::size(kNames)); ++kind) {
      const auto data = static_cast<Data>(kind);
      // More than it can hold.
      if (std::is_same_v<T, Half> && data > Data::kNormal && data <= Data::kFull) continue;
      Fill<<<1024, 256, 0, stream_>>>(static_cast<T*>(data_), kBytes / static_cast<std::int64_t>(sizeof(T)), data);
      CHECK_CUDA(cudaGetLastError());
      Row(dtype, kNames[static_cast<int>(data)], "sum", sum, sum);
      if (data == Data::kUniform || data > Data::kFull) {
        Row(dtype, kNames[kind], "sum, max", sum | extrema, sum, extrema);
        Row(dtype, kNames[kind], "describe", SetOf(Accumulator::kMoments) | order, sum | squares, order);
      }
      if (data != Data::kUniform) continue;
      Row(dtype, kNames[static_cast<int>(data)], "l1", SetOf(Accumulator::kAbsSum), SetOf(Accumulator::kAbsSum));
      Row(dtype, kNames[static_cast<int>(data)], "l2", squares, squares);
      Row(dtype, kNames[static_cast<int>(data)], "var", SetOf(Accumulator::kMoments), sum | squares);
    }
  }

 private:
  void Row(DType dtype, const char* data, const char* op, AccumulatorSet plain_set, AccumulatorSet exact_set,
           AccumulatorSet others = 0) {
    for (const auto& [size, bytes, repeats] : kSizes) {
      if (only_bytes_ != 0 && bytes != only_bytes_) continue;
      const std::int64_t count = bytes / RowOf(dtype).bytes;
      const double read =
          Time(repeats, [&] { return LaunchReadAll(data_, bytes, properties_.multiProcessorCount, stream_); });
      const double plain = Time(repeats, [&] {
        return kSinglePass.launch({.dtype = dtype,
                                   .accumulators = plain_set,
                                   .data = data_,
                                   .count = count,
                                   .scratch = scratch_,
                                   .out = out_,
                                   .multiprocessors = properties_.multiProcessorCount,
                                   .stream = stream_});
      });
      const double exact = Time(repeats, [&] {
        return LaunchExactSums({.dtype = dtype,
                                .accumulators = exact_set,
                                .others = others,
                                .data = data_,
                                .count = count,
                                .scratch = exact_scratch_,
                                .out = exact_out_,
                                .partial = out_,
                                .multiprocessors = properties_.multiProcessorCount,
                                .stream = stream_});
      });
      std::printf("%-4s %-20s %-8s %8s %9.1f %9.1f %7.2f %9.2f\n", RowOf(dtype).name.data(), data, op, size, plain,
                  exact, exact / plain, read / exact);
    }
  }

  // Microseconds of one launch.
  template <class Launch>
  double Time(int repeats, Launch launch) {
    double best = 1e30;
    for (int round = 0; round < 8; ++round) {  // the first warms up
      CHECK_CUDA(cudaEventRecord(begin_, stream_));
      for (int i = 0; i < repeats; ++i) CHECK_CUDA(launch());
      CHECK_CUDA(cudaEventRecord(end_, stream_));
      CHECK_CUDA(cudaEventSynchronize(end_));
      float millis = 0;
      CHECK_CUDA(cudaEventElapsedTime(&millis, begin_, end_));
      if (round > 0) best = std::min(best, 1e3 * millis / repeats);
    }
    return best;
  }

  std::int64_t only_bytes_ = 0;
  cudaDeviceProp properties_;
  void* data_ = nullptr;
  void* scratch_ = nullptr;
  void* exact_scratch_ = nullptr;
  Partial* out_ = nullptr;
  ExactDigits* exact_out_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) {
  reduced::Bench bench(argc > 1 ? std::atoll(argv[1]) : 0);
  bench.Run<reduced::Half>(reduced::DType::kF16);
  bench.Run<reduced::BFloat16>(reduced::DType::kBF16);
  bench.Run<float>(reduced::DType::kF32);
  bench.Run<double>(reduced::DType::kF64);
  return 0;
}
