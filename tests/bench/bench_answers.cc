// Ops about the distribution of an array in the memory of a GPU, and about two arrays there: the time from the call to
// the answers in host memory, and of the kernels alone, in plain reads of the array, or of both. Each answer is
// compared with that of the CPU engine.
//
// usage: bench_answers [MIB [REPEATS]]
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/layout.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/stopwatch.h"
#include "oneapi/tbb/parallel_for.h"
#include "tests/bench/device_read.h"

namespace reduced {
namespace {

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "bench_answers: %s\n", status.ToString().c_str());
  std::exit(1);
}

std::uint64_t Mix(std::uint64_t z) {  // splitmix64
  z = (z + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Uniform(std::uint64_t i) { return static_cast<double>(Mix(i) >> 11) * 0x1p-53; }

struct DataRow {
  const char* name;
  double (*value)(std::uint64_t i, std::uint64_t count);
};

const DataRow kNormal = {"normal", [](std::uint64_t i, std::uint64_t) {
                           double sum = -6;
                           for (std::uint64_t j = 0; j < 12; ++j) sum += Uniform(12 * i + j);
                           return 32 * sum;  // integers, too, have a few bits
                         }};
const DataRow kOthers[] = {
    {"uniform", [](std::uint64_t i, std::uint64_t) { return Uniform(i); }},
    {"constant", [](std::uint64_t, std::uint64_t) { return 3.25; }},
    {"half zeros", [](std::uint64_t i, std::uint64_t) { return Mix(i) % 2 == 0 ? 0 : Uniform(~i) - 0.5; }},
    {"sorted",
     [](std::uint64_t i, std::uint64_t count) { return static_cast<double>(i) / static_cast<double>(count); }},
    {"two values", [](std::uint64_t i, std::uint64_t) { return Mix(i) % 2 == 0 ? -1.0 : 1e-30; }},
    {"subnormal", [](std::uint64_t i, std::uint64_t) { return Uniform(i) * 0x1p-130; }},
    {"one outlier", [](std::uint64_t i, std::uint64_t) { return i == 12'345 ? 1e30 : Uniform(i) * 1e-6; }},
    {"wide",
     [](std::uint64_t i, std::uint64_t) { return std::ldexp(Uniform(i), static_cast<int>(Mix(~i) % 120) - 60); }},
    {"all NaN", [](std::uint64_t, std::uint64_t) { return std::numeric_limits<double>::quiet_NaN(); }},
};

std::vector<double> Even(double low, double high, int bins) {
  std::vector<double> edges;
  for (int i = 0; i <= bins; ++i) edges.push_back(i == bins ? high : low + (high - low) / bins * i);
  return edges;
}

enum class Outputs : std::uint8_t { kWhole, kRows, kKeys };

struct CallRow {
  const char* name;
  OpCall call;
  Outputs outputs = Outputs::kWhole;
};

constexpr std::int64_t kRow = 1024;
constexpr std::int64_t kKeys = 1000;

std::vector<CallRow> Calls(DType dtype, bool all) {
  std::vector<double> logarithmic, percentiles;
  for (int i = 0; i <= 64; ++i) logarithmic.push_back(std::exp2(i - 32));
  for (int i = 1; i < 100; ++i) percentiles.push_back(i / 100.0);
  std::vector<CallRow> calls = {
      {"median", Op::kMedian},
      {"3 quantiles", {Op::kQuantile, {.quantiles = {0.25, 0.5, 0.75}}}},
      {"99 quantiles", {Op::kQuantile, {.quantiles = percentiles}}},
      {"histogram 256", {Op::kHistogram, {.edges = Even(-128, 128, 256)}}},
      {"histogram 4096", {Op::kHistogram, {.edges = Even(-100, 100, 4096)}}},
      {"histogram 64 log", {Op::kHistogram, {.edges = logarithmic}}},
      {"topk 10", {Op::kTopK, {.k = 10}}},
      {"argbottomk 1000", {Op::kArgBottomK, {.k = 1000}}},
      {"distinct", Op::kDistinct},
  };
  if (RowOf(dtype).bytes <= 2) calls.push_back({"mode", Op::kMode});
  if (all) {
    calls.push_back({"median of rows", Op::kMedian, Outputs::kRows});
    calls.push_back({"4 quantiles of rows", {Op::kQuantile, {.quantiles = {0, 0.1, 0.5, 0.9}}}, Outputs::kRows});
    calls.push_back({"median by keys", Op::kMedian, Outputs::kKeys});
  }
  if (RowOf(dtype).is_float) {
    for (const Op op : {Op::kDot, Op::kWeightedMean, Op::kCosine, Op::kCorr, Op::kDistanceL1, Op::kDistanceL2}) {
      calls.push_back({RowOf(op).name.data(), OpCall(op).With(dtype)});
    }
  }
  return calls;
}

struct Timed {
  double us = std::numeric_limits<double>::infinity();
  double kernel_us = 0;
  std::vector<std::byte> answers{};
};

// The best of several calls.
Timed Run(Engine& engine, Job job, int repeats) {
  Timed timed;
  timed.answers.resize(static_cast<std::size_t>(8 * AnswerElements(job.spec.ops[0]) * job.partition->layout.outputs *
                                                job.partition->groups()));
  job.place = [&](std::int64_t, std::int64_t, const std::byte*) { return std::vector{timed.answers.data()}; };
  for (int i = 0; i < repeats; ++i) {
    absl::Notification done;
    absl::StatusOr<Answer> answer = absl::InternalError("no answer");
    const Stopwatch stopwatch;
    engine.Reduce(job, [&](absl::StatusOr<Answer> result) {
      answer = std::move(result);
      done.Notify();
    });
    done.WaitForNotification();
    const double us = stopwatch.micros();
    if (!answer.ok()) Fail(answer.status());
    if (us >= timed.us) continue;
    timed.us = us;
    timed.kernel_us = answer->timing.kernel_us.value_or(0);
  }
  return timed;
}

class Bench {
 public:
  Bench(Engine& cpu, Engine& gpu, std::int64_t bytes, int repeats)
      : cpu_(cpu),
        gpu_(gpu),
        bytes_(bytes),
        repeats_(repeats),
        host_(static_cast<std::size_t>(bytes)),
        host_other_(host_.size()),
        host_keys_(host_.size() / 4) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = gpu.Allocate(bytes);
    if (!memory.ok()) Fail(memory.status());
    memory_ = *std::move(memory);
    memory = gpu.Allocate(bytes);
    if (!memory.ok()) Fail(memory.status());
    other_ = *std::move(memory);
    memory = gpu.Allocate(bytes);  // 4 bytes for each element, of elements that have as many or more
    if (!memory.ok()) Fail(memory.status());
    keys_ = *std::move(memory);
    for (std::size_t i = 0; i < host_keys_.size(); ++i) host_keys_[i] = static_cast<std::int32_t>(Mix(i) % kKeys);
    if (const absl::Status status = keys_->Write(0, host_keys_.data(), bytes); !status.ok()) Fail(status);
    const absl::StatusOr<double> read = MicrosOfRead(memory_->array().data, bytes);
    if (!read.ok()) Fail(read.status());
    read_us_ = *read;
    std::printf("%s, %lld MiB; a plain read takes %.1f us\n", gpu.info().model.c_str(),
                static_cast<long long>(bytes >> 20), read_us_);
    std::printf("%-5s %-12s %-19s %9s %6s %9s %6s\n", "dtype", "data", "op", "us", "reads", "kernel us", "reads");
  }

  // Whether all answers were right.
  bool Run(DType dtype, const DataRow& data, bool all = false) {
    const std::int64_t count = bytes_ / RowOf(dtype).bytes;
    Fill(dtype, data, 0, &host_, *memory_);
    Fill(dtype, data, static_cast<std::uint64_t>(count), &host_other_, *other_);
    bool right = true;
    for (const CallRow& row : Calls(dtype, all)) {
      Job job{.spec = {.dtype = dtype, .count = count, .ops = {row.call}, .empty_policy = EmptyPolicy::kFill}};
      const bool two = OtherOf(row.call.op) != OtherOperand::kNone;
      const auto set = [&](const ArrayRef& array, const ArrayRef& other, const ArrayRef& keys) {
        job.array = array;
        if (two) job.y = job.weights = OtherArray{{dtype, count, other}};
        const std::int64_t rows = row.outputs == Outputs::kRows ? count / kRow : 1;
        Partition& partition = job.partition.emplace(Partition{.rows = count});
        partition.layout = LayoutOf(std::vector<std::int64_t>{rows, count / rows}, {false, true});
        if (row.outputs == Outputs::kKeys) partition.keys = Keys{.keys = {DType::kI32, count, keys}, .groups = kKeys};
        if (row.outputs == Outputs::kKeys) partition.layout = LayoutOf(std::vector<std::int64_t>{count}, {true});
      };
      set({.data = host_.data()}, {.data = host_other_.data()}, {.data = host_keys_.data()});
      const Timed wanted = reduced::Run(cpu_, job, 1);
      set(memory_->array(), other_->array(), keys_->array());
      const double read_us = two ? 2 * read_us_ : read_us_;
      const Timed timed = reduced::Run(gpu_, job, repeats_);
      const bool same = timed.answers == wanted.answers;
      right = right && same;
      std::printf("%-5s %-12s %-19s %9.1f %6.2f %9.1f %6.2f%s\n", std::string(RowOf(dtype).name).c_str(), data.name,
                  row.name, timed.us, timed.us / read_us, timed.kernel_us, timed.kernel_us / read_us,
                  same ? "" : "  WRONG");
      std::fflush(stdout);
    }
    return right;
  }

 private:
  // The elements from number `first` on of endless data.
  static void Fill(DType dtype, const DataRow& data, std::uint64_t first, std::vector<std::byte>* host,
                   ArrayMemory& memory) {
    const std::int64_t count = std::ssize(*host) / RowOf(dtype).bytes;
    VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
      auto* const elements = reinterpret_cast<T*>(host->data());
      tbb::parallel_for(std::int64_t{0}, count, [&](std::int64_t i) {
        const double value = data.value(first + static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(count));
        if constexpr (kIsFloat<T>) {
          elements[i] = FromDouble<T>(value);
        } else if constexpr (std::is_integral_v<T>) {
          elements[i] = static_cast<T>(static_cast<std::int64_t>(value));
        }
      });
    });
    if (const absl::Status status = memory.Write(0, host->data(), std::ssize(*host)); !status.ok()) Fail(status);
  }

  Engine& cpu_;
  Engine& gpu_;
  const std::int64_t bytes_;
  const int repeats_;
  std::vector<std::byte> host_;
  std::vector<std::byte> host_other_;
  std::vector<std::int32_t> host_keys_;
  std::unique_ptr<ArrayMemory> memory_, other_, keys_;
  double read_us_ = 0;
};

int Main(int argc, char** argv) {
  const std::int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 1024) << 20;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  EngineOptions options;
  options.cpu_array_bytes = options.cuda_array_bytes = 16 * bytes;
  const absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
  if (!engines.ok()) Fail(engines.status());
  const absl::StatusOr<Engine*> cpu = (*engines)->Get(EngineKind::kCpu), gpu = (*engines)->Get(EngineKind::kCuda);
  if (!gpu.ok()) Fail(gpu.status());
  Bench bench(**cpu, **gpu, bytes, repeats);
  bool right = true;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kF16, DType::kU8}) {
    right = bench.Run(dtype, kNormal, RowOf(dtype).bytes >= 4) && right;
  }
  for (const DataRow& data : kOthers) right = bench.Run(DType::kF32, data) && right;
  for (const DataRow& data : kOthers) right = bench.Run(DType::kF64, data) && right;
  return right ? 0 : 1;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
