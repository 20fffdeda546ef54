// A server's life: listeners, ready file, health, reflection, deadlines, cancellation, a full queue, draining.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/support/runs.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ListenTest, TcpAndUnixWithReadyFile) {
  const TempDir dir;
  ServerOptions options;
  const std::string unix_address = absl::StrCat("unix:", dir / "socket");
  options.listen = {"127.0.0.1:0", unix_address, "[::1]:0"};
  const bool has_ipv6 = absl::StrContains(ReadFile("/proc/net/if_inet6"), "00000000000000000000000000000001 ");
  if (!has_ipv6) options.listen.pop_back();
  options.ready_file = dir / "ready";
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, SharedEngines());
  ASSERT_TRUE(server.ok()) << server.status();

  const std::vector<std::string> addresses = (*server)->addresses();
  ASSERT_EQ(addresses.size(), options.listen.size());
  EXPECT_THAT(addresses[0], ContainsRegex("^127\\.0\\.0\\.1:[1-9][0-9]*$"));
  EXPECT_EQ(addresses[1], unix_address);
  const std::vector<std::string> ready = absl::StrSplit(ReadFile(options.ready_file), '\n', absl::SkipEmpty());
  EXPECT_EQ(ready, addresses);

  for (const std::string& address : addresses) {
    v1::ReduceResponse response;
    const grpc::Status status = TestClient(address).Reduce(SmallSum(), &response);
    EXPECT_TRUE(status.ok()) << address << ": " << status.error_message();
  }
  (*server)->Shutdown(absl::Seconds(10));
  EXPECT_FALSE(std::filesystem::exists(options.ready_file));
  EXPECT_FALSE(std::filesystem::exists(dir / "socket"));
}

TEST(ListenTest, BusyAddressesAreErrors) {
  const TempDir dir;
  ServerOptions options;
  options.listen = {"127.0.0.1:0", absl::StrCat("unix:", dir / "socket")};
  const absl::StatusOr<std::unique_ptr<Server>> first = Server::Start(options, SharedEngines());
  ASSERT_TRUE(first.ok()) << first.status();
  for (const std::string& address : (*first)->addresses()) {
    options.listen = {address};
    options.ready_file = dir / "ready";
    const absl::Status status = Server::Start(options, SharedEngines()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(address), ContainsRegex("Address already in use|another server is listening")));
    EXPECT_FALSE(std::filesystem::exists(options.ready_file));
    v1::ReduceResponse response;  // the first one wasn't disturbed
    EXPECT_TRUE(TestClient(address).Reduce(SmallSum(), &response).ok()) << address;
  }
}

TEST(ListenTest, OfServersThatStartTogetherOneServes) {
  const TempDir dir;
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", dir / "socket")};
  options.metrics_listen.clear();
  for (int round = 0; round < 10; ++round) {
    std::vector<absl::StatusOr<std::unique_ptr<Server>>> servers(4);
    std::vector<std::thread> threads;
    for (auto& server : servers) {
      threads.emplace_back([&] { server = Server::Start(options, SharedEngines()); });
    }
    for (std::thread& thread : threads) thread.join();
    int started = 0;
    for (const auto& server : servers) {
      if (server.ok()) {
        ++started;
      } else {
        EXPECT_THAT(std::string(server.status().message()), HasSubstr("another server is listening there"));
      }
    }
    EXPECT_EQ(started, 1);
    v1::ReduceResponse response;
    EXPECT_TRUE(TestClient(options.listen[0]).Reduce(SmallSum(), &response).ok());
  }
}

TEST(ListenTest, SocketOfADeadServerIsReplaced) {
  const TempDir dir;
  const std::string path = dir / "socket";
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(fd);  // the file stays
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", path)};
  const absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, SharedEngines());
  ASSERT_TRUE(server.ok()) << server.status();
  v1::ReduceResponse response;
  EXPECT_TRUE(TestClient(options.listen[0]).Reduce(SmallSum(), &response).ok());
}

TEST(ListenTest, ASocketThatIsAnothersIsNotRemoved) {
  const TempDir dir;
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", dir / "socket")};
  options.region_socket.clear();
  options.metrics_listen.clear();
  absl::StatusOr<std::unique_ptr<Server>> first = Server::Start(options, SharedEngines());
  ASSERT_TRUE(first.ok()) << first.status();
  std::filesystem::rename(dir / "socket", dir / "moved");
  absl::StatusOr<std::unique_ptr<Server>> second = Server::Start(options, SharedEngines());
  ASSERT_TRUE(second.ok()) << second.status();
  (*first)->Shutdown(absl::Seconds(10));
  v1::ReduceResponse response;
  EXPECT_TRUE(TestClient(options.listen[0]).Reduce(SmallSum(), &response).ok());
  (*second)->Shutdown(absl::Seconds(10));
  EXPECT_FALSE(std::filesystem::exists(dir / "socket"));
}

TEST(ListenTest, EveryInterfaceMeansIPv4AndIPv6) {
  const bool has_ipv6 = absl::StrContains(ReadFile("/proc/net/if_inet6"), "00000000000000000000000000000001 ");
  ServerOptions options;
  options.listen = {"0.0.0.0:0", "[::]:0", "localhost:0"};
  options.security.allow_plaintext = true;
  options.metrics_listen.clear();
  const absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, SharedEngines());
  ASSERT_TRUE(server.ok()) << server.status();
  for (const std::string& address : (*server)->addresses()) {
    const std::string port = address.substr(address.rfind(':'));
    EXPECT_NE(port, ":0");
    for (const std::string host : {"127.0.0.1", "[::1]"}) {
      if (host == "[::1]" && !has_ipv6) continue;
      if (host == "[::1]" && absl::StartsWith(address, "localhost")) continue;  // if /etc/hosts says so
      v1::ReduceResponse response;
      EXPECT_TRUE(TestClient(host + port).Reduce(SmallSum(), &response).ok()) << address << " as " << host;
    }
  }
}

TEST(ListenTest, AddressesThatCanNeverBeBound) {
  const TempDir dir;
  std::ofstream(dir / "file") << "precious";
  ServerOptions options;
  for (const auto& [address, why] : std::vector<std::pair<std::string, std::string>>{
           {absl::StrCat("unix:", dir / "file"), "not a socket"},
           {absl::StrCat("unix:", dir / "nowhere/socket"), "No such file or directory"}}) {
    options.listen = {address};
    const absl::Status status = Server::Start(options, SharedEngines()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << address << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(address), HasSubstr(why)));
  }
  EXPECT_EQ(ReadFile(dir / "file"), "precious");
  options.listen = {"127.0.0.1:0"};
  options.ready_file = dir / "nowhere/ready";
  EXPECT_THAT(std::string(Server::Start(options, SharedEngines()).status().message()),
              AllOf(HasSubstr("--ready_file"), HasSubstr("No such file or directory")));
}

TEST(HealthTest, ServesFromTheStart) {
  TestServer server;
  for (const std::string service : {"", "reduced.v1.Reduction"}) {
    int status = 0;
    EXPECT_TRUE(server.client().Health(service, &status).ok());
    EXPECT_EQ(status, kServing) << service;
  }
  int status = 0;
  EXPECT_EQ(server.client().Health("no.such.Service", &status).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(ReflectionTest, ListsTheService) {
  TestServer server;
  grpc::GenericStub stub(server.client().channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  grpc::CompletionQueue queue;
  const auto call =
      stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;  // ends with the deadline of the call
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(step());
  const std::string list_services = {0x3a, 0x00};  // ServerReflectionRequest{list_services: ""}
  const grpc::Slice slice(list_services);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
  ASSERT_TRUE(step());
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  ASSERT_TRUE(step());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(reply.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& each : slices) bytes.append(reinterpret_cast<const char*>(each.begin()), each.size());
  EXPECT_THAT(bytes, AllOf(HasSubstr("reduced.v1.Reduction"), HasSubstr("grpc.health.v1.Health")));
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(step());
  queue.Shutdown();
  EXPECT_FALSE(step());
}

TEST(DeadlineTest, OneMillisecondOnALargeArray) {
  TestServer server;
  const std::vector<double> elements(test::kSlowBuild ? 1 << 20 : 7 << 20, 1.0);
  const v1::ReduceRequest large = RequestOf<double>(v1::DTYPE_F64, elements, {v1::OP_VAR, v1::OP_PROD, v1::OP_ARGMAX});
  v1::ReduceResponse response;
  EXPECT_EQ(server.client().Reduce(large, &response, absl::Milliseconds(1)).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  const grpc::Status status = server.client().Reduce(large, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(DeadlineTest, ReachesTheEngineAndCancelsThere) {
  HeldServer server(4);
  grpc::ClientContext context;
  SetContextDeadline(&context, absl::Milliseconds(50));
  v1::ReduceResponse response;
  const grpc::Status status = server->client().Reduce(&context, SmallSum(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  if (server.engine().AwaitHeld(1, absl::Seconds(5))) {  // else it was too late before the engine saw it: fine as well
    EXPECT_TRUE(AwaitTrue(*server.engine().cancelled()));
  }
}

TEST(CancelTest, ClientThatGivesUpIsSeenByTheEngine) {
  HeldServer server(4);
  PendingReduce call(server->client());
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag cancelled = server.engine().cancelled();
  EXPECT_FALSE(*cancelled);
  call.context().TryCancel();
  EXPECT_EQ(call.Join().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(AwaitTrue(*cancelled));
}

TEST(CancelTest, ClientThatVanishesIsSeenByTheEngine) {
  HeldServer server(4);
  absl::Notification done;
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const v1::ReduceRequest request = SmallSum();
  v1::ReduceResponse response;
  auto client = std::make_unique<TestClient>(server->address());
  const auto stub = v1::Reduction::NewStub(client->channel());
  stub->async()->Reduce(&context, &request, &response, [&done](const grpc::Status&) { done.Notify(); });
  EXPECT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag cancelled = server.engine().cancelled();
  context.TryCancel();
  client.reset();
  EXPECT_TRUE(AwaitTrue(*cancelled));
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
}

TEST(QueueTest, FullIsAnsweredAtOnceWithAHint) {
  HeldServer server(2);
  PendingReduce first(server->client());
  PendingReduce second(server->client());
  ASSERT_TRUE(server.engine().AwaitHeld(2, kPatience));
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::ReduceResponse response;
  const grpc::Status refused = server->client().Reduce(&context, SmallSum(), &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto hint = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(hint, trailers.end());
  int ms = 0;
  ASSERT_TRUE(absl::SimpleAtoi(std::string(hint->second.data(), hint->second.size()), &ms));
  EXPECT_GE(ms, 1);
  EXPECT_LE(ms, 1000);

  server.engine().Release();
  EXPECT_TRUE(first.Join().ok());
  EXPECT_TRUE(second.Join().ok());
  EXPECT_EQ(Text(first.response().results(0).value()), "f64:10");
}

TEST(DrainTest, RunningFinishNewAreRefusedHealthSaysSo) {
  HeldServer server(4);
  HealthWatch watch(server->client(), "reduced.v1.Reduction");
  EXPECT_EQ(watch.Next(), kServing);
  PendingReduce running(server->client());
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));

  server->server().Drain();
  EXPECT_EQ(watch.Next(), kNotServing);
  for (const std::string service : {"", "reduced.v1.Reduction"}) {
    int status = 0;
    EXPECT_TRUE(server->client().Health(service, &status).ok());
    EXPECT_EQ(status, kNotServing);
  }
  v1::ReduceResponse response;
  const grpc::Status refused = server->client().Reduce(SmallSum(), &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("draining"));

  std::thread shutdown([&server] { server->server().Shutdown(kPatience); });
  server.engine().Release();
  shutdown.join();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_EQ(Text(running.response().results(0).value()), "f64:10");
}

TEST(DrainTest, WhatRunsTooLongIsCancelled) {
  HeldServer server(4);
  PendingReduce running(server->client());
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag cancelled = server.engine().cancelled();
  std::thread shutdown([&server] { server->server().Shutdown(absl::Milliseconds(1)); });
  EXPECT_TRUE(AwaitTrue(*cancelled));
  server.engine().Release();
  shutdown.join();
  EXPECT_FALSE(running.Join().ok());
}

TEST(DrainTest, IdleServerStopsAtOnce) {
  TestServer server;
  const absl::Time start = absl::Now();
  server.server().Shutdown(kPatience);
  EXPECT_LT(absl::Now() - start, kPatience / 2);
  v1::ReduceResponse response;
  EXPECT_EQ(server.client().Reduce(SmallSum(), &response).error_code(), grpc::StatusCode::UNAVAILABLE);
}

#ifndef __SANITIZE_THREAD__  // there is no GOAWAY: see frame_meter.cc
TEST(DismissTest, ClientsLeaveAndWhatRunsIsAnswered) {
  HeldServer server(4);
  PendingReduce running(server->client());
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  server->server().Dismiss();
  grpc::Channel& channel = *server->client().channel();
  EXPECT_TRUE(channel.WaitForStateChange(GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + kPatience)));
  std::thread shutdown([&server] { server->server().Shutdown(kPatience); });
  server.engine().Release();
  EXPECT_TRUE(running.Join().ok());
  shutdown.join();
}

// By clients of gRPC as they are, that know two servers and nothing of health.
TEST(DismissTest, NoCallIsLost) {
  const auto start = [](const std::string& address) {
    ServerOptions options;
    options.listen = {address};
    options.metrics_listen.clear();
    return Server::Start(options, SharedEngines());
  };
  absl::StatusOr<std::unique_ptr<Server>> servers[] = {start("127.0.0.1:0"), start("127.0.0.1:0")};
  ASSERT_TRUE(servers[0].ok() && servers[1].ok());
  const std::string address = (*servers[0])->addresses()[0];
  grpc::ChannelArguments arguments;
  arguments.SetLoadBalancingPolicyName("round_robin");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  std::atomic<bool> ended = false;
  std::atomic<int> answered = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const auto stub = v1::Reduction::NewStub(
          grpc::CreateCustomChannel(absl::StrCat("ipv4:", address, ",", (*servers[1])->addresses()[0]),
                                    grpc::InsecureChannelCredentials(), arguments));
      while (!ended) {
        grpc::ClientContext context;
        SetContextDeadline(&context);
        v1::ReduceResponse response;
        const grpc::Status status = stub->Reduce(&context, SmallSum(), &response);
        EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
        ++answered;
      }
    });
  }
  for (int i = 0; i < 5; ++i) {
    for (const int before = answered; answered < before + 200;) absl::SleepFor(absl::Milliseconds(1));
    (*servers[0])->Shutdown(kPatience);
    servers[0] = start(address);
    EXPECT_TRUE(servers[0].ok()) << servers[0].status();
  }
  ended = true;
  for (std::thread& caller : callers) caller.join();
}
#endif

TEST(LogTest, OneLineForEachRequestAtDebug) {
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
    spdlog::set_level(spdlog::level::debug);
    TestServer server;
    v1::ReduceResponse response;
    EXPECT_TRUE(server.client().Reduce(SmallSum(), &response).ok());
    v1::ReduceRequest bad = SmallSum();
    bad.mutable_options()->set_pipeline("a\nb");
    EXPECT_FALSE(server.client().Reduce(bad, &response).ok());
  }  // the server has ended: nothing else writes
  spdlog::set_default_logger(before);
  spdlog::set_level(spdlog::level::info);
  EXPECT_THAT(lines.str(),
              ContainsRegex("peer=unix:.* dtype=f32 count=4 ops=sum status=OK engine=cpu total_us=[0-9.]+"));
  EXPECT_THAT(lines.str(), ContainsRegex("status=INVALID_ARGUMENT total_us=[0-9.]+.*: .*a\\\\nb"));
}

}  // namespace
}  // namespace reduced::server
