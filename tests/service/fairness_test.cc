// Callers without identities are told apart by their peers: they take turns, and each has its quota.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/lanes.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kStranger = 12345;

// An engine with one lane, where everything waits until OpenLane(), and which notes whose turn it was.
class OneLaneEngine final : public SharedEngine {
 public:
  ~OneLaneEngine() override { OpenLane(); }

  void Reduce(Job job, Done done) override {
    const std::uint64_t caller = job.caller;
    lanes_.Submit(
        [this, job = std::move(job), done = std::move(done)](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(lane.status());
          open_.WaitForNotificationWithTimeout(kPatience);
          {
            const absl::MutexLock lock(&mutex_);
            turns_.push_back(job.caller);
          }
          CpuEngine().Reduce(std::move(job), std::move(done));
        },
        {.expected_us = 1000, .caller = caller});
  }
  absl::Status CheckRoom(std::uint64_t caller, absl::Time deadline) const override {
    return lanes_.CheckRoom(caller, deadline);
  }

  void OpenLane() {
    if (!open_.HasBeenNotified()) open_.Notify();
  }
  // Until one runs and so many wait. False after kPatience.
  bool AwaitWaiting(int count) const {
    return Becomes(kPatience, [&] { return lanes_.busy() == 1 && lanes_.queue_length() == count; });
  }
  int waiting() const { return lanes_.queue_length(); }
  std::vector<std::uint64_t> turns() {
    const absl::MutexLock lock(&mutex_);
    return turns_;
  }

 private:
  absl::Notification open_;
  absl::Mutex mutex_;
  std::vector<std::uint64_t> turns_ ABSL_GUARDED_BY(mutex_);
  Lanes lanes_{/*lanes=*/1, /*queue_limit=*/20};  // last: its thread uses the rest
};

TEST(FairnessTest, WhoFloodsWaitsForItself) {
  const TempDir dir;
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", dir / "socket"), "127.0.0.1:0"};
  options.metrics_listen.clear();
  auto owned = std::make_unique<OneLaneEngine>();
  OneLaneEngine& engine = *owned;
  const auto server = Server::Start(options, OnlyEngine(std::move(owned)));
  ASSERT_TRUE(server.ok()) << server.status();
  const TestClient flooder((*server)->addresses()[0]);
  const TestClient other((*server)->addresses()[1]);

  std::vector<std::unique_ptr<PendingReduce>> flood;
  for (int i = 0; i < 21; ++i) {
    flood.push_back(std::make_unique<PendingReduce>(flooder));
    ASSERT_TRUE(engine.AwaitWaiting(i)) << "one runs, " << engine.waiting() << " wait, not " << i;
  }
  PendingReduce beyond(flooder);  // the queue is full
  EXPECT_EQ(beyond.Join().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  PendingReduce honest(other);  // gets the place of the newest
  const grpc::Status displaced = flood.back()->Join();
  EXPECT_EQ(displaced.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(displaced.error_message(), HasSubstr("make room for another caller"));
  EXPECT_EQ(flood.back()->context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1U);
  EXPECT_TRUE(engine.AwaitWaiting(20));
  engine.OpenLane();
  EXPECT_TRUE(honest.Join().ok());
  flood.pop_back();
  for (const auto& each : flood) EXPECT_TRUE(each->Join().ok());
  const std::vector<std::uint64_t> turns = engine.turns();
  ASSERT_EQ(turns.size(), 21U);
  EXPECT_NE(turns[1], turns[0]) << "the honest one is next";
  for (std::size_t i = 2; i < turns.size(); ++i) EXPECT_EQ(turns[i], turns[0]);
}

// Opens a session, on which one request has been answered, and calls `then` while it is open.
grpc::Status WithSession(const TestClient& client, const std::function<void()>& then) {
  const auto stub = v1::Reduction::NewStub(client.channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto session = stub->Session(&context);
  v1::SessionRequest request;
  *request.mutable_reduce() = SmallSum();
  v1::SessionResponse response;
  if (session->Write(request) && session->Read(&response)) then();
  session->WritesDone();
  return session->Finish();
}

TEST(FairnessTest, QuotasOfPeers) {
  ServerOptions options;
  options.security.max_identity_sessions = 1;
  const TestServer server(options);
  bool open = false;
  EXPECT_TRUE(WithSession(server.client(), [&] {
                open = true;
                const grpc::Status second = WithSession(server.client(), [] {});
                EXPECT_EQ(second.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
                EXPECT_THAT(second.error_message(), HasSubstr(absl::StrCat("uid ", geteuid(), " has 1 open sessions")));
              }).ok());
  EXPECT_TRUE(open);
}

// Connections to a Unix socket by three users. gRPC knows nothing of them.
TEST(FairnessTest, UsersOfAUnixSocketAreToldApart) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ServerOptions options;
  options.unix_socket_mode = "0666";
  options.security.max_identity_sessions = 1;
  const TestServer server(options);
  const std::string path = server.address().substr(5);
  ASSERT_EQ(chmod(std::filesystem::path(path).parent_path().c_str(), 0755), 0);
  const auto connect = [&](uid_t user) {
    EXPECT_EQ(seteuid(user), 0);
    auto client = std::make_unique<TestClient>(server.address());
    EXPECT_TRUE(client->channel()->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience)));
    EXPECT_EQ(seteuid(0), 0);
    return client;
  };
  const auto root = connect(0);
  const auto stranger = connect(kStranger);
  const auto again = connect(kStranger);
  const auto third = connect(kStranger + 1);
  int opened = 0;
  const auto refused = [&] {
    ++opened;
    const grpc::Status second = WithSession(*again, [] {});
    EXPECT_EQ(second.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(second.error_message(), HasSubstr(absl::StrCat("uid ", kStranger, " has 1 open sessions; allowed: 1")));
  };
  EXPECT_TRUE(WithSession(*root, [&] {
                EXPECT_TRUE(WithSession(*stranger, [&] { EXPECT_TRUE(WithSession(*third, refused).ok()); }).ok());
              }).ok());
  EXPECT_EQ(opened, 1);
}

}  // namespace
}  // namespace reduced::server
