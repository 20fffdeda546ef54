// Ladders that are refused.
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/pipelines.h"
#include "kernels/matmul/matmul.h"
#include "tests/service/error_form.h"
#include "tests/service/ladder_calls.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

struct BadLadder {
  std::string name;
  std::function<void(v1::LadderRequest*)> spoil;  // a good request: the sum of 1000 i32
  grpc::StatusCode code;
  std::vector<std::string> says;
};

std::vector<BadLadder> BadLadders() {
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;
  using Request = v1::LadderRequest;
  std::vector<BadLadder> bad = {
      {"NoDtype", [](Request* r) { r->clear_dtype(); }, kInvalid, {"dtype: got 0", "DTYPE_F32 (12)"}},
      {"UnknownDtype",
       [](Request* r) { r->set_dtype(static_cast<v1::DType>(99)); },
       kInvalid,
       {"dtype: got 99", "DTYPE_BOOL (1)"}},
      {"NoOp", [](Request* r) { r->clear_op(); }, kInvalid, {"op: got 0", "OP_SUM (1)"}},
      {"OpThatTheDtypeLacks",
       [](Request* r) {
         r->set_dtype(v1::DTYPE_F32);
         r->set_op(v1::OP_BIT_OR);
       },
       kInvalid,
       {"bit_or", "f32", "integers"}},
      {"NoCount", [](Request* r) { r->clear_count(); }, kInvalid, {"count: got 0; allowed: 1 to 250000"}},
      {"NegativeCount", [](Request* r) { r->set_count(-1); }, kInvalid, {"count: got -1"}},
      {"TooManyBytes",
       [](Request* r) { r->set_count(250'001); },
       kInvalid,
       {"count: got 250001; allowed: 1 to 250000", "1000000 bytes of i32"}},
      {"HugeCount",
       [](Request* r) { r->set_count(std::numeric_limits<std::int64_t>::max()); },
       kInvalid,
       {"count: got 9223372036854775807"}},
      {"NegativeRepeats",
       [](Request* r) { r->set_repeats(-1); },
       kInvalid,
       {"repeats: got -1", "0 (the default, 20) to 1000"}},
      {"TooManyRepeats", [](Request* r) { r->set_repeats(1001); }, kInvalid, {"repeats: got 1001"}},
      {"FillThatIsNotWhole", [](Request* r) { r->set_fill(1.5); }, kInvalid, {"fill: got 1.5", "i32", "2147483647"}},
      {"FillOutOfRange", [](Request* r) { r->set_fill(3e11); }, kInvalid, {"fill: got 300000000000", "-2147483648"}},
      {"UnknownPipeline", [](Request* r) { r->add_pipelines("war\np"); }, kInvalid, {"war\\np", "tiled_simd"}},
      {"NamelessPipeline", [](Request* r) { r->add_pipelines(""); }, kInvalid, {"empty name"}},
      {"LongPipeline",
       [](Request* r) { r->add_pipelines(std::string(100'000, 'x')); },
       kInvalid,
       {"pipeline: got 'xxx"}},
      {"PipelineTwice",
       [](Request* r) {
         r->add_pipelines("sequential");
         r->add_pipelines("sequential");
       },
       kInvalid,
       {"sequential twice"}},
      {"PipelineThatLacksTheOp",
       [](Request* r) {
         r->set_op(v1::OP_VAR);
         r->add_pipelines("sequential");
       },
       kUnimplemented,
       {"sequential", "var", "tiled_simd"}},
      {"PipelineThatLacksTheDtype",
       [](Request* r) {
         r->set_dtype(v1::DTYPE_U8);
         r->add_pipelines("tiled_simd");
         r->add_pipelines("recursive_pairs");
       },
       kUnimplemented,
       {"recursive_pairs", "u8", "tiled_simd"}},
      {"UnknownBlockSize", [](Request* r) { r->add_block_sizes(100); }, kInvalid, {"100", "64, 128, 256, 512, 1024"}},
      {"BlockSizeTwice",
       [](Request* r) {
         r->add_block_sizes(128);
         r->add_block_sizes(128);
       },
       kInvalid,
       {"128 twice"}},
      {"BlockSizeWithoutChoice",
       [](Request* r) {
         r->add_pipelines("sequential");
         r->add_pipelines("tiled_simd");
         r->add_block_sizes(128);
       },
       kInvalid,
       {"block_sizes", "sequential, tiled_simd"}},
  };
  for (const PipelineRow& row : Pipelines()) {
    if (row.engine != EngineKind::kCuda) continue;
    bad.push_back({absl::StrCat("NoEngineFor_", std::string(row.name)),
                   [&row](Request* r) { r->add_pipelines(std::string(row.name)); },
                   grpc::StatusCode::FAILED_PRECONDITION,
                   {"cuda", "a test"}});
  }
  return bad;
}

// Of matrix products.
std::vector<BadLadder> BadProducts() {
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  using Request = v1::LadderRequest;
  std::vector<BadLadder> bad = {
      {"NoDtype", [](Request* r) { r->clear_dtype(); }, kInvalid, {"dtype: got 0"}},
      {"OtherDtype", [](Request* r) { r->set_dtype(v1::DTYPE_U8); }, kInvalid, {"dtype: got u8", "i32, f32, f64"}},
      {"NoRows", [](Request* r) { r->mutable_matmul()->clear_m(); }, kInvalid, {"matmul.m: got 0"}},
      {"NegativeAxis",
       [](Request* r) { r->mutable_matmul()->set_k(-1); },
       kInvalid,
       {"matmul.k: got -1; allowed: 0 to"}},
      {"HugeSide",
       [](Request* r) { r->mutable_matmul()->set_n(std::numeric_limits<std::int64_t>::max()); },
       kInvalid,
       {"matmul.n: got 9223372036854775807"}},
      {"TooManyBytes",
       [](Request* r) { r->mutable_matmul()->set_m(10'000); },
       kInvalid,
       {"bytes together; allowed: 1000000"}},
      {"TooMuchWork",
       [](Request* r) {
         for (auto set : {&v1::Matmul::set_m, &v1::Matmul::set_n, &v1::Matmul::set_k}) {
           (r->mutable_matmul()->*set)(1 << 20);
         }
       },
       kInvalid,
       {"allowed: products of at most"}},
      {"OddTile", [](Request* r) { r->mutable_matmul()->set_tile(17); }, kInvalid, {"matmul.tile: got 17", "16, 32"}},
      {"OddBlock",
       [](Request* r) { r->mutable_matmul()->add_blocks()->set_x(3); },
       kInvalid,
       {"matmul.blocks: got 3x0", "32x32"}},
      {"Count", [](Request* r) { r->set_count(1); }, kInvalid, {"count: got some with matmul"}},
      {"Op", [](Request* r) { r->set_op(v1::OP_MAX); }, kInvalid, {"op: got some with matmul"}},
      {"Fill", [](Request* r) { r->set_fill(1); }, kInvalid, {"fill: got some with matmul"}},
      {"BlockSizes", [](Request* r) { r->add_block_sizes(64); }, kInvalid, {"block_sizes: got some with matmul"}},
      {"Repeats", [](Request* r) { r->set_repeats(1001); }, kInvalid, {"repeats: got 1001"}},
      {"UnknownPipeline",
       [](Request* r) { r->add_pipelines("x\ny"); },
       kInvalid,
       {"x\\ny", "matmul_host, matmul_global"}},
      {"PipelineTwice",
       [](Request* r) {
         r->add_pipelines("matmul_host");
         r->add_pipelines("matmul_host");
       },
       kInvalid,
       {"matmul_host twice"}},
      {"TileWithoutChoice",
       [](Request* r) {
         r->add_pipelines("matmul_host");
         r->mutable_matmul()->set_tile(16);
       },
       kInvalid,
       {"matmul.tile: got one; allowed: none"}},
      {"SweepWithoutChoice",
       [](Request* r) {
         r->add_pipelines("matmul_host");
         r->mutable_matmul()->set_sweep_blocks(true);
       },
       kInvalid,
       {"matmul.blocks: got some; allowed: none"}},
      {"PipelineThatLacksTheDtype",
       [](Request* r) {
         r->set_dtype(v1::DTYPE_I32);
         r->add_pipelines("cublas");
       },
       grpc::StatusCode::UNIMPLEMENTED,
       {"pipelines: got cublas for i32; allowed: matmul_host, "}},
  };
  for (const MatmulRow& row : MatmulRows()) {
    if (row.engine != EngineKind::kCuda) continue;
    bad.push_back({absl::StrCat("NoEngineFor_", std::string(row.name)),
                   [&row](Request* r) {
                     r->set_dtype(v1::DTYPE_F64);
                     r->add_pipelines(std::string(row.name));
                   },
                   grpc::StatusCode::FAILED_PRECONDITION,
                   {std::string(row.name), "cuda", "a test"}});
  }
  return bad;
}

// Refuses each of the requests that `bad` makes of a good one.
void ExpectRefused(TestServer& server, const v1::LadderRequest& good, const std::vector<BadLadder>& bad_ladders) {
  for (const BadLadder& bad : bad_ladders) {
    SCOPED_TRACE(bad.name);
    v1::LadderRequest request = good;
    bad.spoil(&request);
    const Climbed climbed = Climb(server, request);
    EXPECT_EQ(climbed.status.error_code(), bad.code) << climbed.status.error_message();
    for (const std::string& text : bad.says) EXPECT_THAT(climbed.status.error_message(), HasSubstr(text));
    EXPECT_THAT(climbed.status.error_message(), IsErrorOfField());
    EXPECT_LT(climbed.status.error_message().size(), 1000u);
    EXPECT_TRUE(climbed.steps.empty());
  }
  EXPECT_TRUE(Climb(server, good).status.ok());
}

TEST(BadLadderTest, OfProductsIsAnsweredClearly) {
  ServerOptions options;
  options.limits.max_ladder_bytes = 1'000'000;
  TestServer server(options, SharedEngines());
  ExpectRefused(server, ProductOf(v1::DTYPE_F32, 100, 200, 50, 1), BadProducts());
}

TEST(BadLadderTest, OfAProductThatTakesTooLong) {
  ServerOptions options;
  options.limits.max_run_time = absl::Seconds(4);
  TestServer server(options, SharedEngines());
  const Climbed climbed = Climb(server, ProductOf(v1::DTYPE_F32, 10, 10, 10, 1));
  EXPECT_EQ(climbed.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(climbed.status.error_message(), HasSubstr("matmul_host may take 5s; allowed: 4s (--max_run_time)"));
}

TEST(BadLadderTest, IsAnsweredClearly) {
  ServerOptions options;
  options.limits.max_ladder_bytes = 1'000'000;
  TestServer server(options, SharedEngines());
  const v1::LadderRequest good = LadderOf(v1::DTYPE_I32, 250'000, v1::OP_SUM, 1);
  ExpectRefused(server, good, BadLadders());
}

TEST(BadLadderTest, AnArrayWithoutMemory) {
  ServerOptions options;
  options.limits.max_ladder_bytes = std::int64_t{1} << 60;
  options.limits.max_run_time = absl::Hours(10'000);
  TestServer server(options, SharedEngines());
  const Climbed climbed = Climb(server, LadderOf(v1::DTYPE_F64, std::int64_t{1} << 48, v1::OP_SUM));
  EXPECT_EQ(climbed.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(climbed.status.error_message(), HasSubstr("2251799813685248 bytes"));
  EXPECT_TRUE(Climb(server, LadderOf(v1::DTYPE_F64, 1000, v1::OP_SUM)).status.ok());
}

}  // namespace
}  // namespace reduced::server
