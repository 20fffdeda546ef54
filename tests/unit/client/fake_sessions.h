// A server of sessions within the process, which answers what a test says.
#ifndef REDUCED_TESTS_UNIT_CLIENT_FAKE_SESSIONS_H_
#define REDUCED_TESTS_UNIT_CLIENT_FAKE_SESSIONS_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/unit/client/honest.h"

namespace reduced::client {

inline constexpr absl::Duration kSessionPatience = absl::Seconds(30);

// Keeps what comes, in the order it comes, and answers when a test says so, or at once, as an honest server.
class FakeSessions final : public v1::Reduction::CallbackService {
 public:
  using Stream = grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>;

  bool sessions = true;                      // false: a server that has none
  std::int64_t idle_timeout_ms = 0;          // that the server says it has
  int max_operands = 1000;                   // likewise; 0: a server that has no requests of many arrays
  std::atomic<bool> at_once = true;          // requests are answered as they come
  std::atomic<bool> half_close_ends = true;  // false: only the client's cancelling does

  Stream* Session(grpc::CallbackServerContext*) override {
    auto* const session = new One(this);
    const absl::MutexLock lock(&mutex_);
    ++open_;
    ++opened_;
    current_ = session;
    return session;
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) override {
    response->set_version("1.2.3");
    response->mutable_limits()->set_max_message_bytes(100'000);
    response->mutable_limits()->set_max_session_requests(sessions ? 8 : 0);
    response->mutable_limits()->set_max_operands(max_operands);
    response->mutable_limits()->set_session_idle_timeout_ms(idle_timeout_ms);
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
    if (!request.has_reduce_many()) {
      Complete(request.reduce(), response.mutable_response());
      return response;
    }
    for (const v1::SideArray& operand : request.reduce_many().operands()) {
      v1::ReduceRequest alone = request.reduce_many().question();
      if (operand.has_array()) *alone.mutable_array() = operand.array();
      Complete(alone, response.mutable_many_response()->add_responses());
    }
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
  int opened() const { return opened_; }

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
      const bool reduces = request_.has_reduce() || request_.has_reduce_many();
      if (reduces) {
        under_way_.insert(request_.id());
      } else {
        under_way_.erase(request_.id());
      }
      if (service_->at_once && reduces) {
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
  std::atomic<int> opened_ = 0;
  One* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::deque<v1::SessionRequest> come_ ABSL_GUARDED_BY(mutex_);
};

// A client of such a server.
class FakeSessionsTest : public ::testing::Test {
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

}  // namespace reduced::client

#endif  // REDUCED_TESTS_UNIT_CLIENT_FAKE_SESSIONS_H_
