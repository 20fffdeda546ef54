// Session::ReduceMany in messages: how operands are put together, whose error an error is, and what becomes of a
// request that is late, interrupted, lost or answered wrongly.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/unit/client/fake_sessions.h"

namespace reduced::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Replies = absl::StatusOr<std::vector<Reply>>;

std::string ErrorText(const Replies& replies) { return std::string(replies.status().message()); }

class SessionManyTest : public FakeSessionsTest {
 protected:
  // What `operands` give while `handle` answers what comes.
  template <class Handle>
  Replies Reduce(Session& session, const std::vector<Operand>& operands, const ReduceOptions& options, Handle handle) {
    service_.at_once = false;
    Replies replies;
    std::thread caller([&] { replies = session.ReduceMany(operands, {"sum"}, options); });
    handle();
    caller.join();
    service_.at_once = true;
    return replies;
  }
  void AnswerNext() { service_.Answer(FakeSessions::AnswerTo(service_.Next())); }
};

TEST_F(SessionManyTest, PutsOperandsTogether) {
  const auto session = Open();
  std::vector<int> operands;
  const std::vector<Operand> arrays(2500, array_);
  const Replies replies = Reduce(*session, arrays, {}, [&] {
    for (int i = 0; i < 3; ++i) {
      const v1::SessionRequest request = service_.Next();
      operands.push_back(request.reduce_many().operands_size());
      v1::SessionResponse response = FakeSessions::AnswerTo(request);
      for (int k = 0; k < response.many_response().responses_size(); ++k) {
        v1::ReduceResponse& each = *response.mutable_many_response()->mutable_responses(k);
        each.mutable_results(0)->mutable_value()->set_f(1000 * i + k);
      }
      service_.Answer(response);
    }
  });
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ(operands, (std::vector<int>{1000, 1000, 500})) << "as many as the server takes";
  ASSERT_EQ(replies->size(), arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ((*replies)[i].Find("sum")->AsDouble(), static_cast<double>(i));
    EXPECT_EQ((*replies)[i].via, "session");
    EXPECT_EQ((*replies)[i].count, 3);
  }
}

TEST_F(SessionManyTest, SendsWhatIsAsked) {
  const auto session = Open();
  const std::vector<Operand> operands = {array_, RemoteArray::Resident("an id"),
                                         RemoteArray::InRegion("a token", 3, "f32", {2, 4})};
  v1::SessionRequest request;
  const Replies replies = Reduce(*session, operands, {.ddof = 3, .timeout = absl::Seconds(20)}, [&] {
    request = service_.Next();
    service_.Answer(FakeSessions::AnswerTo(request));
  });
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_GT(request.timeout_ms(), 10'000);
  EXPECT_LE(request.timeout_ms(), 20'000);
  const v1::ReduceManyRequest& many = request.reduce_many();
  EXPECT_EQ(many.question().options().ddof(), 3);
  EXPECT_EQ(many.question().ops_size(), 1);
  EXPECT_EQ(many.operands(0).inline_data(), std::string(reinterpret_cast<const char*>(elements_.data()), 12));
  EXPECT_EQ(many.operands(1).array_id(), "an id");
  EXPECT_EQ(many.operands(2).region().token(), "a token");
  EXPECT_EQ(many.operands(2).region().offset(), 3);
  EXPECT_EQ((*replies)[2].count, 8);
}

// The fake server takes messages of 100,000 bytes.
TEST_F(SessionManyTest, KeepsMessagesWithinTheLimit) {
  const auto session = Open();
  const std::vector<float> array(10'000, 1);  // 40 KB
  std::vector<int> operands;
  const Replies replies = Reduce(*session, std::vector<Operand>(5, ArrayView::Of(array)), {}, [&] {
    for (int i = 0; i < 3; ++i) {
      const v1::SessionRequest request = service_.Next();
      EXPECT_LE(request.ByteSizeLong(), 100'000U);
      operands.push_back(request.reduce_many().operands_size());
      service_.Answer(FakeSessions::AnswerTo(request));
    }
  });
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ(operands, (std::vector<int>{2, 2, 1}));
  const std::vector<float> large(25'000, 1);  // as many bytes as a message, without what is beside them
  EXPECT_THAT(
      session->ReduceMany({array_, ArrayView::Of(large)}, {"sum"}).status().ToString(),
      HasSubstr(absl::StrCat("RESOURCE_EXHAUSTED: the request is larger than ", address_, " accepts: got 1000")));
  EXPECT_TRUE(session->ReduceMany({array_}, {"sum"}).ok()) << "the session stays";
  EXPECT_EQ(service_.opened(), 1);
}

TEST_F(SessionManyTest, NamesTheCallersOperandInErrors) {
  const auto session = Open();
  const Replies overflow = Reduce(*session, std::vector<Operand>(1030, array_), {}, [&] {
    AnswerNext();
    v1::SessionResponse error;
    error.set_id(service_.Next().id());
    error.set_code(grpc::StatusCode::OUT_OF_RANGE);
    error.set_message("operands[3]: integer overflow");
    service_.Answer(error);
  });
  EXPECT_EQ(overflow.status(), absl::OutOfRangeError("operands[1003]: integer overflow"));
  const auto error = [&](const std::vector<Operand>& operands, const std::vector<std::string>& ops,
                         const ReduceOptions& options = {}) {
    const Replies replies = session->ReduceMany(operands, ops, options);
    EXPECT_TRUE(absl::IsInvalidArgument(replies.status())) << replies.status();
    EXPECT_EQ(replies.status(), client_->ReduceMany(operands, ops, options).status()) << "as a client";
    return ErrorText(replies);
  };
  ArrayView wrong = array_;
  wrong.dtype = "f31";
  EXPECT_THAT(error({array_, wrong}, {"sum"}), StartsWith("operands[1].dtype: got "));
  wrong = array_;
  wrong.data = nullptr;
  EXPECT_THAT(error({array_, wrong}, {"sum"}), StartsWith("operands[1].data: got null"));
  EXPECT_THAT(error({array_, RemoteArray::InRegion("t", 0, "f3", {2})}, {"sum"}),
              StartsWith("operands[1].dtype: got "));
  EXPECT_THAT(error({}, {"sum"}), StartsWith("operands: got none; allowed: 1 or more"));
  EXPECT_THAT(error({array_}, {"some"}), StartsWith("op: got \"some\""));
  EXPECT_THAT(error({array_}, {}), StartsWith("ops: got none"));
  EXPECT_THAT(error({array_}, {"sum"}, {.via = "pigeon"}), StartsWith("via: got \"pigeon\""));
  EXPECT_THAT(error({array_}, {"sum"}, {.timeout = -absl::Seconds(1)}), StartsWith("timeout: got -1s"));
  EXPECT_TRUE(session->ReduceMany({array_}, {"sum"}).ok()) << "nothing of these was sent";
}

TEST_F(SessionManyTest, ChecksTheAnswers) {
  const auto session = Open();
  const auto spoiled = [&](auto spoil) {
    return Reduce(*session, {array_, array_}, {}, [&] {
      v1::SessionResponse response = FakeSessions::AnswerTo(service_.Next());
      spoil(response.mutable_many_response());
      service_.Answer(response);
    });
  };
  const Replies few = spoiled([](v1::ReduceManyResponse* many) { many->mutable_responses()->RemoveLast(); });
  EXPECT_TRUE(absl::IsInternal(few.status()));
  EXPECT_THAT(ErrorText(few), HasSubstr("is wrong: responses: got 1; allowed: 2"));
  const Replies count = spoiled([](v1::ReduceManyResponse* many) { many->mutable_responses(1)->set_count(4); });
  EXPECT_TRUE(absl::IsInternal(count.status())) << count.status();
  const Replies none = spoiled([](v1::ReduceManyResponse* many) { many->Clear(); });
  EXPECT_TRUE(absl::IsInternal(none.status())) << none.status();
}

TEST_F(SessionManyTest, EndsWithItsTimeAndItsCaller) {
  const auto session = Open();
  for (const bool interrupted : {false, true}) {
    ReduceOptions options;
    if (interrupted) {
      options.interrupted = [] { return true; };
    } else {
      options.timeout = absl::Milliseconds(40);
    }
    const Replies replies = Reduce(*session, {array_}, options, [&] {
      const v1::SessionRequest request = service_.Next();
      EXPECT_TRUE(request.has_reduce_many());
      const v1::SessionRequest cancel = service_.Next();
      EXPECT_TRUE(cancel.has_cancel());
      EXPECT_EQ(cancel.id(), request.id());
      service_.Answer(FakeSessions::AnswerTo(request));  // it crossed: nobody waits for it
    });
    EXPECT_EQ(replies.status().code(),
              interrupted ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(session->ReduceMany({array_}, {"sum"}).ok());
}

TEST_F(SessionManyTest, WhatIsNotAnsweredGoesInAnotherCall) {
  const auto session = Open();
  const Replies replies = Reduce(*session, {array_, array_}, {}, [&] {
    const v1::SessionRequest request = service_.Next();
    service_.End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining"));
    const v1::SessionRequest again = service_.Next();
    EXPECT_EQ(again.SerializeAsString(), request.SerializeAsString());
    service_.Answer(FakeSessions::AnswerTo(again));
  });
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ(replies->at(1).attempts, 2);
  EXPECT_EQ(service_.opened(), 2);
}

TEST_F(SessionManyTest, AnOlderServerHasNone) {
  service_.max_operands = 0;
  const auto session = Open();
  EXPECT_EQ(
      session->ReduceMany({array_}, {"sum"}).status(),
      absl::UnimplementedError(absl::StrCat(address_, " has no requests of many arrays: it is of an older version")));
  EXPECT_TRUE(session->Reduce(array_, {"sum"}).ok()) << "the session stays";
}

}  // namespace
}  // namespace reduced::client
