// Exact sums beside plain ones on the CPU engine: the same array in turns, and the ratio of their rates.
//
// usage: bench_exact [--mib=256] [--threads=0] [--runs=9]
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cpu/engine.h"
#include "kernels/engine/engines.h"

namespace reduced {
namespace {

using Generate = double (*)(std::mt19937_64&);

double Uniform(std::mt19937_64& random) { return std::ldexp(static_cast<double>(random() >> 11), -52) - 1; }
double Normal(std::mt19937_64& random) {
  thread_local std::normal_distribution<double> normal;
  return normal(random);
}
double Lognormal(std::mt19937_64& random) { return std::exp(5 * Normal(random)); }
double WithExponent(std::mt19937_64& random, int low, int high) {
  const double x = std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52),
                              static_cast<int>(random() % static_cast<unsigned>(high - low)) + low);
  return random() % 2 == 0 ? x : -x;
}
double SixtyBinades(std::mt19937_64& random) { return WithExponent(random, -30, 30); }
double AnyF32(std::mt19937_64& random) { return WithExponent(random, -126, 127); }
double AnyF64(std::mt19937_64& random) { return WithExponent(random, -1022, 1023); }

struct Case {
  DType dtype;
  const char* data;
  Generate generate;
  std::vector<OpCall> ops;
};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {DType::kF32, "uniform", Uniform, {Op::kSum, Op::kL1, Op::kL2, Op::kVar}},
      {DType::kF64, "uniform", Uniform, {Op::kSum, Op::kL1, Op::kL2, Op::kVar}},
      {DType::kF16, "uniform", Uniform, {Op::kSum, Op::kVar}},
      {DType::kBF16, "uniform", Uniform, {Op::kSum, Op::kVar}},
      {DType::kF32, "normal", Normal, {Op::kSum, Op::kVar}},
      {DType::kF64, "normal", Normal, {Op::kSum, Op::kVar}},
      {DType::kF32, "lognormal, sigma 5", Lognormal, {Op::kSum}},
      {DType::kF64, "lognormal, sigma 5", Lognormal, {Op::kSum}},
      {DType::kF32, "60 binades", SixtyBinades, {Op::kSum}},
      {DType::kF64, "60 binades", SixtyBinades, {Op::kSum}},
      {DType::kF32, "all exponents", AnyF32, {Op::kSum}},
      {DType::kF64, "all exponents", AnyF64, {Op::kSum}},
  };
  return *cases;
}

// A few MiB of random elements, again and again: enough that no pattern helps, and soon made.
std::vector<std::byte> MakeArray(const Case& of, std::int64_t bytes) {
  const std::int64_t period = std::min<std::int64_t>(bytes, (std::int64_t{4} << 20) + 8192);
  const std::int64_t width = RowOf(of.dtype).bytes;
  std::mt19937_64 random(1);
  std::vector<std::byte> array(static_cast<std::size_t>(bytes));
  for (std::int64_t i = 0; i < period / width; ++i) {
    const double x = of.generate(random);
    const auto narrow = static_cast<float>(x);
    const std::uint16_t half = FromDouble<BFloat16>(x).bits;
    // An f16 of about the same size: the range of these is small.
    const auto f16 = static_cast<std::uint16_t>((half & 0x8000) | (0x3000 + (half & 0xfff)));
    const void* const from = of.dtype == DType::kF64    ? static_cast<const void*>(&x)
                             : of.dtype == DType::kF32  ? static_cast<const void*>(&narrow)
                             : of.dtype == DType::kBF16 ? static_cast<const void*>(&half)
                                                        : static_cast<const void*>(&f16);
    std::memcpy(array.data() + i * width, from, static_cast<std::size_t>(width));
  }
  for (std::int64_t i = period; i < bytes; i += period) {
    std::memcpy(array.data() + i, array.data(), static_cast<std::size_t>(std::min(period, bytes - i)));
  }
  return array;
}

// Microseconds.
double Run(Engine& engine, const ReduceSpec& spec, const void* data) {
  double micros = 0;
  absl::Notification done;
  engine.Reduce(Job{.spec = spec, .array = {data}}, [&](absl::StatusOr<Answer> result) {
    if (!result.ok()) std::abort();
    micros = *result->timing.kernel_us;
    done.Notify();
  });
  done.WaitForNotification();
  return micros;
}

int Main(int argc, char** argv) {
  std::int64_t mib = 256;
  int threads = 0;
  int runs = 9;
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    const bool ok = (absl::ConsumePrefix(&text, "--mib=") && absl::SimpleAtoi(text, &mib)) ||
                    (absl::ConsumePrefix(&text, "--threads=") && absl::SimpleAtoi(text, &threads)) ||
                    (absl::ConsumePrefix(&text, "--runs=") && absl::SimpleAtoi(text, &runs));
    if (!ok || mib < 1 || runs < 1) {
      std::fprintf(stderr, "usage: bench_exact [--mib=256] [--threads=0] [--runs=9]\n");
      return 2;
    }
  }
  EngineOptions options;
  options.cpu_threads = threads;
  const std::unique_ptr<Engine> engine = MakeCpuEngine(options);
  std::printf("%s, %d threads, %s; %lld MiB, GB/s, the best of %d runs\n", engine->info().model.c_str(),
              engine->info().parallel_units, engine->info().details.c_str(), static_cast<long long>(mib), runs);
  std::printf("%-5s %-20s %-5s %8s %8s %6s\n", "", "", "", "plain", "exact", "ratio");
  for (const Case& each : Cases()) {
    const std::int64_t bytes = mib << 20;
    const std::vector<std::byte> array = MakeArray(each, bytes);
    for (const Op op : each.ops) {
      ReduceSpec plain{.dtype = each.dtype, .count = bytes / RowOf(each.dtype).bytes, .ops = {op}};
      ReduceSpec exact = plain;
      exact.precision = Precision::kExact;
      double best_plain = 1e12;
      double best_exact = 1e12;
      for (int run = 0; run < runs; ++run) {
        best_plain = std::min(best_plain, Run(*engine, plain, array.data()));
        best_exact = std::min(best_exact, Run(*engine, exact, array.data()));
      }
      const auto rate = [bytes](double micros) { return static_cast<double>(bytes) / micros / 1e3; };
      std::printf("%-5s %-20s %-5s %8.2f %8.2f %6.2f\n", RowOf(each.dtype).name.data(), each.data,
                  RowOf(op).name.data(), rate(best_plain), rate(best_exact), best_plain / best_exact);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
