#include "server/observe/log.h"

#include <memory>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "spdlog/logger.h"
#include "spdlog/sinks/ostream_sink.h"

namespace reduced::server {
namespace {

using nlohmann::json;
using testing::MatchesRegex;

// The line that a logger of this name makes of a warning.
std::string LineOf(const std::string& logger, const std::string& text) {
  std::ostringstream lines;
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(lines);
  sink->set_formatter(MakeJsonFormatter());
  spdlog::logger(logger, sink).warn("{}", text);
  return lines.str();
}

TEST(JsonLogTest, OneObjectALineWhateverTheTextIs) {
  for (const std::string& text : {std::string("plain"), std::string("\"quoted\" \\ {} \n\r\t\x1b[0m"),
                                  std::string("not UTF-8: \xff\xc0"), std::string("zero\0byte", 9), std::string("€")}) {
    const std::string line = LineOf("reduced", text);
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
    const json parsed = json::parse(line);
    EXPECT_EQ(parsed.size(), 3U);
    EXPECT_EQ(parsed["level"], "warning");
    EXPECT_TRUE(parsed["message"].is_string());
    EXPECT_THAT(parsed["time"].get<std::string>(), MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]+Z"));
  }
  EXPECT_EQ(json::parse(LineOf("reduced", "a\n\"b\""))["message"], "a\n\"b\"");
  EXPECT_EQ(json::parse(LineOf("reduced", "€"))["message"], "€");
}

TEST(JsonLogTest, CallsHaveMembersOfTheirOwn) {
  const json line = json::parse(LineOf(kCallLogger, R"("message":"call","total_us":1.5)"));
  EXPECT_EQ(line["message"], "call");
  EXPECT_EQ(line["total_us"], 1.5);
  EXPECT_EQ(line.size(), 4U);
}

}  // namespace
}  // namespace reduced::server
