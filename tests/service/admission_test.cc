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
    return admission.Admit(caller, deadline);
  }
  bool SlotsAreFree() const { return backend_->streams == 0 && backend_->sessions == 0; }

  const TempDir dir_;
  const std::unique_ptr<Engines> engines_ = SharedEngines();
  std::unique_ptr<Security> security_;
  std::optional<Backend> backend_;
};

// Each obstacle hides those after it.
TEST_P(AdmissionTest, StepsAreInOneOrder) {
  const RpcRow& rule = GetParam();
  const absl::Time past = absl::Now() - absl::Seconds(1);
  Quotas::Lease others = *security_->quotas().TakeRequest("alice");
  backend_->streams = backend_->sessions = 1;

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
  backend_->streams = backend_->sessions = 0;
  EXPECT_TRUE(Admit("alice").ok());

  // What failed holds nothing.
  EXPECT_TRUE(SlotsAreFree());
  EXPECT_TRUE(backend_->gate.AwaitEmpty(absl::ZeroDuration()));
  EXPECT_TRUE(security_->quotas().TakeRequest("alice").ok());

  // A draining server says so rather than that a limit is exhausted.
  others = *security_->quotas().TakeRequest("alice");
  backend_->gate.Close();
  EXPECT_EQ(Admit("alice", past).code(), absl::StatusCode::kDeadlineExceeded);
  const absl::Status draining = Admit("alice");
  EXPECT_EQ(draining.code(), rule.gate ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk) << draining;
}

TEST_P(AdmissionTest, HoldsUntilItIsReleasedAndLeft) {
  const RpcRow& rule = GetParam();
  Admission admission(rule.rpc, *backend_);
  ASSERT_TRUE(admission.Admit("alice", absl::InfiniteFuture()).ok());
  EXPECT_EQ(admission.caller(), "alice");
  EXPECT_EQ(backend_->gate.AwaitEmpty(absl::ZeroDuration()), !rule.gate);
  EXPECT_EQ(security_->quotas().TakeRequest("alice").ok(), !rule.quota);
  EXPECT_EQ(SlotsAreFree(), rule.slot == Slot::kNone);
  admission.Release();
  EXPECT_EQ(backend_->gate.AwaitEmpty(absl::ZeroDuration()), !rule.gate);
  EXPECT_TRUE(security_->quotas().TakeRequest("alice").ok());
  EXPECT_TRUE(SlotsAreFree());
  admission.Leave();
  EXPECT_TRUE(backend_->gate.AwaitEmpty(absl::ZeroDuration()));
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
          {Rpc::kReduceStream, "ReduceStream", stream.SerializeAsString()},
          {Rpc::kPutArray, "PutArray", put.SerializeAsString()},
          {Rpc::kListArrays, "ListArrays", ""},
          {Rpc::kDeleteArray, "DeleteArray", ""},
          {Rpc::kMerge, "Merge", ""},
          {Rpc::kLadder, "Ladder", ""},
          {Rpc::kGetServerInfo, "GetServerInfo", ""}};
}

grpc::Status Call(const TestClient& client, const Method& method, grpc::ClientContext* context) {
  SetContextDeadline(context);
  const grpc::Slice slice(method.message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  const std::string name = absl::StrCat("/reduced.v1.Reduction/", method.name);
  grpc::GenericStub(client.channel()).UnaryCall(context, name, {}, &request, &response, [&](grpc::Status result) {
    status = std::move(result);
    done.Notify();
  });
  done.WaitForNotification();
  return status;
}

// An engine that takes `fixed_us` and a microsecond per 1000 bytes for a reduction.
class SteadyEngine final : public SharedEngine {
 public:
  SteadyEngine(double fixed_us, int lanes, int queue_limit)
      : fixed_us_(fixed_us), lanes_(lanes), queue_limit_(queue_limit) {}
  DeviceInfo info() const override {
    DeviceInfo info = CpuEngine().info();
    info.lanes = lanes_;
    info.queue_limit = queue_limit_;
    return info;
  }
  Calibration calibration() const override { return {.fixed_us = fixed_us_, .host_gb_per_s = 1}; }

 private:
  const double fixed_us_;
  const int lanes_, queue_limit_;
};

TEST(QueueRetryDelayTest, IsTheTimeOfHalfTheQueue) {
  EXPECT_EQ(QueueRetryDelay(SteadyEngine(1000, 1, 100), 0), absl::Milliseconds(50));
  EXPECT_EQ(QueueRetryDelay(SteadyEngine(1000, 1, 200), 0), absl::Milliseconds(100));
  EXPECT_EQ(QueueRetryDelay(SteadyEngine(1000, 4, 200), 0), absl::Milliseconds(25));
  EXPECT_EQ(QueueRetryDelay(SteadyEngine(1000, 1, 100), 1'000'000), absl::Milliseconds(100));
  EXPECT_EQ(QueueRetryDelay(SteadyEngine(1, 1, 2), 0), absl::Milliseconds(1));
  EXPECT_EQ(QueueRetryDelay(SteadyEngine(1e6, 1, 100), 0), absl::Seconds(1));
}

TEST(AdmissionOfRpcsTest, ADrainingServerRefusesWork) {
  TestServer server;
  server.server().Drain();
  for (const Method& method : Methods()) {
    grpc::ClientContext context;
    const grpc::Status status = Call(server.client(), method, &context);
    EXPECT_EQ(status.error_code() == grpc::StatusCode::UNAVAILABLE, RowOf(method.rpc).gate)
        << method.name << ": " << status.error_message();
    EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0U) << method.name;
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
    const grpc::Status status = Call(server->client(), method, &context);
    EXPECT_EQ(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED, RowOf(method.rpc).quota)
        << method.name << ": " << status.error_message();
    EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), RowOf(method.rpc).quota ? 1U : 0U)
        << method.name;
  }
  server.engine().Release();
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(kPatience));
}

}  // namespace
}  // namespace reduced::server
