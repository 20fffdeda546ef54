#include "server/observe/call_line.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace reduced::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

TEST(PrintableTest, OneLineOfAsciiOfLimitedLength) {
  EXPECT_EQ(Printable("plain 'text' \\n", 100), "plain 'text' \\n");
  EXPECT_EQ(Printable(std::string("a\nb\0c\x1b[31m\xff", 11), 100), "a\\nb\\x00c\\x1b[31m\\xff");
  EXPECT_EQ(Printable(std::string(100, 'x'), 10), std::string(10, 'x') + "...");
  const std::string worst = Printable(std::string(10'000, '\x01'), kMaxErrorBytes);
  EXPECT_LE(worst.size(), kMaxErrorBytes + 7);
}

TEST(CallLineTest, AReduction) {
  const CallTag tag{"id-1", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
  ReduceSpec spec;
  spec.count = 4;
  spec.ops = {Op::kSum, Op::kMax};
  CallRecord record{.tag = &tag, .spec = &spec, .source = Source::kInline, .engine = EngineKind::kCpu};
  record.pipeline = "tiled_simd";
  record.bytes = 16;
  record.receive_us = 2;
  record.timing.kernel_us = 1.25;
  record.total_us = 12.5;
  EXPECT_EQ(
      TextLine(record),
      "reduce request_id=id-1 traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 peer= dtype=f32 "
      "count=4 ops=sum,max status=OK engine=cpu total_us=12.5 receive_us=2.0 kernel_us=1.2 bytes=16");
  const json line = json::parse(absl::StrCat("{", JsonMembers(record), "}"));
  EXPECT_EQ(line, json::parse(R"({"message": "call", "rpc": "reduce", "request_id": "id-1",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "peer": "", "dtype": "f32", "count": 4,
    "ops": ["sum", "max"], "engine": "cpu", "source": "inline", "pipeline": "tiled_simd", "bytes": 16, "status": "OK",
    "total_us": 12.5, "stages_us": {"receive": 2.0, "kernel": 1.25}})"));
}

TEST(CallLineTest, WhoCalled) {
  const auto text = [](const std::string& identity) {
    const Caller caller(identity);
    return TextLine({.rpc = Rpc::kMerge, .caller = &caller}, "uid 7");
  };
  EXPECT_THAT(text("alice"), StartsWith("merge caller=alice peer=unix:uid=7 status=OK "));
  EXPECT_THAT(text(""), StartsWith("merge peer=unix:uid=7 status=OK "));
  EXPECT_THAT(text("node 7\n"), StartsWith("merge caller=node\\x207\\n peer="));
  EXPECT_THAT(text("node\\x207\\n"), StartsWith("merge caller=node\\\\x207\\\\n peer="))
      << "another identity, another word";
  const Caller caller("node \"7\"\n");
  const CallRecord record{.rpc = Rpc::kMerge, .caller = &caller};
  const json line = json::parse(absl::StrCat("{", JsonMembers(record), "}"));
  EXPECT_EQ(line["caller"], "node \"7\"\\n");
}

TEST(CallLineTest, WhatTheServerTookBesideWhatItWaitedForTheClient) {
  CallRecord record{.rpc = Rpc::kReduceStream};
  record.total_us = 1000;
  EXPECT_EQ(record.server_us(), 1000);
  record.client_us = 900;
  EXPECT_THAT(TextLine(record), HasSubstr(" total_us=1000.0 server_us=100.0 client_us=900.0"));
  const json line = json::parse(absl::StrCat("{", JsonMembers(record), "}"));
  EXPECT_EQ(line["server_us"], 100);
  EXPECT_EQ(line["stages_us"]["client"], 900);
  record.client_us = 1001;  // the clocks are read one after the other
  EXPECT_EQ(record.server_us(), 0);
}

TEST(CallLineTest, AnErrorWithHostileText) {
  CallRecord record{.rpc = Rpc::kPutArray};
  const std::string hostile = "x\",\"status\":\"OK\"}\n{\xff\x1b";
  record.status = absl::InvalidArgumentError(hostile);
  EXPECT_EQ(TextLine(record).find('\n'), std::string::npos);
  EXPECT_THAT(TextLine(record), HasSubstr("put_array peer= status=INVALID_ARGUMENT total_us=0.0: x\""));
  const json line = json::parse(absl::StrCat("{", JsonMembers(record), "}"));
  EXPECT_EQ(line["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(line["error"], R"(x","status":"OK"}\n{\xff\x1b)");
}

}  // namespace
}  // namespace reduced::server
