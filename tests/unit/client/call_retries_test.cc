// Which calls are sent again, when, how often, and when not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::HasSubstr;

class RetriesTest : public CallTest {
 protected:
  void SetUp() override {
    CallTest::SetUp();
    service_.on_context = [this](grpc::CallbackServerContext* context) {
      if (!hint_.empty()) context->AddTrailingMetadata("grpc-retry-pushback-ms", hint_);
    };
    service_.on_reduce = [this](const auto&, auto*) { return Next(); };
  }

  // Fails the first `failures_` times.
  grpc::Status Next() { return ++calls_ <= failures_ ? failure_ : grpc::Status::OK; }

  absl::StatusOr<Reply> ReduceAsync(Client& client, const ReduceOptions& options = {}) {
    absl::Notification finished;
    absl::StatusOr<Reply> answer;
    client.ReduceAsync(array_, {"sum"}, options, [&](absl::StatusOr<Reply> reply) {
      answer = std::move(reply);
      finished.Notify();
    });
    EXPECT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
    return answer;
  }

  std::atomic<int> calls_ = 0;
  std::atomic<int> failures_ = 2;
  grpc::Status failure_{grpc::StatusCode::UNAVAILABLE, "draining"};
  std::string hint_;
};

TEST_F(RetriesTest, AnInlineReduceIsSentAgain) {
  const auto check = [&](const absl::StatusOr<Reply>& reply) {
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->attempts, 3);
    EXPECT_EQ(calls_.exchange(0), 3);
  };
  check(client_->Reduce(array_, {"sum"}));
  EXPECT_EQ(client_->retries(), 2);
  check(ReduceAsync(*client_));
  check(client_->Reduce(RemoteArray::Resident("id"), {"sum"}));
  EXPECT_EQ(client_->retries(), 6);
  failures_ = 0;
  EXPECT_EQ(client_->Reduce(array_, {"sum"})->attempts, 1);
}

TEST_F(RetriesTest, SoAreOtherCallsThatChangeNothing) {
  service_.on_info = [this] { return Next(); };
  service_.on_list = [this](const auto&, auto*) { return Next(); };
  service_.on_merge = [this](const auto&, v1::MergeResponse* response) {
    const grpc::Status status = Next();
    response->set_count(3);
    response->add_results()->set_op(v1::OP_SUM);
    SetZero(DType::kI64, response->mutable_results(0)->mutable_value());
    return status;
  };
  const std::function<absl::Status()> kCalls[] = {
      [&] { return client_->GetServerInfo().status(); },
      [&] { return client_->ListArrays().status(); },
      [&] { return client_->Merge({SumState(3).SerializeAsString()}).status(); },
  };
  for (const auto& call : kCalls) {
    EXPECT_EQ(call(), absl::OkStatus());
    EXPECT_EQ(calls_.exchange(0), 3);
  }
}

TEST_F(RetriesTest, SoAreStreamsAndCallsWhoseEffectMayBeHadTwice) {
  service_.on_stream = [this](const auto&) { return Next(); };
  service_.on_put = [this](const auto&) { return Next(); };
  service_.on_delete = [this](const auto&) { return Next(); };
  const std::function<absl::Status()> kCalls[] = {
      [&] {
        const absl::StatusOr<Reply> reply = client_->Reduce(array_, {"sum"}, {.via = "stream"});
        EXPECT_EQ(reply.ok() ? reply->attempts : 0, 3);
        return reply.status();
      },
      [&] {
        const absl::StatusOr<Reply> reply = ReduceAsync(*client_, {.via = "stream"});
        EXPECT_EQ(reply.ok() ? reply->attempts : 0, 3);
        return reply.status();
      },
      [&] {
        absl::StatusOr<ResidentArray> array = client_->Put(array_);
        if (array.ok()) array->Release();
        return array.status();
      },
      [&] { return client_->DeleteArray("id"); },
  };
  for (std::size_t i = 0; i < std::size(kCalls); ++i) {
    EXPECT_EQ(kCalls[i](), absl::OkStatus());
    EXPECT_EQ(calls_.exchange(0), i < 3 ? 4 : 3) << i;  // a stream has two messages
  }
}

TEST_F(RetriesTest, ALadderIsUntilItsFirstStep) {
  service_.on_ladder = [this](const auto&, auto*) { return Next(); };
  client_->Ladder({.dtype = "i32", .count = 1}, [](const auto&, const auto&) {}).IgnoreError();  // an empty answer
  EXPECT_EQ(calls_, 3);
}

TEST_F(RetriesTest, AnArrayThatADeletionDoesNotFindAgainIsDeleted) {
  failures_ = 1;
  service_.on_delete = [this](const auto&) {
    const grpc::Status status = Next();
    return status.ok() ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no such array") : status;
  };
  EXPECT_EQ(client_->DeleteArray("id"), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(client_->DeleteArray("id")));  // the first attempt says so
}

TEST_F(RetriesTest, ElementsThatCanBeReadOnlyOnceAreSentOnce) {
  service_.on_stream = [this](const auto&) { return Next(); };
  ArrayView array{.dtype = "f32", .shape = {3}};
  array.reader.read = [this](std::int64_t first, char* to, std::int64_t bytes) {
    std::memcpy(to, static_cast<const char*>(array_.data) + first, static_cast<std::size_t>(bytes));
    return absl::OkStatus();
  };
  EXPECT_TRUE(client_->Reduce(array, {"sum"}, {.via = "stream"}).ok());
  EXPECT_EQ(calls_.exchange(0), 4);
  array.reader.in_order = true;
  const absl::Status status = client_->Reduce(array, {"sum"}, {.via = "stream"}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("can be read only once, so they aren't sent again"));
  EXPECT_EQ(calls_, 1);
}

TEST_F(RetriesTest, OnlyFailuresThatMayPass) {
  const struct {
    grpc::StatusCode code;
    std::string hint;
    int calls;
  } kCases[] = {
      {grpc::StatusCode::UNAVAILABLE, "", 3},
      {grpc::StatusCode::UNAVAILABLE, "1", 3},
      {grpc::StatusCode::CANCELLED, "", 3},  // not by the client
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "1", 3},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "", 1},
      {grpc::StatusCode::UNAVAILABLE, "-1", 1},
      {grpc::StatusCode::INVALID_ARGUMENT, "1", 1},
      {grpc::StatusCode::INTERNAL, "", 1},
      {grpc::StatusCode::DEADLINE_EXCEEDED, "", 1},
      {grpc::StatusCode::OUT_OF_RANGE, "", 1},
      {grpc::StatusCode::FAILED_PRECONDITION, "", 1},
  };
  for (const auto& [code, hint, calls] : kCases) {
    failure_ = grpc::Status(code, "no");
    hint_ = hint;
    EXPECT_EQ(client_->Reduce(array_, {"sum"}).ok(), calls > 1) << code << " " << hint;
    EXPECT_EQ(calls_.exchange(0), calls) << code << " " << hint;
  }
}

TEST_F(RetriesTest, AsOftenAsTheOptionSays) {
  failures_ = 100;
  for (const int most : {1, 2, 5}) {
    hint_ = "1";
    const auto client = Client::Create({.server = address_, .timeout = kLong, .max_attempts = most}).value();
    for (const bool waits : {true, false}) {
      const absl::Status status = (waits ? client->Reduce(array_, {"sum"}) : ReduceAsync(*client)).status();
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_EQ(status.message(), absl::StrCat(address_, ": draining; try again in 1 ms",
                                               most == 1 ? "" : absl::StrCat("; tried ", most, " times")));
      EXPECT_EQ(RetryAfterOf(status), absl::Milliseconds(1));
      EXPECT_EQ(calls_.exchange(0), most);
    }
    EXPECT_EQ(client->retries(), 2 * (most - 1));
  }
  for (const int wrong : {0, -1, 11}) {
    EXPECT_EQ(Client::Create({.server = address_, .max_attempts = wrong}).status(),
              absl::InvalidArgumentError(absl::StrCat("max_attempts: got ", wrong, "; allowed: 1 to 10")));
  }
}

TEST_F(RetriesTest, NotBeforeTheServerWantsIt) {
  hint_ = "150";
  failures_ = 1;
  for (int i = 0; i < 3; ++i) {
    calls_ = 0;
    const absl::Time start = absl::Now();
    ASSERT_TRUE((i % 2 == 0 ? client_->Reduce(array_, {"sum"}) : ReduceAsync(*client_)).ok());
    EXPECT_GE(absl::Now() - start, absl::Milliseconds(150));
    EXPECT_EQ(calls_, 2);
  }
}

TEST_F(RetriesTest, NotIfTheTimeoutWouldPassMeanwhile) {
  hint_ = "60000";
  const absl::Time start = absl::Now();
  for (const bool waits : {true, false}) {
    const absl::Status status = (waits ? client_->Reduce(array_, {"sum"}) : ReduceAsync(*client_)).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(status.message(), absl::StrCat(address_, ": draining; try again in 60000 ms"));
    EXPECT_EQ(calls_.exchange(0), 1);
  }
  EXPECT_LT(absl::Now() - start, kLong);
}

TEST_F(RetriesTest, ACallCanBeCancelledBetweenTwoAttempts) {
  hint_ = "20000";  // less than the timeout
  absl::Notification finished;
  absl::Status status;
  Call call = client_->ReduceAsync(array_, {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
    status = reply.status();
    finished.Notify();
  });
  const absl::Time start = absl::Now();
  while (client_->retries() == 0 && absl::Now() < start + kLong) absl::SleepFor(absl::Milliseconds(1));
  ASSERT_EQ(client_->retries(), 1);
  call.Cancel();
  ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_EQ(calls_, 1);
  call.Cancel();  // no effect
}

TEST_F(RetriesTest, AServerThatComesBackAnswersTheSameCall) {
  ASSERT_TRUE(client_->Reduce(array_, {"sum"}).ok());  // connected; uses up the failures
  for (const bool waits : {true, false}) {
    server_->Shutdown();
    server_.reset();
    const std::int64_t before = client_->retries();
    absl::StatusOr<Reply> reply;
    std::thread caller([&] { reply = waits ? client_->Reduce(array_, {"sum"}) : ReduceAsync(*client_); });
    const absl::Time start = absl::Now();
    while (client_->retries() == before && absl::Now() < start + kLong) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Seconds(1));  // longer than four attempts without a server would take
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    caller.join();
    ASSERT_NE(server_, nullptr);
    EXPECT_TRUE(reply.ok()) << reply.status();
  }
}

TEST_F(RetriesTest, WithoutAServerTheErrorIsTheReason) {
  ASSERT_TRUE(client_->Reduce(array_, {"sum"}).ok());
  server_->Shutdown();
  server_.reset();
  for (const bool waits : {true, false}) {
    const ReduceOptions options{.timeout = absl::Milliseconds(500)};
    const absl::Status status =
        (waits ? client_->Reduce(array_, {"sum"}, options) : ReduceAsync(*client_, options)).status();
    EXPECT_EQ(status, absl::UnavailableError(absl::StrCat("no reduced server answers at ", address_,
                                                          " (connection refused); waited for a server until the "
                                                          "deadline")));
  }
}

}  // namespace
}  // namespace reduced::client
