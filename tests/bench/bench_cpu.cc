// The CPU engine against what it is measured by, in one process: how fast this machine's cores can read the same memory
// at all. Random data; runs of the things compared take turns, and ratios are medians over the turns.
//
//   bench_cpu            the goals, then every dtype with an op of each accumulator
//   bench_cpu --goals    the goals only
//   bench_cpu --describe all that `describe` asks for in one request, and sum, min, var alone, of f32 and f64: what
//                        bench_numpy.py compares NumPy with
//   bench_cpu --f8       the same of floats of 8 bits, and f16, to which they are widened
//   bench_cpu --fingerprint   fingerprints by dtype: what bench_fingerprint.py compares hashes with
//   bench_cpu --sizes    f32 sum by size, cached: what the threshold for the calling thread goes by
//
// Exits with 1 if an answer is wrong; a goal that was missed is only said, since the machine may be busy.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cpu/engine.h"
#include "kernels/engine/stopwatch.h"

namespace reduced {
namespace {

constexpr std::int64_t kBytes = 256 << 20;
constexpr int kTurns = 15;
constexpr int kTries = 3;

// ---- the roofline: reads everything, keeps almost nothing

// One reader for each width of vectors: `unroll` loads in flight, each line asked for `ahead` bytes before it is
// needed, into the L1 cache or (kLocality 2) the L2 cache.
#define REDUCED_READER(name, target, width)                                                                      \
  template <int kUnroll, int kAhead, int kLocality = 3>                                                          \
  target std::uint64_t name(const std::byte* data, std::int64_t bytes) {                                         \
    typedef std::uint64_t Vector __attribute__((vector_size(width), aligned(1), may_alias));                     \
    Vector seen[kUnroll] = {};                                                                                   \
    for (std::int64_t i = 0; i < bytes; i += kUnroll * width) {                                                  \
      _Pragma("GCC unroll 16") for (int k = 0; k < kUnroll; ++k) {                                               \
        if (kAhead != 0 && k * width % 64 == 0) __builtin_prefetch(data + i + k * width + kAhead, 0, kLocality); \
        seen[k] ^= *reinterpret_cast<const Vector*>(data + i + k * width);                                       \
      }                                                                                                          \
    }                                                                                                            \
    std::uint64_t all = 0;                                                                                       \
    for (int k = 0; k < kUnroll; ++k) {                                                                          \
      for (int lane = 0; lane < width / 8; ++lane) all ^= seen[k][lane];                                         \
    }                                                                                                            \
    return all;                                                                                                  \
  }

REDUCED_READER(Read16, , 16)
#ifdef __x86_64__
REDUCED_READER(Read32, __attribute__((target("avx2"))), 32)
REDUCED_READER(Read64, __attribute__((target("avx512f"))), 64)
#endif

using Reader = std::uint64_t (*)(const std::byte*, std::int64_t);

// Wider loads aren't always the faster ones: what can outrun the hardware's prefetching, may.
std::vector<Reader> Readers() {
  std::vector<Reader> readers = {Read16<1, 0>, Read16<8, 0>, Read16<8, 1024>};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) {
    for (const Reader reader :
         {Read32<1, 0>, Read32<4, 0>, Read32<8, 0>, Read32<8, 512>, Read32<8, 4096>, Read32<8, 5120, 2>}) {
      readers.push_back(reader);
    }
  }
  if (__builtin_cpu_supports("avx512f")) {
    for (const Reader reader :
         {Read64<1, 0>, Read64<4, 0>, Read64<8, 0>, Read64<8, 512>, Read64<8, 4096>, Read64<8, 5120, 2>}) {
      readers.push_back(reader);
    }
  }
#endif
  return readers;
}

// Microseconds that `threads` threads take to read the array, a piece of `piece` bytes at a time.
double ReadMicros(Reader reader, std::int64_t piece, int threads, const std::byte* data) {
  std::atomic<std::int64_t> next = 0;
  std::atomic<std::uint64_t> sink = 0;
  const auto work = [&] {
    std::uint64_t seen = 0;
    for (std::int64_t at; (at = next.fetch_add(piece)) < kBytes;)
      seen ^= reader(data + at, std::min(piece, kBytes - at));
    sink ^= seen;  // keeps the loads
  };
  std::vector<std::thread> others;
  const Stopwatch stopwatch;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return stopwatch.micros();
}

// The fastest ways to read, found by trying all.
class Roofline {
 public:
  Roofline(int threads, const std::byte* data) : threads_(threads), data_(data) {
    std::vector<std::pair<double, Way>> tried;
    for (const Reader reader : Readers()) {
      for (const std::int64_t piece : {std::int64_t{256} << 10, std::int64_t{4} << 20}) {
        double best = 1e300;
        for (int i = 0; i < 7; ++i) best = std::min(best, ReadMicros(reader, piece, threads, data));
        tried.push_back({best, {reader, piece}});
      }
    }
    std::sort(tried.begin(), tried.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (int i = 0; i < kTries; ++i) best_.push_back(tried[i].second);
  }

  // Of one turn: the best of kTries tries, each by another of the best ways.
  double Micros() const {
    double best = 1e300;
    for (const Way& way : best_) best = std::min(best, ReadMicros(way.reader, way.piece, threads_, data_));
    return best;
  }

 private:
  struct Way {
    Reader reader;
    std::int64_t piece;
  };
  int threads_;
  const std::byte* data_;
  std::vector<Way> best_;
};

// ---- data: bits at random; of floats, values in [-1, 1)

std::uint64_t Mix(std::uint64_t z) {  // splitmix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

template <class T>
T RandomElement(std::uint64_t bits) {
  const double unit = static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-63;
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<std::uint8_t>(bits & 1)};
  } else if constexpr (std::is_same_v<T, Half>) {  // the fraction and the lower exponents at random
    return Half{static_cast<std::uint16_t>(bits & 0xbbff)};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return FromDouble<BFloat16>(unit);
  } else if constexpr (kIsF8<T>) {
    return FromDouble<T>(FloatFormat<T>::kSigned ? unit : std::fabs(unit) + 0x1p-9);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(unit);
  } else {
    return static_cast<T>(bits);
  }
}

void Fill(DType dtype, std::byte* data) {
  VisitDType(dtype, [data]<class T>(std::type_identity<T>) {
    for (std::int64_t i = 0; i < kBytes / static_cast<std::int64_t>(sizeof(T)); ++i) {
      const T x = RandomElement<T>(Mix(static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U));
      std::memcpy(data + i * sizeof(T), &x, sizeof(T));
    }
  });
}

// ---- the engine

Job JobOf(DType dtype, std::int64_t bytes, std::vector<OpCall> ops, const std::byte* data) {
  return {.spec = {.dtype = dtype, .count = bytes / RowOf(dtype).bytes, .ops = std::move(ops)}, .array = {data}};
}

Answer Run(Engine& engine, const Job& job) {
  absl::Notification done;
  Answer answer;
  engine.Reduce(job, [&](absl::StatusOr<Answer> result) {
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
      std::exit(1);
    }
    answer = *std::move(result);
    done.Notify();
  });
  done.WaitForNotification();
  return answer;
}

// Of one turn: the best of kTries tries, as the roofline's.
double RunMicros(Engine& engine, const Job& job) {
  double best = 1e300;
  for (int i = 0; i < kTries; ++i) {
    const Stopwatch stopwatch;
    Run(engine, job);
    best = std::min(best, stopwatch.micros());
  }
  return best;
}

// ---- measuring

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Comparison {
  double micros = 0;
  double ratio = 0;  // of the baseline's time to it
};

Comparison Compare(const std::function<double()>& baseline, const std::function<double()>& measured, int turns) {
  std::vector<double> micros;
  std::vector<double> ratios;
  for (int turn = 0; turn < turns; ++turn) {
    const double baseline_micros = baseline();
    micros.push_back(measured());
    ratios.push_back(baseline_micros / micros.back());
  }
  return {Median(micros), Median(ratios)};
}

double GigabytesPerSecond(double micros) { return kBytes / (micros * 1e3); }

const char* Verdict(bool met) { return met ? "met" : "MISSED"; }

bool CheckFloats(Engine& engine, const std::byte* data) {
  const Job job = JobOf(DType::kF32, kBytes, {Op::kSum, Op::kMin, Op::kMax, Op::kMean, Op::kVar, Op::kNanCount}, data);
  const std::int64_t n = job.spec.count;
  const auto* const x = reinterpret_cast<const float*>(data);
  long double sum = 0;
  long double squares = 0;
  long double magnitudes = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += x[i];
    magnitudes += std::fabs(x[i]);
    squares += static_cast<long double>(x[i]) * x[i];
  }
  const absl::StatusOr<std::vector<Value>> values = Finalize(job.spec, Run(engine, job).state);
  if (!values.ok()) return false;
  const auto is = [&](int i, long double expected, long double tolerance) {
    return std::fabs(std::get<double>((*values)[i].value) - expected) <= tolerance;
  };
  const long double mean = sum / n;
  return is(0, sum, magnitudes * 1e-12L) && is(1, *std::min_element(x, x + n), 0) &&
         is(2, *std::max_element(x, x + n), 0) && is(3, mean, magnitudes * 1e-12L / n) &&
         is(4, squares / n - mean * mean, 1e-9L) && std::get<std::uint64_t>((*values)[5].value) == 0;
}

void Goals(Engine& engine, const Roofline& roofline, const std::byte* data) {
  const Job sum = JobOf(DType::kF32, kBytes, {Op::kSum}, data);
  const Comparison plain = Compare([&] { return roofline.Micros(); }, [&] { return RunMicros(engine, sum); }, kTurns);
  std::printf("f32 sum, 256 MiB: %.1f GB/s, %.2f of the best read; goal 0.90: %s\n", GigabytesPerSecond(plain.micros),
              plain.ratio, Verdict(plain.ratio >= 0.9));

  const Job fused =
      JobOf(DType::kF32, kBytes, {Op::kSum, Op::kMin, Op::kMax, Op::kMean, Op::kVar, Op::kNanCount}, data);
  const Comparison six =
      Compare([&] { return RunMicros(engine, sum); }, [&] { return RunMicros(engine, fused); }, kTurns);
  std::printf("f32 sum,min,max,mean,var,nan_count, 256 MiB: %.1f GB/s, %.2f times sum alone; goal 1.50: %s\n",
              GigabytesPerSecond(six.micros), 1 / six.ratio, Verdict(1 / six.ratio <= 1.5));

  const Job small = JobOf(DType::kF32, 1024, {Op::kSum}, data);
  std::vector<double> small_micros;
  constexpr int kCalls = 1000;
  for (int turn = 0; turn < 101; ++turn) {
    const Stopwatch stopwatch;
    for (int call = 0; call < kCalls; ++call) engine.Reduce(small, [](absl::StatusOr<Answer>) {});
    small_micros.push_back(stopwatch.micros() / kCalls);
  }
  std::printf("f32 sum, 1 KiB, Engine::Reduce on the calling thread: %.3f us; goal 1: %s\n", Median(small_micros),
              Verdict(Median(small_micros) < 1));
}

// What one wants to know of data at first sight.
const std::vector<OpCall> kDescribe = {Op::kNanCount, Op::kMin,  Op::kMax, Op::kArgmin, Op::kArgmax,
                                       Op::kSum,      Op::kMean, Op::kVar, Op::kL2};

void Describe(Engine& engine, const Roofline& roofline, const std::vector<DType>& dtypes, std::byte* data) {
  for (const DType dtype : dtypes) {
    Fill(dtype, data);
    const auto row = [&](const char* name, const std::vector<OpCall>& ops) {
      const Job job = JobOf(dtype, kBytes, ops, data);
      const Comparison got = Compare([&] { return roofline.Micros(); }, [&] { return RunMicros(engine, job); }, kTurns);
      std::printf("%s %-8s %6.1f GB/s, %.2f of the best read%s\n", RowOf(dtype).name.data(), name,
                  GigabytesPerSecond(got.micros), got.ratio,
                  ops.size() == 1    ? ""
                  : got.ratio >= 0.8 ? "; goal 0.80: met"
                                     : "; goal 0.80: MISSED");
    };
    row("describe", kDescribe);
    row("sum", {Op::kSum});
    row("min", {Op::kMin});
    row("var", {Op::kVar});
  }
}

void Fingerprints(Engine& engine, const Roofline& roofline, std::byte* data) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8}) {
    Fill(dtype, data);
    const Job job = JobOf(dtype, kBytes, {Op::kFingerprint}, data);
    const Comparison got = Compare([&] { return roofline.Micros(); }, [&] { return RunMicros(engine, job); }, kTurns);
    std::printf("%-4s fingerprint %6.1f GB/s, %.2f of the best read%s\n", RowOf(dtype).name.data(),
                GigabytesPerSecond(got.micros), got.ratio,
                dtype != DType::kF32 ? ""
                : got.ratio >= 0.6   ? "; goal 0.60: met"
                                     : "; goal 0.60: MISSED");
  }
}

// Of each accumulator, the op that names its column.
constexpr Op kColumns[] = {Op::kSum,  Op::kL1,  Op::kSumSquares,   Op::kVar,
                           Op::kProd, Op::kMin, Op::kCountNonzero, Op::kBitXor};

void Table(Engine& engine, const Roofline& roofline, std::byte* data) {
  std::printf("\nGB/s (part of the best read), 256 MiB\n%-6s", "");
  for (const Op op : kColumns) std::printf(" %14s", RowOf(op).name.data());
  std::printf("\n");
  for (const DTypeRow& row : kDTypes) {
    Fill(row.dtype, data);
    std::printf("%-6s", row.name.data());
    for (const Op op : kColumns) {
      if (!Supports(op, row.dtype)) {
        std::printf(" %14s", "-");
        continue;
      }
      const Job job = JobOf(row.dtype, kBytes, {op}, data);
      const Comparison got = Compare([&] { return roofline.Micros(); }, [&] { return RunMicros(engine, job); }, 5);
      std::printf("    %5.1f (%.2f)", GigabytesPerSecond(got.micros), got.ratio);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

void Sizes(Engine& engine, const std::byte* data) {
  std::printf("f32 sum by size, cached: us, GB/s; on a lane where queue_us is there\n");
  for (std::int64_t bytes = 1024; bytes <= 16 << 20; bytes *= 2) {
    const Job job = JobOf(DType::kF32, bytes, {Op::kSum}, data);
    std::vector<double> micros;
    bool queued = false;
    for (int i = 0; i < 401; ++i) {
      const Stopwatch stopwatch;
      queued = Run(engine, job).timing.queue_us.has_value();
      micros.push_back(stopwatch.micros());
    }
    const double median = Median(micros);
    std::printf("%9lld B %10.2f us %7.1f GB/s%s\n", static_cast<long long>(bytes), median,
                static_cast<double>(bytes) / (median * 1e3), queued ? "  lane" : "");
  }
}

int Main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  // The same pages for the engine and for what it is measured by: as they come, not huge ones.
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto* const data = static_cast<std::byte*>(memory);
  Fill(DType::kF32, data);

  const Stopwatch start;
  const std::unique_ptr<Engine> engine = MakeCpuEngine(EngineOptions());
  const double start_ms = start.micros() / 1e3;
  const DeviceInfo info = engine->info();
  const Calibration calibration = engine->calibration();
  std::printf("%s, %d threads, %s; started in %.0f ms, calibrated: %.2f us + %.1f GB/s\n", info.model.c_str(),
              info.parallel_units, info.details.c_str(), start_ms, calibration.fixed_us, calibration.host_gb_per_s);
  if (mode == "--sizes") {
    Sizes(*engine, data);
    return 0;
  }
  if (!CheckFloats(*engine, data)) {
    std::fprintf(stderr, "the answers for f32 are wrong\n");
    return 1;
  }
  const Roofline roofline(info.parallel_units, data);
  std::vector<double> reads;
  for (int turn = 0; turn < kTurns; ++turn) reads.push_back(roofline.Micros());
  std::printf("best read: %.1f GB/s\n", GigabytesPerSecond(Median(reads)));
  if (mode == "--describe") {
    Describe(*engine, roofline, {DType::kF32, DType::kF64}, data);
    return 0;
  }
  if (mode == "--f8") {
    Describe(*engine, roofline, {DType::kF16, DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0}, data);
    return 0;
  }
  if (mode == "--fingerprint") {
    Fingerprints(*engine, roofline, data);
    return 0;
  }
  Goals(*engine, roofline, data);
  if (mode != "--goals") Table(*engine, roofline, data);
  return 0;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
