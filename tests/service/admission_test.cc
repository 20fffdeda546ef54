// Admission: every kind of call, every step, in one order; and the same through the RPCs.
#include "server/calls/admission.h"

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wire/status.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

constexpr char kTokenOfAlice[] =
    "alice 9c220f200955d76c0a38d308225e0ef10c5f971acaf2f8d1d8f732affa5bd1dc\n";  // of alice-token

class AdmissionTest : public ::testing::TestWithParam<RpcRow> {
 protected:
  AdmissionTest() {
    std::ofstream(dir_ / "tokens") << kTokenOfAlice;
    SecurityOptions options;
    options.token_file = dir_ / "tokens";
    options.max_identity_requests = 1;
    security_ = *Security::Load(options);
    RequestLimits limits;
    limits.max_streams = 1;
    limits.max_sessions = 1;
    backend_.emplace(*engines_, limits, RegionOptions(), security_.get());
  }

  absl::Status Admit(const absl::StatusOr<std::string>& caller, absl::Time deadline = absl::InfiniteFuture()) {
    Admission admission(GetParam().rpc, *backend_);
    return admission.Admit(caller.ok() ? absl::StatusOr<Caller>(Caller(*caller)) : caller.status(), deadline);
  }
  bool SlotsAreFree() const { return backend_->streams.taken() == 0 && backend_->sessions.taken() == 0; }

  const TempDir dir_;
  const std::unique_ptr<Engines> engines_ = SharedEngines();
  std::unique_ptr<Security> security_;
  std::optional<Backend> backend_;
};

// Each obstacle hides those after it.
TEST_P(AdmissionTest, StepsAreInOneOrder) {
  const RpcRow& rule = GetParam();
  const absl::Time past = absl::Now() - absl::Seconds(1);
  Quotas::Lease others = *security_->quotas().TakeRequest(Caller("alice").account);
  for (FairLimit* slots : {&backend_->streams, &backend_->sessions}) slots->Take(0, 1);

  EXPECT_EQ(Admit(absl::UnauthenticatedError("unknown"), past), absl::UnauthenticatedError("unknown"));
  EXPECT_EQ(Admit("alice", past).code(), absl::StatusCode::kDeadlineExceeded);
  const absl::Status exhausted = Admit("alice");
  if (rule.quota) {
    EXPECT_EQ(exhausted.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(exhausted.message()), HasSubstr("--max_identity_requests"));
    EXPECT_TRUE(RetryHint(exhausted).has_value());
  }
  others.Return();
  const absl::Status full = Admit("alice");
  if (rule.slot != Slot::kNone) {
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(full.message()), HasSubstr("--max_s"));
    EXPECT_TRUE(RetryHint(full).has_value());
  } else {
    EXPECT_TRUE(full.ok()) << full;
  }
  for (FairLimit* slots : {&backend_->streams, &backend_->sessions}) slots->Give(0, 1);
  EXPECT_TRUE(Admit("alice").ok());

  // What failed holds nothing.
  EXPECT_TRUE(SlotsAreFree());
  EXPECT_TRUE(backend_->gate.IsEmpty());
  EXPECT_TRUE(security_->quotas().TakeRequest(Caller("alice").account).ok());

  // A draining server says so rather than that a limit is exhausted.
  others = *security_->quotas().TakeRequest(Caller("alice").account);
  backend_->gate.Close();
  EXPECT_EQ(Admit("alice", past).code(), absl::StatusCode::kDeadlineExceeded);
  const absl::Status draining = Admit("alice");
  EXPECT_EQ(draining.code(), rule.gate ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk) << draining;
}

TEST_P(AdmissionTest, HoldsUntilItIsReleasedAndLeft) {
  const RpcRow& rule = GetParam();
  Admission admission(rule.rpc, *backend_);
  ASSERT_TRUE(admission.Admit(Caller("alice"), absl::InfiniteFuture()).ok());
  EXPECT_EQ(admission.caller(), "alice");
  EXPECT_EQ(backend_->gate.IsEmpty(), !rule.gate);
  EXPECT_EQ(security_->quotas().TakeRequest(Caller("alice").account).ok(), !rule.quota);
  EXPECT_EQ(SlotsAreFree(), rule.slot == Slot::kNone);
  admission.Release();
  EXPECT_EQ(backend_->gate.IsEmpty(), !rule.gate);
  EXPECT_TRUE(security_->quotas().TakeRequest(Caller("alice").account).ok());
  EXPECT_TRUE(SlotsAreFree());
  admission.Leave();
  EXPECT_TRUE(backend_->gate.IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Rpcs, AdmissionTest, ::testing::ValuesIn(kRpcs),
                         [](const auto& info) { return std::string(info.param.name); });

// An RPC and one message that its admission needs.
struct Method {
  Rpc rpc;
  std::string name;
  std::string message;
};

std::vector<Method> Methods() {
  v1::ReduceStreamRequest stream;
  stream.mutable_header();
  v1::PutArrayRequest put;
  put.mutable_header();
  return {{Rpc::kReduce, "Reduce", ""},
          {Rpc::kReduceMany, "ReduceMany", ""},
          {Rpc::kReduceStream, "ReduceStream", stream.SerializeAsString()},
          {Rpc::kPutArray, "PutArray", put.SerializeAsString()},
          {Rpc::kListArrays, "ListArrays", ""},
          {Rpc::kGetArray, "GetArray", ""},
          {Rpc::kDeleteArray, "DeleteArray", ""},
          {Rpc::kMerge, "Merge", ""},
          {Rpc::kLadder, "Ladder", ""},
          {Rpc::kGetServerInfo, "GetServerInfo", ""}};
}

// An engine with a queue of that length, in microseconds.
class BusyEngine final : public SharedEngine {
 public:
  explicit BusyEngine(double waiting_us) : waiting_us_(waiting_us) {}
  double waiting_us(std::int64_t) const override { return waiting_us_; }

 private:
  const double waiting_us_;
};

TEST(QueueRetryDelayTest, IsTheTimeOfHalfTheQueue) {
  EXPECT_EQ(QueueRetryDelay(BusyEngine(100'000)), absl::Milliseconds(50));
  EXPECT_EQ(QueueRetryDelay(BusyEngine(200'000)), absl::Milliseconds(100));
  EXPECT_EQ(QueueRetryDelay(BusyEngine(0)), absl::Milliseconds(1));
  EXPECT_EQ(QueueRetryDelay(BusyEngine(1e9)), absl::Seconds(1));
}

// For clients that know google.rpc.Status and RetryInfo, which Debian has no .proto of: their encoding, byte by byte.
TEST(RetryHintTest, IsARetryInfoToo) {
  grpc::CallbackServerContext context;
  const grpc::Status status =
      ToGrpc(WithRetryHint(absl::ResourceExhaustedError("full"), absl::Milliseconds(1500)), &context);
  EXPECT_EQ(status.error_details(),
            absl::StrCat("\x08\x08"  // code: 8
                         "\x12\x04"
                         "full"      // message
                         "\x1a\x36"  // details: an Any
                         "\x0a\x28"
                         "type.googleapis.com/google.rpc.RetryInfo"
                         "\x12\x0a"                     // its value: a RetryInfo
                         "\x0a\x08"                     // retry_delay: a Duration
                         "\x08\x01"                     // of 1 s
                         "\x10\x80\xca\xb5\xee\x01"));  // and 500,000,000 ns
  EXPECT_EQ(ToGrpc(absl::InternalError("wrong"), &context).error_details(), "");
}

TEST(AdmissionOfRpcsTest, ADrainingServerRefusesWork) {
  TestServer server;
  server.server().Drain();
  for (const Method& method : Methods()) {
    grpc::ClientContext context;
    const grpc::Status status = server.client().Call(&context, method.name, method.message);
    EXPECT_EQ(status.error_code() == grpc::StatusCode::UNAVAILABLE, RowOf(method.rpc).gate)
        << method.name << ": " << status.error_message();
    EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0U) << method.name;
    EXPECT_EQ(context.GetServerTrailingMetadata().count("x-request-id"), 1U) << method.name;
  }
}

TEST(AdmissionOfRpcsTest, AnExhaustedQuotaIsSaidWithAHint) {
  const TempDir dir;
  std::ofstream(dir / "tokens") << kTokenOfAlice;
  ServerOptions options;
  options.security.token_file = dir / "tokens";
  options.security.max_identity_requests = 1;
  HeldServer server(4, options);
  // Holds alice's only request.
  grpc::ClientContext held_context;
  SetContextDeadline(&held_context);
  held_context.AddMetadata("authorization", "Bearer alice-token");
  const v1::ReduceRequest sum = RequestOf<float>(v1::DTYPE_F32, {1, 2}, {v1::OP_SUM});
  v1::ReduceResponse held_response;
  absl::Notification answered;
  const auto stub = v1::Reduction::NewStub(server->client().channel());
  stub->async()->Reduce(&held_context, &sum, &held_response, [&](const grpc::Status&) { answered.Notify(); });
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  for (const Method& method : Methods()) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer alice-token");
    const grpc::Status status = server->client().Call(&context, method.name, method.message);
    EXPECT_EQ(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED, RowOf(method.rpc).quota)
        << method.name << ": " << status.error_message();
    EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), RowOf(method.rpc).quota ? 1U : 0U)
        << method.name;
    EXPECT_EQ(!status.error_details().empty(), RowOf(method.rpc).quota) << method.name;
    EXPECT_EQ(context.GetServerTrailingMetadata().count("x-request-id"), 1U) << method.name;
  }
  server.engine().Release();
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(kPatience));
}

// The requests of a session count one by one, from their arrival until they are answered; the session itself doesn't.
TEST(AdmissionOfRpcsTest, RequestsOfASessionTakeTheQuotaWhileTheyRun) {
  const TempDir dir;
  std::ofstream(dir / "tokens") << kTokenOfAlice;
  ServerOptions options;
  options.security.token_file = dir / "tokens";
  options.security.max_identity_requests = 1;
  HeldServer server(4, options);
  const auto stub = v1::Reduction::NewStub(server->client().channel());
  const auto reduce = [&] {
    grpc::ClientContext context;
    SetContextDeadline(&context, absl::Seconds(10));
    context.AddMetadata("authorization", "Bearer alice-token");
    v1::ReduceResponse response;
    return server->client().Reduce(&context, SmallSum(), &response).error_code();
  };
  grpc::ClientContext context;
  SetContextDeadline(&context);
  context.AddMetadata("authorization", "Bearer alice-token");
  const auto session = stub->Session(&context);
  v1::SessionRequest request;
  *request.mutable_reduce() = SmallSum();
  for (const std::uint64_t id : {1, 3}) {
    request.set_id(id);
    ASSERT_TRUE(session->Write(request));
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    EXPECT_EQ(reduce(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    request.set_id(id + 1);
    ASSERT_TRUE(session->Write(request));
    v1::SessionResponse refused;
    ASSERT_TRUE(session->Read(&refused));
    EXPECT_EQ(refused.id(), id + 1);
    EXPECT_EQ(refused.code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.message(), HasSubstr("--max_identity_requests"));
    EXPECT_GT(refused.retry_after_ms(), 0);
    EXPECT_EQ(server.engine().held(), 1);
    server.engine().ReleaseFirst();
    v1::SessionResponse answered;
    ASSERT_TRUE(session->Read(&answered));
    EXPECT_EQ(answered.id(), id);
    EXPECT_EQ(answered.code(), 0) << answered.message();
  }
  session->WritesDone();
  EXPECT_TRUE(session->Finish().ok());
  server.engine().Release();
  EXPECT_EQ(reduce(), grpc::StatusCode::OK);
}

}  // namespace
}  // namespace reduced::server
