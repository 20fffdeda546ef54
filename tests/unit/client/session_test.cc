// Sessions, against a server within the process that answers what each test says.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/unit/client/fake_sessions.h"

namespace reduced::client {
namespace {

using ::testing::HasSubstr;

class SessionTest : public FakeSessionsTest {};

// One answer of a ReduceAsync.
class Pending {
 public:
  Pending(Session& session, const ArrayView& array, const ReduceOptions& options = {})
      : call_(session.ReduceAsync(array, {"sum"}, options, [this](absl::StatusOr<Reply> reply) {
          reply_ = std::move(reply);
          done_.Notify();
        })) {}
  ~Pending() { EXPECT_TRUE(done_.WaitForNotificationWithTimeout(kSessionPatience)); }
  bool done() const { return done_.HasBeenNotified(); }
  absl::StatusOr<Reply> Await() {
    if (!done_.WaitForNotificationWithTimeout(kSessionPatience))
      return absl::InternalError("the callback wasn't called");
    return reply_;
  }
  Call& call() { return call_; }

 private:
  absl::StatusOr<Reply> reply_;
  absl::Notification done_;
  Call call_;
};

// The server ends idle sessions; whoever uses one after a pause does not notice.
TEST_F(SessionTest, OpensAnewAfterAPause) {
  service_.idle_timeout_ms = 100;
  const auto session = Open();
  for (int i = 1; i <= 3; ++i) {
    for (int k = 0; k < 5; ++k) {
      const absl::StatusOr<Reply> reply = session->Reduce(array_, {"sum"});
      ASSERT_TRUE(reply.ok()) << reply.status();
    }
    Pending pending(*session, array_);
    EXPECT_TRUE(pending.Await().ok());
    EXPECT_GE(service_.opened(), i);
    if (i != 2)
      service_.End(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no request; see --session_idle_timeout"));
    absl::SleepFor(absl::Milliseconds(120));  // the pause
  }
}

TEST_F(SessionTest, AsksAndAnswers) {
  const auto session = Open();
  for (int i = 0; i < 100; ++i) {
    const absl::StatusOr<Reply> reply = session->Reduce(array_, {"sum"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->count, 3);
    EXPECT_EQ(reply->via, "session");
  }
}

TEST_F(SessionTest, AsksAboutArraysThatNeedNotBeSent) {
  service_.at_once = false;
  const auto session = Open();
  const auto ask = [&](const RemoteArray& array) {
    absl::Notification over;
    session->ReduceAsync(array, {"sum"}, {}, [&over](absl::StatusOr<Reply> reply) {
      EXPECT_TRUE(reply.ok()) << reply.status();
      over.Notify();
    });
    const v1::SessionRequest request = service_.Next();
    service_.Answer(FakeSessions::AnswerTo(request));
    EXPECT_TRUE(over.WaitForNotificationWithTimeout(kSessionPatience));
    return request.reduce();
  };
  const v1::ReduceRequest kept = ask(RemoteArray::Resident("an id"));
  EXPECT_EQ(kept.array_id(), "an id");
  EXPECT_FALSE(kept.has_array());
  const v1::ReduceRequest region = ask(RemoteArray::InRegion("a token", 3, "f32", {2, 4}));
  EXPECT_EQ(region.region().token(), "a token");
  EXPECT_EQ(region.region().offset(), 3);
  EXPECT_EQ(region.array().dtype(), v1::DTYPE_F32);
  EXPECT_EQ(region.array().shape_size(), 2);
  EXPECT_TRUE(absl::IsInvalidArgument(session->Reduce(RemoteArray::InRegion("t", 0, "f3", {2}), {"sum"}).status()));
}

TEST_F(SessionTest, SendsWhatIsAsked) {
  service_.at_once = false;
  const auto session = Open();
  Pending pending(*session, array_, {.ddof = 3, .via = "inline", .timeout = absl::Microseconds(20'000'001)});
  const v1::SessionRequest request = service_.Next();
  EXPECT_EQ(request.timeout_ms(), 20'001);
  EXPECT_EQ(request.reduce().array().dtype(), v1::DTYPE_F32);
  EXPECT_EQ(request.reduce().options().ddof(), 3);
  EXPECT_EQ(request.reduce().inline_data(), std::string(reinterpret_cast<const char*>(elements_.data()), 12));
  service_.Answer(FakeSessions::AnswerTo(request));
  Pending forever(*session, array_, {.timeout = absl::InfiniteDuration()});
  EXPECT_EQ(service_.Next().timeout_ms(), 0);
  forever.call().Cancel();
}

TEST_F(SessionTest, ChecksBeforeSending) {
  const auto session = Open();
  const auto error = [&](const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options) {
    const absl::Status status = session->Reduce(array, ops, options).status();
    absl::Status again;
    session->ReduceAsync(array, ops, options, [&](absl::StatusOr<Reply> reply) { again = reply.status(); });
    EXPECT_EQ(again, status);  // within the call
    return status.ToString();
  };
  EXPECT_THAT(error(array_, {"medium"}, {}), HasSubstr("INVALID_ARGUMENT: op: got \"medium\""));
  EXPECT_THAT(error(array_, {"sum"}, {.timeout = -absl::Seconds(1)}), HasSubstr("timeout: got -1s; allowed: "));
  EXPECT_THAT(error(array_, {"sum"}, {.via = "stream"}),
              HasSubstr("via: got \"stream\" in a session; allowed: auto, inline"));
  EXPECT_THAT(error(array_, {"sum"}, {.via = "pigeon"}), HasSubstr("via: got \"pigeon\""));
  const std::vector<std::uint8_t> large(100'000);
  EXPECT_THAT(
      error(ArrayView::Of(std::span<const std::uint8_t>(large)), {"sum"}, {}),
      HasSubstr(absl::StrCat("RESOURCE_EXHAUSTED: the request is larger than ", address_, " accepts: got 1000")));
  EXPECT_TRUE(session->Reduce(array_, {"sum"}).ok());  // the session stays
}

TEST_F(SessionTest, MatchesAnswersInAnyOrder) {
  service_.at_once = false;
  const auto session = Open();
  std::deque<Pending> pending;
  std::vector<v1::SessionRequest> requests;
  const std::vector<std::uint8_t> bytes(10);
  for (std::size_t i = 0; i < 5; ++i) {
    pending.emplace_back(*session, ArrayView::Of(std::span<const std::uint8_t>(bytes.data(), i)));
    requests.push_back(service_.Next());
  }
  for (const std::size_t i : {3, 0, 4, 2, 1}) {
    EXPECT_FALSE(pending[i].done());
    service_.Answer(FakeSessions::AnswerTo(requests[i]));
    const absl::StatusOr<Reply> reply = pending[i].Await();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->count, static_cast<std::int64_t>(i));
  }
}

TEST_F(SessionTest, AnErrorOfOneIsItsOwn) {
  service_.at_once = false;
  const auto session = Open();
  Pending first(*session, array_);
  Pending second(*session, array_);
  Pending third(*session, array_);
  const v1::SessionRequest kept = service_.Next();
  v1::SessionResponse full;
  full.set_id(service_.Next().id());
  full.set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
  full.set_message("the queue is full");
  full.set_retry_after_ms(250);
  service_.Answer(full);
  const absl::Status refused = second.Await().status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(refused.message(), "the queue is full; try again in 250 ms");
  EXPECT_EQ(RetryAfterOf(refused), absl::Milliseconds(250));
  v1::SessionResponse draining;
  draining.set_id(service_.Next().id());
  draining.set_code(grpc::StatusCode::UNAVAILABLE);
  draining.set_message("draining");
  service_.Answer(draining);
  // Those without an answer are sent again, in another call.
  const v1::SessionRequest again = service_.Next();
  EXPECT_EQ(again.SerializeAsString(), kept.SerializeAsString());
  EXPECT_FALSE(first.done());
  service_.Answer(FakeSessions::AnswerTo(service_.Next()));
  service_.Answer(FakeSessions::AnswerTo(again));
  for (Pending* const each : {&first, &third}) {
    const absl::StatusOr<Reply> reply = each->Await();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->attempts, 2);
  }
  EXPECT_EQ(service_.opened(), 2);
}

TEST_F(SessionTest, CancelsOne) {
  service_.at_once = false;
  const auto session = Open();
  Pending first(*session, array_);
  Pending second(*session, array_);
  const v1::SessionRequest kept = service_.Next();
  const v1::SessionRequest cancelled = service_.Next();
  second.call().Cancel();
  EXPECT_TRUE(absl::IsCancelled(second.Await().status())) << second.Await().status();
  const v1::SessionRequest cancel = service_.Next();
  EXPECT_TRUE(cancel.has_cancel());
  EXPECT_EQ(cancel.id(), cancelled.id());
  second.call().Cancel();                              // no effect
  service_.Answer(FakeSessions::AnswerTo(cancelled));  // it crossed: nobody waits for it
  service_.Answer(FakeSessions::AnswerTo(kept));
  EXPECT_TRUE(first.Await().ok());
  first.call().Cancel();
}

TEST_F(SessionTest, OneCanBeInterrupted) {
  service_.at_once = false;
  const auto session = Open();
  Pending other(*session, array_);
  const v1::SessionRequest kept = service_.Next();
  int asked = 0;
  const absl::Status status = session->Reduce(array_, {"sum"}, {.interrupted = [&] { return ++asked == 3; }}).status();
  EXPECT_EQ(status, absl::CancelledError("the call was interrupted by its caller"));
  EXPECT_EQ(asked, 3);
  const v1::SessionRequest interrupted = service_.Next();
  const v1::SessionRequest cancel = service_.Next();
  EXPECT_TRUE(cancel.has_cancel());
  EXPECT_EQ(cancel.id(), interrupted.id());
  service_.Answer(FakeSessions::AnswerTo(kept));
  EXPECT_TRUE(other.Await().ok());
  service_.at_once = true;
  EXPECT_TRUE(session->Reduce(array_, {"sum"}, {.interrupted = [] { return false; }}).ok());
}

TEST_F(SessionTest, EachRequestKeepsItsTime) {
  service_.at_once = false;
  const auto session = Open({.timeout = absl::Milliseconds(50), .close_timeout = kSessionPatience});
  const std::string late = absl::StrCat("no answer from ", address_, " within ");
  EXPECT_EQ(session->Reduce(array_, {"sum"}).status(), absl::DeadlineExceededError(late + "50ms"));
  const v1::SessionRequest first = service_.Next();
  EXPECT_TRUE(service_.Next().has_cancel());
  service_.Answer(FakeSessions::AnswerTo(first));
  Pending longer(*session, array_, {.timeout = kSessionPatience});
  Pending shorter(*session, array_, {.timeout = absl::Milliseconds(20)});  // while the worker waits for the longer
  EXPECT_EQ(shorter.Await().status(), absl::DeadlineExceededError(late + "20ms"));
  EXPECT_FALSE(longer.done());
  std::thread caller([&] {  // a caller that waits pumps, or follows
    EXPECT_EQ(session->Reduce(array_, {"sum"}, {.timeout = absl::Milliseconds(30)}).status(),
              absl::DeadlineExceededError(late + "30ms"));
  });
  caller.join();
  service_.Answer(FakeSessions::AnswerTo(service_.Next()));
  EXPECT_TRUE(longer.Await().ok());
}

TEST_F(SessionTest, TheEndReachesEveryRequest) {
  service_.at_once = false;
  const auto session = Open();
  Pending first(*session, array_);
  Pending second(*session, array_);
  std::thread third([&] { EXPECT_EQ(session->Reduce(array_, {"sum"}).status(), absl::InternalError("broken")); });
  for (int i = 0; i < 3; ++i) service_.Next();
  service_.End(grpc::Status(grpc::StatusCode::INTERNAL, "broken"));
  EXPECT_EQ(first.Await().status(), absl::InternalError("broken"));
  EXPECT_EQ(second.Await().status(), absl::InternalError("broken"));
  third.join();
  EXPECT_EQ(session->Reduce(array_, {"sum"}).status(), absl::InternalError("broken"));
  absl::Status later;
  session->ReduceAsync(array_, {"sum"}, {}, [&](absl::StatusOr<Reply> reply) { later = reply.status(); });
  EXPECT_EQ(later, absl::InternalError("broken"));
}

TEST_F(SessionTest, WhatIsNotAnsweredGoesInAnotherCall) {
  service_.at_once = false;
  const auto session = Open();
  const grpc::Status kEnds[] = {grpc::Status::OK, grpc::Status::CANCELLED,
                                grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining"),
                                grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no request")};
  int opened = 1;
  for (const grpc::Status& end : kEnds) {
    Pending first(*session, array_);
    Pending second(*session, array_);
    std::thread third([&] { EXPECT_TRUE(session->Reduce(array_, {"sum"}).ok()); });
    service_.Answer(FakeSessions::AnswerTo(service_.Next()));
    for (int i = 0; i < 2; ++i) service_.Next();
    service_.End(end);
    for (int i = 0; i < 2; ++i) service_.Answer(FakeSessions::AnswerTo(service_.Next()));
    EXPECT_TRUE(first.Await().ok());
    EXPECT_TRUE(second.Await().ok());
    third.join();
    EXPECT_EQ(service_.opened(), ++opened);
  }
}

TEST_F(SessionTest, UntilItWasSentOftenEnough) {
  service_.at_once = false;
  const auto session = Open();
  Pending pending(*session, array_);
  for (int i = 0; i < 4; ++i) {
    service_.Next();
    service_.End(grpc::Status::OK);
  }
  EXPECT_EQ(pending.Await().status(), absl::UnavailableError(address_ + " ended the session; tried 4 times"));
  service_.at_once = true;
  EXPECT_TRUE(session->Reduce(array_, {"sum"}).ok());  // the session goes on
}

TEST_F(SessionTest, ARequestWaitsForAServer) {
  const auto session = Open();
  ASSERT_TRUE(session->Reduce(array_, {"sum"}).ok());
  TearDown();
  Pending pending(*session, array_);
  absl::SleepFor(absl::Milliseconds(20));  // both orders are right
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
  EXPECT_TRUE(pending.Await().ok());
}

TEST_F(SessionTest, ClosesWithoutAServer) {
  service_.at_once = false;
  auto session = Open({.close_timeout = absl::Milliseconds(20)});
  Pending pending(*session, array_);
  service_.Next();
  TearDown();
  session.reset();
  EXPECT_FALSE(pending.Await().ok());
}

TEST_F(SessionTest, AServerThatGoesAwayIsUnavailable) {
  service_.at_once = false;
  const auto session = Open();
  const absl::Duration timeout = absl::Milliseconds(300);
  Pending pending(*session, array_, {.timeout = timeout});
  service_.Next();
  server_->Shutdown(std::chrono::system_clock::now());
  TearDown();
  EXPECT_TRUE(absl::IsUnavailable(pending.Await().status())) << pending.Await().status();
  const absl::Status status = session->Reduce(array_, {"sum"}, {.timeout = timeout}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("; waited for a server for 300ms"));
  EXPECT_EQ(client_->OpenSession({.timeout = timeout}).status(),
            absl::UnavailableError("no reduced server answers at " + address_ +
                                   " (connection refused); waited for a server until the deadline"));
}

TEST_F(SessionTest, SaysThatAServerHasNone) {
  service_.sessions = false;
  EXPECT_EQ(client_->OpenSession().status(),
            absl::UnimplementedError(address_ + " has no sessions: its version is 1.2.3"));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->OpenSession({.timeout = absl::ZeroDuration()}).status()));
}

TEST_F(SessionTest, ClosingWaitsForAnswers) {
  service_.at_once = false;
  auto session = Open();
  Pending pending(*session, array_);
  const v1::SessionRequest request = service_.Next();
  std::thread closer([&] { session.reset(); });
  service_.Answer(FakeSessions::AnswerTo(request));
  closer.join();
  EXPECT_TRUE(pending.done());
  EXPECT_TRUE(pending.Await().ok());
  EXPECT_TRUE(service_.AwaitClosed());
  EXPECT_EQ(service_.cancelled(), 0);
}

TEST_F(SessionTest, ClosingCancelsWhatDoesNotEnd) {
  service_.at_once = false;
  service_.half_close_ends = false;
  auto session = Open({.close_timeout = absl::Milliseconds(20)});
  Pending pending(*session, array_);
  service_.Next();
  session.reset();
  EXPECT_TRUE(pending.done());
  EXPECT_TRUE(absl::IsCancelled(pending.Await().status())) << pending.Await().status();
  pending.call().Cancel();  // no effect
  EXPECT_TRUE(service_.AwaitClosed());
  EXPECT_EQ(service_.cancelled(), 1);
}

TEST_F(SessionTest, OneThatNobodyUsedCloses) {
  Open().reset();
  EXPECT_TRUE(service_.AwaitClosed());
}

TEST_F(SessionTest, OutlivesItsClient) {
  const auto session = Open();
  client_.reset();
  EXPECT_TRUE(session->Reduce(array_, {"sum"}).ok());
}

TEST_F(SessionTest, CallbacksMayAskForMore) {
  const auto session = Open();
  absl::Notification finished;
  int left = 100;
  std::function<void(absl::StatusOr<Reply>)> again = [&](const absl::StatusOr<Reply>& reply) {
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (--left == 0) return finished.Notify();
    session->ReduceAsync(array_, {"sum"}, {}, again);
  };
  session->ReduceAsync(array_, {"sum"}, {}, again);
  EXPECT_TRUE(finished.WaitForNotificationWithTimeout(kSessionPatience));
}

TEST_F(SessionTest, ACallbackMayWaitForACaller) {
  // A callback that needs a lock is not on the thread of the caller that holds it.
  const auto session = Open();
  absl::Mutex mutex;
  for (int i = 0; i < 50; ++i) {
    absl::Notification called;
    {
      const absl::MutexLock lock(&mutex);
      session->ReduceAsync(array_, {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
        EXPECT_TRUE(reply.ok()) << reply.status();
        const absl::MutexLock inside(&mutex);
        called.Notify();
      });
      EXPECT_TRUE(session->Reduce(array_, {"sum"}).ok());
    }
    ASSERT_TRUE(called.WaitForNotificationWithTimeout(kSessionPatience));
  }
}

TEST_F(SessionTest, CanBeSharedByThreads) {
  const auto session = Open();
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t <= 8; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<std::uint8_t> bytes(t);
      const ArrayView array = ArrayView::Of(std::span<const std::uint8_t>(bytes));
      for (int i = 0; i < 100; ++i) {
        const absl::StatusOr<Reply> reply = session->Reduce(array, {"sum"});
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_EQ(reply->count, static_cast<std::int64_t>(t));
        if (t % 2 == 0) continue;
        Pending pending(*session, array);
        if (i % 5 == 0) {
          pending.call().Cancel();
          pending.Await().status().IgnoreError();
        } else {
          ASSERT_TRUE(pending.Await().ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reduced::client
