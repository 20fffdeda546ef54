// Who may call, and whose the arrays are: tokens and identities of a server in this process. TLS, with certificates, is
// tested end to end.
#include "server/security/security.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/security/tokens.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#include "spdlog/spdlog.h"
#include "tests/service/identities.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Calls a method, of whatever kind, with one empty message.
grpc::Status CallAny(const TestClient& client, const std::string& method, const Headers& headers,
                     absl::Duration timeout = kPatience) {
  grpc::ClientContext context;
  Fill(&context, headers, timeout);
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  grpc::GenericStub(client.channel()).UnaryCall(&context, method, {}, &request, &response, [&](grpc::Status result) {
    status = std::move(result);
    done.Notify();
  });
  done.WaitForNotification();
  return status;
}

// Every method that a server has, health and reflection included, and one that it hasn't.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods = {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                                      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                      "/reduced.v1.Reduction/NoSuchMethod"};
  const auto* const service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(v1::Reduction::service_full_name());
  for (int i = 0; i < service->method_count(); ++i) {
    methods.push_back(absl::StrCat("/", service->full_name(), "/", service->method(i)->name()));
  }
  return methods;
}

TEST_F(SecurityTest, EveryMethodNeedsAToken) {
  TestServer server(Options());
  for (const std::string& method : AllMethods()) {
    for (const Headers& headers :
         {kNoToken, Headers{{"authorization", ""}}, Headers{{"authorization", "alice-token"}},
          Headers{{"authorization", "Basic alice-token"}}, Headers{{"authorization", "Bearer "}},
          Headers{{"authorization", "Bearer alice-tokem"}}, Headers{{"authorization", "Bearer alice-token "}},
          Headers{{"authorization", absl::StrCat("Bearer ", std::string(7000, 'x'))}},
          Headers{{"authorization", kAliceToken}, {"authorization", kBobToken}}}) {
      const grpc::Status status = CallAny(server.client(), method, headers);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method << ": " << status.error_message();
      EXPECT_THAT(status.error_message(), HasSubstr("token"));
      EXPECT_THAT(status.error_message(), Not(HasSubstr("alice")));
    }
    // The only one that goes on for ever is let go soon.
    const bool endless = method == "/grpc.health.v1.Health/Watch";
    for (const Headers& headers : {kAsAlice, Headers{{"authorization", "bEARER bob-token"}}}) {
      const grpc::Status status =
          CallAny(server.client(), method, headers, endless ? absl::Milliseconds(200) : kPatience);
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
    }
  }
}

TEST_F(SecurityTest, HealthCanBeOpen) {
  ServerOptions options = Options();
  options.security.open_health = true;
  TestServer server(options);
  int status = 0;
  EXPECT_TRUE(server.client().Health("", &status).ok());
  EXPECT_EQ(status, kServing);
  HealthWatch watch(server.client(), "");
  EXPECT_EQ(watch.Next(), kServing);
  for (const std::string& method : AllMethods()) {
    if (method.find("grpc.health") != std::string::npos) continue;
    EXPECT_EQ(CallAny(server.client(), method, kNoToken).error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
  }
  // Only what is called health's.
  for (const std::string method : {"/grpc.health.v1.HealthX/Check", "/grpc.health.v1/Health/Check"}) {
    EXPECT_EQ(CallAny(server.client(), method, kNoToken).error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
  }
}

TEST_F(SecurityTest, NothingIsNeededWithoutTokens) {
  TestServer server;
  for (const std::string& method : AllMethods()) {
    if (method == "/grpc.health.v1.Health/Watch") continue;
    EXPECT_NE(CallAny(server.client(), method, kNoToken).error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
  }
}

TEST_F(SecurityTest, ArraysBelongToWhoPutsThem) {
  TestServer server(Options());
  std::string mine, named, his;
  ASSERT_TRUE(Put(server, kAsAlice, "", &mine).ok());
  ASSERT_TRUE(Put(server, kAsAlice, "alice", &named).ok());
  ASSERT_TRUE(Put(server, kAsBob, "bob", &his).ok());
  std::string unused;
  grpc::Status status = Put(server, kAsAlice, "bob\n", &unused);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status.error_message(), "owner: got 'bob\\n'; allowed: your identity, 'alice'");

  std::vector<std::string> ids;
  EXPECT_TRUE(List(server, kAsAlice, "", &ids).ok());
  EXPECT_EQ(ids, (std::vector<std::string>{mine, named}));
  EXPECT_TRUE(List(server, kAsBob, "bob", &ids).ok());
  EXPECT_EQ(ids, (std::vector<std::string>{his}));
  EXPECT_EQ(List(server, kAsBob, "alice", &ids).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(ids.empty());

  EXPECT_TRUE(ReduceKept(server, kAsAlice, mine).ok());
  EXPECT_EQ(ReduceKept(server, kAsBob, mine).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ReduceKept(server, kAsBob, "unknown").error_code(), grpc::StatusCode::NOT_FOUND);
  for (const std::string owner : {"", "bob", "alice"}) {
    status = Delete(server, kAsBob, mine, owner);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << owner;
  }
  EXPECT_TRUE(Delete(server, kAsAlice, mine).ok());
  EXPECT_TRUE(Delete(server, kAsAlice, named, "alice").ok());
  EXPECT_TRUE(Delete(server, kAsBob, his).ok());
}

TEST_F(SecurityTest, UploadsOfTwoIdentitiesHaveNothingToDoWithEachOther) {
  TestServer server(Options());
  Part alice[2], bob[2], broken;
  alice[0].Begin(server, kAsAlice, "the same", 0, 2, 2);
  alice[0].Send(1);
  bob[0].Begin(server, kAsBob, "the same", 0, 2, 2);  // else: part 0 has come already
  bob[0].Send(10);
  broken.Begin(server, kAsBob, "the same", 0, 0, 2);  // fails bob's, not alice's
  EXPECT_EQ(broken.writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(bob[0].writer->Finish().error_code(), grpc::StatusCode::ABORTED);
  alice[1].Begin(server, kAsAlice, "the same", 1, 2, 2);
  alice[1].Send(2);
  for (Part& part : alice) {
    EXPECT_TRUE(part.writer->Finish().ok());
    EXPECT_EQ(Text(part.response.results(0).value()), "u64:3");
  }
}

TEST_F(SecurityTest, ASessionEndsItsIdentityWithTheToken) {
  TestServer server(Options());
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext context;
  Fill(&context, kAsAlice);
  const auto session = stub->Session(&context);
  v1::SessionRequest request;
  *request.mutable_reduce() = RequestOf<std::uint8_t>(v1::DTYPE_U8, {1, 2}, {v1::OP_SUM});
  v1::SessionResponse response;
  const auto ask = [&] {
    request.set_id(request.id() + 1);
    return session->Write(request) && session->Read(&response);
  };
  ASSERT_TRUE(ask());
  EXPECT_EQ(response.code(), 0) << response.message();
  Write(kBob);
  const absl::Time deadline = absl::Now() + kPatience;
  while (response.code() == 0 && absl::Now() < deadline) ASSERT_TRUE(ask());
  EXPECT_EQ(response.code(), grpc::StatusCode::UNAUTHENTICATED);
  Write(absl::StrCat(kAlice, kBob));
  while (response.code() != 0 && absl::Now() < deadline) ASSERT_TRUE(ask());
  EXPECT_EQ(response.code(), 0) << response.message();
  session->WritesDone();
  EXPECT_TRUE(session->Finish().ok());
}

// A certificate of its own making, and its key, that ends after `lifetime`.
void WriteCertificate(const std::string& cert, const std::string& key, absl::Duration lifetime) {
  EVP_PKEY* const pair = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), absl::ToInt64Seconds(lifetime));
  X509_set_pubkey(certificate, pair);
  X509_sign(certificate, pair, EVP_sha256());
  std::FILE* file = std::fopen(cert.c_str(), "w");
  PEM_write_X509(file, certificate);
  std::fclose(file);
  file = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(pair);
}

TEST_F(SecurityTest, TheLogSaysOfACertificateThatItExpiresAndThatItHas) {
  const auto log = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log));
  const absl::Cleanup restore = [&before] { spdlog::set_default_logger(before); };
  const auto count = [&log](const std::string& what) {
    int found = 0;
    for (const std::string& line : log->last_formatted()) found += line.find(what) != std::string::npos ? 1 : 0;
    return found;
  };
  SecurityOptions options;
  options.tls_cert = dir_ / "cert";
  options.tls_key = dir_ / "key";
  options.credentials_refresh = absl::Milliseconds(10);
  WriteCertificate(options.tls_cert, options.tls_key, absl::Seconds(3));
  const auto security = Security::Load(options);
  ASSERT_TRUE(security.ok()) << security.status();
  EXPECT_EQ(count("cert: the certificate expires on 20"), 1);
  EXPECT_TRUE(Becomes(kPatience, [&] { return count("cert: the certificate expired on 20") > 0; }));
  // Some readings later each was said once; another certificate is said anew.
  WriteCertificate(options.tls_cert, options.tls_key, absl::Hours(1));
  EXPECT_TRUE(Becomes(kPatience, [&] { return count("cert: the certificate expires on 20") >= 2; }));
  EXPECT_EQ(count("cert: the certificate expires on 20"), 2);
  EXPECT_EQ(count("cert: the certificate expired on 20"), 1);
}

TEST(TokensTest, IdentityOf) {
  // Of "x": upper case, too. Two of alice's, none of bob's.
  const auto tokens = Tokens::Parse(
      absl::StrCat("alice 2D711642B726B04401627CA9FBAC32F5C8530FB1903CC4DB02258717921A4881\r\n", kAlice), "file");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->size(), 2U);
  for (const std::string text : {"Bearer x", "bearer x", kAliceToken}) {
    const std::string* const identity = tokens->IdentityOf(text);
    ASSERT_NE(identity, nullptr) << text;
    EXPECT_EQ(*identity, "alice");
  }
  for (const std::string text : {"", "x", "Bearer", "Bearer ", "Bearer  x", "Bearer x ", "Bearerx", kBobToken}) {
    EXPECT_EQ(tokens->IdentityOf(text), nullptr) << text;
  }
  EXPECT_EQ(tokens->IdentityOf(absl::StrCat("Bearer ", std::string(100'000, 'x'))), nullptr);
}

TEST(TokensTest, AFileMayHaveNone) {
  for (const std::string text : {"", "\n", "# nobody\n\n"}) {
    const auto tokens = Tokens::Parse(text, "file");
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(tokens->size(), 0U);
    EXPECT_EQ(tokens->IdentityOf(kAliceToken), nullptr);
  }
}

TEST(TokensTest, ATokenHasOneIdentity) {
  std::string bobs = kAlice;
  bobs.replace(0, std::string("alice").size(), "bob");
  const absl::Status two = Tokens::Parse(absl::StrCat(kAlice, kBob, bobs), "file").status();
  EXPECT_EQ(two.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(two.message()), HasSubstr("file:3: another identity has the same token"));
  const auto twice = Tokens::Parse(absl::StrCat(kAlice, kBob, kAlice), "file");  // says the same again
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->size(), 2U);
}

}  // namespace
}  // namespace reduced::server
