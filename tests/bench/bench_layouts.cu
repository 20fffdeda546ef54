// Reductions along axes on a CUDA device: 1 GiB in its memory, timed by events, the best mean of several rounds, the
// worst row first. ROOFLINE: bytes that must move, the answers among them, against the fastest plain read in the same
// process. REDO: outputs that the device left to the host. Some outputs of each row are compared with the general way,
// bit for bit.
//
// usage: bench_layouts [DTYPE...]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/algebra/finalize.h"
#include "kernels/algebra/layout.h"
#include "kernels/cuda/pipeline.h"
#include "kernels/cuda/slices.h"
#include "kernels/exact/answers.h"

namespace reduced {
namespace {

#define CHECK_CUDA(call)                                                                             \
  do {                                                                                               \
    if (const cudaError_t error = (call); error != cudaSuccess) {                                    \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error)); \
      std::exit(1);                                                                                  \
    }                                                                                                \
  } while (false)

constexpr std::int64_t kBytes = std::int64_t{1} << 30;
constexpr std::int64_t kChecked = 64;               // outputs of a row
constexpr std::int64_t kCheckedElements = 1 << 26;  // of all of them, or of one

__device__ std::uint64_t Mix(std::uint64_t z) {  // splitmix64
  z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Normal floats, any integers.
template <class T>
__global__ void Fill(T* data, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::uint64_t a = Mix(2 * static_cast<std::uint64_t>(i));
    const std::uint64_t b = Mix(2 * static_cast<std::uint64_t>(i) + 1);
    const double unit = static_cast<double>(a >> 11) * 0x1p-53;
    const double x = sqrt(-2 * log(1 - unit)) * cospi(2 * static_cast<double>(b >> 11) * 0x1p-53);
    if constexpr (std::is_same_v<T, Half>) {
      data[i] = {__half_as_ushort(__double2half(x))};
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      data[i] = {static_cast<std::uint16_t>(__float_as_uint(static_cast<float>(x)) >> 16)};
    } else if constexpr (kIsFloat<T>) {
      data[i] = static_cast<T>(x);
    } else if constexpr (std::is_same_v<T, Bool>) {
      data[i] = {static_cast<std::uint8_t>(a & 1)};
    } else {
      data[i] = static_cast<T>(sizeof(T) == 8 ? a >> 20 : a);
    }
  }
}

struct Request {
  const char* name;
  std::vector<Op> ops;
};
const Request kRequests[] = {
    {"sum", {Op::kSum}},
    {"mean", {Op::kMean}},
    {"argmax", {Op::kArgmax}},
    {"min", {Op::kMin}},
    {"var", {Op::kVar}},
    {"describe", {Op::kNanCount, Op::kMin, Op::kMax, Op::kArgmin, Op::kArgmax, Op::kSum, Op::kMean, Op::kVar, Op::kL2}},
};

// `many`: as many as make up the array.
constexpr std::int64_t kMany = -1;
struct Case {
  const char* name;
  std::vector<std::int64_t> shape;
  std::vector<bool> axes;
};
const Case kCases[] = {
    {"rows of 4", {kMany, 4}, {false, true}},
    {"rows of 16", {kMany, 16}, {false, true}},
    {"rows of 64", {kMany, 64}, {false, true}},
    {"rows of 128", {kMany, 128}, {false, true}},
    {"rows of 3", {kMany, 3}, {false, true}},
    {"rows of 10", {kMany, 10}, {false, true}},
    {"rows of 33", {kMany, 33}, {false, true}},
    {"rows of 100", {kMany, 100}, {false, true}},
    {"rows of 256", {kMany, 256}, {false, true}},
    {"rows of 1000", {kMany, 1000}, {false, true}},
    {"rows of 1024", {kMany, 1024}, {false, true}},
    {"rows of 64Ki", {kMany, 65536}, {false, true}},
    {"4 rows", {4, kMany}, {false, true}},
    {"2 columns", {kMany, 2}, {true, false}},
    {"3 columns", {kMany, 3}, {true, false}},
    {"16 columns", {kMany, 16}, {true, false}},
    {"100 columns", {kMany, 100}, {true, false}},
    {"128 columns", {kMany, 128}, {true, false}},
    {"1000 columns", {kMany, 1000}, {true, false}},
    {"4096 columns", {kMany, 4096}, {true, false}},
    {"64Ki columns", {kMany, 65536}, {true, false}},
    {"middle of 256", {256, kMany, 256}, {false, true, false}},
    {"outer of 256", {256, kMany, 256}, {true, false, true}},
};

struct Row {
  std::string name;
  double us, gb_per_s, share;
  unsigned long long redo;
  bool right;
};

class Bench {
 public:
  Bench() {
    CHECK_CUDA(cudaGetDeviceProperties(&properties_, 0));
    CHECK_CUDA(cudaMalloc(&data_, kBytes));
    CHECK_CUDA(cudaMalloc(&memory_, 10 * kBytes));
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaEventCreate(&begin_));
    CHECK_CUDA(cudaEventCreate(&end_));
    const double read = Time([&] { return LaunchReadAll(data_, kBytes, properties_.multiProcessorCount, stream_); });
    read_gb_per_s_ = static_cast<double>(kBytes) / read / 1e3;
    std::printf("%s, plain read of 1 GiB: %.0f GB/s\n", properties_.name, read_gb_per_s_);
  }

  template <class T>
  void Run() {
    Fill<<<1024, 256, 0, stream_>>>(static_cast<T*>(data_), kBytes / static_cast<std::int64_t>(sizeof(T)));
    CHECK_CUDA(cudaGetLastError());
    for (const Request& request : kRequests) {
      for (const Case& which : kCases) Measure(kDTypeOf<T>, request, which);
    }
  }

  int Print() {
    std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.share < b.share; });
    std::printf("%-32s %9s %7s %9s %9s\n", "", "us", "GB/s", "ROOFLINE", "REDO");
    int wrong = 0;
    for (const Row& row : rows_) {
      std::printf("%-32s %9.1f %7.0f %9.2f %9llu%s\n", row.name.c_str(), row.us, row.gb_per_s, row.share, row.redo,
                  row.right ? "" : "  WRONG");
      wrong += row.right ? 0 : 1;
    }
    return wrong;
  }

 private:
  void Measure(DType dtype, const Request& request, const Case& which) {
    QuickSlices slices{.dtype = dtype,
                       .bundle = SliceBundleFor(dtype, request.ops.data(), request.ops.size(), /*omit_nan=*/false),
                       .multiprocessors = properties_.multiProcessorCount,
                       .stream = stream_};
    if (slices.bundle == SliceBundle::kNone) return;
    const std::int64_t width = RowOf(dtype).bytes;
    std::vector<std::int64_t> shape = which.shape;
    std::int64_t others = 1;
    for (const std::int64_t size : shape) others *= size == kMany ? 1 : size;
    for (std::int64_t& size : shape) {
      if (size == kMany) size = kBytes / width / others;
    }
    const Layout layout = LayoutOf(shape, which.axes);
    slices.array = {.data = data_, .outputs = layout.outputs, .elements = layout.elements};
    const auto set = [](const std::vector<Dimension>& from, SliceDimensions* to) {
      for (const Dimension& dimension : from) {
        to->size[to->count] = dimension.size;
        to->stride[to->count++] = dimension.stride;
      }
    };
    set(layout.kept, &slices.array.kept);
    set(layout.reduced, &slices.array.reduced);
    std::int64_t bytes = 256;
    for (const Op op : request.ops) {
      slices.op[slices.ops] = op;
      slices.answers[slices.ops++] = memory_ + bytes;
      bytes += (layout.outputs * RowOf(ResultDType(op, dtype)).bytes + 255) / 256 * 256;
    }
    const double moved = static_cast<double>(layout.outputs * layout.elements * width + bytes - 256);
    slices.redo_count = reinterpret_cast<unsigned long long*>(memory_);
    slices.redo = reinterpret_cast<std::int64_t*>(memory_ + bytes);
    bytes += layout.outputs * 8;
    bytes = (bytes + 255) / 256 * 256;
    slices.states = memory_ + bytes;
    bytes += static_cast<std::int64_t>(PlanOf(slices).states_bytes);
    if (bytes > 10 * kBytes) return;
    CHECK_CUDA(cudaMemsetAsync(memory_, 0xa5, static_cast<std::size_t>(bytes), stream_));
    const double us = Time([&] {
      cudaMemsetAsync(slices.redo_count, 0, 8, stream_);
      return LaunchQuickSlices(slices);
    });
    Row row{std::string(RowOf(dtype).name) + " " + request.name + ", " + which.name, us, moved / us / 1e3};
    row.share = row.gb_per_s / read_gb_per_s_;
    CHECK_CUDA(cudaMemcpy(&row.redo, slices.redo_count, 8, cudaMemcpyDeviceToHost));
    row.right = Check(slices, request, layout);
    rows_.push_back(row);
  }

  // Some outputs against states of theirs; those on the list have no answer to compare.
  bool Check(const QuickSlices& slices, const Request& request, const Layout& layout) {
    ReduceSpec spec{.dtype = slices.dtype, .count = layout.elements, .ops = request.ops};
    spec.precision = Precision::kExact;
    std::vector<std::int64_t> outputs;
    const std::int64_t some = std::clamp<std::int64_t>(kCheckedElements / layout.elements, 1, kChecked);
    for (std::int64_t i = 0; i < some; ++i) outputs.push_back(layout.outputs * i / some);
    outputs.push_back(layout.outputs - 1);
    const auto count = outputs.size();
    std::vector<std::int64_t> redo(Redo(slices));
    CHECK_CUDA(cudaMemcpy(redo.data(), slices.redo, redo.size() * 8, cudaMemcpyDeviceToHost));
    unsigned char* memory = nullptr;
    constexpr int kParts = 16;
    const std::size_t state_bytes = sizeof(Partial) + sizeof(ExactDigits);
    CHECK_CUDA(cudaMalloc(&memory, count * (kParts * state_bytes + 8)));
    SliceStatesLaunch launch{.dtype = slices.dtype,
                             .accumulators = AccumulatorsFor(spec),
                             .exact_accumulators = ExactAccumulatorsFor(spec),
                             .array = slices.array,
                             .count = static_cast<int>(count),
                             .parts = kParts,
                             .partials = reinterpret_cast<Partial*>(memory),
                             .stream = stream_};
    if (launch.exact_accumulators != 0) {
      launch.digits = reinterpret_cast<ExactDigits*>(memory + count * kParts * sizeof(Partial));
    }
    auto* const list = reinterpret_cast<std::int64_t*>(memory + count * kParts * state_bytes);
    CHECK_CUDA(cudaMemcpy(list, outputs.data(), count * 8, cudaMemcpyHostToDevice));
    launch.list = list;
    CHECK_CUDA(LaunchSliceStates(launch));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    std::vector<Partial> partials(count * kParts);
    std::vector<ExactDigits> digits(launch.digits != nullptr ? count * kParts : 0);
    CHECK_CUDA(cudaMemcpy(partials.data(), launch.partials, partials.size() * sizeof(Partial), cudaMemcpyDeviceToHost));
    if (!digits.empty()) {
      CHECK_CUDA(cudaMemcpy(digits.data(), launch.digits, digits.size() * sizeof(ExactDigits), cudaMemcpyDeviceToHost));
    }
    CHECK_CUDA(cudaFree(memory));
    bool right = true;
    for (std::size_t i = 0; i < count; ++i) {
      if (std::find(redo.begin(), redo.end(), outputs[i]) != redo.end()) continue;
      State state;
      if (!digits.empty()) state.exact = std::make_unique<ExactSums>();
      for (std::size_t part = i * kParts; part < (i + 1) * kParts; ++part) {
        Combine(partials[part], &state.partial);
        if (!digits.empty()) Merge(digits[part], state.exact.get());
      }
      state.partial.count = layout.elements;
      const absl::StatusOr<std::vector<Value>> values = Finalize(spec, state);
      for (std::size_t op = 0; values.ok() && op < values->size(); ++op) {
        const auto bytes = static_cast<std::size_t>(RowOf((*values)[op].dtype).bytes);
        std::byte expected[8] = {};
        std::byte got[8] = {};
        StoreValue((*values)[op], expected);
        CHECK_CUDA(cudaMemcpy(got, static_cast<std::byte*>(slices.answers[op]) + outputs[i] * bytes, bytes,
                              cudaMemcpyDeviceToHost));
        right = right && std::memcmp(got, expected, bytes) == 0;
      }
    }
    return right;
  }

  static unsigned long long Redo(const QuickSlices& slices) {
    unsigned long long count = 0;
    CHECK_CUDA(cudaMemcpy(&count, slices.redo_count, 8, cudaMemcpyDeviceToHost));
    return count;
  }

  template <class Launches>
  double Time(Launches launches) {
    constexpr int kRounds = 4, kRepeats = 3;
    double best = 1e12;
    for (int round = 0; round < kRounds; ++round) {
      CHECK_CUDA(cudaEventRecord(begin_, stream_));
      for (int i = 0; i < kRepeats; ++i) CHECK_CUDA(launches());
      CHECK_CUDA(cudaEventRecord(end_, stream_));
      CHECK_CUDA(cudaEventSynchronize(end_));
      float millis = 0;
      CHECK_CUDA(cudaEventElapsedTime(&millis, begin_, end_));
      if (round > 0) best = std::min(best, 1e3 * millis / kRepeats);
    }
    return best;
  }

  cudaDeviceProp properties_;
  void* data_ = nullptr;
  unsigned char* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  double read_gb_per_s_ = 0;
  std::vector<Row> rows_;
};

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) {
  reduced::Bench bench;
  const auto wants = [&](std::string_view name) {
    return argc < 2 || std::any_of(argv + 1, argv + argc, [&](const char* each) { return name == each; });
  };
  for (const reduced::DTypeRow& row : reduced::kDTypes) {
    if (!wants(row.name)) continue;
    reduced::VisitDType(row.dtype, [&]<class T>(std::type_identity<T>) { bench.Run<T>(); });
  }
  return bench.Print() == 0 ? 0 : 1;
}
