// States of arrays of results: of parts, they merge into the results of the whole array, bit for bit.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/client.h"
#include "reduced/merge.h"
#include "tests/service/array_calls.h"
#include "tests/service/test_server.h"

namespace reduced::server::arrays_state {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = grpc::StatusCode;
using Shape = std::vector<std::int64_t>;

constexpr v1::Op kExactOps[] = {v1::OP_SUM,   v1::OP_MEAN,  v1::OP_VAR,          v1::OP_L1,
                                v1::OP_MIN,   v1::OP_MAX,   v1::OP_ARGMIN,       v1::OP_ARGMAX,
                                v1::OP_RANGE, v1::OP_COUNT, v1::OP_COUNT_NONZERO};

// An array, row-major.
struct Whole {
  v1::DType dtype;
  std::size_t width;
  Shape shape;
  std::string bytes{};
  std::string mask{};                // bool; empty: none
  std::vector<std::int32_t> keys{};  // of dimension 0; empty: none
};

// Of dimensions [begin, end) along `axis`.
Whole PartOf(const Whole& whole, std::size_t axis, std::int64_t begin, std::int64_t end) {
  Whole part = whole;
  part.shape[axis] = end - begin;
  std::size_t outer = 1;
  std::size_t inner = 1;
  for (std::size_t i = 0; i < whole.shape.size(); ++i) {
    (i < axis ? outer : inner) *= i == axis ? 1 : static_cast<std::size_t>(whole.shape[i]);
  }
  const auto cut = [&](const std::string& from, std::size_t width) {
    std::string to;
    const std::size_t row = inner * width;
    for (std::size_t i = 0; i < outer && !from.empty(); ++i) {
      to += from.substr((i * static_cast<std::size_t>(whole.shape[axis]) + static_cast<std::size_t>(begin)) * row,
                        static_cast<std::size_t>(end - begin) * row);
    }
    return to;
  };
  part.bytes = cut(whole.bytes, whole.width);
  part.mask = cut(whole.mask, 1);
  if (axis == 0 && !whole.keys.empty()) part.keys.assign(whole.keys.begin() + begin, whole.keys.begin() + end);
  return part;
}

void Describe(v1::DType dtype, const Shape& shape, v1::ArraySpec* to) {
  to->set_dtype(dtype);
  to->mutable_shape()->Assign(shape.begin(), shape.end());
}

v1::ReduceRequest RequestFor(const Whole& array, const v1::ReduceRequest& question) {
  v1::ReduceRequest request = question;
  Describe(array.dtype, array.shape, request.mutable_array());
  request.set_inline_data(array.bytes);
  if (request.has_keys()) {
    v1::SideArray& keys = *request.mutable_keys()->mutable_keys();
    Describe(v1::DTYPE_I32, {array.shape[0]}, keys.mutable_array());
    keys.set_inline_data(array.keys.data(), array.keys.size() * sizeof(std::int32_t));
  }
  if (request.has_where()) {
    v1::SideArray& mask = *request.mutable_where()->mutable_elements();
    Describe(v1::DTYPE_BOOL, array.shape, mask.mutable_array());
    mask.set_inline_data(array.mask);
  }
  return request;
}

// Random elements with many equal ones and, of floats, far apart exponents; a mask, and keys that parts lack.
Whole RandomArray(v1::DType dtype, const Shape& shape) {
  std::mt19937_64 random(1);
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  Whole whole{.dtype = dtype, .width = dtype == v1::DTYPE_I16 ? 2U : dtype == v1::DTYPE_F32 ? 4U : 8U, .shape = shape};
  for (std::int64_t i = 0; i < count; ++i) {
    const int number = static_cast<int>(random() % 41) - 20;
    const double wide = std::ldexp(number, static_cast<int>(random() % 80) - 40);
    const auto append = [&](auto value) { whole.bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
    if (dtype == v1::DTYPE_I16) append(static_cast<std::int16_t>(number));
    if (dtype == v1::DTYPE_F32) append(static_cast<float>(wide));
    if (dtype == v1::DTYPE_F64) append(wide);
    whole.mask.push_back(static_cast<char>(random() % 4 != 0));
  }
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    whole.keys.push_back(static_cast<std::int32_t>(random() % 3 + (i < shape[0] / 2 ? 0 : 2)));
  }
  return whole;
}

class ArraysStateTest : public ::testing::Test {
 protected:
  ArraysStateTest() : stub_(v1::Reduction::NewStub(server_.client().channel())) {}

  static ServerOptions Options() {
    ServerOptions options;
    options.limits.max_result_bytes = 1 << 20;
    options.engines.memory = std::make_shared<MemoryBudget>(64 << 20);
    return options;
  }
  v1::ReduceResponse Reduce(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Merge(const v1::MergeRequest& request, v1::MergeResponse* response) {
    grpc::ClientContext context;
    SetContextDeadline(&context);
    return stub_->Merge(&context, request, response);
  }

  // The states of the array cut at these places along `axis`, merged, against the array as a whole.
  void ExpectMerges(const Whole& whole, const v1::ReduceRequest& question, std::size_t axis,
                    const std::vector<std::int64_t>& cuts) {
    v1::ReduceRequest with_state = question;
    with_state.set_return_state(true);
    v1::MergeRequest request;
    request.set_return_state(true);
    std::int64_t begin = 0;
    for (const std::int64_t end : cuts) {
      v1::ReduceResponse part = Reduce(RequestFor(PartOf(whole, axis, begin, end), with_state));
      *request.add_arrays() = part.arrays_state();
      begin = end;
    }
    v1::MergeResponse merged;
    const grpc::Status status = Merge(request, &merged);
    ASSERT_TRUE(status.ok()) << status.error_message();
    const v1::ReduceResponse right = Reduce(RequestFor(whole, question));
    ASSERT_EQ(merged.arrays_size(), right.arrays_size());
    EXPECT_EQ(merged.count(), right.count());
    for (int i = 0; i < right.arrays_size(); ++i) {
      EXPECT_EQ(merged.arrays(i).SerializeAsString(), right.arrays(i).SerializeAsString())
          << v1::Op_Name(right.arrays(i).op());
    }
    EXPECT_EQ(merged.keys().SerializeAsString(), right.keys().SerializeAsString());
    // Its state is that of the whole, and the results beside it are, too.
    const v1::ReduceResponse all = Reduce(RequestFor(whole, with_state));
    EXPECT_EQ(merged.arrays_state().SerializeAsString(), all.arrays_state().SerializeAsString());
    for (int i = 0; i < right.arrays_size(); ++i) EXPECT_EQ(all.arrays(i).data(), right.arrays(i).data());
  }

  const ServerOptions options_ = Options();
  TestServer server_{options_};
  const std::unique_ptr<v1::Reduction::Stub> stub_;
};

v1::ReduceRequest Ask(const std::vector<v1::Op>& ops = {std::begin(kExactOps), std::end(kExactOps)}) {
  v1::ReduceRequest question;
  for (const v1::Op op : ops) question.add_ops(op);
  return question;
}

TEST_F(ArraysStateTest, AlongAxes) {
  for (const v1::DType dtype : {v1::DTYPE_I16, v1::DTYPE_F32, v1::DTYPE_F64}) {
    const Whole whole = RandomArray(dtype, {12, 9, 5});
    const struct {
      std::vector<int> axes;
      std::size_t first;  // of the dimensions that are reduced
      std::vector<std::int64_t> cuts;
    } cases[] = {
        {{0}, 0, {4, 5, 12}},     {{1}, 1, {1, 8, 9}},        {{2}, 2, {2, 3, 5}},
        {{0, 2}, 0, {3, 11, 12}}, {{2, 1, 0}, 0, {1, 2, 12}},
    };
    for (const auto& each : cases) {
      SCOPED_TRACE(::testing::Message() << v1::DType_Name(dtype) << " along " << each.axes.size() << " axes from "
                                        << each.first);
      v1::ReduceRequest question = Ask();
      question.mutable_axes()->mutable_axis()->Add(each.axes.begin(), each.axes.end());
      ExpectMerges(whole, question, each.first, each.cuts);
      question.mutable_where();
      question.set_empty(v1::EMPTY_POLICY_FILL);
      ExpectMerges(whole, question, each.first, each.cuts);
    }
  }
}

// Outputs of several blocks, on a lane.
TEST_F(ArraysStateTest, OfMoreElements) {
  v1::ReduceRequest columns = Ask();
  columns.mutable_axes()->add_axis(0);
  ExpectMerges(RandomArray(v1::DTYPE_F32, {30'000, 40}), columns, 0, {1, 20'000, 30'000});
  v1::ReduceRequest rows = Ask();
  rows.mutable_axes()->add_axis(1);
  ExpectMerges(RandomArray(v1::DTYPE_F64, {3, 200'000}), rows, 1, {100'000, 100'001, 200'000});
}

TEST_F(ArraysStateTest, UnderAMaskAlone) {
  v1::ReduceRequest question = Ask();
  question.mutable_where();
  ExpectMerges(RandomArray(v1::DTYPE_F32, {1000}), question, 0, {1, 333, 1000});
}

TEST_F(ArraysStateTest, ByKeys) {
  for (const Shape& shape : {Shape{60}, Shape{60, 3}}) {
    const Whole whole = RandomArray(v1::DTYPE_F32, shape);
    v1::ReduceRequest question = Ask();
    question.mutable_keys();
    ExpectMerges(whole, question, 0, {20, 30, 60});  // the last part lacks keys 0 and 1, those before 3 and 4
    ExpectMerges(whole, question, 0, {0, 30, 60});   // a part without elements has no keys
    ExpectMerges(whole, question, 0, {60, 60});
    question.mutable_where();
    ExpectMerges(whole, question, 0, {20, 30, 60});
    question.mutable_keys()->set_groups(7);
    question.set_empty(v1::EMPTY_POLICY_FILL);
    ExpectMerges(whole, question, 0, {20, 30, 60});
  }
}

// A part that has no result by itself.
TEST_F(ArraysStateTest, WithoutResults) {
  const auto part = [](std::int64_t number) {
    return Whole{.dtype = v1::DTYPE_I64,
                 .width = 8,
                 .shape = {2, 1},
                 .bytes = std::string(reinterpret_cast<const char*>(std::vector{number, number}.data()), 16)};
  };
  v1::ReduceRequest question = Ask({v1::OP_SUM});
  question.mutable_axes()->add_axis(0);
  question.set_return_state(true);
  v1::ReduceResponse response;
  EXPECT_EQ(server_.client().Reduce(RequestFor(part(INT64_MAX), question), &response).error_code(), Code::OUT_OF_RANGE);
  question.set_omit_results(true);
  v1::MergeRequest request;
  for (const std::int64_t number : {INT64_MAX, -INT64_MAX}) {
    const v1::ReduceResponse without = Reduce(RequestFor(part(number), question));
    EXPECT_EQ(without.arrays_size(), 0);
    *request.add_arrays() = without.arrays_state();
  }
  v1::MergeResponse merged;
  ASSERT_TRUE(Merge(request, &merged).ok());
  EXPECT_EQ(merged.arrays(0).data(), std::string(8, '\0'));
  request.mutable_arrays()->RemoveLast();
  const grpc::Status overflow = Merge(request, &merged);
  EXPECT_EQ(overflow.error_code(), Code::OUT_OF_RANGE);
  EXPECT_THAT(overflow.error_message(), HasSubstr("output [0]: integer overflow"));
  request.set_op_errors(true);
  EXPECT_EQ(Merge(request, &merged).error_code(), Code::OUT_OF_RANGE) << "no op has an answer";
  v1::MergeRequest two;
  question.clear_omit_results();
  question.add_ops(v1::OP_MEAN);
  question.set_op_errors(true);
  const v1::ReduceResponse some = Reduce(RequestFor(part(INT64_MAX), question));
  *two.add_arrays() = some.arrays_state();
  two.set_op_errors(true);
  ASSERT_TRUE(Merge(two, &merged).ok());
  for (const auto& arrays : {some.arrays(), merged.arrays()}) {
    ASSERT_EQ(arrays.size(), 2);
    EXPECT_THAT(arrays[0].error().message(), HasSubstr("output [0]: integer overflow"));
    EXPECT_EQ(arrays[1].data().size(), sizeof(double));
  }
  question.mutable_ops()->RemoveLast();
  question.set_omit_results(true);
  request.set_return_state(true);
  request.set_omit_results(true);
  ASSERT_TRUE(Merge(request, &merged).ok());
  EXPECT_EQ(merged.arrays_size(), 0);
  EXPECT_EQ(merged.arrays_state().SerializeAsString(), request.arrays(0).SerializeAsString());
  question.mutable_keep();
  EXPECT_EQ(server_.client().Reduce(RequestFor(part(1), question), &response).error_code(), Code::INVALID_ARGUMENT);
}

TEST_F(ArraysStateTest, TooManyForAResponseOrTheMemory) {
  Whole wide{.dtype = v1::DTYPE_F32, .width = 4, .shape = {0, 20'000}};
  v1::ReduceRequest question = Ask({v1::OP_VAR});
  question.mutable_axes()->add_axis(0);
  question.set_return_state(true);
  v1::ReduceResponse response;
  grpc::Status status = server_.client().Reduce(RequestFor(wide, question), &response);
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("no memory for the states of a request"));
  wide.shape[1] = 100'000;
  status = server_.client().Reduce(RequestFor(wide, question), &response);
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("return_state: got states of 100000 outputs, of"));
  // That they are too large is found out only when they are there.
  Whole numbers = RandomArray(v1::DTYPE_F64, {2, 8'000});
  status = server_.client().Reduce(RequestFor(numbers, question), &response);
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("return_state: got states of 8000 outputs, of"));
  EXPECT_TRUE(AwaitThat([&] { return options_.engines.memory->taken() == 0; }));
  // What is merged is within the memory, too: parts one after the other, ...
  numbers = RandomArray(v1::DTYPE_F64, {2, 2'000});
  const v1::ReduceResponse part = Reduce(RequestFor(numbers, question));
  v1::MergeRequest request;
  for (int i = 0; i < 8; ++i) *request.add_arrays() = part.arrays_state();
  v1::MergeResponse merged;
  status = Merge(request, &merged);
  EXPECT_TRUE(status.ok()) << status.error_message();
  // ... and the outputs of each.
  v1::ArraysState large = part.arrays_state();
  for (int i = 1; i < 8; ++i) large.mutable_outputs()->MergeFrom(part.arrays_state().outputs());
  large.set_shape(0, large.outputs_size());
  request.clear_arrays();
  *request.add_arrays() = large;
  status = Merge(request, &merged);
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("no memory for the states of a request"));
}

TEST_F(ArraysStateTest, WhatIsRefused) {
  const Whole whole = RandomArray(v1::DTYPE_F32, {6, 2});
  v1::ReduceRequest question = Ask({v1::OP_SUM, v1::OP_ARGMAX});
  question.set_return_state(true);
  v1::ReduceRequest segments = RequestFor(whole, question);
  segments.mutable_segments();
  v1::ReduceResponse response;
  EXPECT_THAT(server_.client().Reduce(segments, &response).error_message(),
              HasSubstr("return_state: got true with segments; allowed: false, or true with axes, keys or where"));
  question.mutable_keys();
  const v1::ArraysState good = Reduce(RequestFor(whole, question)).arrays_state();
  using Change = std::function<void(v1::ArraysState*)>;
  const struct {
    const char* message;
    Change change;
  } cases[] = {
      {"arrays[1]: version: got 2; allowed: 1", [](auto* s) { s->set_version(2); }},
      {"arrays[1]: empty: got 0; allowed: 1 to 2", [](auto* s) { s->clear_empty(); }},
      {"arrays[1]: empty: got another than the first state has", [](auto* s) { s->set_empty(v1::EMPTY_POLICY_FILL); }},
      {"arrays[1]: count: got -1; allowed: 0 to", [](auto* s) { s->set_count(-1); }},
      {"arrays[1]: count: got 1099511627776 after 12 of the states before", [](auto* s) { s->set_count(1LL << 40); }},
      {"arrays[1]: positions: got -1", [](auto* s) { s->set_positions(-1); }},
      {"arrays[1]: question: version: got 0", [](auto* s) { s->clear_question(); }},
      {"arrays[1]: question: count: got 1", [](auto* s) { s->mutable_question()->set_count(1); }},
      {"arrays[1]: shape: got -1; allowed: 0 and more", [](auto* s) { s->set_shape(0, -1); }},
      {"arrays[1]: shape: got more outputs than 64 bits can count",
       [](auto* s) { s->set_shape(0, INT64_MAX), s->set_shape(1, 3); }},
      {"arrays[1]: outputs: got", [](auto* s) { s->mutable_outputs()->RemoveLast(); }},
      {"arrays[1]: outputs[0]: version: got 0", [](auto* s) { s->mutable_outputs(0)->Clear(); }},
      {"arrays[1]: outputs[0]: ops: got another than the first state has",
       [](auto* s) { s->mutable_outputs(0)->mutable_ops()->SwapElements(0, 1); }},
      {"arrays[1]: outputs[0]: extrema.max_index: got 6; allowed: less than positions, which is 6",
       [](auto* s) { s->mutable_outputs(0)->mutable_extrema()->set_max_index(6); }},
      {"arrays[1]: keys.data: got key 1 out of order; allowed: ascending",
       [](auto* s) { s->mutable_keys()->set_data(std::string(s->keys().data().size(), '\0')); }},
      {"arrays[1]: keys.data: got", [](auto* s) { s->mutable_keys()->mutable_data()->resize(1); }},
      {"arrays[1]: keys.array.shape: got another", [](auto* s) { s->mutable_keys()->mutable_array()->clear_shape(); }},
      {"arrays[1]: keys.array.dtype: got another; allowed: integers",
       [](auto* s) { s->mutable_keys()->mutable_array()->set_dtype(v1::DTYPE_F32); }},
      {"arrays[1]: keys.array.dtype: got another than the first state has", [](auto* s) { s->clear_keys(); }},
      {"arrays[1]: shape: got another than the first state has", [](auto* s) { s->add_shape(1); }},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.message);
    v1::MergeRequest request;
    *request.add_arrays() = good;
    each.change(&(*request.add_arrays() = good));
    v1::MergeResponse merged;
    const grpc::Status status = Merge(request, &merged);
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(each.message));
  }
  v1::MergeRequest both;
  *both.add_arrays() = good;
  *both.add_states() = good.question();
  v1::MergeResponse merged;
  EXPECT_THAT(Merge(both, &merged).error_message(), HasSubstr("arrays: got some beside states; allowed: either"));
}

TEST_F(ArraysStateTest, TheClientLibrary) {
  const auto connection = client::Client::Create({.server = server_.address(), .timeout = kPatience}).value();
  const std::vector<float> samples = {1, 2, 4, 8, 16, 32};
  const std::vector<std::int32_t> keys = {5, 7, 5, -1, 7, 5};
  std::vector<std::string> states;
  for (const int begin : {0, 3}) {
    client::PartitionOptions by;
    by.keys = client::Keys{client::ArrayView::Of(keys.data() + begin, 3)};
    const auto reply = connection->ReduceArray(client::ArrayView::Of(samples.data() + begin, 3), {"sum", "argmax"}, by,
                                               {.return_state = true});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(client::IsArrayState(reply->state));
    states.push_back(reply->state);
  }
  const auto check = [&](const absl::StatusOr<client::MergeArraysReply>& merged) {
    ASSERT_TRUE(merged.ok()) << merged.status();
    EXPECT_EQ(merged->count, 6);
    EXPECT_THAT(merged->keys.array.As<std::int32_t>(), ElementsAre(-1, 5, 7));
    EXPECT_THAT(merged->results[0].array.As<double>(), ElementsAre(8, 37, 18));
    EXPECT_THAT(merged->results[1].array.As<std::uint64_t>(), ElementsAre(3, 5, 4));
    EXPECT_TRUE(client::IsArrayState(merged->state));
  };
  check(client::MergeArrayStates(states, {.return_state = true}));
  check(connection->MergeArrays(states, {.return_state = true}));
  EXPECT_FALSE(client::IsArrayState(""));
  EXPECT_FALSE(client::IsArrayState("\x08"));  // ends within its first field
  // Its beginning tells, so that whoever merges it is told what is wrong with the rest.
  const std::string cut = states[0].substr(0, states[0].size() / 2);
  EXPECT_TRUE(client::IsArrayState(cut));
  EXPECT_THAT(std::string(client::MergeArrayStates({cut}, {.names = {"cut"}}).status().message()),
              HasSubstr("cut: got"));
  states.emplace_back("x");
  const absl::Status wrong = client::MergeArrayStates(states, {.names = {"a", "b", "c"}}).status();
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("c: got 1 bytes that aren't a state of arrays of results"));
  const auto plain = connection->Reduce(client::ArrayView::Of(samples), {"sum"}, {.return_state = true});
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(client::IsArrayState(plain->state));
  // One of each kind: the error names the kind, by whichever function.
  const std::string array = "a state of arrays of results";
  const std::string value = "a state of one result for each op";
  const auto mixed = [&](const absl::Status& status, const std::string& got, const std::string& allowed) {
    EXPECT_EQ(status,
              absl::InvalidArgumentError("states[1]: got " + got + "; allowed: " + allowed + ", as the first is"));
  };
  const std::vector<std::string> value_first = {plain->state, states[0]};
  const std::vector<std::string> array_first = {states[0], plain->state};
  mixed(client::MergeStates(value_first).status(), array, "of one result for each op");
  mixed(connection->Merge(value_first).status(), array, "of one result for each op");
  mixed(client::MergeArrayStates(array_first).status(), value, "of arrays of results");
  mixed(connection->MergeArrays(array_first).status(), value, "of arrays of results");
  EXPECT_EQ(client::MergeStates({states[0]}).status(),
            absl::InvalidArgumentError("states[0]: got " + array + "; allowed: of one result for each op"));
}

}  // namespace
}  // namespace reduced::server::arrays_state
