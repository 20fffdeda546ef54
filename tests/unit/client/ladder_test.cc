// What follows from a ladder's measurements, and how it is stored and shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/ladder/run.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

LadderRow Row(const std::string& pipeline, const std::string& engine, std::vector<double> us) {
  LadderRow row;
  row.step.pipeline = pipeline;
  row.step.engine = engine;
  row.step.device = engine == "cuda" ? "cuda:0" : engine;
  row.step.kernel_us = std::move(us);
  row.step.value = {"i64", std::int64_t{-6}};
  row.step.correct = true;
  row.step.same_bits = true;
  row.promised_bits = true;
  return row;
}

// 8 MB, two pipelines of each engine.
LadderRun TwoEngines() {
  LadderRun run;
  run.options = {.dtype = "i32", .count = 2000000, .seed = 9};
  run.start = {.bytes = 8000000, .steps = 4, .expected = {"i64", std::int64_t{-6}}};
  run.version = "1.2.3";
  run.devices = {{"cpu", "A CPU"}, {"cuda:0", "A <GPU> & \"more\""}};
  run.rows = {Row("one", "cpu", {800}), Row("two", "cpu", {392, 408, 400}), Row("three", "cuda", {8}),
              Row("four", "cuda", {5, 3, 4})};
  run.rows[2].step.read_gb_per_s = 3900;
  run.rows[2].step.scratch_copy_us = 1.25;
  run.rows[2].step.read_bytes = 16000000;
  run.rows[3].step.read_gb_per_s = 4000;
  return run;
}

// One pipeline with two block sizes.
LadderRun TwoBlockSizes() {
  LadderRun run = TwoEngines();
  run.options.block_sizes = {64, 512};
  run.rows = {Row("four", "cuda", {8}), Row("four", "cuda", {4})};
  run.rows[0].step.occupancy = {64, 40, 256, 16, 2048};
  run.rows[1].step.occupancy = {512, 40, 2048, 3, 2048};
  return run;
}

TEST(Lines, CompareWithinAnEngine) {
  const LadderRun run = TwoEngines();
  const std::vector<LadderLine> lines = LinesOf(run);
  ASSERT_EQ(lines.size(), 4);
  std::vector<std::optional<double>> step_up, roofline;
  std::vector<double> total_up, rate;
  for (const LadderLine& line : lines) {
    step_up.push_back(line.step_up);
    total_up.push_back(line.total_up);
    rate.push_back(line.rate);
    roofline.push_back(line.roofline);
  }
  EXPECT_THAT(step_up, ElementsAre(std::nullopt, 2, std::nullopt, 2));
  EXPECT_THAT(total_up, ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(rate, ElementsAre(10, 20, 2000, 2000));
  EXPECT_THAT(roofline, ElementsAre(std::nullopt, std::nullopt, 0.5, 0.5));
}

TEST(Lines, SayHowAMultiprocessorIsFilled) {
  const LadderRun run = TwoBlockSizes();
  const std::vector<LadderLine> lines = LinesOf(run);
  EXPECT_EQ(lines[0].label, "four/64");
  EXPECT_EQ(lines[0].occupancy, 0.5);
  EXPECT_EQ(lines[1].label, "four/512");
  EXPECT_EQ(lines[1].occupancy, 0.75);
}

TEST(Lines, AreGoodIfRightAndTrueToTheirPromise) {
  LadderRun run = TwoEngines();
  run.rows[0].step.same_bits = false;
  run.rows[1].step.same_bits = false;
  run.rows[1].promised_bits = false;
  run.rows[2].step.correct = false;
  const std::vector<LadderLine> lines = LinesOf(run);
  EXPECT_FALSE(lines[0].Good());
  EXPECT_TRUE(lines[1].Good());
  EXPECT_FALSE(lines[2].Good());
  EXPECT_TRUE(lines[3].Good());
}

TEST(DependsOnOrder, OnlyWhereSomethingIsRounded) {
  EXPECT_TRUE(DependsOnOrder("sum", "f32"));
  EXPECT_TRUE(DependsOnOrder("l2", "bf16"));
  EXPECT_TRUE(DependsOnOrder("var", "f32"));
  EXPECT_FALSE(DependsOnOrder("var", "i8"));
  EXPECT_FALSE(DependsOnOrder("sum", "i64"));
  EXPECT_FALSE(DependsOnOrder("mean", "bool"));
  EXPECT_FALSE(DependsOnOrder("max", "f64"));
}

TEST(LadderJson, ReadsBackTheSame) {
  LadderRun filled = TwoBlockSizes();
  filled.options.fill = 1.23;
  filled.options.seed = 0;
  for (const LadderRun& run : {TwoEngines(), filled}) {
    const std::string json = Dump(ToJson(run));
    const absl::StatusOr<std::vector<LadderRun>> read = ParseLadderRuns(absl::StrCat("\n", json, "\n", json, "\n"));
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), 2);
    for (const LadderRun& again : *read) {
      EXPECT_EQ(Dump(ToJson(again)), json);
      EXPECT_EQ(ToText(again), ToText(run));
    }
  }
}

TEST(LadderJson, SaysWhatIsWrong) {
  const auto error = [](const std::string& text) { return std::string(ParseLadderRuns(text).status().message()); };
  EXPECT_THAT(error("\n \n"), HasSubstr("no ladder"));
  EXPECT_THAT(error("\n{"), StartsWith("line 2 is not what `reducectl ladder --json` prints: "));
  EXPECT_THAT(error("[1]"), StartsWith("line 1 is not what"));
  EXPECT_THAT(error("{}"), HasSubstr("'op'"));
  Json json = ToJson(TwoEngines());
  json["steps"][3]["kernel_us"] = {5, 0};
  EXPECT_THAT(error(json.dump()), HasSubstr("kernel_us of step four: got none, or one of 0 or less"));
  json["steps"][3]["kernel_us"] = Json::array();
  EXPECT_THAT(error(json.dump()), HasSubstr("kernel_us of step four: got none"));
  json["steps"][3]["kernel_us"] = "fast";
  EXPECT_THAT(error(json.dump()), HasSubstr("must be array"));
  json["steps"] = Json::array();
  EXPECT_THAT(error(json.dump()), HasSubstr("steps: got none"));
}

TEST(LadderText, HasARowForEachStep) {
  LadderRun run = TwoEngines();
  run.rows[0].promised_bits = false;
  run.rows[1].step.correct = false;
  run.rows[2].step.same_bits = false;
  EXPECT_EQ(
      ToText(run),
      "sum of 2000000 i32 (7.63 MiB, random, seed 9) = -6; medians of 1\n"
      "  cpu     A CPU\n"
      "  cuda:0  A <GPU> & \"more\"; fastest plain read: 4000 GB/s\n"
      "  PIPELINE     TIME   SPREAD   STEP  TOTAL     READS  GB/s  ROOFLINE  SCRATCH COPY  SAME BITS     RESULT\n"
      "  one        800 us   +-0.0%      -  1.00x  7.63 MiB  10.0         -             -  this time         ok\n"
      "  two        400 us   +-1.0%  2.00x  2.00x  7.63 MiB  20.0         -             -     always  WRONG: -6\n"
      "  three     8.00 us   +-0.0%      -  1.00x  15.3 MiB  2000     50.0%       1.25 us     BROKEN         ok\n"
      "  four      4.00 us  +-12.5%  2.00x  2.00x  7.63 MiB  2000     50.0%             -     always         ok\n");
}

TEST(LadderText, SaysWhichThreadsABranchLeavesActive) {
  LadderRun run = TwoEngines();
  run.rows.erase(run.rows.begin(), run.rows.begin() + 2);
  run.rows[0].step.active_threads = 0.5;
  run.rows[1].step.active_threads = 1;
  EXPECT_EQ(
      ToText(run),
      "sum of 2000000 i32 (7.63 MiB, random, seed 9) = -6; medians of 1\n"
      "  cuda:0  A <GPU> & \"more\"; fastest plain read: 4000 GB/s\n"
      "  PIPELINE     TIME   SPREAD   STEP  TOTAL     READS  GB/s  ROOFLINE  ACTIVE  SCRATCH COPY  SAME BITS  RESULT\n"
      "  three     8.00 us   +-0.0%      -  1.00x  15.3 MiB  2000     50.0%   50.0%       1.25 us     always      ok\n"
      "  four      4.00 us  +-12.5%  2.00x  2.00x  7.63 MiB  2000     50.0%  100.0%             -     always      "
      "ok\n");
  const absl::StatusOr<std::vector<LadderRun>> read = ParseLadderRuns(Dump(ToJson(run)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToText(read->front()), ToText(run));
  EXPECT_THAT(ToCsv(run), HasSubstr(",16000000,0.5\n"));
  EXPECT_THAT(ToCsv(run), HasSubstr(",8000000,1.0\n"));
}

TEST(LadderText, OfASweepIsAboutOccupancy) {
  LadderRun run = TwoBlockSizes();
  run.options.fill = 3;
  EXPECT_EQ(ToText(run),
            "sum of 2000000 i32 (7.63 MiB, all 3.0) = -6; medians of 1; four\n"
            "  cuda:0  A <GPU> & \"more\"\n"
            "  BLOCK     TIME  SPREAD  GB/s  ROOFLINE  BLOCKS/SM  WARPS/SM  OCCUPANCY  REGISTERS     SHARED  SHARED/SM"
            "  SAME BITS  RESULT\n"
            "  64     8.00 us  +-0.0%  1000         -         16        32      50.0%         40  256 bytes   4.00 KiB"
            "     always      ok\n"
            "  512    4.00 us  +-0.0%  2000         -          3        48      75.0%         40   2.00 KiB   6.00 KiB"
            "     always      ok\n");
}

TEST(LadderCsv, HasAsManyFieldsAsTheHeader) {
  const LadderRun run = TwoEngines();
  const std::vector<std::string> header = absl::StrSplit(CsvHeader(), ',');
  const std::vector<std::string> lines = absl::StrSplit(ToCsv(run), '\n');
  ASSERT_EQ(lines.size(), 5);
  EXPECT_EQ(lines[4], "");
  EXPECT_THAT(lines[3], StartsWith("sum,i32,2000000,8000000,,9,four,cuda,cuda:0,3,3.0,3.5,4.0,4.5,5.0,,2.0,2.0,2000.0,"
                                   "4000.0,0.5,true,true,true,-6,"));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(std::vector<std::string>(absl::StrSplit(lines[i], ',')).size(), header.size()) << lines[i];
  }
}

// A product by two rungs of a GPU.
LadderRun Product() {
  LadderRun run;
  run.options = {.dtype = "f32", .seed = 9};
  run.options.matmul = MatmulOptions{.m = 100, .n = 50, .k = 200, .tile = 16};
  run.start = {.bytes = 140000, .steps = 2, .operations = 2000000};
  run.version = "1.2.3";
  run.devices = {{"cuda:0", "A GPU"}};
  run.rows = {Row("slow", "cuda", {4}), Row("fast", "cuda", {1})};
  for (LadderRow& row : run.rows) {
    row.step.value = {};
    row.step.peak_gflops = 4000;
  }
  run.rows[0].step.bank_conflicts = 32;
  run.rows[0].step.block = {32, 8};
  return run;
}

TEST(LadderText, OfAProductIsAboutOperations) {
  LadderRun run = Product();
  run.rows[1].step.correct = false;
  EXPECT_EQ(ToText(run),
            "product of 100 x 200 and 200 x 50 f32 (137 KiB, random, seed 9); medians of 1\n"
            "  cuda:0  A GPU; peak: 4000 GFLOP/s\n"
            "  PIPELINE      TIME  SPREAD   STEP  TOTAL  GFLOP/s   PEAK  CONFLICTS  SAME BITS  RESULT\n"
            "  slow/32x8  4.00 us  +-0.0%      -  1.00x      500  12.5%     32-way     always      ok\n"
            "  fast       1.00 us  +-0.0%  4.00x  4.00x     2000  50.0%          -     always   WRONG\n");
}

TEST(LadderJson, OfAProductReadsBackTheSame) {
  const std::string json = Dump(ToJson(Product()));
  EXPECT_THAT(json, HasSubstr(R"("matmul": {"m": 100, "n": 50, "k": 200, "tile": 16, "source_fill": false})"));
  const absl::StatusOr<std::vector<LadderRun>> read = ParseLadderRuns(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Dump(ToJson(read->front())), json);
  EXPECT_EQ(ToText(read->front()), ToText(Product()));
}

TEST(LadderCsv, OfAProductHasItsFields) {
  const std::vector<std::string> header = absl::StrSplit(CsvHeader(), ',');
  const std::vector<std::string> lines = absl::StrSplit(ToCsv(Product()), '\n');
  EXPECT_THAT(lines[0], StartsWith("matmul,f32,,140000,,9,slow,cuda,cuda:0,1,"));
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(lines[0], ',')).size(), header.size());
  EXPECT_THAT(lines[0], HasSubstr(",100,50,200,16,500.0,4000.0,32,32,8,,"));
}

TEST(LadderSvg, OfAnEmptyProductHasNoInfinities) {
  LadderRun run = Product();
  run.start.operations = 0;
  const std::string svg = ToSvg({run, Product()});
  EXPECT_THAT(svg, HasSubstr(">peak 4000 GFLOP/s<"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LadderCsv, QuotesWhatNeedsIt) {
  LadderRun run = TwoEngines();
  run.rows[0].step.pipeline = "a \"b\", c";
  EXPECT_THAT(ToCsv(run), HasSubstr(",\"a \"\"b\"\", c\",cpu,"));
}

TEST(LadderSvg, ShowsAndEscapesEverything) {
  LadderRun run = TwoEngines();
  run.rows[0].step.pipeline = "<one&\x01>";
  run.rows[1].step.correct = false;
  const std::string svg = ToSvg({run, TwoBlockSizes()});
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  for (const char* part :
       {">sum of 2000000 i32<", ">7.63 MiB, random, seed 9<", ">&lt;one&amp;\\x01&gt;<", ">three<", ">four/512<",
        ">cuda:0, A &lt;GPU&gt; &amp; &quot;more&quot;<", ">plain read 4000 GB/s<", ">400 us<", ">2000 GB/s<",
        ">50.0%<", ">WRONG<", "class=\"wrong\"", "class=\"roofline\"", "prefers-color-scheme: dark", "</svg>\n"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LadderSvg, BarsGrowWithTheBandwidth) {
  LadderRun run = TwoEngines();
  run.rows = {Row("p", "cpu", {100}), Row("p", "cpu", {10}), Row("p", "cpu", {1})};
  std::vector<double> widths;
  for (const auto part : absl::StrSplit(ToSvg({run}), "<rect ")) {
    const std::string rect(part.substr(0, part.find("/>")));
    const std::size_t width = rect.find("width=\"");
    if (rect.find("class=\"host\"") != std::string::npos) widths.push_back(std::stod(rect.substr(width + 7)));
  }
  ASSERT_EQ(widths.size(), 4);  // the first is the legend's
  EXPECT_GT(widths[1], 0);
  EXPECT_NEAR(widths[2] - widths[1], widths[3] - widths[2], 0.11);  // a decade each
}

}  // namespace
}  // namespace reduced::client
