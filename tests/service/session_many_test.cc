// ReduceMany in sessions and rings: the answers and errors of the call, in messages of a session and in a ring's arena,
// and through the library's Session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/algebra/dtype.h"
#include "reduced/client.h"
#include "tests/service/array_calls.h"
#include "tests/service/held_engine.h"
#include "tests/service/many_calls.h"
#include "tests/service/ring_client.h"
#include "tests/service/test_server.h"

namespace reduced::server::session_many {
namespace {

using client::ArrayView;
using client::Client;
using client::Operand;
using client::RemoteArray;
using client::Reply;
using client::Session;
using ::testing::StartsWith;

using Replies = absl::StatusOr<std::vector<Reply>>;

// A session by the stub that protoc generates.
class StubSession {
 public:
  explicit StubSession(const TestClient& client) : stub_(v1::Reduction::NewStub(client.channel())) {
    SetContextDeadline(&context_);
    call_ = stub_->Session(&context_);
  }
  bool Send(std::uint64_t id, const v1::ReduceManyRequest& many, std::int64_t timeout_ms = 0) {
    v1::SessionRequest request;
    request.set_id(id);
    request.set_timeout_ms(timeout_ms);
    *request.mutable_reduce_many() = many;
    return call_->Write(request);
  }
  bool SendCancel(std::uint64_t id) {
    v1::SessionRequest request;
    request.set_id(id);
    request.mutable_cancel();
    return call_->Write(request);
  }
  bool SendReduce(std::uint64_t id, const v1::ReduceRequest& reduce) {
    v1::SessionRequest request;
    request.set_id(id);
    *request.mutable_reduce() = reduce;
    return call_->Write(request);
  }
  // The next answer; with code -1 there is none any more.
  v1::SessionResponse Read() {
    v1::SessionResponse response;
    if (!call_->Read(&response)) response.set_code(-1);
    return response;
  }
  // "ID: CODE MESSAGE".
  std::string ReadError() {
    const v1::SessionResponse response = Read();
    return absl::StrCat(response.id(), ": ", response.code(), " ", response.message());
  }

 private:
  std::unique_ptr<v1::Reduction::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
};

void ExpectSame(const v1::ReduceManyResponse& got, const v1::ReduceManyResponse& expected) {
  ASSERT_EQ(got.responses_size(), expected.responses_size());
  for (int i = 0; i < got.responses_size(); ++i) {
    EXPECT_EQ(Answered(got.responses(i)), Answered(expected.responses(i))) << i;
  }
  EXPECT_EQ(got.timing().bytes(), expected.timing().bytes());
  EXPECT_TRUE(got.timing().has_receive_us());
  EXPECT_GT(got.timing().total_us(), 0);
}

v1::ReduceManyRequest Few(int count = 3) {
  v1::ReduceManyRequest request;
  for (int i = 0; i < count; ++i) AddOperand(DType::kI64, 10 + i, &request);
  AddOps({v1::OP_SUM, v1::OP_MAX}, &request);
  return request;
}

TEST(SessionManyTest, AnswersAsTheCallDoes) {
  TestServer server;
  StubSession session(server.client());
  v1::ReduceManyRequest request;
  for (const std::int64_t count : {0, 1, 1000, 400'000}) {
    for (const DTypeRow& dtype : kDTypes) AddOperand(dtype.dtype, count, &request);
  }
  request.mutable_question()->set_op_errors(true);
  request.mutable_question()->set_return_state(true);
  std::uint64_t id = 0;
  for (const std::vector<v1::Op>& ops : {std::vector<v1::Op>{v1::OP_SUM, v1::OP_MIN, v1::OP_STD, v1::OP_COUNT},
                                         {v1::OP_FINGERPRINT, v1::OP_MEDIAN, v1::OP_DISTINCT}}) {
    request.mutable_question()->clear_ops();
    AddOps(ops, &request);
    v1::ReduceManyResponse expected;
    ASSERT_TRUE(ReduceMany(server.client(), request, &expected).ok());
    ASSERT_TRUE(session.Send(++id, request));
    const v1::SessionResponse response = session.Read();
    ASSERT_EQ(response.code(), 0) << response.message();
    EXPECT_EQ(response.id(), id);
    EXPECT_FALSE(response.has_response());
    ExpectSame(response.many_response(), expected);
  }
}

TEST(SessionManyTest, ErrorsAreThoseOfTheCallAndOfOneRequest) {
  ServerOptions options;
  options.limits.max_operands = 4;
  options.limits.max_result_bytes = 1 << 10;
  TestServer server(options);
  StubSession session(server.client());
  const auto refuses = [&](v1::ReduceManyRequest request, absl::string_view message) {
    v1::ReduceManyResponse unused;
    const grpc::Status status = ReduceMany(server.client(), request, &unused);
    EXPECT_THAT(status.error_message(), StartsWith(std::string(message)));
    ASSERT_TRUE(session.Send(7, request));
    EXPECT_EQ(session.ReadError(), absl::StrCat("7: ", status.error_code(), " ", status.error_message()));
    ASSERT_TRUE(session.Send(8, Few()));
    EXPECT_EQ(session.Read().many_response().responses_size(), 3) << "the session goes on";
  };
  refuses(Few(0), "operands: got 0; allowed: 1 to 4");
  refuses(Few(5), "operands: got 5; allowed: 1 to 4");
  v1::ReduceManyRequest request = Few();
  request.mutable_operands(2)->mutable_array()->set_dtype(static_cast<v1::DType>(77));
  refuses(request, "operands[2].array.dtype: got 77");
  request = Few();
  request.mutable_operands(1)->clear_array();
  request.mutable_operands(1)->set_array_id("gone");
  refuses(request, "operands[1].array_id: got ");
  request = Few();
  const std::vector<std::int64_t> large(11, std::int64_t{1} << 62);
  request.mutable_operands(1)->set_inline_data(large.data(), large.size() * sizeof(large[0]));
  refuses(request, "operands[1]: integer overflow");
  request = Few();
  request.mutable_question()->set_ops(0, v1::OP_DOT);
  refuses(request, "operands[0]: ");
  request = Few();
  request.mutable_question()->mutable_y();
  refuses(request, "question.y: got it");
  request = Few();
  request.mutable_question()->clear_ops();
  v1::OpCall* const call = request.mutable_question()->add_calls();
  call->set_op(v1::OP_HISTOGRAM);
  call->mutable_histogram()->mutable_uniform()->set_high(1);
  call->mutable_histogram()->mutable_uniform()->set_bins(64);  // 512 bytes
  refuses(request, "operands[1]: got ");
  EXPECT_EQ(InfoOf(server).usage().sessions(), 1);
}

TEST(SessionManyTest, EndsByItsIdAndItsTimeAndNoOther) {
  HeldServer server(8);
  StubSession session(server->client());
  ASSERT_TRUE(session.Send(1, Few()));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag cancelled = server.engine().cancelled();
  ASSERT_TRUE(session.SendReduce(2, SmallSum()));
  ASSERT_TRUE(server.engine().AwaitHeld(2, kPatience));
  ASSERT_TRUE(session.SendCancel(1));
  ASSERT_TRUE(AwaitTrue(*cancelled));
  server.engine().ReleaseOne(1);
  EXPECT_EQ(session.Read().id(), 2U) << "in the order in which they end";
  server.engine().ReleaseFirst();
  EXPECT_THAT(session.ReadError(), StartsWith("1: 1 "));
  EXPECT_EQ(server.engine().held(), 0) << "the other operands are not begun";
  ASSERT_TRUE(session.Send(3, Few(), /*timeout_ms=*/30));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  absl::SleepFor(absl::Milliseconds(40));  // the deadline
  server.engine().ReleaseFirst();
  EXPECT_THAT(session.ReadError(), StartsWith("3: 4 "));
  server.engine().Release();
  ASSERT_TRUE(session.Send(4, Few()));
  EXPECT_EQ(session.Read().many_response().responses_size(), 3);
}

TEST(SessionManyTest, MemoryAndArraysAreFreeAfterwards) {
  TestServer server;
  v1::ArrayInfo array;
  ASSERT_TRUE(
      PutElements(server.client(), PutHeaderOf(v1::DTYPE_F32, 5000), ElementsOf(DType::kF32, 5000), 1 << 16, &array)
          .ok());
  StubSession session(server.client());
  v1::ReduceManyRequest request;
  for (int i = 0; i < 200; ++i) request.add_operands()->set_array_id(array.id());
  AddOps({v1::OP_SUM}, &request);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(session.Send(id, request));
    EXPECT_EQ(session.Read().many_response().responses_size(), 200);
    EXPECT_EQ(ListArrays(server.client()).front().users(), 0);
  }
}

// Of a ring, byte by byte.
class RingManyTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(ring_.Open(InfoOf(server_).region_socket(), 4, 1 << 20)); }

  // A submission of the message at the start of the arena, and of a reply behind it.
  ring::Submission SubmissionOf(const std::string& message, std::uint64_t reply_bytes = 64 << 10) {
    std::memcpy(ring_.mapping().arena(), message.data(), message.size());
    ring::Submission submission{};
    submission.id = 5;
    submission.kind = static_cast<std::uint8_t>(ring::Kind::kReduceMany);
    submission.message_bytes = message.size();
    submission.reply_offset = 128 << 10;
    submission.reply_bytes = reply_bytes;
    return submission;
  }

  TestServer server_;
  RingClient ring_{server_.client()};
};

TEST_F(RingManyTest, AnswersAsTheCallDoes) {
  v1::ReduceManyRequest request;
  for (const std::int64_t count : {0, 1, 300}) {
    for (const DTypeRow& dtype : kDTypes) AddOperand(dtype.dtype, count, &request);
  }
  request.add_operands()->set_array_id(PutBytes(server_.client(), 1'000'000).id());  // beyond what is reduced at once
  request.mutable_question()->set_op_errors(true);
  for (const std::vector<v1::Op>& ops :
       {std::vector<v1::Op>{v1::OP_SUM, v1::OP_MIN, v1::OP_COUNT}, {v1::OP_FINGERPRINT, v1::OP_MEDIAN}}) {
    request.mutable_question()->clear_ops();
    AddOps(ops, &request);
    v1::ReduceManyResponse expected, response;
    ASSERT_TRUE(ReduceMany(server_.client(), request, &expected).ok());
    ring_.Reduce(SubmissionOf(request.SerializeAsString()));
    const ring::Completion answer = ring::CopyOut(ring_.mapping().completion(0));
    ASSERT_EQ(answer.code, 0) << ring::TextOf(answer);
    EXPECT_EQ(answer.id, 5U);
    ASSERT_TRUE(response.ParseFromArray(ring_.mapping().arena() + (128 << 10), static_cast<int>(answer.reply_bytes)));
    ExpectSame(response, expected);
  }
}

TEST_F(RingManyTest, ErrorsAreThoseOfTheirRequest) {
  const std::string right = Few().SerializeAsString();
  ring::Submission wrong = SubmissionOf(right);
  wrong.message_bytes = 0;
  EXPECT_EQ(ring_.Reduce(wrong), "3 message: got none with kind 3 (reduce many); allowed: a ReduceManyRequest");
  for (const std::uint8_t source : {1, 2, 3, 200}) {
    wrong = SubmissionOf(right);
    wrong.source = source;
    EXPECT_EQ(ring_.Reduce(wrong), absl::StrCat("3 source: got ", source, " with kind 3 (reduce many); allowed: 0"));
  }
  EXPECT_THAT(ring_.Reduce(SubmissionOf(right, 10)), StartsWith("11 reply: got 10 bytes for an answer of "));
  EXPECT_THAT(ring_.Reduce(SubmissionOf("not one")), StartsWith("3 "));
  EXPECT_THAT(ring_.Reduce(SubmissionOf(std::string((64 << 10) + 1, 'x'))),
              StartsWith("3 message: got 65537 bytes; allowed: 65536"));
  wrong = SubmissionOf(right);
  wrong.message_offset = (1 << 20) - 1;
  EXPECT_THAT(ring_.Reduce(wrong), StartsWith("11 message: got "));
  EXPECT_THAT(ring_.Reduce(SubmissionOf(v1::ReduceManyRequest().SerializeAsString() + std::string(2, '\x12'))),
              StartsWith("3 "));
  v1::ReduceManyRequest gone = Few();
  gone.mutable_operands(2)->clear_array();
  gone.mutable_operands(2)->set_array_id("gone");
  EXPECT_THAT(ring_.Reduce(SubmissionOf(gone.SerializeAsString())), StartsWith("5 operands[2].array_id: got "));
  ring_.Reduce(SubmissionOf(right));
  EXPECT_EQ(ring::CopyOut(ring_.mapping().completion(0)).code, 0U) << "the ring goes on";
}

TEST(HeldRingManyTest, EndsByItsId) {
  HeldServer server(8);
  RingClient ring(server->client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(InfoOf(*server).region_socket(), 4));
  const std::string message = Few().SerializeAsString();
  std::memcpy(ring.mapping().arena(), message.data(), message.size());
  ring::Submission submission{};
  submission.id = 5;
  submission.kind = static_cast<std::uint8_t>(ring::Kind::kReduceMany);
  submission.message_bytes = message.size();
  submission.reply_offset = submission.reply_bytes = 4096;
  ring.Submit(submission);
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag cancelled = server.engine().cancelled();
  ring::Submission cancel{};
  cancel.id = 5;
  cancel.kind = static_cast<std::uint8_t>(ring::Kind::kCancel);
  cancel.completion = 99;  // none
  ring.Submit(cancel);
  ASSERT_TRUE(AwaitTrue(*cancelled));
  server.engine().ReleaseFirst();
  EXPECT_THAT(ring.Await(), StartsWith("1 "));
  EXPECT_EQ(server.engine().held(), 0) << "the other operands are not begun";
}

// The library.

std::unique_ptr<Session> Open(Client& client, const std::string& via, std::int64_t ring_bytes = 4 << 20) {
  auto opened = client.OpenSession({.via = via, .ring_bytes = ring_bytes});
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

TEST(SessionManyArraysTest, SessionsAnswerAsClientsDo) {
  TestServer server;
  const auto client = *Client::Create({.server = server.address(), .timeout = kPatience});
  std::vector<std::string> elements;
  std::vector<Operand> operands;
  for (const std::int64_t count : {0, 3, 9000, 70'000, 300'000}) {
    for (const DTypeRow& dtype : kDTypes) {
      elements.push_back(ElementsOf(dtype.dtype, count));
      operands.emplace_back(ArrayView{nullptr, std::string(dtype.name), {count}, {}, {}});
    }
  }
  for (std::size_t i = 0; i < operands.size(); ++i) std::get<ArrayView>(operands[i]).data = elements[i].data();
  const std::vector<double> numbers = {1, 2, 3, 4};
  const auto resident = client->Put(ArrayView::Of(numbers));
  ASSERT_TRUE(resident.ok()) << resident.status();
  const auto region = client->Share(ArrayView::Of(numbers));
  ASSERT_TRUE(region.ok()) << region.status();
  operands.emplace_back(RemoteArray(*resident));
  operands.emplace_back(region->Array("f64", {2}, 8));
  for (const auto& [via, ring_bytes] :
       {std::pair<std::string, std::int64_t>{"session", 1}, {"ring", 4 << 20}, {"ring", 64 << 20}, {"ring", 4096}}) {
    const auto session = Open(*client, via, ring_bytes);
    ASSERT_NE(session, nullptr);
    for (const std::vector<std::string>& ops :
         {std::vector<std::string>{"sum", "max", "std", "count"}, {"fingerprint", "topk( 2 )", "count"}}) {
      const client::ReduceOptions options{.return_state = true};
      const Replies expected = client->ReduceMany(operands, ops, options);
      ASSERT_TRUE(expected.ok()) << expected.status();
      const Replies replies = session->ReduceMany(operands, ops, options);
      ASSERT_TRUE(replies.ok()) << replies.status();
      ASSERT_EQ(replies->size(), operands.size());
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const Reply& reply = (*replies)[i];
        const Reply& as = (*expected)[i];
        EXPECT_EQ(reply.state, as.state) << i;
        EXPECT_EQ(reply.count, as.count) << i;
        ASSERT_EQ(reply.results.size(), as.results.size());
        for (std::size_t op = 0; op < as.results.size(); ++op) {
          EXPECT_EQ(reply.results[op].op, as.results[op].op);
          ASSERT_EQ(reply.results[op].value.status(), as.results[op].value.status()) << i << as.results[op].op;
          if (as.results[op].value.ok()) {
            EXPECT_EQ(reply.results[op].value->Text(), as.results[op].value->Text());
          }
        }
        ASSERT_EQ(reply.arrays.size(), as.arrays.size());
        for (std::size_t op = 0; op < as.arrays.size(); ++op) {
          EXPECT_EQ(reply.arrays[op].op, as.arrays[op].op);
          EXPECT_EQ(reply.arrays[op].array.data, as.arrays[op].array.data);
        }
      }
      if (ring_bytes >= 4 << 20 && ops[0] == "sum") {
        for (const Reply& reply : *replies) EXPECT_EQ(reply.via, "ring");
      }
    }
  }
}

TEST(SessionManyArraysTest, AThousandNamesFitIntoARing) {
  TestServer server;
  const auto client = *Client::Create({.server = server.address(), .timeout = kPatience});
  const std::vector<float> numbers = {1, 2, 3};
  const auto resident = client->Put(ArrayView::Of(numbers));
  ASSERT_TRUE(resident.ok()) << resident.status();
  for (const char* const via : {"session", "ring"}) {
    const auto session = Open(*client, via, 8 << 20);
    ASSERT_NE(session, nullptr);
    const Replies replies = session->ReduceMany(std::vector<Operand>(1000, RemoteArray(*resident)), {"sum", "max"});
    ASSERT_TRUE(replies.ok()) << replies.status();
    for (const Reply& reply : *replies) {
      EXPECT_EQ(reply.via, via);
      EXPECT_EQ(reply.Find("sum")->AsDouble(), 6);
    }
  }
}

TEST(SessionManyArraysTest, ErrorsAreThoseOfAClient) {
  ServerOptions options;
  options.limits.max_operands = 16;
  TestServer server(options);
  const auto client = *Client::Create({.server = server.address(), .timeout = kPatience});
  const std::vector<std::int64_t> few = {1, 2}, large(4, std::int64_t{1} << 62), longer(4000, std::int64_t{1} << 62);
  const std::vector<double> floats = {1};
  const ArrayView good = ArrayView::Of(few);
  for (const char* const via : {"session", "ring"}) {
    const auto session = Open(*client, via);
    ASSERT_NE(session, nullptr);
    const auto same = [&](const std::vector<Operand>& operands, const std::vector<std::string>& ops,
                          const std::string& message) {
      const absl::Status status = session->ReduceMany(operands, ops).status();
      const absl::Status expected = client->ReduceMany(operands, ops).status();
      EXPECT_EQ(status.code(), expected.code()) << status;
      EXPECT_EQ(status.message(), expected.message());
      EXPECT_THAT(std::string(status.message()), StartsWith(message));
    };
    same({}, {"sum"}, "operands: got none");
    same({good}, {"some"}, "op: got ");
    same({good, good, ArrayView::Of(large), good}, {"sum"}, "operands[2]: integer overflow");
    same({good, ArrayView::Of(longer)}, {"sum"}, "operands[1]: integer overflow");  // by itself in a ring
    same({good, good, good, RemoteArray::Resident("gone")}, {"sum"}, "operands[3].array_id: got ");
    same({good, ArrayView::Of(floats)}, {"bit_and"}, "operands[1]: op bit_and: ");
    same({good, good}, {"dot"}, "operands[0]: ");
    // More operands than one request may have are several.
    const Replies many = session->ReduceMany(std::vector<Operand>(100, good), {"sum"});
    ASSERT_TRUE(many.ok()) << many.status();
    EXPECT_EQ(many->at(99).Find("sum")->AsDouble(), 3);
  }
}

TEST(SessionManyArraysTest, EndsWithItsTimeAndItsCaller) {
  HeldServer server(8);
  const auto client = *Client::Create({.server = server->address(), .timeout = kPatience});
  const std::vector<double> numbers = {1, 2};
  const std::vector<Operand> operands(3, ArrayView::Of(numbers));
  for (const char* const via : {"session", "ring"}) {
    const auto session = Open(*client, via);
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(session->ReduceMany(operands, {"sum"}, {.timeout = absl::Milliseconds(50)}).status()));
    EXPECT_TRUE(
        absl::IsCancelled(session->ReduceMany(operands, {"sum"}, {.interrupted = [] { return true; }}).status()));
    EXPECT_TRUE(AwaitTrue(*server.engine().cancelled(1)));
    server.engine().ReleaseFirst();
    server.engine().ReleaseFirst();
    Replies replies;
    std::thread caller([&] { replies = session->ReduceMany(operands, {"sum"}); });
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(server.engine().AwaitHeld(1, kPatience));
      server.engine().ReleaseFirst();
    }
    caller.join();
    ASSERT_TRUE(replies.ok()) << replies.status();
    EXPECT_EQ(replies->at(2).Find("sum")->AsDouble(), 3);
  }
}

TEST(SessionManyArraysTest, ThreadsShareARing) {
  ServerOptions options;
  options.limits.max_session_requests = 4;  // fewer than there are threads
  TestServer server(options);
  const auto client = *Client::Create({.server = server.address(), .timeout = kPatience});
  const auto ring = Open(*client, "ring", 256 << 10);
  ASSERT_NE(ring, nullptr);
  std::vector<std::thread> threads;
  for (int t = 1; t <= 6; ++t) {
    threads.emplace_back([&ring, t] {
      const std::vector<double> numbers(static_cast<std::size_t>(10 * t), t);
      for (int i = 0; i < 50; ++i) {
        const Replies many = ring->ReduceMany(
            std::vector<Operand>(static_cast<std::size_t>(1 + i % 9 * t), ArrayView::Of(numbers)), {"sum"});
        ASSERT_TRUE(many.ok()) << many.status();
        for (const Reply& reply : *many) ASSERT_EQ(reply.Find("sum")->AsDouble(), 10.0 * t * t);
        ASSERT_EQ(ring->Reduce(ArrayView::Of(numbers), {"sum"})->Find("sum")->AsDouble(), 10.0 * t * t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SessionManyArraysTest, TheEndOfTheServerIsAnError) {
  auto server = std::make_unique<HeldServer>(8);
  const auto client = *Client::Create({.server = (*server)->address(), .timeout = absl::Seconds(2)});
  const auto ring = Open(*client, "ring");
  ASSERT_NE(ring, nullptr);
  const std::vector<double> numbers = {1, 2};
  Replies replies;
  std::thread caller([&] { replies = ring->ReduceMany(std::vector<Operand>(2, ArrayView::Of(numbers)), {"sum"}); });
  ASSERT_TRUE(server->engine().AwaitHeld(1, kPatience));
  std::thread shutdown([&] { (*server)->server().Shutdown(absl::ZeroDuration()); });
  const CancelFlag flag = server->engine().cancelled(0);
  EXPECT_TRUE(AwaitTrue(*flag));
  server->engine().Release();
  shutdown.join();
  caller.join();  // no other server comes
  EXPECT_FALSE(replies.ok());
  EXPECT_FALSE(ring->ReduceMany({ArrayView::Of(numbers)}, {"sum"}).ok());
}

}  // namespace
}  // namespace reduced::server::session_many
