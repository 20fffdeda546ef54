// Ops about two arrays through the RPCs and the client library: where y and the weights may be, what goes with what,
// states of parts, and what hostile requests ask.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/folds/compare.h"
#include "reduced/client.h"
#include "reduced/merge.h"
#include "reduced/ops.h"
#include "tests/service/array_calls.h"
#include "tests/service/test_server.h"

namespace reduced::server::pairs {
namespace {

using client::ArrayReply;
using client::ArrayView;
using client::Client;
using client::PartitionOptions;
using client::RemoteArray;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = grpc::StatusCode;

const std::vector<double> kX = {1, 2, 3, 4, 5, 6}, kY = {2, 1, 0, -1, 3, 0.5};
constexpr double kDot = 2 + 2 + 0 - 4 + 15 + 3;

// The numbers of one op.
std::vector<double> NumbersOf(const absl::StatusOr<ArrayReply>& reply, std::size_t op = 0) {
  EXPECT_TRUE(reply.ok()) << reply.status();
  if (!reply.ok()) return {};
  EXPECT_TRUE(reply->results[op].error.ok()) << reply->results[op].error;
  const std::span<const double> numbers = reply->results[op].array.As<double>();
  return {numbers.begin(), numbers.end()};
}

template <class T>
v1::SideArray SideOf(v1::DType dtype, const std::vector<T>& elements, const std::vector<std::int64_t>& shape) {
  v1::SideArray side;
  side.mutable_array()->set_dtype(dtype);
  side.mutable_array()->mutable_shape()->Add(shape.begin(), shape.end());
  side.set_inline_data(elements.data(), elements.size() * sizeof(T));
  return side;
}

class PairsTest : public ::testing::Test {
 protected:
  absl::StatusOr<ArrayReply> Ask(const std::vector<std::string>& ops, PartitionOptions partition,
                                 const ArrayView& x = ArrayView::Of(kX)) {
    return client_->ReduceArray(x, ops, partition);
  }
  // Requests of kX and y, which are refused.
  void Refuses(const v1::ReduceRequest& request, Code code, const std::string& message) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_EQ(status.error_code(), code) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }
  static v1::ReduceRequest Request(v1::Op op) { return RequestOf(v1::DTYPE_F64, kX, {op}); }

  TestServer server_;
  const std::unique_ptr<Client> client_ = Client::Create({.server = server_.address(), .timeout = kPatience}).value();
};

TEST_F(PairsTest, WhereverTheyAre) {
  const client::ResidentArray x = client_->Put(ArrayView::Of(kX)).value(), y = client_->Put(ArrayView::Of(kY)).value();
  const client::SharedBuffer buffer = client::SharedBuffer::Allocate(sizeof(double) * 12).value();
  std::memcpy(buffer.data(), kX.data(), 48);
  std::memcpy(static_cast<char*>(buffer.data()) + 48, kY.data(), 48);
  const client::Region region = client_->Share(buffer).value();
  const RemoteArray xs[] = {RemoteArray::Resident(x.id()), region.Array("f64", {6})};
  const client::SideArray ys[] = {ArrayView::Of(kY), RemoteArray::Resident(y.id()), region.Array("f64", {6}, 48)};
  for (const client::SideArray& other : ys) {
    EXPECT_THAT(NumbersOf(Ask({"dot"}, {.y = other, .whole = true})), ElementsAre(kDot));
    EXPECT_THAT(NumbersOf(Ask({"weighted_mean"}, {.weights = other, .whole = true})), ElementsAre(kDot / 5.5));
    for (const RemoteArray& array : xs) {
      EXPECT_THAT(NumbersOf(client_->ReduceArray(array, {"dot"}, {.y = other, .whole = true})), ElementsAre(kDot));
    }
  }
}

TEST_F(PairsTest, BothOperandsAndOtherOps) {
  const auto reply = Ask({"dot", "weighted_sum", "sum", "median"},
                         {.y = ArrayView::Of(kY), .weights = ArrayView::Of(kX), .whole = true});
  EXPECT_THAT(NumbersOf(reply, 0), ElementsAre(kDot));
  EXPECT_THAT(NumbersOf(reply, 1), ElementsAre(91));
  EXPECT_THAT(NumbersOf(reply, 2), ElementsAre(21));
  EXPECT_THAT(NumbersOf(reply, 3), ElementsAre(3.5));
}

TEST_F(PairsTest, AlongAxesByKeysAndUnderMasks) {
  const ArrayView x = ArrayView::Of(kX, {{2, 3}});
  const ArrayView y = ArrayView::Of(kY, {{2, 3}});
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.axis = {1}, .y = y}, x)), ElementsAre(4, 14));
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.axis = {0}, .y = y}, x)), ElementsAre(-2, 17, 3));
  const std::vector<double> row = {1, 10, 100}, column = {1, -1};
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.axis = {1}, .y = ArrayView::Of(row)}, x)), ElementsAre(321, 654));
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.axis = {0}, .y = ArrayView::Of(column, {{2, 1}})}, x)), ElementsAre(-3, -3, -3));
  const std::vector<std::int32_t> keys = {7, 5};
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.keys = {{ArrayView::Of(keys)}}, .y = ArrayView::Of(row)}, x)),
              ElementsAre(4, 50, 600, 1, 20, 300));
  const std::vector<std::int64_t> offsets = {0, 1, 2};
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.segments = {{ArrayView::Of(offsets)}}, .y = ArrayView::Of(row)}, x)),
              ElementsAre(1, 20, 300, 4, 50, 600));
  const std::uint8_t bits[] = {0b101001};
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.where = {{ArrayView::Of(bits, 1), /*bits=*/true}}, .y = y, .whole = true}, x)),
              ElementsAre(2 - 4 + 3));
}

TEST_F(PairsTest, Compare) {
  const std::vector<double> y = {1, 2, 3.5, 4, 5, 7};
  EXPECT_THAT(NumbersOf(Ask({client::ops::Compare()}, {.y = ArrayView::Of(y), .whole = true})),
              ElementsAre(2, 2, 3, 3.5, 1, 5, 1 / 7.0, 2, ::testing::Gt(1), 2, 2, std::sqrt(1.25 / 6)));
  EXPECT_EQ(NumbersOf(Ask({client::ops::Compare(0.2)}, {.y = ArrayView::Of(y), .whole = true}))[0], 0);
  EXPECT_EQ(client::ops::Compare(1e-5, 0.25, true), "compare(rtol=1e-05,atol=0.25,equal_nan=true)");
  EXPECT_TRUE(client::CheckOp(client::ops::Compare(1e-5, 0.25, true)).ok());
  EXPECT_EQ(client::OtherOperandName("compare(rtol=1)"), "y");
  EXPECT_EQ(client::OtherOperandName("weighted_mean"), "weights");
  EXPECT_EQ(client::OtherOperandName("sum"), "");
}

TEST_F(PairsTest, WeightedQuantiles) {
  const std::vector<double> w = {1, 0, 2, 1, 3, 1};  // of 1 to 6
  const std::vector<std::string> ops = {"weighted_median", client::ops::WeightedQuantile({1, 0, 0.375, 0.5}), "sum"};
  const auto whole = Ask(ops, {.weights = ArrayView::Of(w), .whole = true});
  EXPECT_THAT(NumbersOf(whole, 0), ElementsAre(4));
  EXPECT_THAT(NumbersOf(whole, 1), ElementsAre(6, 1, 3, 4));
  EXPECT_THAT(NumbersOf(whole, 2), ElementsAre(21));
  const ArrayView x = ArrayView::Of(kX, {{2, 3}});
  const std::vector<double> row = {1, 1, 5}, column = {1, 3};
  EXPECT_THAT(NumbersOf(Ask({"weighted_median"}, {.axis = {1}, .weights = ArrayView::Of(row)}, x)), ElementsAre(3, 6));
  EXPECT_THAT(
      NumbersOf(Ask({"weighted_quantile(0.25,0.26)"}, {.axis = {0}, .weights = ArrayView::Of(column, {{2, 1}})}, x)),
      ElementsAre(1, 4, 2, 5, 3, 6));
  const std::vector<std::int32_t> keys = {2, 1, 2, 1, 2, 1};
  EXPECT_THAT(NumbersOf(Ask({"weighted_median"}, {.keys = {{ArrayView::Of(keys)}}, .weights = ArrayView::Of(w)})),
              ElementsAre(4, 3));
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const auto narrow = Ask({"weighted_median"}, {.weights = ArrayView::Of(w), .whole = true}, ArrayView::Of(floats));
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->results[0].array.dtype, "f32");
  EXPECT_EQ(narrow->results[0].array.As<float>()[0], 4);

  const auto refuses = [&](const std::string& op, const std::vector<double>& weights, client::ReduceOptions options) {
    return client_->ReduceArray(ArrayView::Of(kX), {op}, {.weights = ArrayView::Of(weights), .whole = true}, options)
        .status();
  };
  const std::vector<double> wrong = {1, 1, -1, 1, -2, 1};
  EXPECT_EQ(refuses("weighted_median", wrong, {}).message(),
            "weights: got 2 below 0 with op weighted_median; allowed: 0 or more");
  EXPECT_EQ(refuses("weighted_quantile(2)", w, {}).message(), "calls[0].quantile.q[0]: got 2; allowed: 0 to 1");
  const absl::Status state = refuses("weighted_median", w, {.return_state = true});
  EXPECT_EQ(state.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(state.message()), HasSubstr("return_state: got true with op weighted_median"));
  v1::MergeRequest merge;
  v1::ArraysState& hostile = *merge.add_arrays();
  hostile.set_version(1);
  hostile.set_empty(v1::EMPTY_POLICY_ERROR);
  v1::State& question = *hostile.mutable_question();
  question.set_version(1);
  question.set_dtype(v1::DTYPE_F64);
  question.add_calls()->set_op(v1::OP_WEIGHTED_MEDIAN);
  question.mutable_calls(0)->set_other(v1::DTYPE_F64);
  grpc::ClientContext context;
  EXPECT_THAT(server_.client().Call(&context, "Merge", merge.SerializeAsString()).error_message(),
              HasSubstr("calls: got weighted_median; allowed: ops that have states"));
}

TEST(ComparisonFigures, HaveTheNamesOfTheKernels) {
  ASSERT_EQ(std::size(client::ops::kComparisonFigures), std::size(kComparisonFiguresNames));
  for (std::size_t i = 0; i < std::size(kComparisonFiguresNames); ++i) {
    EXPECT_EQ(client::ops::kComparisonFigures[i], kComparisonFiguresNames[i].name);
  }
}

TEST_F(PairsTest, StatesOfPartsMerge) {
  const std::vector<std::string> ops = {"dot", "corr", "weighted_var", "compare(rtol=0.5)", "skew", "max"};
  const auto ask = [&](std::int64_t begin, std::int64_t end, bool state) {
    const auto part = [&](const std::vector<double>& all) { return ArrayView::Of(all.data() + begin, end - begin); };
    return client_->ReduceArray(part(kX), ops, {.y = part(kY), .weights = part(kX), .whole = true},
                                {.return_state = state, .results = !state});
  };
  const auto whole = ask(0, 6, false);
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::vector<std::string> states;
  for (const auto& [begin, end] : {std::pair(0, 2), {2, 2}, {2, 5}, {5, 6}}) {
    const auto part = ask(begin, end, true);
    ASSERT_TRUE(part.ok()) << part.status();
    states.push_back(part->state);
  }
  for (const bool here : {true, false}) {
    const auto merged = here ? client::MergeArrayStates(states) : client_->MergeArrays(states);
    ASSERT_TRUE(merged.ok()) << merged.status();
    ASSERT_EQ(merged->results.size(), ops.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(merged->results[i].array.data, whole->results[i].array.data) << ops[i];
    }
  }
}

TEST_F(PairsTest, DTypes) {
  const std::vector<std::int32_t> ints = {1, 2, 3, 4, 5, 6};
  const std::vector<float> floats = {2, 1, 0, -1, 3, 0.5F};
  const std::vector<std::uint64_t> wide = {~std::uint64_t{0}, 0, 0, 0, 0, 1};
  EXPECT_THAT(NumbersOf(Ask({"dot"}, {.y = ArrayView::Of(floats), .whole = true})), ElementsAre(kDot));
  for (const auto& [x, y] :
       {std::pair(ArrayView::Of(wide), ArrayView::Of(ints)), {ArrayView::Of(ints), ArrayView::Of(wide)}}) {
    EXPECT_EQ(Ask({"dot"}, {.y = y, .whole = true}, x).status().code(), absl::StatusCode::kOutOfRange);  // 2^64 + 5
  }
  const auto sum = Ask({"dot"}, {.y = ArrayView::Of(ints), .whole = true}, ArrayView::Of(ints));
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->results[0].array.dtype, "i64");
  EXPECT_EQ(Ask({"dot"}, {.y = ArrayView::Of(ints), .whole = true}).status().message(),
            "y: got dtype i32 with an array of f64; allowed: floats");
  EXPECT_EQ(
      Ask({"weighted_mean"}, {.weights = ArrayView::Of(floats), .whole = true}, ArrayView::Of(ints)).status().message(),
      "weights: got dtype f32 with an array of i32; allowed: integers and bool");
}

TEST_F(PairsTest, WhatIsRefused) {
  const std::vector<double> few = {1, 2};
  v1::ReduceRequest request = Request(v1::OP_DOT);
  Refuses(request, Code::INVALID_ARGUMENT, "y: got none with op dot; allowed: an array");
  *request.mutable_weights() = SideOf(v1::DTYPE_F64, kY, {6});
  Refuses(request, Code::INVALID_ARGUMENT, "y: got none with op dot");
  *request.mutable_y() = SideOf(v1::DTYPE_F64, kY, {6});
  Refuses(request, Code::INVALID_ARGUMENT, "weights: got an array without an op that takes it; allowed: none");
  for (const v1::Op op : {v1::OP_SUM, v1::OP_MEDIAN, v1::OP_WEIGHTED_MEAN}) {
    v1::ReduceRequest other = Request(op);
    *other.mutable_y() = SideOf(v1::DTYPE_F64, kY, {6});
    Refuses(other, Code::INVALID_ARGUMENT,
            op == v1::OP_WEIGHTED_MEAN ? "got " : "y: got an array without an op that takes it");
  }
  request = Request(v1::OP_DOT);
  for (const auto& [shape, elements] : {std::pair<std::vector<std::int64_t>, std::vector<double>>{{2}, few},
                                        {{1, 6}, kY},
                                        {{6, 1}, kY},
                                        {{3, 2}, kY}}) {
    *request.mutable_y() = SideOf(v1::DTYPE_F64, elements, shape);
    Refuses(request, Code::INVALID_ARGUMENT, "y");
  }
  *request.mutable_y() = SideOf(v1::DTYPE_F64, few, {6});
  Refuses(request, Code::INVALID_ARGUMENT, "y");
  *request.mutable_y() = SideOf(v1::DTYPE_UNSPECIFIED, kY, {6});
  Refuses(request, Code::INVALID_ARGUMENT, "y");
  request.mutable_y()->set_array_id("nothing");
  request.mutable_y()->clear_array();
  Refuses(request, Code::NOT_FOUND, "y");
  request.clear_y();
  request.mutable_y();
  Refuses(request, Code::INVALID_ARGUMENT, "y");
}

TEST_F(PairsTest, HostileOther) {
  v1::ReduceRequest request = RequestOf(v1::DTYPE_F64, kX, {});
  v1::OpCall& call = *request.add_calls();
  call.set_op(v1::OP_DOT);
  *request.mutable_y() = SideOf(v1::DTYPE_F64, kY, {6});
  call.set_other(v1::DTYPE_F32);
  Refuses(request, Code::INVALID_ARGUMENT, "calls.other: got f32 with y of f64; allowed: none, or its dtype");
  call.set_other(static_cast<v1::DType>(12345));
  Refuses(request, Code::INVALID_ARGUMENT, "calls[0].other: got");
  call.set_other(v1::DTYPE_F64);
  v1::ReduceResponse response;
  EXPECT_TRUE(server_.client().Reduce(request, &response).ok());
  call.set_op(v1::OP_SUM);
  request.clear_y();
  Refuses(request, Code::INVALID_ARGUMENT, "calls[0].other: got DTYPE_F64 with OP_SUM; allowed: none");
  call.clear_other();
  call.set_op(v1::OP_COMPARE);
  *request.mutable_y() = SideOf(v1::DTYPE_F64, kY, {6});
  for (const double wrong : {-1.0, std::nan(""), -HUGE_VAL}) {
    call.mutable_compare()->set_rtol(wrong);
    Refuses(request, Code::INVALID_ARGUMENT, "calls[0].compare.rtol: got ");
  }
  call.mutable_compare()->set_rtol(HUGE_VAL);
  call.mutable_compare()->set_atol(HUGE_VAL);
  EXPECT_TRUE(server_.client().Reduce(request, &response).ok());
}

// Memory of this process that is said to be a GPU's.
class MemoryInName final : public ArrayMemory {
 public:
  explicit MemoryInName(std::unique_ptr<ArrayMemory> memory) : memory_(std::move(memory)) {}
  ArrayRef array() const override {
    return {.data = memory_->array().data, .space = MemorySpace::kDevice, .device = 0};
  }
  absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) override {
    return memory_->Write(offset, data, bytes);
  }
  absl::Status Read(std::int64_t offset, std::int64_t bytes, void* to) const override {
    return memory_->Read(offset, bytes, to);
  }

 private:
  const std::unique_ptr<ArrayMemory> memory_;
};

class GpuInName : public SharedEngine {
 public:
  EngineKind kind() const override { return EngineKind::kCuda; }
  DeviceInfo info() const override {
    DeviceInfo device = CpuEngine().info();
    device.name = "cuda:0";
    device.ordinal = 0;
    return device;
  }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t /*caller*/) override {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = CpuEngine().Allocate(bytes);
    if (!memory.ok()) return memory.status();
    return std::make_unique<MemoryInName>(*std::move(memory));
  }
};

TEST(PairsOnDevices, AreOnOne) {
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(std::make_unique<SharedEngine>());
  engines.push_back(std::make_unique<GpuInName>());
  const TestServer server({}, Engines::Of(std::move(engines), ""));
  const auto client = Client::Create({.server = server.address(), .timeout = kPatience}).value();
  const auto here = client->Put(ArrayView::Of(kX), {.device = "cpu"}).value();
  const auto there = client->Put(ArrayView::Of(kY), {.device = "cuda:0"}).value();
  const auto reply = client->ReduceArray(RemoteArray::Resident(here.id()), {"dot"},
                                         {.y = RemoteArray::Resident(there.id()), .whole = true});
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kFailedPrecondition) << reply.status();
}

}  // namespace
}  // namespace reduced::server::pairs
