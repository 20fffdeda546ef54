// Ops about the distribution of an array in the memory of a GPU, fingerprints of it, and ops about two arrays there:
// the time from the call to the answers in host memory, and of the kernels alone, in plain reads of the same bytes.
// Each answer is compared with that of the CPU engine.
//
// usage: bench_answers [MIB [REPEATS [whole|others|parts|keys|pairs|slices|bytes|bits]]]: only whole arrays of normal
// or of other data, quantiles of many outputs, ops about two arrays, those along axes and matrices of columns, elements
// of 8 bits, or fingerprints and comparisons
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
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

struct CallRow {
  const char* name;
  std::vector<OpCall> calls;
};

std::vector<CallRow> Calls(DType dtype) {
  std::vector<double> logarithmic, percentiles;
  for (int i = 0; i <= 64; ++i) logarithmic.push_back(std::exp2(i - 32));
  for (int i = 1; i < 100; ++i) percentiles.push_back(i / 100.0);
  std::vector<CallRow> calls = {
      {"median", {Op::kMedian}},
      {"3 quantiles", {{Op::kQuantile, {.quantiles = {0.25, 0.5, 0.75}}}}},
      {"99 quantiles", {{Op::kQuantile, {.quantiles = percentiles}}}},
      {"histogram 256", {{Op::kHistogram, {.edges = Even(-128, 128, 256)}}}},
      {"histogram 4096", {{Op::kHistogram, {.edges = Even(-100, 100, 4096)}}}},
      {"histogram 64 log", {{Op::kHistogram, {.edges = logarithmic}}}},
      {"topk 10", {{Op::kTopK, {.k = 10}}}},
      {"argbottomk 1000", {{Op::kArgBottomK, {.k = 1000}}}},
      {"distinct", {Op::kDistinct}},
  };
  if (RowOf(dtype).bytes <= 2) calls.push_back({"mode", {Op::kMode}});
  const OpCall quartiles = {Op::kQuantile, {.quantiles = {0.25, 0.5, 0.75}}};
  calls.push_back({"describe", {Op::kCount, Op::kNanCount, Op::kMean, Op::kStd, Op::kMin, quartiles, Op::kMax}});
  if (HasKernels(dtype)) return calls;
  calls.push_back({"sum", {Op::kSum}});
  calls.push_back({"max", {Op::kMax}});
  calls.push_back({"argmin", {Op::kArgmin}});
  calls.push_back({"l2", {Op::kL2}});
  calls.push_back({"kurtosis", {Op::kKurtosis}});
  return calls;
}

// How an array falls apart: rows or columns of so many elements, or by so many keys.
struct PartRow {
  const char* name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t keys = 0;
  bool one_row = false;  // the other array has an element for each column of the rows
};

const PartRow kWhole = {"whole"};
const PartRow kParts[] = {{.name = "rows 16", .rows = 16},
                          {.name = "rows 64", .rows = 64},
                          {.name = "rows 256", .rows = 256},
                          {.name = "rows 1024", .rows = 1024},
                          {.name = "rows 4096", .rows = 4096},
                          {.name = "rows 16384", .rows = 16'384},
                          {.name = "rows 65536", .rows = 65'536},
                          {.name = "columns 1024", .columns = 1024},
                          {.name = "columns 64Ki", .columns = 65'536},
                          {.name = "1000 keys", .keys = 1000}};

// Of ops about two arrays.
const PartRow kPairParts[] = {{.name = "rows 16", .rows = 16},
                              {.name = "rows 64", .rows = 64},
                              {.name = "rows 1024", .rows = 1024},
                              {.name = "rows 1024, w", .rows = 1024, .one_row = true},
                              {.name = "rows 65536", .rows = 65'536},
                              {.name = "columns 1024", .columns = 1024},
                              {.name = "columns 64Ki", .columns = 65'536}};

Partition PartitionOf(const PartRow& row, std::int64_t count, const ArrayRef& keys) {
  Partition partition;
  partition.layout = LayoutOf(std::vector<std::int64_t>{count}, {true});
  if (row.rows > 0) partition.layout = LayoutOf(std::vector<std::int64_t>{count / row.rows, row.rows}, {false, true});
  if (row.columns > 0) {
    partition.layout = LayoutOf(std::vector<std::int64_t>{row.columns, count / row.columns}, {true, false});
  }
  if (row.keys > 0) {
    partition.rows = count;
    partition.keys = Keys{.keys = {.dtype = DType::kI32, .count = count, .array = keys}, .groups = row.keys};
  }
  return partition;
}

std::int64_t OutputsOf(const Partition& partition) {
  return partition.keys.has_value() ? partition.keys->groups : partition.layout.outputs;
}

struct Timed {
  double us = std::numeric_limits<double>::infinity();
  double kernel_us = 0;
  std::vector<std::byte> answers{};
};

// The best of several calls.
Timed Run(Engine& engine, Job job, int repeats) {
  Timed timed;
  std::vector<std::int64_t> begins = {0};
  for (const OpCall& call : job.spec.ops) {
    begins.push_back(begins.back() + 8 * AnswerElements(call) * OutputsOf(*job.partition));
  }
  timed.answers.resize(static_cast<std::size_t>(begins.back()));
  begins.pop_back();
  job.place = [&](std::int64_t, std::int64_t, const std::byte*) {
    std::vector<std::byte*> places;
    for (const std::int64_t begin : begins) places.push_back(timed.answers.data() + begin);
    return places;
  };
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
      : cpu_(cpu), gpu_(gpu), bytes_(bytes), repeats_(repeats), host_(static_cast<std::size_t>(bytes)) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = gpu.Allocate(bytes);
    if (!memory.ok()) Fail(memory.status());
    memory_ = *std::move(memory);
    const absl::StatusOr<double> read = MicrosOfRead(memory_->array().data, bytes);
    if (!read.ok()) Fail(read.status());
    read_us_ = *read;
    std::printf("%s, %lld MiB; a plain read takes %.1f us\n", gpu.info().model.c_str(),
                static_cast<long long>(bytes >> 20), read_us_);
    std::printf("%-5s %-12s %-13s %-17s %9s %6s %9s %6s\n", "dtype", "data", "of", "op", "us", "reads", "kernel us",
                "reads");
  }

  // Whether all answers were right.
  bool Run(DType dtype, const DataRow& data) {
    Write(dtype, data, 0, &host_, *memory_);
    bool right = true;
    for (const CallRow& row : Calls(dtype)) right = Run(dtype, data, kWhole, row) && right;
    return right;
  }

  // The same of quantiles of many outputs; keyed: of those that have keys.
  bool RunParts(DType dtype, const DataRow& data, bool keyed) {
    Write(dtype, data, 0, &host_, *memory_);
    const std::int64_t count = bytes_ / RowOf(dtype).bytes;
    host_keys_.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < host_keys_.size(); ++i) host_keys_[i] = static_cast<std::int32_t>(Mix(i) % 1000);
    const auto key_bytes = static_cast<std::int64_t>(host_keys_.size() * sizeof(host_keys_[0]));
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = gpu_.Allocate(key_bytes);
    if (!memory.ok()) Fail(memory.status());
    keys_ = *std::move(memory);
    const auto* const keys = reinterpret_cast<const std::byte*>(host_keys_.data());
    if (const absl::Status status = keys_->Write(0, keys, key_bytes); !status.ok()) Fail(status);
    bool right = true;
    for (const PartRow& part : kParts) {
      if ((part.keys > 0) != keyed) continue;
      const std::vector<CallRow> calls = Calls(dtype);
      for (std::size_t i = 0; i < (part.rows >= 256 ? 3 : 2); ++i) right = Run(dtype, data, part, calls[i]) && right;
    }
    keys_ = nullptr;
    return right;
  }

  // The same of two arrays.
  bool RunPairs(DType dtype, const DataRow& data, std::span<const PartRow> parts = {&kWhole, 1}) {
    Write(dtype, data, 0, &host_, *memory_);
    host_other_.resize(host_.size());
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = gpu_.Allocate(bytes_);
    if (!memory.ok()) Fail(memory.status());
    other_ = *std::move(memory);
    Write(dtype, data, static_cast<std::uint64_t>(bytes_), &host_other_, *other_);
    bool right = true;
    for (const PartRow& part : parts) {
      for (const Op op : {Op::kDot, Op::kWeightedMean, Op::kCosine, Op::kCorr, Op::kDistanceL1, Op::kDistanceL2}) {
        if (part.rows + part.columns > 0 && (op == Op::kDot || op == Op::kDistanceL1)) continue;
        right = Run(dtype, data, part, {RowOf(op).name.data(), {OpCall(op).With(dtype)}}) && right;
      }
    }
    other_ = nullptr;
    return right;
  }

  // Fingerprints, of the whole and of a part whose rows lie apart in a larger array.
  bool RunFingerprints(DType dtype) {
    Write(dtype, kNormal, 0, &host_, *memory_);
    const std::int64_t count = bytes_ / RowOf(dtype).bytes, row = (std::int64_t{1} << 20) / RowOf(dtype).bytes;
    OpParameters part;
    part.shard = Shard{.whole = {count / row, 3 * row}, .offset = {0, row}, .part = {count / row, row}};
    const bool right = Run(dtype, kNormal, kWhole, {"fingerprint", {Op::kFingerprint}});
    return Run(dtype, kNormal, kWhole, {"of rows of 1 MiB", {OpCall(Op::kFingerprint, std::move(part))}}) && right;
  }

  // Comparisons of equal arrays, of such that differ in 1,000 places, and of others.
  bool RunComparisons(DType dtype) {
    Write(dtype, kNormal, 0, &host_, *memory_);
    host_other_ = host_;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = gpu_.Allocate(bytes_);
    if (!memory.ok()) Fail(memory.status());
    other_ = *std::move(memory);
    bool right = true;
    for (const DataRow& how : {DataRow{"equal", kNormal.value}, {"nearly equal", kNormal.value}}) {
      if (const absl::Status status = other_->Write(0, host_other_.data(), bytes_); !status.ok()) Fail(status);
      right = RunComparison(dtype, how) && right;
      for (std::int64_t i = 0; i < 1000; ++i) {
        host_other_[static_cast<std::size_t>(bytes_ / 1000 * i / RowOf(dtype).bytes * RowOf(dtype).bytes)] ^=
            std::byte{1};
      }
    }
    Write(dtype, kNormal, static_cast<std::uint64_t>(bytes_), &host_other_, *other_);
    right = RunComparison(dtype, {"different", kNormal.value}) && right;
    other_ = nullptr;
    return right;
  }

  // Matrices of columns.
  bool RunMatrices(DType dtype, const DataRow& data) {
    Write(dtype, data, 0, &host_, *memory_);
    const CallRow calls[] = {{"cov_matrix 16", {{Op::kCovMatrix, {.columns = 16}}}},
                             {"corr_matrix 16", {{Op::kCorrMatrix, {.columns = 16}}}},
                             {"cov_matrix 64", {{Op::kCovMatrix, {.columns = 64}}}}};
    bool right = true;
    for (const CallRow& call : calls) right = Run(dtype, data, kWhole, call) && right;
    return right;
  }

 private:
  bool RunComparison(DType dtype, const DataRow& how) {
    OpParameters rules;
    rules.rtol = 1e-5;
    rules.atol = 1e-8;
    rules.other = dtype;
    const bool right = Run(dtype, how, kWhole, {"compare", {OpCall(Op::kCompare, std::move(rules))}});
    return Run(dtype, how, kWhole, {"distance_max", {OpCall(Op::kDistanceMax).With(dtype)}}) && right;
  }

  // Elements from number `first` on of endless data.
  static void Write(DType dtype, const DataRow& data, std::uint64_t first, std::vector<std::byte>* host,
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

  bool Run(DType dtype, const DataRow& data, const PartRow& part, const CallRow& row) {
    const std::int64_t count = bytes_ / RowOf(dtype).bytes;
    Job job{.spec = {.dtype = dtype, .count = count, .ops = row.calls, .empty_policy = EmptyPolicy::kFill}};
    if (!HasKernels(dtype) || row.calls.size() > 1) job.spec.precision = Precision::kExact;
    job.array = {.data = host_.data()};
    job.partition = PartitionOf(part, count, {.data = host_keys_.data()});
    const bool two = OtherOf(row.calls.front().op) != OtherOperand::kNone;
    OtherArray other{{dtype, part.one_row ? part.rows : count, {.data = host_other_.data()}}};
    if (part.one_row) other.broadcast = {{count / part.rows, 0}, {part.rows, 1}};
    if (two) job.y = job.weights = other;
    const Timed wanted = reduced::Run(cpu_, job, 1);
    job.array = memory_->array();
    job.partition = PartitionOf(part, count, keys_ == nullptr ? ArrayRef{} : keys_->array());
    if (two) {
      other.array.array = other_->array();
      job.y = job.weights = other;
    }
    const double read_us = two && !part.one_row ? 2 * read_us_ : read_us_;
    const Timed timed = reduced::Run(gpu_, job, repeats_);
    const bool same = timed.answers == wanted.answers;
    std::printf("%-5s %-12s %-13s %-17s %9.1f %6.2f %9.1f %6.2f%s\n", std::string(RowOf(dtype).name).c_str(), data.name,
                part.name, row.name, timed.us, timed.us / read_us, timed.kernel_us, timed.kernel_us / read_us,
                same ? "" : "  WRONG");
    std::fflush(stdout);
    return same;
  }

  Engine& cpu_;
  Engine& gpu_;
  const std::int64_t bytes_;
  const int repeats_;
  std::vector<std::byte> host_;
  std::unique_ptr<ArrayMemory> memory_;
  std::vector<std::byte> host_other_;
  std::vector<std::int32_t> host_keys_;
  std::unique_ptr<ArrayMemory> other_, keys_;
  double read_us_ = 0;
};

int Main(int argc, char** argv) {
  const std::int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 1024) << 20;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  EngineOptions options;
  options.cpu_array_bytes = 16 * bytes;
  options.cuda_array_bytes = options.cpu_array_bytes;
  const absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
  if (!engines.ok()) Fail(engines.status());
  const absl::StatusOr<Engine*> cpu = (*engines)->Get(EngineKind::kCpu), gpu = (*engines)->Get(EngineKind::kCuda);
  if (!gpu.ok()) Fail(gpu.status());
  Bench bench(**cpu, **gpu, bytes, repeats);
  bool right = true;
  const std::string only = argc > 3 ? argv[3] : "";
  const auto runs = [&only](const char* what) { return only.empty() || only == what; };
  for (const DType dtype : {DType::kU8, DType::kF8E4M3, DType::kF8E5M2}) {
    if (!runs("bytes")) continue;
    right = bench.Run(dtype, kNormal) && right;
    for (const DataRow& data : {kOthers[1], kOthers[2], kOthers[3]}) right = bench.Run(dtype, data) && right;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF8E4M3, DType::kU8}) {
    if (runs("bits")) right = bench.RunFingerprints(dtype) && right;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32, DType::kI64, DType::kU8}) {
    if (runs("bits")) right = bench.RunComparisons(dtype) && right;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kU8}) {
    if (runs("parts")) right = bench.RunParts(dtype, kNormal, /*keyed=*/false) && right;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kU8}) {
    if (runs("keys")) right = bench.RunParts(dtype, kNormal, /*keyed=*/true) && right;
  }
  for (const DataRow& data : kOthers) {
    if (runs("keys")) right = bench.RunParts(DType::kF32, data, /*keyed=*/true) && right;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    if (runs("pairs")) right = bench.RunPairs(dtype, kNormal) && right;
  }
  for (const DataRow& data : kOthers) {
    if (runs("pairs")) right = bench.RunPairs(DType::kF32, data) && right;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    if (runs("slices")) right = bench.RunPairs(dtype, kNormal, kPairParts) && right;
  }
  if (runs("slices")) right = bench.RunMatrices(DType::kF32, kNormal) && right;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kF16, DType::kBF16}) {
    if (runs("whole")) right = bench.Run(dtype, kNormal) && right;
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    for (const DataRow& data : kOthers) {
      if (runs("others")) right = bench.Run(dtype, data) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
