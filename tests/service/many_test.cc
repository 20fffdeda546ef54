// ReduceMany: each operand is answered as a Reduce of it alone, whatever its source, and the call is one of everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/local/local.h"
#include "kernels/algebra/dtype.h"
#include "reduced/client.h"
#include "reduced/merge.h"
#include "tests/service/array_calls.h"
#include "tests/service/held_engine.h"
#include "tests/service/many_calls.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Of every dtype an empty array, a few elements, and more than a lane's thread would be spared.
v1::ReduceManyRequest EveryDType() {
  v1::ReduceManyRequest request;
  for (const std::int64_t count : {0, 1, 1000, 400'000}) {
    for (const DTypeRow& dtype : kDTypes) AddOperand(dtype.dtype, count, &request);
  }
  return request;
}

TEST(ReduceManyTest, AnswersEveryDTypeAsReduceDoes) {
  const TestServer server;
  v1::ReduceManyRequest request = EveryDType();
  AddOps({v1::OP_SUM, v1::OP_MIN, v1::OP_ARGMAX, v1::OP_MEAN, v1::OP_STD, v1::OP_L2, v1::OP_COUNT, v1::OP_PROD},
         &request);
  request.mutable_question()->set_op_errors(true);
  ExpectAsAlone(server.client(), request);
  request.mutable_question()->set_return_state(true);
  ExpectAsAlone(server.client(), request);
}

TEST(ReduceManyTest, AnswersOpsOfTheDistributionAsReduceDoes) {
  const TestServer server;
  v1::ReduceManyRequest request = EveryDType();
  AddOps({v1::OP_FINGERPRINT, v1::OP_MEDIAN, v1::OP_DISTINCT, v1::OP_SUM}, &request);
  request.mutable_question()->set_op_errors(true);
  ExpectAsAlone(server.client(), request);
  request.mutable_question()->set_return_state(true);
  request.mutable_question()->set_omit_results(true);
  ExpectAsAlone(server.client(), request);
}

// Without lanes of its own for many operands each large one is handed over, and its thread goes on.
class WithoutLanes final : public SharedEngine {
 public:
  void OnLane(const Job& all, Work work) override { Engine::OnLane(all, std::move(work)); }
};

TEST(ReduceManyTest, GoesOnWhereAnOperandHasBeenReduced) {
  const TestServer server({}, OnlyEngine(std::make_unique<WithoutLanes>()));
  v1::ReduceManyRequest request = EveryDType();
  AddOps({v1::OP_SUM, v1::OP_FINGERPRINT}, &request);
  ExpectAsAlone(server.client(), request);
}

TEST(ReduceManyTest, TakesAThousandOperands) {
  const TestServer server;
  v1::ReduceManyRequest request;
  for (int i = 0; i < 1000; ++i) AddOperand(DType::kF32, 1 + i % 300, &request);
  AddOps({v1::OP_SUM, v1::OP_MAX}, &request);
  ExpectAsAlone(server.client(), request);
}

TEST(ReduceManyTest, TakesResidentArraysBesideInlineOnes) {
  TestServer server;
  v1::ArrayInfo array;
  const std::string elements = ElementsOf(DType::kF32, 5000);
  ASSERT_TRUE(PutElements(server.client(), PutHeaderOf(v1::DTYPE_F32, 5000), elements, 1 << 16, &array).ok());
  v1::ReduceManyRequest request;
  AddOperand(DType::kI16, 100, &request);
  request.add_operands()->set_array_id(array.id());
  AddOperand(DType::kF64, 100, &request);
  AddOps({v1::OP_SUM, v1::OP_STD}, &request);
  ExpectAsAlone(server.client(), request);
  EXPECT_EQ(ListArrays(server.client()).front().users(), 0);
}

class BadManyTest : public ::testing::Test {
 protected:
  BadManyTest() {
    for (int i = 0; i < 3; ++i) AddOperand(DType::kI64, 10, &request_);
    AddOps({v1::OP_SUM}, &request_);
  }
  static ServerOptions Options() {
    ServerOptions options;
    options.limits.max_operands = 4;
    options.limits.max_result_bytes = 1 << 10;
    return options;
  }
  void Refuses(grpc::StatusCode code, const std::string& message) {
    v1::ReduceManyResponse response;
    const grpc::Status status = ReduceMany(server_.client(), request_, &response);
    EXPECT_EQ(status.error_code(), code) << message;
    EXPECT_THAT(status.error_message(), StartsWith(message));
  }

  TestServer server_{Options()};
  v1::ReduceManyRequest request_;
};

TEST_F(BadManyTest, NumberOfOperands) {
  request_.clear_operands();
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands: got 0; allowed: 1 to 4");
  for (int i = 0; i < 5; ++i) AddOperand(DType::kI64, 10, &request_);
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands: got 5; allowed: 1 to 4");
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server_.client().Info(&info).ok());
  EXPECT_EQ(info.limits().max_operands(), 4);
}

TEST_F(BadManyTest, AnOperandIsNamed) {
  const v1::ReduceManyRequest good = request_;
  request_.mutable_operands(2)->mutable_array()->set_dtype(static_cast<v1::DType>(77));
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands[2].array.dtype: got 77");
  request_ = good;
  request_.mutable_operands(1)->mutable_array()->set_shape(0, 11);
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands[1].inline_data: got 80 bytes");
  request_ = good;
  request_.mutable_operands(1)->clear_inline_data();
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands[1].source: got none");
  request_.mutable_operands(1)->clear_array();
  request_.mutable_operands(1)->set_array_id("gone");
  Refuses(grpc::StatusCode::NOT_FOUND, "operands[1].array_id: got ");
  request_ = good;
  request_.mutable_operands(1)->mutable_array()->set_dtype(v1::DTYPE_F64);
  request_.mutable_question()->set_ops(0, v1::OP_BIT_AND);
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands[1]: ");
}

TEST_F(BadManyTest, AnErrorOfTheElementsNamesTheOperand) {
  const std::int64_t large = std::int64_t{1} << 62;
  const std::vector<std::int64_t> elements(10, large);
  request_.mutable_operands(1)->set_inline_data(elements.data(), elements.size() * sizeof(large));
  Refuses(grpc::StatusCode::OUT_OF_RANGE, "operands[1]: integer overflow");
  request_.mutable_question()->add_ops(v1::OP_MAX);
  request_.mutable_question()->set_op_errors(true);
  v1::ReduceManyResponse response;
  ASSERT_TRUE(ReduceMany(server_.client(), request_, &response).ok());
  EXPECT_TRUE(response.responses(1).results(0).has_error());
  EXPECT_EQ(response.responses(1).results(1).value().i(), large);
  EXPECT_FALSE(response.responses(2).results(0).has_error());
}

TEST_F(BadManyTest, Question) {
  const auto refuses = [this](const std::string& field, auto set) {
    const v1::ReduceManyRequest good = request_;
    set(request_.mutable_question());
    Refuses(grpc::StatusCode::INVALID_ARGUMENT, absl::StrCat("question.", field, ": got it; allowed: ops, calls"));
    request_ = good;
  };
  refuses("array", [](v1::ReduceRequest* question) { question->mutable_array(); });
  refuses("source", [](v1::ReduceRequest* question) { question->set_array_id("x"); });
  refuses("axes", [](v1::ReduceRequest* question) { question->mutable_axes(); });
  refuses("keys", [](v1::ReduceRequest* question) { question->mutable_keys(); });
  refuses("where", [](v1::ReduceRequest* question) { question->mutable_where(); });
  refuses("keep", [](v1::ReduceRequest* question) { question->mutable_keep(); });
  refuses("y", [](v1::ReduceRequest* question) { question->mutable_y(); });
  request_.mutable_question()->clear_ops();
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands[0]: ops: got 0 operations");
}

TEST_F(BadManyTest, ResultsOfAllTogether) {
  request_.mutable_question()->clear_ops();
  v1::OpCall* const call = request_.mutable_question()->add_calls();
  call->set_op(v1::OP_HISTOGRAM);
  call->mutable_histogram()->mutable_uniform()->set_low(0);
  call->mutable_histogram()->mutable_uniform()->set_high(1);
  call->mutable_histogram()->mutable_uniform()->set_bins(64);  // 512 bytes
  Refuses(grpc::StatusCode::INVALID_ARGUMENT, "operands[1]: got ");
  request_.mutable_operands()->DeleteSubrange(1, 2);
  ExpectAsAlone(server_.client(), request_);
}

TEST(ManyCallsTest, EndBetweenOperands) {
  HeldServer server(/*limit=*/8);
  v1::ReduceManyRequest request;
  for (int i = 0; i < 3; ++i) AddOperand(DType::kF32, 10, &request);
  AddOps({v1::OP_SUM}, &request);
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::ReduceManyResponse response;
  grpc::Status status;
  std::thread call(
      [&] { status = v1::Reduction::NewStub(server->client().channel())->ReduceMany(&context, request, &response); });
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  EXPECT_EQ(server.engine().held(), 1) << "one after the other";
  const CancelFlag cancelled = server.engine().cancelled();
  context.TryCancel();
  call.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(AwaitTrue(*cancelled));
  server.engine().ReleaseFirst();
  EXPECT_EQ(server.engine().held(), 0) << "the others are not begun";
  // And the deadline, which the first operand reaches.
  v1::ReduceManyResponse late;
  EXPECT_EQ(ReduceMany(server->client(), request, &late, absl::Milliseconds(50)).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
}

// The message of an error.
std::string MessageOf(const absl::StatusOr<std::vector<client::Reply>>& replies) {
  return std::string(replies.status().message());
}

// The library's groups, the local engine's, and single calls give the same replies.
TEST(ManyArraysTest, ClientsAnswerAsForEachArray) {
  const TestServer server;
  const auto client = client::Client::Create({.server = server.address(), .timeout = kPatience}).value();
  const client::LocalEngine local;
  std::vector<std::string> elements;
  std::vector<client::ArrayView> arrays;
  for (const std::int64_t count : {0, 3, 70'000, 300'000}) {  // the largest are streams
    for (const DTypeRow& dtype : kDTypes) elements.push_back(ElementsOf(dtype.dtype, count));
  }
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const DTypeRow& dtype = kDTypes[i % std::size(kDTypes)];
    arrays.push_back({elements[i].data(),
                      std::string(dtype.name),
                      {static_cast<std::int64_t>(elements[i].size()) / dtype.bytes},
                      {}});
  }
  std::vector<client::Operand> operands(arrays.begin(), arrays.end());
  const auto resident = client->Put(arrays.back());
  ASSERT_TRUE(resident.ok()) << resident.status();
  operands.emplace_back(client::RemoteArray(*resident));
  for (const std::vector<std::string>& ops : {std::vector<std::string>{"sum", "max", "std", "count"},
                                              std::vector<std::string>{"fingerprint", "topk(2)", "count"}}) {
    const client::ReduceOptions options{.return_state = true};
    const auto many = client->ReduceMany(operands, ops, options);
    ASSERT_TRUE(many.ok()) << many.status();
    const auto here = local.ReduceMany(arrays, ops, options);
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_EQ(many->size(), operands.size());
    ASSERT_EQ(here->size(), arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const auto alone = client->Reduce(arrays[i], ops, options);
      ASSERT_TRUE(alone.ok()) << alone.status();
      EXPECT_EQ((*many)[i].state, alone->state) << i;
      EXPECT_EQ((*here)[i].state, alone->state) << i;
      EXPECT_EQ((*many)[i].via,
                arrays[i].shape[0] == 300'000 && elements[i].size() >= 512 << 10 && !client::IsOfDistribution(ops[0])
                    ? "stream"
                    : alone->via);
      ASSERT_EQ((*many)[i].results.size(), alone->results.size());
      for (std::size_t op = 0; op < alone->results.size(); ++op) {
        const client::Result& expected = alone->results[op];
        for (const client::Reply& reply : {(*many)[i], (*here)[i]}) {
          EXPECT_EQ(reply.results[op].op, expected.op);
          ASSERT_EQ(reply.results[op].value.ok(), expected.value.ok()) << i << expected.op;
          if (!expected.value.ok()) continue;
          EXPECT_EQ(reply.results[op].value->Text(), expected.value->Text()) << i << expected.op;
        }
      }
      ASSERT_EQ((*many)[i].arrays.size(), alone->arrays.size());
      ASSERT_EQ((*here)[i].arrays.size(), alone->arrays.size());
      for (std::size_t op = 0; op < alone->arrays.size(); ++op) {
        EXPECT_EQ((*many)[i].arrays[op].op, alone->arrays[op].op);
        EXPECT_EQ((*many)[i].arrays[op].array.data, alone->arrays[op].array.data);
        EXPECT_EQ((*here)[i].arrays[op].array.data, alone->arrays[op].array.data);
      }
    }
    EXPECT_EQ(many->back().state, (*many)[arrays.size() - 1].state);
    EXPECT_EQ(many->back().via, "resident");
  }
}

TEST(ManyArraysTest, StatesOfSeveralDTypesMergeAsF64) {
  const client::LocalEngine local;
  const std::vector<float> floats = {3};
  const std::vector<double> doubles = {4};
  const auto states = [&](const std::string& op) {
    const auto replies =
        local.ReduceMany({client::ArrayView::Of(floats), client::ArrayView::Of(doubles)}, {op}, {.return_state = true});
    return std::vector<std::string>{replies->at(0).state, replies->at(1).state};
  };
  const auto merged = client::MergeStates(states("l2"), {.as_f64 = true});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->Find("l2")->AsDouble(), 5);
  EXPECT_TRUE(absl::IsInvalidArgument(client::MergeStates(states("l2")).status()));
  EXPECT_THAT(std::string(client::MergeStates(states("max"), {.as_f64 = true}).status().message()),
              StartsWith("states[0].extrema: got them with as_f64"));
}

TEST(ManyArraysTest, LocalErrorsNameTheOperand) {
  const client::LocalEngine local;
  const std::vector<float> one = {1};
  client::ArrayView wrong = client::ArrayView::Of(one);
  wrong.dtype = "f31";
  EXPECT_THAT(MessageOf(local.ReduceMany({client::ArrayView::Of(one), wrong}, {"sum"})),
              StartsWith("operands[1].dtype: got "));
  EXPECT_THAT(MessageOf(local.ReduceMany({}, {"sum"})), HasSubstr("operands: got none"));
  EXPECT_THAT(MessageOf(local.ReduceMany({client::ArrayView::Of(one)}, {"some"})), HasSubstr("op: got \"some\""));
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      local.ReduceMany({client::ArrayView::Of(one)}, {"sum"}, {.timeout = absl::Nanoseconds(1)}).status()));
}

}  // namespace
}  // namespace reduced::server
