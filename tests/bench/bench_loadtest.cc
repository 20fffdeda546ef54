// What the load tester costs by itself: reductions of 1,024 f32 over a Unix socket, on one server, in one run.
//   1. One request after the other: the load tester's closed loop against a bare loop around Client::Reduce. Goal: the
//      tester's mean latency at most 1.10 of the loop's.
//   2. The highest rate over 1 to 32 at once: the load tester's against blocking calls of gRPC's own stub, which send
//   one
//      request that was made beforehand and look at no answer. Goal: at least 0.85 of it.
// The two take turns, and the median of the rounds' ratios counts.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/reducectl/loadtest/run.h"
#include "client/reducectl/loadtest/work.h"
#include "grpcpp/grpcpp.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/server.h"
#include "tests/bench/server_process.h"

namespace {

using reduced::client::Client;
using reduced::client::Work;
using Clock = std::chrono::steady_clock;

constexpr int kElements = 1024;
constexpr int kAtOnce[] = {1, 2, 4, 8, 16, 32};
constexpr double kCostGoal = 1.10;
constexpr double kRateGoal = 0.85;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_loadtest: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

// Requests a second of `threads` threads, each of which calls one after the other.
template <class MakeCall>
double BareRate(int threads, double seconds, MakeCall make_call) {
  std::atomic<bool> over = false;
  std::atomic<std::int64_t> calls = 0;
  const auto start = Clock::now();
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&] {
        auto call = make_call();
        std::int64_t own = 0;
        for (; !over.load(std::memory_order_relaxed); ++own) call();
        calls += own;
      });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    over = true;
  }
  return static_cast<double>(calls) / std::chrono::duration<double>(Clock::now() - start).count();
}

double LoadtestRate(Work& work, int concurrency, double seconds) {
  reduced::client::StepOptions options;
  options.concurrency = concurrency;
  options.warmup = absl::ZeroDuration();
  options.duration = absl::Seconds(seconds);
  options.verify = 0.01;
  const auto step = RunStep(work, options);
  if (!step.ok()) Fail(std::string(step.status().message()));
  if (step->tally.failed() + step->tally.wrong > 0) Fail("a request failed, or its answer was wrong");
  return step->PerSecond();
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_TRIM_THRESHOLD, 32 << 20);  // as reduced and reducectl do
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.5;
  if (rounds < 1 || !(seconds > 0)) Fail("usage: bench_loadtest [rounds, 7 by default] [seconds of each, 0.5]");

  const reduced::server::ServerProcess server([](const std::string& at) {
    reduced::server::ServerOptions options;
    options.listen = {at};
    options.engines.cuda = false;
    auto started = reduced::server::Server::Start(options);
    if (!started.ok()) Fail(std::string(started.status().message()));
    return std::shared_ptr<reduced::server::Server>(*std::move(started));
  });
  const std::string& address = server.address();

  reduced::client::Kind kind;
  kind.via = "inline";
  kind.sizes.list = {kElements * 4};
  auto work = Work::Prepare({kind}, {.client = {.server = address}});
  if (!work.ok()) Fail(std::string(work.status().message()));
  auto client = Client::Create({.server = address});
  if (!client.ok()) Fail(std::string(client.status().message()));
  const std::vector<float> ones(kElements, 1.0F);
  const auto library_call = [&] {
    return [&] {
      const auto reply =
          (*client)->Reduce(reduced::client::ArrayView::Of(std::span<const float>(ones)), {"sum"}, {.via = "inline"});
      if (!reply.ok()) Fail(std::string(reply.status().message()));
    };
  };
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  const auto stub = reduced::v1::Reduction::NewStub(channel);
  reduced::v1::ReduceRequest request;
  request.mutable_array()->set_dtype(reduced::v1::DTYPE_F32);
  request.mutable_array()->add_shape(kElements);
  request.add_ops(reduced::v1::OP_SUM);
  request.set_inline_data(ones.data(), ones.size() * sizeof(float));
  const auto stub_call = [&] {
    return [&] {
      grpc::ClientContext context;
      reduced::v1::ReduceResponse answer;
      const grpc::Status status = stub->Reduce(&context, request, &answer);
      if (!status.ok()) Fail(status.error_message());
    };
  };

  BareRate(1, seconds, library_call);  // warm up
  BareRate(4, seconds, stub_call);
  LoadtestRate(**work, 4, seconds);

  std::vector<double> costs, loops, testers;
  for (int i = 0; i < rounds; ++i) {
    loops.push_back(BareRate(1, seconds, library_call));
    testers.push_back(LoadtestRate(**work, 1, seconds));
    costs.push_back(loops.back() / testers.back());
  }
  std::printf("one at a time: bare loop %.1f us, load tester %.1f us\n", 1e6 / Median(loops), 1e6 / Median(testers));

  std::vector<double> shares, bare_best, library_best, tester_best;
  for (int i = 0; i < rounds; ++i) {
    double bare = 0, library = 0, tester = 0;
    for (const int at_once : kAtOnce) {
      bare = std::max(bare, BareRate(at_once, seconds, stub_call));
      library = std::max(library, BareRate(at_once, seconds, library_call));
      tester = std::max(tester, LoadtestRate(**work, at_once, seconds));
    }
    bare_best.push_back(bare);
    library_best.push_back(library);
    tester_best.push_back(tester);
    shares.push_back(tester / bare);
  }
  std::printf("highest rate: bare gRPC %.0f/s, the library %.0f/s, load tester %.0f/s\n", Median(bare_best),
              Median(library_best), Median(tester_best));
  std::printf("ratio load tester / bare loop, latency: %.3f (goal: at most %.2f)\n", Median(costs), kCostGoal);
  std::printf("ratio load tester / bare gRPC, highest rate: %.3f (goal: at least %.2f)\n", Median(shares), kRateGoal);
  return EXIT_SUCCESS;
}
