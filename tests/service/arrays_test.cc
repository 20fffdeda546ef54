// PutArray, ListArrays, DeleteArray and reductions of what they keep, through the RPCs: answers, limits, and clients
// that go away.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/support/data.h"

namespace reduced::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::PutArrayHeader PutHeaderOf(v1::DType dtype, std::int64_t count, const std::string& owner = "me") {
  v1::PutArrayHeader header;
  header.mutable_array()->set_dtype(dtype);
  header.mutable_array()->add_shape(count);
  header.set_owner(owner);
  return header;
}

// The whole call, the elements in chunks of `chunk` bytes.
grpc::Status Put(const TestClient& client, const v1::PutArrayHeader& header, const std::string& elements,
                 std::size_t chunk, v1::ArrayInfo* array) {
  PutArrayCall call(client);
  bool open = call.Header(header);
  for (std::size_t i = 0; open && i < elements.size(); i += chunk) open = call.Chunk(elements.substr(i, chunk));
  const grpc::Status status = call.End();
  *array = call.response().array();
  return status;
}

v1::ArrayInfo PutBytes(const TestClient& client, std::int64_t bytes, std::int64_t ttl_ms = 0) {
  v1::ArrayInfo array;
  v1::PutArrayHeader header = PutHeaderOf(v1::DTYPE_U8, bytes);
  header.set_ttl_ms(ttl_ms);
  const grpc::Status status = Put(client, header, std::string(static_cast<std::size_t>(bytes), '\1'), 1 << 20, &array);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return array;
}

std::vector<v1::ArrayInfo> List(const TestClient& client, const std::string& owner = "") {
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::ListArraysRequest request;
  request.set_owner(owner);
  v1::ListArraysResponse response;
  const grpc::Status status = v1::Reduction::NewStub(client.channel())->ListArrays(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.arrays().begin(), response.arrays().end()};
}

// One DeleteArray, which may wait.
class Deletion {
 public:
  Deletion(const TestClient& client, const std::string& id, const std::string& owner = "me")
      : stub_(v1::Reduction::NewStub(client.channel())) {
    SetContextDeadline(&context_);
    request_.set_id(id);
    request_.set_owner(owner);
    stub_->async()->DeleteArray(&context_, &request_, &response_, [this](grpc::Status status) {
      status_ = std::move(status);
      answered_.Notify();
    });
  }
  ~Deletion() { answered_.WaitForNotification(); }
  void Cancel() { context_.TryCancel(); }
  bool answered() const { return answered_.HasBeenNotified(); }
  grpc::Status Await() {
    answered_.WaitForNotification();  // ends with the deadline of the call
    return status_;
  }

 private:
  std::unique_ptr<v1::Reduction::Stub> stub_;
  grpc::ClientContext context_;
  v1::DeleteArrayRequest request_;
  v1::DeleteArrayResponse response_;
  grpc::Status status_;
  absl::Notification answered_;
};

grpc::Status Delete(const TestClient& client, const std::string& id, const std::string& owner = "me") {
  return Deletion(client, id, owner).Await();
}

v1::ReduceRequest RequestFor(const std::string& id, const std::vector<v1::Op>& ops) {
  v1::ReduceRequest request;
  request.set_array_id(id);
  for (const v1::Op op : ops) request.add_ops(op);
  return request;
}

v1::GetServerInfoResponse Info(TestServer& server) {
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(server.client().Info(&info).ok());
  return info;
}

// Waits for what another thread of the server does: false after kPatience.
bool Await(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Nothing is kept, nothing streams in, no memory is taken.
bool Idle(TestServer& server) {
  const v1::GetServerInfoResponse info = Info(server);
  return info.usage().arrays() == 0 && info.usage().streams() == 0 && info.devices(0).array_bytes() == 0;
}

class ArraysTest : public ::testing::Test {
 protected:
  // Every test leaves the server, whose engine others share, as it was.
  void TearDown() override {
    for (const v1::ArrayInfo& array : List(client())) EXPECT_TRUE(Delete(client(), array.id(), array.owner()).ok());
    EXPECT_TRUE(Await([this] { return Idle(server_); }));
  }
  TestClient& client() { return server_.client(); }

  TestServer server_;
};

TEST_F(ArraysTest, AnswerAsReduceDoesHoweverTheyWereCut) {
  for (const DTypeRow& dtype : kDTypes) {
    std::vector<v1::Op> ops;
    for (const OpRow& op : kOps) {
      if (Supports(op.op, dtype.dtype)) ops.push_back(static_cast<v1::Op>(op.op));
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
        Put(client(), PutHeaderOf(static_cast<v1::DType>(dtype.dtype), count), elements, chunk, &array);
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
  ASSERT_TRUE(Put(client(), header, std::string(12, 'x'), 5, &put).ok());
  const v1::ArrayInfo other = PutBytes(client(), 3);
  const std::vector<v1::ArrayInfo> listed = List(client(), "m\xc3\xa9");
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].id(), put.id());
  EXPECT_EQ(listed[0].array().dtype(), v1::DTYPE_I16);
  EXPECT_THAT(listed[0].array().shape(), ElementsAre(2, 3));
  EXPECT_EQ(listed[0].bytes(), 12);
  EXPECT_EQ(listed[0].device(), "cpu");
  EXPECT_LE(listed[0].expires_in_ms(), 5000);
  EXPECT_EQ(listed[0].users(), 0);
  EXPECT_GT(other.expires_in_ms(), 3'500'000);  // the default: an hour
  const std::vector<v1::ArrayInfo> all = List(client());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].id(), other.id());
  EXPECT_THAT(List(client(), "nobody"), IsEmpty());

  const v1::GetServerInfoResponse info = Info(server_);
  EXPECT_EQ(info.usage().arrays(), 2);
  EXPECT_EQ(info.devices(0).array_bytes(), 15);
  EXPECT_EQ(info.devices(0).array_bytes_limit(), EngineOptions().cpu_array_bytes);
  EXPECT_EQ(info.limits().default_array_ttl_ms(), 3'600'000);
  EXPECT_EQ(info.limits().max_array_ttl_ms(), 86'400'000);
}

TEST_F(ArraysTest, EmptyOnesAndScalars) {
  v1::ArrayInfo array;
  ASSERT_TRUE(Put(client(), PutHeaderOf(v1::DTYPE_F64, 0), "", 1, &array).ok());
  v1::ReduceResponse response;
  grpc::Status status = client().Reduce(RequestFor(array.id(), {v1::OP_SUM, v1::OP_ALL}), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Texts(response), ElementsAre("f64:0", "bool:true"));
  status = client().Reduce(RequestFor(array.id(), {v1::OP_MIN}), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  v1::PutArrayHeader scalar = PutHeaderOf(v1::DTYPE_U8, 1);
  scalar.mutable_array()->clear_shape();
  ASSERT_TRUE(Put(client(), scalar, "\x05", 1, &array).ok());
  ASSERT_TRUE(client().Reduce(RequestFor(array.id(), {v1::OP_SUM}), &response).ok());
  EXPECT_THAT(Texts(response), ElementsAre("u64:5"));
}

TEST_F(ArraysTest, WhatARequestMayNotSayOfThem) {
  const v1::ArrayInfo array = PutBytes(client(), 4);
  v1::ReduceRequest request = RequestFor(array.id(), {v1::OP_SUM});
  *request.mutable_array() = array.array();
  v1::ReduceResponse response;
  grpc::Status status = client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("array: got one beside array_id"));

  status = client().Reduce(RequestFor("no\nsuch" + std::string(1000, 'x'), {v1::OP_SUM}), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("'no\\nsuchxxx"));
  EXPECT_LT(status.error_message().size(), 200U);

  status = client().Reduce(RequestFor(array.id(), {}), &response);
  EXPECT_THAT(status.error_message(), HasSubstr("ops: got 0 operations"));
  request = RequestFor(array.id(), {v1::OP_SUM});
  request.mutable_options()->set_engine(v1::ENGINE_CUDA);
  EXPECT_EQ(client().Reduce(request, &response).error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  ReduceStreamCall stream(client());
  stream.Header(RequestFor(array.id(), {v1::OP_SUM}));
  status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("header: got a source"));
  EXPECT_EQ(List(client()).at(0).users(), 0);  // none of these has stayed
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
  EXPECT_THAT(List(client()), IsEmpty());
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
  EXPECT_EQ(Info(server_).devices(0).array_bytes(), 1000);
  v1::ReduceResponse response;
  EXPECT_TRUE(client().Reduce(RequestFor(small.id(), {v1::OP_SUM}), &response).ok());  // it made no room
  EXPECT_THAT(Texts(response), ElementsAre("u64:1000"));
}

TEST_F(ArraysTest, OnlyTheirOwnerDeletesThem) {
  const v1::ArrayInfo array = PutBytes(client(), 4);
  grpc::Status status = Delete(client(), array.id(), "you\n");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("owner: got 'you\\n'; allowed: the array's owner, 'me'"));
  status = Delete(client(), "nothing");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("'nothing'"));
  EXPECT_TRUE(Delete(client(), array.id()).ok());
  EXPECT_EQ(Info(server_).devices(0).array_bytes(), 0);
  v1::ReduceResponse response;
  EXPECT_EQ(client().Reduce(RequestFor(array.id(), {v1::OP_SUM}), &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ArraysTest, ExpireWhenTheyAreNotUsed) {
  const v1::ArrayInfo array = PutBytes(client(), 4, /*ttl_ms=*/1);
  EXPECT_TRUE(Await([this] { return Idle(server_); }));
  v1::ReduceResponse response;
  EXPECT_EQ(client().Reduce(RequestFor(array.id(), {v1::OP_SUM}), &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ArraysTest, AClientThatGoesAwayLeavesNothing) {
  {
    PutArrayCall call(client());  // half of it is here
    ASSERT_TRUE(call.Header(PutHeaderOf(v1::DTYPE_U8, 8 << 20)));
    ASSERT_TRUE(call.Chunk(std::string(4 << 20, 'x')));
    ASSERT_TRUE(Await([this] { return Info(server_).devices(0).array_bytes() == 8 << 20; }));
    EXPECT_EQ(Info(server_).usage().streams(), 1);
    EXPECT_THAT(List(client()), IsEmpty());
    call.Cancel();
    EXPECT_EQ(call.End().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Await([this] { return Idle(server_); }));
  {
    const auto other = std::make_unique<TestClient>(server_.address());
    PutArrayCall call(*other, absl::Milliseconds(100));  // a deadline that passes while it stalls
    call.Header(PutHeaderOf(v1::DTYPE_U8, 100));
    EXPECT_EQ(call.Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Await([this] { return Idle(server_); }));
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
  EXPECT_TRUE(Await([this] { return Idle(server_); }));
}

TEST(ArrayLimits, SoManyArraysAndNoMore) {
  ServerOptions options;
  options.limits.max_arrays = 1;
  TestServer server(options);
  const v1::ArrayInfo only = PutBytes(server.client(), 4);
  PutArrayCall second(server.client());
  second.Header(PutHeaderOf(v1::DTYPE_U8, 4));
  const grpc::Status status = second.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the server has 1 resident arrays; allowed: 1"));
  EXPECT_TRUE(Delete(server.client(), only.id()).ok());
  PutBytes(server.client(), 4);
}

TEST(ArrayLimits, TheyCountAmongTheStreams) {
  ServerOptions options;
  options.limits.max_streams = 1;
  TestServer server(options);
  PutArrayCall first(server.client());
  ASSERT_TRUE(first.Header(PutHeaderOf(v1::DTYPE_U8, 4)));
  ASSERT_TRUE(Await([&server] { return Info(server).usage().streams() == 1; }));
  PutArrayCall second(server.client());
  second.Header(PutHeaderOf(v1::DTYPE_U8, 4));
  const grpc::Status status = second.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("the server has 1 ReduceStream and PutArray calls in progress; allowed: 1"));
  EXPECT_EQ(second.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
  ASSERT_TRUE(first.Chunk("abcd"));
  EXPECT_TRUE(first.End().ok());
  EXPECT_EQ(Info(server).usage().streams(), 0);
  PutBytes(server.client(), 4);
}

TEST(ArrayUse, DeletionWaitsForTheUsers) {
  HeldServer server(4);
  const v1::ArrayInfo array = PutBytes(server->client(), 300'000);
  PendingReduce running(server->client(), RequestFor(array.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  EXPECT_EQ(List(server->client()).at(0).users(), 1);
  {
    Deletion deletion(server->client(), array.id());
    EXPECT_TRUE(Await([&server] { return List(server->client()).empty(); }));
    v1::ReduceResponse response;
    EXPECT_EQ(server->client().Reduce(RequestFor(array.id(), {v1::OP_SUM}), &response).error_code(),
              grpc::StatusCode::NOT_FOUND);
    EXPECT_FALSE(deletion.answered());
    EXPECT_EQ(Info(*server).devices(0).array_bytes(), 300'000);
    server.engine().ReleaseFirst();
    EXPECT_TRUE(deletion.Await().ok());
    EXPECT_EQ(Info(*server).devices(0).array_bytes(), 0);
  }
  EXPECT_TRUE(running.Join().ok());
  EXPECT_THAT(Texts(running.response()), ElementsAre("u64:300000"));
}

TEST(ArrayUse, ADeletionThatIsCancelledDeletesAllTheSame) {
  HeldServer server(4);
  const v1::ArrayInfo array = PutBytes(server->client(), 1000);
  PendingReduce running(server->client(), RequestFor(array.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  {
    Deletion deletion(server->client(), array.id());
    EXPECT_TRUE(Await([&server] { return List(server->client()).empty(); }));
    deletion.Cancel();
    EXPECT_EQ(deletion.Await().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(Info(*server).devices(0).array_bytes(), 1000);
  server.engine().ReleaseFirst();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_TRUE(Await([&server] { return Idle(*server); }));
}

TEST(ArrayUse, AServerStopsWhileADeletionWaits) {
  HeldServer server(4);
  const v1::ArrayInfo array = PutBytes(server->client(), 1000);
  PendingReduce running(server->client(), RequestFor(array.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  Deletion deletion(server->client(), array.id());
  EXPECT_TRUE(Await([&server] { return List(server->client()).empty(); }));
  std::thread shutdown([&server] { server->server().Shutdown(kPatience); });
  server.engine().Release();
  shutdown.join();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_TRUE(deletion.Await().ok());
}

TEST(ArrayUse, WhatIsUsedDoesNotExpire) {
  HeldServer server(4);
  const v1::ArrayInfo used = PutBytes(server->client(), 1000, /*ttl_ms=*/2000);
  PendingReduce running(server->client(), RequestFor(used.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  PutBytes(server->client(), 10, /*ttl_ms=*/2050);
  // When the second one has gone, the first one's time is over too.
  EXPECT_TRUE(Await([&server] { return List(server->client()).size() == 1; }));
  EXPECT_EQ(List(server->client()).at(0).id(), used.id());
  server.engine().ReleaseFirst();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_TRUE(Await([&server] { return Idle(*server); }));
}

TEST(ArrayUse, DrainingRefusesNewOnesAndStillDeletes) {
  TestServer server;
  const v1::ArrayInfo array = PutBytes(server.client(), 4);
  PutArrayCall running(server.client());
  ASSERT_TRUE(running.Header(PutHeaderOf(v1::DTYPE_U8, 4)));
  ASSERT_TRUE(Await([&server] { return Info(server).usage().streams() == 1; }));
  server.server().Drain();
  PutArrayCall refused(server.client());
  refused.Header(PutHeaderOf(v1::DTYPE_U8, 4));
  const grpc::Status status = refused.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("draining"));
  v1::ReduceResponse response;
  EXPECT_EQ(server.client().Reduce(RequestFor(array.id(), {v1::OP_SUM}), &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(List(server.client()).at(0).users(), 0);
  EXPECT_TRUE(Delete(server.client(), array.id()).ok());
  ASSERT_TRUE(running.Chunk("abcd"));  // what runs may finish
  EXPECT_TRUE(running.End().ok());
  server.server().Shutdown(kPatience);
}

// Stands for a GPU: host memory that it calls its own.
class FakeGpu final : public SharedEngine {
 public:
  EngineKind kind() const override { return EngineKind::kCuda; }
  DeviceInfo info() const override {
    DeviceInfo device = CpuEngine().info();
    device.name = "cuda:0";
    device.ordinal = 0;
    return device;
  }
  void Reduce(Job job, Done done) override {
    job.array.space = MemorySpace::kHost;
    CpuEngine().Reduce(std::move(job), std::move(done));
  }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes) override {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = CpuEngine().Allocate(bytes);
    if (!memory.ok()) return memory.status();
    return std::make_unique<Memory>(*std::move(memory), largest_write);
  }

  std::shared_ptr<std::int64_t> largest_write = std::make_shared<std::int64_t>(0);

 private:
  class Memory final : public ArrayMemory {
   public:
    Memory(std::unique_ptr<ArrayMemory> memory, std::shared_ptr<std::int64_t> largest_write)
        : memory_(std::move(memory)), largest_write_(std::move(largest_write)) {}
    ArrayRef array() const override {
      return {.data = memory_->array().data, .space = MemorySpace::kDevice, .device = 0};
    }
    absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) override {
      *largest_write_ = std::max(*largest_write_, bytes);
      return memory_->Write(offset, data, bytes);
    }

   private:
    const std::unique_ptr<ArrayMemory> memory_;
    const std::shared_ptr<std::int64_t> largest_write_;
  };
};

TEST(ArraysOnAGpu, AreItsByDefaultAndReducedThere) {
  auto gpu = std::make_unique<FakeGpu>();
  const std::shared_ptr<std::int64_t> largest_write = gpu->largest_write;
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(std::make_unique<SharedEngine>());
  engines.push_back(std::move(gpu));
  TestServer server({}, Engines::Of(std::move(engines), ""));
  const std::int64_t count = 1'000'003;
  const std::string elements = ElementsOf(DType::kI32, count);
  v1::ReduceRequest inline_request = RequestFor("", {v1::OP_SUM, v1::OP_ARGMAX, v1::OP_BIT_XOR});
  *inline_request.mutable_array() = PutHeaderOf(v1::DTYPE_I32, count).array();
  inline_request.set_inline_data(elements);
  v1::ReduceResponse expected;
  ASSERT_TRUE(server.client().Reduce(inline_request, &expected).ok());
  for (const std::string device : {"", "cuda:0", "cpu"}) {
    for (const std::size_t chunk : {100'001, 3'000'000}) {
      v1::PutArrayHeader header = PutHeaderOf(v1::DTYPE_I32, count);
      header.set_device(device);
      v1::ArrayInfo array;
      ASSERT_TRUE(Put(server.client(), header, elements, chunk, &array).ok());
      const bool on_gpu = device != "cpu";
      EXPECT_EQ(array.device(), on_gpu ? "cuda:0" : "cpu");
      v1::ReduceResponse response;
      v1::ReduceRequest request = RequestFor(array.id(), {v1::OP_SUM, v1::OP_ARGMAX, v1::OP_BIT_XOR});
      ASSERT_TRUE(server.client().Reduce(request, &response).ok());
      EXPECT_EQ(Texts(response), Texts(expected));
      if (on_gpu) {
        EXPECT_EQ(response.execution().reason(), "the array is in its memory");
      }
      request.mutable_options()->set_engine(v1::ENGINE_CPU);
      const grpc::Status status = server.client().Reduce(request, &response);
      EXPECT_EQ(status.error_code(), on_gpu ? grpc::StatusCode::FAILED_PRECONDITION : grpc::StatusCode::OK);
      EXPECT_TRUE(Delete(server.client(), array.id()).ok());
    }
  }
  EXPECT_EQ(*largest_write, 1 << 20);  // however small the slices that it came in
  v1::ArrayInfo empty;
  ASSERT_TRUE(Put(server.client(), PutHeaderOf(v1::DTYPE_F32, 0), "", 1, &empty).ok());
  v1::ReduceResponse response;
  ASSERT_TRUE(server.client().Reduce(RequestFor(empty.id(), {v1::OP_SUM}), &response).ok());
  EXPECT_THAT(Texts(response), ElementsAre("f64:0"));
}

}  // namespace
}  // namespace reduced::server
