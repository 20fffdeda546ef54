// What a request may make the server take. Memory: it is set aside first, and comes back when the request ends. Time.
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/memory_budget.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"
#include "tests/support/runs.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

ServerOptions WithMemory(std::int64_t bytes) {
  ServerOptions options;
  options.engines.memory = std::make_shared<MemoryBudget>(bytes);
  return options;
}

v1::ReduceRequest SumOfBytes(std::int64_t count) {
  return RequestOf<std::int8_t>(v1::DTYPE_I8, std::vector<std::int8_t>(count, 1), {v1::OP_SUM});
}

// False after kPatience. A lease ends a moment after the response has left.
bool AwaitNoneTaken(const MemoryBudget& memory) {
  return Becomes(kPatience, [&memory] { return memory.taken() == 0; });
}

TEST(MemoryTest, MessagesThatWaitAreWithinIt) {
  const ServerOptions options = WithMemory(5 * kMiB);
  const MemoryBudget& memory = *options.engines.memory;
  auto engine = std::make_unique<HeldEngine>(100);
  HeldEngine& held = *engine;
  const TestServer server(options, OnlyEngine(std::move(engine)));
  std::vector<std::unique_ptr<PendingReduce>> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(std::make_unique<PendingReduce>(server.client(), SumOfBytes(kMiB)));
  ASSERT_TRUE(held.AwaitHeld(4, kPatience));
  EXPECT_GE(memory.taken(), 4 * kMiB);

  PendingReduce refused(server.client(), SumOfBytes(kMiB));
  const grpc::Status status = refused.Join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("no memory for the message of a request"));
  EXPECT_THAT(status.error_message(), HasSubstr("--memory_bytes"));
  EXPECT_EQ(refused.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);

  held.Release();
  for (const auto& each : waiting) {
    EXPECT_TRUE(each->Join().ok());
    EXPECT_THAT(Texts(each->response()), ::testing::ElementsAre(absl::StrCat("i64:", kMiB)));
  }
  EXPECT_TRUE(AwaitNoneTaken(memory)) << memory.taken();
}

// A session reads message after message: each counts, and what doesn't fit is answered under its id.
TEST(MemoryTest, MessagesOfSessionsAreWithinIt) {
  const ServerOptions options = WithMemory(3 * kMiB);
  const MemoryBudget& memory = *options.engines.memory;
  auto engine = std::make_unique<HeldEngine>(100);
  HeldEngine& held = *engine;
  const TestServer server(options, OnlyEngine(std::move(engine)));
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto call = stub->Session(&context);
  for (const std::uint64_t id : {7, 8, 9}) {
    v1::SessionRequest request;
    *request.mutable_reduce() = SumOfBytes(kMiB + kMiB / 4);
    request.set_id(id);
    ASSERT_TRUE(call->Write(request));
  }
  v1::SessionResponse response;
  ASSERT_TRUE(call->Read(&response));
  EXPECT_EQ(response.id(), 9);
  EXPECT_EQ(response.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED)) << response.message();
  EXPECT_GT(response.retry_after_ms(), 0);
  held.Release();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(call->Read(&response));
    EXPECT_EQ(response.code(), 0) << response.message();
  }
  call->WritesDone();
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_TRUE(AwaitNoneTaken(memory)) << memory.taken();
}

TEST(MemoryTest, BuffersOfStreamsAreWithinIt) {
  const TestServer server(WithMemory(kMiB));
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::ReduceResponse response;
  const auto call = stub->ReduceStream(&context, &response);
  v1::ReduceStreamRequest header;
  *header.mutable_header() = HeaderOf(v1::DTYPE_I8, 2 * kMiB, {v1::OP_SUM});
  call->Write(header);
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("the buffers of a stream"));
}

TEST(MemoryTest, ArraysOfLaddersAreWithinIt) {
  const TestServer server(WithMemory(kMiB));
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::LadderRequest request;
  request.set_dtype(v1::DTYPE_I32);
  request.set_count(kMiB);
  request.set_op(v1::OP_SUM);
  const auto call = stub->Ladder(&context, request);
  v1::LadderReply reply;
  EXPECT_FALSE(call->Read(&reply));
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("the array of a ladder, 4194304 bytes"));
}

TEST(MemoryTest, MatricesOfLaddersAreWithinIt) {
  const ServerOptions options = WithMemory(3 * kMiB);
  const TestServer server(options);
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::LadderRequest request;
  request.set_dtype(v1::DTYPE_F64);
  for (const auto set : {&v1::Matmul::set_m, &v1::Matmul::set_n}) (request.mutable_matmul()->*set)(1000);
  const auto call = stub->Ladder(&context, request);
  v1::LadderReply reply;
  EXPECT_FALSE(call->Read(&reply));
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the matrices of a ladder, 16016000 bytes"));
  EXPECT_TRUE(AwaitNoneTaken(*options.engines.memory));
}

// An engine whose queue is full.
class FullEngine final : public SharedEngine {
 public:
  absl::Status CheckRoom(std::uint64_t /*caller*/, absl::Time /*deadline*/) const override {
    return absl::ResourceExhaustedError("the queue is full");
  }
};

// What a Reduce of those bytes is answered.
grpc::Status ReduceBytes(const TestServer& server, const std::string& bytes) {
  grpc::ClientContext context;
  return server.client().Call(&context, "Reduce", bytes);
}

// What would be refused in any case is not parsed: no error of its bytes is found.
TEST(MemoryTest, MessagesAreRefusedBeforeTheyAreParsed) {
  const std::string garbage(kMiB, '\xff');
  const grpc::Status full = ReduceBytes(TestServer({}, OnlyEngine(std::make_unique<FullEngine>())), garbage);
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << full.error_message();
  EXPECT_THAT(full.error_message(), HasSubstr("the queue is full"));
  const grpc::Status malformed = ReduceBytes(TestServer(), garbage);
  EXPECT_EQ(malformed.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << malformed.error_message();
  EXPECT_THAT(malformed.error_message(), HasSubstr("message: got bytes that are not a ReduceRequest"));
}

std::int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss << 10;
}

std::string FieldOf(char tag, const std::string& contents) {
  std::string field(1, tag);
  for (std::size_t size = contents.size(); true; size >>= 7) {
    field.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
    if (size <= 0x7f) return field + contents;
  }
}

// Of fields that nobody knows, three bytes each, decoded messages are forty times as large.
TEST(MemoryTest, UnknownFieldsTakeNone) {
  std::string unknown;
  while (unknown.size() < 8 * kMiB) unknown.append("\xfa\x3e\x00", 3);
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"Reduce", unknown},
      {"Reduce", FieldOf('\x0a', unknown)},
      {"ReduceStream", FieldOf('\x0a', unknown)},
      {"PutArray", FieldOf('\x0a', unknown)},
      {"Session", FieldOf('\x12', unknown)},
      {"ListArrays", unknown},
      {"GetArray", unknown},
      {"DeleteArray", unknown},
      {"Merge", FieldOf('\x0a', unknown)},
      {"Merge", FieldOf('\x1a', unknown)},
      {"Ladder", unknown},
      {"GetServerInfo", unknown},
  };
  const TestServer server;
  const std::int64_t before = PeakBytes();
  for (const auto& [method, message] : calls) {
    SCOPED_TRACE(method);
    grpc::ClientContext context;
    const grpc::Status status = server.client().Call(&context, method, message);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(": got more than 1000 unknown fields; allowed: 1000"));
  }
  // The messages, on both sides; sanitizers keep memory that is free.
  if (!test::kSlowBuild) {
    EXPECT_LT(PeakBytes() - before, 100 * kMiB);
  }
  // A few are those of a newer client.
  v1::ReduceRequest request = SmallSum();
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(1007, 1);
  v1::ReduceResponse response;
  EXPECT_TRUE(server.client().Reduce(request, &response).ok());
}

// What is small encoded and large decoded counts as large: a dimension has a byte, and eight then.
TEST(MemoryTest, DecodedMessagesAreWithinIt) {
  const ServerOptions options = WithMemory(64 * kMiB);
  const MemoryBudget& memory = *options.engines.memory;
  const TestServer server(options);
  v1::ReduceRequest request = SmallSum();
  request.mutable_array()->mutable_shape()->Resize(4 * kMiB, 1);
  v1::ReduceResponse response;
  const grpc::Status status = server.client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("no memory for the message of a request"));
  // In a session it is an answer like any other.
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto call = stub->Session(&context);
  v1::SessionRequest in_session;
  *in_session.mutable_reduce() = request;
  in_session.set_id(7);
  ASSERT_TRUE(call->Write(in_session));
  v1::SessionResponse answer;
  ASSERT_TRUE(call->Read(&answer));
  EXPECT_EQ(answer.id(), 7);
  EXPECT_EQ(answer.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  *in_session.mutable_reduce() = SmallSum();
  ASSERT_TRUE(call->Write(in_session));
  ASSERT_TRUE(call->Read(&answer));
  EXPECT_EQ(answer.code(), 0) << answer.message();
  call->WritesDone();
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_TRUE(AwaitNoneTaken(memory)) << memory.taken();
}

// While nothing is left, arrays can be listed and deleted.
TEST(MemoryTest, WhatGivesItBackNeedsNone) {
  const ServerOptions options = WithMemory(kMiB);
  MemoryBudget& memory = *options.engines.memory;
  const TestServer server(options);
  const absl::StatusOr<MemoryLease> all = MemoryLease::Take({&memory}, memory.limit(), "a test");
  ASSERT_TRUE(all.ok());
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(server.client().Info(&info).ok());
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext list, remove;
  v1::ListArraysRequest page;
  page.set_owner("somebody");
  page.set_page_token("12345");
  v1::ListArraysResponse arrays;
  EXPECT_TRUE(stub->ListArrays(&list, page, &arrays).ok());
  v1::DeleteArrayRequest request;
  request.set_id(std::string(36, 'x'));
  request.set_owner("somebody");
  v1::DeleteArrayResponse nothing;
  EXPECT_EQ(stub->DeleteArray(&remove, request, &nothing).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::ReduceResponse response;
  EXPECT_TRUE(server.client().Reduce(SumOfBytes(2000), &response).ok()) << "small calls go on";
  EXPECT_EQ(server.client().Reduce(SumOfBytes(100'000), &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// An engine that reduces a tenth of a GB a second, as it says.
class SlowEngine final : public SharedEngine {
 public:
  Calibration calibration() const override { return {.fixed_us = 1, .host_gb_per_s = 0.1, .held_gb_per_s = 0.1}; }
};

TEST(WorkTest, WhatWouldTakeTooLongIsRefusedAtOnce) {
  ServerOptions options;
  options.limits.max_run_time = absl::Milliseconds(200);
  const TestServer server(options, OnlyEngine(std::make_unique<SlowEngine>()));
  v1::ReduceResponse response;
  EXPECT_TRUE(server.client().Reduce(SumOfBytes(10 * kMiB), &response).ok());
  const grpc::Status status = server.client().Reduce(SumOfBytes(30 * kMiB), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("array: got 31457280 elements, which take cpu about"));
  EXPECT_THAT(status.error_message(), HasSubstr("allowed: 200ms (--max_run_time)"));
}

}  // namespace
}  // namespace reduced::server
