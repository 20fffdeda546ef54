// The table of pipelines, and what ValidateSpec makes of a spec.
#include "kernels/engine/pipelines.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/engines.h"

namespace reduced {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ReduceSpec SpecOf(std::vector<OpCall> ops, DType dtype, std::string pipeline) {
  return {.dtype = dtype, .count = 10, .ops = std::move(ops), .pipeline = std::move(pipeline)};
}

void ExpectStatus(const ReduceSpec& spec, absl::StatusCode code, const ::testing::Matcher<std::string>& message) {
  const absl::Status status = ValidateSpec(spec);
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_THAT(std::string(status.message()), message);
}

TEST(PipelineTableTest, NamesAreUniqueAndEveryEngineHasOneDefault) {
  std::set<std::string_view> names;
  for (const PipelineRow& row : Pipelines()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(FindPipeline(row.name), &row);
    EXPECT_FALSE(row.summary.empty());
    EXPECT_FALSE(row.origin.empty());
    EXPECT_EQ(row.cuda != nullptr, row.engine == EngineKind::kCuda) << row.name;
    EXPECT_EQ(row.host != nullptr, row.engine == EngineKind::kCpu && row.rung) << row.name;
  }
  EXPECT_EQ(DefaultPipeline(EngineKind::kCpu).name, "tiled_simd");
#ifdef REDUCED_HAVE_CUDA
  EXPECT_EQ(DefaultPipeline(EngineKind::kCuda).name, "single_pass");
  EXPECT_EQ(Pipelines().size(), 29U);
#endif
  EXPECT_EQ(FindPipeline("sum"), nullptr);
}

TEST(PipelineTableTest, RungsBesideTheWayUpSayWhatTheyShow) {
  for (const PipelineRow& row : Pipelines()) {
    EXPECT_TRUE(row.rung || row.on_the_way_up) << row.name;
    EXPECT_EQ(row.active_threads.has_value(), !row.on_the_way_up) << row.name;
  }
}

TEST(PipelineTableTest, RungsSupportWhatTheyShould) {
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kU32, DType::kF32, DType::kF64}) {
    for (const Op op : {Op::kSum, Op::kProd, Op::kMin, Op::kMax, Op::kSumSquares, Op::kAny, Op::kAll}) {
      EXPECT_TRUE(RungSupports(op, dtype)) << RowOf(op).name << " of " << RowOf(dtype).name;
    }
    EXPECT_EQ(RungSupports(Op::kBitXor, dtype), !RowOf(dtype).is_float);
    EXPECT_FALSE(RungSupports(Op::kVar, dtype));
    EXPECT_FALSE(RungSupports(Op::kArgmin, dtype));
  }
  EXPECT_FALSE(RungSupports(Op::kSum, DType::kI8));
  EXPECT_FALSE(RungSupports(Op::kSum, DType::kF16));
}

struct BadSpec {
  const char* what;
  void (*spoil)(ReduceSpec&);
  std::vector<const char*> words;  // of the message
};

TEST(ValidateSpecTest, SaysWhatGotAndAllowed) {
  EXPECT_TRUE(ValidateSpec(SpecOf({Op::kSum}, DType::kF32, "")).ok());
  const std::vector<BadSpec> bad = {
      {"no op", [](ReduceSpec& s) { s.ops.clear(); }, {"ops: got none", "at least 1"}},
      {"negative count", [](ReduceSpec& s) { s.count = -3; }, {"count: got -3", "at least 0"}},
      {"negative ddof", [](ReduceSpec& s) { s.ddof = -2; }, {"ddof: got -2", "at least 0"}},
      {"op the dtype lacks",
       [](ReduceSpec& s) {
         s.dtype = DType::kBF16;
         s.ops = {Op::kSum, Op::kBitOr};
       },
       {"bit_or", "bf16", "integers and bool"}},
      {"min of nothing",
       [](ReduceSpec& s) {
         s.count = 0;
         s.ops = {Op::kSum, Op::kMin};
       },
       {"min", "at least 1 element", "empty"}},
  };
  for (const BadSpec& each : bad) {
    ReduceSpec spec = SpecOf({Op::kSum}, DType::kF32, "");
    each.spoil(spec);
    const absl::Status status = ValidateSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << each.what;
    for (const char* const word : each.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word)) << each.what;
  }
}

TEST(ValidateSpecTest, AcceptsWhatTheTablesSupport) {
  for (const DTypeRow& dtype : kDTypes) {
    for (const OpRow& op : kOps) {
      ReduceSpec spec = SpecOf({Op::kSum}, DType::kF32, "");
      spec.dtype = dtype.dtype;
      spec.ops = {op.op};
      if (!HasAccumulator(op.op)) {
        EXPECT_FALSE(ValidateSpec(spec).ok()) << op.name;
        continue;
      }
      EXPECT_EQ(ValidateSpec(spec).ok(), Supports(op.op, dtype.dtype)) << op.name << " of " << dtype.name;
      spec.count = 0;
      EXPECT_EQ(ValidateSpec(spec).ok(), Supports(op.op, dtype.dtype) && !op.error_if_empty) << op.name;
    }
  }
  ReduceSpec spec = SpecOf({Op::kSum}, DType::kF32, "");
  spec.pipeline = "tiled_simd";
  spec.engine = EngineKind::kCpu;
  EXPECT_TRUE(ValidateSpec(spec).ok());
  spec.pipeline = std::string(1000, 'x');
  EXPECT_LT(ValidateSpec(spec).message().size(), 600U) << "a long name is cut";
}

TEST(ValidateSpecTest, TakesWhatAPipelineSupports) {
  EXPECT_TRUE(ValidateSpec(SpecOf({Op::kSum}, DType::kF32, "sequential")).ok());
  EXPECT_TRUE(ValidateSpec(SpecOf({Op::kSum, Op::kVar}, DType::kF16, "tiled_simd")).ok());
  EXPECT_TRUE(ValidateSpec(SpecOf({Op::kSum, Op::kVar}, DType::kF16, "")).ok());
}

TEST(ValidateSpecTest, UnsupportedNamesThoseThatDo) {
  const auto names_production = AllOf(HasSubstr("tiled_simd"), Not(HasSubstr("recursive_pairs")));
  ExpectStatus(SpecOf({Op::kVar}, DType::kF32, "sequential"), absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("pipeline: got sequential for var of f32; allowed: "), names_production));
  ExpectStatus(SpecOf({Op::kSum}, DType::kI8, "sequential"), absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("sum of i8"), names_production));
  ExpectStatus(SpecOf({Op::kSum, Op::kMin}, DType::kF32, "sequential"), absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("sum, min of f32, in one request;"), names_production));
  ReduceSpec omit = SpecOf({Op::kSum}, DType::kF32, "sequential");
  omit.nan_policy = NanPolicy::kOmit;
  ExpectStatus(omit, absl::StatusCode::kUnimplemented, AllOf(HasSubstr("without the NaNs"), names_production));
  omit.dtype = DType::kI32;  // there are none to leave out
  EXPECT_TRUE(ValidateSpec(omit).ok());
}

TEST(ValidateSpecTest, ExactSumsNeedAPipelineThatHasThem) {
  ReduceSpec spec = SpecOf({Op::kSum}, DType::kF32, "sequential");
  spec.precision = Precision::kExact;
  EXPECT_TRUE(WantsExactSums(spec));
  ExpectStatus(spec, absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("sum of f32, exactly"), HasSubstr("tiled_simd")));
  spec.pipeline = "tiled_simd";
  EXPECT_TRUE(ValidateSpec(spec).ok());
  spec.pipeline = "sequential";
  spec.ops = {Op::kMin};  // no sum
  EXPECT_FALSE(WantsExactSums(spec));
  EXPECT_TRUE(ValidateSpec(spec).ok());
  spec = SpecOf({Op::kSum}, DType::kI32, "sequential");  // exact as it is
  spec.precision = Precision::kExact;
  EXPECT_TRUE(ValidateSpec(spec).ok());
}

TEST(ValidateSpecTest, BlockSizes) {
  ReduceSpec spec = SpecOf({Op::kSum}, DType::kF32, "sequential");
  spec.block_size = 256;
  ExpectStatus(spec, absl::StatusCode::kInvalidArgument,
               HasSubstr("block_size: got 256 with pipeline sequential; allowed: 0"));
  spec.pipeline.clear();
  ExpectStatus(spec, absl::StatusCode::kInvalidArgument, HasSubstr("without a pipeline"));
  for (const int size : {-64, 1, 63, 96, 2048}) {
    spec.block_size = size;
    ExpectStatus(spec, absl::StatusCode::kInvalidArgument, HasSubstr("64, 128, 256, 512, 1024"));
  }
}

TEST(ValidateSpecTest, UnknownAndForeignPipelines) {
  ExpectStatus(
      SpecOf({Op::kSum}, DType::kF32, "fast\n"), absl::StatusCode::kInvalidArgument,
      AllOf(HasSubstr("pipeline: got 'fast\\n'; allowed: "), HasSubstr("sequential, recursive_pairs, tiled_simd")));
  ExpectStatus(SpecOf({Op::kSum}, DType::kF32, "\xd1\x95"), absl::StatusCode::kInvalidArgument,
               HasSubstr("pipeline: got '\\xd1\\x95'"));
  ReduceSpec spec = SpecOf({Op::kSum}, DType::kF32, "sequential");
  spec.engine = EngineKind::kCuda;
  ExpectStatus(spec, absl::StatusCode::kInvalidArgument,
               HasSubstr("engine: got cuda with pipeline sequential; allowed: auto, cpu"));
}

}  // namespace
}  // namespace reduced
