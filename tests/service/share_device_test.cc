// Memory of a GPU of this process, reduced by the daemon where it is, through reduced/cuda.h. Needs a GPU.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "reduced/cuda.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// `reduced` on a Unix socket of its own, from the build or, where this program is installed, beside it.
class Daemon {
 public:
  Daemon() {
    char folder[] = "/tmp/reduced_test_XXXXXX";
    folder_ = mkdtemp(folder);
    const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    std::string program = here / "../../bin/reduced";
    if (!std::filesystem::exists(program)) program = REDUCED_DAEMON;
    std::string listen = "--listen=unix:" + folder_ + "/socket";
    std::string ready = "--ready_file=" + folder_ + "/ready";
    char* const argv[] = {program.data(), listen.data(), ready.data(), nullptr};
    EXPECT_EQ(posix_spawn(&process_, program.c_str(), nullptr, nullptr, argv, environ), 0) << program;
    const absl::Time end = absl::Now() + kPatience;
    while (!std::filesystem::exists(folder_ + "/ready") && absl::Now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  ~Daemon() {
    kill(process_, SIGTERM);
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, 0), process_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    std::filesystem::remove_all(folder_);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  std::string address() const { return "unix:" + folder_ + "/socket"; }

 private:
  std::string folder_;
  pid_t process_ = -1;
};

TEST(ShareDevice, IsReducedWhereItIs) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
    GTEST_SKIP() << "no GPU";
  }
  constexpr std::int64_t kCount = 1'000'000;
  std::vector<float> ones(kCount, 1.0F);
  ones[7] = 5;
  float* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), kCount * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(memory, ones.data(), kCount * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  cudaEvent_t event;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event), cudaSuccess);

  const Daemon daemon;
  const auto client = Client::Create({.server = daemon.address(), .timeout = kPatience}).value();
  {
    // From the middle of the allocation on, with an event and without.
    for (const cudaEvent_t each : {event, cudaEvent_t{}}) {
      const absl::StatusOr<Region> region = ShareDevice(*client, memory + 4, (kCount - 4) * 4, each);
      ASSERT_TRUE(region.ok()) << region.status();
      const absl::StatusOr<Reply> reply = client->Reduce(region->Array("f32", {kCount - 4}), {"sum", "argmax"});
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(std::get<double>(reply->results[0].value->value), kCount);
      EXPECT_EQ(std::get<std::uint64_t>(reply->results[1].value->value), 3U);
      EXPECT_EQ(reply->execution.device, "cuda:0");
      EXPECT_FALSE(reply->timing.host_to_device_us.has_value());
      // The CPU can't reach it.
      EXPECT_TRUE(absl::IsFailedPrecondition(
          client->Reduce(region->Array("f32", {kCount - 4}), {"sum"}, {.engine = "cpu"}).status()));
      EXPECT_TRUE(absl::IsOutOfRange(client->Reduce(region->Array("f32", {kCount}), {"sum"}).status()));
    }
  }
  EXPECT_EQ(client->GetServerInfo()->usage.regions, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ShareDevice(*client, ones.data(), 4).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ShareDevice(*client, memory, kCount * 4 + 1).status()));
  cudaEventDestroy(event);
  cudaFree(memory);
}

}  // namespace
}  // namespace reduced::client
