// Ladders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CallTest, SendsWhatALadderIsOf) {
  v1::LadderRequest seen;
  service_.on_ladder = [&](const v1::LadderRequest& request, auto*) {
    seen = request;
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no ladder");
  };
  const auto ladder = [&](const LadderOptions& options) {
    EXPECT_EQ(client_->Ladder(options, [](const auto&, const auto&) {}).status(),
              absl::UnimplementedError("no ladder"));
  };
  ladder({.dtype = "i16", .count = 7, .seed = 5});
  EXPECT_EQ(seen.dtype(), v1::DTYPE_I16);
  EXPECT_EQ(seen.count(), 7);
  EXPECT_EQ(seen.op(), v1::OP_SUM);
  EXPECT_FALSE(seen.has_fill());
  EXPECT_EQ(seen.seed(), 5);
  EXPECT_THAT(seen.pipelines(), IsEmpty());
  EXPECT_THAT(seen.block_sizes(), IsEmpty());
  EXPECT_EQ(seen.repeats(), 0);
  ladder({.dtype = "f64",
          .count = 1,
          .op = "max",
          .fill = 0,
          .pipelines = {"p", "q"},
          .block_sizes = {64, 1024},
          .repeats = 3});
  EXPECT_EQ(seen.op(), v1::OP_MAX);
  EXPECT_TRUE(seen.has_fill());
  EXPECT_THAT(seen.pipelines(), ElementsAre("p", "q"));
  EXPECT_THAT(seen.block_sizes(), ElementsAre(64, 1024));
  EXPECT_EQ(seen.repeats(), 3);
}

// Fills in a start that announces two steps, and those.
void AddTwoSteps(std::vector<v1::LadderReply>* replies) {
  replies->resize(3);
  auto* start = (*replies)[0].mutable_start();
  start->set_bytes(8);
  start->set_steps(2);
  start->mutable_expected()->set_dtype(v1::DTYPE_I64);
  start->mutable_expected()->set_i(-3);
  auto* first = (*replies)[1].mutable_step();
  first->set_pipeline("p");
  first->set_engine(v1::ENGINE_CUDA);
  first->set_device("cuda:0");
  first->add_kernel_us(2);
  first->add_kernel_us(1);
  first->set_read_bytes(16);
  first->set_active_threads(0.5);
  first->set_scratch_copy_us(0.5);
  first->set_read_gb_per_s(4000);
  first->mutable_value()->set_dtype(v1::DTYPE_I64);
  first->mutable_value()->set_i(-4);
  first->set_same_bits(true);
  first->mutable_occupancy()->set_block_size(256);
  first->mutable_occupancy()->set_registers(32);
  first->mutable_occupancy()->set_shared_bytes(1024);
  first->mutable_occupancy()->set_blocks_per_multiprocessor(8);
  first->mutable_occupancy()->set_max_threads_per_multiprocessor(2048);
  auto* second = (*replies)[2].mutable_step();
  second->set_pipeline("q");
  second->set_engine(v1::ENGINE_CPU);
  second->set_device("cpu");
  second->add_kernel_us(3);
  second->add_kernel_us(4);
  *second->mutable_value() = start->expected();
  second->set_correct(true);
}

TEST_F(CallTest, GivesALadderStepByStep) {
  service_.on_ladder = [](const auto&, std::vector<v1::LadderReply>* replies) {
    AddTwoSteps(replies);
    return grpc::Status::OK;
  };
  std::vector<LadderStep> steps;
  const absl::StatusOr<LadderStart> start = client_->Ladder({.dtype = "i32", .count = 2, .repeats = 2},
                                                            [&](const LadderStart& start, const LadderStep& step) {
                                                              EXPECT_EQ(start.steps, 2);
                                                              steps.push_back(step);
                                                            });
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->bytes, 8);
  EXPECT_EQ(std::get<std::int64_t>(start->expected.value), -3);
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(steps[0].pipeline, "p");
  EXPECT_EQ(steps[0].engine, "cuda");
  EXPECT_EQ(steps[0].device, "cuda:0");
  EXPECT_THAT(steps[0].kernel_us, ElementsAre(2, 1));
  EXPECT_EQ(steps[0].read_bytes, 16);
  EXPECT_EQ(steps[0].active_threads, 0.5);
  EXPECT_EQ(steps[0].scratch_copy_us, 0.5);
  EXPECT_EQ(steps[0].read_gb_per_s, 4000);
  EXPECT_EQ(std::get<std::int64_t>(steps[0].value.value), -4);
  EXPECT_FALSE(steps[0].correct);
  EXPECT_TRUE(steps[0].same_bits);
  ASSERT_TRUE(steps[0].occupancy.has_value());
  EXPECT_EQ(steps[0].occupancy->block_size, 256);
  EXPECT_EQ(steps[0].occupancy->registers, 32);
  EXPECT_EQ(steps[0].occupancy->shared_bytes, 1024);
  EXPECT_EQ(steps[0].occupancy->blocks_per_multiprocessor, 8);
  EXPECT_EQ(steps[0].occupancy->max_threads_per_multiprocessor, 2048);
  EXPECT_EQ(steps[1].engine, "cpu");
  EXPECT_TRUE(steps[1].correct);
  EXPECT_EQ(steps[1].read_bytes, 0);
  EXPECT_EQ(steps[1].active_threads, std::nullopt);
  EXPECT_EQ(steps[1].scratch_copy_us, std::nullopt);
  EXPECT_EQ(steps[1].read_gb_per_s, std::nullopt);
  EXPECT_FALSE(steps[1].occupancy.has_value());
}

TEST_F(CallTest, ALadderCanFailOnTheWay) {
  service_.on_ladder = [](const auto&, std::vector<v1::LadderReply>* replies) {
    AddTwoSteps(replies);
    return grpc::Status(grpc::StatusCode::INTERNAL, "the device is gone");
  };
  int steps = 0;
  const auto count = [&](const auto&, const auto&) { ++steps; };
  EXPECT_EQ(client_->Ladder({.dtype = "i32", .count = 2, .repeats = 2}, count).status(),
            absl::InternalError("the device is gone"));
  EXPECT_EQ(steps, 2);
  const auto error = [&](const LadderOptions& options) {
    return std::string(client_->Ladder(options, count).status().message());
  };
  EXPECT_THAT(error({.dtype = "f24"}), HasSubstr("dtype: got \"f24\"; allowed: bool, "));
  EXPECT_THAT(error({.dtype = "f32", .op = "medium"}), HasSubstr("op: got \"medium\"; allowed: sum, "));
  EXPECT_THAT(error({.dtype = "f32", .timeout = absl::ZeroDuration()}), HasSubstr("timeout: got 0; allowed: "));
  EXPECT_EQ(steps, 2);
}

}  // namespace
}  // namespace reduced::client
