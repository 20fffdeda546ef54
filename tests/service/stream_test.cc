// ReduceStream: the answers of Reduce, however the array is cut; its limits; and streams that go wrong.
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/support/data.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kLarge = 5'000'011;
#else
constexpr std::int64_t kLarge = 20'000'003;
#endif

using Stream = ReduceStreamCall;

// The whole stream, its elements in chunks of `chunk` bytes.
grpc::Status Send(const TestClient& client, const v1::ReduceRequest& header, const std::string& elements,
                  std::size_t chunk, v1::ReduceResponse* response) {
  Stream stream(client);
  bool open = stream.Header(header);
  for (std::size_t i = 0; open && i < elements.size(); i += chunk) open = stream.Chunk(elements.substr(i, chunk));
  const grpc::Status status = stream.End();
  *response = stream.response();
  return status;
}

class StreamTest : public ::testing::Test {
 protected:
  TestServer server_;
};

TEST_F(StreamTest, AnswersAsReduceDoesHoweverItIsCut) {
  for (const DTypeRow& dtype : kDTypes) {
    std::vector<v1::Op> ops;
    for (const OpRow& op : kOps) {
      if (Supports(op.op, dtype.dtype) && HasAccumulator(op.op)) ops.push_back(static_cast<v1::Op>(op.op));
    }
    const std::int64_t count = 1001;
    const std::string elements = ElementsOf(dtype.dtype, count);
    v1::ReduceRequest request = HeaderOf(static_cast<v1::DType>(dtype.dtype), count, ops);
    request.mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_WRAP);
    v1::ReduceRequest inline_request = request;
    inline_request.set_inline_data(elements);
    v1::ReduceResponse expected;
    ASSERT_TRUE(server_.client().Reduce(inline_request, &expected).ok());
    for (const std::size_t chunk : {1, 7, 1000, 100'000}) {
      if (chunk == 1 && dtype.bytes > 2) continue;
      v1::ReduceResponse response;
      const grpc::Status status = Send(server_.client(), request, elements, chunk, &response);
      ASSERT_TRUE(status.ok()) << dtype.name << ": " << status.error_message();
      EXPECT_EQ(Texts(response), Texts(expected)) << dtype.name << " in chunks of " << chunk;
      EXPECT_EQ(response.count(), count);
      EXPECT_EQ(response.timing().bytes(), count * dtype.bytes);
      EXPECT_GT(response.timing().total_us(), 0);
      EXPECT_EQ(response.execution().pipeline(), expected.execution().pipeline());
    }
  }
}

TEST_F(StreamTest, CombinesManyStretches) {
  const std::string elements = ElementsOf(DType::kI32, kLarge);
  const v1::ReduceRequest header = HeaderOf(
      v1::DTYPE_I32, kLarge,
      {v1::OP_SUM, v1::OP_MIN, v1::OP_MAX, v1::OP_ARGMIN, v1::OP_ARGMAX, v1::OP_COUNT_NONZERO, v1::OP_BIT_XOR});
  std::string marked = elements;
  const std::int32_t least = -1'000'000'000;
  const std::int32_t most = 1'000'000'000;
  marked.replace(4 * (kLarge - 2), 4, reinterpret_cast<const char*>(&least), 4);
  marked.replace(4 * (kLarge / 2), 4, reinterpret_cast<const char*>(&most), 4);
  std::int64_t sum = 0;
  std::int64_t nonzero = 0;
  std::int32_t bits = 0;
  for (std::int64_t i = 0; i < kLarge; ++i) {
    std::int32_t x = 0;
    std::memcpy(&x, marked.data() + 4 * i, 4);
    sum += x;
    nonzero += x != 0 ? 1 : 0;
    bits ^= x;
  }
  v1::ReduceResponse response;
  const grpc::Status status = Send(server_.client(), header, marked, (1 << 20) + 3, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Texts(response),
              ::testing::ElementsAre(absl::StrCat("i64:", sum), "i32:-1000000000", "i32:1000000000",
                                     absl::StrCat("u64:", kLarge - 2), absl::StrCat("u64:", kLarge / 2),
                                     absl::StrCat("u64:", nonzero), absl::StrCat("i32:", bits)));
}

TEST_F(StreamTest, FloatsHaveTheSameBitsRunAfterRun) {
  const std::string elements = ElementsOf(DType::kF32, 3'000'001);
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_F32, 3'000'001, {v1::OP_SUM, v1::OP_VAR});
  std::optional<double> sum;
  for (const std::size_t chunk : {65'536, 1'000'003}) {
    v1::ReduceResponse response;
    ASSERT_TRUE(Send(server_.client(), header, elements, chunk, &response).ok());
    EXPECT_EQ(response.results(0).value().f(), sum.value_or(response.results(0).value().f()));
    sum = response.results(0).value().f();
  }
}

TEST_F(StreamTest, EmptyArrays) {
  v1::ReduceResponse response;
  grpc::Status status = Send(server_.client(), HeaderOf(v1::DTYPE_F64, 0, {v1::OP_SUM, v1::OP_ALL}), "", 1, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(Texts(response), ::testing::ElementsAre("f64:0", "bool:true"));
  EXPECT_EQ(response.execution().device(), "cpu");
  status = Send(server_.client(), HeaderOf(v1::DTYPE_F64, 0, {v1::OP_MIN}), "", 1, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(StreamTest, UnknownFieldsAndEmptyChunksDoNoHarm) {
  Stream stream(server_.client());
  ASSERT_TRUE(stream.Header(HeaderOf(v1::DTYPE_U8, 5, {v1::OP_SUM})));
  ASSERT_TRUE(stream.Chunk(""));
  v1::ReduceStreamRequest request;
  request.set_chunk(std::string("\x01\x02", 2));
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(1000, 1);
  ASSERT_TRUE(stream.Write(request));
  ASSERT_TRUE(stream.Chunk(std::string("\x03\x04\x05", 3)));
  ASSERT_TRUE(stream.Chunk(""));
  const grpc::Status status = stream.End();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Text(stream.response().results(0).value()), "u64:15");
}

struct Refusal {
  std::string name;
  std::optional<v1::ReduceRequest> first;
  std::vector<v1::ReduceStreamRequest> rest;
  std::string message;
};

TEST_F(StreamTest, Refusals) {
  const auto chunk = [](const std::string& bytes) {
    v1::ReduceStreamRequest request;
    request.set_chunk(bytes);
    return request;
  };
  const v1::ReduceRequest good = HeaderOf(v1::DTYPE_I32, 3, {v1::OP_SUM});
  v1::ReduceRequest sourced = good;
  sourced.set_inline_data("abc");
  v1::ReduceStreamRequest second;
  *second.mutable_header() = good;
  const std::vector<Refusal> refusals = {
      {"nothing", {}, {}, "header: got none before the end of the stream"},
      {"no header", {}, {chunk("abcd")}, "header: got none before the first chunk"},
      {"neither", {}, {v1::ReduceStreamRequest()}, "message: got neither; allowed: header, chunk"},
      {"a source", sourced, {}, "header: got a source"},
      {"two headers", good, {second}, "header: got a second one"},
      {"too few", good, {chunk("abcd"), chunk("abcdefg")}, "chunk: got 11 bytes in all; allowed: 12"},
      {"none", good, {}, "chunk: got 0 bytes in all; allowed: 12"},
      {"too many", good, {chunk("abcdefgh"), chunk("abcdefgh")}, "chunk: got 16 bytes in all; allowed: 12"},
      {"too large a chunk",
       HeaderOf(v1::DTYPE_U8, 5 << 20, {v1::OP_SUM}),
       {chunk(std::string((4 << 20) + 1, 'x'))},
       "chunk: got 4194305 bytes; allowed: 4194304"},
      {"of nothing too many",
       HeaderOf(v1::DTYPE_I32, 0, {v1::OP_SUM}),
       {chunk("a")},
       "chunk: got 1 bytes in all; allowed: 0"},
      {"no op", HeaderOf(v1::DTYPE_I32, 3, {}), {}, "ops: got 0 operations"},
      {"no dtype", HeaderOf(v1::DTYPE_UNSPECIFIED, 3, {v1::OP_SUM}), {}, "array.dtype: got 0"},
      {"negative", HeaderOf(v1::DTYPE_I32, -1, {v1::OP_SUM}), {}, "array.shape[0]: got -1"},
      {"beyond", HeaderOf(v1::DTYPE_I32, std::int64_t{1} << 50, {v1::OP_SUM}), {}, "elements; allowed: "},
  };
  for (const Refusal& refusal : refusals) {
    Stream stream(server_.client());
    if (refusal.first.has_value()) stream.Header(*refusal.first);
    for (const v1::ReduceStreamRequest& request : refusal.rest) stream.Write(request);
    const grpc::Status status = stream.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << refusal.name;
    EXPECT_THAT(status.error_message(), HasSubstr(refusal.message)) << refusal.name;
  }
  // Nothing of them is left.
  server_.server().Shutdown(kPatience);
}

TEST_F(StreamTest, WhatOnlyTheElementsTell) {
  const std::vector<std::int64_t> large(3, std::int64_t{1} << 62);
  const std::string elements(reinterpret_cast<const char*>(large.data()), 24);
  v1::ReduceResponse response;
  const grpc::Status status = Send(server_.client(), HeaderOf(v1::DTYPE_I64, 3, {v1::OP_SUM}), elements, 8, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST(StreamLimits, SoManyAtOnceAndNoMore) {
  auto held = std::make_unique<HeldEngine>(4);
  HeldEngine& engine = *held;
  ServerOptions options;
  options.limits.max_streams = 2;
  TestServer server(options, OnlyEngine(std::move(held)));
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  EXPECT_EQ(info.limits().max_streams(), 2);
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 2, {v1::OP_SUM});
  Stream first(server.client());
  Stream second(server.client());
  for (Stream* const stream : {&first, &second}) ASSERT_TRUE(stream->Header(header) && stream->Chunk("\x01\x02"));
  ASSERT_TRUE(engine.AwaitHeld(2, kPatience));
  Stream third(server.client());
  third.Header(header);
  const grpc::Status status = third.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("the server has 2 ReduceStream, PutArray and GetArray calls in progress; allowed: 2"));
  EXPECT_EQ(third.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
  engine.Release();
  for (Stream* const stream : {&first, &second}) EXPECT_TRUE(stream->End().ok());
  v1::ReduceResponse response;
  EXPECT_TRUE(Send(server.client(), header, "ab", 2, &response).ok());  // there is room again
}

TEST(StreamLimits, AClientThatGoesAwayLeavesNothing) {
  HeldServer server(4);
  {
    // While the engine has a stretch of it.
    Stream stream(server->client());
    ASSERT_TRUE(stream.Header(HeaderOf(v1::DTYPE_U8, 10 << 20, {v1::OP_SUM})));
    ASSERT_TRUE(stream.Chunk(std::string(1 << 20, 'x')));
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    const CancelFlag cancelled = server.engine().cancelled();
    stream.Cancel();
    EXPECT_TRUE(AwaitTrue(*cancelled));
    EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::CANCELLED);
  }
  {
    // Before it has any.
    Stream stream(server->client());
    ASSERT_TRUE(stream.Header(HeaderOf(v1::DTYPE_U8, 10, {v1::OP_SUM})));
    stream.Cancel();
    EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::CANCELLED);
  }
  server.engine().Release();
  server->server().Shutdown(kPatience);  // waits for them
}

TEST(StreamLimits, ADeadlineEndsAStreamThatStalls) {
  TestServer server;
  Stream stream(server.client(), absl::Milliseconds(200));
  ASSERT_TRUE(stream.Header(HeaderOf(v1::DTYPE_U8, 10, {v1::OP_SUM})));
  stream.Chunk("abc");
  EXPECT_EQ(stream.Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.server().Shutdown(kPatience);
}

TEST(StreamLimits, AFullQueueRefusesWithAHint) {
  HeldServer server(1);
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 4, {v1::OP_SUM});
  Stream first(server->client());
  ASSERT_TRUE(first.Header(header) && first.Chunk("abcd"));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  Stream second(server->client());
  second.Header(header);
  second.Chunk("abcd");
  const grpc::Status status = second.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(second.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
  server.engine().Release();
  EXPECT_TRUE(first.End().ok());
}

}  // namespace
}  // namespace reduced::server
