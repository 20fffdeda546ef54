// Small requests through a ring: how long one takes, by where its array is and what it asks for; after a pause, beside
// what two processes need for that by a futex alone; how many a second there are from several callers, and from one
// that doesn't wait; and calls and rings beside one another. What needs a GPU is left out where there is none.
//
//   bench_ring [CALLERS]   at once, default 16
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "proto/ring/wait.h"
#include "reduced/client.h"
#include "server/server.h"
#include "spdlog/spdlog.h"
#include "tests/bench/server_process.h"
#ifdef REDUCED_HAVE_CUDA
#include "tests/contract/exporter.h"
#endif

namespace reduced::server {
namespace {

using client::ArrayView;
using client::Client;
using client::RemoteArray;
using client::Reply;
using client::Session;
using Clock = std::chrono::steady_clock;

constexpr int kCalls = 3000;
constexpr int kWarmup = 300;
constexpr int kInFlight = 64;
constexpr std::chrono::seconds kLoad(1);
constexpr absl::Duration kSilence = absl::Milliseconds(2);

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_ring: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

template <class T>
T Must(absl::StatusOr<T> result, const char* what) {
  if (!result.ok()) Fail(std::string(what) + ": " + result.status().ToString());
  return *std::move(result);
}

double MicrosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double PercentileOf(std::vector<double> values, double percent) {
  const auto at = static_cast<std::ptrdiff_t>(static_cast<double>(values.size() - 1) * percent / 100);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

// What is asked of an array.
struct Question {
  const char* name;
  std::vector<std::string> ops;
  client::ReduceOptions options{};
};
const std::vector<Question>& Questions() {
  static const auto* const all =
      new std::vector<Question>{{"sum", {"sum"}, {}},
                                {"mean,std,min,max,argmax", {"mean", "std", "min", "max", "argmax"}, {}},
                                {"describe",
                                 {"count", "nan_count", "mean", "std", "min", "max", "argmin", "argmax", "sum"},
                                 {.nan_policy = "omit", .ddof = 1}}};
  return *all;
}

// What waking up costs by itself: another process sleeps on a futex, is woken after some silence and answers at once,
// to a caller who spins, or sleeps, too.
void MeasureWakes() {
  struct Words {
    std::uint32_t question = 0;
    std::uint32_t answer = 0;
  };
  constexpr std::uint32_t kEnd = ~std::uint32_t{0};
  constexpr std::chrono::seconds kForLong(10);
  void* const shared = mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) Fail("mmap");
  auto& words = *new (shared) Words;
  const std::atomic_ref<std::uint32_t> question(words.question), answer(words.answer);
  const pid_t other = fork();
  if (other == 0) {
    for (std::uint32_t last = 0;;) {
      ring::FutexWait(words.question, last, kForLong);
      const std::uint32_t now = question.load();
      if (now == kEnd) _exit(0);
      if (now == last) continue;
      answer.store(last = now);
      ring::FutexWake(words.answer);
    }
  }
  std::uint32_t asked = 0;
  for (const bool spins : {true, false}) {
    std::vector<double> call_us;
    for (int call = 0; call < kCalls / 10; ++call) {
      absl::SleepFor(kSilence);
      const Clock::time_point begin = Clock::now();
      question.store(++asked);
      ring::FutexWake(words.question);
      while (answer.load() != asked) {
        if (!spins) ring::FutexWait(words.answer, asked - 1, kForLong);
      }
      call_us.push_back(MicrosSince(begin));
    }
    std::printf("%-52s p50 %7.1f us  p99 %7.1f us\n",
                spins ? "futex alone, after 2 ms of silence" : "the same, and the caller sleeps, too",
                PercentileOf(call_us, 50), PercentileOf(call_us, 99));
  }
  question.store(kEnd);
  ring::FutexWake(words.question);
  waitpid(other, nullptr, 0);
  munmap(shared, sizeof(Words));
}

// The answers of `reduce`, one at a time; each has to be `expected`.
void MeasureOne(const std::string& name, const Reply& expected, absl::Duration pause,
                const std::function<absl::StatusOr<Reply>()>& reduce) {
  std::vector<double> call_us, server_us, kernel_us;
  const int calls = pause > absl::ZeroDuration() ? kCalls / 10 : kCalls;
  for (int call = -kWarmup; call < calls; ++call) {
    absl::SleepFor(pause);
    const Clock::time_point begin = Clock::now();
    const Reply reply = Must(reduce(), name.c_str());
    const double us = MicrosSince(begin);
    if (call <= 0) {
      for (std::size_t i = 0; i < expected.results.size(); ++i) {
        if (reply.results.at(i).value->Text() != expected.results[i].value->Text()) Fail(name + ": a wrong answer");
      }
    }
    if (call < 0) continue;
    call_us.push_back(us);
    server_us.push_back(reply.timing.total_us.value_or(0));
    kernel_us.push_back(reply.timing.kernel_us.value_or(0));
  }
  std::printf("%-52s p50 %7.1f us  p99 %7.1f us  server %7.1f us  kernel %7.1f us\n", name.c_str(),
              PercentileOf(call_us, 50), PercentileOf(call_us, 99), PercentileOf(server_us, 50),
              PercentileOf(kernel_us, 50));
}

struct Bench {
  Client& client;
  Session& session;
  const std::vector<float>& numbers;

  ArrayView First(std::int64_t bytes) const {
    return ArrayView::Of(std::span<const float>(numbers.data(), static_cast<std::size_t>(bytes / 4)));
  }

  // All questions about an array of so many bytes.
  void Measure(const std::string& where, std::int64_t bytes, const RemoteArray& array) const {
    for (const Question& question : Questions()) {
      client::ReduceOptions here = question.options;
      here.engine = "cpu";
      const Reply expected = Must(client.Reduce(First(bytes), question.ops, here), "the CPU");
      MeasureOne(std::to_string(bytes >> 10) + " KiB " + where + ": " + question.name, expected, absl::ZeroDuration(),
                 [&] { return session.Reduce(array, question.ops, question.options); });
    }
  }

  void MeasureInline(absl::Duration pause, const char* name) const {
    const ArrayView array = First(4 << 10);
    const Reply expected = Must(client.Reduce(array, {"sum"}), "a call");
    MeasureOne(name, expected, pause, [&] { return session.Reduce(array, {"sum"}, {.engine = "cpu"}); });
  }

  void MeasureResident(const std::string& device) const {
    for (const std::int64_t bytes : {std::int64_t{4} << 10, std::int64_t{1} << 20}) {
      const auto array = Must(client.Put(First(bytes), {.device = device}), "put");
      Measure("resident on " + device, bytes, array);
    }
  }
};

// Runs `load` on a thread of its own, over and over, while `measure` runs.
void Beside(const std::function<void(const std::atomic<bool>&)>& load, int threads,
            const std::function<void()>& measure) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> loading;
  for (int i = 0; i < threads; ++i) loading.emplace_back([&] { load(stop); });
  std::this_thread::sleep_for(kLoad / 10);
  measure();
  stop = true;
  for (std::thread& each : loading) each.join();
}

// A ring and unary calls beside one another: one saturates, and the other is measured.
void MeasureTogether(int callers, const Bench& bench, Session& other) {
  const ArrayView array = bench.First(4 << 10);
  const Reply expected = Must(bench.client.Reduce(array, {"sum"}), "a call");
  const client::ReduceOptions on_cpu{.engine = "cpu"};
  const auto call = [&](const std::string& name) {
    MeasureOne(name, expected, absl::ZeroDuration(), [&] { return bench.client.Reduce(array, {"sum"}, on_cpu); });
  };
  const auto through_ring = [&](const std::string& name) {
    MeasureOne(name, expected, absl::ZeroDuration(), [&] { return bench.session.Reduce(array, {"sum"}, on_cpu); });
  };
  const auto pipelined = [&](const std::atomic<bool>& stop) {
    std::atomic<int> in_flight = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      while (in_flight.load(std::memory_order_acquire) >= kInFlight) std::this_thread::yield();
      in_flight.fetch_add(1, std::memory_order_relaxed);
      other.ReduceAsync(array, {"sum"}, on_cpu, [&in_flight](const absl::StatusOr<Reply>& reply) {
        if (!reply.ok()) Fail("a callback: " + reply.status().ToString());
        in_flight.fetch_sub(1, std::memory_order_release);
      });
    }
    while (in_flight.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  };
  const auto calling = [&](const std::atomic<bool>& stop) {
    while (!stop.load(std::memory_order_relaxed)) Must(bench.client.Reduce(array, {"sum"}, on_cpu), "a caller");
  };
  call("4 KiB, a unary call, alone");
  Beside(pipelined, 1, [&] { call("  beside a ring with " + std::to_string(kInFlight) + " in flight"); });
  through_ring("4 KiB, a ring, alone");
  for (const int threads : {callers / 4, callers / 2, callers}) {
    if (threads < 1) continue;
    Beside(calling, threads, [&] { through_ring("  beside " + std::to_string(threads) + " callers of unary calls"); });
  }
}

void PrintRate(const std::string& name, std::int64_t requests, double us) {
  std::printf("%-52s %9.0f requests/s\n", name.c_str(), static_cast<double>(requests) * 1e6 / us);
}

// Callers that wait for each answer, each in the session that it gets.
void MeasureCallers(const std::string& name, int callers, const Bench& bench,
                    const std::function<Session&(int)>& session_of) {
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> requests = 0;
  std::vector<std::thread> threads;
  const Clock::time_point begin = Clock::now();
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, &session = session_of(caller)] {
      const ArrayView array = bench.First(4 << 10);
      std::int64_t mine = 0;
      for (; !stop.load(std::memory_order_relaxed); ++mine) {
        Must(session.Reduce(array, {"sum"}, {.engine = "cpu"}), "a caller");
      }
      requests += mine;
    });
  }
  std::this_thread::sleep_for(kLoad);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  PrintRate(name, requests, MicrosSince(begin));
}

void MeasurePipelined(const Bench& bench) {
  const ArrayView array = bench.First(4 << 10);
  std::atomic<std::int64_t> done = 0;
  std::int64_t sent = 0;
  const Clock::time_point begin = Clock::now();
  while (Clock::now() - begin < kLoad) {
    while (sent - done.load(std::memory_order_acquire) >= kInFlight) std::this_thread::yield();
    bench.session.ReduceAsync(array, {"sum"}, {.engine = "cpu"}, [&done](const absl::StatusOr<Reply>& reply) {
      if (!reply.ok()) Fail("a callback: " + reply.status().ToString());
      done.fetch_add(1, std::memory_order_release);
    });
    ++sent;
  }
  while (done.load(std::memory_order_acquire) < sent) std::this_thread::yield();
  PrintRate("4 KiB inline, one caller, " + std::to_string(kInFlight) + " in flight", sent, MicrosSince(begin));
}

int Main(int callers) {
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  spdlog::set_level(spdlog::level::warn);
  MeasureWakes();
  const ServerProcess server([](const std::string& address) {
    ServerOptions options;
    options.listen = {address};
    return std::shared_ptr<Server>(Must(Server::Start(options), "server"));
  });
  const auto client = Must(Client::Create({.server = server.address(), .timeout = absl::Seconds(60)}), "client");
  const auto open = [&] { return Must(client->OpenSession({.via = "ring"}), "a ring"); };
  const auto session = open();
  std::minstd_rand random(1);
  std::vector<float> numbers(std::size_t{1} << 18);
  for (float& number : numbers) number = static_cast<float>(random()) * 0x1p-31F - 0.5F;
  const Bench bench{*client, *session, numbers};

  bench.MeasureInline(absl::ZeroDuration(), "4 KiB inline: sum");
  bench.MeasureInline(kSilence, "4 KiB inline: sum, after 2 ms of silence");
  const auto other = open();
  MeasureTogether(callers, bench, *other);
  const client::ServerInfo info = Must(client->GetServerInfo(), "info");
  if (info.no_cuda_reason.empty()) {
    bench.MeasureResident("cuda:0");
#ifdef REDUCED_HAVE_CUDA
    const std::int64_t bytes = std::int64_t{1} << 20;
    const test::Exporter exporter(bytes, 0, 0);
    if (!exporter.error().empty()) Fail(exporter.error());
    client::DeviceMemory memory{.handle = exporter.memory().handle,
                                .device_uuid = exporter.memory().device_uuid,
                                .bytes = bytes,
                                .event = exporter.memory().event};
    for (const char* const name : {"with an event", "without"}) {
      const client::Region region = Must(client->ShareDevice(memory), "share");
      const RemoteArray array = region.Array("f32", {bytes / 4});
      const Reply expected = Must(client->Reduce(array, {"sum"}), "ipc");
      MeasureOne("1024 KiB by CUDA IPC, " + std::string(name) + ": sum", expected, absl::ZeroDuration(),
                 [&] { return session->Reduce(array, {"sum"}); });
      memory.event.clear();
    }
#endif
  } else {
    std::printf("cuda: left out: %s\n", info.no_cuda_reason.c_str());
  }
  MeasurePipelined(bench);
  MeasureCallers("4 KiB inline, " + std::to_string(callers) + " callers of one ring", callers, bench,
                 [&](int) -> Session& { return *session; });
  std::vector<std::unique_ptr<Session>> sessions;
  for (int caller = 0; caller < callers; ++caller) sessions.push_back(open());
  MeasureCallers("4 KiB inline, " + std::to_string(callers) + " callers, each with a ring", callers, bench,
                 [&](int caller) -> Session& { return *sessions[static_cast<std::size_t>(caller)]; });
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace reduced::server

int main(int argc, char** argv) {
  const int callers = argc > 1 ? std::atoi(argv[1]) : 16;
  if (callers < 1) {
    std::fprintf(stderr, "bench_ring [CALLERS]\n");
    return 2;
  }
  return reduced::server::Main(callers);
}
