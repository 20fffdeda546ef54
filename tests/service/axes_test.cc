// Reductions along axes and GetArray, through the RPCs: results, errors, limits, and clients that go away.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/array_calls.h"
#include "tests/service/error_form.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::vector<T> ElementsIn(const std::string& data) {
  std::vector<T> elements(data.size() / sizeof(T));
  std::memcpy(elements.data(), data.data(), elements.size() * sizeof(T));
  return elements;
}

std::vector<std::int64_t> ShapeOf(const v1::ArraySpec& array) { return {array.shape().begin(), array.shape().end()}; }

// 0, 1, 2, ... as i32 of that shape, reduced along these axes.
v1::ReduceRequest Along(const std::vector<std::int64_t>& shape, const std::vector<int>& axes,
                        const std::vector<v1::Op>& ops) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::vector<std::int32_t> elements(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::int32_t>(i);
  v1::ReduceRequest request = RequestOf(v1::DTYPE_I32, elements, ops);
  request.mutable_array()->mutable_shape()->Assign(shape.begin(), shape.end());
  request.mutable_axes()->mutable_axis()->Add(axes.begin(), axes.end());
  return request;
}

v1::ReduceResponse Reduce(const TestServer& server, const v1::ReduceRequest& request) {
  v1::ReduceResponse response;
  const grpc::Status status = server.client().Reduce(request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

class AxesTest : public ::testing::Test {
 protected:
  static ServerOptions Options() {
    ServerOptions options;
    options.limits.max_result_bytes = 1 << 20;
    return options;
  }

  TestServer server_{Options()};
};

TEST_F(AxesTest, OneArrayAnOp) {
  const v1::ReduceResponse response =
      Reduce(server_, Along({2, 3}, {-1}, {v1::OP_SUM, v1::OP_MAX, v1::OP_ARGMIN, v1::OP_MEAN}));
  ASSERT_EQ(response.arrays_size(), 4);
  EXPECT_EQ(response.results_size(), 0);
  EXPECT_EQ(response.count(), 6);
  EXPECT_EQ(response.execution().device(), "cpu");
  EXPECT_EQ(response.execution().reason(), "the array is in host memory, and reduced along axes");
  EXPECT_EQ(response.timing().bytes(), 24);
  EXPECT_EQ(response.arrays(0).op(), v1::OP_SUM);
  EXPECT_EQ(response.arrays(0).array().dtype(), v1::DTYPE_I64);
  EXPECT_THAT(ShapeOf(response.arrays(0).array()), ElementsAre(2));
  EXPECT_THAT(ElementsIn<std::int64_t>(response.arrays(0).data()), ElementsAre(3, 12));
  EXPECT_THAT(ElementsIn<std::int32_t>(response.arrays(1).data()), ElementsAre(2, 5));
  EXPECT_THAT(ElementsIn<std::uint64_t>(response.arrays(2).data()), ElementsAre(0, 0));
  EXPECT_THAT(ElementsIn<double>(response.arrays(3).data()), ElementsAre(1, 4));
}

TEST_F(AxesTest, ShapesOfResults) {
  const struct {
    std::vector<std::int64_t> shape;
    std::vector<int> axes;
    bool keepdims;
    std::vector<std::int64_t> result;
  } cases[] = {
      {{2, 3, 4}, {1}, false, {2, 4}},
      {{2, 3, 4}, {1}, true, {2, 1, 4}},
      {{2, 3, 4}, {0, -1}, false, {3}},
      {{2, 3, 4}, {}, false, {2, 3, 4}},
      {{2, 3}, {1, 0}, false, {}},
      {{2, 3}, {0, 1}, true, {1, 1}},
      {{}, {}, false, {}},
      {{2, 0, 3}, {1}, false, {2, 3}},
      {{2, 0, 3}, {0}, true, {1, 0, 3}},
      {std::vector<std::int64_t>(64, 1), {63}, false, std::vector<std::int64_t>(63, 1)},
  };
  for (const auto& each : cases) {
    v1::ReduceRequest request = Along(each.shape, each.axes, {v1::OP_SUM});
    request.mutable_axes()->set_keepdims(each.keepdims);
    const v1::ReduceResponse response = Reduce(server_, request);
    ASSERT_EQ(response.arrays_size(), 1);
    EXPECT_EQ(ShapeOf(response.arrays(0).array()), each.result);
    std::int64_t count = 1;
    for (const std::int64_t size : each.result) count *= size;
    EXPECT_EQ(static_cast<std::int64_t>(response.arrays(0).data().size()), 8 * count);
  }
}

TEST_F(AxesTest, OutputsWithoutElements) {
  v1::ReduceRequest request = Along({2, 0}, {1}, {v1::OP_MIN, v1::OP_ARGMAX});
  v1::ReduceResponse response;
  grpc::Status status = server_.client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("output [0]: op min: got an empty array; allowed: at least 1 element"));
  request.set_empty(v1::EMPTY_POLICY_FILL);
  response = Reduce(server_, request);
  EXPECT_THAT(ElementsIn<std::int32_t>(response.arrays(0).data()), ElementsAre(INT32_MAX, INT32_MAX));
  EXPECT_THAT(ElementsIn<std::uint64_t>(response.arrays(1).data()), ElementsAre(UINT64_MAX, UINT64_MAX));
  // No output at all is no error.
  response = Reduce(server_, Along({0, 2}, {1}, {v1::OP_MIN}));
  EXPECT_EQ(response.arrays(0).data(), "");
}

TEST_F(AxesTest, WrongRequests) {
  using Change = std::function<void(v1::ReduceRequest*)>;
  const struct {
    Change change;
    grpc::StatusCode code;
    const char* message;
  } cases[] = {
      {[](auto* r) { r->mutable_axes()->add_axis(2); }, grpc::StatusCode::INVALID_ARGUMENT,
       "axes.axis[1]: got 2; allowed: -2 to 1"},
      {[](auto* r) { r->mutable_axes()->add_axis(-3); }, grpc::StatusCode::INVALID_ARGUMENT,
       "axes.axis[1]: got -3; allowed: -2 to 1"},
      {[](auto* r) { r->mutable_axes()->add_axis(-2); }, grpc::StatusCode::INVALID_ARGUMENT,
       "axes.axis[1]: got -2, dimension 0 again; allowed: each once"},
      {[](auto* r) { r->set_empty(static_cast<v1::EmptyPolicy>(7)); }, grpc::StatusCode::INVALID_ARGUMENT,
       "empty: got 7; allowed"},
      {[](auto* r) { r->mutable_options()->set_pipeline("recursive_pairs"); }, grpc::StatusCode::UNIMPLEMENTED,
       "pipeline: got recursive_pairs for arrays of results; allowed: tiled_simd"},
      {[](auto* r) { r->mutable_options()->set_engine(v1::ENGINE_CUDA); }, grpc::StatusCode::FAILED_PRECONDITION,
       "engine: got cuda"},
      {[](auto* r) { r->clear_axes(), r->set_empty(v1::EMPTY_POLICY_FILL); }, grpc::StatusCode::INVALID_ARGUMENT,
       "empty: got a policy without axes"},
      {[](auto* r) { r->clear_axes(), r->mutable_keep(); }, grpc::StatusCode::INVALID_ARGUMENT,
       "keep: got it without axes"},
      {[](auto* r) { r->mutable_keep()->set_ttl_ms(-1); }, grpc::StatusCode::INVALID_ARGUMENT, "ttl_ms: got -1"},
      {[](auto* r) { r->mutable_keep()->set_owner(std::string(65, 'x')); }, grpc::StatusCode::INVALID_ARGUMENT,
       "owner: got 65 bytes"},
      {[](auto* r) { r->mutable_array()->mutable_shape()->Resize(65, 1); }, grpc::StatusCode::INVALID_ARGUMENT,
       "array.shape: got 65 dimensions; allowed: 64 with axes"},
  };
  for (const auto& each : cases) {
    v1::ReduceRequest request = Along({2, 3}, {0}, {v1::OP_SUM});
    each.change(&request);
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_EQ(status.error_code(), each.code) << status.error_message();
    EXPECT_THAT(status.error_message(), AllOf(HasSubstr(each.message), IsErrorOfField()));
  }
  EXPECT_EQ(InfoOf(server_).devices(0).array_bytes(), 0);
}

TEST_F(AxesTest, ResultsLargerThanTheLimitAreKeptInstead) {
  EXPECT_EQ(InfoOf(server_).limits().max_result_bytes(), 1 << 20);
  // A result of 8 bytes for each of 0 elements: what is asked for needs no large message.
  v1::ReduceRequest request = Along({0, 1 << 18}, {0}, {v1::OP_SUM});
  v1::ReduceResponse response;
  const grpc::Status status = server_.client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("axes: got 262144 outputs, results of 2097152 bytes; allowed: 1048576 "
                                                "bytes in a response (--max_result_bytes)"));
  request.mutable_keep()->set_owner("me");
  response = Reduce(server_, request);
  ASSERT_TRUE(response.arrays(0).has_kept());
  const v1::ArrayInfo& kept = response.arrays(0).kept();
  EXPECT_EQ(kept.bytes(), 2 << 20);
  EXPECT_EQ(kept.owner(), "me");
  EXPECT_EQ(InfoOf(server_).devices(0).array_bytes(), 2 << 20);
  v1::ArrayInfo got;
  std::vector<std::string> chunks;
  EXPECT_TRUE(GetArray(server_.client(), kept.id(), &got, &chunks).ok());
  EXPECT_THAT(ShapeOf(got.array()), ElementsAre(1 << 18));
  EXPECT_EQ(chunks.size(), 2U);
  EXPECT_TRUE(DeleteArray(server_.client(), kept.id()).ok());
  EXPECT_EQ(InfoOf(server_).devices(0).array_bytes(), 0);
}

TEST_F(AxesTest, KeptResultsFeedTheNextRequest) {
  v1::ReduceRequest request = Along({2, 3, 4}, {1}, {v1::OP_SUM, v1::OP_ARGMAX});
  request.mutable_keep()->set_owner("me");
  request.mutable_keep()->set_ttl_ms(60'000);
  const v1::ReduceResponse first = Reduce(server_, request);
  ASSERT_EQ(first.arrays_size(), 2);
  v1::ReduceRequest next = RequestForArray(first.arrays(0).kept().id(), {v1::OP_MAX});
  next.mutable_axes()->add_axis(-1);
  const v1::ReduceResponse second = Reduce(server_, next);
  EXPECT_THAT(ElementsIn<std::int64_t>(second.arrays(0).data()), ElementsAre(21, 57));
  v1::ArrayInfo got;
  std::vector<std::string> chunks;
  EXPECT_TRUE(GetArray(server_.client(), first.arrays(0).kept().id(), &got, &chunks).ok());
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_THAT(ElementsIn<std::int64_t>(chunks[0]), ElementsAre(12, 15, 18, 21, 48, 51, 54, 57));
  EXPECT_EQ(GetArray(server_.client(), "nobody", &got, &chunks).error_code(), grpc::StatusCode::NOT_FOUND);
  for (const v1::ArrayResult& each : first.arrays()) {
    EXPECT_TRUE(DeleteArray(server_.client(), each.kept().id()).ok());
  }
}

TEST_F(AxesTest, NotInStreams) {
  v1::ReduceStreamRequest stream;
  *stream.mutable_header() = Along({2, 3}, {0}, {v1::OP_SUM});
  stream.mutable_header()->clear_inline_data();
  grpc::ClientContext context;
  const grpc::Status status = server_.client().Call(&context, "ReduceStream", stream.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("axes: got some in a stream; allowed: in Reduce and in sessions"));
}

TEST(AxesMemoryTest, ResultsAreWithinTheBudgetAndComeBack) {
  ServerOptions options;
  options.engines.memory = std::make_shared<MemoryBudget>(3 << 20);
  const MemoryBudget& memory = *options.engines.memory;
  {
    HeldServer server(10, options);
    const v1::ReduceRequest request = Along({0, 1 << 16}, {0}, {v1::OP_SUM});  // 512 KiB, and encoded
    PendingReduce first(server->client(), request);
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    PendingReduce second(server->client(), request);
    ASSERT_TRUE(server.engine().AwaitHeld(2, kPatience));
    EXPECT_GE(memory.taken(), 2 << 20);
    PendingReduce refused(server->client(), Along({0, 1 << 17}, {0}, {v1::OP_SUM}));
    const grpc::Status status = refused.Join();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("no memory for the results of a request"));
    // A client that goes away while its results are computed.
    second.context().TryCancel();
    EXPECT_TRUE(AwaitTrue(*server.engine().cancelled(1)));
    server.engine().Release();
    EXPECT_TRUE(first.Join().ok());
    EXPECT_EQ(second.Join().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(memory.taken(), 0);
}

TEST(AxesMemoryTest, KeptResultsOfAClientThatWentAwayAreDeleted) {
  HeldServer server(10);
  v1::ReduceRequest request = Along({2, 3}, {0}, {v1::OP_SUM});
  request.mutable_keep();
  PendingReduce pending(server->client(), request);
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  pending.context().TryCancel();
  EXPECT_TRUE(AwaitTrue(*server.engine().cancelled(0)));
  server.engine().Release();
  EXPECT_EQ(pending.Join().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Becomes(kPatience, [&] { return InfoOf(*server).usage().arrays() == 0; }));
}

}  // namespace
}  // namespace reduced::server
