// --max_run_time: however a request makes the server work, it ends; and so it does soon after its deadline, or once its
// client has gone away.
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/why_stop.h"
#include "tests/service/array_calls.h"
#include "tests/service/ladder_calls.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

// What it takes is milliseconds; what it must not take is the seconds that the requests below would run.
constexpr absl::Duration kSoon = absl::Seconds(2);
constexpr std::int64_t kMany = std::int64_t{1} << 24;  // outputs, groups or elements

const std::vector<v1::Op> kSlowOps = {v1::OP_SUM, v1::OP_VAR, v1::OP_STD, v1::OP_PROD, v1::OP_L2, v1::OP_MIN};

struct Bed {
  const TestServer& server;
  std::string zeros;  // the id of kMany resident elements of one byte
};

v1::ReduceRequest OfZeros(const Bed& bed, const std::vector<v1::Op>& ops) {
  v1::ReduceRequest request;
  request.set_array_id(bed.zeros);
  for (const v1::Op op : ops) request.add_ops(op);
  return request;
}

v1::SideArray Keys(const Bed& bed) {
  v1::SideArray side;
  side.set_array_id(bed.zeros);
  return side;
}

// Requests of some bytes that keep the CPU engine busy for a second or so, and what they are predicted to take is less.
struct Work {
  std::string name;
  std::function<v1::ReduceRequest(const Bed&)> request;
};

std::vector<Work> AllWork() {
  return {
      {"groups",
       [](const Bed&) {
         v1::ReduceRequest request = RequestOf(v1::DTYPE_I32, std::vector<std::int32_t>{1, 2}, {v1::OP_SUM});
         v1::SideArray& keys = *request.mutable_keys()->mutable_keys();
         *keys.mutable_array() = request.array();
         keys.set_inline_data(request.inline_data());
         request.mutable_keys()->set_groups(4 * kMany);
         request.set_empty(v1::EMPTY_POLICY_FILL);
         request.mutable_keep()->set_owner("me");
         return request;
       }},
      {"states",
       [](const Bed&) {
         v1::ReduceRequest request = RequestOf(v1::DTYPE_F32, std::vector<float>{1, 2}, {v1::OP_SUM});
         v1::SideArray& keys = *request.mutable_keys()->mutable_keys();
         keys.mutable_array()->set_dtype(v1::DTYPE_I32);
         keys.mutable_array()->add_shape(2);
         keys.set_inline_data(std::string(8, '\0'));
         request.mutable_keys()->set_groups(100'000);
         request.set_empty(v1::EMPTY_POLICY_FILL);
         request.set_return_state(true);
         request.set_omit_results(true);
         return request;
       }},
      {"keys found",
       [](const Bed& bed) {
         v1::ReduceRequest request = OfZeros(bed, kSlowOps);
         *request.mutable_keys()->mutable_keys() = Keys(bed);
         return request;
       }},
  };
}

class RunTimeTest : public ::testing::Test {
 protected:
  static ServerOptions Options(absl::Duration most) {
    ServerOptions options;
    options.limits.max_run_time = most;
    return options;
  }
  static Bed BedOf(const TestServer& server) {
    v1::ArrayInfo array;
    std::string elements(static_cast<std::size_t>(kMany), '\0');
    elements.front() = 1;  // keys that ascend are found in no time
    const grpc::Status status =
        PutElements(server.client(), PutHeaderOf(v1::DTYPE_U8, kMany), elements, 1 << 20, &array);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {server, array.id()};
  }
  static void ExpectLanesFree(const std::string& name) {
    EXPECT_TRUE(Becomes(kSoon, [] { return CpuEngine().info().lanes_busy == 0; })) << name;
  }
};

TEST_F(RunTimeTest, TheLimitHoldsForEveryReduction) {
  const TestServer server(Options(absl::Milliseconds(10)));
  const Bed bed = BedOf(server);
  for (const Work& work : AllWork()) {
    v1::ReduceResponse response;
    const grpc::Status status = server.client().Reduce(work.request(bed), &response);
    // Where the machine is busy, the prediction may exceed the limit, too.
    EXPECT_THAT(status.error_code(), ::testing::AnyOf(Code::DEADLINE_EXCEEDED, Code::INVALID_ARGUMENT)) << work.name;
    EXPECT_THAT(status.error_message(), HasSubstr("--max_run_time")) << work.name;
    ExpectLanesFree(work.name);
  }
}

TEST_F(RunTimeTest, WorkStopsSoonAfterTheDeadline) {
  const TestServer server;
  const Bed bed = BedOf(server);
  for (const Work& work : AllWork()) {
    v1::ReduceResponse response;
    const grpc::Status status = server.client().Reduce(work.request(bed), &response, absl::Milliseconds(50));
    EXPECT_EQ(status.error_code(), Code::DEADLINE_EXCEEDED) << work.name;
    ExpectLanesFree(work.name);
  }
}

TEST_F(RunTimeTest, ALadderEndsWithAllItsRepeats) {
  TestServer server(Options(absl::Milliseconds(300)), SharedEngines());
  const Climbed refused = Climb(server, LadderOf(v1::DTYPE_F32, std::int64_t{1} << 28, v1::OP_SUM, 1000));
  EXPECT_EQ(refused.status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("allowed: 300ms (--max_run_time)"));
  EXPECT_THAT(refused.status.error_message(), HasSubstr("repeats: got 1000 of 268435456 elements by "));
  // What takes time here is to make the array, which is not predicted.
  TestServer other(Options(absl::Milliseconds(100)), SharedEngines());
  const Climbed ended = Climb(other, LadderOf(v1::DTYPE_F32, std::int64_t{1} << 26, v1::OP_SUM, 1));
  EXPECT_THAT(ended.status.error_code(), ::testing::AnyOf(Code::DEADLINE_EXCEEDED, Code::INVALID_ARGUMENT));
  EXPECT_THAT(ended.status.error_message(), HasSubstr("--max_run_time"));
  ExpectLanesFree("ladder");
}

TEST_F(RunTimeTest, AMergeEnds) {
  const TestServer server(Options(absl::Milliseconds(1)));
  v1::ReduceRequest request = RequestOf(v1::DTYPE_F64, std::vector<double>{1.5}, {v1::OP_SUM});
  request.set_return_state(true);
  v1::ReduceResponse response;
  ASSERT_TRUE(server.client().Reduce(request, &response).ok());
  v1::MergeRequest merge;
  for (int i = 0; i < 100'000; ++i) *merge.add_states() = response.state();
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::MergeResponse merged;
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  const grpc::Status status = stub->Merge(&context, merge, &merged);
  EXPECT_EQ(status.error_code(), Code::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "the request ran for 1ms, the most that it may; see --max_run_time");
}

TEST(RunLimitTest, StartsOnce) {
  RunLimit none;
  none.Start();
  EXPECT_TRUE(none.Check().ok());
  RunLimit limit(absl::Hours(1));
  EXPECT_TRUE(limit.Check().ok()) << "it has not started";
  RunLimit copy = limit;
  limit.Start(absl::Minutes(59));
  EXPECT_TRUE(limit.Check().ok());
  copy.Start(absl::Hours(1));
  EXPECT_EQ(copy.Check().code(), absl::StatusCode::kDeadlineExceeded);
  copy.Start();
  EXPECT_FALSE(copy.Check().ok()) << "it has started before";
  EXPECT_EQ(WhyStop(nullptr, absl::InfiniteFuture(), copy).code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace reduced::server
