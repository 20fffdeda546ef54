// Ops of the distribution through the RPCs: answers that are arrays, their limits, and where they are refused.
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/local/local.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "reduced/client.h"
#include "reduced/ops.h"
#include "tests/service/array_calls.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::vector<T> AnswersIn(const v1::ArrayResult& result) {
  std::vector<T> elements(result.data().size() / sizeof(T));
  std::memcpy(elements.data(), result.data().data(), elements.size() * sizeof(T));
  return elements;
}

std::vector<std::int64_t> AnswerShapeOf(const v1::ArrayResult& result) {
  return {result.array().shape().begin(), result.array().shape().end()};
}

// 3, 1, 2, 4, 5, 6 with these calls, in text format.
v1::ReduceRequest Asking(const std::vector<std::string>& calls) {
  v1::ReduceRequest request = RequestOf<double>(v1::DTYPE_F64, {3, 1, 2, 4, 5, 6}, {});
  for (const std::string& call : calls) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(call, request.add_calls())) << call;
  }
  return request;
}

class DistributionTest : public ::testing::Test {
 protected:
  static ServerOptions Options() {
    ServerOptions options;
    options.limits.max_result_bytes = 1 << 16;
    return options;
  }

  grpc::Status Reduce(const v1::ReduceRequest& request) { return server_.client().Reduce(request, &response_); }
  void Refuses(const v1::ReduceRequest& request, grpc::StatusCode code, const std::string& message) {
    const grpc::Status status = Reduce(request);
    EXPECT_EQ(status.error_code(), code) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }

  TestServer server_{Options()};
  v1::ReduceResponse response_;
};

TEST_F(DistributionTest, TheWholeArrayIsAnsweredWithArrays) {
  const grpc::Status status = Reduce(Asking(
      {"op: OP_SUM", "op: OP_MEDIAN", "op: OP_QUANTILE quantile { q: 0 q: 1 q: 0.5 }", "op: OP_TOPK top { k: 2 }",
       "op: OP_ARGTOPK top { k: 2 }", "op: OP_HISTOGRAM histogram { uniform { low: 1 high: 7 bins: 3 } }"}));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.results_size(), 0);
  ASSERT_EQ(response_.arrays_size(), 6);
  EXPECT_THAT(AnswerShapeOf(response_.arrays(0)), ElementsAre());
  EXPECT_THAT(AnswersIn<double>(response_.arrays(0)), ElementsAre(21));
  EXPECT_THAT(AnswersIn<double>(response_.arrays(1)), ElementsAre(3.5));
  EXPECT_THAT(AnswerShapeOf(response_.arrays(2)), ElementsAre(3));
  EXPECT_THAT(AnswersIn<double>(response_.arrays(2)), ElementsAre(1, 6, 3.5));
  EXPECT_THAT(AnswersIn<double>(response_.arrays(3)), ElementsAre(6, 5));
  EXPECT_THAT(AnswersIn<std::uint64_t>(response_.arrays(4)), ElementsAre(5, 4));
  EXPECT_EQ(response_.arrays(5).array().dtype(), v1::DTYPE_U64);
  EXPECT_THAT(AnswersIn<std::uint64_t>(response_.arrays(5)), ElementsAre(2, 2, 2));
}

TEST_F(DistributionTest, TheAnswerIsTheLastDimension) {
  v1::ReduceRequest request = Asking({"op: OP_BOTTOMK top { k: 2 }"});
  request.mutable_array()->clear_shape();
  request.mutable_array()->add_shape(2);
  request.mutable_array()->add_shape(3);
  request.mutable_axes()->add_axis(1);
  ASSERT_TRUE(Reduce(request).ok());
  EXPECT_THAT(AnswerShapeOf(response_.arrays(0)), ElementsAre(2, 2));
  EXPECT_THAT(AnswersIn<double>(response_.arrays(0)), ElementsAre(1, 2, 4, 5));
  request.mutable_axes()->set_keepdims(true);
  ASSERT_TRUE(Reduce(request).ok());
  EXPECT_THAT(AnswerShapeOf(response_.arrays(0)), ElementsAre(2, 1, 2));
}

TEST_F(DistributionTest, OpsWithoutParametersMayBeInOps) {
  v1::ReduceRequest request = Asking({});
  request.add_ops(v1::OP_MEDIAN);
  ASSERT_TRUE(Reduce(request).ok());
  EXPECT_THAT(AnswersIn<double>(response_.arrays(0)), ElementsAre(3.5));
}

TEST_F(DistributionTest, ResultsAreKept) {
  v1::ReduceRequest request = Asking({"op: OP_TOPK top { k: 3 }"});
  request.mutable_keep()->set_owner("me");
  const grpc::Status status = Reduce(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.arrays(0).kept().bytes(), 24);
  EXPECT_TRUE(DeleteArray(server_.client(), response_.arrays(0).kept().id()).ok());
}

TEST_F(DistributionTest, WhatIsRefused) {
  using enum grpc::StatusCode;
  v1::ReduceRequest both = Asking({"op: OP_MEDIAN"});
  both.add_ops(v1::OP_SUM);
  Refuses(both, INVALID_ARGUMENT, "calls: got 1 beside 1 ops; allowed: one of ops, calls");
  const std::string most = "op: OP_HISTOGRAM histogram { uniform { low: 0 high: 1 bins: 65536 } }";
  Refuses(Asking({most, "op: OP_QUANTILE quantile { q: 0 }"}), INVALID_ARGUMENT,
          "calls[1]: got 65538 quantiles and edges with those before it; allowed: 65537 in a request");
  v1::ReduceRequest many = Asking({});
  for (int i = 0; i < 1000; ++i) many.add_calls()->set_op(v1::OP_MEDIAN);
  Refuses(many, INVALID_ARGUMENT, "calls: got 1000 operations; allowed: 1 to ");
  Refuses(Asking({"op: OP_QUANTILE quantile { q: 0.5 q: 0 q: 1.5 }"}), INVALID_ARGUMENT,
          "calls[0].quantile.q[2]: got 1.5; allowed: 0 to 1");
  v1::ReduceRequest bare = Asking({});
  bare.add_ops(v1::OP_TOPK);
  Refuses(bare, INVALID_ARGUMENT, "ops[0]: got OP_TOPK without parameters; allowed: in calls, with top");
  Refuses(Asking({"op: OP_TOPK top { k: 7 }"}), INVALID_ARGUMENT, "at least 7");
  Refuses(Asking({"op: OP_MEDIAN quantile { counts { within_bits: 1 within: 0 } }"}), INVALID_ARGUMENT,
          "calls[0].quantile.counts.within: got prefixes without omit_results; allowed: none, or with it");
  Refuses(Asking({"op: OP_MEDIAN quantile { counts { bits: 65 } }"}), INVALID_ARGUMENT,
          "calls[0].quantile.counts.bits: got 65; allowed: 0 to 64, of this dtype");
  v1::ReduceRequest rung = Asking({"op: OP_MEDIAN"});
  rung.mutable_options()->set_pipeline("sequential");
  Refuses(rung, UNIMPLEMENTED, "sequential");
  Refuses(Asking({"op: OP_MODE"}), INVALID_ARGUMENT, "op mode: got dtype f64; allowed: dtypes of 8 and 16 bits");
  // Results count with all elements of an answer.
  Refuses(Asking({"op: OP_HISTOGRAM histogram { uniform { low: 0 high: 1 bins: 10000 } }"}), INVALID_ARGUMENT,
          "calls: got 1 outputs, results of 80000 bytes; allowed: 65536 bytes in a response");
}

TEST_F(DistributionTest, StreamsAnswerWhatOneReadTells) {
  const std::vector<std::string> calls = {"op: OP_TOPK top { k: 2 }",
                                          "op: OP_ARGBOTTOMK top { k: 2 }",
                                          "op: OP_MEAN",
                                          "op: OP_HISTOGRAM histogram { uniform { low: 1 high: 7 bins: 3 } }",
                                          "op: OP_DISTINCT",
                                          "op: OP_FINGERPRINT",
                                          "op: OP_FINGERPRINT fingerprint { shape: 9 offset: 3 }"};
  v1::ReduceRequest request = Asking(calls);
  request.set_return_state(true);
  ASSERT_TRUE(Reduce(request).ok());
  const std::string elements = request.inline_data();
  v1::ReduceRequest header = request;
  header.clear_inline_data();
  ReduceStreamCall stream(server_.client());
  bool open = stream.Header(header);
  for (std::size_t i = 0; open && i < elements.size(); i += 7) open = stream.Chunk(elements.substr(i, 7));
  const grpc::Status status = stream.End();
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::ReduceResponse answer = stream.response();
  ASSERT_EQ(answer.arrays_size(), response_.arrays_size());
  for (int i = 0; i < answer.arrays_size(); ++i) {
    EXPECT_EQ(answer.arrays(i).SerializeAsString(), response_.arrays(i).SerializeAsString());
  }
  EXPECT_EQ(answer.arrays_state().SerializeAsString(), response_.arrays_state().SerializeAsString());
}

TEST_F(DistributionTest, NotWhereElementsAreReadOnce) {
  for (const auto& [call, op] : {std::pair("op: OP_MEDIAN", "median"), {"op: OP_DISTINCT_EXACT", "distinct_exact"}}) {
    v1::ReduceStreamRequest stream;
    *stream.mutable_header() = Asking({call});
    stream.mutable_header()->clear_inline_data();
    grpc::ClientContext context;
    const grpc::Status status = server_.client().Call(&context, "ReduceStream", stream.SerializeAsString());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(),
                HasSubstr(absl::StrCat("calls: got ", op, " of f64 in a stream, whose elements")));
  }
}

// A stream's header has the ops with their parameters; answers are named as the caller wrote them, also if the array is
// sent in parts.
TEST_F(DistributionTest, StreamsNameOpsAsTheyWereWritten) {
  std::vector<std::uint16_t> elements(17'000'000, 5);  // of more than 32 MiB
  elements[1'000'000] = 9;
  elements[16'000'000] = 7;
  for (const int connections : {1, 3}) {
    const auto client =
        *client::Client::Create({.server = server_.address(), .timeout = kPatience, .connections = connections});
    const auto reply =
        client->Reduce(client::ArrayView::Of(elements), {"topk( 3 )", "median", "sum", "quantile(0, 1; method=lower)"},
                       {.via = "stream"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->via, "stream");
    ASSERT_EQ(reply->arrays.size(), 2U);
    EXPECT_EQ(reply->arrays[0].op, "topk( 3 )");
    EXPECT_EQ(reply->arrays[1].op, "quantile(0, 1; method=lower)");
    EXPECT_THAT(reply->arrays[0].array.As<std::uint16_t>(), ElementsAre(9, 7, 5));
    EXPECT_THAT(reply->arrays[1].array.As<std::uint16_t>(), ElementsAre(5, 9));
    EXPECT_EQ(reply->Find("median")->AsDouble(), 5);
    EXPECT_EQ(reply->Find("sum")->AsInt64(), 85'000'006);
  }
}

// However a stream is cut, and whatever arrives first.
TEST_F(DistributionTest, StreamsHaveTheFingerprintsOfWholes) {
  std::vector<std::uint16_t> elements(17'000'000);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::uint16_t>(i * i >> 7);
  const client::ArrayView array = client::ArrayView::Of(elements, {{1700, 10'000}});
  const std::vector<std::string> ops = {"fingerprint", client::ops::Fingerprint({2000, 20'000}, {300, 7})};
  const auto whole = client::LocalEngine().Reduce(array, ops);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (const int connections : {1, 3}) {
    const auto client =
        *client::Client::Create({.server = server_.address(), .timeout = kPatience, .connections = connections});
    const auto reply = client->Reduce(array, ops, {.via = "stream"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->arrays.size(), 2U);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(reply->arrays[i].op, ops[i]);
      EXPECT_EQ(reply->arrays[i].array.data, whole->arrays[i].array.data) << connections;
    }
  }
}

// A merged state has exactly the entries that its question tells.
TEST_F(DistributionTest, StatesWithSurplusEntriesAreRefused) {
  v1::ReduceRequest request = Asking({"op: OP_MEDIAN", "op: OP_TOPK top { k: 2 }", "op: OP_DISTINCT_EXACT"});
  request.set_return_state(true);
  const grpc::Status status = Reduce(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::ArraysState right = response_.arrays_state();
  const int entries = right.outputs(0).entries_size();
  ASSERT_EQ(entries, 3);
  const auto merge = [&](const v1::ArraysState& state) {
    v1::MergeRequest merge;
    *merge.add_arrays() = state;
    merge.set_omit_results(true);
    grpc::ClientContext context;
    SetContextDeadline(&context);
    v1::MergeResponse merged;
    return v1::Reduction::NewStub(server_.client().channel())->Merge(&context, merge, &merged);
  };
  EXPECT_TRUE(merge(right).ok());
  v1::ArraysState more = right;
  *more.mutable_outputs(0)->add_entries() = more.outputs(0).entries(0);
  v1::ArraysState question = right;
  *question.mutable_question()->add_entries() = right.outputs(0).entries(0);
  v1::ArraysState fewer = right;
  fewer.mutable_outputs(0)->mutable_entries()->RemoveLast();
  v1::ArraysState third = right;  // of the two largest
  third.mutable_outputs(0)->mutable_entries(1)->add_keys(1);
  third.mutable_outputs(0)->mutable_entries(1)->add_values(5);
  for (const v1::ArraysState& wrong : {more, question, fewer, third}) {
    const grpc::Status refused = merge(wrong);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(), HasSubstr("entries"));
  }
}

TEST_F(DistributionTest, SessionsAnswerAsReduceDoes) {
  v1::ReduceRequest along = Asking({"op: OP_TOPK top { k: 1 }", "op: OP_SUM"});
  along.mutable_array()->clear_shape();
  along.mutable_array()->add_shape(2);
  along.mutable_array()->add_shape(3);
  along.mutable_axes()->add_axis(1);
  v1::ReduceRequest with_state = Asking({"op: OP_MEDIAN", "op: OP_DISTINCT"});
  with_state.set_return_state(true);
  v1::ReduceRequest too_few = Asking({"op: OP_TOPK top { k: 100 }", "op: OP_MEDIAN"});
  too_few.set_op_errors(true);
  // The budget of results is that of a Reduce, and so is what it says.
  v1::ReduceRequest too_large = Asking({"op: OP_QUANTILE quantile { q: 0.5 }"});
  for (int i = 0; i < 1000; ++i) too_large.mutable_calls(0)->mutable_quantile()->add_q(0.5);
  too_large.mutable_axes();  // no axis: each element
  too_large.mutable_array()->set_shape(0, 60);
  too_large.set_inline_data(std::string(480, '\0'));
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto stub = v1::Reduction::NewStub(server_.client().channel());
  const auto session = stub->Session(&context);
  std::uint64_t id = 0;
  for (const v1::ReduceRequest& request :
       {Asking({"op: OP_MEDIAN", "op: OP_HISTOGRAM histogram { uniform { low: 1 high: 7 bins: 3 } }"}), along,
        with_state, too_few, too_large, Asking({"op: OP_TOPK top { k: 7 }"})}) {
    const grpc::Status status = Reduce(request);
    v1::SessionRequest message;
    message.set_id(++id);
    *message.mutable_reduce() = request;
    v1::SessionResponse answer;
    ASSERT_TRUE(session->Write(message) && session->Read(&answer));
    EXPECT_EQ(answer.code(), static_cast<int>(status.error_code())) << answer.message();
    EXPECT_EQ(answer.message(), status.error_message());
    if (!status.ok()) continue;
    const v1::ReduceResponse& got = answer.response();
    ASSERT_EQ(got.arrays_size(), response_.arrays_size());
    for (int i = 0; i < got.arrays_size(); ++i) {
      EXPECT_EQ(got.arrays(i).SerializeAsString(), response_.arrays(i).SerializeAsString());
    }
    EXPECT_EQ(got.arrays_state().SerializeAsString(), response_.arrays_state().SerializeAsString());
    EXPECT_EQ(got.execution().reason(), response_.execution().reason());
  }
  EXPECT_TRUE(session->WritesDone());
  EXPECT_TRUE(session->Finish().ok());
}

TEST_F(DistributionTest, StatesMerge) {
  v1::MergeRequest merge;
  merge.set_return_state(true);
  merge.set_op_errors(true);
  for (const std::vector<double>& part : {std::vector<double>{3, 1, 2}, {}, {4, 5, 6}}) {
    v1::ReduceRequest request =
        Asking({"op: OP_SUM", "op: OP_TOPK top { k: 4 }", "op: OP_ARGTOPK top { k: 4 }", "op: OP_DISTINCT_EXACT",
                "op: OP_MEDIAN", "op: OP_MEDIAN quantile { counts { bits: 64 } }",
                "op: OP_HISTOGRAM histogram { uniform { low: 1 high: 7 bins: 3 } }"});
    request.mutable_array()->set_shape(0, static_cast<std::int64_t>(part.size()));
    request.set_inline_data(part.data(), part.size() * sizeof(double));
    request.set_return_state(true);
    request.set_omit_results(true);
    request.set_op_errors(true);
    const grpc::Status status = Reduce(request);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response_.arrays_size(), 0);
    *merge.add_arrays() = response_.arrays_state();
  }
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::MergeResponse merged;
  const grpc::Status status = v1::Reduction::NewStub(server_.client().channel())->Merge(&context, merge, &merged);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(merged.arrays_size(), 7);
  EXPECT_THAT(AnswersIn<double>(merged.arrays(0)), ElementsAre(21));
  EXPECT_THAT(AnswersIn<double>(merged.arrays(1)), ElementsAre(6, 5, 4, 3));
  EXPECT_THAT(AnswerShapeOf(merged.arrays(1)), ElementsAre(4));
  EXPECT_THAT(AnswersIn<std::uint64_t>(merged.arrays(2)), ElementsAre(5, 4, 3, 0));
  EXPECT_THAT(AnswersIn<std::uint64_t>(merged.arrays(3)), ElementsAre(6));
  EXPECT_THAT(merged.arrays(4).error().message(), HasSubstr("op median: got a state with the highest 20 of 64 bits"));
  EXPECT_THAT(AnswersIn<double>(merged.arrays(5)), ElementsAre(3.5));
  EXPECT_THAT(AnswersIn<std::uint64_t>(merged.arrays(6)), ElementsAre(2, 2, 2));
  EXPECT_EQ(merged.arrays_state().count(), 6);
}

TEST_F(DistributionTest, NoStateOfValuesHasThem) {
  v1::ReduceRequest request = Asking({"op: OP_COUNT"});
  request.set_return_state(true);
  ASSERT_TRUE(Reduce(request).ok());
  v1::MergeRequest merge;
  *merge.add_states() = response_.state();
  merge.mutable_states(0)->set_ops(0, v1::OP_MEDIAN);
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::MergeResponse merged;
  const grpc::Status status = v1::Reduction::NewStub(server_.client().channel())->Merge(&context, merge, &merged);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ops: got median; allowed: ops that have states"));
}

TEST_F(DistributionTest, InfoSaysHowTheyAreWritten) {
  const v1::GetServerInfoResponse info = InfoOf(server_);
  for (const v1::OpInfo& op : info.ops()) {
    const bool takes_parameters = op.op() == v1::OP_MEDIAN ||
                                  (op.op() >= v1::OP_QUANTILE && op.op() <= v1::OP_ARGBOTTOMK) ||
                                  (op.op() >= v1::OP_COMPARE && op.op() != v1::OP_WEIGHTED_MEDIAN);
    EXPECT_EQ(!op.usage().empty(), takes_parameters) << op.name();
  }
}

}  // namespace
}  // namespace reduced::server
