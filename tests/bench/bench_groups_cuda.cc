// Segments, keys and masks of an array in the memory of a GPU: GB/s of the array, from the call to its answers in host
// memory, and the time of the kernels alone. What lies beside the array is in the same memory, or in host memory.
//
// usage: bench_groups_cuda [MIB [REPEATS [JSON]]]    JSON: a file for all cells, for bench_groups_peers.py
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "kernels/algebra/layout.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/stopwatch.h"
#include "nlohmann/json.hpp"
#include "tests/bench/device_read.h"

namespace reduced {
namespace {

// What a question has beside the array, in host memory.
struct Case {
  std::string name;
  std::vector<std::int64_t> offsets{};
  std::vector<std::int32_t> keys{};
  std::int64_t groups = 0;
  std::vector<std::uint8_t> mask{};
  bool mask_bits = false;
};

std::vector<Case> Cases(std::int64_t elements) {
  std::mt19937_64 random(1);
  const auto below = [&random](std::int64_t end) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(random() >> 32) * static_cast<std::uint64_t>(end) >>
                                     32);
  };
  std::vector<Case> cases;
  for (const std::int64_t size : {16, 256, 65'536}) {
    cases.push_back({.name = absl::StrFormat("%d a segment", size)});
    for (std::int64_t at = 0; at <= elements; at += size) cases.back().offsets.push_back(at);
  }
  cases.push_back({.name = "power law", .offsets = {0}});
  for (std::int64_t at = 0; at < elements;) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    at = std::min(elements, at + 1 + static_cast<std::int64_t>(4 * (std::pow(1 - uniform, -1 / 1.2) - 1)));
    cases.back().offsets.push_back(at);
  }
  cases.push_back({.name = "half in one"});
  for (std::int64_t at = 0; at < elements / 2; at += 64) cases.back().offsets.push_back(at);
  cases.back().offsets.push_back(elements);
  for (const std::int64_t groups : {16, 4096, 1 << 14, 1 << 20, 10 << 20}) {
    cases.push_back({.name = absl::StrFormat("keys < %d", groups), .groups = groups});
    for (std::int64_t i = 0; i < elements; ++i) cases.back().keys.push_back(static_cast<std::int32_t>(below(groups)));
  }
  // Keys that are to be found: neighbours, and all over the range of i32.
  cases.push_back({.name = "keys < 4096, found"});
  for (std::int64_t i = 0; i < elements; ++i) cases.back().keys.push_back(static_cast<std::int32_t>(below(4096)));
  cases.push_back({.name = "1 Mi keys, found"});
  for (std::int64_t i = 0; i < elements; ++i) {
    cases.back().keys.push_back(static_cast<std::int32_t>(below(1 << 20) * 4093 + INT32_MIN));
  }
  for (const int percent : {50, 99}) {
    cases.push_back({.name = absl::StrFormat("where, %d%%", percent)});
    for (std::int64_t i = 0; i < elements; ++i) cases.back().mask.push_back(below(100) < percent ? 1 : 0);
  }
  cases.push_back({.name = "where, 50%, bits", .mask_bits = true});
  for (std::int64_t i = 0; i < elements; i += 8) cases.back().mask.push_back(static_cast<std::uint8_t>(below(256)));
  return cases;
}

template <class T>
SideArray SideOf(DType dtype, const std::vector<T>& values) {
  return {dtype, static_cast<std::int64_t>(values.size()), {values.data()}};
}

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "bench_groups_cuda: %s\n", status.ToString().c_str());
  std::exit(1);
}

class Bench {
 public:
  Bench(Engine& engine, std::int64_t bytes, int repeats) : engine_(engine), bytes_(bytes), repeats_(repeats) {}

  std::unique_ptr<ArrayMemory> Put(const void* data, std::int64_t bytes) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine_.Allocate(bytes);
    if (!memory.ok()) Fail(memory.status());
    if (const absl::Status status = (*memory)->Write(0, data, bytes); !status.ok()) Fail(status);
    return *std::move(memory);
  }

  // The best of several calls: microseconds to the answers, and of the kernels.
  std::pair<double, double> Run(Job job, const Partition& partition) {
    job.partition = partition;
    double best_us = std::numeric_limits<double>::infinity();
    double kernel_us = 0;
    for (int i = 0; i <= repeats_; ++i) {
      std::vector<std::vector<std::byte>>& answers = answers_;
      job.place = [&](std::int64_t outputs, std::int64_t, const std::byte*) {
        answers.resize(job.spec.ops.size());
        std::vector<std::byte*> places;
        for (std::vector<std::byte>& each : answers) {
          each.resize(static_cast<std::size_t>(8 * outputs));
          places.push_back(each.data());
        }
        return places;
      };
      absl::Notification done;
      absl::StatusOr<Answer> answer = absl::InternalError("no answer");
      const Stopwatch stopwatch;
      engine_.Reduce(job, [&](absl::StatusOr<Answer> result) {
        answer = std::move(result);
        done.Notify();
      });
      done.WaitForNotification();
      const double us = stopwatch.micros();
      if (!answer.ok()) Fail(answer.status());
      if (i == 0 || us >= best_us) continue;  // the first call brings memory in
      best_us = us;
      kernel_us = answer->timing.kernel_us.value_or(0);
    }
    std::printf(" %7.1f %9.0f %9.0f |", static_cast<double>(bytes_) / best_us / 1e3, best_us, kernel_us);
    std::fflush(stdout);
    return {best_us, kernel_us};
  }

 private:
  Engine& engine_;
  const std::int64_t bytes_;
  const int repeats_;
  std::vector<std::vector<std::byte>> answers_;
};

int Main(int argc, char** argv) {
  const std::int64_t mib = argc > 1 ? std::atoi(argv[1]) : 256;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  EngineOptions options;
  options.cuda_devices = {0};
  absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
  if (!engines.ok()) Fail(engines.status());
  const absl::StatusOr<Engine*> engine = (*engines)->Get(EngineKind::kCuda);
  if (!engine.ok()) Fail(engine.status());
  const std::int64_t bytes = mib << 20;
  const std::int64_t elements = bytes / 4;
  std::vector<float> floats(static_cast<std::size_t>(elements));
  std::vector<std::int32_t> integers(floats.size());
  std::mt19937 random(2);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    integers[i] = static_cast<std::int32_t>(random());
    floats[i] = static_cast<float>(integers[i]) * 0x1p-31F;
  }
  Bench bench(**engine, bytes, repeats);
  const std::unique_ptr<ArrayMemory> f32 = bench.Put(floats.data(), bytes);
  const std::unique_ptr<ArrayMemory> i32 = bench.Put(integers.data(), bytes);
  const absl::StatusOr<double> read_us = MicrosOfRead(f32->array().data, bytes);
  if (!read_us.ok()) Fail(read_us.status());
  const double read_rate = static_cast<double>(bytes) / *read_us / 1e3;
  std::printf(
      "%s; %d MiB, a plain read at %.0f GB/s; GB/s of the array, us of the call, us of its kernels, the best of %d\n",
      (*engine)->info().model.c_str(), static_cast<int>(mib), read_rate, repeats);
  nlohmann::json json = {{"device", (*engine)->info().model}, {"mib", mib}, {"read_gb_per_s", read_rate}};
  std::printf("%-20s %-6s| %-27s | %-27s | %-27s | %-27s | %-27s | %-27s |\n", "", "beside", "f32 sum", "f32 argmax",
              "f32 mean, max", "i32 sum", "f32 var", "i32 var");
  for (const Case& each : Cases(elements)) {
    Partition partition{.layout = LayoutOf(std::vector<std::int64_t>{elements}, {true}), .rows = elements};
    if (!each.offsets.empty()) partition.segments = Segments{SideOf(DType::kI64, each.offsets)};
    if (!each.keys.empty()) partition.keys = Keys{SideOf(DType::kI32, each.keys), each.groups};
    if (!each.mask.empty()) {
      partition.mask = Mask{SideOf(each.mask_bits ? DType::kU8 : DType::kBool, each.mask), each.mask_bits};
    }
    std::unique_ptr<ArrayMemory> beside;
    for (const char* const where : {"host", "gpu"}) {
      if (*where == 'g') {
        SideArray& side = partition.segments.has_value() ? partition.segments->bounds
                          : partition.keys.has_value()   ? partition.keys->keys
                                                         : partition.mask->array;
        beside = bench.Put(side.array.data, side.bytes());
        side.array = beside->array();
      }
      std::printf("%-20s %-6s|", each.name.c_str(), where);
      const auto run = [&](const ArrayMemory& array, DType dtype, std::vector<OpCall> ops) {
        ReduceSpec spec{.dtype = dtype, .count = elements, .ops = std::move(ops), .engine = EngineKind::kCuda};
        spec.precision = Precision::kExact;
        spec.empty_policy = EmptyPolicy::kFill;
        const auto [us, kernel_us] = bench.Run({.spec = spec, .array = array.array()}, partition);
        std::vector<std::string> names;
        for (const Op op : spec.ops) names.emplace_back(RowOf(op).name);
        json["cells"].push_back({{"name", each.name},
                                 {"beside", where},
                                 {"dtype", RowOf(dtype).name},
                                 {"ops", names},
                                 {"us", us},
                                 {"kernel_us", kernel_us}});
      };
      run(*f32, DType::kF32, {Op::kSum});
      run(*f32, DType::kF32, {Op::kArgmax});
      run(*f32, DType::kF32, {Op::kMean, Op::kMax});
      run(*i32, DType::kI32, {Op::kSum});
      run(*f32, DType::kF32, {Op::kVar});
      run(*i32, DType::kI32, {Op::kVar});
      std::printf("\n");
    }
  }
  if (argc > 3) std::ofstream(argv[3]) << json.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
