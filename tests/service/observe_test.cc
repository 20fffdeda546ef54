// What a server counts, remembers and logs of its calls.
#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/observe/call_tag.h"
#include "server/observe/pages.h"
#include "server/observe/status_json.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/tagged_call.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// The value of the samples of `text` that begin with `name` and have all of `labels`, together.
double Total(const std::string& text, const std::string& name, const std::vector<std::string>& labels = {}) {
  double total = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + "{", 0) != 0 && line.rfind(name + " ", 0) != 0) continue;
    const bool has = std::all_of(labels.begin(), labels.end(),
                                 [&](const std::string& label) { return line.find(label) != std::string::npos; });
    if (has) total += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return total;
}

// The server's metrics, over HTTP as Prometheus would have them.
ServerOptions WithMetrics() {
  ServerOptions options;
  options.metrics_listen = "127.0.0.1:0";
  return options;
}

// Calls the service without a Server around it, whose backend can then be asked.
struct Service {
  explicit Service(std::unique_ptr<Engines> of = SharedEngines(), const RequestLimits& limits = {},
                   const ObserverOptions& observer = {})
      : engines(std::move(of)), backend(*engines, limits, {}, /*security=*/nullptr, observer) {
    grpc::ServerBuilder builder;
    builder.RegisterService(service.get());
    const std::string address = absl::StrCat("unix:", dir / "socket");
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    server = builder.BuildAndStart();
    client.emplace(address);
  }
  ~Service() { server->Shutdown(); }
  std::string Metrics() const { return MetricsText(backend.observer, backend.TakeSnapshot(Detail::kCounts), nullptr); }
  json Status() const {
    return json::parse(StatusJson(backend.observer, backend.TakeSnapshot(Detail::kFull), nullptr));
  }

  const TempDir dir;
  const std::unique_ptr<Engines> engines;
  Backend backend;
  const std::unique_ptr<grpc::Service> service = MakeService(backend);
  std::unique_ptr<grpc::Server> server;
  std::optional<TestClient> client;
};

TEST(CountsTest, EveryCallOnceByWhatItWas) {
  Service service;
  v1::ReduceResponse response;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(service.client->Reduce(SmallSum(), &response).ok());
  v1::ReduceRequest several = SmallSum();
  several.add_ops(v1::OP_MAX);
  EXPECT_TRUE(service.client->Reduce(several, &response).ok());
  v1::ReduceRequest unknown = SmallSum();
  unknown.clear_inline_data();
  unknown.clear_array();
  unknown.set_array_id("no such array");
  EXPECT_EQ(service.client->Reduce(unknown, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(service.client->Info(&info).ok());

  const std::string text = service.Metrics();
  const std::string requests = "reduced_requests_total";
  EXPECT_EQ(Total(text, requests), 7);
  EXPECT_EQ(Total(text, requests,
                  {"op=\"sum\"", "dtype=\"f32\"", "source=\"inline\"", "engine=\"cpu\"", "pipeline=\"tiled_simd\"",
                   "status=\"OK\""}),
            5);
  EXPECT_EQ(Total(text, requests, {"op=\"several\"", "status=\"OK\""}), 1);
  EXPECT_EQ(Total(text, requests, {"source=\"resident\"", "engine=\"none\"", "status=\"NOT_FOUND\""}), 1);
  EXPECT_EQ(Total(text, "reduced_calls_total"), 8);
  EXPECT_EQ(Total(text, "reduced_calls_total", {"rpc=\"get_server_info\"", "status=\"OK\""}), 1);
  EXPECT_EQ(Total(text, "reduced_stage_seconds_count", {"stage=\"total\""}), 7);
  EXPECT_EQ(Total(text, "reduced_stage_seconds_count", {"stage=\"kernel\"", "engine=\"cpu\""}), 6);
  EXPECT_EQ(Total(text, "reduced_request_bytes_sum", {"source=\"inline\""}), 6 * 16);
}

TEST(CountsTest, ASessionAndItsRequests) {
  Service service;
  const auto stub = v1::Reduction::NewStub(service.client->channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto session = stub->Session(&context);
  for (int i = 1; i <= 4; ++i) {
    v1::SessionRequest request;
    request.set_id(static_cast<std::uint64_t>(i));
    *request.mutable_reduce() = SmallSum();
    if (i == 3) request.mutable_reduce()->clear_ops();
    if (i == 4) {
      const v1::ReduceRequest small = SmallSum();
      v1::ReduceManyRequest& many = *request.mutable_reduce_many();
      many.mutable_question()->add_ops(v1::OP_SUM);
      *many.add_operands()->mutable_array() = small.array();
      many.mutable_operands(0)->set_inline_data(small.inline_data());
    }
    ASSERT_TRUE(session->Write(request));
    v1::SessionResponse answer;
    ASSERT_TRUE(session->Read(&answer));
  }
  session->WritesDone();
  EXPECT_TRUE(session->Finish().ok());
  const std::string text = service.Metrics();
  EXPECT_EQ(Total(text, "reduced_calls_total", {"rpc=\"session_reduce\"", "status=\"OK\""}), 3);
  EXPECT_EQ(Total(text, "reduced_calls_total", {"rpc=\"session_reduce\"", "status=\"INVALID_ARGUMENT\""}), 1);
  EXPECT_EQ(Total(text, "reduced_calls_total", {"rpc=\"session\"", "status=\"OK\""}), 1);
  EXPECT_EQ(Total(text, "reduced_requests_total"), 4);
  EXPECT_EQ(Total(text, "reduced_requests_total", {"source=\"session\""}), 4) << "none is counted as inline";
}

TEST(CountsTest, TheStagesOfAnUploadInPartsAreCountedOnce) {
  Service service;
  constexpr int kParts = 3;
  constexpr int kElements = 300'000;  // of each
  ReduceStreamCall calls[kParts] = {ReduceStreamCall(*service.client), ReduceStreamCall(*service.client),
                                    ReduceStreamCall(*service.client)};
  for (int i = 0; i < kParts; ++i) {
    v1::ReduceStreamRequest first;
    first.mutable_header()->mutable_array()->set_dtype(v1::DTYPE_F32);
    first.mutable_header()->mutable_array()->add_shape(kParts * kElements);
    first.mutable_header()->add_ops(v1::OP_SUM);
    v1::StreamPart& part = *first.mutable_stream_part();
    part.set_upload("upload");
    part.set_parts(kParts);
    part.set_index(i);
    part.set_first(i * kElements);
    part.set_count(kElements);
    ASSERT_TRUE(calls[i].Write(first));
    ASSERT_TRUE(calls[i].Chunk(std::string(sizeof(float) * kElements, '\0')));
    calls[i].HalfClose();
  }
  for (ReduceStreamCall& call : calls) ASSERT_TRUE(call.Await().ok());
  const double kernel_s = calls[0].response().timing().kernel_us() * 1e-6;
  EXPECT_GT(kernel_s, 0);
  const std::string text = service.Metrics();
  EXPECT_EQ(Total(text, "reduced_stage_seconds_count", {"stage=\"kernel\""}), kParts);
  EXPECT_NEAR(Total(text, "reduced_stage_seconds_sum", {"stage=\"kernel\""}), kernel_s, 1e-8);
}

TEST(CountsTest, HostileTextMakesNoLabels) {
  Service service;
  v1::ReduceResponse response;
  const auto series = [&service] {
    const std::string text = service.Metrics();
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto hostile = [&](int i) {
    v1::ReduceRequest request = SmallSum();
    request.mutable_options()->set_pipeline(absl::StrCat("pipeline\"} 1\nfake_", i));
    EXPECT_FALSE(service.client->Reduce(request, &response).ok());
    request = SmallSum();
    request.add_ops(static_cast<v1::Op>(1000 + i));
    EXPECT_FALSE(service.client->Reduce(request, &response).ok());
    request = SmallSum();
    request.mutable_array()->set_dtype(static_cast<v1::DType>(1000 + i));
    EXPECT_FALSE(service.client->Reduce(request, &response).ok());
    TaggedCall call(Metadata{{kRequestIdKey, absl::StrCat("id-", i)}});
    EXPECT_TRUE(service.client->Reduce(&call.context, SmallSum(), &response).ok());
  };
  hostile(0);
  const auto before = series();
  for (int i = 1; i < 50; ++i) hostile(i);
  EXPECT_EQ(series(), before);
  EXPECT_THAT(service.Metrics(), AllOf(Not(HasSubstr("fake_")), Not(HasSubstr("id-1"))));
  EXPECT_EQ(Total(service.Metrics(), "reduced_requests_total", {"status=\"INVALID_ARGUMENT\""}), 150);
}

TEST(CountsTest, GaugesWhileAReductionIsHeld) {
  auto held = std::make_unique<HeldEngine>(4);
  HeldEngine& engine = *held;
  Service service(OnlyEngine(std::move(held)));
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto stub = v1::Reduction::NewStub(service.client->channel());
  v1::ReduceResponse response;
  const auto stream = stub->ReduceStream(&context, &response);
  v1::ReduceStreamRequest header;
  *header.mutable_header() = SmallSum();
  header.mutable_header()->clear_inline_data();
  ASSERT_TRUE(stream->Write(header));
  v1::ReduceStreamRequest chunk;
  chunk.set_chunk(SmallSum().inline_data());
  ASSERT_TRUE(stream->Write(chunk));
  ASSERT_TRUE(engine.AwaitHeld(1, kPatience));
  EXPECT_EQ(Total(service.Metrics(), "reduced_streams"), 1);
  EXPECT_EQ(Total(service.Metrics(), "reduced_calls_total"), 0) << "it is not over";
  engine.Release();
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Total(service.Metrics(), "reduced_streams"), 0);
  EXPECT_EQ(Total(service.Metrics(), "reduced_requests_total", {"source=\"stream\"", "status=\"OK\""}), 1);
}

TEST(CountsTest, ManyOperandsAreOneReduction) {
  Service service(SharedEngines(), {});
  v1::ReduceManyRequest request;
  request.mutable_question()->add_ops(v1::OP_SUM);
  for (int i = 0; i < 5; ++i) {
    const v1::ReduceRequest small = SmallSum();
    *request.add_operands()->mutable_array() = small.array();
    request.mutable_operands(i)->set_inline_data(small.inline_data());
  }
  TaggedCall call({});
  EXPECT_TRUE(service.client->Call(&call.context, "ReduceMany", request.SerializeAsString()).ok());
  EXPECT_EQ(Total(service.Metrics(), "reduced_calls_total", {"rpc=\"reduce_many\"", "status=\"OK\""}), 1);
  EXPECT_EQ(Total(service.Metrics(), "reduced_requests_total",
                  {"op=\"sum\"", "dtype=\"f32\"", "source=\"inline\"", "engine=\"cpu\"", "status=\"OK\""}),
            1);
}

// Every call of the service: its method, its name in metrics, and the type of its messages.
constexpr struct {
  const char* method;
  const char* rpc;
  const char* message;
} kMethods[] = {
    {"Reduce", "reduce", "ReduceRequest"},
    {"ReduceMany", "reduce_many", "ReduceManyRequest"},
    {"ReduceStream", "reduce_stream", "ReduceStreamRequest"},
    {"Session", "session", "SessionRequest"},
    {"PutArray", "put_array", "PutArrayRequest"},
    {"ListArrays", "list_arrays", "ListArraysRequest"},
    {"GetArray", "get_array", "GetArrayRequest"},
    {"DeleteArray", "delete_array", "DeleteArrayRequest"},
    {"Merge", "merge", "MergeRequest"},
    {"Ladder", "ladder", "LadderRequest"},
    {"GetServerInfo", "get_server_info", "GetServerInfoRequest"},
};

// Sends each method a message: the status and text that are expected, with the request id, counted and remembered.
void ExpectRefused(const std::string& message, grpc::StatusCode code, const std::string& name,
                   const std::function<std::string(const char*)>& text) {
  Service service(SharedEngines(), {.max_message_bytes = 4096});
  for (const auto& row : kMethods) {
    TaggedCall call(Metadata{{kRequestIdKey, row.rpc}});
    const grpc::Status status = service.client->Call(&call.context, row.method, message);
    EXPECT_EQ(status.error_code(), code) << row.method << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text(row.message))) << row.method;
    EXPECT_EQ(call.id(), row.rpc) << row.method;
    EXPECT_EQ(Total(service.Metrics(), "reduced_calls_total",
                    {absl::StrCat("rpc=\"", row.rpc, "\""), absl::StrCat("status=\"", name, "\"")}),
              1)
        << row.method;
    const std::vector<CallError> errors = service.backend.observer.errors();
    ASSERT_FALSE(errors.empty()) << row.method;
    EXPECT_EQ(errors.front().request_id, row.rpc);
  }
}

TEST(MessagesTest, ThatCannotBeDecodedAreRefusedAsEverythingElse) {
  ExpectRefused("\xff", grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT",
                [](const char* type) { return absl::StrCat("got bytes that are not a ", type); });
}

TEST(MessagesTest, LargerThanTheLimitAreRefusedAsEverythingElse) {
  ExpectRefused(std::string(4097, '\0'), grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED", [](const char*) {
    return "message: got 4097 bytes; allowed: 4096 (--max_message_bytes); send larger arrays in the "
           "chunks of ReduceStream";
  });
}

TEST(ErrorsTest, TheLastOnesNewestFirst) {
  Service service;
  v1::ReduceResponse response;
  const auto fail = [&](const std::string& id) {
    TaggedCall call(Metadata{{kRequestIdKey, id}});
    v1::ReduceRequest request = SmallSum();
    request.mutable_options()->set_pipeline("<b>\n");
    EXPECT_FALSE(service.client->Reduce(&call.context, request, &response).ok());
  };
  for (std::size_t i = 0; i < Observer::kMaxErrors + 5; ++i) fail(absl::StrCat("id-", i));
  const std::vector<CallError> errors = service.backend.observer.errors();
  ASSERT_EQ(errors.size(), Observer::kMaxErrors);
  EXPECT_EQ(errors.front().request_id, absl::StrCat("id-", Observer::kMaxErrors + 4));
  EXPECT_EQ(errors.front().code, absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(errors.front().message, StartsWith("pipeline: got '<b>\\n'"));

  service.backend.flags = {{"flag", "\"value\"\xff", "--flag"}, {"token_file", "/secret", "--token_file"}};
  const json status = service.Status();
  EXPECT_EQ(status["errors"].size(), Observer::kMaxErrors);
  EXPECT_EQ(status["errors"][0]["request_id"], errors.front().request_id);
  EXPECT_EQ(status["errors_total"], Observer::kMaxErrors + 5);
  EXPECT_EQ(status["flags"][0][0], "flag");
  EXPECT_EQ(status["flags"][1], json::array({"token_file", "***"}));
}

// A client without a token must not push the other errors out of the list.
TEST(ErrorsTest, RefusedCallsAreOneEntry) {
  Service service;
  v1::ReduceResponse response;
  EXPECT_FALSE(service.client->Reduce({}, &response).ok());
  const absl::Status unknown = absl::UnauthenticatedError("the token is unknown");
  Observer& observer = service.backend.observer;
  for (int i = 0; i < 1000; ++i) observer.Refused("/reduced.v1.Reduction/Merge", "192.0.2.1", unknown);
  observer.Refused("/a\nmethod", "192.0.2.1", absl::UnauthenticatedError("no token"));
  observer.Refused("/reduced.v1.Reduction/Reduce", "192.0.2.1", unknown);
  const std::vector<CallError> errors = service.backend.observer.errors();
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_EQ(errors[0].rpc, "/reduced.v1.Reduction/Reduce");
  EXPECT_EQ(errors[0].code, absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(errors[0].count, 1001);
  EXPECT_EQ(errors[1].rpc, "/a\\nmethod");
  EXPECT_EQ(errors[1].count, 1);
  EXPECT_EQ(errors[2].rpc, "reduce");
  EXPECT_EQ(errors[2].count, 1);
  EXPECT_EQ(service.Status()["errors"][0]["count"], 1001);
  EXPECT_EQ(service.Status()["errors"][0]["peer"], "192.0.2.1");
}

// Nor must one that comes from everywhere.
TEST(ErrorsTest, RefusedCallsOfManyPeersAreFewEntries) {
  Service service;
  v1::ReduceResponse response;
  EXPECT_FALSE(service.client->Reduce({}, &response).ok());
  constexpr int kPeers = 1000;
  for (int i = 0; i < kPeers; ++i) {
    service.backend.observer.Refused("/x", absl::StrCat("192.0.2.", i), absl::UnauthenticatedError("no token"));
  }
  service.backend.observer.Refused("/x", "192.0.2.3", absl::UnauthenticatedError("no token"));
  const std::vector<CallError> errors = service.backend.observer.errors();
  ASSERT_EQ(errors.size(), Observer::kMaxRefusals + 2);
  EXPECT_EQ(errors[0].peer, "192.0.2.3");
  EXPECT_EQ(errors[0].count, 2);
  EXPECT_EQ(errors[1].peer, "several peers");
  EXPECT_EQ(errors[1].count, static_cast<std::int64_t>(kPeers - Observer::kMaxRefusals));
  EXPECT_EQ(errors.back().rpc, "reduce");
}

TEST(StatusTest, ShowsTheArraysOfEverybody) {
  Service service;
  for (const std::string identity : {"", "alice"}) {
    ResidentArray array;
    array.shape = {3};
    array.dtype = DType::kU8;
    array.count = array.bytes = 3;
    array.owner = array.identity = identity;
    array.ttl = absl::Hours(1);
    array.memory = CpuEngine().Allocate(3).value();
    ASSERT_TRUE(service.backend.arrays.Add(std::move(array)).ok());
  }
  const json status = service.Status();
  EXPECT_EQ(status["arrays_total"], 2);
  ASSERT_EQ(status["arrays"].size(), 2U);
  EXPECT_EQ(status["arrays"][0]["owner"], "");
  EXPECT_EQ(status["arrays"][1]["owner"], "alice");
}

TEST(HistoryTest, ASecondHasWhatEndedInIt) {
  Service service;
  v1::ReduceResponse response;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(service.client->Reduce(SmallSum(), &response).ok());
  const auto counted = [&] {
    std::uint64_t calls = 0;
    bool timed = false;
    for (const HistorySample& sample : service.backend.observer.history()) {
      calls += sample.calls;
      timed = timed || sample.stages[kTotalStage].p99_us > 0;
    }
    return calls == 20 && timed;
  };
  const absl::Time deadline = absl::Now() + kPatience;
  while (!counted() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_TRUE(counted());
}

TEST(MetricsPortTest, FreeAddressesAndTakenOnes) {
  TestServer server(WithMetrics());
  EXPECT_THAT(server.server().metrics_address(), AllOf(StartsWith("127.0.0.1:"), Not(HasSubstr(":0"))));
  ServerOptions taken;
  taken.listen = {"127.0.0.1:0"};
  taken.metrics_listen = server.server().metrics_address();
  const auto second = Server::Start(taken, SharedEngines());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("--metrics_listen"), HasSubstr("Address already in use")));
  EXPECT_EQ(TestServer().server().metrics_address(), "");
}

}  // namespace
}  // namespace reduced::server
