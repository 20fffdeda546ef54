// Merging states of arrays of results, without a server: what belongs to which key, in which order, and when it stops.
#include "proto/codec/arrays_state.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "proto/codec/merge.h"
#include "reduced/v1/reduced.pb.h"
#include "tests/support/fold.h"

namespace reduced {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t kColumns = 2;

// Consecutive rows of a matrix with a key each, which ascend.
struct Rows {
  std::vector<std::int32_t> keys;
  std::vector<double> elements{};  // kColumns for each key
};

ReduceSpec SumAndArgmax(std::size_t rows) {
  return {.dtype = DType::kF64, .count = static_cast<std::int64_t>(rows), .ops = {Op::kSum, Op::kArgmax}};
}

v1::ArraysState StateOf(const Rows& rows, std::size_t columns = kColumns) {
  const ReduceSpec spec = SumAndArgmax(rows.keys.size() * columns);
  std::vector<State> outputs;
  for (std::size_t row = 0; row < rows.keys.size(); ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      State output = test::Fold(SumAndArgmax(1), &rows.elements[row * columns + column], 0, 1);
      Shift(static_cast<std::int64_t>(row), &output);
      outputs.push_back(std::move(output));
    }
  }
  v1::ArraysState state;
  ToProto(spec, static_cast<std::int64_t>(rows.keys.size()), outputs, &state);
  state.set_empty(v1::EMPTY_POLICY_ERROR);
  state.add_shape(static_cast<std::int64_t>(rows.keys.size()));
  state.add_shape(static_cast<std::int64_t>(columns));
  state.mutable_keys()->mutable_array()->set_dtype(v1::DTYPE_I32);
  state.mutable_keys()->mutable_array()->add_shape(static_cast<std::int64_t>(rows.keys.size()));
  state.mutable_keys()->set_data(rows.keys.data(), rows.keys.size() * sizeof(std::int32_t));
  return state;
}

template <class T>
std::vector<T> ElementsOf(const std::string& data) {
  std::vector<T> elements(data.size() / sizeof(T));
  std::memcpy(elements.data(), data.data(), data.size());
  return elements;
}

// Keys in any order of parts, parts without any, and sums that depend on the order in which they are added.
TEST(ArraysMerger, AddsUpEachKeyInTheOrderOfTheParts) {
  std::mt19937_64 random(1);
  std::map<std::int32_t, std::vector<double>> sums;
  std::map<std::int32_t, std::vector<std::pair<double, std::uint64_t>>> largest;  // and where it is
  ArraysMerger merger({});
  std::uint64_t position = 0;
  for (int part = 0; part < 60; ++part) {
    Rows rows;
    for (std::int32_t key = -20; key < 20; ++key) {
      if (part % 3 == 1 || random() % 4 != 0) continue;
      rows.keys.push_back(key);
      std::vector<double>& sum = sums.try_emplace(key, kColumns, 0.0).first->second;
      auto& most = largest.try_emplace(key, kColumns, std::pair(-1.0, 0)).first->second;
      for (std::size_t column = 0; column < kColumns; ++column) {
        const double element = static_cast<double>(random() >> 11) * 0x1p-30;
        rows.elements.push_back(element);
        sum[column] += element;
        if (element > most[column].first) most[column] = {element, position};
      }
      ++position;
    }
    ASSERT_TRUE(merger.Append(StateOf(rows), "part").ok());
  }
  std::vector<std::int32_t> keys;
  std::vector<double> right_sums;
  std::vector<std::uint64_t> right_places;
  for (const auto& [key, sum] : sums) {
    keys.push_back(key);
    for (std::size_t column = 0; column < kColumns; ++column) {
      right_sums.push_back(sum[column]);
      right_places.push_back(largest[key][column].second);
    }
  }
  EXPECT_EQ(merger.keys(), static_cast<std::int64_t>(keys.size()));
  EXPECT_EQ(merger.outputs(), static_cast<std::int64_t>(right_sums.size()));
  v1::MergeResponse merged;
  ASSERT_TRUE(merger.Finish({.state = true}, &merged).ok());
  EXPECT_EQ(merged.count(), static_cast<std::int64_t>(position * kColumns));
  EXPECT_EQ(ElementsOf<std::int32_t>(merged.keys().data()), keys);
  EXPECT_EQ(ElementsOf<double>(merged.arrays(0).data()), right_sums);
  EXPECT_EQ(ElementsOf<std::uint64_t>(merged.arrays(1).data()), right_places);
  // The state of the whole merges as its parts do.
  ArraysMerger again({});
  ASSERT_TRUE(again.Append(merged.arrays_state(), "whole").ok());
  ASSERT_TRUE(again.Append(StateOf({}), "nothing").ok());
  v1::MergeResponse same;
  ASSERT_TRUE(again.Finish({.state = true}, &same).ok());
  EXPECT_EQ(same.SerializeAsString(), merged.SerializeAsString());
}

TEST(ArraysMerger, KeysWithoutOutputs) {
  ArraysMerger merger({});
  ASSERT_TRUE(merger.Append(StateOf({.keys = {3, 5}}, 0), "first").ok());
  ASSERT_TRUE(merger.Append(StateOf({.keys = {1, 3}}, 0), "second").ok());
  v1::MergeResponse merged;
  ASSERT_TRUE(merger.Finish({.state = true}, &merged).ok());
  EXPECT_THAT(ElementsOf<std::int32_t>(merged.keys().data()), ElementsAre(1, 3, 5));
  EXPECT_THAT(merged.arrays_state().shape(), ElementsAre(3, 0));
}

// The state of the argmax of a block of a matrix of `columns`, whose elements are where they stand in it modulo 7: of
// each row or of the whole block.
v1::ArraysState StateOfBlock(std::int64_t columns, std::int64_t begin, std::int64_t width, bool of_rows) {
  constexpr std::int64_t kRows = 6;
  const std::int64_t outputs = of_rows ? kRows : 1;
  const std::int64_t positions = kRows * width / outputs;
  std::vector<State> states;
  for (std::int64_t output = 0; output < outputs; ++output) {
    std::vector<double> elements;
    for (std::int64_t i = output * positions; i < (output + 1) * positions; ++i) {
      elements.push_back(static_cast<double>((i / width * columns + begin + i % width) % 7));
    }
    states.push_back(test::Fold(SumAndArgmax(elements.size()), elements.data(), 0, positions));
  }
  v1::ArraysState state;
  ToProto(SumAndArgmax(static_cast<std::size_t>(kRows * width)), positions, states, &state);
  state.set_empty(v1::EMPTY_POLICY_ERROR);
  if (of_rows) state.add_shape(outputs);
  return state;
}

// Blocks side by side: the lowest index among equal elements, of which a later part has some that come first.
TEST(MergeStates, BlocksSideBySideHaveTheIndexesOfTheWhole) {
  constexpr std::int64_t kColumns = 10;
  for (const bool of_rows : {false, true}) {
    v1::MergeRequest request;
    request.set_return_state(true);
    std::int64_t begin = 0;
    for (const std::int64_t width : {3, 0, 1, 6}) {
      *request.add_arrays() = StateOfBlock(kColumns, begin, width, of_rows);
      begin += width;
    }
    const std::int64_t rows = of_rows ? 1 : 6;
    v1::MergeResponse merged;
    ASSERT_TRUE(MergeStates(request, StateLimits(), {}, &merged, rows).ok());
    const v1::ArraysState whole = StateOfBlock(kColumns, 0, kColumns, of_rows);
    EXPECT_EQ(merged.arrays_state().SerializeAsString(), whole.SerializeAsString());
    // The same of one result for each op.
    if (of_rows) continue;
    v1::MergeRequest values;
    values.set_return_state(true);
    for (const v1::ArraysState& block : request.arrays()) *values.add_states() = block.outputs(0);
    v1::MergeResponse value;
    ASSERT_TRUE(MergeStates(values, StateLimits(), {}, &value, rows).ok());
    EXPECT_EQ(value.state().SerializeAsString(), whole.outputs(0).SerializeAsString());
    EXPECT_EQ(value.results(1).value().u(), 6);
  }
}

TEST(MergeStates, RowsThatPartsDoNotHave) {
  v1::MergeRequest request;
  *request.add_arrays() = StateOfBlock(4, 0, 4, /*of_rows=*/false);
  const auto message = [&request](std::int64_t rows) {
    v1::MergeResponse merged;
    const absl::Status status = MergeStates(request, StateLimits(), {}, &merged, rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << rows;
    return std::string(status.message());
  };
  EXPECT_EQ(message(5), "arrays[0]: positions: got 24 with 5 rows; allowed: as many elements in each row");
  EXPECT_EQ(message(0), "rows: got 0; allowed: 1 or more");
  v1::MergeRequest values;
  *values.add_states() = request.arrays(0).outputs(0);
  v1::MergeResponse merged;
  EXPECT_EQ(MergeStates(values, StateLimits(), {}, &merged, 7).message(),
            "states[0]: count: got 24 with 7 rows; allowed: as many elements in each row");
  *request.mutable_arrays(0) = StateOf({.keys = {3, 5}, .elements = {1, 2, 3, 4}});
  EXPECT_EQ(message(2), "rows: got 2 with outputs by keys; allowed: 1");
  // Counts that no array has fail as they do in one row.
  for (const std::int64_t count : {std::int64_t{-2}, std::numeric_limits<std::int64_t>::max() - 1}) {
    values = {};
    for (int i = 0; i < 2; ++i) *values.add_states() = StateOfBlock(4, 0, 4, /*of_rows=*/false).outputs(0);
    values.mutable_states(1)->set_count(count);
    EXPECT_FALSE(MergeStates(values, StateLimits(), {}, &merged, 2).ok());
  }
}

TEST(MergeStates, AnOpWithoutAnAnswerTakesNoOtherWithIt) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  const std::vector<std::int64_t> elements = {1, 2, kLarge, kLarge};
  const ReduceSpec spec{.dtype = DType::kI64, .count = 4, .ops = {Op::kMax, Op::kSum, Op::kMin}};
  std::vector<State> outputs;
  for (std::int64_t i = 0; i < 4; i += 2)
    outputs.emplace_back(test::Fold(spec, &elements[static_cast<std::size_t>(i)], 0, 2));
  v1::MergeRequest request;
  v1::ArraysState& part = *request.add_arrays();
  ToProto(spec, 2, outputs, &part);
  part.set_empty(v1::EMPTY_POLICY_ERROR);
  part.add_shape(2);
  v1::MergeResponse merged;
  EXPECT_EQ(MergeStates(request, StateLimits(), {}, &merged).code(), absl::StatusCode::kOutOfRange);
  merged.Clear();
  request.set_op_errors(true);
  ASSERT_TRUE(MergeStates(request, StateLimits(), {}, &merged).ok());
  ASSERT_EQ(merged.arrays_size(), 3);
  EXPECT_THAT(ElementsOf<std::int64_t>(merged.arrays(0).data()), ElementsAre(2, kLarge));
  EXPECT_EQ(merged.arrays(1).op(), v1::OP_SUM);
  EXPECT_FALSE(merged.arrays(1).has_data());
  EXPECT_EQ(merged.arrays(1).error().code(), static_cast<int>(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(merged.arrays(1).error().message(), ::testing::StartsWith("output [1]: integer overflow: the sum"));
  EXPECT_THAT(ElementsOf<std::int64_t>(merged.arrays(2).data()), ElementsAre(1, kLarge));
  v1::MergeRequest values;
  *values.add_states() = part.outputs(1);
  values.set_op_errors(true);
  merged.Clear();
  ASSERT_TRUE(MergeStates(values, StateLimits(), {}, &merged).ok());
  ASSERT_EQ(merged.results_size(), 3);
  EXPECT_EQ(merged.results(0).value().i(), kLarge);
  EXPECT_FALSE(merged.results(1).has_value());
  EXPECT_THAT(merged.results(1).error().message(), ::testing::StartsWith("integer overflow: the sum"));
  EXPECT_EQ(merged.results(2).value().i(), kLarge);
  // If no op has an answer, there is none.
  values.mutable_states(0)->clear_ops();
  values.mutable_states(0)->add_ops(v1::OP_SUM);
  values.mutable_states(0)->clear_extrema();
  merged.Clear();
  EXPECT_EQ(MergeStates(values, StateLimits(), {}, &merged).code(), absl::StatusCode::kOutOfRange);
}

// Merging two parts of so many outputs, until it has been asked `times` whether to stop.
absl::Status MergeUntil(const v1::ArraysState& part, int times, int* asked) {
  *asked = 0;
  ArraysMerger merger({},
                      [&] { return ++*asked > times ? absl::DeadlineExceededError("it is late") : absl::OkStatus(); });
  v1::MergeResponse merged;
  absl::Status status = merger.Append(part, "first");
  if (status.ok()) status = merger.Append(part, "second");
  return status.ok() ? merger.Finish({.state = true}, &merged) : status;
}

TEST(ArraysMerger, StopsWithinAPartAndAtTheEnd) {
  constexpr int kRows = 2000;
  Rows rows;
  for (std::int32_t key = 0; key < kRows; ++key) rows.keys.push_back(key);
  rows.elements.assign(kRows * kColumns, 1);
  const v1::ArraysState part = StateOf(rows);
  int all = 0;
  ASSERT_TRUE(MergeUntil(part, 1'000'000, &all).ok());
  // Twice for each part, then for the results and for the state: about every 1000 outputs.
  EXPECT_GE(all, 6 * static_cast<int>(kRows * kColumns) / 1024);
  for (int times = 0; times < all; ++times) {
    int asked = 0;
    EXPECT_EQ(MergeUntil(part, times, &asked), absl::DeadlineExceededError("it is late")) << times;
    EXPECT_EQ(asked, times + 1);
  }
}

}  // namespace
}  // namespace reduced
