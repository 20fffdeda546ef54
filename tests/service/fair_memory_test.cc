// Memory of a server whose clients do not read: it is counted until it has left, and no caller takes what others need.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/memory_budget.h"
#include "server/security/identity.h"
#include "tests/service/identities.h"
#include "tests/service/test_server.h"
#include "tests/service/unread_call.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

// So many sums of nothing: 8 bytes each.
v1::ReduceRequest Sums(std::int64_t outputs) {
  v1::ReduceRequest request;
  request.mutable_array()->set_dtype(v1::DTYPE_I8);
  request.mutable_array()->add_shape(0);
  request.mutable_array()->add_shape(outputs);
  request.set_inline_data("");
  request.mutable_axes()->add_axis(0);
  request.add_ops(v1::OP_SUM);
  return request;
}

bool Await(const std::function<bool()>& holds, absl::Duration within = kPatience) { return Becomes(within, holds); }

class UnreadTest : public SecurityTest {
 protected:
  ServerOptions WithMemory(std::int64_t bytes) const {
    ServerOptions options = Options();
    options.engines.memory = std::make_shared<MemoryBudget>(bytes, options.limits.caller_share);
    return options;
  }
  static grpc::Status Reduce(const TestServer& server, const v1::ReduceRequest& request, const Headers& headers,
                             v1::ReduceResponse* response) {
    grpc::ClientContext context;
    Fill(&context, headers);
    return v1::Reduction::NewStub(server.client().channel())->Reduce(&context, request, response);
  }
};

TEST_F(UnreadTest, ResponsesAreCountedUntilTheyAreRead) {
  const ServerOptions options = WithMemory(256 * kMiB);
  const MemoryBudget& memory = *options.engines.memory;
  const TestServer server(options);
  v1::ReduceRequest with_states = Sums(20'000);
  with_states.set_return_state(true);
  v1::ReduceResponse states;
  ASSERT_TRUE(Reduce(server, with_states, kAsAlice, &states).ok());
  v1::MergeRequest merge;
  *merge.add_arrays() = states.arrays_state();
  merge.set_return_state(true);
  std::string id;
  ASSERT_TRUE(Put(server, kAsAlice, "", &id, 4 * kMiB).ok());
  v1::GetArrayRequest get;
  get.set_id(id);
  ASSERT_TRUE(Await([&] { return memory.taken() == 0; })) << memory.taken();

  const struct {
    const char* method;
    const google::protobuf::Message& request;
    std::int64_t bytes;  // of the response, or of what is on its way
  } calls[] = {
      {"Reduce", Sums(kMiB), 8 * kMiB},
      {"Merge", merge, static_cast<std::int64_t>(states.arrays_state().ByteSizeLong())},
      {"GetArray", get, kMiB},
  };
  for (const auto& each : calls) {
    const std::int64_t bytes = each.bytes;
    SCOPED_TRACE(each.method);
    UnreadCall call(NarrowChannel(server.address()), each.method, each.request, kAliceToken);
    call.HalfClose();
    ASSERT_TRUE(call.AwaitResponse());
    // Long after the call has ended for the server.
    EXPECT_FALSE(Await([&] { return memory.taken() < bytes; }, absl::Milliseconds(300))) << memory.taken();
    EXPECT_LT(memory.taken(), 4 * bytes) << "and little more";
    call.Cancel();
    EXPECT_FALSE(call.Await().ok());
    EXPECT_TRUE(Await([&] { return memory.taken() == 0; })) << memory.taken();
  }
}

// Of a large request whose small response is unread only the response is left.
TEST_F(UnreadTest, RequestsAreFreedBeforeTheirResponsesAreRead) {
  const ServerOptions options = WithMemory(64 * kMiB);
  const MemoryBudget& memory = *options.engines.memory;
  TestServer server(options);
  const auto request = RequestOf<std::int8_t>(v1::DTYPE_I8, std::vector<std::int8_t>(16 * kMiB, 1), {v1::OP_SUM});
  UnreadCall call(NarrowChannel(server.address(), 5), "Reduce", request, kAliceToken);
  call.HalfClose();
  ASSERT_TRUE(call.AwaitResponse());
  EXPECT_TRUE(Await([&] { return memory.taken() == 0; })) << memory.taken();
  EXPECT_FALSE(server.server().IsIdle()) << "the call goes on";
  call.Cancel();
  EXPECT_FALSE(call.Await().ok());
}

TEST_F(UnreadTest, ACallerLeavesMemoryToOthers) {
  constexpr std::int64_t kOutputs = 128 << 10;  // few enough to be answered soon by a slow build
  constexpr std::int64_t kBytes = 8 * kOutputs;
  ServerOptions options = WithMemory(32 * kBytes);
  options.limits.timeouts.progress = absl::Seconds(20);
  const MemoryBudget& memory = *options.engines.memory;
  const TestServer server(options);
  const std::shared_ptr<grpc::Channel> channel = NarrowChannel(server.address());
  std::deque<UnreadCall> calls;
  const auto fill = [&](const char* token) {
    for (int i = 0; i < 30; ++i) {
      UnreadCall& call = calls.emplace_back(channel, "Reduce", Sums(kOutputs), token);
      call.HalfClose();
      call.AwaitResponse();  // one after the other: each takes twice as much until it is encoded
    }
  };
  fill(kAliceToken);
  EXPECT_TRUE(Await([&] { return memory.taken() > 20 * kBytes; })) << memory.taken();
  v1::ReduceResponse response;
  const grpc::Status refused = Reduce(server, Sums(3 * kOutputs), kAsAlice, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("may take"));
  EXPECT_THAT(refused.error_message(), HasSubstr("--caller_share"));
  EXPECT_LE(memory.taken(), 24 * kBytes + kBytes / 8);
  // Small calls go on, and so do those of others.
  EXPECT_TRUE(Reduce(server, SmallSum(), kAsAlice, &response).ok());
  const grpc::Status others = Reduce(server, Sums(kOutputs), kAsBob, &response);
  EXPECT_TRUE(others.ok()) << others.error_message();

  // Once others hold what they get, the first gives up some of its responses, long before the time to read is over.
  const absl::Time began = absl::Now();
  fill(kBobToken);
  EXPECT_TRUE(Await([&] { return memory.taken() > 26 * kBytes; })) << memory.taken();
  const auto within = [&] { return !memory.IsOverShare(Caller("alice").key); };
  EXPECT_FALSE(Await(within, absl::Milliseconds(500)));
  EXPECT_TRUE(Await(within));
  EXPECT_LT(absl::Now() - began, absl::Seconds(15));
  for (UnreadCall& call : calls) {
    call.Cancel();
    call.Await();
  }
  EXPECT_TRUE(Await([&] { return memory.taken() == 0; })) << memory.taken();
}

TEST_F(UnreadTest, ACallerLeavesSessionsToOthers) {
  ServerOptions options = Options();
  options.limits.max_sessions = 4;
  const TestServer server(options);
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  struct Session {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> call;
  };
  std::deque<Session> sessions;
  const auto open = [&](const Headers& headers) {
    Session& session = sessions.emplace_back();
    Fill(&session.context, headers);
    session.call = stub->Session(&session.context);
    v1::SessionRequest request;
    *request.mutable_reduce() = SmallSum();
    v1::SessionResponse response;
    const bool answered = session.call->Write(request) && session.call->Read(&response);
    return answered ? grpc::Status::OK : session.call->Finish();
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(open(kAsAlice).ok());
  const grpc::Status refused = open(kAsAlice);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("this caller has 3 open sessions; allowed: 3, its share"));
  EXPECT_TRUE(open(kAsBob).ok());
  const grpc::Status full = open(kAsBob);
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.error_message(), HasSubstr("the server has 4 open sessions; allowed: 4 (--max_sessions)"));
  for (Session& session : sessions) session.context.TryCancel();
}

}  // namespace
}  // namespace reduced::server
