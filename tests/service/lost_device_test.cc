// A server in a process of its own whose GPU is lost by an illegal address: its health, its callers, its exit status.
// Needs a GPU.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/engine.h"
#include "server/lifetime.h"
#include "server/observe/log.h"
#include "tests/contract/lost_context.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

v1::ReduceRequest SmallSumOnTheGpu() {
  v1::ReduceRequest request = SmallSum();
  request.mutable_options()->set_engine(v1::ENGINE_CUDA);
  return request;
}

// The process: serves until its device is lost, as main() does, and exits.
[[noreturn]] void ServeAndLose() {
  SetUpLog(/*json=*/false, "info");  // to standard error, which the test reads
  const sigset_t stop = BlockStopSignals();
  absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(EngineOptions());
  if (!engines.ok() || !(*engines)->Get(EngineKind::kCuda).ok()) _exit(99);
  TestServer server({}, *std::move(engines));
  HealthWatch watch(server.client(), "");
  if (watch.Next() != kServing) _exit(100);
  v1::ReduceResponse response;
  if (!server.client().Reduce(SmallSumOnTheGpu(), &response).ok()) _exit(101);
  std::thread([&] {
    if (test::LoseContext() != "cudaErrorIllegalAddress") _exit(102);
    v1::ReduceResponse none;
    const grpc::Status status = server.client().Reduce(SmallSumOnTheGpu(), &none);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE || status.error_message().empty()) _exit(103);
    if (watch.Next() != kNotServing) _exit(104);
    absl::SleepFor(absl::Seconds(5));
    _exit(105);  // the 5 seconds are over
  }).detach();
  std::exit(ServeUntilStopped(server.server(), stop, absl::Hours(1), absl::Hours(1)));
}

TEST(LostDeviceServerTest, AnIllegalAddressEndsTheProcessWith2) {
  const absl::StatusOr<int> gpus = CountCudaDevices();
  if (!gpus.ok() || *gpus == 0) {
    if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << gpus.status();
    GTEST_SKIP() << gpus.status();
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the process starts anew, with a context of its own
  EXPECT_EXIT(ServeAndLose(), ::testing::ExitedWithCode(kDeviceFailed), "a device failed.*cudaErrorIllegalAddress");
}

}  // namespace
}  // namespace reduced::server
