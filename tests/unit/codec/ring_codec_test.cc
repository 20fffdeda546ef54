// The slots of a ring as messages and back.
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/ring/codec.h"
#include "proto/ring/layout.h"
#include "proto/ring/wait.h"

namespace reduced::ring {
namespace {

using google::protobuf::util::MessageDifferencer;

v1::ReduceRequest Request() {
  v1::ReduceRequest request;
  request.mutable_array()->set_dtype(v1::DTYPE_F16);
  request.mutable_array()->add_shape(12);
  request.add_ops(v1::OP_SUM);
  request.add_ops(v1::OP_RANGE);
  request.mutable_options()->set_engine(v1::ENGINE_CPU);
  request.mutable_options()->set_precision(v1::PRECISION_F64);
  request.mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT);
  request.mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_WRAP);
  request.mutable_options()->set_ddof(3);
  return request;
}

TEST(RingCodecTest, RequestsSurvive) {
  v1::ReduceRequest in_region = Request(), resident = Request();
  in_region.mutable_region()->set_token("0123456789abcdef0123456789abcdef");
  in_region.mutable_region()->set_offset(77);
  resident.set_array_id("x");
  resident.clear_array();
  resident.set_op_errors(true);
  for (const v1::ReduceRequest& request : {in_region, resident}) {
    ASSERT_TRUE(FitsFixedForm(request));
    Submission slot{};
    ToSubmission(request, &slot);
    v1::ReduceRequest read;
    ASSERT_TRUE(FromSubmission(slot, &read).ok());
    EXPECT_TRUE(MessageDifferencer::Equals(read, request)) << read.DebugString();
  }
  Submission slot{};
  ToSubmission(Request(), &slot);
  v1::ReduceRequest read;
  EXPECT_FALSE(FromSubmission(slot, &read).ok()) << "it has no source";
  slot.source = static_cast<std::uint8_t>(Source::kArena);
  ASSERT_TRUE(FromSubmission(slot, &read).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(read, Request())) << read.DebugString();
}

TEST(RingCodecTest, ShapesBecomeCounts) {
  v1::ReduceRequest request = Request();
  request.mutable_array()->add_shape(5);
  Submission slot{};
  ASSERT_TRUE(FitsFixedForm(request));
  ToSubmission(request, &slot);
  EXPECT_EQ(slot.count, 60);
  request.mutable_array()->clear_shape();
  ToSubmission(request, &slot);
  EXPECT_EQ(slot.count, 1) << "a scalar";
}

TEST(RingCodecTest, WhatTheFixedFormLacks) {
  void (*const changes[])(v1::ReduceRequest&) = {
      [](auto& r) { r.set_return_state(true); },
      [](auto& r) { r.set_ops(1, v1::OP_MEDIAN); },
      [](auto& r) { r.add_calls()->set_op(v1::OP_SUM); },
      [](auto& r) { r.mutable_axes(); },
      [](auto& r) { r.mutable_segments(); },
      [](auto& r) { r.mutable_keys(); },
      [](auto& r) { r.mutable_where(); },
      [](auto& r) { r.mutable_options()->set_pipeline("cub"); },
      [](auto& r) { r.mutable_options()->set_device("cpu"); },
      [](auto& r) { r.mutable_options()->set_block_size(64); },
      [](auto& r) { r.clear_ops(); },
      [](auto& r) { r.mutable_ops()->Resize(17, v1::OP_SUM); },
      [](auto& r) { r.set_ops(0, static_cast<v1::Op>(256)); },
      [](auto& r) { r.set_ops(0, static_cast<v1::Op>(-1)); },
      [](auto& r) { r.mutable_options()->set_engine(static_cast<v1::Engine>(1000)); },
      [](auto& r) { r.mutable_array()->set_dtype(static_cast<v1::DType>(-5)); },
      [](auto& r) { r.mutable_array()->add_shape(-1); },
      [](auto& r) { r.mutable_array()->add_shape(std::numeric_limits<std::int64_t>::max()); },
      [](auto& r) { r.mutable_region()->set_offset(-1); },
      [](auto& r) { r.mutable_region()->set_token(std::string(64, 'x')); },
      [](auto& r) { r.set_array_id(std::string("a\0b", 3)); },
  };
  for (const auto& change : changes) {
    v1::ReduceRequest request = Request();
    change(request);
    EXPECT_FALSE(FitsFixedForm(request)) << request.DebugString();
  }
}

TEST(RingCodecTest, ResponsesSurvive) {
  v1::ReduceRequest request;
  v1::ReduceResponse response;
  const auto add = [&](v1::Op op, v1::DType dtype) {
    request.add_ops(op);
    v1::Result* const result = response.add_results();
    result->set_op(op);
    result->mutable_value()->set_dtype(dtype);
    return result->mutable_value();
  };
  add(v1::OP_SUM, v1::DTYPE_F64)->set_f(-0.1);
  add(v1::OP_MIN, v1::DTYPE_F16)->set_f(-std::numeric_limits<double>::infinity());
  add(v1::OP_PROD, v1::DTYPE_I64)->set_i(std::numeric_limits<std::int64_t>::min());
  add(v1::OP_BIT_OR, v1::DTYPE_I8)->set_i(-3);
  add(v1::OP_ARGMAX, v1::DTYPE_U64)->set_u(std::numeric_limits<std::uint64_t>::max());
  add(v1::OP_ANY, v1::DTYPE_BOOL)->set_b(true);
  response.set_count(99);
  response.mutable_execution()->set_engine(v1::ENGINE_CUDA);
  response.mutable_execution()->set_precision(v1::PRECISION_EXACT);
  response.mutable_execution()->set_device("cuda:11");
  response.mutable_execution()->set_pipeline("shared_neighbored_less");
  response.mutable_execution()->set_reason("because");
  response.mutable_timing()->set_receive_us(0);
  response.mutable_timing()->set_kernel_us(2);
  response.mutable_timing()->set_total_us(1e9);
  response.mutable_timing()->set_bytes(8000);
  response.mutable_timing()->set_kernel_gb_per_s(4);
  Completion slot{};
  ToCompletion(response, &slot);
  v1::ReduceResponse read;
  FromCompletion(slot, request, &read);
  EXPECT_TRUE(MessageDifferencer::Equals(read, response)) << read.DebugString();
}

TEST(RingCodecTest, ErrorsOfOpsSurvive) {
  v1::ReduceRequest request;
  v1::ReduceResponse response;
  response.mutable_execution()->set_reason("because");
  response.mutable_timing();
  for (int i = 0; i < 16; ++i) {
    request.add_ops(v1::OP_SUM);
    v1::Result* const result = response.add_results();
    result->set_op(v1::OP_SUM);
    if (i % 2 == 0) {
      result->mutable_error()->set_code(11);
      result->mutable_error()->set_message(std::string(static_cast<std::size_t>(10 * i), 'x'));
    } else {
      result->mutable_value()->set_dtype(v1::DTYPE_I64);
      result->mutable_value()->set_i(-i);
    }
  }
  Completion slot{};
  ToCompletion(response, &slot);
  v1::ReduceResponse read;
  FromCompletion(slot, request, &read);
  EXPECT_TRUE(MessageDifferencer::Equals(read, response)) << read.DebugString();
  // What has no room is cut, and stays an error.
  for (const int i : {0, 2, 4}) response.mutable_results(i)->mutable_error()->set_message(std::string(300, 'y'));
  ToCompletion(response, &slot);
  read.Clear();
  FromCompletion(slot, request, &read);
  EXPECT_EQ(read.results(0).error().message(), std::string(300, 'y'));
  EXPECT_EQ(read.results(4).error().message(), std::string(720 - 8 - 301 - 301 - 1, 'y'));
  EXPECT_EQ(read.results(14).error().code(), 11);
  EXPECT_EQ(read.results(14).error().message(), "");
}

TEST(RingCodecTest, TextsAreCut) {
  Completion slot{};
  ToCompletion(absl::NotFoundError(std::string(2000, 'x')), &slot);
  EXPECT_EQ(slot.code, 5);
  EXPECT_EQ(TextOf(slot), std::string(719, 'x'));
  ToCompletion(absl::NotFoundError("short"), &slot);
  EXPECT_EQ(TextOf(slot), "short");
}

// What a hostile server writes: bounded, and for the checker of answers to refuse.
TEST(RingCodecTest, AnyBytesAreAResponse) {
  Completion slot;
  std::memset(&slot, 0xff, sizeof(slot));
  v1::ReduceResponse read;
  FromCompletion(slot, Request(), &read);
  EXPECT_EQ(read.results_size(), 16);
  EXPECT_EQ(read.results(15).op(), v1::OP_UNSPECIFIED);
  EXPECT_EQ(read.execution().reason().size(), sizeof(slot.text));
}

TEST(RingGeometryTest, PartsFollowEachOther) {
  const Geometry geometry{.slots = 64, .arena_bytes = 8192};
  EXPECT_EQ(geometry.submissions(), 4096);
  EXPECT_EQ(geometry.completions(), 4096 + 64 * 256);
  EXPECT_EQ(geometry.arena(), 4096 + 64 * (256 + 1024));
  EXPECT_EQ((Geometry{.slots = 1}.arena()), 8192) << "whole pages";
  EXPECT_TRUE(geometry.Has(0, 8192));
  EXPECT_TRUE(geometry.Has(8192, 0));
  EXPECT_FALSE(geometry.Has(1, 8192));
  EXPECT_FALSE(geometry.Has(8193, 0));
  EXPECT_FALSE(geometry.Has(~std::uint64_t{0}, 2));
  EXPECT_FALSE(geometry.Has(2, ~std::uint64_t{0}));
}

TEST(RingPatienceTest, SpinsWhileThatIsLikelyToPay) {
  Patience patience(/*spins=*/true);
  EXPECT_EQ(patience.now(), Patience::kMost);
  for (int i = 0; i < 20; ++i) patience.Took(std::chrono::seconds(1));
  EXPECT_EQ(patience.now(), Patience::kLeast);
  for (int i = 0; i < 20; ++i) patience.Took(std::chrono::microseconds(3));
  EXPECT_EQ(patience.now(), Patience::kMost);
  EXPECT_EQ(Patience(/*spins=*/false).now(), std::chrono::nanoseconds::zero());
}

}  // namespace
}  // namespace reduced::ring
