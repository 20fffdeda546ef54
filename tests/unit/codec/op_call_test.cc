// Ops with parameters: as messages and as texts.
#include "proto/codec/op_call.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace reduced {
namespace {

using ::testing::ElementsAre;

v1::OpCall CallOf(const std::string& text) {
  v1::OpCall call;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &call)) << text;
  return call;
}

std::string WhyNot(const std::string& text) {
  const v1::OpCall message = CallOf(text);
  const absl::StatusOr<OpCall> call = ParseCall("calls[1]", message);
  const absl::Status status = call.ok() ? ValidateCall("calls[1]", *call, DType::kF32) : call.status();
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(OpParametersTest, WhatIsWrongWithParameters) {
  const struct {
    const char* call;
    const char* why;
  } cases[] = {
      {"op: OP_SUM", ""},
      {"op: OP_SUM top { k: 1 }", "calls[1]: got top with OP_SUM; allowed: none"},
      {"op: OP_MEDIAN", ""},
      {"op: OP_MEDIAN quantile { method: QUANTILE_METHOD_LOWER }", ""},
      {"op: OP_MEDIAN quantile { q: 0.5 }", "calls[1].quantile.q: got 1 of them with OP_MEDIAN; allowed: none"},
      {"op: OP_MEDIAN top { k: 1 }", "calls[1]: got top with OP_MEDIAN; allowed: quantile"},
      {"op: OP_QUANTILE quantile { q: 0 q: 1 q: 0.5 }", ""},
      {"op: OP_QUANTILE", "calls[1]: got no parameters with OP_QUANTILE; allowed: quantile"},
      {"op: OP_QUANTILE histogram {}", "calls[1]: got histogram with OP_QUANTILE; allowed: quantile"},
      {"op: OP_QUANTILE quantile {}", "calls[1].quantile.q: got 0 quantiles; allowed: 1 to 1024"},
      {"op: OP_QUANTILE quantile { q: 0.5 q: 0 q: 1.5 }", "calls[1].quantile.q[2]: got 1.5; allowed: 0 to 1"},
      {"op: OP_QUANTILE quantile { q: -0.25 }", "calls[1].quantile.q[0]: got -0.25; allowed: 0 to 1"},
      {"op: OP_QUANTILE quantile { q: nan }", "calls[1].quantile.q[0]: got nan; allowed: 0 to 1"},
      {"op: OP_HISTOGRAM histogram {}", "calls[1].histogram.bins: got none; allowed: uniform, logarithmic, edges"},
      {"op: OP_HISTOGRAM histogram { edges { edge: 1 } }",
       "calls[1].histogram.edges.edge: got 1 edges; allowed: 2 to 65537"},
      {"op: OP_HISTOGRAM histogram { edges { edge: 0 edge: 2 edge: 2 } }",
       "calls[1].histogram.edges.edge[2]: got 2 after 2; allowed: ascending edges"},
      {"op: OP_HISTOGRAM histogram { edges { edge: 0 edge: inf } }",
       "calls[1].histogram.edges.edge[1]: got inf; allowed: finite numbers"},
      {"op: OP_HISTOGRAM histogram { uniform { low: 0 high: 1 bins: 4 } }", ""},
      {"op: OP_HISTOGRAM histogram { uniform { low: 0 high: 1 } }",
       "calls[1].histogram.uniform.bins: got 0; allowed: 1 to 65536"},
      {"op: OP_HISTOGRAM histogram { uniform { low: 0 high: 1 bins: 65537 } }",
       "calls[1].histogram.uniform.bins: got 65537; allowed: 1 to 65536"},
      {"op: OP_HISTOGRAM histogram { uniform { low: nan high: 1 bins: 1 } }",
       "calls[1].histogram.uniform.low: got nan; allowed: finite numbers"},
      {"op: OP_HISTOGRAM histogram { uniform { low: 1 high: 1 bins: 1 } }",
       "calls[1].histogram.uniform.high: got 1 with low 1; allowed: finite numbers above it, whose distance is finite"},
      {"op: OP_HISTOGRAM histogram { uniform { low: -1e308 high: 1e308 bins: 1 } }",
       "calls[1].histogram.uniform.high: got 1e+308 with low -1e+308; allowed: finite numbers above it, whose distance "
       "is finite"},
      {"op: OP_HISTOGRAM histogram { uniform { low: 1 high: 1.0000000000000002 bins: 2 } }",
       "calls[1].histogram.uniform.bins: got 2 from 1 to 1.0000000000000002, some without a width in f64; allowed: "
       "fewer "
       "bins, or a wider range"},
      {"op: OP_HISTOGRAM histogram { logarithmic { low: 0 high: 1 bins: 2 } }",
       "calls[1].histogram.logarithmic.low: got 0; allowed: positive, finite numbers"},
      {"op: OP_WEIGHTED_QUANTILE quantile { q: 0.5 q: 2 }", "calls[1].quantile.q[1]: got 2; allowed: 0 to 1"},
      {"op: OP_WEIGHTED_QUANTILE quantile { q: 0.5 method: QUANTILE_METHOD_LOWER }",
       "calls[1].quantile.method: got it with OP_WEIGHTED_QUANTILE; allowed: none"},
      {"op: OP_WEIGHTED_QUANTILE quantile { q: 0.5 counts {} }",
       "calls[1].quantile.counts: got it with OP_WEIGHTED_QUANTILE; allowed: none"},
      {"op: OP_WEIGHTED_QUANTILE quantile { q: 0.5 q: 1 }", ""},
      {"op: OP_WEIGHTED_MEDIAN quantile {}", "calls[1]: got quantile with OP_WEIGHTED_MEDIAN; allowed: none"},
      {"op: OP_WEIGHTED_MEDIAN", ""},
      {"op: OP_TOPK", "calls[1]: got no parameters with OP_TOPK; allowed: top"},
      {"op: OP_TOPK top {}", "calls[1].top.k: got 0; allowed: 1 to 1024"},
      {"op: OP_ARGBOTTOMK top { k: 1025 }", "calls[1].top.k: got 1025; allowed: 1 to 1024"},
      {"op: OP_BOTTOMK top { k: -1 }", "calls[1].top.k: got -1; allowed: 1 to 1024"},
      {"op: OP_TOPK top { k: 1024 }", ""},
  };
  for (const auto& [call, why] : cases) EXPECT_EQ(WhyNot(call), why) << call;
  v1::OpCall unknown;
  unknown.set_op(static_cast<v1::Op>(99));
  EXPECT_THAT(std::string(ParseCall("calls[0]", unknown).status().message()),
              ::testing::StartsWith("calls[0].op: got 99; allowed: OP_SUM (1), "));
  EXPECT_EQ(ParseCall("ops[3]", v1::OP_TOPK).status().message(),
            "ops[3]: got OP_TOPK without parameters; allowed: in calls, with top");
  EXPECT_TRUE(ParseCall("ops[3]", v1::OP_MEDIAN).ok());
}

// As numpy.linspace and numpy.geomspace print them.
TEST(OpParametersTest, BinsBecomeEdges) {
  const auto edges = [](const std::string& bins) {
    const absl::StatusOr<OpCall> call = ParseCall("call", CallOf("op: OP_HISTOGRAM histogram { " + bins + " }"));
    EXPECT_TRUE(call.ok()) << call.status();
    return call.ok() ? call->given().edges : std::vector<double>();
  };
  EXPECT_THAT(edges("uniform { low: 0 high: 1 bins: 4 }"), ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_THAT(edges("uniform { low: 0.1 high: 0.7 bins: 3 }"), ElementsAre(0.1, 0.3, 0.5, 0.7));
  EXPECT_THAT(edges("uniform { low: -3 high: 4 bins: 3 }"), ElementsAre(-3, -0.6666666666666665, 1.666666666666667, 4));
  const std::vector<double> decades = edges("logarithmic { low: 0.01 high: 1000 bins: 5 }");
  ASSERT_EQ(decades.size(), 6u);
  for (int i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(decades[static_cast<std::size_t>(i)], std::pow(10, i - 2));
}

TEST(OpParametersTest, Texts) {
  const struct {
    const char* text;
    const char* call;  // null: it is none
  } cases[] = {
      {"sum", "op: OP_SUM"},
      {" median ", "op: OP_MEDIAN"},
      {"median(method=lower)", "op: OP_MEDIAN quantile { method: QUANTILE_METHOD_LOWER }"},
      {"median()", "op: OP_MEDIAN quantile {}"},
      {"quantile(0.25,0.5)", "op: OP_QUANTILE quantile { q: 0.25 q: 0.5 }"},
      {"quantile( 0.25 , .5 ; method = nearest )",
       "op: OP_QUANTILE quantile { q: 0.25 q: 0.5 method: QUANTILE_METHOD_NEAREST }"},
      {"quantile(0.25, 0.5, method=midpoint)",
       "op: OP_QUANTILE quantile { q: 0.25 q: 0.5 method: QUANTILE_METHOD_MIDPOINT }"},
      {"weighted_median", "op: OP_WEIGHTED_MEDIAN"},
      {"weighted_quantile(0.25,0.5)", "op: OP_WEIGHTED_QUANTILE quantile { q: 0.25 q: 0.5 }"},
      {"weighted_quantile(0.5;method=lower)", nullptr},
      {"weighted_quantile", nullptr},
      {"weighted_median(0.5)", nullptr},
      {"histogram(0, 1, 64)", "op: OP_HISTOGRAM histogram { uniform { low: 0 high: 1 bins: 64 } }"},
      {"histogram(1,1e3,30;scale=log)", "op: OP_HISTOGRAM histogram { logarithmic { low: 1 high: 1000 bins: 30 } }"},
      {"histogram(edges=0,1,2.5)", "op: OP_HISTOGRAM histogram { edges { edge: 0 edge: 1 edge: 2.5 } }"},
      {"topk(10)", "op: OP_TOPK top { k: 10 }"},
      {"argbottomk(3)", "op: OP_ARGBOTTOMK top { k: 3 }"},
      {"", nullptr},
      {"medain", nullptr},
      {"sum()", nullptr},
      {"sum(1)", nullptr},
      {"quantile", nullptr},
      {"quantile()", nullptr},
      {"quantile(x)", nullptr},
      {"quantile(0.5", nullptr},
      {"quantile(0.5))", nullptr},
      {"quantile(0.5;method=default)", nullptr},
      {"quantile(0.5;method=best)", nullptr},
      {"quantile(0.5;method=lower;method=lower)", nullptr},
      {"quantile(0.5;scale=log)", nullptr},
      {"median(0.5)", nullptr},
      {"histogram(0,1)", nullptr},
      {"histogram(0,1,2.5)", nullptr},
      {"histogram(0,1,2;scale=root)", nullptr},
      {"histogram(0,1,2;edges=0,1)", nullptr},
      {"topk", nullptr},
      {"topk(1,2)", nullptr},
      {"topk(k=1)", nullptr},
  };
  for (const auto& [text, want] : cases) {
    const absl::StatusOr<v1::OpCall> call = ParseOpText(text);
    if (want == nullptr) {
      EXPECT_TRUE(absl::IsInvalidArgument(call.status())) << text;
      EXPECT_THAT(std::string(call.status().message()), ::testing::StartsWith("op: got \""));
    } else {
      ASSERT_TRUE(call.ok()) << text << ": " << call.status();
      EXPECT_EQ(call->SerializeAsString(), CallOf(want).SerializeAsString()) << text;
    }
  }
  EXPECT_EQ(ParseOpText("topk(x)").status().message(), "op: got \"topk(x)\"; allowed: topk(K)");
}

TEST(OpParametersTest, Lists) {
  EXPECT_THAT(SplitOps("sum"), ElementsAre("sum"));
  EXPECT_THAT(SplitOps("sum,quantile(0.25,0.5),topk(3)"), ElementsAre("sum", "quantile(0.25,0.5)", "topk(3)"));
  EXPECT_THAT(SplitOps("a,,b)"), ElementsAre("a", "", "b)"));
  EXPECT_THAT(SplitOps(""), ElementsAre(""));
}

TEST(OpParametersTest, EveryOpWithParametersSaysHowItIsWritten) {
  for (const OpRow& row : kOps) {
    const absl::StatusOr<OpCall> call = ParseCall("op", static_cast<v1::Op>(row.op));
    if (call.ok() || row.op == Op::kMedian) continue;
    EXPECT_NE(OpUsage(row.op), "") << row.name;
  }
  EXPECT_EQ(OpUsage(Op::kSum), "");
  for (const OpRow& row : kOps)
    EXPECT_EQ(IsOfDistribution(static_cast<int>(row.op)), !HasAccumulator(row.op)) << row.name;
}

}  // namespace
}  // namespace reduced
