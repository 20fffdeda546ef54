// Memory of a GPU of this process, reduced by the daemon where it is, through reduced/cuda.h. Needs a GPU.
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
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

class ShareDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return;
    if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
    GTEST_SKIP() << "no GPU";
  }
};

TEST_F(ShareDeviceTest, IsReducedWhereItIs) {
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

template <class Function>
Function Find(const char* name) {
  return cuda_internal::DriverFunction<Function>(name, 10020);
}
#define DRIVER(function) Find<decltype(&function)>(#function)

// Physical allocations of cuMemCreate on device 0, mapped one behind the other as PyTorch's expandable segments are.
class Pieces {
 public:
  static constexpr std::size_t kUnit = std::size_t{2} << 20;

  // Of so many units each. `shareable`: made with file descriptors as handles.
  explicit Pieces(const std::vector<std::size_t>& units, bool shareable = true) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);  // the device is current
    for (const std::size_t each : units) bytes_ += each * kUnit;
    EXPECT_EQ(DRIVER(cuMemAddressReserve)(&base_, bytes_, 0, 0, 0), CUDA_SUCCESS);
    CUdeviceptr next = base_;
    for (const std::size_t each : units) {
      CUmemGenericAllocationHandle handle = 0;
      EXPECT_EQ(DRIVER(cuMemCreate)(&handle, each * kUnit, &properties, 0), CUDA_SUCCESS);
      EXPECT_EQ(DRIVER(cuMemMap)(next, each * kUnit, 0, handle, 0), CUDA_SUCCESS);
      EXPECT_EQ(DRIVER(cuMemRelease)(handle), CUDA_SUCCESS);
      next += each * kUnit;
    }
    const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(DRIVER(cuMemSetAccess)(base_, bytes_, &access, 1), CUDA_SUCCESS);
  }
  ~Pieces() { Free(); }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  void Free() {
    if (base_ == 0) return;
    EXPECT_EQ(DRIVER(cuMemUnmap)(base_, bytes_), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuMemAddressFree)(base_, bytes_), CUDA_SUCCESS);
    base_ = 0;
  }

  std::int32_t* data() const { return reinterpret_cast<std::int32_t*>(base_); }
  std::int64_t count() const { return static_cast<std::int64_t>(bytes_ / sizeof(std::int32_t)); }
  // Fills them with numbers, which are returned.
  std::vector<std::int32_t> Fill() const {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(count()));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<std::int32_t>(i * 2'654'435'761 % 1'000'003);
    EXPECT_EQ(cudaMemcpy(data(), numbers.data(), bytes_, cudaMemcpyHostToDevice), cudaSuccess);
    return numbers;
  }

 private:
  CUdeviceptr base_ = 0;
  std::size_t bytes_ = 0;
};

// What the daemon, another process, answers is what the CPU does here.
TEST_F(ShareDeviceTest, PiecesAreReducedWhereTheyAre) {
  Pieces pieces({1, 3, 1, 2});
  const std::vector<std::int32_t> numbers = pieces.Fill();
  constexpr auto kUnit = static_cast<std::int64_t>(Pieces::kUnit / sizeof(std::int32_t));
  cudaEvent_t event;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event), cudaSuccess);
  const Daemon daemon;
  const auto client = Client::Create({.server = daemon.address(), .timeout = kPatience}).value();
  const struct {
    std::int64_t first, count;
  } ranges[] = {
      {0, 7 * kUnit},              // all
      {kUnit / 2 + 1, kUnit / 4},  // within a piece
      {kUnit / 2, 6 * kUnit},      // from the middle of the first to the middle of the last
      {4 * kUnit - 1, 2},          // a boundary
      {4 * kUnit, 3 * kUnit},      // from a boundary on
      {7 * kUnit - 1, 1},          // the last number
  };
  for (const auto& [first, count] : ranges) {
    SCOPED_TRACE(testing::Message() << count << " from " << first << " on");
    const auto begin = numbers.begin() + first;
    for (const cudaEvent_t each : {event, cudaEvent_t{}}) {
      const absl::StatusOr<Region> region = ShareDevice(*client, pieces.data() + first, count * 4, each);
      ASSERT_TRUE(region.ok()) << region.status();
      const absl::StatusOr<Reply> reply = client->Reduce(region->Array("i32", {count}), {"sum", "max", "argmax"});
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(std::get<std::int64_t>(reply->results[0].value->value),
                std::accumulate(begin, begin + count, std::int64_t{0}));
      const auto most = std::max_element(begin, begin + count);
      EXPECT_EQ(std::get<std::int64_t>(reply->results[1].value->value), *most);
      EXPECT_EQ(std::get<std::uint64_t>(reply->results[2].value->value), static_cast<std::uint64_t>(most - begin));
      EXPECT_EQ(reply->execution.device, "cuda:0");
      EXPECT_FALSE(reply->timing.host_to_device_us.has_value());
    }
  }
  // Written later; and the memory exists as long as the region, whatever becomes of its mapping here.
  const absl::StatusOr<Region> region = ShareDevice(*client, pieces.data(), pieces.count() * 4);
  ASSERT_TRUE(region.ok()) << region.status();
  ASSERT_EQ(cudaMemset(pieces.data(), 1, static_cast<std::size_t>(pieces.count()) * 4), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int round = 0; round < 2; ++round) {
    const absl::StatusOr<Reply> reply = client->Reduce(region->Array("i32", {pieces.count()}), {"sum"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(std::get<std::int64_t>(reply->results[0].value->value), pieces.count() * 0x01010101);
    pieces.Free();
  }
  cudaEventDestroy(event);
}

// More than the descriptors of a packet.
TEST_F(ShareDeviceTest, ManyPiecesGoInSeveralPackets) {
  const Pieces pieces(std::vector<std::size_t>(300, 1));
  const std::vector<std::int32_t> numbers = pieces.Fill();
  const Daemon daemon;
  const auto client = Client::Create({.server = daemon.address(), .timeout = kPatience}).value();
  {
    const std::int64_t count = pieces.count() - 1;
    const absl::StatusOr<Region> region = ShareDevice(*client, pieces.data() + 1, count * 4);
    ASSERT_TRUE(region.ok()) << region.status();
    const absl::StatusOr<Reply> reply = client->Reduce(region->Array("i32", {count}), {"sum"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(std::get<std::int64_t>(reply->results[0].value->value),
              std::accumulate(numbers.begin() + 1, numbers.end(), std::int64_t{0}));
  }
  EXPECT_EQ(client->GetServerInfo()->usage.regions, 0);
}

// The real driver refuses what isn't its memory or has another size, and the daemon goes on.
TEST_F(ShareDeviceTest, WhatIsNoPieceIsRefused) {
  const Pieces pieces({1, 1}), others({1}, /*shareable=*/false);
  pieces.Fill();
  void* pooled = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pooled, 1 << 20, nullptr), cudaSuccess);
  const Daemon daemon;
  const auto client = Client::Create({.server = daemon.address(), .timeout = kPatience}).value();
  const void* const not_shareable[] = {others.data(), pooled};
  for (const void* const each : not_shareable) {
    const absl::Status status = ShareDevice(*client, each, 1024).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("CUDA can't share"), std::string::npos) << status;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ShareDevice(*client, pieces.data(), pieces.count() * 4 + 1).status()));
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  const cuda_internal::Driver driver;
  const auto piece = [&](std::size_t) -> absl::StatusOr<int> {
    return cuda_internal::ExportPiece(driver, reinterpret_cast<CUdeviceptr>(pieces.data()), /*wanted=*/true);
  };
  const auto file = [](const char* path) {
    return [path](std::size_t) -> absl::StatusOr<int> { return open(path, O_RDWR | O_CLOEXEC); };
  };
  constexpr auto kBytes = static_cast<std::int64_t>(Pieces::kUnit);
  const struct {
    std::vector<std::int64_t> sizes;
    std::function<absl::StatusOr<int>(std::size_t)> export_piece;
    const char* why;
  } cases[] = {
      {{2 * kBytes}, piece, "pieces[0]: got 4194304 bytes; allowed: the size of its memory"},
      {{kBytes + 4096}, piece, "pieces[0]: got 2101248 bytes; allowed: multiples of"},
      {{kBytes, std::int64_t{1} << 60}, piece, "more bytes together than the GPU has"},
      {{kBytes}, file("/dev/null"), "a descriptor that CUDA can't import"},
      {{kBytes}, file("/dev/nvidiactl"), "a descriptor that CUDA can't import"},
      {{kBytes},
       [](std::size_t) -> absl::StatusOr<int> { return memfd_create("x", MFD_CLOEXEC); },
       "a descriptor that CUDA can't import"},
      {{kBytes}, file("/proc/self/comm"), "got a file on disk"},
  };
  for (const auto& [sizes, export_piece, why] : cases) {
    SCOPED_TRACE(why);
    const absl::Status status =
        client
            ->ShareDevice({.device_uuid = std::string(properties.uuid.bytes, sizeof(properties.uuid.bytes)),
                           .bytes = 1024,
                           .pieces = sizes,
                           .export_piece = export_piece})
            .status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find(why), std::string::npos) << status;
    EXPECT_TRUE(ShareDevice(*client, pieces.data(), pieces.count() * 4).ok()) << "the daemon goes on";
  }
  EXPECT_EQ(client->GetServerInfo()->usage.regions, 0);
  EXPECT_EQ(cudaFreeAsync(pooled, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace reduced::client
