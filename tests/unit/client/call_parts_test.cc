// One array over several connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;

// Streams of parts, whose server sees each part's messages by themselves.
class PartsTest : public CallTest {
 protected:
  // What came of one part.
  struct Seen {
    v1::ReduceStreamRequest first;
    std::string peer;
    std::string elements;
  };

  void SetUp() override {
    CallTest::SetUp();
    client_ = Client::Create({.server = address_, .timeout = kLong, .connections = 3}).value();
    for (std::size_t i = 0; i < large_.size(); ++i) large_[i] = static_cast<std::uint16_t>(i * i >> 7);
    service_.on_part = [this](const std::string& peer, const v1::ReduceStreamRequest& request) {
      const absl::MutexLock lock(&mutex_);
      Seen& seen = seen_[peer];
      if (request.has_header()) {
        seen.first = request;
      } else {
        seen.elements += request.chunk();
      }
      const int index = seen.first.stream_part().index();
      return index == refused_ ? refusal_ : others_;
    };
  }

  std::vector<Seen> SeenInOrder() {
    const absl::MutexLock lock(&mutex_);
    std::vector<Seen> seen;
    for (auto& [peer, part] : seen_) seen.push_back(std::move(part));
    std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) {
      return a.first.stream_part().index() < b.first.stream_part().index();
    });
    seen_.clear();
    return seen;
  }

  // From now on.
  void Answer(int refused, grpc::Status refusal, grpc::Status others) {
    const absl::MutexLock lock(&mutex_);
    refused_ = refused;
    refusal_ = std::move(refusal);
    others_ = std::move(others);
  }

  std::vector<std::uint16_t> large_ = std::vector<std::uint16_t>((33 << 19) + 1);  // 33 MiB and 2 bytes
  const ArrayView view_ = ArrayView::Of(std::span<const std::uint16_t>(large_));
  absl::Mutex mutex_;
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mutex_);  // by peer
  int refused_ ABSL_GUARDED_BY(mutex_) = -1;                  // the part
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  grpc::Status others_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(PartsTest, CutsALargeArrayOneForEachConnection) {
  std::vector<std::string> uploads;
  for (int round = 0; round < 2; ++round) {
    const absl::StatusOr<Reply> reply = client_->Reduce(view_, {"sum"}, {.ddof = 2});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->via, "stream");
    EXPECT_EQ(reply->count, static_cast<std::int64_t>(large_.size()));
    const std::vector<Seen> seen = SeenInOrder();
    ASSERT_EQ(seen.size(), 3);  // as many connections
    std::string elements;
    std::int64_t next = 0;
    for (int i = 0; i < 3; ++i) {
      const v1::ReduceStreamRequest& first = seen[static_cast<std::size_t>(i)].first;
      EXPECT_THAT(first.header().array().shape(), ElementsAre(static_cast<std::int64_t>(large_.size())));
      EXPECT_EQ(first.header().options().ddof(), 2);
      const v1::StreamPart& part = first.stream_part();
      EXPECT_EQ(part.upload(), seen[0].first.stream_part().upload());
      EXPECT_EQ(part.upload().size(), 32);
      EXPECT_EQ(part.parts(), 3);
      EXPECT_EQ(part.index(), i);
      EXPECT_EQ(part.first(), next);
      EXPECT_EQ(part.first() % (2 << 20), 0);  // 4 MiB
      EXPECT_EQ(seen[static_cast<std::size_t>(i)].elements.size(), 2 * static_cast<std::size_t>(part.count()));
      next += part.count();
      elements += seen[static_cast<std::size_t>(i)].elements;
    }
    EXPECT_TRUE(elements == std::string(reinterpret_cast<const char*>(large_.data()), 2 * large_.size()));
    uploads.push_back(seen[0].first.stream_part().upload());
  }
  EXPECT_NE(uploads[0], uploads[1]);
}

TEST_F(PartsTest, SayHowFarTheyHaveComeTogether) {
  const auto bytes = static_cast<std::int64_t>(2 * large_.size());
  std::vector<std::int64_t> seen;  // one thread at a time, or TSan says so
  const auto on_progress = [&](std::int64_t sent, std::int64_t total) {
    EXPECT_EQ(total, bytes);
    seen.push_back(sent);
  };
  ASSERT_TRUE(client_->Reduce(view_, {"sum"}, {.on_progress = on_progress}).ok());
  EXPECT_GE(seen.size(), 34U);  // chunks of 1 MiB
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), bytes);
}

TEST_F(PartsTest, AreCutFrom32MiBOn) {
  ASSERT_TRUE(client_->Reduce(ArrayView{large_.data(), "u8", {32 << 20}}, {"sum"}).ok());
  EXPECT_EQ(SeenInOrder().size(), 3);
  ASSERT_TRUE(client_->Reduce(ArrayView{large_.data(), "u8", {(32 << 20) - 1}}, {"sum"}).ok());
  EXPECT_EQ(SeenInOrder().size(), 1);
}

TEST_F(PartsTest, OneConnectionIsEnoughForAllElse) {
  const ArrayView small{large_.data(), "u8", {(32 << 20) - 1}};
  EXPECT_TRUE(client_->Reduce(small, {"sum"}).ok());
  absl::Notification finished;
  client_->ReduceAsync(view_, {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
    EXPECT_TRUE(reply.ok()) << reply.status();
    finished.Notify();
  });
  ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
  const std::vector<Seen> seen = SeenInOrder();
  ASSERT_EQ(seen.size(), 1);
  EXPECT_FALSE(seen[0].first.has_stream_part());
  EXPECT_EQ(seen[0].elements.size(), (32 << 20) - 1 + 2 * large_.size());
}

TEST_F(PartsTest, TheCauseIsWhatTheCallerGets) {
  const grpc::Status full(grpc::StatusCode::RESOURCE_EXHAUSTED, "no more");
  const grpc::Status aborted(grpc::StatusCode::ABORTED, "part 1 of the upload failed: no more");
  for (int part = 0; part < 3; ++part) {
    Answer(part, full, aborted);
    EXPECT_EQ(client_->Reduce(view_, {"sum"}).status(), absl::ResourceExhaustedError("no more")) << part;
  }
  // The others go on: they are cancelled.
  Answer(1, full, grpc::Status::OK);
  EXPECT_EQ(client_->Reduce(view_, {"sum"}).status(), absl::ResourceExhaustedError("no more"));
  // There is no cause.
  Answer(1, aborted, aborted);
  EXPECT_EQ(client_->Reduce(view_, {"sum"}).status(), absl::AbortedError("part 1 of the upload failed: no more"));
}

TEST_F(PartsTest, KeepTheDeadline) {
  service_.answer = false;
  const absl::Status status = client_->Reduce(view_, {"sum"}, {.timeout = absl::Milliseconds(100)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_F(PartsTest, SoManyConnectionsAndNoMore) {
  for (const int connections : {-1, 65}) {
    EXPECT_EQ(Client::Create({.server = address_, .connections = connections}).status(),
              absl::InvalidArgumentError(absl::StrCat("connections: got ", connections, "; allowed: 1 to 64")));
  }
  EXPECT_TRUE(Client::Create({.server = address_, .connections = 64}).ok());
}

}  // namespace
}  // namespace reduced::client
