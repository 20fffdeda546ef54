// What metrics, request ids, the log and tokens cost a small request: two servers, one with the first three at their
// defaults and a token for every call, one with all of it off, get the same load in turns of a fraction of a second.
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

// `tokens`: null: none, and nothing is observed.
reduced::ServerProcess StartServer(const TokenFile* tokens) {
  return reduced::ServerProcess([tokens](const std::string& address) {
    const bool observed = tokens != nullptr;
    reduced::ServerOptions options;
    options.listen = {address};
    options.region_socket.clear();
    options.engines.cuda = false;
    options.metrics_listen = observed ? "127.0.0.1:0" : "";
    options.request_ids = observed;
    if (observed) options.security.token_file = tokens->path();
    spdlog::set_level(observed ? spdlog::level::warn : spdlog::level::off);  // but for what it says at start: as info
    auto server = reduced::Server::Start(options);
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
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 60;
  if (pairs < 1) Fail("usage: bench_overhead [pairs of turns, 60 by default]");

  const TokenFile tokens;
  const reduced::ServerProcess observed = StartServer(&tokens);
  const reduced::ServerProcess bare = StartServer(nullptr);
  const auto stub_of = [](const std::string& address) {
    return Reduction::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  };
  const auto with = stub_of(observed.address());
  const auto without = stub_of(bare.address());
  for (const int threads : {1, 8}) {
    RateOf(*with, threads, kToken);  // warm up
    RateOf(*without, threads, "");
    std::vector<double> ratios;
    std::vector<double> with_rates;
    std::vector<double> without_rates;
    for (int i = 0; i < pairs; ++i) {
      // Whoever is first in one pair is second in the next.
      double with_rate = i % 2 == 0 ? RateOf(*with, threads, kToken) : 0;
      const double without_rate = RateOf(*without, threads, "");
      if (i % 2 != 0) with_rate = RateOf(*with, threads, kToken);
      ratios.push_back(with_rate / without_rate);
      with_rates.push_back(with_rate);
      without_rates.push_back(without_rate);
    }
    std::printf(
        "%d clients: %8.0f requests/s with metrics, request ids, log and tokens, %8.0f without; ratio, median of %d "
        "pairs: %.3f (goal: at least %.2f)\n",
        threads, Median(with_rates), Median(without_rates), pairs, Median(ratios), kGoal);
  }
  return EXIT_SUCCESS;
}
