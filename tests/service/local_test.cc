// The engine in a client's process answers as a server does.
#include "client/local/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/merge.h"
#include "tests/service/test_server.h"
#include "tests/support/runs.h"

namespace reduced::server {
namespace {

using client::ArrayView;
using client::LocalEngine;
using client::ReduceOptions;
using client::Reply;
using ::testing::HasSubstr;

class LocalTest : public ::testing::Test {
 protected:
  // Both answers, or both errors, are the same.
  void Compare(const ArrayView& array, const std::vector<std::string>& ops, ReduceOptions options = {}) {
    options.return_state = true;
    options.via = "inline";  // as a stream, what isn't exact is rounded in another order
    const absl::StatusOr<Reply> there = client_->Reduce(array, ops, options);
    const absl::StatusOr<Reply> here = local_.Reduce(array, ops, options);
    ASSERT_EQ(here.status().code(), there.status().code()) << here.status() << there.status();
    EXPECT_EQ(here.status().message(), there.status().message());
    if (!here.ok()) return;
    ASSERT_EQ(here->results.size(), there->results.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(here->results[i].op, there->results[i].op);
      ASSERT_EQ(here->results[i].value.status(), there->results[i].value.status());
      EXPECT_EQ(here->Find(ops[i]) == nullptr, !here->results[i].value.ok());
      if (!here->results[i].value.ok()) continue;
      EXPECT_EQ(here->results[i].value->dtype, there->results[i].value->dtype);
      EXPECT_EQ(here->results[i].value->Text(), there->results[i].value->Text()) << ops[i];
    }
    EXPECT_EQ(here->count, there->count);
    EXPECT_EQ(here->state, there->state);
    EXPECT_EQ(here->execution.engine, there->execution.engine);
    EXPECT_EQ(here->execution.device, there->execution.device);
    EXPECT_EQ(here->execution.pipeline, there->execution.pipeline);
    EXPECT_EQ(here->execution.precision, there->execution.precision);
    EXPECT_EQ(here->timing.bytes, there->timing.bytes);
  }

  TestServer server_;
  const std::unique_ptr<client::Client> client_ =
      client::Client::Create({.server = server_.address(), .timeout = kPatience}).value();
  const LocalEngine local_;
};

TEST_F(LocalTest, StatesOfArraysOfResults) {
  const std::vector<double> values = {1, 2.5, -3, 1e300, 0, 1e-300, 7, -8};
  const std::vector<std::int32_t> keys = {3, 1, 1, 7};
  const bool there[] = {true, false, true, true, true, true, false, true};
  const ArrayView array = ArrayView::Of(values, {{4, 2}});
  const client::PartitionOptions partitions[] = {{.axis = {0}},
                                                 {.axis = {-1}, .keepdims = true},
                                                 {.where = client::Mask{.mask = ArrayView::Of(there, {{4, 2}})}},
                                                 {.keys = client::Keys{.keys = ArrayView::Of(keys)}},
                                                 {.keys = client::Keys{.keys = ArrayView::Of(keys), .groups = 8},
                                                  .where = client::Mask{.mask = ArrayView::Of(there, {{4, 2}})},
                                                  .empty = "fill"}};
  for (const client::PartitionOptions& partition : partitions) {
    for (const bool results : {true, false}) {
      const ReduceOptions options{.return_state = true, .results = results};
      const auto from_there = client_->ReduceArray(array, {"sum", "argmin"}, partition, options);
      const auto here = local_.ReduceArray(array, {"sum", "argmin"}, partition, options);
      ASSERT_TRUE(from_there.ok() && here.ok()) << from_there.status() << here.status();
      EXPECT_FALSE(here->state.empty());
      EXPECT_EQ(here->state, from_there->state);
      ASSERT_EQ(here->results.size(), results ? 2U : 0U);
      ASSERT_EQ(from_there->results.size(), here->results.size());
      for (std::size_t i = 0; i < here->results.size(); ++i) {
        EXPECT_EQ(here->results[i].array.shape, from_there->results[i].array.shape);
        EXPECT_EQ(here->results[i].array.data, from_there->results[i].array.data);
      }
      EXPECT_EQ(here->keys.array.data, from_there->keys.array.data);
    }
  }
  const std::vector<std::int64_t> offsets = {0, 1, 4};
  const auto segments = local_.ReduceArray(
      array, {"sum"}, {.segments = client::Segments{.offsets = ArrayView::Of(offsets)}}, {.return_state = true});
  EXPECT_THAT(std::string(segments.status().message()),
              HasSubstr("return_state: got true with segments; allowed: false, or true with axes, keys or where"));
}

// Along axes, of segments, by keys and under masks, an op has an error if one output has: that of the first one.
TEST_F(LocalTest, ErrorsOfOps) {
  const std::vector<std::int64_t> values = {1, 2, INT64_MAX, INT64_MAX, 5, 6};
  const std::vector<std::int64_t> offsets = {0, 1, 3, 3};
  const std::vector<std::int32_t> keys = {7, 9, 7};
  const bool none[6] = {};
  const client::PartitionOptions partitions[] = {{.axis = {1}},
                                                 {.axis = {0}},
                                                 {.segments = client::Segments{.offsets = ArrayView::Of(offsets)}},
                                                 {.keys = client::Keys{.keys = ArrayView::Of(keys)}},
                                                 {.keys = client::Keys{.keys = ArrayView::Of(keys), .groups = 10}},
                                                 {.where = client::Mask{.mask = ArrayView::Of(none, {{3, 2}})}}};
  int errors = 0;
  for (const client::PartitionOptions& partition : partitions) {
    const ArrayView array = ArrayView::Of(values, {{3, 2}});
    const std::vector<std::string> ops = {"sum", "mean", "argmax", "count"};
    const auto there = client_->ReduceArray(array, ops, partition, {});
    const auto here = local_.ReduceArray(array, ops, partition, {});
    ASSERT_TRUE(there.ok() && here.ok()) << there.status() << here.status();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(here->results[i].op, ops[i]);
      EXPECT_EQ(here->results[i].error, there->results[i].error);
      EXPECT_EQ(here->results[i].array.data, there->results[i].array.data);
      // As alone, with the same message.
      const auto alone = local_.ReduceArray(array, {ops[i]}, partition, {});
      EXPECT_EQ(alone.status(), here->results[i].error);
      errors += here->results[i].error.ok() ? 0 : 1;
      EXPECT_EQ(here->Find(ops[i]) == nullptr, !alone.ok());
      if (!alone.ok()) continue;
      EXPECT_EQ(alone->results[0].array.data, here->results[i].array.data);
    }
    EXPECT_NE(here->Find("mean"), nullptr);
  }
  EXPECT_GE(errors, 6);
}

TEST_F(LocalTest, AnswersAsAServer) {
  std::vector<double> many(300'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = std::sin(static_cast<double>(i)) * std::pow(10, i % 50);
  const std::vector<std::string> all = {"sum", "prod", "mean", "var", "l2", "min", "argmax", "any", "nan_count"};
  Compare(ArrayView::Of(many), all, {.engine = "cpu"});
  Compare(ArrayView::Of(many), {"sum"}, {.engine = "cpu", .precision = "f64"});
  Compare(ArrayView::Of(many), {"sum"}, {.pipeline = "sequential"});
  const std::vector<std::int64_t> large(3, std::int64_t{1} << 62);
  Compare(ArrayView::Of(large), {"sum", "bit_xor"}, {.engine = "cpu", .overflow_policy = "saturate"});
  Compare(ArrayView::Of(large), {"sum"}, {.engine = "cpu"});
  Compare(ArrayView::Of(large), {"mean", "sum", "prod", "argmin"}, {.engine = "cpu"});
  Compare({.dtype = "u8", .shape = {0}}, {"max", "sum", "range"}, {.engine = "cpu"});
  const std::vector<float> few = {1, std::numeric_limits<float>::quiet_NaN(), 3};
  Compare(ArrayView::Of(few), {"mean", "std", "count"}, {.engine = "cpu", .nan_policy = "omit", .ddof = 1});
  Compare({.dtype = "bf16", .shape = {0, 3}}, {"sum", "all"}, {.engine = "cpu"});
  for (const auto& [ops, options] : std::vector<std::pair<std::vector<std::string>, ReduceOptions>>{
           {{"min"}, {.engine = "cpu"}}, {{"bit_or"}, {}}, {{}, {}}, {{"medium"}, {}}, {{"sum"}, {.ddof = -1}}}) {
    Compare({.dtype = "f32", .shape = {0}}, ops, options);
  }
}

// Both refuse the same question with the same message.
TEST_F(LocalTest, RefusesWhatAServerRefuses) {
  using client::Keys;
  using client::Mask;
  using client::Segments;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const ArrayView rows = ArrayView::Of(values, {{3, 2}});
  const ArrayView scalar{.data = values.data(), .dtype = "f32"};
  const ArrayView many{.data = values.data(), .dtype = "f32", .shape = std::vector<std::int64_t>(65, 1)};
  const ArrayView wide{.dtype = "f32", .shape = {0, std::int64_t{1} << 40}};
  const ArrayView none{.dtype = "f32", .shape = {3, 0}};
  const std::vector<std::int64_t> offsets = {0, 2, 3}, descending = {0, 2, 1}, outside = {0, 4}, lengths = {1, 1};
  const std::vector<std::int32_t> numbers = {0, 1, 2}, two = {0, 1};
  const std::vector<double> doubles = {0, 1, 2};
  const std::vector<std::uint8_t> bits = {255};
  const bool kept[] = {true, false, true, true, true, false};
  const auto segments = [](const ArrayView& bounds, bool are_lengths = false) {
    return client::PartitionOptions{.segments = Segments{bounds, are_lengths}};
  };
  const auto keys = [](const ArrayView& of, std::int64_t groups = 0, bool drop = false) {
    return client::PartitionOptions{.keys = Keys{of, groups, drop}};
  };
  const auto where = [](const ArrayView& of, bool are_bits = false, std::int64_t first_bit = 0) {
    return client::PartitionOptions{.where = Mask{of, are_bits, first_bit}};
  };
  const auto also = [](client::PartitionOptions one, const client::PartitionOptions& other) {
    if (!other.axis.empty()) one.axis = other.axis;
    if (other.keys.has_value()) one.keys = other.keys;
    return one;
  };
  const client::PartitionOptions axis{.axis = {0}};
  const auto ints = ArrayView::Of(numbers);
  struct Case {
    ArrayView array;
    client::PartitionOptions partition;
    std::string message;
    std::vector<std::string> ops = {"sum"};
    ReduceOptions options{};
  };
  const std::vector<Case> cases = {
      {rows, {.axis = {2}}, "axes.axis[0]: got 2; allowed: -2 to 1"},
      {rows, {.axis = {-3}}, "axes.axis[0]: got -3"},
      {rows, {.axis = {1, -1}}, "axes.axis[1]: got -1, dimension 1 again"},
      {scalar, axis, "axes.axis[0]: got 0; allowed: none"},
      {many, axis, "array.shape: got 65 dimensions; allowed: 64 with axes"},
      {rows, {.axis = {0}, .empty = "some"}, "empty: got \"some\""},
      {none, {.axis = {1}}, "output [0]: op min: got an empty array", {"min"}},
      {rows, also(segments(ArrayView::Of(offsets)), axis), "segments: got it beside axes; allowed: one of"},
      {rows, also(keys(ints), axis), "keys: got it beside axes; allowed: one of axes, segments, keys"},
      {rows, also(segments(ArrayView::Of(offsets)), keys(ints)), "keys: got it beside segments; allowed: one of"},
      {scalar, segments(ArrayView::Of(offsets)),
       "array.shape: got a scalar; allowed: 1 dimension or more with segments"},
      {rows, segments(ArrayView::Of(doubles)), "segments.offsets: got f64; allowed: i32, i64"},
      {rows, segments(ArrayView::Of(numbers.data(), 0)), "segments.offsets: got none; allowed: 1 or more"},
      {rows, segments(ArrayView::Of(numbers, {{3, 1}})), "segments.offsets: got an array of 2 dimensions; allowed: 1"},
      {rows, segments(ArrayView::Of(descending)), "segments.offsets[2]: got 1"},
      {rows, segments(ArrayView::Of(outside)), "segments.offsets[1]: got 4"},
      {rows, segments(ArrayView::Of(lengths), true), "segments.lengths"},
      {rows, segments({.dtype = "i16x", .shape = {1}}), "segments: dtype: got \"i16x\""},
      {rows, segments({.dtype = "i32", .shape = {1}}), "segments: data: got null"},
      {rows, segments(ArrayView::Of(offsets)), "return_state: got true with segments", {"sum"}, {.return_state = true}},
      {scalar, keys(ints), "array.shape: got a scalar; allowed: 1 dimension or more with keys"},
      {rows, keys(ArrayView::Of(doubles)), "keys.keys: got f64; allowed: integers"},
      {rows, keys(ArrayView::Of(two)), "keys.keys: got 2 keys; allowed: as many as dimension 0 has items, 3"},
      {rows, keys(ints, -1), "keys.groups: got -1; allowed: 0 to"},
      {rows, keys(ints, std::int64_t{1} << 32), "keys.groups: got 4294967296; allowed: 0 to"},
      {rows, keys(ints, 0, true), "keys.outside: got a policy without groups; allowed: none, or with groups"},
      {rows, keys(ints, 2), "keys[2]: got 2; allowed: 0 to 1, or outside: DROP"},
      {wide, keys(ArrayView::Of(numbers.data(), 0), std::int64_t{1} << 30),
       "outputs: got 1099511627776 times 1073741824"},
      {rows, where(ArrayView::Of(kept, {{2, 3}})), "where.elements: got shape [2, 3]; allowed: [3, 2], the array's"},
      {rows, where(ArrayView::Of(bits)), "where.elements: got u8; allowed: bool"},
      {rows, where(ArrayView::Of(kept, {{3, 2}}), false, 1), "where.first_bit: got 1 without bits; allowed: 0"},
      {rows, where(ints, true), "where.bits: got i32; allowed: u8"},
      {rows, where(ArrayView::Of(bits), true, 3), "where.bits: got 1 bytes; allowed: 2 or more"},
      {rows, where(ArrayView::Of(bits), true, -1), "where.first_bit: got -1; allowed: 0 or more"},
      {rows, axis, "results: got false without return_state", {"sum"}, {.results = false}},
      {rows, axis, "ops: got none", {}},
      {rows, axis, "op: got \"medium\"", {"medium"}},
      {rows, axis, "op bit_or: got dtype f32", {"bit_or"}},
      {rows, axis, "ddof: got -1", {"var"}, {.ddof = -1}},
      {rows, axis, "pipeline: got sequential for arrays of results", {"sum"}, {.pipeline = "sequential"}},
      {rows, axis, "pipeline: got 'fastest'; allowed: sequential, ", {"sum"}, {.pipeline = "fastest"}},
      {rows, axis, "options.pipeline: got 65 bytes", {"sum"}, {.pipeline = std::string(65, 'x')}},
      {rows, axis, "options.device: got 65 bytes", {"sum"}, {.device = std::string(65, 'x')}},
      {rows, axis, "block_size: got 3", {"sum"}, {.block_size = 3}},
      {rows, axis, "nan_policy: got \"skip\"", {"sum"}, {.nan_policy = "skip"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.message);
    const absl::Status there = client_->ReduceArray(each.array, each.ops, each.partition, each.options).status();
    const absl::Status here = local_.ReduceArray(each.array, each.ops, each.partition, each.options).status();
    EXPECT_FALSE(there.ok());
    EXPECT_EQ(here.code(), there.code());
    EXPECT_EQ(here.message(), there.message());
    EXPECT_THAT(std::string(here.message()), HasSubstr(each.message));
  }
}

TEST_F(LocalTest, HasTheCpuEngineOnly) {
  const std::vector<float> few = {1};
  for (const ReduceOptions& options :
       {ReduceOptions{.engine = "cuda"}, ReduceOptions{.device = "cuda:0"}, ReduceOptions{.engine = "cuda"}}) {
    const absl::Status status = local_.Reduce(ArrayView::Of(few), {"sum"}, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("which is all that local: has"));
  }
  EXPECT_TRUE(local_.Reduce(ArrayView::Of(few), {"sum"}, {.device = "cpu"}).ok());
}

TEST_F(LocalTest, ReadsAnArrayPieceByPiece) {
  std::vector<double> many((20 << 20) / 8 + 1);  // three pieces
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = std::sin(static_cast<double>(i)) * std::pow(10, i % 50);
  const std::vector<std::string> ops = {"sum", "std", "argmin", "max", "count_nonzero"};
  ArrayView reads{.dtype = "f64", .shape = {static_cast<std::int64_t>(many.size())}};
  std::int64_t next = 0;
  reads.reader = {.read =
                      [&](std::int64_t offset, char* to, std::int64_t bytes) {
                        EXPECT_EQ(offset, next);
                        next += bytes;
                        std::memcpy(to, reinterpret_cast<const char*>(many.data()) + offset,
                                    static_cast<std::size_t>(bytes));
                        return absl::OkStatus();
                      },
                  .in_order = true};
  std::vector<std::int64_t> progress;
  const auto on_progress = [&](std::int64_t sent, std::int64_t /*total*/) { progress.push_back(sent); };
  const absl::StatusOr<Reply> here = local_.Reduce(reads, ops, {.return_state = true, .on_progress = on_progress});
  const absl::StatusOr<Reply> whole = local_.Reduce(ArrayView::Of(many), ops, {.return_state = true});
  ASSERT_TRUE(here.ok() && whole.ok()) << here.status() << whole.status();
  EXPECT_EQ(here->state, whole->state);
  EXPECT_EQ(here->timing.bytes, whole->timing.bytes);
  EXPECT_THAT(progress, ::testing::ElementsAre(8 << 20, 16 << 20, next));

  reads.reader.read = [](std::int64_t offset, char*, std::int64_t) {
    return offset == 0 ? absl::OkStatus() : absl::DataLossError("the file has shrunk");
  };
  EXPECT_EQ(local_.Reduce(reads, ops).status(), absl::DataLossError("the file has shrunk"));
  ReduceOptions interrupted;
  interrupted.interrupted = [] { return true; };
  interrupted.pipeline = "sequential";
  reads.reader.read = [](std::int64_t, char* to, std::int64_t bytes) {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
    return absl::OkStatus();
  };
  reads.shape = {std::int64_t{1} << 37};  // a terabyte
  EXPECT_EQ(local_.Reduce(reads, {"sum"}, interrupted).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(LocalTest, DescribesItsEngineAsAServerDoes) {
  const client::ServerInfo here = local_.Info();
  const client::ServerInfo there = client_->GetServerInfo().value();
  EXPECT_EQ(here.version, there.version);
  EXPECT_EQ(here.dtypes, there.dtypes);
  ASSERT_EQ(here.devices.size(), 1);
  EXPECT_EQ(here.devices[0].model, there.devices[0].model);
  ASSERT_EQ(here.ops.size(), there.ops.size());
  for (std::size_t i = 0; i < here.ops.size(); ++i) {
    EXPECT_EQ(here.ops[i].name, there.ops[i].name);
    EXPECT_EQ(here.ops[i].summary, there.ops[i].summary);
    EXPECT_EQ(here.ops[i].dtypes, there.ops[i].dtypes);
  }
  for (std::size_t i = 0; i < here.pipelines.size(); ++i) {  // those of the CPU come first
    EXPECT_EQ(here.pipelines[i].name, there.pipelines[i].name);
    EXPECT_EQ(here.pipelines[i].engine, there.pipelines[i].engine);
    EXPECT_EQ(here.pipelines[i].ops, there.pipelines[i].ops);
    EXPECT_EQ(here.pipelines[i].dtypes, there.pipelines[i].dtypes);
    EXPECT_EQ(here.pipelines[i].default_of_engine, there.pipelines[i].default_of_engine);
    EXPECT_EQ(here.pipelines[i].exact, there.pipelines[i].exact);
    EXPECT_EQ(here.pipelines[i].block_sizes, there.pipelines[i].block_sizes);
  }
}

TEST_F(LocalTest, GivesUpWhenItIsToldTo) {
  const std::vector<float> many(test::kSlowBuild ? 5'000'000 : 50'000'000, 1.0F);
  const ReduceOptions slow{.pipeline = "sequential"};
  ReduceOptions interrupted = slow;
  interrupted.interrupted = [] { return true; };
  // Some machine may be done before it is asked.
  const absl::Status status = local_.Reduce(ArrayView::Of(many), {"prod"}, interrupted).status();
  EXPECT_TRUE(status.ok() || status == absl::CancelledError("the call was interrupted by its caller")) << status;
  ReduceOptions late = slow;
  late.timeout = absl::Milliseconds(1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(local_.Reduce(ArrayView::Of(many), {"prod"}, late).status()));
  late.timeout = absl::ZeroDuration();
  EXPECT_TRUE(absl::IsInvalidArgument(local_.Reduce(ArrayView::Of(many), {"prod"}, late).status()));
}

TEST_F(LocalTest, PartsNeedNoAnswerByThemselves) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> first = {nan, nan};
  const std::vector<float> second = {5, nan, 3};
  const ReduceOptions omit{.nan_policy = "omit"};
  EXPECT_TRUE(absl::IsInvalidArgument(local_.Reduce(ArrayView::Of(first), {"argmin"}, omit).status()));
  ReduceOptions part = omit;
  part.return_state = true;
  part.results = false;
  std::vector<std::string> states;
  for (const std::vector<float>& elements : {first, second}) {
    const absl::StatusOr<Reply> reply = local_.Reduce(ArrayView::Of(elements), {"argmin"}, part);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->results.empty());
    states.push_back(reply->state);
  }
  const auto alone = client::MergeStates({states[0]}, {.return_state = true, .results = false, .names = {}});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(alone->results.empty());
  const auto whole = client::MergeStates({alone->state, states[1]});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(std::get<std::uint64_t>(whole->Find("argmin")->value), 4);
}

}  // namespace
}  // namespace reduced::server
