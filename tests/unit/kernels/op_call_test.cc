#include "kernels/algebra/op_call.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/spec.h"

namespace reduced {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(OpCall, StandsForItsOpWhereParametersAreOfNoUse) {
  const std::vector<OpCall> calls = {Op::kSum, {Op::kTopK, {.k = 3}}};
  std::vector<Op> ops;
  for (const Op op : calls) ops.push_back(op);
  EXPECT_THAT(ops, ElementsAre(Op::kSum, Op::kTopK));
  EXPECT_TRUE(calls[0] == Op::kSum);
  EXPECT_FALSE(calls[1] == Op::kTopK);  // without parameters
}

TEST(OpCall, ComparesWhatParametersSay) {
  const OpCall three(Op::kTopK, {.k = 3});
  EXPECT_EQ(three, OpCall(Op::kTopK, {.k = 3}));
  EXPECT_NE(three, OpCall(Op::kTopK, {.k = 4}));
  EXPECT_NE(three, OpCall(Op::kBottomK, {.k = 3}));
  EXPECT_EQ(OpCall(Op::kMedian), OpCall(Op::kMedian, {.method = QuantileMethod::kLinear}));
  EXPECT_NE(ReduceSpec{.ops = {three}}, (ReduceSpec{.ops = {Op::kTopK}}));
}

TEST(OpCall, AnswersHaveTheShapeThatParametersSay) {
  EXPECT_THAT(AnswerShape(Op::kSum), IsEmpty());
  EXPECT_THAT(AnswerShape(Op::kMedian), IsEmpty());
  EXPECT_THAT(AnswerShape({Op::kQuantile, {.quantiles = {0.5}}}), ElementsAre(1));
  EXPECT_THAT(AnswerShape(Op::kWeightedMedian), IsEmpty());
  EXPECT_THAT(AnswerShape({Op::kWeightedQuantile, {.quantiles = {0.5, 1}}}), ElementsAre(2));
  EXPECT_THAT(AnswerShape({Op::kHistogram, {.edges = {0, 1, 2, 3}}}), ElementsAre(3));
  EXPECT_THAT(AnswerShape({Op::kArgTopK, {.k = 7}}), ElementsAre(7));
  EXPECT_EQ(AnswerElements(Op::kMode), 1);
  EXPECT_EQ(AnswerElements({Op::kHistogram, {.edges = {0, 1, 2, 3}}}), 3);
}

TEST(OpCall, QuantilesThatAreElementsHaveTheirDType) {
  EXPECT_EQ(ResultDType(OpCall(Op::kMedian), DType::kI8), DType::kF64);
  EXPECT_EQ(ResultDType(OpCall(Op::kMedian, {.method = QuantileMethod::kLower}), DType::kI8), DType::kI8);
  EXPECT_EQ(ResultDType(OpCall(Op::kQuantile, {.method = QuantileMethod::kMidpoint}), DType::kF16), DType::kF64);
  EXPECT_EQ(ResultDType(OpCall(Op::kQuantile, {.method = QuantileMethod::kNearest}), DType::kF16), DType::kF16);
  EXPECT_EQ(ResultDType(OpCall(Op::kWeightedMedian).With(DType::kF64), DType::kF16), DType::kF16);
  EXPECT_EQ(ResultDType(OpCall(Op::kWeightedQuantile).With(DType::kU8), DType::kI32), DType::kI32);
  EXPECT_EQ(ResultDType(OpCall(Op::kBottomK, {.k = 1}), DType::kBool), DType::kBool);
  EXPECT_EQ(ResultDType(OpCall(Op::kArgBottomK, {.k = 1}), DType::kBool), DType::kU64);
  EXPECT_EQ(ResultDType(OpCall(Op::kSum), DType::kI8), DType::kI64);
}

TEST(OpCall, NeedsAsManyElementsAsItAnswers) {
  EXPECT_EQ(LeastElements(Op::kSum, DType::kI32), 0);
  EXPECT_EQ(LeastElements(Op::kMax, DType::kI32), 1);
  EXPECT_EQ(LeastElements({Op::kTopK, {.k = 9}}, DType::kI32), 9);
  EXPECT_EQ(LeastElements(Op::kMedian, DType::kI32), 0);
  EXPECT_EQ(LeastElements(Op::kWeightedMedian, DType::kI32), 1);
  EXPECT_EQ(LeastElements(Op::kWeightedMedian, DType::kF32), 0);
  EXPECT_EQ(LeastElements({Op::kMedian, {.method = QuantileMethod::kLower}}, DType::kI32), 1);
  EXPECT_EQ(LeastElements({Op::kMedian, {.method = QuantileMethod::kLower}}, DType::kF32), 0);
}

TEST(OpCall, WrongParametersAreNamed) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const struct {
    OpCall call;
    DType dtype;
    const char* message;
  } kCases[] = {
      {Op::kQuantile, DType::kF32, "quantile.q: got 0 quantiles; allowed: 1 to 1024"},
      {{Op::kQuantile, {.quantiles = std::vector<double>(1025)}},
       DType::kF32,
       "got 1025 quantiles; allowed: 1 to 1024"},
      {{Op::kQuantile, {.quantiles = {0.5, 1.5}}}, DType::kF32, "quantile.q[1]: got 1.5; allowed: 0 to 1"},
      {{Op::kQuantile, {.quantiles = {kNan}}}, DType::kF32, "quantile.q[0]: got nan; allowed: 0 to 1"},
      {Op::kWeightedQuantile, DType::kF32, "weighted_quantile.q: got 0 quantiles; allowed: 1 to 1024"},
      {OpCall(Op::kWeightedMedian).With(DType::kI8), DType::kF32,
       "weights: got dtype i8 with an array of f32; allowed: floats"},
      {Op::kHistogram, DType::kF32, "histogram.edges.edge: got 0 edges; allowed: 2 to 65537"},
      {{Op::kHistogram, {.edges = {0, kInfinity}}},
       DType::kF32,
       "histogram.edges.edge[1]: got inf; allowed: finite numbers"},
      {{Op::kHistogram, {.edges = {0, 1, 1}}}, DType::kF32, "edges.edge[2]: got 1 after 1; allowed: ascending edges"},
      {Op::kTopK, DType::kF32, "topk.k: got 0; allowed: 1 to 1024"},
      {{Op::kArgBottomK, {.k = 1025}}, DType::kF32, "argbottomk.k: got 1025; allowed: 1 to 1024"},
      {Op::kMode, DType::kF32, "op mode: got dtype f32; allowed: dtypes of 8 and 16 bits"},
      {Op::kBitOr, DType::kF32, "op bit_or: got dtype f32; allowed: integers and bool"},
  };
  for (const auto& each : kCases) {
    const absl::Status status = Validate(each.call, each.dtype);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << each.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.message));
  }
  EXPECT_THAT(std::string(Validate(Op::kTopK, DType::kF32, "calls[2].top").message()),
              HasSubstr("calls[2].top.k: got 0"));
  EXPECT_EQ(Validate({Op::kQuantile, {.quantiles = {0, 1}}}, DType::kBool), absl::OkStatus());
  EXPECT_EQ(Validate({Op::kHistogram, {.edges = {-0.0, 1e-320}}}, DType::kI64), absl::OkStatus());
}

}  // namespace
}  // namespace reduced
