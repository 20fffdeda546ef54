// What operating a server costs a small request: servers with metrics, request ids and the log at their defaults, with
// a token for every call, and with all of it, each against a server with none of it; and what of that is the sending of
// a token, which a server without tokens doesn't look at. Both get the same load in turns of a fraction of a second.
// Printed: the ratio of the requests a second, the median over pairs of turns. Goal: at least 0.95.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/server.h"
#include "spdlog/spdlog.h"
#include "tests/bench/server_process.h"

namespace {

using reduced::v1::Reduction;

constexpr int kElements = 1024;
constexpr double kGoal = 0.95;
constexpr char kToken[] = "bench";
constexpr char kTokens[] = "bench 1b32c28cb38c05480eccc1bd60ff97029b57a05c96718b96dad7e9d84894f549\n";
constexpr auto kTurn = std::chrono::milliseconds(250);

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_overhead: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

// A file with the hash of kToken, that is gone when the bench is.
class TokenFile {
 public:
  TokenFile() {
    const int file = mkstemp(path_);
    const bool written = file >= 0 && write(file, kTokens, sizeof(kTokens) - 1) == sizeof(kTokens) - 1;
    if (file >= 0) close(file);
    if (!written) Fail("cannot write a file of tokens");
  }
  ~TokenFile() { unlink(path_); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/bench_overhead.XXXXXX";
};

struct Variant {
  const char* name;
  bool observed;  // metrics, request ids and the log
  bool sends;     // clients send a token
  bool checks;    // the server wants one
};
constexpr Variant kBare = {"bare", false, false, false};
constexpr Variant kVariants[] = {{"metrics, request ids and log", true, false, false},
                                 {"tokens sent, not looked at", false, true, false},
                                 {"tokens", false, true, true},
                                 {"all of these", true, true, true}};

std::unique_ptr<reduced::server::ServerProcess> StartServer(const Variant& variant, const TokenFile& tokens) {
  return std::make_unique<reduced::server::ServerProcess>([&](const std::string& address) {
    reduced::server::ServerOptions options;
    options.listen = {address};
    options.region_socket.clear();
    options.engines.cuda = false;
    options.metrics_listen = variant.observed ? "127.0.0.1:0" : "";
    options.request_ids = variant.observed;
    if (variant.checks) options.security.token_file = tokens.path();
    // But for what it says at start: as info.
    spdlog::set_level(variant.observed ? spdlog::level::warn : spdlog::level::off);
    auto server = reduced::server::Server::Start(options);
    if (!server.ok()) {
      std::fprintf(stderr, "%s\n", std::string(server.status().message()).c_str());
      _exit(EXIT_FAILURE);
    }
    return std::shared_ptr<void>(*std::move(server));
  });
}

reduced::v1::ReduceRequest SmallSum() {
  reduced::v1::ReduceRequest request;
  request.mutable_array()->set_dtype(reduced::v1::DTYPE_F32);
  request.mutable_array()->add_shape(kElements);
  request.add_ops(reduced::v1::OP_SUM);
  const std::vector<float> ones(kElements, 1.0F);
  request.set_inline_data(ones.data(), ones.size() * sizeof(float));
  return request;
}

// Requests a second, of `threads` that each wait for every answer, on a connection that stays.
// `token`: of every request; may be empty.
double RateOf(Reduction::Stub& stub, int threads, const std::string& token) {
  std::atomic<std::int64_t> answered = 0;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> clients;
  for (int i = 0; i < threads; ++i) {
    clients.emplace_back([&] {
      const reduced::v1::ReduceRequest request = SmallSum();
      while (std::chrono::steady_clock::now() - start < kTurn) {
        grpc::ClientContext context;
        if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
        reduced::v1::ReduceResponse answer;
        const grpc::Status status = stub.Reduce(&context, request, &answer);
        if (!status.ok()) Fail(status.error_message());
        if (answer.results(0).value().f() != kElements) Fail("the sum is wrong");
        ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(answered.load()) / seconds.count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_TRIM_THRESHOLD, 32 << 20);  // as reduced does
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 40;
  if (pairs < 1) Fail("usage: bench_overhead [pairs of turns, 40 by default]");

  const TokenFile tokens;
  const std::unique_ptr<reduced::server::ServerProcess> bare = StartServer(kBare, tokens);
  std::vector<std::unique_ptr<reduced::server::ServerProcess>> servers;  // all of them before there is a second thread
  for (const Variant& variant : kVariants) {
    servers.push_back(StartServer(variant, tokens));
  }
  const auto stub_of = [](const reduced::server::ServerProcess& server) {
    return Reduction::NewStub(grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()));
  };
  const auto without = stub_of(*bare);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("%-30s %8s %12s %12s %7s\n", "", "clients", "requests/s", "without", "ratio");
  for (std::size_t v = 0; v < servers.size(); ++v) {
    const auto with = stub_of(*servers[v]);
    const std::string token = kVariants[v].sends ? kToken : "";
    for (const int threads : {1, 8}) {
      RateOf(*with, threads, token);  // warm up
      RateOf(*without, threads, "");
      std::vector<double> ratios, with_rates, without_rates;
      for (int i = 0; i < pairs; ++i) {
        // Whoever is first in one pair is second in the next.
        double with_rate = i % 2 == 0 ? RateOf(*with, threads, token) : 0;
        const double without_rate = RateOf(*without, threads, "");
        if (i % 2 != 0) with_rate = RateOf(*with, threads, token);
        ratios.push_back(with_rate / without_rate);
        with_rates.push_back(with_rate);
        without_rates.push_back(without_rate);
      }
      std::printf("%-30s %8d %12.0f %12.0f %7.3f\n", kVariants[v].name, threads, Median(with_rates),
                  Median(without_rates), Median(ratios));
    }
  }
  while (!servers.empty()) servers.pop_back();  // those made later hold what the ones before wait for
  std::printf("median of %d pairs; goal: at least %.2f\n", pairs, kGoal);
  return EXIT_SUCCESS;
}
