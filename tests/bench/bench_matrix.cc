// The matrix of what a request can ask: ops alone and together, by dtype, NaN policy, precision and kind of data, each
// reduced by one engine from its own memory. SHARE is of the rate at which the same memory is only read, measured in
// the same run. The worst come first; whatever is below 1 and has no reason to be is work to do.
//
// usage: bench_matrix [--engine=cuda] [--mib=1024] [--runs=5] [--dtype=NAME] [--only=TEXT] [--worst=40] [--json=FILE]
//                     [--svg=FILE] [--compare=FILE]
//   --engine   cpu or cuda
//   --only     measures only the cells whose line contains the text, such as "exact describe of uniform"
//   --worst    prints so many cells; the JSON file has all
//   --svg      a heat map: op sets by dtype, NaN policy and precision
//   --compare  a JSON file of an earlier run: prints the cells whose share is more than 0.03 less; exits 1 if there are
//   any
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cpu/engine.h"
#include "kernels/engine/engines.h"
#include "nlohmann/json.hpp"
#ifdef REDUCED_HAVE_CUDA
#include "kernels/cuda/engine.h"
#include "tests/bench/device_read.h"
#endif

namespace reduced {
namespace {

template <class T>
T Check(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "bench_matrix: %s\n", value.status().ToString().c_str());
  std::exit(2);
}

// Kinds of data: an element as a double, from two random words.
struct Data {
  const char* name;
  bool floats_only;
  bool wide;  // beyond what f16 holds
  double (*element)(std::uint64_t a, std::uint64_t b);
};

double Unit(std::uint64_t a) { return std::ldexp(static_cast<double>(a >> 11), -53); }
double Normal(std::uint64_t a, std::uint64_t b) {
  return std::sqrt(-2 * std::log(1 - Unit(a))) * std::cos(6.283185307179586 * Unit(b));
}

constexpr Data kData[] = {
    {"uniform", false, false, [](std::uint64_t a, std::uint64_t) { return 2 * Unit(a) - 1; }},
    {"zeros", false, false, [](std::uint64_t, std::uint64_t) { return 0.0; }},
    {"half zeros", false, false, [](std::uint64_t a, std::uint64_t b) { return b % 2 == 0 ? 0 : 2 * Unit(a) - 1; }},
    {"constant", false, false, [](std::uint64_t, std::uint64_t) { return 0.5; }},
    {"1% NaN", true, false,
     [](std::uint64_t a, std::uint64_t b) {
       return b % 100 == 0 ? std::numeric_limits<double>::quiet_NaN() : 2 * Unit(a) - 1;
     }},
    {"lognormal, sigma 5", true, true, [](std::uint64_t a, std::uint64_t b) { return std::exp(5 * Normal(a, b)); }},
    {"one outlier in 512", true, false,
     [](std::uint64_t a, std::uint64_t b) { return (2 * Unit(a) - 1) * (b % 512 == 0 ? 0x1p12 : 1); }},
    {"60 binades", true, true,
     [](std::uint64_t a, std::uint64_t b) { return std::ldexp(1 + Unit(a), static_cast<int>(b % 60) - 30); }},
};

struct OpSet {
  std::string name;
  std::vector<OpCall> ops;
};

// Those that the dtype has.
std::vector<OpSet> OpSetsOf(DType dtype) {
  std::vector<OpSet> sets;
  std::vector<OpCall> all;
  for (const OpRow& row : kOps) {
    if (!Supports(row.op, dtype) || !HasAccumulator(row.op)) continue;
    sets.push_back({std::string(row.name), {row.op}});
    all.push_back(row.op);
  }
  sets.push_back({"sum,max", {Op::kSum, Op::kMax}});
  sets.push_back({"mean,std", {Op::kMean, Op::kStd}});
  sets.push_back({"describe", {Op::kNanCount, Op::kMin, Op::kMax, Op::kMean, Op::kStd, Op::kArgmin, Op::kArgmax}});
  sets.push_back({"all ops", std::move(all)});
  return sets;
}

// A few MiB, again and again: enough that no pattern helps, and soon made. Integers are random bits where the data is
// not of few values.
template <class T>
std::vector<T> MakePeriod(const Data& data) {
  std::mt19937_64 random(1);
  std::vector<T> period((std::size_t{4} << 20) / sizeof(T) + 8192 / sizeof(T));
  for (T& x : period) {
    const std::uint64_t a = random();
    const double value = data.element(a, random());
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>) {
      x = static_cast<T>(value);
    } else if constexpr (kIsFloat<T>) {
      x = FromDouble<T>(value);
    } else {
      const std::uint64_t bits = value == 0 ? 0 : value == 0.5 ? 1 : a;
      if constexpr (std::is_same_v<T, Bool>) {
        x.byte = static_cast<std::uint8_t>(bits & 1);
      } else {
        x = static_cast<T>(bits);
      }
    }
  }
  return period;
}

std::unique_ptr<ArrayMemory> MakeArray(Engine& engine, DType dtype, const Data& data, std::int64_t bytes) {
  std::unique_ptr<ArrayMemory> memory = Check(engine.Allocate(bytes));
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    const std::vector<T> period = MakePeriod<T>(data);
    const auto period_bytes = static_cast<std::int64_t>(period.size() * sizeof(T));
    for (std::int64_t at = 0; at < bytes; at += period_bytes) {
      const absl::Status status = memory->Write(at, period.data(), std::min(period_bytes, bytes - at));
      if (!status.ok()) Check(absl::StatusOr<int>(status));
    }
  });
  return memory;
}

// Microseconds of the kernels, at best.
double Time(Engine& engine, const ReduceSpec& spec, const ArrayRef& array, int runs) {
  double best = std::numeric_limits<double>::max();
  for (int run = 0; run <= runs; ++run) {
    absl::Notification done;
    engine.Reduce(Job{.spec = spec, .array = array}, [&](absl::StatusOr<Answer> result) {
      const double micros = *Check(std::move(result)).timing.kernel_us;
      if (run > 0) best = std::min(best, micros);  // the first warms up
      done.Notify();
    });
    done.WaitForNotification();
  }
  return best;
}

// GB/s at which that many bytes of the engine's memory are read: of a GPU by a kernel that does nothing else, of a CPU
// the best that the engine measures beside a few sums.
double ReadRate(Engine& engine, std::int64_t bytes) {
  const std::vector<float> array(static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
#ifdef REDUCED_HAVE_CUDA
  if (engine.kind() == EngineKind::kCuda) {
    const std::unique_ptr<ArrayMemory> memory = Check(engine.Allocate(bytes));
    if (const absl::Status status = memory->Write(0, array.data(), bytes); !status.ok()) {
      Check(absl::StatusOr<int>(status));
    }
    return static_cast<double>(bytes) / Check(MicrosOfRead(memory->array().data, bytes)) / 1e3;
  }
#endif
  const auto count = static_cast<std::int64_t>(array.size());
  const ReduceSpec spec{.dtype = DType::kF32, .count = count, .ops = {Op::kSum}};
  double rate = 0;
  absl::Notification done;
  engine.Measure(Job{.spec = spec, .array = {array.data()}}, 10, [&](absl::StatusOr<Measurement> measurement) {
    rate = *Check(std::move(measurement)).read_gb_per_s;
    done.Notify();
  });
  done.WaitForNotification();
  return rate;
}

struct Cell {
  std::string dtype{}, data{}, nan{}, precision{}, ops{};
  double gb_per_s = 0;
  double share = 0;

  std::string Row() const { return absl::StrCat(dtype, " ", nan, " ", precision); }
  std::string Key() const { return absl::StrCat(Row(), " ", ops, " of ", data); }
};

// A rectangle a cell of uniform data, from red at 0 to green at 1.
void DrawHeatMap(const std::vector<Cell>& cells, const std::string& title, const std::string& path) {
  std::vector<std::string> rows, columns;
  const auto place = [](std::vector<std::string>& names, const std::string& name) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at != names.end()) return at - names.begin();
    names.push_back(name);
    return static_cast<std::ptrdiff_t>(names.size()) - 1;
  };
  constexpr int kLeft = 170, kTop = 110, kWidth = 34, kHeight = 17;
  std::string body;
  for (const Cell& cell : cells) {
    if (cell.data != kData[0].name) continue;
    const auto x = kLeft + kWidth * place(columns, cell.ops);
    const auto y = kTop + kHeight * place(rows, cell.Row());
    const int hue = static_cast<int>(120 * std::clamp((cell.share - 0.3) / 0.7, 0.0, 1.0));
    absl::StrAppendFormat(&body,
                          "<rect x='%d' y='%d' width='%d' height='%d' fill='hsl(%d,65%%,65%%)'/>"
                          "<text x='%d' y='%d' text-anchor='middle'>%.2f</text>\n",
                          x, y, kWidth - 1, kHeight - 1, hue, x + kWidth / 2, y + 12, cell.share);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    absl::StrAppendFormat(&body, "<text x='%d' y='%d' text-anchor='end'>%s</text>\n", kLeft - 6,
                          kTop + kHeight * static_cast<int>(i) + 12, rows[i]);
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const int x = kLeft + kWidth * static_cast<int>(i) + kWidth / 2;
    absl::StrAppendFormat(&body, "<text x='%d' y='%d' transform='rotate(-60 %d %d)'>%s</text>\n", x, kTop - 6, x,
                          kTop - 6, columns[i]);
  }
  std::ofstream(path) << absl::StrFormat(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='10'>"
      "<rect width='100%%' height='100%%' fill='white'/><text x='8' y='18' font-size='13'>%s</text>\n%s</svg>\n",
      kLeft + kWidth * static_cast<int>(columns.size()) + 60, kTop + kHeight * static_cast<int>(rows.size()) + 10,
      title, body);
}

// Prints what got slower; how many cells did.
int Compare(const std::vector<Cell>& cells, const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json before = nlohmann::json::parse(file);
  std::map<std::string, double> shares;
  for (const auto& cell : before.at("cells")) shares[cell.at("key")] = cell.at("share");
  int slower = 0;
  for (const Cell& cell : cells) {
    const auto at = shares.find(cell.Key());
    if (at == shares.end() || cell.share > at->second - 0.03) continue;
    std::printf("slower: %-60s %.2f, was %.2f\n", cell.Key().c_str(), cell.share, at->second);
    ++slower;
  }
  std::printf("%d of %d cells are slower than in %s\n", slower, static_cast<int>(cells.size()), path.c_str());
  return slower;
}

std::unique_ptr<Engine> MakeEngine(const std::string& name, std::int64_t bytes) {
  EngineOptions options;
  options.cpu_array_bytes = bytes + (1 << 20);
  options.cuda_array_bytes = options.cpu_array_bytes;
  if (name == "cpu") return MakeCpuEngine(options);
#ifdef REDUCED_HAVE_CUDA
  if (name == "cuda") return Check(MakeCudaEngine(options, 0));
#endif
  std::fprintf(stderr, "bench_matrix: --engine: got %s; allowed: cpu, and cuda in a build with CUDA\n", name.c_str());
  std::exit(2);
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"engine", "cuda"}, {"mib", "1024"}, {"runs", "5"},
                                              {"dtype", ""},      {"only", ""},    {"worst", "40"},
                                              {"json", ""},       {"svg", ""},     {"compare", ""}};
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> flag = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto at = flag.first.rfind("--", 0) == 0 ? flags.find(flag.first.substr(2)) : flags.end();
    if (at == flags.end()) {
      std::fprintf(stderr, "bench_matrix: got %s; allowed: the flags at the top of bench_matrix.cc\n", argv[i]);
      return 2;
    }
    at->second = flag.second;
  }
  int mib = 0, runs = 0, worst = 0;
  if (!absl::SimpleAtoi(flags["mib"], &mib) || !absl::SimpleAtoi(flags["runs"], &runs) ||
      !absl::SimpleAtoi(flags["worst"], &worst) || mib < 1 || runs < 1) {
    std::fprintf(stderr, "bench_matrix: --mib, --runs, --worst: allowed: whole numbers from 1\n");
    return 2;
  }
  const std::int64_t bytes = std::int64_t{mib} << 20;
  const std::unique_ptr<Engine> engine = MakeEngine(flags["engine"], bytes);
  const double read_rate = ReadRate(*engine, bytes);
  const std::string title =
      absl::StrFormat("%s, %d MiB, share of a plain read at %.0f GB/s", engine->info().model, mib, read_rate);

  std::vector<Cell> cells;
  for (const DTypeRow& dtype : kDTypes) {
    if (!HasKernels(dtype.dtype) || (!flags["dtype"].empty() && flags["dtype"] != dtype.name)) continue;
    for (const Data& data : kData) {
      if ((data.floats_only && !dtype.is_float) || (data.wide && dtype.dtype == DType::kF16)) continue;
      std::unique_ptr<ArrayMemory> memory;  // made when it is needed
      for (const OpSet& set : OpSetsOf(dtype.dtype)) {
        // Of data that is not uniform, what could mind.
        const std::vector<OpCall>& ops = set.ops;
        const bool sums = ops.size() > 1 || ops[0] == Op::kSum || ops[0] == Op::kProd || ops[0] == Op::kMax;
        if (&data != &kData[0] && !sums) continue;
        for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
          for (const Precision precision : {Precision::kExact, Precision::kF64}) {
            if (!dtype.is_float && (nan != NanPolicy::kPropagate || precision != Precision::kExact)) continue;
            Cell cell{.dtype = std::string(dtype.name), .data = data.name, .ops = set.name};
            if (dtype.is_float) {
              cell.nan = nan == NanPolicy::kOmit ? "omit" : "propagate";
              cell.precision = precision == Precision::kExact ? "exact" : "f64";
            }
            if (!absl::StrContains(cell.Key(), flags["only"])) continue;
            const ReduceSpec spec{.dtype = dtype.dtype,
                                  .count = bytes / dtype.bytes,
                                  .ops = ops,
                                  .nan_policy = nan,
                                  .overflow_policy = OverflowPolicy::kWrap,
                                  .precision = precision};
            if (memory == nullptr) memory = MakeArray(*engine, dtype.dtype, data, bytes);
            cell.gb_per_s = static_cast<double>(bytes) / Time(*engine, spec, memory->array(), runs) / 1e3;
            cell.share = cell.gb_per_s / read_rate;
            cells.push_back(std::move(cell));
          }
        }
      }
    }
  }

  if (!flags["svg"].empty()) DrawHeatMap(cells, title, flags["svg"]);
  nlohmann::json all = {{"title", title}, {"read_gb_per_s", read_rate}, {"cells", nlohmann::json::array()}};
  for (const Cell& cell : cells) {
    all["cells"].push_back({{"key", cell.Key()}, {"gb_per_s", cell.gb_per_s}, {"share", cell.share}});
  }
  if (!flags["json"].empty()) std::ofstream(flags["json"]) << all.dump(1) << "\n";
  const int slower = flags["compare"].empty() ? 0 : Compare(cells, flags["compare"]);

  std::sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) { return a.share < b.share; });
  std::printf("%s\n%-60s %8s %6s\n", title.c_str(), "the worst", "GB/s", "SHARE");
  for (int i = 0; i < std::min(worst, static_cast<int>(cells.size())); ++i) {
    std::printf("%-60s %8.0f %6.2f\n", cells[i].Key().c_str(), cells[i].gb_per_s, cells[i].share);
  }
  return slower == 0 ? 0 : 1;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
