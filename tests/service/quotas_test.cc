// What each identity may have at once.
#include "server/security/quotas.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/support/server_interceptor.h"
#include "gtest/gtest.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/calls/backend.h"
#include "server/calls/service.h"
#include "server/security/security.h"
#include "tests/service/array_calls.h"
#include "tests/service/identities.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

TEST_F(SecurityTest, ArrayBytesAreLimitedForEach) {
  ServerOptions options = Options();
  options.security.max_identity_array_bytes = 10;
  TestServer server(options);
  std::string id, other;
  ASSERT_TRUE(Put(server, kAsAlice, "", &id, 6).ok());
  const grpc::Status status = Put(server, kAsAlice, "", &other, 5);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("identity 'alice' has 6 bytes of resident arrays and asks for 5 more; allowed: 10 "));
  EXPECT_THAT(status.error_message(), HasSubstr("--max_identity_array_bytes"));
  EXPECT_TRUE(Put(server, kAsAlice, "", &other, 4).ok());
  EXPECT_TRUE(Put(server, kAsBob, "", &other, 10).ok());
  EXPECT_TRUE(Delete(server, kAsAlice, id).ok());
  EXPECT_TRUE(Put(server, kAsAlice, "", &id, 6).ok());
  // What fails gives back what it took.
  ASSERT_TRUE(Delete(server, kAsAlice, id).ok());
  EXPECT_FALSE(Put(server, kAsAlice, std::string(65, 'x'), &id, 6).ok());
  EXPECT_TRUE(Put(server, kAsAlice, "", &id, 6).ok());
}

TEST_F(SecurityTest, ArraysAreLimitedForEach) {
  ServerOptions options = Options();
  options.security.max_identity_arrays = 2;
  TestServer server(options);
  std::string first, second, other;
  ASSERT_TRUE(Put(server, kAsAlice, "", &first, 0).ok());  // one without bytes counts as well
  ASSERT_TRUE(Put(server, kAsAlice, "", &second).ok());
  const grpc::Status status = Put(server, kAsAlice, "", &other, 0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("identity 'alice' has 2 resident arrays; allowed: 2"));
  EXPECT_THAT(status.error_message(), HasSubstr("--max_identity_arrays"));
  EXPECT_TRUE(Put(server, kAsBob, "", &other).ok());
  EXPECT_TRUE(Delete(server, kAsAlice, first).ok());
  EXPECT_TRUE(Put(server, kAsAlice, "", &first).ok());
}

TEST_F(SecurityTest, SessionsAreLimitedForEach) {
  ServerOptions options = Options();
  options.security.max_identity_sessions = 1;
  TestServer server(options);
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  v1::SessionRequest request;
  *request.mutable_reduce() = SmallSum();
  v1::SessionResponse response;
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context, second_context, bobs_context;
    Fill(&context, kAsAlice);
    Fill(&second_context, kAsAlice);
    Fill(&bobs_context, kAsBob);
    const auto session = stub->Session(&context);
    ASSERT_TRUE(session->Write(request));
    ASSERT_TRUE(session->Read(&response));
    const grpc::Status status = stub->Session(&second_context)->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("identity 'alice' has 1 open sessions; allowed: 1"));
    EXPECT_THAT(status.error_message(), HasSubstr("--max_identity_sessions"));
    EXPECT_EQ(second_context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
    const auto bobs = stub->Session(&bobs_context);
    EXPECT_TRUE(bobs->WritesDone());
    EXPECT_TRUE(bobs->Finish().ok());
    session->WritesDone();
    EXPECT_TRUE(session->Finish().ok());  // the next round is admitted
  }
}

// Waits until the server counts so many streams: false after kPatience.
bool AwaitStreams(const TestServer& server, const Headers& headers, int streams) {
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  v1::GetServerInfoResponse info;
  return Becomes(kPatience, [&] {
    grpc::ClientContext context;
    Fill(&context, headers);
    return stub->GetServerInfo(&context, {}, &info).ok() && info.usage().streams() == streams;
  });
}

TEST_F(SecurityTest, RequestsAtOnceAreLimitedForEach) {
  ServerOptions options = Options();
  options.security.max_identity_requests = 1;
  TestServer server(options);
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  const auto reduce = [&](const Headers& headers) {
    grpc::ClientContext own;
    Fill(&own, headers);
    v1::ReduceResponse answer;
    return server.client().Reduce(&own, RequestOf<std::uint8_t>(v1::DTYPE_U8, {1}, {v1::OP_SUM}), &answer);
  };
  ASSERT_TRUE(reduce(kAsAlice).ok());  // one is allowed
  grpc::ClientContext context;
  Fill(&context, kAsAlice);
  v1::PutArrayResponse response;
  const auto put = stub->PutArray(&context, &response);
  v1::PutArrayRequest header;
  header.mutable_header()->mutable_array()->set_dtype(v1::DTYPE_U8);
  header.mutable_header()->mutable_array()->add_shape(1);
  put->Write(header);
  ASSERT_TRUE(AwaitStreams(server, kAsAlice, 1));  // the server has the header
  const grpc::Status status = reduce(kAsAlice);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("identity 'alice' has 1 requests in progress; allowed: 1"));
  EXPECT_THAT(status.error_message(), HasSubstr("--max_identity_requests"));
  EXPECT_TRUE(reduce(kAsBob).ok());
  {
    grpc::ClientContext own;
    Fill(&own, kAsAlice);
    v1::MergeResponse merged;
    EXPECT_EQ(stub->Merge(&own, {}, &merged).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(own.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1U);
  }
  header.Clear();
  header.set_chunk("x");
  put->Write(header);
  put->WritesDone();
  EXPECT_TRUE(put->Finish().ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(reduce(kAsAlice).ok()) << i;
}

TEST_F(SecurityTest, AnUploadIsOneRequestHoweverManyPartsItHas) {
  ServerOptions options = Options();
  options.security.max_identity_requests = 1;
  TestServer server(options);
  std::string array;
  ASSERT_TRUE(Put(server, kAsAlice, "", &array).ok());  // one request is allowed
  constexpr int kParts = 4;
  for (int round = 0; round < 5; ++round) {
    Part good[kParts], another, failing[2], bobs;
    const std::string id = absl::StrCat("upload ", round);
    for (int i = 0; i < kParts; ++i) good[i].Begin(server, kAsAlice, id, i, kParts, kParts);
    ASSERT_TRUE(AwaitStreams(server, kAsAlice, kParts));
    // Another request of the same identity is refused, but not one of another identity.
    another.Begin(server, kAsAlice, id + ", another", 0, kParts, kParts);
    const grpc::Status refused = another.writer->Finish();
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.error_message(), HasSubstr("identity 'alice' has 1 requests in progress; allowed: 1"));
    EXPECT_EQ(another.context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1U);
    bobs.Begin(server, kAsBob, id, 0, kParts, kParts);
    ASSERT_TRUE(AwaitStreams(server, kAsAlice, kParts + 1));
    for (int i = 0; i < kParts; ++i) good[i].Send(static_cast<char>(i + 1));
    for (Part& part : good) {
      const grpc::Status status = part.writer->Finish();
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(Text(part.response.results(0).value()), "u64:10");
    }
    bobs.context.TryCancel();
    EXPECT_FALSE(bobs.writer->Finish().ok());
    ASSERT_TRUE(AwaitStreams(server, kAsAlice, 0));
    // One that fails is over, too.
    failing[0].Begin(server, kAsAlice, id + ", failing", 0, kParts, kParts);
    ASSERT_TRUE(AwaitStreams(server, kAsAlice, 1));
    failing[1].Begin(server, kAsAlice, id + ", failing", 0, kParts, kParts);  // which has come already
    EXPECT_EQ(failing[1].writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(failing[0].writer->Finish().error_code(), grpc::StatusCode::ABORTED);
  }
}

// Holds the first status that is an error back from gRPC until Release.
class HeldStatus final : public grpc::experimental::Interceptor {
 public:
  class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
   public:
    explicit Factory(HeldStatus& held) : held_(held) {}
    grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* /*info*/) override {
      return new Forwarding(held_);  // gRPC deletes it
    }

   private:
    class Forwarding final : public grpc::experimental::Interceptor {
     public:
      explicit Forwarding(HeldStatus& held) : held_(held) {}
      void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override { held_.Intercept(methods); }

     private:
      HeldStatus& held_;
    };

    HeldStatus& held_;
  };

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    const bool ends = methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS);
    if (!ends || methods->GetSendStatus().ok() || taken_.exchange(true)) return methods->Proceed();
    methods_ = methods;
    there_.Notify();
  }
  bool Await() const { return there_.WaitForNotificationWithTimeout(kPatience); }
  void Release() { methods_->Proceed(); }

 private:
  std::atomic<bool> taken_ = false;
  grpc::experimental::InterceptorBatchMethods* methods_ = nullptr;
  absl::Notification there_;
};

// gRPC may take its time to send the status of a call, and the call is there until then.
TEST(QuotasTest, APutThatFailsGivesBackWhatItTookBeforeItsStatusIsSent) {
  constexpr int kBytes = 8;
  SecurityOptions options;
  options.max_identity_array_bytes = kBytes;
  const auto security = Security::Load(options);
  ASSERT_TRUE(security.ok()) << security.status();
  const std::unique_ptr<Engines> engines = SharedEngines();
  Backend backend(*engines, {}, {}, security->get());
  const std::unique_ptr<grpc::Service> service = MakeService(backend);
  HeldStatus held;
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<HeldStatus::Factory>(held));
  grpc::ServerBuilder builder;
  builder.experimental().SetInterceptorCreators(std::move(factories));
  builder.RegisterService(service.get());
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const TestClient client(absl::StrCat("127.0.0.1:", port));

  PutArrayCall failing(client);
  ASSERT_TRUE(failing.Header(PutHeaderOf(v1::DTYPE_U8, kBytes)));
  ASSERT_TRUE(failing.Chunk(std::string(kBytes + 1, '\1')));
  ASSERT_TRUE(held.Await());
  v1::ArrayInfo array;
  const grpc::Status another =
      PutElements(client, PutHeaderOf(v1::DTYPE_U8, kBytes), std::string(kBytes, '\1'), kBytes, &array);
  EXPECT_TRUE(another.ok()) << another.error_message();
  held.Release();
  EXPECT_EQ(failing.Await().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status full = PutElements(client, PutHeaderOf(v1::DTYPE_U8, 1), std::string(1, '\1'), 1, &array);
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << "the quota is that of the other array";
  server->Shutdown();
}

TEST(QuotasTest, LeasesAreGivenBackOnce) {
  Quotas quotas({.requests = 2});
  auto first = quotas.TakeRequest("a");
  auto second = quotas.TakeRequest("a");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(quotas.TakeRequest("a").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(quotas.TakeRequest("b").ok());
  Quotas::Lease moved = *std::move(first);
  EXPECT_FALSE(quotas.TakeRequest("a").ok());
  moved.Return();
  moved.Return();
  first = quotas.TakeRequest("a");
  EXPECT_TRUE(first.ok());
  EXPECT_FALSE(quotas.TakeRequest("a").ok());
  moved = *std::move(second);
  moved = Quotas::Lease();
  EXPECT_TRUE(quotas.TakeRequest("a").ok());
  std::vector<Quotas::Lease> any;
  for (int i = 0; i < 10; ++i) any.push_back(quotas.TakeRequest("").value());    // no account: no limit
  for (int i = 0; i < 10; ++i) any.push_back(quotas.TakeArray("a", 9).value());  // no limit
  any.clear();
  EXPECT_FALSE(Quotas({.array_bytes = 8}).TakeArray(Caller("a\n").account, 9).ok());
  EXPECT_THAT(std::string(Quotas({.array_bytes = 8}).TakeArray(Caller("a\n").account, 9).status().message()),
              HasSubstr("identity 'a\\n' has 0 bytes of resident arrays and asks for 9 more; allowed: 8 "));
}

}  // namespace
}  // namespace reduced::server
