// Request ids, and what a server logs of its calls.
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/observe/call_tag.h"
#include "server/observe/log.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/tagged_call.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

// What spdlog writes while it lives.
class CapturedLog {
 public:
  explicit CapturedLog(spdlog::level::level_enum level, bool as_json = false) : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    if (as_json) sink->set_formatter(MakeJsonFormatter());
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("captured", sink));
    spdlog::set_level(level);
  }
  ~CapturedLog() {
    spdlog::set_default_logger(before_);
    spdlog::set_level(spdlog::level::info);
  }
  // Once no server writes any more.
  std::string text() const { return text_.str(); }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::istringstream text(text_.str());
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_;
};

TEST(RequestIdTest, TheClientsOrTheServersInTheTrailer) {
  TestServer server;
  v1::ReduceResponse response;
  TaggedCall named(Metadata{{kRequestIdKey, "order-66"}});
  EXPECT_TRUE(server.client().Reduce(&named.context, SmallSum(), &response).ok());
  EXPECT_EQ(named.id(), "order-66");

  TaggedCall first(Metadata{});
  TaggedCall second(Metadata{});
  EXPECT_TRUE(server.client().Reduce(&first.context, SmallSum(), &response).ok());
  EXPECT_TRUE(server.client().Reduce(&second.context, SmallSum(), &response).ok());
  EXPECT_TRUE(IsRequestId(first.id()));
  EXPECT_NE(first.id(), second.id());

  for (const std::string& bad : {std::string(65, 'x'), std::string("two words"), std::string("{\"a\":1}")}) {
    TaggedCall call(Metadata{{kRequestIdKey, bad}});
    EXPECT_TRUE(server.client().Reduce(&call.context, SmallSum(), &response).ok());
    EXPECT_NE(call.id(), bad);
    EXPECT_TRUE(IsRequestId(call.id()));
  }
}

TEST(RequestIdTest, OfEveryCallThatFailsAndEveryMethod) {
  TestServer server;
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  const Metadata id = {{kRequestIdKey, "mine"}};
  {
    TaggedCall call(id);
    v1::ReduceResponse response;
    EXPECT_FALSE(server.client().Reduce(&call.context, {}, &response).ok());
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    v1::ReduceResponse response;
    const auto stream = stub->ReduceStream(&call.context, &response);
    stream->WritesDone();
    EXPECT_FALSE(stream->Finish().ok());
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    v1::PutArrayResponse response;
    const auto stream = stub->PutArray(&call.context, &response);
    stream->WritesDone();
    EXPECT_FALSE(stream->Finish().ok());
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    const auto stream = stub->Session(&call.context);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    const auto stream = stub->Ladder(&call.context, {});
    EXPECT_FALSE(stream->Finish().ok());
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    v1::GetServerInfoResponse response;
    EXPECT_TRUE(stub->GetServerInfo(&call.context, {}, &response).ok());
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    v1::ListArraysResponse response;
    EXPECT_TRUE(stub->ListArrays(&call.context, {}, &response).ok());
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    v1::DeleteArrayResponse response;
    EXPECT_EQ(stub->DeleteArray(&call.context, {}, &response).error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(call.id(), "mine");
  }
  {
    TaggedCall call(id);
    v1::MergeResponse response;
    EXPECT_FALSE(stub->Merge(&call.context, {}, &response).ok());
    EXPECT_EQ(call.id(), "mine");
  }
}

TEST(RequestIdTest, Off) {
  ServerOptions options;
  options.request_ids = false;
  TestServer server(options);
  TaggedCall call(Metadata{{kRequestIdKey, "mine"}});
  v1::ReduceResponse response;
  EXPECT_TRUE(server.client().Reduce(&call.context, SmallSum(), &response).ok());
  EXPECT_EQ(call.context.GetServerTrailingMetadata().count(kRequestIdKey), 0U);
}

TEST(CallLogTest, JsonHasTheIdTheParentAndTheStages) {
  CapturedLog log(spdlog::level::debug, /*as_json=*/true);
  {
    ServerOptions options;
    options.log_format = "json";
    TestServer server(options);
    TaggedCall call(Metadata{{kRequestIdKey, "order-66"}, {kTraceparentKey, kParent}});
    v1::ReduceResponse response;
    EXPECT_TRUE(server.client().Reduce(&call.context, SmallSum(), &response).ok());
    v1::ReduceRequest bad = SmallSum();
    bad.mutable_options()->set_pipeline("a\"\n,\"status\":\"OK\"");
    TaggedCall failing(Metadata{{kTraceparentKey, "00-not-a-parent"}});
    EXPECT_FALSE(server.client().Reduce(&failing.context, bad, &response).ok());
  }
  std::vector<json> calls;
  for (const std::string& line : log.lines()) {
    const json parsed = json::parse(line);
    if (parsed["message"] == "call") calls.push_back(parsed);
  }
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["request_id"], "order-66");
  EXPECT_EQ(calls[0]["traceparent"], kParent);
  EXPECT_EQ(calls[0]["ops"], json({"sum"}));
  EXPECT_GT(calls[0]["stages_us"]["kernel"], 0);
  EXPECT_EQ(calls[1]["status"], "INVALID_ARGUMENT");
  EXPECT_FALSE(calls[1].contains("traceparent"));
  EXPECT_THAT(calls[1]["error"].get<std::string>(), HasSubstr("pipeline: got "));
}

TEST(CallLogTest, SlowReductionsWithTheirStages) {
  CapturedLog log(spdlog::level::warn);
  {
    ServerOptions options;
    options.slow_request = absl::Nanoseconds(1);
    TestServer server(options);
    v1::ReduceResponse response;
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(server.client().Reduce(SmallSum(), &response).ok());
    EXPECT_TRUE(server.client().Info(&info).ok());
    server.server().Shutdown(kPatience);  // else a busy machine's says that it didn't wait
  }
  ASSERT_EQ(log.lines().size(), 1U) << log.text();
  EXPECT_THAT(log.text(), ContainsRegex("slow: reduce request_id=.* status=OK .*total_us=.* kernel_us="));
}

// The engine takes long, while the client could send more.
TEST(CallLogTest, ASlowEngineOfAStreamWhoseClientWaits) {
  CapturedLog log(spdlog::level::warn);
  {
    ServerOptions options;
    options.slow_request = absl::Milliseconds(100);
    HeldServer server(8, options);
    ReduceStreamCall stream(server->client());
    ASSERT_TRUE(stream.Header(HeaderOf(v1::DTYPE_U8, 1024, {v1::OP_SUM})));
    ASSERT_TRUE(stream.Chunk(std::string(1024, '\1')));
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    absl::SleepFor(absl::Milliseconds(150));
    server.engine().Release();
    EXPECT_TRUE(stream.End().ok());
    server->server().Shutdown(kPatience);
  }
  EXPECT_THAT(log.text(), ContainsRegex("slow: reduce_stream .* status=OK .*server_us="));
}

TEST(CallLogTest, NoneIsSlowByDefault) {
  CapturedLog log(spdlog::level::warn);
  {
    TestServer server;
    v1::ReduceResponse response;
    EXPECT_TRUE(server.client().Reduce(SmallSum(), &response).ok());
    server.server().Shutdown(kPatience);
  }
  EXPECT_EQ(log.text(), "");
}

TEST(CallLogTest, TheSameWarningOnlySoOften) {
  CapturedLog log(spdlog::level::warn);
  constexpr int kCalls = 200;
  {
    ServerOptions options;
    options.slow_request = absl::Nanoseconds(1);
    TestServer server(options);
    v1::ReduceResponse response;
    for (int i = 0; i < kCalls; ++i) EXPECT_TRUE(server.client().Reduce(SmallSum(), &response).ok());
  }
  int said = 0;
  int repeated = 0;
  for (const std::string& line : log.lines()) {
    if (line.find("slow: reduce") != std::string::npos) ++said;
    if (const auto at = line.find("repeated "); at != std::string::npos) {
      EXPECT_THAT(line, HasSubstr("times more within 10s: slow reduce OK"));
      repeated += std::stoi(line.substr(at + 9));
    }
  }
  EXPECT_EQ(said + repeated, kCalls) << "none is lost without a word";
  EXPECT_LT(said, kCalls / 2);
  EXPECT_GT(said, 0);
}

}  // namespace
}  // namespace reduced::server
