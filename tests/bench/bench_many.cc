// The tensors of a model in the memory of a GPU, 700 of 2 billion elements in all: reduced together, one after the
// other, and by a client's one call for all. Microseconds, and how many plain reads of all bytes that is. The answers
// are compared with those of each array alone.
//
// usage: bench_many [DTYPE...] [--repeats=N] [--small]   by default bf16, f32 and i8; small: 3 million elements
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/layout.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/stopwatch.h"
#include "oneapi/tbb/parallel_for.h"
#include "reduced/client.h"
#include "tests/bench/device_read.h"
#include "tests/bench/server_process.h"

namespace reduced {
namespace {

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "bench_many: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <class T>
T Must(absl::StatusOr<T> result) {
  if (!result.ok()) Fail(result.status());
  return *std::move(result);
}

// Elements of each tensor: of a decoder with 63 layers.
std::vector<std::int64_t> Tensors(bool small) {
  const std::int64_t hidden = small ? 48 : 1536, keys = small ? 8 : 256, inner = small ? 128 : 4096;
  const std::int64_t words = small ? 15'000 : 150'000;
  std::vector<std::int64_t> counts = {words * hidden};
  for (int layer = 0; layer < 63; ++layer) {
    counts.insert(counts.end(), {hidden, hidden * hidden, keys * hidden, keys * hidden, hidden, keys, hidden * hidden,
                                 hidden, inner * hidden, inner * hidden, inner * hidden});
  }
  counts.insert(counts.end(), {hidden, words * hidden, 1, 2, 3, 1001});
  return counts;
}

struct Row {
  const char* name;
  std::vector<OpCall> ops;
  NanPolicy nan = NanPolicy::kPropagate;
  bool states = false;
};
const Row kRows[] = {
    {"l2, state", {Op::kL2}, NanPolicy::kPropagate, true},
    {"sum, max", {Op::kSum, Op::kMax}},
    {"min, max, nan_count", {Op::kMin, Op::kMax, Op::kNanCount}},
    {"sum, min, max, l2, nan_count", {Op::kSum, Op::kMin, Op::kMax, Op::kL2, Op::kNanCount}},
    {"torch.statistics",
     {Op::kCount, Op::kNanCount, Op::kMin, Op::kMax, Op::kMean, Op::kStd, Op::kL2},
     NanPolicy::kOmit},
    {"fingerprint, state", {Op::kFingerprint}, NanPolicy::kPropagate, true},
    {"sum, min, max, fingerprint", {Op::kSum, Op::kMin, Op::kMax, Op::kFingerprint}},
};

// Where a job's answers go, and what they are.
struct Told {
  std::vector<std::vector<std::byte>> answers;
  std::vector<State> states;
  State state;

  // The bytes of all answers.
  std::string Bytes(const ReduceSpec& spec, bool by_state) {
    std::string bytes;
    for (const std::vector<std::byte>& each : answers) {
      bytes.append(reinterpret_cast<const char*>(each.data()), each.size());
    }
    for (std::size_t i = 0; by_state && i < spec.ops.size(); ++i) {
      std::byte value[8] = {};
      StoreValue(Must(Finalize(spec, spec.ops[i], state)), value);
      bytes.append(reinterpret_cast<const char*>(value), sizeof(value));
    }
    for (const State& each : states) {
      for (const Entries& entries : each.entries) {
        for (const std::uint64_t value : entries.values) bytes += std::to_string(value) + " ";
      }
    }
    return bytes;
  }
};

class Bench {
 public:
  Bench(Engine& gpu, client::Client& client, DType dtype, int repeats, bool small)
      : gpu_(gpu), client_(client), dtype_(dtype), repeats_(repeats), counts_(Tensors(small)) {
    const std::int64_t width = RowOf(dtype).bytes;
    std::int64_t elements = 0;
    for (const std::int64_t count : counts_) elements += (count + 63) / 64 * 64;
    bytes_ = elements * width;
    memory_ = Must(gpu.Allocate(bytes_));
    std::vector<std::byte> host(std::size_t{64} << 20);
    for (std::int64_t at = 0; at < bytes_; at += std::ssize(host)) {
      const std::int64_t size = std::min<std::int64_t>(std::ssize(host), bytes_ - at);
      Fill(at / width, size / width, host.data());
      if (const absl::Status status = memory_->Write(at, host.data(), size); !status.ok()) Fail(status);
    }
    read_us_ = Must(MicrosOfRead(memory_->array().data, bytes_ / 16 * 16));
    std::printf("%s: %zu arrays, %.2f GB, a plain read takes %.1f us (%.0f GB/s)\n",
                std::string(RowOf(dtype).name).c_str(), counts_.size(), 1e-9 * static_cast<double>(bytes_), read_us_,
                1e-3 * static_cast<double>(bytes_) / read_us_);
    std::printf("%-30s %10s %6s %10s %6s %10s %6s %10s\n", "", "together", "reads", "kernels", "reads", "one each",
                "reads", "one call");
  }
  // Numbers as weights are: from a normal distribution.
  void Fill(std::int64_t first, std::int64_t count, std::byte* to) const {
    VisitDType(dtype_, [&]<class T>(std::type_identity<T>) {
      tbb::parallel_for(std::int64_t{0}, count, [&](std::int64_t i) {
        double sum = -6;
        std::uint64_t state = static_cast<std::uint64_t>(first + i) * 0x9e3779b97f4a7c15;
        for (int j = 0; j < 3; ++j) {
          state = (state ^ (state >> 29)) * 0xbf58476d1ce4e5b9;
          for (int k = 0; k < 4; ++k) sum += static_cast<double>(state >> (16 * k) & 0xffff) * 0x1p-16;
        }
        T element{};
        if constexpr (kIsFloat<T>) element = FromDouble<T>(0.02 * sum);
        if constexpr (std::is_integral_v<T>) element = static_cast<T>(static_cast<std::int64_t>(20 * sum));
        std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &element, sizeof(T));
      });
    });
  }

  std::vector<Job> JobsOf(const Row& row, std::vector<Told>* told) const {
    told->assign(counts_.size(), {});
    std::vector<Job> jobs;
    const auto* at = static_cast<const std::byte*>(memory_->array().data);
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const std::int64_t count = counts_[i];
      Job job{.spec = {.dtype = dtype_, .count = count, .ops = row.ops, .nan_policy = row.nan},
              .array = memory_->array()};
      job.spec.precision = Precision::kExact;
      job.array.data = at;
      at += (count + 63) / 64 * 64 * RowOf(dtype_).bytes;
      if (!AnsweredByAccumulators(job.spec)) {
        job.partition = Partition{.layout = LayoutOf(std::vector<std::int64_t>{count}, {true}), .rows = count};
        std::vector<std::byte*> places;
        for (const OpCall& call : row.ops) {
          (*told)[i].answers.emplace_back(
              static_cast<std::size_t>(AnswerElements(call) * RowOf(ResultDType(call, dtype_)).bytes));
          places.push_back((*told)[i].answers.back().data());
        }
        job.place = [places](std::int64_t, std::int64_t, const std::byte*) { return places; };
        if (row.states) job.states = &(*told)[i].states;
      }
      jobs.push_back(std::move(job));
    }
    return jobs;
  }

  bool Run(const Row& row, const std::vector<client::Operand>& operands) {
    double together_us = 1e30, kernel_us = 1e30, each_us = 1e30, call_us = 1e30;
    std::vector<Told> together, each;
    for (int repeat = 0; repeat < repeats_; ++repeat) {
      std::vector<Job> jobs = JobsOf(row, &together);
      absl::Notification done;
      absl::StatusOr<std::vector<Answer>> answers;
      Stopwatch since;
      gpu_.ReduceMany(std::move(jobs), [&](std::size_t, absl::StatusOr<std::vector<Answer>> answered) {
        answers = std::move(answered);
        done.Notify();
      });
      done.WaitForNotification();
      together_us = std::min(together_us, since.micros());
      if (!answers.ok()) Fail(answers.status());
      double sum_us = 0;
      for (std::size_t i = 0; i < answers->size(); ++i) {
        sum_us += (*answers)[i].timing.kernel_us.value_or(0);
        together[i].state = std::move((*answers)[i].state);
      }
      kernel_us = std::min(kernel_us, sum_us);
    }
    for (int repeat = 0; repeat < 2; ++repeat) {
      std::vector<Job> jobs = JobsOf(row, &each);
      Stopwatch since;
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        absl::Notification done;
        gpu_.Reduce(std::move(jobs[i]), [&](absl::StatusOr<Answer> answer) {
          each[i].state = std::move(Must(std::move(answer)).state);
          done.Notify();
        });
        done.WaitForNotification();
      }
      each_us = std::min(each_us, since.micros());
    }
    client::ReduceOptions options;
    if (row.nan == NanPolicy::kOmit) options.nan_policy = "omit";
    options.return_state = row.states;
    std::vector<std::string> ops;
    for (const OpCall& call : row.ops) ops.emplace_back(RowOf(call.op).name);
    for (int repeat = 0; !operands.empty() && repeat < repeats_; ++repeat) {
      const Stopwatch since;
      Must(client_.ReduceMany(operands, ops, options));
      call_us = std::min(call_us, since.micros());
    }
    bool same = true;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      ReduceSpec spec{.dtype = dtype_, .count = counts_[i], .ops = row.ops, .nan_policy = row.nan};
      spec.precision = Precision::kExact;
      const bool by_state = AnsweredByAccumulators(spec);
      same = same && together[i].Bytes(spec, by_state) == each[i].Bytes(spec, by_state);
    }
    std::printf("%-30s %10.1f %6.2f %10.1f %6.2f %10.1f %6.2f %10.1f%s\n", row.name, together_us,
                together_us / read_us_, kernel_us, kernel_us / read_us_, each_us, each_us / read_us_,
                operands.empty() ? 0 : call_us, same ? "" : "  WRONG");
    std::fflush(stdout);
    return same;
  }

  // The same tensors as resident arrays of the server.
  std::vector<client::Operand> Put() {
    std::vector<client::Operand> arrays;
    std::int64_t first = 0;
    for (const std::int64_t count : counts_) {
      std::vector<std::byte> host(static_cast<std::size_t>(count * RowOf(dtype_).bytes));
      Fill(first, count, host.data());
      first += (count + 63) / 64 * 64;
      client::PutOptions options;
      options.device = "cuda:0";
      const client::ArrayView view{.data = host.data(), .dtype = std::string(RowOf(dtype_).name), .shape = {count}};
      resident_.push_back(Must(client_.Put(view, options)));
      arrays.emplace_back(client::RemoteArray(resident_.back()));
    }
    return arrays;
  }

 private:
  Engine& gpu_;
  client::Client& client_;
  const DType dtype_;
  const int repeats_;
  const std::vector<std::int64_t> counts_;
  std::int64_t bytes_ = 0;
  std::vector<client::ResidentArray> resident_;
  std::unique_ptr<ArrayMemory> memory_;
  double read_us_ = 0;
};

int Main(int argc, char** argv) {
  EngineOptions options;
  options.cuda_array_bytes = std::int64_t{20} << 30;
  const server::ServerProcess process(
      [&](const std::string& address) { return std::make_shared<server::BenchServer>(address, nullptr, options); });
  int repeats = 7;
  bool small = false;
  std::vector<DType> dtypes;
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--repeats=")) {
      if (!absl::SimpleAtoi(text, &repeats)) Fail(absl::InvalidArgumentError(argv[i]));
      continue;
    }
    if (text == "--small") {
      small = true;
      continue;
    }
    const DTypeRow* const row = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeRow& each) {
      return absl::string_view(each.name.data(), each.name.size()) == text;
    });
    if (row == std::end(kDTypes)) Fail(absl::InvalidArgumentError(argv[i]));
    dtypes.push_back(row->dtype);
  }
  if (dtypes.empty()) dtypes = {DType::kBF16, DType::kF32, DType::kI8};
  const std::unique_ptr<Engines> engines = Must(Engines::Start(options));
  Engine& gpu = *Must(engines->Get(EngineKind::kCuda));
  const std::unique_ptr<client::Client> client =
      Must(client::Client::Create({.server = process.address(), .timeout = absl::Minutes(1)}));
  bool right = true;
  for (const DType dtype : dtypes) {
    Bench bench(gpu, *client, dtype, repeats, small);
    std::vector<client::Operand> operands;
    if (dtype == dtypes.front()) operands = bench.Put();
    for (const Row& row : kRows) right = bench.Run(row, operands) && right;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace reduced

int main(int argc, char** argv) { return reduced::Main(argc, argv); }
