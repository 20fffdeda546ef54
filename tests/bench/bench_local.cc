// Arrays that are not sent: shared memory, arrays that stay, memory of a GPU; each against what it would cost without a
// server in between. On this machine's engines; what needs a GPU is left out where there is none.
//
//   bench_local [MIB]   of the large arrays, default 1024
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/engines.h"
#include "reduced/client.h"
#include "server/server.h"
#include "spdlog/spdlog.h"
#include "tests/bench/server_process.h"
#ifdef REDUCED_HAVE_CUDA
#include "tests/contract/exporter.h"
#endif

namespace reduced::server {
namespace {

constexpr int kRounds = 9;
constexpr int kCalls = 2000;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_local: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

template <class T>
T Must(absl::StatusOr<T> result, const char* what) {
  if (!result.ok()) Fail(std::string(what) + ": " + result.status().ToString());
  return *std::move(result);
}

double MicrosOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double PercentileOf(std::vector<double> values, double percent) {
  const auto at = static_cast<std::ptrdiff_t>(static_cast<double>(values.size() - 1) * percent / 100);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

double GigabytesPerSecond(std::int64_t bytes, double micros) { return static_cast<double>(bytes) / (micros * 1e3); }

double ValueOf(const client::Reply& reply) { return std::get<double>(reply.results.at(0).value->value); }

// The f32 sum, as the server has it by default, by the engine itself.
double SumHere(Engine& engine, const void* data, std::int64_t bytes) {
  const ReduceSpec spec{.dtype = DType::kF32, .count = bytes / 4, .ops = {Op::kSum}, .precision = Precision::kExact};
  absl::Notification done;
  double sum = 0;
  engine.Reduce({.spec = spec, .array = {.data = data}}, [&](absl::StatusOr<Answer> result) {
    const Answer reduced = Must(std::move(result), "reduce");
    sum = std::get<double>(Must(Finalize(spec, reduced.state), "sum").front().value);
    done.Notify();
  });
  done.WaitForNotification();
  return sum;
}

struct Bench {
  Engine& here;  // the CPU engine, without a server in between
  client::Client& client;
  const client::SharedBuffer& buffer;
  double sum;  // of the buffer, as f32

  std::int64_t bytes() const { return buffer.bytes(); }

  // One sum of a whole region; checks it.
  double MicrosOfRegion(const client::Region& region, const std::string& engine) const {
    double value = 0;
    const double micros = MicrosOf([&] {
      value = ValueOf(Must(client.Reduce(region.Array("f32", {bytes() / 4}), {"sum"}, {.engine = engine}), "region"));
    });
    if (value != sum) Fail("a wrong sum");
    return micros;
  }
};

void MeasureCpu(const Bench& bench) {
  const client::Region mapped = Must(bench.client.Share(bench.buffer), "share");
  // The same memory by a descriptor of an object without seals: read, not mapped.
  const int plain = memfd_create("bench", MFD_CLOEXEC);
  for (std::int64_t done = 0; done < bench.bytes();) {
    const ssize_t written = write(plain, static_cast<const char*>(bench.buffer.data()) + done,
                                  static_cast<std::size_t>(bench.bytes() - done));
    if (written <= 0) Fail("no memory");
    done += written;
  }
  const client::Region read = Must(bench.client.Share(plain), "share");
  std::vector<double> here_us;
  std::vector<double> mapped_us;
  std::vector<double> read_us;
  for (int round = 0; round < kRounds; ++round) {
    here_us.push_back(MicrosOf([&] { SumHere(bench.here, bench.buffer.data(), bench.bytes()); }));
    mapped_us.push_back(bench.MicrosOfRegion(mapped, "cpu"));
    read_us.push_back(bench.MicrosOfRegion(read, "cpu"));
  }
  close(plain);
  const double here = MedianOf(here_us);
  std::printf(
      "cpu, %lld MiB f32 sum: in process %.2f GB/s; sealed region %.2f GB/s, ratio %.2f (goal: at least 0.80); "
      "unsealed %.2f GB/s, ratio %.2f\n",
      static_cast<long long>(bench.bytes() >> 20), GigabytesPerSecond(bench.bytes(), here),
      GigabytesPerSecond(bench.bytes(), MedianOf(mapped_us)), here / MedianOf(mapped_us),
      GigabytesPerSecond(bench.bytes(), MedianOf(read_us)), here / MedianOf(read_us));
}

// Calls that do nothing, and sums of 4 KiB that the server keeps on `device`, in turn over one session.
void MeasureResident(const Bench& bench, const std::string& device) {
  const std::vector<float> ones(1024, 1.0F);
  const auto array =
      Must(bench.client.Put(client::ArrayView::Of(std::span<const float>(ones)), {.device = device}), "put");
  const auto session = Must(bench.client.OpenSession({.via = "session"}), "session");
  const std::vector<float> nothing;
  std::vector<double> empty_us;
  struct Times {
    std::vector<double> call_us, server_us, kernel_us;
  };
  std::map<std::string, Times> times{{"exact", {}}, {"f64", {}}};
  for (int call = 0; call < kCalls; ++call) {
    empty_us.push_back(MicrosOf([&] {
      Must(session->Reduce(client::ArrayView::Of(std::span<const float>(nothing)), {"sum"}, {.engine = "cpu"}),
           "empty");
    }));
    for (auto& each : times) {
      const std::string& precision = each.first;
      Times& of = each.second;
      of.call_us.push_back(MicrosOf([&] {
        const client::Reply reply = Must(session->Reduce(array, {"sum"}, {.precision = precision}), "kept");
        of.server_us.push_back(reply.timing.total_us.value_or(0));
        of.kernel_us.push_back(reply.timing.kernel_us.value_or(0));
      }));
    }
  }
  for (const auto& [precision, of] : times) {
    std::printf(
        "4 KiB kept on %s, %s: session p50 %.1f us, of which the server's total_us %.1f, kernel %.1f; an empty array's "
        "%.1f us, %.1f us more (goal: at most 15)\n",
        device.c_str(), precision.c_str(), MedianOf(of.call_us), MedianOf(of.server_us), MedianOf(of.kernel_us),
        MedianOf(empty_us), MedianOf(of.call_us) - MedianOf(empty_us));
  }
}

void MeasureGpu(const Bench& bench) {
  std::vector<double> first_us;
  std::vector<double> again_us;
  for (int round = 0; round < kRounds; ++round) {
    const client::Region read = Must(bench.client.Share(bench.buffer), "share");
    first_us.push_back(bench.MicrosOfRegion(read, "cuda"));
  }
  const client::Region pinned = Must(bench.client.Share(bench.buffer, {.pin = true}), "pin");
  for (int round = 0; round < kRounds; ++round) again_us.push_back(bench.MicrosOfRegion(pinned, "cuda"));
  std::printf(
      "cuda, %lld MiB f32 sum: region read %.1f GB/s (goal: at least 30), pinned %.1f GB/s (goal: at least 50)\n",
      static_cast<long long>(bench.bytes() >> 20), GigabytesPerSecond(bench.bytes(), MedianOf(first_us)),
      GigabytesPerSecond(bench.bytes(), MedianOf(again_us)));
}

// Small requests for the CPU engine, alone and beside requests for the GPU, small and large: gRPC's threads serve them
// all, and none of them may wait for a kernel of the large ones.
void MeasureNeighbours(const Bench& bench) {
  const std::vector<float> ones(1024, 1.0F);
  const auto inline_array = client::ArrayView::Of(std::span<const float>(ones));
  const std::span<const float> all(static_cast<const float*>(bench.buffer.data()),
                                   static_cast<std::size_t>(bench.bytes() / 4));
  const auto large = Must(bench.client.Put(client::ArrayView::Of(all), {.device = "cuda:0"}), "put");
  const auto small = Must(bench.client.Put(inline_array, {.device = "cuda:0"}), "put");
  const auto measure = [&] {
    std::vector<double> us;
    for (int call = 0; call < kCalls; ++call) {
      us.push_back(MicrosOf([&] { Must(bench.client.Reduce(inline_array, {"sum"}, {.engine = "cpu"}), "small"); }));
    }
    return us;
  };
  const std::vector<double> alone = measure();
  std::atomic<bool> stop = false;
  std::vector<double> large_us;  // of the first thread below
  std::vector<std::thread> others;
  others.emplace_back([&] {
    while (!stop) large_us.push_back(MicrosOf([&] { Must(bench.client.Reduce(large, {"sum"}), "large"); }));
  });
  for (int thread = 0; thread < 4; ++thread) {
    others.emplace_back([&] {
      while (!stop) Must(bench.client.Reduce(small, {"sum"}), "small on the GPU");
    });
  }
  const std::vector<double> beside = measure();
  stop = true;
  for (std::thread& other : others) other.join();
  std::printf(
      "4 KiB on the CPU: p50 %.1f us, p99 %.1f us alone; p50 %.1f us, p99 %.1f us beside 4 KiB requests for the GPU by "
      "4 "
      "threads and %lld MiB ones by another, which take %.1f us each\n",
      MedianOf(alone), PercentileOf(alone, 99), MedianOf(beside), PercentileOf(beside, 99),
      static_cast<long long>(bench.bytes() >> 20), large_us.empty() ? 0 : MedianOf(large_us));
}

#ifdef REDUCED_HAVE_CUDA
void MeasureIpc(const Bench& bench) {
  const test::Exporter exporter(bench.bytes(), 0, 0);
  if (!exporter.error().empty()) Fail(exporter.error());
  const client::Region region = Must(bench.client.ShareDevice({.handle = exporter.memory().handle,
                                                               .device_uuid = exporter.memory().device_uuid,
                                                               .bytes = bench.bytes(),
                                                               .event = exporter.memory().event}),
                                     "share");
  const client::RemoteArray array = region.Array("f32", {bench.bytes() / 4});
  const std::vector<float> nothing;
  std::vector<double> empty_us;
  std::vector<double> total_us;
  std::vector<double> kernel_us;
  for (int call = 0; call < kCalls / 4; ++call) {
    empty_us.push_back(MicrosOf([&] {
      Must(bench.client.Reduce(client::ArrayView::Of(std::span<const float>(nothing)), {"sum"}, {.engine = "cpu"}),
           "empty");
    }));
    total_us.push_back(
        MicrosOf([&] { kernel_us.push_back(*Must(bench.client.Reduce(array, {"sum"}), "ipc").timing.kernel_us); }));
  }
  const double beyond = MedianOf(total_us) - MedianOf(kernel_us);
  std::printf(
      "cuda IPC, %lld MiB f32 sum: call p50 %.1f us, kernel %.1f us; beyond it %.1f us, an empty array's call "
      "%.1f us, ratio %.2f (goal: at most 1.30)\n",
      static_cast<long long>(bench.bytes() >> 20), MedianOf(total_us), MedianOf(kernel_us), beyond, MedianOf(empty_us),
      beyond / MedianOf(empty_us));
}
#endif

int Main(std::int64_t mib) {
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  spdlog::set_level(spdlog::level::warn);
  const ServerProcess server([](const std::string& address) {
    ServerOptions options;
    options.listen = {address};
    return std::shared_ptr<Server>(Must(Server::Start(options), "server"));
  });
  const auto client =
      Must(client::Client::Create({.server = server.address(), .timeout = absl::Seconds(60)}), "client");
  const auto here = Must(Engines::Start({.cuda = false}), "engine");
  const client::SharedBuffer buffer = Must(client::SharedBuffer::Allocate(mib << 20), "memory");
  std::minstd_rand random(1);
  auto* const numbers = static_cast<float*>(buffer.data());
  for (std::int64_t i = 0; i < buffer.bytes() / 4; ++i) numbers[i] = static_cast<float>(random()) * 0x1p-31F;
  const double sum = SumHere(*here->all().front(), numbers, buffer.bytes());
  const Bench bench{*here->all().front(), *client, buffer, sum};

  MeasureCpu(bench);
  MeasureResident(bench, "cpu");
  const client::ServerInfo info = Must(client->GetServerInfo(), "info");
  if (info.no_cuda_reason.empty()) {
    MeasureGpu(bench);
    MeasureResident(bench, "cuda:0");
    MeasureNeighbours(bench);
#ifdef REDUCED_HAVE_CUDA
    MeasureIpc(bench);
#endif
  } else {
    std::printf("cuda: left out: %s\n", info.no_cuda_reason.c_str());
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace reduced::server

int main(int argc, char** argv) {
  const long long mib = argc > 1 ? std::atoll(argv[1]) : 1024;
  if (mib < 1) {
    std::fprintf(stderr, "bench_local [MIB]\n");
    return 2;
  }
  return reduced::server::Main(mib);
}
