// PutArray, ListArrays, DeleteArray and reductions of what they keep, through the RPCs: answers, limits, and clients
// that go away.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/array_calls.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/test_server.h"
#include "tests/service/unread_call.h"

namespace reduced::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ArraysTest : public ::testing::Test {
 protected:
  // Every test leaves the server, whose engine others share, as it was.
  void TearDown() override {
    for (const v1::ArrayInfo& array : ListArrays(client()))
      EXPECT_TRUE(DeleteArray(client(), array.id(), array.owner()).ok());
    EXPECT_TRUE(AwaitThat([this] { return Idle(server_); }));
  }
  TestClient& client() { return server_.client(); }

  TestServer server_;
};

TEST_F(ArraysTest, AnswerAsReduceDoesHoweverTheyWereCut) {
  for (const DTypeRow& dtype : kDTypes) {
    std::vector<v1::Op> ops;
    for (const OpRow& op : kOps) {
      if (Supports(op.op, dtype.dtype) && HasAccumulator(op.op)) ops.push_back(static_cast<v1::Op>(op.op));
    }
    const std::int64_t count = 100'003;
    const std::string elements = ElementsOf(dtype.dtype, count);
    v1::ReduceRequest request;
    *request.mutable_array() = PutHeaderOf(static_cast<v1::DType>(dtype.dtype), count).array();
    request.mutable_ops()->Add(ops.begin(), ops.end());
    request.mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_WRAP);
    v1::ReduceRequest inline_request = request;
    inline_request.set_inline_data(elements);
    v1::ReduceResponse expected;
    ASSERT_TRUE(client().Reduce(inline_request, &expected).ok());

    const std::size_t chunk = dtype.bytes == 1 ? 1001 : 200'001;
    v1::ArrayInfo array;
    const grpc::Status put =
        PutElements(client(), PutHeaderOf(static_cast<v1::DType>(dtype.dtype), count), elements, chunk, &array);
    ASSERT_TRUE(put.ok()) << put.error_message();
    EXPECT_EQ(array.bytes(), count * dtype.bytes);
    request.clear_array();
    request.set_array_id(array.id());
    for (int run = 0; run < 2; ++run) {
      v1::ReduceResponse response;
      const grpc::Status status = client().Reduce(request, &response);
      ASSERT_TRUE(status.ok()) << dtype.name << ": " << status.error_message();
      EXPECT_EQ(Texts(response), Texts(expected)) << dtype.name;
      EXPECT_EQ(response.count(), count);
      EXPECT_EQ(response.timing().bytes(), count * dtype.bytes);
      EXPECT_EQ(response.execution().device(), "cpu");
    }
  }
}

TEST_F(ArraysTest, AreListedWithAllThatIsKnownOfThem) {
  v1::PutArrayHeader header = PutHeaderOf(v1::DTYPE_I16, 2, "m\xc3\xa9");
  header.mutable_array()->add_shape(3);
  header.set_ttl_ms(5000);
  v1::ArrayInfo put;
  ASSERT_TRUE(PutElements(client(), header, std::string(12, 'x'), 5, &put).ok());
  const v1::ArrayInfo other = PutBytes(client(), 3);
  const std::vector<v1::ArrayInfo> listed = ListArrays(client(), "m\xc3\xa9");
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].id(), put.id());
  EXPECT_EQ(listed[0].array().dtype(), v1::DTYPE_I16);
  EXPECT_THAT(listed[0].array().shape(), ElementsAre(2, 3));
  EXPECT_EQ(listed[0].bytes(), 12);
  EXPECT_EQ(listed[0].device(), "cpu");
  EXPECT_LE(listed[0].expires_in_ms(), 5000);
  EXPECT_EQ(listed[0].users(), 0);
  EXPECT_GT(other.expires_in_ms(), 3'500'000);  // the default: an hour
  const std::vector<v1::ArrayInfo> all = ListArrays(client());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].id(), other.id());
  EXPECT_THAT(ListArrays(client(), "nobody"), IsEmpty());

  const v1::GetServerInfoResponse info = InfoOf(server_);
  EXPECT_EQ(info.usage().arrays(), 2);
  EXPECT_EQ(info.devices(0).array_bytes(), 15);
  EXPECT_EQ(info.devices(0).array_bytes_limit(), EngineOptions().cpu_array_bytes);
  EXPECT_EQ(info.limits().default_array_ttl_ms(), 3'600'000);
  EXPECT_EQ(info.limits().max_array_ttl_ms(), 86'400'000);
}

TEST_F(ArraysTest, InfoCountsWhatADeviceHasDone) {
  const v1::DeviceInfo before = InfoOf(server_).devices(0);
  v1::ReduceResponse response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client().Reduce(SmallSum(), &response).ok());
  const v1::DeviceInfo after = InfoOf(server_).devices(0);
  EXPECT_EQ(after.reductions() - before.reductions(), 3);
  EXPECT_EQ(after.reduced_bytes() - before.reduced_bytes(),
            3 * static_cast<std::int64_t>(SmallSum().inline_data().size()));
}

TEST_F(ArraysTest, AreListedInPages) {
  std::vector<std::string> put;
  for (int i = 0; i < 260; ++i) put.push_back(PutBytes(client(), 0).id());
  const auto stub = v1::Reduction::NewStub(client().channel());
  const auto pages = [&](int page_size, int then_delete = -1) {
    std::vector<std::string> ids;
    std::vector<int> sizes;
    v1::ListArraysRequest request;
    request.set_page_size(page_size);
    do {
      grpc::ClientContext context;
      SetContextDeadline(&context);
      v1::ListArraysResponse response;
      EXPECT_TRUE(stub->ListArrays(&context, request, &response).ok());
      sizes.push_back(response.arrays_size());
      for (const v1::ArrayInfo& array : response.arrays()) ids.push_back(array.id());
      request.set_page_token(response.next_page_token());
      if (then_delete >= 0) {  // the first of the next page
        EXPECT_TRUE(DeleteArray(client(), put[static_cast<std::size_t>(then_delete)]).ok());
        put.erase(put.begin() + then_delete);
        then_delete = -1;
      }
    } while (!request.page_token().empty());
    EXPECT_EQ(ids, put);
    return sizes;
  };
  EXPECT_THAT(pages(0), ElementsAre(256, 4));
  EXPECT_THAT(pages(130), ElementsAre(130, 130));
  EXPECT_THAT(pages(100, 100), ElementsAre(100, 100, 59));
  for (const auto& [page_size, token, says] : std::vector<std::tuple<int, std::string, std::string>>{
           {-1, "", "page_size: got -1; allowed: 0 (the default, 256) to 256"},
           {257, "", "page_size: got 257; allowed: 0"},
           {0, "x", "page_token: got 1 bytes that are no token; allowed: next_page_token"}}) {
    grpc::ClientContext context;
    SetContextDeadline(&context);
    v1::ListArraysRequest request;
    request.set_page_size(page_size);
    request.set_page_token(token);
    v1::ListArraysResponse response;
    const grpc::Status status = stub->ListArrays(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(says));
  }
  EXPECT_THAT(ListArrays(client(), "nobody"), IsEmpty());
}

TEST_F(ArraysTest, EmptyOnesAndScalars) {
  v1::ArrayInfo array;
  ASSERT_TRUE(PutElements(client(), PutHeaderOf(v1::DTYPE_F64, 0), "", 1, &array).ok());
  v1::ReduceResponse response;
  grpc::Status status = client().Reduce(RequestForArray(array.id(), {v1::OP_SUM, v1::OP_ALL}), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Texts(response), ElementsAre("f64:0", "bool:true"));
  status = client().Reduce(RequestForArray(array.id(), {v1::OP_MIN}), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  v1::PutArrayHeader scalar = PutHeaderOf(v1::DTYPE_U8, 1);
  scalar.mutable_array()->clear_shape();
  ASSERT_TRUE(PutElements(client(), scalar, "\x05", 1, &array).ok());
  ASSERT_TRUE(client().Reduce(RequestForArray(array.id(), {v1::OP_SUM}), &response).ok());
  EXPECT_THAT(Texts(response), ElementsAre("u64:5"));
}

TEST_F(ArraysTest, WhatARequestMayNotSayOfThem) {
  const v1::ArrayInfo array = PutBytes(client(), 4);
  v1::ReduceRequest request = RequestForArray(array.id(), {v1::OP_SUM});
  *request.mutable_array() = array.array();
  v1::ReduceResponse response;
  grpc::Status status = client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("array: got one beside array_id"));

  status = client().Reduce(RequestForArray("no\nsuch" + std::string(1000, 'x'), {v1::OP_SUM}), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("'no\\nsuchxxx"));
  EXPECT_LT(status.error_message().size(), 200U);

  status = client().Reduce(RequestForArray(array.id(), {}), &response);
  EXPECT_THAT(status.error_message(), HasSubstr("ops: got 0 operations"));
  request = RequestForArray(array.id(), {v1::OP_SUM});
  request.mutable_options()->set_engine(v1::ENGINE_CUDA);
  EXPECT_EQ(client().Reduce(request, &response).error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  ReduceStreamCall stream(client());
  stream.Header(RequestForArray(array.id(), {v1::OP_SUM}));
  status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("header: got a source"));
  EXPECT_EQ(ListArrays(client()).at(0).users(), 0);  // none of these has stayed
}

TEST_F(ArraysTest, Refusals) {
  using Change = std::function<void(v1::PutArrayHeader*)>;
  const auto good = [](v1::PutArrayHeader*) {};
  struct Refusal {
    Change change;
    std::vector<std::string> chunks;
    grpc::StatusCode code;
    std::string message;
  };
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  for (const Refusal& refusal : std::vector<Refusal>{
           {good, {}, invalid, "chunk: got 0 bytes in all; allowed: 12"},
           {good, {"abcd", "abcdefg"}, invalid, "chunk: got 11 bytes in all; allowed: 12"},
           {good, {"abcdefgh", "abcdefgh"}, invalid, "chunk: got 16 bytes in all; allowed: 12"},
           {good, {std::string((4 << 20) + 1, 'x')}, invalid, "chunk: got 4194305 bytes; allowed: 4194304"},
           {[](auto* h) { h->mutable_array()->set_shape(0, 0); },
            {"a"},
            invalid,
            "chunk: got 1 bytes in all; allowed: 0"},
           {[](auto* h) { h->clear_array(); }, {}, invalid, "array.dtype: got 0"},
           {[](auto* h) { h->mutable_array()->set_shape(0, -1); }, {}, invalid, "array.shape[0]: got -1"},
           {[](auto* h) { h->mutable_array()->set_shape(0, std::int64_t{1} << 50); },
            {},
            invalid,
            "elements; allowed: "},
           {[](auto* h) {
              for (int i = 0; i < 64; ++i) h->mutable_array()->add_shape(1);
            },
            {},
            invalid,
            "array.shape: got 65 dimensions; allowed: 64"},
           {[](auto* h) { h->set_owner(std::string(65, 'x')); }, {}, invalid, "owner: got 65 bytes; allowed: 64"},
           {[](auto* h) { h->set_ttl_ms(-1); }, {}, invalid, "ttl_ms: got -1; allowed: 0 (the default, 3600000) to"},
           {[](auto* h) { h->set_ttl_ms(86'400'001); }, {}, invalid, "ttl_ms: got 86400001"},
           {[](auto* h) { h->set_device("cuda:7\n"); },
            {},
            grpc::StatusCode::FAILED_PRECONDITION,
            "device: got 'cuda:7\\n'; allowed: cpu"},
       }) {
    v1::PutArrayHeader header = PutHeaderOf(v1::DTYPE_I32, 3);
    refusal.change(&header);
    PutArrayCall call(client());
    call.Header(header);
    for (const std::string& chunk : refusal.chunks) call.Chunk(chunk);
    const grpc::Status status = call.End();
    EXPECT_EQ(status.error_code(), refusal.code) << refusal.message;
    EXPECT_THAT(status.error_message(), HasSubstr(refusal.message));
  }

  EXPECT_THAT(PutArrayCall(client()).End().error_message(), HasSubstr("header: got none before the end of the stream"));
  PutArrayCall headless(client());
  headless.Chunk("abcd");
  EXPECT_THAT(headless.End().error_message(), HasSubstr("header: got none before the first chunk"));
  PutArrayCall twice(client());
  for (int i = 0; i < 2; ++i) twice.Header(PutHeaderOf(v1::DTYPE_I32, 3));
  EXPECT_THAT(twice.End().error_message(), HasSubstr("header: got a second one"));
  PutArrayCall neither(client());
  neither.Write({});
  EXPECT_THAT(neither.End().error_message(), HasSubstr("message: got neither; allowed: header, chunk"));
  EXPECT_THAT(ListArrays(client()), IsEmpty());
}

TEST_F(ArraysTest, FullIsSaidWithItsFigures) {
  const std::int64_t limit = EngineOptions().cpu_array_bytes;
  const v1::ArrayInfo small = PutBytes(client(), 1000);
  for (const std::int64_t bytes : {limit - 999, limit + 1}) {
    PutArrayCall call(client());
    call.Header(PutHeaderOf(v1::DTYPE_U8, bytes));
    const grpc::Status status = call.Await();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("no room for an array of ", bytes,
                                                               " bytes: its arrays take 1000 of the ", limit)));
  }
  EXPECT_EQ(InfoOf(server_).devices(0).array_bytes(), 1000);
  v1::ReduceResponse response;
  EXPECT_TRUE(client().Reduce(RequestForArray(small.id(), {v1::OP_SUM}), &response).ok());  // it made no room
  EXPECT_THAT(Texts(response), ElementsAre("u64:1000"));
}

TEST_F(ArraysTest, OnlyTheirOwnerDeletesThem) {
  const v1::ArrayInfo array = PutBytes(client(), 4);
  grpc::Status status = DeleteArray(client(), array.id(), "you\n");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("owner: got 'you\\n'; allowed: the array's owner, 'me'"));
  status = DeleteArray(client(), "nothing");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("'nothing'"));
  EXPECT_TRUE(DeleteArray(client(), array.id()).ok());
  EXPECT_EQ(InfoOf(server_).devices(0).array_bytes(), 0);
  v1::ReduceResponse response;
  EXPECT_EQ(client().Reduce(RequestForArray(array.id(), {v1::OP_SUM}), &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ArraysTest, ExpireWhenTheyAreNotUsed) {
  const v1::ArrayInfo array = PutBytes(client(), 4, /*ttl_ms=*/1);
  EXPECT_TRUE(AwaitThat([this] { return Idle(server_); }));
  v1::ReduceResponse response;
  EXPECT_EQ(client().Reduce(RequestForArray(array.id(), {v1::OP_SUM}), &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ArraysTest, MayLiveForAsLongAsTheServerAllows) {
  const std::int64_t longest_ms = absl::ToInt64Milliseconds(RequestLimits().max_array_ttl);
  EXPECT_GT(PutBytes(client(), 4, longest_ms).expires_in_ms(), longest_ms - 60'000);
}

TEST_F(ArraysTest, AClientThatGoesAwayLeavesNothing) {
  {
    PutArrayCall call(client());  // half of it is here
    ASSERT_TRUE(call.Header(PutHeaderOf(v1::DTYPE_U8, 8 << 20)));
    ASSERT_TRUE(call.Chunk(std::string(4 << 20, 'x')));
    ASSERT_TRUE(AwaitThat([this] { return InfoOf(server_).devices(0).array_bytes() == 8 << 20; }));
    EXPECT_EQ(InfoOf(server_).usage().streams(), 1);
    EXPECT_THAT(ListArrays(client()), IsEmpty());
    call.Cancel();
    EXPECT_EQ(call.End().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(AwaitThat([this] { return Idle(server_); }));
  {
    const auto other = std::make_unique<TestClient>(server_.address());
    PutArrayCall call(*other, absl::Milliseconds(100));  // a deadline that passes while it stalls
    call.Header(PutHeaderOf(v1::DTYPE_U8, 100));
    EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(AwaitThat([this] { return Idle(server_); }));
}

// The array is there, and its id waits for a client that has no room for it and goes away.
TEST_F(ArraysTest, LeaveNothingIfTheirIdNeverReachesTheClient) {
  v1::PutArrayRequest put;
  *put.mutable_header() = PutHeaderOf(v1::DTYPE_U8, 0);
  UnreadCall call(NarrowChannel(server_.address(), /*window_bytes=*/5), "PutArray", put);
  call.HalfClose();
  ASSERT_TRUE(call.AwaitResponse());
  ASSERT_TRUE(AwaitThat([this] { return InfoOf(server_).usage().arrays() == 1; }));
  call.Cancel();
  EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(AwaitThat([this] { return Idle(server_); }));
}

// Cancelled at any time, even while the answer is on its way. An answer that has reached the client's machine by then
// the server can't call back: what it was about expires.
TEST_F(ArraysTest, LeaveNothingHoweverLateTheyAreCancelled) {
  v1::PutArrayHeader header = PutHeaderOf(v1::DTYPE_U8, 4);
  header.set_ttl_ms(50);
  for (int i = 0; i < 200; ++i) {
    PutArrayCall call(client());
    call.Header(header);
    call.Chunk("abcd");
    std::thread cancel([&call, i] {
      for (int spin = 0; spin < i; ++spin) std::this_thread::yield();
      call.Cancel();
    });
    const grpc::Status status = call.End();
    cancel.join();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) << status.error_message();
  }
  EXPECT_TRUE(AwaitThat([this] { return Idle(server_); }));
}

}  // namespace
}  // namespace reduced::server
