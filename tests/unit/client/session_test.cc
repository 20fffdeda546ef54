// Sessions, against a server within the process that answers what each test says.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kSessionPatience = absl::Seconds(30);

// Keeps what comes, in the order it comes, and answers when a test says so, or at once: the count is the number of the
// bytes that were sent.
class FakeSessions final : public v1::Reduction::CallbackService {
 public:
  using Stream = grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>;

  bool sessions = true;                      // false: a server that has none
  std::atomic<bool> at_once = true;          // requests are answered as they come
  std::atomic<bool> half_close_ends = true;  // false: only the client's cancelling does

  Stream* Session(grpc::CallbackServerContext*) override {
    auto* const session = new One(this);
    const absl::MutexLock lock(&mutex_);
    ++open_;
    current_ = session;
    return session;
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) override {
    response->set_version("1.2.3");
    response->mutable_limits()->set_max_message_bytes(100'000);
    response->mutable_limits()->set_max_session_requests(sessions ? 8 : 0);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  // The next message that has come, of the session opened last; waits for it.
  v1::SessionRequest Next() {
    const absl::MutexLock lock(&mutex_);
    const auto come = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !come_.empty(); };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&come), kSessionPatience));
    if (come_.empty()) return {};
    v1::SessionRequest next = std::move(come_.front());
    come_.pop_front();
    return next;
  }
  static v1::SessionResponse AnswerTo(const v1::SessionRequest& request) {
    v1::SessionResponse response;
    response.set_id(request.id());
    response.mutable_response()->set_count(static_cast<std::int64_t>(request.reduce().inline_data().size()));
    return response;
  }
  void Answer(const v1::SessionResponse& response) {
    const absl::MutexLock lock(&mutex_);
    current_->Answer(response);
  }
  // Ends the session that was opened last.
  void End(const grpc::Status& status) {
    const absl::MutexLock lock(&mutex_);
    current_->End(status);
  }
  bool AwaitClosed() {
    const absl::MutexLock lock(&mutex_);
    const auto closed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return open_ == 0; };
    return mutex_.AwaitWithTimeout(absl::Condition(&closed), kSessionPatience);
  }
  int cancelled() const { return cancelled_; }

 private:
  // Its methods are called with the mutex held; gRPC doesn't call back from within what they call.
  class One final : public Stream {
   public:
    explicit One(FakeSessions* service) : service_(service) { StartRead(&request_); }
    void Answer(const v1::SessionResponse& response) {
      under_way_.erase(response.id());
      answers_.push_back(response);
      if (answers_.size() == 1) StartWrite(&answers_.front());
    }
    void End(const grpc::Status& status) {
      if (!end_.has_value()) end_ = status;
      if (!answers_.empty() || ended_) return;
      ended_ = true;
      Finish(*end_);
    }
    void OnReadDone(bool ok) override {
      const absl::MutexLock lock(&service_->mutex_);
      if (!ok) {
        half_closed_ = true;
        return EndIfOver();
      }
      if (request_.has_reduce()) {
        under_way_.insert(request_.id());
      } else {
        under_way_.erase(request_.id());
      }
      if (service_->at_once && request_.has_reduce()) {
        Answer(AnswerTo(request_));
      } else {
        service_->come_.push_back(request_);
      }
      StartRead(&request_);
    }
    void OnWriteDone(bool) override {
      const absl::MutexLock lock(&service_->mutex_);
      answers_.pop_front();
      if (!answers_.empty()) return StartWrite(&answers_.front());
      if (end_.has_value()) return End(*end_);
      EndIfOver();
    }
    void OnCancel() override {
      const absl::MutexLock lock(&service_->mutex_);
      ++service_->cancelled_;
      End(grpc::Status::CANCELLED);
    }
    void OnDone() override {
      {
        const absl::MutexLock lock(&service_->mutex_);
        --service_->open_;
        if (service_->current_ == this) service_->current_ = nullptr;
      }
      delete this;
    }

   private:
    void EndIfOver() {
      if (half_closed_ && under_way_.empty() && service_->half_close_ends) End(grpc::Status::OK);
    }

    FakeSessions* const service_;
    v1::SessionRequest request_;
    std::deque<v1::SessionResponse> answers_;  // the first is being written
    std::set<std::uint64_t> under_way_;        // neither answered nor cancelled
    bool half_closed_ = false;
    std::optional<grpc::Status> end_;
    bool ended_ = false;
  };

  absl::Mutex mutex_;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int> cancelled_ = 0;
  One* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::deque<v1::SessionRequest> come_ ABSL_GUARDED_BY(mutex_);
};

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
    client_ = Client::Create({.server = address_, .timeout = kSessionPatience}).value();
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    server_.reset();
  }

  std::unique_ptr<Session> Open(const SessionOptions& options = {.close_timeout = kSessionPatience}) {
    absl::StatusOr<std::unique_ptr<Session>> session = client_->OpenSession(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  FakeSessions service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  const std::vector<float> elements_ = {1, 2, 4};
  const ArrayView array_ = ArrayView::Of(std::span<const float>(elements_));
};

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

TEST_F(SessionTest, AsksAndAnswers) {
  const auto session = Open();
  for (int i = 0; i < 100; ++i) {
    const absl::StatusOr<Reply> reply = session->Reduce(array_, {"sum"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->count, 12);
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
  EXPECT_THAT(error(array_, {"median"}, {}), HasSubstr("INVALID_ARGUMENT: op: got \"median\""));
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
  EXPECT_EQ(second.Await().status(), absl::ResourceExhaustedError("the queue is full; try again in 250 ms"));
  v1::SessionResponse draining;
  draining.set_id(service_.Next().id());
  draining.set_code(grpc::StatusCode::UNAVAILABLE);
  draining.set_message("draining");
  service_.Answer(draining);
  EXPECT_EQ(third.Await().status(), absl::UnavailableError(address_ + ": draining"));
  EXPECT_FALSE(first.done());
  service_.Answer(FakeSessions::AnswerTo(kept));
  EXPECT_TRUE(first.Await().ok());
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

TEST_F(SessionTest, AnEarlyEndIsAnErrorToo) {
  service_.at_once = false;
  const auto session = Open();
  Pending pending(*session, array_);
  service_.Next();
  service_.End(grpc::Status::OK);
  EXPECT_EQ(pending.Await().status(), absl::UnavailableError(address_ + " ended the session"));
}

TEST_F(SessionTest, AServerThatGoesAwayIsUnavailable) {
  service_.at_once = false;
  const auto session = Open();
  Pending pending(*session, array_);
  service_.Next();
  server_->Shutdown(std::chrono::system_clock::now());
  const absl::Status status = pending.Await().status();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(session->Reduce(array_, {"sum"}).status(), status);
  TearDown();
  EXPECT_EQ(client_->OpenSession().status(),
            absl::UnavailableError("no reduced server answers at " + address_ + " (connection refused)"));
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
