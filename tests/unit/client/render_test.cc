// How values, timings and tables are printed.
#include "client/reducectl/output/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/output/printable.h"

namespace reduced::client {
namespace {

std::string JsonOf(const std::string& dtype, double value) { return Dump(ToJson(Value{dtype, value})); }

TEST(ValueJson, IntegersAreExact) {
  EXPECT_EQ(Dump(ToJson(Value{"i64", std::numeric_limits<std::int64_t>::min()})), "-9223372036854775808");
  EXPECT_EQ(Dump(ToJson(Value{"u64", std::numeric_limits<std::uint64_t>::max()})), "18446744073709551615");
  EXPECT_EQ(Dump(ToJson(Value{"bool", true})), "true");
  EXPECT_EQ((Value{"bool", false}).Text(), "false");
}

TEST(ValueJson, FloatsAreShortestInTheirDType) {
  EXPECT_EQ(JsonOf("f32", 0.1F), "0.1");
  EXPECT_EQ(JsonOf("f64", 0.1F), "0.10000000149011612");
  EXPECT_EQ(JsonOf("f64", 0.1), "0.1");
  EXPECT_EQ(JsonOf("f16", 0.0999755859375), "0.1");
  EXPECT_EQ(JsonOf("f16", 65504), "65500.0");
  EXPECT_EQ(JsonOf("f16", 0x1p-24), "6e-08");
  EXPECT_EQ(JsonOf("bf16", 0.10009765625), "0.1");
  EXPECT_EQ(JsonOf("bf16", 0x1.fep127), "3.39e+38");  // 3.4e+38 is beyond bf16
  EXPECT_EQ(JsonOf("f32", std::numeric_limits<float>::max()), "3.4028235e+38");
  EXPECT_EQ(JsonOf("f32", std::numeric_limits<float>::denorm_min()), "1e-45");
  EXPECT_EQ(JsonOf("f64", std::numeric_limits<double>::denorm_min()), "5e-324");
  EXPECT_EQ(JsonOf("f64", 9007199254740993.0), "9007199254740992.0");
}

TEST(ValueJson, FloatsStayFloats) {
  EXPECT_EQ(JsonOf("f64", 1), "1.0");
  EXPECT_EQ(JsonOf("f32", -0.0), "-0.0");
  EXPECT_EQ(JsonOf("f64", 1e22), "1e+22");
}

TEST(ValueJson, NonFiniteAreStrings) {
  EXPECT_EQ(JsonOf("f32", NAN), "\"NaN\"");
  EXPECT_EQ(JsonOf("f16", INFINITY), "\"Infinity\"");
  EXPECT_EQ(JsonOf("f64", -INFINITY), "\"-Infinity\"");
  EXPECT_EQ((Value{"f64", -INFINITY}).Text(), "-Infinity");
}

// The bf16 nearest to a decimal, ties to even, as bits. It is the upper half of an f32.
std::uint32_t BFloat16Bits(double decimal) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(decimal));
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// There are few enough bf16 to try all of them.
TEST(ValueJson, EveryBFloat16IsShortestAndReadsBack) {
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const auto value = std::bit_cast<float>(bits << 16);
    const std::string text = JsonOf("bf16", value);
    ASSERT_EQ(BFloat16Bits(std::stod(text)), bits) << text;
    // No decimal of fewer digits does: the nearest to the value would.
    std::string digits = text.substr(0, text.find('e'));
    std::erase(digits, '.');
    digits.erase(0, digits.find_first_not_of('0'));
    while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
    if (digits.size() <= 1) continue;
    const std::string shorter = absl::StrFormat("%.*e", static_cast<int>(digits.size()) - 2, value);
    ASSERT_NE(BFloat16Bits(std::stod(shorter)), bits) << shorter << " is shorter than " << text;
  }
}

TEST(ValueJson, ReadsBackAsWhatPrintsTheSame) {
  for (const Value& value :
       {Value{"i8", std::int64_t{-5}}, Value{"u64", std::numeric_limits<std::uint64_t>::max()}, Value{"bool", true},
        Value{"f32", 0.1F}, Value{"f64", 1.0}, Value{"f16", -INFINITY}, Value{"f64", INFINITY}, Value{"f64", NAN}}) {
    const std::string text = Dump(ToJson(value));
    EXPECT_EQ(Dump(ToJson(ValueFromJson(Json::parse(text)))), text);
  }
  EXPECT_EQ(DoubleFromJson(3), 3);
  for (const char* bad : {"\"nan\"", "null", "[1]", "{}"}) {
    EXPECT_THROW(ValueFromJson(Json::parse(bad)), Json::exception) << bad;
  }
}

TEST(WhyNotJson, IsShortHoweverLongTheTextIs) {
  const auto why = [](const std::string& text) {
    try {
      static_cast<void>(Json::parse(text).at("mix"));
    } catch (const Json::exception& error) {
      return WhyNotJson(error);
    }
    return std::string("none");
  };
  EXPECT_THAT(why("{"), ::testing::StartsWith("parse error at line 1, column 2: "));
  EXPECT_EQ(why("{}"), "key 'mix' not found");
  const std::string quoted = why(std::string(1, '\"') + std::string(4000, 'x'));
  EXPECT_EQ(quoted.size(), 259);
  EXPECT_THAT(quoted, ::testing::EndsWith("xxx..."));
}

TEST(Dump, EscapesAndNests) {
  const Json json = {{"a\"b", {1, 2.5, nullptr}}, {"path", "x\xff\n"}};
  EXPECT_EQ(Dump(json), "{\"a\\\"b\": [1, 2.5, null], \"path\": \"x\xEF\xBF\xBD\\n\"}");
}

TEST(Timing, AbsentStagesAreAbsent) {
  const Timing timing = {
      .receive_us = 1.5, .scratch_copy_us = 2, .kernel_us = 1234.5, .total_us = 0, .kernel_gb_per_s = 12.25};
  EXPECT_EQ(Dump(ToJson(timing)), R"({"receive": 1.5, "scratch_copy": 2.0, "kernel": 1234.5, "total": 0.0})");
  EXPECT_EQ(ToText(timing), "receive 1.50 us, scratch_copy 2.00 us, kernel 1.23 ms (12.2 GB/s), total 0.00 us");
  EXPECT_EQ(ToText(Timing{}), "");
}

TEST(RenderTest, SizesAreReadWithUnitsOrWithout) {
  EXPECT_EQ(ParseSize("0"), 0);
  EXPECT_EQ(ParseSize("1000"), 1000);
  for (const std::string b : {"", "B"}) {
    EXPECT_EQ(ParseSize("3Ki" + b), 3 << 10);
    EXPECT_EQ(ParseSize("16Mi" + b), 16 << 20);
    EXPECT_EQ(ParseSize("1Gi" + b), 1 << 30);
    EXPECT_EQ(ParseSize("2Ti" + b), std::int64_t{2} << 40);
  }
  for (const char* const bad : {"", "B", "Ki", "-1", "1.5Ki", "12B", "1MB", "1K", "1kib", "1KiKi", "1 Ki x",
                                "9223372036854775808", "8388608Ti"}) {
    EXPECT_EQ(ParseSize(bad), std::nullopt) << bad;
  }
}

TEST(Format, ScalesUnits) {
  EXPECT_EQ(FormatMicros(9.994), "9.99 us");
  EXPECT_EQ(FormatMicros(999.6), "1.00 ms");
  EXPECT_EQ(FormatMicros(2.5e6), "2.50 s");
  EXPECT_EQ(FormatPercent(0.1234), "12.3%");
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(std::int64_t{256} << 20), "256 MiB");
  EXPECT_EQ(FormatSeconds(absl::Milliseconds(999)), "0s");
  EXPECT_EQ(FormatSeconds(absl::Seconds(62) + absl::Milliseconds(500)), "1m2s");
}

TEST(Printable, LeavesNothingThatATerminalObeys) {
  EXPECT_EQ(Printable("caf\xc3\xa9 \xe2\x82\xac\t\"x\"\\"), "caf\xc3\xa9 \xe2\x82\xac\t\"x\"\\");
  EXPECT_EQ(Printable("one\ntwo"), "one\\x0atwo");
  EXPECT_EQ(Printable("\x1b]0;title\x07\x1b[2J\r\x7f"), "\\x1b]0;title\\x07\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m\xc2\xa0"),
            "\\x9b31m\xc2\xa0");
  // Marks of direction, separators of lines, and what isn't UTF-8.
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b\xe2\x81\xa6\xe2\x80\xa8\xd8\x9c"),
            "a\\u202eb\\u2066\\u2028\\u061c");
  EXPECT_EQ(Printable(absl::string_view("\0\xc2", 2)), "\\x00\\xc2");
  EXPECT_EQ(Printable("\x9b\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xff"),
            "\\x9b\\xc0\\x80\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xff");
  // Encodings that are longer than they need be: of U+009B, and of U+20AC.
  EXPECT_EQ(Printable("\xe0\x82\x9b\xf0\x82\x82\xac"), "\\xe0\\x82\\x9b\\xf0\\x82\\x82\\xac");
  EXPECT_EQ(Printable("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
  const std::string hostile = "\x1b[2J\x7f\xc2\x9b\xe2\x80\xae\n";
  EXPECT_EQ(Dump(Json(hostile)), R"("\u001b[2J\u007f\u009b\u202e\n")");
  EXPECT_EQ(Json::parse(Dump(Json(hostile))), Json(hostile));
  EXPECT_EQ(FormatTable({{"a\x1b", "b"}, {"c", "d"}}), "a\\x1b  b\nc      d\n");
}

TEST(FormatTable, AlignsColumns) {
  const std::vector<std::vector<std::string>> rows = {{"a", "bcd", "e"}, {"abc", "d"}, {"", "x", "y"}};
  EXPECT_EQ(FormatTable(rows), "a    bcd  e\nabc  d\n     x    y\n");
  EXPECT_EQ(FormatTable(rows, 1), "a    bcd  e\nabc    d\n       x  y\n");
}

}  // namespace
}  // namespace reduced::client
