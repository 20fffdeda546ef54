// The server that targets send bytes to, in this process.
#ifndef REDUCED_TESTS_FUZZ_SERVER_H_
#define REDUCED_TESTS_FUZZ_SERVER_H_

#include <string>

#include "spdlog/spdlog.h"
#include "tests/fuzz/fuzz.h"
#include "tests/service/test_server.h"

namespace reduced::fuzz {

inline server::TestServer& TheServer() {
  static server::TestServer* const server = [] {
    spdlog::set_level(spdlog::level::off);  // it warns of every bad call
    server::ServerOptions options;
    options.limits.max_elements = 1 << 20;
    options.limits.max_ladder_bytes = 1 << 20;
    return new server::TestServer(options);
  }();
  return *server;
}

// A server that still answers, and answers right.
inline void RequireServing() {
  v1::ReduceResponse response;
  const grpc::Status status = TheServer().client().Reduce(server::SmallSum(), &response, absl::Seconds(20));
  Require(status.ok(), "the server serves", status.error_message());
  Require(response.results_size() == 1 && server::Text(response.results(0).value()) == "f64:10", "the server is right");
}

}  // namespace reduced::fuzz

#endif  // REDUCED_TESTS_FUZZ_SERVER_H_
