// Reductions along axes on a GPU, of a resident array: GB/s of the bytes that must be read and written, from the time
// of the kernels, by class of layout. SHARE is of the rate at which the same memory is only read, measured in the same
// run. The worst come first.
//
// usage: bench_layouts [--mib=1024] [--runs=4] [--dtype=NAME] [--ops=NAME,...] [--json=FILE]
//   --mib    of the array
//   --dtype  only that one, in all layouts; else f32 in all, others in a few
//   --ops    each of these by itself, of the dtypes that have it; else some ops
//   --json   all cells, for bench_layouts.py
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cuda/engine.h"
#include "kernels/engine/engines.h"
#include "nlohmann/json.hpp"
#include "tests/bench/device_read.h"

namespace reduced {
namespace {

template <class T>
T Check(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "bench_layouts: %s\n", value.status().ToString().c_str());
  std::exit(2);
}

// A shape, with one dimension of -1 that the size of the array gives, and the axes that are reduced.
struct Shape {
  std::string name;
  std::vector<std::int64_t> dimensions;
  std::vector<int> axes;
  bool few;  // measured for every dtype
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const std::int64_t k : {3, 4, 5, 16, 31, 32, 33, 64, 100, 128, 256, 1000, 1024, 4096, 65536}) {
    shapes.push_back({absl::StrCat("rows of ", k), {-1, k}, {1}, k == 16 || k == 100 || k == 1024});
  }
  for (const std::int64_t k : {2, 3, 5, 16, 31, 64, 100, 128, 1000, 1024, 4096, 65536}) {
    shapes.push_back({absl::StrCat("columns, ", k), {-1, k}, {0}, k == 3 || k == 64 || k == 1024});
  }
  shapes.push_back({"middle, 256 x n x 256", {256, -1, 256}, {1}, true});
  shapes.push_back({"middle, n x 4 x 64", {-1, 4, 64}, {1}, false});
  shapes.push_back({"middle, n x 31 x 100", {-1, 31, 100}, {1}, false});
  shapes.push_back({"two, 256 x n x 256", {256, -1, 256}, {0, 2}, true});
  shapes.push_back({"two, 64 x 64 x n", {64, 64, -1}, {0, 1}, false});
  shapes.push_back({"two, 16 x n x 64 x 32", {16, -1, 64, 32}, {0, 2}, false});
  return shapes;
}

struct Question {
  std::string name;
  std::vector<OpCall> ops;
};
// Of the ops that are named, or of some.
std::vector<Question> Questions(const std::string& names) {
  if (names.empty()) {
    return {{"sum", {Op::kSum}},
            {"argmax", {Op::kArgmax}},
            {"var", {Op::kVar}},
            {"describe", {Op::kNanCount, Op::kMin, Op::kMax, Op::kMean, Op::kStd, Op::kArgmin, Op::kArgmax}}};
  }
  std::vector<Question> questions;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(names, ','))) {
    const std::optional<Op> op = OpFromName(name);
    if (!op.has_value()) {
      std::fprintf(stderr, "bench_layouts: --ops: got %s; allowed: names of ops\n", name.c_str());
      std::exit(2);
    }
    questions.push_back({name, {*op}});
  }
  return questions;
}

// Floats in [-1, 1), integers of random bits: a few MiB, again and again.
void Fill(ArrayMemory& memory, DType dtype, std::int64_t bytes) {
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    std::mt19937_64 random(1);
    std::vector<T> period((std::size_t{4} << 20) / sizeof(T) + 8192 / sizeof(T));
    for (T& x : period) {
      const std::uint64_t bits = random();
      if constexpr (kIsFloat<T>) {
        x = FromDouble<T>(static_cast<double>(bits >> 11) * 0x1p-52 - 1);
      } else if constexpr (std::is_same_v<T, Bool>) {
        x.byte = static_cast<std::uint8_t>(bits & 1);
      } else {
        x = static_cast<T>(bits);
      }
    }
    const auto period_bytes = static_cast<std::int64_t>(period.size() * sizeof(T));
    for (std::int64_t at = 0; at < bytes; at += period_bytes) {
      const absl::Status status = memory.Write(at, period.data(), std::min(period_bytes, bytes - at));
      if (!status.ok()) Check(absl::StatusOr<int>(status));
    }
  });
}

struct Cell {
  std::string dtype, op;
  Shape shape;
  double micros = 0;
  double gb_per_s = 0;
  double share = 0;
};

// Microseconds of the kernels, at best.
double Time(Engine& engine, const Job& job, int runs) {
  double best = std::numeric_limits<double>::max();
  for (int run = 0; run <= runs; ++run) {
    absl::Notification done;
    engine.Reduce(job, [&](absl::StatusOr<Answer> result) {
      const double micros = *Check(std::move(result)).timing.kernel_us;
      if (run > 0) best = std::min(best, micros);  // the first warms up
      done.Notify();
    });
    done.WaitForNotification();
  }
  return best;
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"mib", "1024"}, {"runs", "4"}, {"dtype", ""}, {"ops", ""}, {"json", ""}};
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> flag = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto at = flag.first.rfind("--", 0) == 0 ? flags.find(flag.first.substr(2)) : flags.end();
    if (at == flags.end()) {
      std::fprintf(stderr, "bench_layouts: got %s; allowed: the flags at the top of bench_layouts.cc\n", argv[i]);
      return 2;
    }
    at->second = flag.second;
  }
  int mib = 0, runs = 0;
  if (!absl::SimpleAtoi(flags["mib"], &mib) || !absl::SimpleAtoi(flags["runs"], &runs) || mib < 1 || runs < 1) {
    std::fprintf(stderr, "bench_layouts: --mib, --runs: allowed: whole numbers from 1\n");
    return 2;
  }
  const std::vector<Question> questions = Questions(flags["ops"]);
  const std::int64_t bytes = std::int64_t{mib} << 20;
  EngineOptions options;
  options.cuda_array_bytes = 32 * bytes;  // with results, which may be more than the array
  const std::unique_ptr<Engine> engine = Check(MakeCudaEngine(options, 0));

  double read_rate = 0;
  std::vector<Cell> cells;
  std::vector<std::byte> room(1);
  for (const DTypeRow& dtype : kDTypes) {
    const bool all = flags["dtype"].empty() ? dtype.dtype == DType::kF32 : flags["dtype"] == dtype.name;
    const bool some = flags["dtype"].empty() &&
                      (dtype.dtype == DType::kF64 || dtype.dtype == DType::kF16 || dtype.dtype == DType::kBF16 ||
                       dtype.dtype == DType::kI8 || dtype.dtype == DType::kI32);
    if (!all && !some) continue;
    const std::unique_ptr<ArrayMemory> memory = Check(engine->Allocate(bytes));
    Fill(*memory, dtype.dtype, bytes);
    if (read_rate == 0) read_rate = static_cast<double>(bytes) / Check(MicrosOfRead(memory->array().data, bytes)) / 1e3;
    for (Shape shape : Shapes()) {
      if (!all && !shape.few) continue;
      std::int64_t known = 1;
      for (const std::int64_t size : shape.dimensions) known *= size < 0 ? 1 : size;
      std::replace(shape.dimensions.begin(), shape.dimensions.end(), std::int64_t{-1}, bytes / dtype.bytes / known);
      std::vector<bool> reduced(shape.dimensions.size());
      for (const int axis : shape.axes) reduced[static_cast<std::size_t>(axis)] = true;
      const Layout layout = LayoutOf(shape.dimensions, reduced);
      for (const Question& question : questions) {
        if (!Supports(question.ops[0], dtype.dtype)) continue;
        Job job{.spec = {.dtype = dtype.dtype,
                         .count = layout.outputs * layout.elements,
                         .ops = question.ops,
                         .overflow_policy = OverflowPolicy::kWrap,
                         .precision = Precision::kExact},
                .array = memory->array(),
                .partition = Partition{.layout = layout}};
        std::int64_t result_bytes = 0;
        for (const Op op : question.ops) result_bytes += layout.outputs * RowOf(ResultDType(op, dtype.dtype)).bytes;
        if (static_cast<std::int64_t>(room.size()) < result_bytes) room.resize(static_cast<std::size_t>(result_bytes));
        std::byte* at = room.data();
        std::vector<std::byte*> answers;
        for (const Op op : question.ops) {
          answers.push_back(at);
          at += layout.outputs * RowOf(ResultDType(op, dtype.dtype)).bytes;
        }
        job.place = [&](std::int64_t, std::int64_t, const std::byte*) { return answers; };
        const std::int64_t moved = job.spec.count * dtype.bytes + result_bytes;
        const double micros = Time(*engine, job, runs);
        const double rate = static_cast<double>(moved) / micros / 1e3;
        cells.push_back({std::string(dtype.name), question.name, shape, micros, rate, rate / read_rate});
      }
    }
  }

  nlohmann::json json = {{"device", engine->info().model}, {"mib", mib}, {"read_gb_per_s", read_rate}};
  for (const Cell& cell : cells) {
    json["cells"].push_back({{"dtype", cell.dtype},
                             {"op", cell.op},
                             {"name", cell.shape.name},
                             {"shape", cell.shape.dimensions},
                             {"axes", cell.shape.axes},
                             {"us", cell.micros},
                             {"gb_per_s", cell.gb_per_s},
                             {"share", cell.share}});
  }
  if (!flags["json"].empty()) std::ofstream(flags["json"]) << json.dump(1) << "\n";
  std::sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) { return a.share < b.share; });
  std::printf("%s, %d MiB, share of a plain read at %.0f GB/s\n", engine->info().model.c_str(), mib, read_rate);
  std::printf("%-6s %-9s %-24s %8s %6s\n", "dtype", "op", "the worst", "GB/s", "SHARE");
  for (const Cell& cell : cells) {
    std::printf("%-6s %-9s %-24s %8.0f %6.2f\n", cell.dtype.c_str(), cell.op.c_str(), cell.shape.name.c_str(),
                cell.gb_per_s, cell.share);
  }
  return 0;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
