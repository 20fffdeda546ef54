// The parts of a load test that need no server: schedules, options, references, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client/reducectl/loadtest/options.h"
#include "client/reducectl/loadtest/reference.h"
#include "client/reducectl/loadtest/report.h"
#include "client/reducectl/loadtest/schedule.h"

namespace reduced::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Loads, Grammar) {
  EXPECT_THAT(*ParseLoads("8"), ElementsAre(8));
  EXPECT_THAT(*ParseLoads("1,2,4..64"), ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(*ParseLoads("3..20"), ElementsAre(3, 6, 12, 20));
  EXPECT_THAT(*ParseLoads("1000..2000:500"), ElementsAre(1000, 1500, 2000));
  EXPECT_THAT(*ParseLoads("1..2:0.75,9"), ElementsAre(1, 1.75, 2, 9));
  EXPECT_THAT(*ParseLoads("5..5"), ElementsAre(5));
  for (const char* const bad : {"", ",", "1,", "0", "-1", "x", "4..2", "1..", "..4", "1..4:0", "1..4:-1", "1..4:x",
                                "inf", "nan", "1..1000000:1", "1...4"}) {
    const auto loads = ParseLoads(bad);
    ASSERT_FALSE(loads.ok()) << bad;
    EXPECT_THAT(loads.status().message(), HasSubstr(std::string("got \"") + bad + "\"; allowed: loads like"));
  }
}

TEST(Arrivals, ConstantOnesAreEvenAndDontDrift) {
  Arrivals arrivals(ArrivalKind::kConstant, 3, 1);
  for (std::int64_t i = 0; i < 3'000'000; ++i) {
    const std::int64_t ns = arrivals.Next();
    ASSERT_TRUE(i % 3 != 0 || ns == i / 3 * 1'000'000'000);
  }
}

TEST(Arrivals, PoissonOnesHaveTheirMeanAndDeviation) {
  constexpr int kCount = 200'000;
  Arrivals arrivals(ArrivalKind::kPoisson, 5000, 42), same(ArrivalKind::kPoisson, 5000, 42);
  Arrivals other(ArrivalKind::kPoisson, 5000, 43);
  double last = 0, sum = 0, squares = 0;
  bool differs = false;
  for (int i = 0; i < kCount; ++i) {
    const std::int64_t ns = arrivals.Next();
    EXPECT_EQ(ns, same.Next());
    differs = differs || ns != other.Next();
    const double gap = static_cast<double>(ns) - last;
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    last = static_cast<double>(ns);
  }
  EXPECT_TRUE(differs);
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 200e3, 200e3 * 5 / std::sqrt(kCount));  // 5 standard errors
  // An exponential's deviation is its mean.
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean), 200e3, 200e3 * 0.03);
}

TEST(Options, Sizes) {
  EXPECT_THAT(ParseSizes("4096,4Ki,1MiB,2Gi")->list, ElementsAre(4096, 4096, 1 << 20, std::int64_t{2} << 30));
  const Sizes range = *ParseSizes("1Ki..1Mi");
  EXPECT_EQ(range.low, 1024);
  EXPECT_EQ(range.high, 1 << 20);
  for (const char* const bad : {"", "0", "4K", "1Mi..1Ki", "-4", "1,", "..", "4Ki..8Ki,1", "9999999999Gi"}) {
    EXPECT_THAT(std::string(ParseSizes(bad).status().message()), HasSubstr("; allowed: like 4096")) << bad;
  }
}

TEST(Options, Objectives) {
  const std::vector<Objective> objectives = *ParseObjectives("p99=2ms,p99.9=1s,max=1500us");
  ASSERT_EQ(objectives.size(), 3U);
  EXPECT_EQ(std::pair(objectives[0].percent, objectives[0].ms), std::pair(99.0, 2.0));
  EXPECT_EQ(std::pair(objectives[1].percent, objectives[1].ms), std::pair(99.9, 1000.0));
  EXPECT_EQ(std::pair(objectives[2].percent, objectives[2].ms), std::pair(100.0, 1.5));
  for (const char* const bad :
       {"", "p99", "p0=1s", "p100=1s", "q99=1s", "p99=", "p99=0", "p99=-1s", "p99=inf", "p99=2"}) {
    EXPECT_THAT(std::string(ParseObjectives(bad).status().message()), HasSubstr("; allowed: objectives")) << bad;
  }
  EXPECT_EQ(*ParsePercentage("0.5%"), 0.005);
  for (const char* const bad : {"", "%", "1", "101%", "-1%", "x%"}) EXPECT_FALSE(ParsePercentage(bad).ok()) << bad;
}

TEST(Options, Profile) {
  Kind defaults;
  defaults.via = "session";
  const auto kinds = ParseProfile(
      R"({"mix": [{"weight": 9, "op": ["sum", "mean"], "size": "4Ki"},
                  {"op": "min,max", "dtype": "i32", "size": 8192, "via": "region", "engine": "cpu", "pipeline": "p",
                   "precision": "f64"}]})",
      defaults);
  ASSERT_TRUE(kinds.ok()) << kinds.status();
  ASSERT_EQ(kinds->size(), 2U);
  EXPECT_EQ((*kinds)[0].weight, 9);
  EXPECT_THAT((*kinds)[0].ops, ElementsAre("sum", "mean"));
  EXPECT_EQ((*kinds)[0].via, "session");
  EXPECT_THAT((*kinds)[1].ops, ElementsAre("min", "max"));
  EXPECT_THAT((*kinds)[1].sizes.list, ElementsAre(8192));
  EXPECT_EQ((*kinds)[1].via + (*kinds)[1].engine + (*kinds)[1].pipeline + (*kinds)[1].dtype, "regioncpupi32");
  EXPECT_EQ((*kinds)[0].precision + (*kinds)[1].precision, "f64");
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "not a profile"},
           {"[]", "not a profile"},
           {R"({"mix": []})", "mix: got no kind of request"},
           {R"({"mix": [3]})", "not a profile"},
           {R"({"mix": [{}, {"sice": "1"}]})", "kind 2: key: got \"sice\"; allowed: weight, op, "},
           {R"({"mix": [{"op": "medium"}]})", "op: got \"medium\""},
           {R"({"mix": [{"op": []}]})", "op: got none"},
           {R"({"mix": [{"weight": 0}]})", "weight: got 0; allowed: numbers above 0"},
           {R"({"mix": [{"via": "post"}]})", "via: got \"post\"; allowed: auto, inline"},
           {R"({"mix": [{"size": "4K"}]})", "size: got \"4K\""},
           {R"({"mix": [{"precision": "f32"}]})", "precision: got \"f32\"; allowed: f64, exact"},
       }) {
    EXPECT_THAT(std::string(ParseProfile(text, defaults).status().message()), HasSubstr(message)) << text;
  }
}

TEST(Reference, KnownAnswers) {
  const std::vector<std::int32_t> elements = {3, -5, 7, 7};
  const std::vector<std::string> ops = {"sum",         "prod",    "min",    "max",    "mean", "var",
                                        "sum_squares", "l1",      "l2",     "any",    "all",  "count_nonzero",
                                        "nan_count",   "bit_and", "argmin", "argmax", "std",  "bit_or",
                                        "bit_xor",     "count",   "range"};
  const auto answers = Expected(ops, "i32", elements.data(), 4);
  ASSERT_TRUE(answers.ok()) << answers.status();
  const auto at = [&](const std::string& op) {
    return (*answers)[static_cast<std::size_t>(std::find(ops.begin(), ops.end(), op) - ops.begin())].value;
  };
  EXPECT_EQ(std::get<std::int64_t>(at("sum")), 12);
  EXPECT_EQ(std::get<std::int64_t>(at("prod")), -735);
  EXPECT_EQ(std::get<std::int64_t>(at("min")), -5);
  EXPECT_EQ(std::get<std::int64_t>(at("max")), 7);
  EXPECT_EQ(std::get<std::uint64_t>(at("range")), 12U);
  EXPECT_EQ(std::get<double>(at("mean")), 3);
  EXPECT_EQ(std::get<double>(at("var")), 24);
  EXPECT_EQ(std::get<double>(at("std")), std::sqrt(24.0));
  EXPECT_EQ(std::get<std::uint64_t>(at("sum_squares")), 132U);
  EXPECT_EQ(std::get<std::uint64_t>(at("l1")), 22U);
  EXPECT_EQ(std::get<double>(at("l2")), std::sqrt(132.0));
  EXPECT_TRUE(std::get<bool>(at("any")) && std::get<bool>(at("all")));
  EXPECT_EQ(std::get<std::uint64_t>(at("count")), 4U);
  EXPECT_EQ(std::get<std::uint64_t>(at("count_nonzero")), 4U);
  EXPECT_EQ(std::get<std::uint64_t>(at("argmin")), 1U);
  EXPECT_EQ(std::get<std::uint64_t>(at("argmax")), 2U);
  EXPECT_EQ(std::get<std::int64_t>(at("bit_and")), 3 & -5 & 7);
  EXPECT_EQ(std::get<std::int64_t>(at("bit_or")), -1 & (3 | -5 | 7));
  EXPECT_EQ(std::get<std::int64_t>(at("bit_xor")), 3 ^ -5);
}

TEST(Reference, AnswersOfTheDistribution) {
  const std::vector<std::int16_t> elements = {3, -5, 7, 7, 3, 7, 0, 12};  // -5 0 3 3 7 7 7 12
  using Scalars = std::vector<Scalar>;
  const auto i = [](std::int64_t value) { return Scalar(value); };
  const auto u = [](std::uint64_t value) { return Scalar(value); };
  const std::vector<std::pair<std::string, Scalars>> arrays = {{"quantile(0,0.5,0.6,1)", {-5.0, 5.0, 7.0, 12.0}},
                                                               {"quantile(0.5,0.1;method=lower)", {i(3), i(-5)}},
                                                               {"quantile(0.5;method=higher)", {i(7)}},
                                                               {"quantile(0.5,0.2;method=nearest)", {i(7), i(0)}},
                                                               {"quantile(0.1;method=midpoint)", {-2.5}},
                                                               {"histogram(-5,7,3)", {u(1), u(1), u(5)}},
                                                               {"histogram(edges=0,3,7)", {u(1), u(5)}},
                                                               {"topk( 3)", {i(12), i(7), i(7)}},
                                                               {"bottomk(2)", {i(-5), i(0)}},
                                                               {"argtopk(3)", {u(7), u(2), u(3)}},
                                                               {"argbottomk(4)", {u(1), u(6), u(0), u(4)}}};
  for (const auto& [op, right] : arrays) {
    const auto answers = Expected({op}, "i16", elements.data(), 8);
    ASSERT_TRUE(answers.ok()) << answers.status();
    ASSERT_TRUE((*answers)[0].array.has_value()) << op;
    EXPECT_EQ(*(*answers)[0].array, right) << op;
  }
  const std::vector<std::pair<std::string, Scalar>> values = {
      {"median", 5.0}, {"median(method=higher)", i(7)}, {"distinct", u(5)}, {"distinct_exact", u(5)}, {"mode", i(7)}};
  for (const auto& [op, right] : values) {
    const auto answers = Expected({op}, "i16", elements.data(), 8);
    ASSERT_TRUE(answers.ok()) << answers.status();
    EXPECT_EQ((*answers)[0].value, right) << op;
    EXPECT_EQ((*answers)[0].tolerance, 0) << op;
  }
  for (const char* const wrong : {"topk(9)", "quantile(2)", "quantile", "histogram(1,0,3)", "medium(1)"}) {
    EXPECT_FALSE(Expected({wrong}, "i16", elements.data(), 8).ok()) << wrong;
  }
  EXPECT_FALSE(Expected({"mode"}, "f32", elements.data(), 4).ok());
}

TEST(Reference, WrongArraysAreFound) {
  const std::vector<std::int16_t> elements = {3, 1, 2};
  const std::vector<std::string> ops = {"sum", "topk(2)", "median", "argtopk(1)"};
  const auto expected = Expected(ops, "i16", elements.data(), 3);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto array = [](std::string op, std::string dtype, std::vector<std::int64_t> shape, std::string data) {
    return ResultArray{.op = std::move(op), .array = {std::move(dtype), std::move(shape), std::move(data)}};
  };
  const std::string two("\3\0\2\0", 4), first(8, '\0');
  const Reply right{.results = {{"sum", Value{"i64", std::int64_t{6}}}, {"median", Value{"f64", 2.0}}},
                    .arrays = {array("topk(2)", "i16", {2}, two), array("argtopk(1)", "u64", {1}, first)}};
  EXPECT_EQ(Mismatch(ops, *expected, right), "");
  Reply wrong = right;
  wrong.arrays[0].array.data[2] = 1;
  EXPECT_EQ(Mismatch(ops, *expected, wrong), "topk(2)[1] is 1, expected 2");
  wrong = right;
  wrong.arrays[0].array = {"i16", {1}, two.substr(2)};
  EXPECT_EQ(Mismatch(ops, *expected, wrong), "topk(2) has the shape (1), expected (2)");
  wrong = right;
  std::swap(wrong.arrays[0], wrong.arrays[1]);
  EXPECT_EQ(Mismatch(ops, *expected, wrong), "got no result of topk(2)");
  wrong = right;
  wrong.results[1].value = Value{"f64", 2.5};
  EXPECT_EQ(Mismatch(ops, *expected, wrong), "median is 2.5, expected 2.0");
  wrong.results.pop_back();
  EXPECT_EQ(Mismatch(ops, *expected, wrong), "got 3 results, expected 4");
  wrong = right;
  wrong.arrays.pop_back();
  wrong.results.push_back({"argtopk(1)", absl::InvalidArgumentError("none")});
  EXPECT_EQ(Mismatch(ops, *expected, wrong), "argtopk(1) is none");
}

TEST(Reference, EveryDtypeIsFilledWithoutZerosAndAlikeForASeed) {
  for (const std::string& dtype : DTypeNames()) {
    constexpr int kCount = 1000;
    const auto bytes = *DTypeBytes(dtype) * kCount;
    std::string a(bytes, '\0'), b(bytes, '\0'), c(bytes, '\0');
    ASSERT_TRUE(FillRandom(dtype, 1, a.data(), bytes).ok());
    ASSERT_TRUE(FillRandom(dtype, 1, b.data(), bytes).ok());
    ASSERT_TRUE(FillRandom(dtype, 2, c.data(), bytes).ok());
    EXPECT_EQ(a, b) << dtype;
    EXPECT_NE(a, c) << dtype;
    const auto answers = Expected({"count_nonzero", "max", "sum_squares", "any"}, dtype, a.data(), kCount);
    ASSERT_TRUE(answers.ok()) << dtype;
    EXPECT_TRUE(dtype == "bool" || std::get<std::uint64_t>((*answers)[0].value) == kCount) << dtype;
    EXPECT_TRUE(std::get<bool>((*answers)[3].value)) << dtype;
    if ((dtype[0] != 'f' && dtype != "bf16") || dtype == "f8_e8m0fnu") continue;
    EXPECT_LT(std::get<double>((*answers)[1].value), 2) << dtype;
    EXPECT_GE(std::get<double>((*answers)[1].value), 1.5) << dtype;
    // 7/3 * 5/8; of few bits the mantissas, which are rounded towards zero, are less
    const bool is_f8 = dtype[1] == '8';
    EXPECT_NEAR(std::get<double>((*answers)[2].value), 1000 * (is_f8 ? 1.3 : 1.46), is_f8 ? 130 : 60) << dtype;
  }
}

TEST(Reference, OneElementLeftOutIsFound) {
  std::vector<float> elements(1 << 20);
  ASSERT_TRUE(FillRandom("f32", 3, elements.data(), 4 << 20).ok());
  const RightAnswer sum = (*Expected({"sum"}, "f32", elements.data(), 1 << 20))[0];
  const double right = std::get<double>(sum.value);
  EXPECT_TRUE(Matches(sum, {"f64", right + 0.5 * sum.tolerance}));
  EXPECT_FALSE(Matches(sum, {"f64", right - static_cast<double>(elements[77])}));
  EXPECT_FALSE(Matches(sum, {"f64", NAN}));
  EXPECT_FALSE(Matches(sum, {"i64", std::int64_t{0}}));
  EXPECT_LT(sum.tolerance, 1e-4);
}

StepResult Step(int concurrency, std::int64_t window_requests, double us) {
  StepResult step;
  step.concurrency = concurrency;
  step.seconds = 10;
  for (int i = 0; i < 10; ++i) {
    const std::int64_t requests = window_requests * (99 + i % 3) / 100;
    step.windows.push_back({1, requests, us, 2 * us});
    step.tally.answered += requests;
  }
  for (int i = 0; i < 1000; ++i) step.tally.corrected.Record(static_cast<std::int64_t>(us * 1e3));
  return step;
}

LoadtestRun RunOf(std::vector<StepResult> steps) {
  LoadtestRun run;
  run.kinds.emplace_back();
  run.steps = std::move(steps);
  return run;
}

std::string JsonOf(StepResult step, void (*change)(LoadtestRun*) = nullptr) {
  std::vector<StepResult> steps;
  steps.push_back(std::move(step));
  LoadtestRun run = RunOf(std::move(steps));
  if (change != nullptr) change(&run);
  return Dump(ToJson(run));
}

std::string CompareError(const std::string& first, const std::string& second) {
  return std::string(Compare({first}, {second}).status().message());
}

TEST(Report, CompareTellsNoiseFromChange) {
  const std::string a = JsonOf(Step(4, 1000, 100)), b = JsonOf(Step(4, 1010, 101)), c = JsonOf(Step(4, 800, 130));
  EXPECT_FALSE(Compare({a}, {b})->worse);
  EXPECT_THAT(Compare({a}, {b})->text, AllOf(Not(HasSubstr("better")), HasSubstr("no difference")));
  EXPECT_TRUE(Compare({a}, {c})->worse);
  EXPECT_FALSE(Compare({c}, {a})->worse);
  EXPECT_THAT(Compare({c}, {a})->text, HasSubstr("better"));
  EXPECT_THAT(CompareError(a, "{}"), HasSubstr("the second is not what"));
  EXPECT_THAT(CompareError("", a), HasSubstr("the first is not what"));
  EXPECT_THAT(CompareError(a, JsonOf(Step(8, 1000, 100))), HasSubstr("no load was measured in both runs"));
}

// Two minutes of a host that others use: each run is 8% steady, and the second one is 12% slower.
TEST(Report, CompareKnowsThatANoisyHostDiffersFromItself) {
  const auto noisy = [](double scale) {
    StepResult step = Step(4, 1000, 100 / scale);
    for (std::size_t i = 0; i < step.windows.size(); ++i) {
      const double wave = scale * (1 + 0.08 * std::sin(static_cast<double>(i)));
      step.windows[i].answered = static_cast<std::int64_t>(1000 * wave);
      step.windows[i].p50_us = 100 / wave;
      step.windows[i].p99_us = 200 / wave;
    }
    step.tally.answered = static_cast<std::int64_t>(10000 * scale);
    return JsonOf(std::move(step));
  };
  EXPECT_FALSE(Compare({noisy(1)}, {noisy(0.88)})->worse);
  // Runs that alternate tell more than the windows of one: 12% is a difference if runs are within 2% of each other.
  EXPECT_TRUE(Compare({noisy(1), noisy(1.01), noisy(0.99)}, {noisy(0.88), noisy(0.89), noisy(0.87)})->worse);
  EXPECT_FALSE(Compare({noisy(1), noisy(0.85), noisy(1.1)}, {noisy(0.9), noisy(1.1), noisy(0.8)})->worse);
}

TEST(Report, CompareRefusesOtherWorkloadsAndSaysWhatElseDiffers) {
  const std::string a = JsonOf(Step(4, 1000, 100));
  for (const auto& [change, field] : std::vector<std::pair<void (*)(LoadtestRun*), std::string>>{
           {[](LoadtestRun* run) { run->kinds[0].ops = {"max"}; }, "op"},
           {[](LoadtestRun* run) { run->kinds[0].dtype = "i8"; }, "dtype"},
           {[](LoadtestRun* run) { run->kinds[0].sizes.list = {8192}; }, "size"},
           {[](LoadtestRun* run) { run->kinds.emplace_back(); }, "op"},
           {[](LoadtestRun* run) { run->arguments.include_fill = true; }, "include_fill"}}) {
    EXPECT_THAT(CompareError(a, JsonOf(Step(4, 1000, 100), change)), HasSubstr("different workloads: " + field + ": "));
  }
  const auto other = [](LoadtestRun* run) {
    run->kinds[0].engine = "cpu";
    run->steps.push_back(Step(8, 1000, 100));
  };
  const std::string text = Compare({a}, {JsonOf(Step(4, 1000, 100), other)})->text;
  EXPECT_THAT(text, HasSubstr("engine: \"auto\" -> \"cpu\"\n"));
  EXPECT_THAT(text, HasSubstr("only in the second: concurrency 8\n"));
}

TEST(Report, ARunWithoutRequestsIsNotWithoutErrors) {
  StepResult empty;
  LoadtestRun run = RunOf({});
  EXPECT_THAT(StepText(run, empty), AllOf(HasSubstr("NO REQUEST WAS MEASURED"), Not(HasSubstr("no errors"))));
}

TEST(Report, TheGeneratorIsSaturatedIfItIsBusyOrMostlyLate) {
  StepResult step = Step(1, 20, 300);
  step.rate = 20;
  step.cpu_share = 0.01;
  for (int i = 0; i < 200; ++i) step.tally.lateness.Record(i % 20 == 0 ? 3'000'000 : 60'000);  // an idle machine
  EXPECT_EQ(step.Saturation(), "");
  step.thread_share = 0.99;
  EXPECT_THAT(step.Saturation(), HasSubstr("one of its threads ran for 99.0% of the time"));
  step.thread_share = 0.5;
  step.cpu_share = 0.95;
  EXPECT_THAT(step.Saturation(), HasSubstr("95.0% of its processors"));
  step.cpu_share = 0.5;
  for (int i = 0; i < 200; ++i) step.tally.lateness.Record(2'000'000);
  EXPECT_THAT(step.Saturation(), HasSubstr("woke up late"));
}

TEST(Report, SpreadAndObjectives) {
  StepResult steady = Step(1, 1000, 100);
  EXPECT_LT(steady.Spread(), 0.02);
  steady.windows[3].answered = 10;  // one outlier
  EXPECT_LT(steady.Spread(), 0.02);
  for (std::size_t i = 0; i < 5; ++i) steady.windows[i].answered = 500;
  EXPECT_GT(steady.Spread(), 0.2);
  StepResult rare = Step(1, 10, 100);
  for (std::size_t i = 0; i < 5; ++i) rare.windows[i].answered = 5;
  EXPECT_EQ(rare.Spread(), 0);  // too few to tell
  steady.windows.resize(4);
  EXPECT_EQ(steady.Spread(), 0);  // too few to tell
  EXPECT_THAT(Missed(steady, *ParseObjectives("p99=1ms,max=50us")), ElementsAre(HasSubstr("max=50us: 100")));
  StepResult edge = Step(1, 10, 100);  // two requests can be due at the end, however few there were
  edge.rate = 10;
  edge.tally.answered = 10;
  edge.tally.unsent = 2;
  EXPECT_TRUE(edge.RateHeld());
  edge.tally.unsent = 3;
  EXPECT_FALSE(edge.RateHeld());
  steady.rate = 1000;
  steady.tally.unsent = steady.tally.answered;
  EXPECT_FALSE(steady.RateHeld());
  EXPECT_THAT(Missed(steady, *ParseObjectives("p99=1ms")), ElementsAre(HasSubstr("the rate was not held")));
}

TEST(Report, PageNeedsNothingElseAndEscapes) {
  std::vector<StepResult> steps;
  for (int i = 1; i <= 20; ++i) steps.push_back(Step(i, 1000, 100.0 * i));
  steps.emplace_back();  // of which nothing came
  LoadtestRun run = RunOf(std::move(steps));
  run.address = "<script>";
  const std::string html = ToHtml(run);
  EXPECT_THAT(html, HasSubstr("\"concurrency 20\""));
  EXPECT_THAT(html, HasSubstr("\\u003cscript>"));
  EXPECT_THAT(html, Not(HasSubstr("@DATA@")));
  for (const char* const foreign : {"<script>,", "http:", "https:", "src=", "@import"}) {
    EXPECT_THAT(html, Not(HasSubstr(foreign)));
  }
}

}  // namespace
}  // namespace reduced::client
