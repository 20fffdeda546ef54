// The forms of an address, and several servers behind one.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/spread.h"
#include "client/lib/target.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Target, ClassifiesAddresses) {
  struct Case {
    std::string server, uri;
    bool unix_socket, loopback, several;
  };
  for (const Case& each : std::vector<Case>{
           {"unix:/run/s", "unix:/run/s", true, true, false},
           {"unix-abstract:s", "unix-abstract:s", true, true, false},
           {"localhost:1", "localhost:1", false, true, false},
           {"LocalHost:1", "LocalHost:1", false, true, false},
           {"localhost.evil.example:1", "localhost.evil.example:1", false, false, true},
           {"evil-localhost:1", "evil-localhost:1", false, false, true},
           {"127.0.0.2:1", "127.0.0.2:1", false, true, false},
           {"[::1]:1", "[::1]:1", false, true, false},
           {"10.0.0.1:1", "10.0.0.1:1", false, false, false},
           {"reduced:1", "reduced:1", false, false, true},
           {"dns:///reduced:1", "dns:///reduced:1", false, false, true},
           {"dns:localhost:1", "dns:localhost:1", false, true, false},
           {"ipv4:127.0.0.1:1", "ipv4:127.0.0.1:1", false, true, false},
           {"ipv4:127.0.0.1:1,10.0.0.1:1", "ipv4:127.0.0.1:1,10.0.0.1:1", false, false, true},
           {"127.0.0.1:1,127.0.0.2:2", "ipv4:127.0.0.1:1,127.0.0.2:2", false, true, true},
           {"10.0.0.1:1,127.0.0.2:2", "ipv4:10.0.0.1:1,127.0.0.2:2", false, false, true},
           {"[::1]:1,[::2]:2", "ipv6:[::1]:1,[::2]:2", false, false, true},
       }) {
    const absl::StatusOr<Target> target = ParseTarget(each.server);
    ASSERT_TRUE(target.ok()) << each.server << ": " << target.status();
    EXPECT_EQ(target->uri, each.uri);
    EXPECT_EQ(target->unix_socket, each.unix_socket) << each.server;
    EXPECT_EQ(target->loopback, each.loopback) << each.server;
    EXPECT_EQ(target->several, each.several) << each.server;
  }
  EXPECT_THAT(std::string(ParseTarget("127.0.0.1:1,[::1]:2").status().message()),
              HasSubstr("all have an IPv4 address"));
  EXPECT_THAT(std::string(ParseTarget("127.0.0.1:1,name.invalid:2").status().message()), HasSubstr("name.invalid"));
}

TEST(Target, UnixSocketPaths) {
  EXPECT_EQ(UnixSocketPath("unix:/run/s"), "/run/s");
  EXPECT_EQ(UnixSocketPath("unix:///run/s"), "/run/s");
  EXPECT_EQ(UnixSocketPath("unix-abstract:s"), std::nullopt);
  EXPECT_EQ(UnixSocketPath("localhost:1"), std::nullopt);
}

TEST(CutForServers, GivesEachServerSeveralPartsOfWholeBlocks) {
  constexpr std::int64_t kMiB = 1 << 20;
  EXPECT_THAT(CutForServers(32 * kMiB - 1, 2), ElementsAre(0, 32 * kMiB - 1));
  EXPECT_THAT(CutForServers(0, 2), ElementsAre(0, 0));
  struct Case {
    std::int64_t bytes;
    int at_once;
    std::int64_t part_bytes;
  };
  for (const Case& each : {Case{32 * kMiB, 2, 4 * kMiB}, {96 * kMiB + 2, 2, 12 * kMiB}, {1024 * kMiB, 2, 64 * kMiB}}) {
    const std::vector<std::int64_t> cuts = CutForServers(each.bytes, each.at_once);
    EXPECT_EQ(cuts.size() - 1, (each.bytes + each.part_bytes - 1) / each.part_bytes);
    EXPECT_EQ(cuts.back(), each.bytes);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      EXPECT_EQ(cuts[i], static_cast<std::int64_t>(i) * each.part_bytes);
    }
  }
}

// Equal servers, which count the calls that they get.
class TargetsTest : public ::testing::Test {
 protected:
  struct Server {
    FakeService service;
    std::atomic<int> reduces = 0, streams = 0, parts = 0, puts = 0, lists = 0;
    int port = 0;
    std::unique_ptr<grpc::Server> server;

    void Stop() {
      if (server != nullptr) server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
      server.reset();
    }
  };

  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    for (int i = 0; i < 3; ++i) {
      Server& server = servers_.emplace_back();
      server.service.on_reduce = [&server](const v1::ReduceRequest&, v1::ReduceResponse* response) {
        ++server.reduces;
        response->set_count(3);
        return grpc::Status::OK;
      };
      server.service.on_stream = [this, i, &server](const v1::ReduceStreamRequest& request) {
        if (request.has_header()) ++server.streams;
        if (request.has_stream_part()) ++server.parts;
        return EndingOf(i, request);
      };
      server.service.spoil = [](v1::ReduceResponse* response) {  // of a part
        if (response->count() == kPartElements) *response->mutable_state() = SumState(kPartElements);
      };
      server.service.on_put = [&server](const v1::PutArrayRequest& request) {
        if (request.has_header()) ++server.puts;
        return grpc::Status::OK;
      };
      server.service.put.set_id("an-id");
      server.service.on_list = [&server](const v1::ListArraysRequest&, v1::ListArraysResponse*) {
        ++server.lists;
        return grpc::Status::OK;
      };
      grpc::ServerBuilder builder;
      builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &server.port);
      if (i == 0) builder.AddListeningPort("unix:" + folder_ + "/socket", grpc::InsecureServerCredentials());
      builder.RegisterService(&server.service);
      server.server = builder.BuildAndStart();
      ASSERT_NE(server.server, nullptr);
    }
  }
  void TearDown() override {
    for (Server& server : servers_) server.Stop();
    std::filesystem::remove_all(folder_);
  }

  std::string List(const std::string& host) const {
    std::string list;
    for (const Server& server : servers_) absl::StrAppend(&list, list.empty() ? "" : ",", host, ":", server.port);
    return list;
  }

  template <class Count>
  std::vector<int> Counts(Count count) const {
    std::vector<int> counts;
    for (const Server& server : servers_) counts.push_back(server.*count);
    return counts;
  }

  // How a stream of so many elements ends at a server, once it has begun.
  using Ending = std::function<grpc::Status(int server, std::int64_t count)>;

  // From now on the servers answer streams, with the state of zeros if it is asked for, but for those that `ending`
  // ends.
  void SeeStreams(Ending ending = [](int, std::int64_t) { return grpc::Status::OK; }) {
    {
      const absl::MutexLock lock(&mutex_);
      ending_ = std::move(ending);
    }
    for (std::size_t i = 0; i < servers_.size(); ++i) servers_[i].streams = 0;
  }
  grpc::Status EndingOf(int server, const v1::ReduceStreamRequest& request) {
    if (!request.has_header()) return grpc::Status::OK;
    const absl::MutexLock lock(&mutex_);
    return ending_(server, request.header().array().shape(0));
  }
  // The client has connections to all servers.
  void AwaitAll(Client& client) {
    const auto connected = [&] {
      const std::vector<int> counts = Counts(&Server::reduces);
      return *std::min_element(counts.begin(), counts.end()) > 0;
    };
    const absl::Time deadline = absl::Now() + kLong;
    while (!connected() && absl::Now() < deadline) ASSERT_TRUE(client.Reduce(array_, {"sum"}).ok());
  }

  static constexpr std::int64_t kPartElements = 1 << 20;

  absl::Mutex mutex_;
  Ending ending_ ABSL_GUARDED_BY(mutex_) = [](int, std::int64_t) { return grpc::Status::OK; };
  const std::vector<std::int32_t> elements_of_large_ = std::vector<std::int32_t>(9 * kPartElements);  // 36 MiB
  const ArrayView large_ = ArrayView::Of(elements_of_large_);
  std::string folder_ = ::testing::TempDir() + "/reduced_XXXXXX";
  std::deque<Server> servers_;
  const std::vector<float> elements_ = {1, 2, 4};
  const ArrayView array_ = ArrayView::Of(std::span<const float>(elements_));
};

TEST_F(TargetsTest, EveryFormOfAnAddressConnects) {
  const int port = servers_[0].port;
  for (const std::string& server :
       {absl::StrCat("127.0.0.1:", port), absl::StrCat("localhost:", port), absl::StrCat("ipv4:127.0.0.1:", port),
        absl::StrCat("dns:127.0.0.1:", port), absl::StrCat("dns:///127.0.0.1:", port),
        absl::StrCat("dns:///localhost:", port), "unix:" + folder_ + "/socket", "unix://" + folder_ + "/socket"}) {
    const auto client = Client::Create({.server = server, .timeout = kLong});
    ASSERT_TRUE(client.ok()) << client.status();
    const absl::StatusOr<Reply> reply = (*client)->Reduce(array_, {"sum"});
    EXPECT_TRUE(reply.ok()) << server << ": " << reply.status();
  }
}

TEST_F(TargetsTest, RequestsAreDistributedOverAList) {
  for (const std::string& list : {List("127.0.0.1"), List("localhost"), "ipv4:" + List("127.0.0.1")}) {
    for (Server& server : servers_) server.reduces = 0;
    const auto client = Client::Create({.server = list, .timeout = kLong});
    ASSERT_TRUE(client.ok()) << client.status();
    const auto all_served = [&] {
      const std::vector<int> counts = Counts(&Server::reduces);
      return *std::min_element(counts.begin(), counts.end()) >= 5;
    };
    const absl::Time deadline = absl::Now() + kLong;
    while (!all_served() && absl::Now() < deadline) ASSERT_TRUE((*client)->Reduce(array_, {"sum"}).ok());
    EXPECT_TRUE(all_served()) << list;
  }
}

TEST_F(TargetsTest, TheOthersServeWhenOneStops) {
  const auto client = Client::Create({.server = List("127.0.0.1"), .timeout = kLong}).value();
  ASSERT_TRUE(client->Reduce(array_, {"sum"}).ok());
  servers_[0].Stop();
  servers_[2].Stop();
  // A call that was on its way to a server that stopped may fail; later ones don't.
  const absl::Time deadline = absl::Now() + kLong;
  for (int served = 0; served < 20 && absl::Now() < deadline;) {
    served = client->Reduce(array_, {"sum"}).ok() ? served + 1 : 0;
  }
  EXPECT_TRUE(client->Reduce(array_, {"sum"}).ok());
  EXPECT_GE(servers_[1].reduces, 20);
}

TEST_F(TargetsTest, CallsAboutResidentArraysStayAtOneServer) {
  const auto client = Client::Create({.server = List("127.0.0.1"), .timeout = kLong}).value();
  for (int i = 0; i < 10; ++i) {
    absl::StatusOr<ResidentArray> array = client->Put(array_);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_TRUE(client->Reduce(*array, {"sum"}).ok());
    EXPECT_TRUE(client->ListArrays().ok());
    array->Release();
  }
  for (const std::vector<int>& counts : {Counts(&Server::puts), Counts(&Server::reduces), Counts(&Server::lists)}) {
    EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), 10);
    EXPECT_EQ(std::count(counts.begin(), counts.end(), 0), 2);
  }
}

TEST_F(TargetsTest, ALargeArrayIsSpreadAsArraysOfTheirOwn) {
  const auto client = Client::Create({.server = List("127.0.0.1"), .timeout = kLong}).value();
  AwaitAll(*client);
  const absl::StatusOr<Reply> reply = client->Reduce(large_, {"sum"}, {.return_state = true});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->count, large_.shape[0]);
  EXPECT_EQ(reply->via, "stream");
  EXPECT_EQ(reply->timing.bytes, 4 * reply->count);
  EXPECT_EQ(reply->attempts, 1);
  EXPECT_FALSE(reply->state.empty());
  EXPECT_THAT(reply->execution.reason, HasSubstr("in 9 parts, over the servers of the address"));
  EXPECT_THAT(Counts(&Server::streams), Each(3));  // in turn
  EXPECT_THAT(Counts(&Server::parts), Each(0));    // of an upload, which one server has to see
  // One that has to be read in order, and a small one, are not.
  ArrayView in_order = large_;
  in_order.reader = {.read =
                         [](std::int64_t, char* to, std::int64_t bytes) {
                           std::fill_n(to, bytes, '\0');
                           return absl::OkStatus();
                         },
                     .in_order = true};
  ASSERT_TRUE(client->Reduce(in_order, {"sum"}).ok());
  const ArrayView small{large_.data, "u8", {(32 << 20) - 1}};
  ASSERT_TRUE(client->Reduce(small, {"sum"}).ok());
  const std::vector<int> streams = Counts(&Server::streams);
  EXPECT_EQ(streams[0] + streams[1] + streams[2], 11);
}

TEST_F(TargetsTest, PartsSayHowFarTheyHaveComeTogether) {
  const auto client = Client::Create({.server = List("127.0.0.1"), .timeout = kLong}).value();
  std::vector<std::int64_t> seen;
  const auto on_progress = [&](std::int64_t sent, std::int64_t total) {
    EXPECT_EQ(total, 4 * large_.shape[0]);
    seen.push_back(sent);
  };
  ASSERT_TRUE(client->Reduce(large_, {"sum"}, {.on_progress = on_progress}).ok());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 4 * large_.shape[0]);
}

TEST_F(TargetsTest, APartWhoseServerIsGoneIsSentToAnother) {
  const auto client = Client::Create({.server = List("127.0.0.1"), .timeout = kLong}).value();
  AwaitAll(*client);
  SeeStreams([first = true](int server, std::int64_t) mutable {
    if (server != 1 || !std::exchange(first, false)) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  const absl::StatusOr<Reply> reply = client->Reduce(large_, {"sum"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->attempts, 2);
  EXPECT_EQ(reply->count, large_.shape[0]);
  // Not for ever, and not if it is refused.
  SeeStreams([](int, std::int64_t) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"); });
  const absl::Status gone = client->Reduce(large_, {"sum"}).status();
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("tried 4 times"));
  SeeStreams([](int, std::int64_t) { return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no"); });
  EXPECT_EQ(client->Reduce(large_, {"sum"}).status(), absl::PermissionDeniedError("no"));
}

TEST_F(TargetsTest, PartsEndWithTheCall) {
  for (Server& server : servers_) server.service.answer = false;
  const auto client = Client::Create({.server = List("127.0.0.1"), .timeout = kLong}).value();
  const absl::Status late = client->Reduce(large_, {"sum"}, {.timeout = absl::Milliseconds(100)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  const absl::Status interrupted = client->Reduce(large_, {"sum"}, {.interrupted = [] { return true; }}).status();
  EXPECT_TRUE(absl::IsCancelled(interrupted)) << interrupted;
}

}  // namespace
}  // namespace reduced::client
