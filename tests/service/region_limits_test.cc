// Regions that outlive their connection, how many there may be, and where the region socket is.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/v1/regions.pb.h"
#include "tests/service/held_engine.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

TEST(RegionsInUse, AreReadToTheEndThoughTheirConnectionIsGone) {
  auto engine = std::make_unique<HeldEngine>(4);
  HeldEngine& held = *engine;
  TestServer server({}, OnlyEngine(std::move(engine)));
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  const int files = DescriptorsInUse();
  std::string token;
  auto sharer = std::make_unique<Sharer>(info.region_socket());
  {
    const Descriptor memory(NumbersInMemory(1'000'000));
    token = sharer->Share(memory).token();
  }
  v1::ReduceResponse response;
  grpc::Status status;
  std::thread caller([&] { status = server.client().Reduce(SumOfRegion(token, 1'000'000), &response); });
  ASSERT_TRUE(held.AwaitHeld(1, kPatience));
  sharer.reset();
  const absl::Time end = absl::Now() + kPatience;
  do {
    ASSERT_TRUE(server.client().Info(&info).ok());
  } while (info.usage().regions() != 0 && absl::Now() < end);
  EXPECT_EQ(info.usage().regions(), 0);
  held.Release();
  caller.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Text(response.results(0).value()), SumTo(1'000'000));
  EXPECT_TRUE(DescriptorsReturnTo(files)) << "the region's descriptor stays open";
}

TEST(RegionLimits, RegionsOfAUser) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit lower = limit;
  lower.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  TestServer server;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  Sharer first(info.region_socket());
  Sharer second(info.region_socket());
  const Descriptor memory(NumbersInMemory(10));
  const std::string token = first.Share(memory).token();
  for (int i = 1; i < 50; ++i) ASSERT_EQ((i % 2 == 0 ? first : second).Share(memory).code(), 0) << i;
  const v1::RegionReply refused = second.Share(memory);
  EXPECT_EQ(refused.code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message(), HasSubstr("50 for a user"));
  EXPECT_EQ(first.Release(token).code(), 0);
  EXPECT_EQ(second.Share(memory).code(), 0);
}

TEST(RegionLimits, RegionsOfAConnection) {
  ServerOptions options;
  options.regions.max_regions = 2;
  TestServer server(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  Sharer sharer(info.region_socket());
  const Descriptor memory(NumbersInMemory(10));
  const std::string first = sharer.Share(memory).token();
  EXPECT_EQ(sharer.Share(memory).code(), 0);
  const v1::RegionReply refused = sharer.Share(memory);
  EXPECT_EQ(refused.code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message(), HasSubstr("2 for a connection"));
  EXPECT_EQ(sharer.Release(first).code(), 0);
  EXPECT_EQ(sharer.Share(memory).code(), 0);
}

TEST(RegionLimits, ConnectionsBeyondWaitForTheirTurn) {
  ServerOptions options;
  options.regions.max_connections = 1;
  TestServer server(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  const Descriptor memory(NumbersInMemory(10));
  auto first = std::make_unique<Sharer>(info.region_socket());
  EXPECT_EQ(first->Share(memory).code(), 0);
  Sharer second(info.region_socket());
  second.Send(R"({"shareMemory": {}})", {memory});
  first.reset();
  EXPECT_THAT(second.Receive(), HasSubstr("token"));
}

TEST(RegionLimits, FilesOnDiskIfTheServerAllowsThem) {
  ServerOptions options;
  options.regions.allow_disk_files = true;
  TestServer server(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  Sharer sharer(info.region_socket());
  const Descriptor program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(sharer.Share(program).code(), 0);
}

TEST(RegionSocket, IsClosedAndRemovedWithTheServer) {
  auto server = std::make_unique<TestServer>();
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server->client().Info(&info).ok());
  Sharer sharer(info.region_socket());
  const Descriptor memory(NumbersInMemory(10));
  EXPECT_EQ(sharer.Share(memory).code(), 0);
  server->server().Shutdown(absl::ZeroDuration());
  EXPECT_EQ(sharer.Receive(), "");
  EXPECT_FALSE(std::filesystem::exists(info.region_socket()));
}

TEST(RegionSocket, MayBeElsewhereOrNowhere) {
  TempDir dir;
  ServerOptions options;
  options.region_socket = dir / "elsewhere";
  {
    TestServer server(options);
    Sharer sharer(options.region_socket);
    const Descriptor memory(NumbersInMemory(10));
    EXPECT_EQ(sharer.Share(memory).code(), 0);
    // A second server can't have it too.
    ServerOptions same = options;
    same.listen = {"unix:" + dir / "other"};
    const auto second = Server::Start(same, SharedEngines());
    EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("another server"));
  }
  options.region_socket = "";
  TestServer server(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  EXPECT_EQ(info.region_socket(), "");
}

}  // namespace
}  // namespace reduced::server
