// Session: requests answered in any order, bounded, each with its own errors, timeout and cancellation; sessions that
// go wrong, and ends of every kind.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

v1::ReduceRequest SumOf(const std::vector<std::int32_t>& elements) {
  return RequestOf<std::int32_t>(v1::DTYPE_I32, elements, {v1::OP_SUM});
}

// One session by the stub that protoc generates, as any client would have it. Nothing takes longer than the deadline.
class StubSession {
 public:
  explicit StubSession(const TestClient& client, absl::Duration timeout = kPatience)
      : stub_(v1::Reduction::NewStub(client.channel())) {
    SetContextDeadline(&context_, timeout);
    call_ = stub_->Session(&context_);
  }

  bool Send(std::uint64_t id, const v1::ReduceRequest& reduce, std::int64_t timeout_ms = 0) {
    v1::SessionRequest request;
    request.set_id(id);
    *request.mutable_reduce() = reduce;
    request.set_timeout_ms(timeout_ms);
    return Write(request);
  }
  bool SendCancel(std::uint64_t id) {
    v1::SessionRequest request;
    request.set_id(id);
    request.mutable_cancel();
    return Write(request);
  }
  bool Write(const v1::SessionRequest& request) { return call_->Write(request); }
  // "ID: VALUE" or "ID: CODE MESSAGE"; "end" if there is none any more.
  std::string Read() {
    v1::SessionResponse response;
    if (!call_->Read(&response)) return "end";
    last_ = response;
    if (response.code() != 0) return absl::StrCat(response.id(), ": ", response.code(), " ", response.message());
    return absl::StrCat(response.id(), ": ", Text(response.response().results(0).value()));
  }
  void HalfClose() { call_->WritesDone(); }
  void TryCancel() { context_.TryCancel(); }
  // Reads what comes until the end.
  grpc::Status End() {
    while (Read() != "end") {
    }
    return call_->Finish();
  }
  const v1::SessionResponse& last() const { return last_; }
  const grpc::ClientContext& context() const { return context_; }

 private:
  std::unique_ptr<v1::Reduction::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  v1::SessionResponse last_;
};

// Waits until so many sessions are open: false after kPatience.
bool AwaitSessions(TestServer& server, int count) {
  const absl::Time deadline = absl::Now() + kPatience;
  v1::GetServerInfoResponse info;
  do {
    if (absl::Now() > deadline || !server.client().Info(&info).ok()) return false;
  } while (info.usage().sessions() != count);
  return true;
}

TEST(SessionTest, AnswersOneAfterTheOther) {
  TestServer server;
  StubSession session(server.client());
  std::int32_t sum = 0;
  std::vector<std::int32_t> elements;
  for (int i = 1; i <= 300; ++i) {
    elements.push_back(i);
    sum += i;
    ASSERT_TRUE(session.Send(7, SumOf(elements)));  // an id can be used again
    EXPECT_EQ(session.Read(), absl::StrCat("7: i64:", sum));
    EXPECT_EQ(session.last().response().count(), i);
    EXPECT_TRUE(session.last().response().timing().has_receive_us());
    EXPECT_GE(session.last().response().timing().total_us(), session.last().response().timing().receive_us());
  }
  session.HalfClose();
  EXPECT_EQ(session.Read(), "end");
  EXPECT_TRUE(session.End().ok());
  EXPECT_TRUE(AwaitSessions(server, 0));
}

TEST(SessionTest, AnswersAsReduceDoes) {
  TestServer server;
  StubSession session(server.client());
  const std::vector<double> large(1'000'000, 1.5);  // beyond what is reduced at once
  for (const v1::ReduceRequest& request :
       {RequestOf<double>(v1::DTYPE_F64, large, {v1::OP_SUM, v1::OP_ARGMAX, v1::OP_VAR}),
        RequestOf<float>(v1::DTYPE_F32, {}, {v1::OP_SUM, v1::OP_ALL}),
        RequestOf<std::uint8_t>(v1::DTYPE_U8, {3, 1, 2}, {v1::OP_MIN, v1::OP_ARGMIN})}) {
    v1::ReduceResponse expected;
    ASSERT_TRUE(server.client().Reduce(request, &expected).ok());
    ASSERT_TRUE(session.Send(1, request));
    ASSERT_NE(session.Read(), "end");
    ASSERT_EQ(session.last().code(), 0) << session.last().message();
    const v1::ReduceResponse& got = session.last().response();
    ASSERT_EQ(got.results_size(), expected.results_size());
    for (int i = 0; i < expected.results_size(); ++i) {
      EXPECT_EQ(Text(got.results(i).value()), Text(expected.results(i).value()));
    }
    EXPECT_EQ(got.execution().pipeline(), expected.execution().pipeline());
  }
}

TEST(SessionTest, AnswersInTheOrderThatReductionsEnd) {
  HeldServer server(8);
  StubSession session(server->client());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(session.Send(100 + i, SumOf({i})));
  ASSERT_TRUE(server.engine().AwaitHeld(4, kPatience));
  server.engine().ReleaseOne(2);
  EXPECT_EQ(session.Read(), "102: i64:2");
  server.engine().ReleaseOne(0);
  EXPECT_EQ(session.Read(), "100: i64:0");
  ASSERT_TRUE(session.Send(104, SumOf({4})));  // goes on meanwhile
  ASSERT_TRUE(server.engine().AwaitHeld(3, kPatience));
  server.engine().ReleaseOne(2);
  EXPECT_EQ(session.Read(), "104: i64:4");
  server.engine().Release();
  const std::set<std::string> rest = {session.Read(), session.Read()};
  EXPECT_EQ(rest, (std::set<std::string>{"101: i64:1", "103: i64:3"}));
  session.HalfClose();
  EXPECT_TRUE(session.End().ok());
}

TEST(SessionTest, ReadsNoFurtherThanAllowed) {
  ServerOptions options;
  options.limits.max_session_requests = 2;
  HeldServer server(8, options);
  StubSession session(server->client());
  for (int i = 1; i <= 5; ++i) ASSERT_TRUE(session.Send(i, SumOf({i})));
  ASSERT_TRUE(server.engine().AwaitHeld(2, kPatience));
  EXPECT_TRUE(AwaitSessions(*server, 1));
  EXPECT_EQ(server.engine().held(), 2);
  for (int i = 1; i <= 5; ++i) {
    server.engine().ReleaseFirst();
    EXPECT_EQ(session.Read(), absl::StrCat(i, ": i64:", i));
    const int left = std::min(2, 5 - i);
    ASSERT_TRUE(server.engine().AwaitHeld(left, kPatience));
    EXPECT_EQ(server.engine().held(), left);
  }
  session.HalfClose();
  EXPECT_TRUE(session.End().ok());
}

TEST(SessionTest, OneAtATime) {
  ServerOptions options;
  options.limits.max_session_requests = 1;
  TestServer server(options);
  StubSession session(server.client());
  for (int i = 1; i <= 100; ++i) ASSERT_TRUE(session.Send(i, SumOf({i})));
  session.HalfClose();
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(session.Read(), absl::StrCat(i, ": i64:", i));
  EXPECT_TRUE(session.End().ok());
}

TEST(SessionTest, CancelsTheOneThatIsNamed) {
  HeldServer server(8);
  StubSession session(server->client());
  ASSERT_TRUE(session.SendCancel(1));  // before it is there: nothing happens
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(session.Send(i, SumOf({i})));
  ASSERT_TRUE(server.engine().AwaitHeld(3, kPatience));
  const CancelFlag first = server.engine().cancelled(0);
  const CancelFlag second = server.engine().cancelled(1);
  ASSERT_TRUE(session.SendCancel(2));
  EXPECT_TRUE(AwaitTrue(*second));
  EXPECT_FALSE(*first);
  server.engine().ReleaseOne(1);
  EXPECT_THAT(session.Read(), HasSubstr(absl::StrCat("2: ", grpc::StatusCode::CANCELLED, " ")));
  ASSERT_TRUE(session.SendCancel(2));  // after it was answered: likewise
  server.engine().Release();
  const std::set<std::string> rest = {session.Read(), session.Read()};
  EXPECT_EQ(rest, (std::set<std::string>{"1: i64:1", "3: i64:3"}));
  session.HalfClose();
  EXPECT_TRUE(session.End().ok());
}

TEST(SessionTest, ATimeoutEndsOneRequest) {
  HeldServer server(8);
  StubSession session(server->client());
  ASSERT_TRUE(session.Send(1, SumOf({1}), 1'000));
  ASSERT_TRUE(session.Send(2, SumOf({2}), 60'000));
  ASSERT_TRUE(session.Send(3, SumOf({3}), std::numeric_limits<std::int64_t>::max()));
  ASSERT_TRUE(server.engine().AwaitHeld(3, kPatience));
  absl::SleepFor(absl::Seconds(1));  // the time of the first is over
  for (const std::string& says : {absl::StrCat("1: ", grpc::StatusCode::DEADLINE_EXCEEDED, " "),
                                  std::string("2: i64:2"), std::string("3: i64:3")}) {
    server.engine().ReleaseFirst();
    EXPECT_THAT(session.Read(), HasSubstr(says));
  }
}

TEST(SessionTest, TheSessionsOwnDeadlineEndsAll) {
  HeldServer server(8);
  StubSession session(server->client(), absl::Milliseconds(300));
  session.Send(1, SumOf({1}), 60'000);
  if (server.engine().AwaitHeld(1, absl::Milliseconds(300))) {  // else it was too late before: fine as well
    EXPECT_TRUE(AwaitTrue(*server.engine().cancelled()));
  }
  EXPECT_EQ(session.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.engine().Release();
  EXPECT_TRUE(AwaitSessions(*server, 0));
}

TEST(SessionTest, AnErrorOfOneLeavesTheOthersAlone) {
  HeldServer server(1);
  StubSession session(server->client());
  ASSERT_TRUE(session.Send(1, SumOf({1})));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  v1::ReduceRequest bad = SumOf({1});
  bad.add_ops(v1::OP_UNSPECIFIED);
  ASSERT_TRUE(session.Send(2, bad));
  EXPECT_THAT(session.Read(), HasSubstr(absl::StrCat("2: ", grpc::StatusCode::INVALID_ARGUMENT, " ops[1]: got 0")));
  EXPECT_FALSE(session.last().has_response());
  EXPECT_EQ(session.last().retry_after_ms(), 0);
  ASSERT_TRUE(session.Send(3, SumOf({3})));
  EXPECT_THAT(session.Read(),
              HasSubstr(absl::StrCat("3: ", grpc::StatusCode::RESOURCE_EXHAUSTED, " the queue is full")));
  EXPECT_FALSE(session.last().has_response());
  EXPECT_GE(session.last().retry_after_ms(), 1);
  EXPECT_LE(session.last().retry_after_ms(), 1000);
  server.engine().Release();
  EXPECT_EQ(session.Read(), "1: i64:1");
  ASSERT_TRUE(session.Send(4, RequestOf<std::int64_t>(v1::DTYPE_I64, {INT64_MAX, 1}, {v1::OP_SUM})));
  EXPECT_THAT(session.Read(), HasSubstr(absl::StrCat("4: ", grpc::StatusCode::OUT_OF_RANGE, " ")));
  session.HalfClose();
  EXPECT_TRUE(session.End().ok());
}

TEST(SessionTest, WhatBreaksTheProtocolEndsTheSession) {
  HeldServer server(8);
  v1::SessionRequest nothing;
  nothing.set_id(9);
  v1::SessionRequest again;
  again.set_id(1);
  *again.mutable_reduce() = SumOf({1});
  v1::SessionRequest negative = again;
  negative.set_id(3);
  negative.set_timeout_ms(-1);
  for (const auto& [request, says] : std::vector<std::pair<v1::SessionRequest, std::string>>{
           {nothing, "request 9: got none; allowed: reduce, cancel, open_ring, reduce_many"},
           {again, "id: got 1; allowed: an id without a request in progress"},
           {negative, "request 3: timeout_ms: got -1; allowed: 0 or more"}}) {
    StubSession session(server->client());
    ASSERT_TRUE(session.Send(1, SumOf({1})));
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    const CancelFlag cancelled = server.engine().cancelled();
    ASSERT_TRUE(session.Write(request));
    EXPECT_TRUE(AwaitTrue(*cancelled));
    server.engine().ReleaseFirst();
    const grpc::Status status = session.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), says);
  }
  EXPECT_TRUE(AwaitSessions(*server, 0));
}

// A session of one message, of these bytes.
grpc::Status SendBytes(TestServer& server, const std::string& bytes) {
  grpc::ClientContext context;
  SetContextDeadline(&context);
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;  // ends with the deadline of the call
  };
  const auto call =
      grpc::GenericStub(server.client().channel()).PrepareCall(&context, "/reduced.v1.Reduction/Session", &queue);
  call->StartCall(nullptr);
  EXPECT_TRUE(step());
  const grpc::Slice slice(bytes);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  step();
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  EXPECT_FALSE(step());
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(step());
  queue.Shutdown();
  EXPECT_FALSE(step());
  return status;
}

TEST(SessionTest, MessagesThatAreNone) {
  ServerOptions options;
  options.limits.max_message_bytes = 10'000;
  TestServer server(options);
  const grpc::Status garbage = SendBytes(server, "\xff\xff\xff");
  EXPECT_EQ(garbage.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(garbage.error_message(), HasSubstr("not a SessionRequest"));
  EXPECT_EQ(SendBytes(server, std::string(10'001, 'x')).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(AwaitSessions(server, 0));
}

TEST(SessionTest, TheHalfCloseWaitsForWhatIsUnderWay) {
  HeldServer server(8);
  StubSession session(server->client());
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(session.Send(i, SumOf({i})));
  session.HalfClose();
  ASSERT_TRUE(server.engine().AwaitHeld(3, kPatience));
  for (const int i : {3, 2, 1}) {
    server.engine().ReleaseOne(static_cast<std::size_t>(i) - 1);
    EXPECT_EQ(session.Read(), absl::StrCat(i, ": i64:", i));
  }
  EXPECT_EQ(session.Read(), "end");
  EXPECT_TRUE(session.End().ok());
}

TEST(SessionTest, AClientThatGoesAwayLeavesNothing) {
  HeldServer server(8);
  {
    StubSession session(server->client());
    for (int i = 1; i <= 3; ++i) ASSERT_TRUE(session.Send(i, SumOf({i})));
    ASSERT_TRUE(server.engine().AwaitHeld(3, kPatience));
    std::vector<CancelFlag> cancelled;
    for (std::size_t i = 0; i < 3; ++i) cancelled.push_back(server.engine().cancelled(i));
    session.TryCancel();
    for (const CancelFlag& flag : cancelled) EXPECT_TRUE(AwaitTrue(*flag));
    EXPECT_EQ(session.End().error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(AwaitSessions(*server, 1));  // while they are held it isn't over
  }
  server.engine().Release();
  EXPECT_TRUE(AwaitSessions(*server, 0));
  {
    StubSession idle(server->client());
    EXPECT_TRUE(AwaitSessions(*server, 1));
    idle.TryCancel();
    EXPECT_EQ(idle.End().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(AwaitSessions(*server, 0));
  const absl::Time start = absl::Now();
  server->server().Shutdown(kPatience);  // nothing is counted in any more
  EXPECT_LT(absl::Now() - start, kPatience / 2);
}

TEST(SessionTest, ADrainingServerRefusesRequestsAndDoesNotWaitForSessions) {
  HeldServer server(8);
  StubSession session(server->client());
  ASSERT_TRUE(session.Send(1, SumOf({1})));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  server->server().Drain();
  ASSERT_TRUE(session.Send(2, SumOf({2})));
  EXPECT_THAT(session.Read(), HasSubstr(absl::StrCat("2: ", grpc::StatusCode::UNAVAILABLE, " the server is draining")));
  const absl::Time start = absl::Now();
  std::thread shutdown([&server] { server->server().Shutdown(kPatience); });
  server.engine().Release();
  EXPECT_EQ(session.Read(), "1: i64:1");  // what ran is answered
  shutdown.join();
  EXPECT_LT(absl::Now() - start, kPatience / 2);
  EXPECT_FALSE(session.End().ok());
}

TEST(SessionTest, ADismissedSessionEndsOnceItHasAnswered) {
  HeldServer server(8);
  StubSession idle(server->client());
  ASSERT_TRUE(AwaitSessions(*server, 1));
  StubSession busy(server->client());
  ASSERT_TRUE(busy.Send(1, SumOf({1})));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  server->server().Dismiss();
  EXPECT_EQ(idle.Read(), "end");
  EXPECT_EQ(idle.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  server.engine().Release();
  EXPECT_EQ(busy.Read(), "1: i64:1");
  EXPECT_EQ(busy.Read(), "end");
  const grpc::Status end = busy.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(end.error_message(), HasSubstr("draining"));
}

TEST(SessionTest, SoManyAreOpenAtOnceAndNoMore) {
  ServerOptions options;
  options.limits.max_sessions = 2;
  options.limits.max_session_requests = 5;
  TestServer server(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  EXPECT_EQ(info.limits().max_sessions(), 2);
  EXPECT_EQ(info.limits().max_session_requests(), 5);
  EXPECT_EQ(info.usage().sessions(), 0);
  StubSession first(server.client());
  {
    StubSession second(server.client());
    ASSERT_TRUE(AwaitSessions(server, 2));
    StubSession third(server.client());
    const grpc::Status status = third.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("the server has 2 open sessions; allowed: 2"));
    EXPECT_EQ(third.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
    EXPECT_TRUE(AwaitSessions(server, 2));
    second.HalfClose();
    EXPECT_TRUE(second.End().ok());
  }
  ASSERT_TRUE(AwaitSessions(server, 1));
  StubSession again(server.client());
  ASSERT_TRUE(again.Send(1, SumOf({1, 2})));
  EXPECT_EQ(again.Read(), "1: i64:3");
  ASSERT_TRUE(first.Send(1, SumOf({1, 2, 3})));
  EXPECT_EQ(first.Read(), "1: i64:6");
}

TEST(SessionTest, ManyAtOnce) {
  constexpr int kSessions = 4;
  constexpr int kRequests = 300;
  TestServer server;
  std::vector<std::thread> threads;
  for (int s = 0; s < kSessions; ++s) {
    threads.emplace_back([&server, s] {
      StubSession session(server.client());
      std::thread writer([&session, s] {
        for (int i = 0; i < kRequests; ++i) {
          // Some are reduced at once, some by a lane.
          const std::vector<std::int32_t> elements(i % 10 == 0 ? 300'000 : 10, s + 1);
          ASSERT_TRUE(session.Send(i, SumOf(elements)));
          if (i % 7 == 0) {
            ASSERT_TRUE(session.SendCancel(kRequests + i));
          }
        }
        session.HalfClose();
      });
      std::set<std::string> answers;
      for (int i = 0; i < kRequests; ++i) answers.insert(session.Read());
      writer.join();
      EXPECT_TRUE(session.End().ok());
      std::set<std::string> expected;
      for (int i = 0; i < kRequests; ++i) {
        expected.insert(absl::StrCat(i, ": i64:", (i % 10 == 0 ? 300'000 : 10) * (s + 1)));
      }
      EXPECT_EQ(answers, expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(AwaitSessions(server, 0));
}

TEST(SessionTest, ClientsThatVanishAtAnyTime) {
  TestServer server;
  const std::vector<std::int32_t> elements(100'000, 1);
  for (int i = 0; i < 30; ++i) {
    TestClient client(server.address());
    StubSession session(client);
    for (int k = 0; k < i; ++k) session.Send(k, SumOf(elements));
    session.TryCancel();
    session.End();
  }
  EXPECT_TRUE(AwaitSessions(server, 0));
  server.server().Shutdown(kPatience);
}

}  // namespace
}  // namespace reduced::server
