// Merges beside other calls: they work on threads of their own, are as many as their queue holds, and end when told to.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/memory_budget.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"
#include "tests/support/runs.h"

namespace reduced::server {
namespace {

using Code = grpc::StatusCode;

// The state of so many outputs with a key each; of none, it is some bytes.
v1::ArraysState StateByKeys(const TestServer& server, int keys) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(keys));
  std::iota(numbers.begin(), numbers.end(), 0);
  v1::ReduceRequest request = RequestOf<std::int32_t>(v1::DTYPE_I32, numbers, {v1::OP_COUNT});
  v1::SideArray& side = *request.mutable_keys()->mutable_keys();
  *side.mutable_array() = request.array();
  side.set_inline_data(request.inline_data());
  request.set_return_state(true);
  request.set_omit_results(true);
  v1::ReduceResponse response;
  const grpc::Status status = server.client().Reduce(request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.arrays_state();
}

// Many Merge calls of the same message at once.
class Merges {
 public:
  Merges(const TestServer& server, const v1::MergeRequest& request, int calls)
      : calls_(static_cast<std::size_t>(calls)) {
    stub_ = v1::Reduction::NewStub(server.client().channel());
    for (Call& call : calls_) {
      SetContextDeadline(&call.context);
      stub_->async()->Merge(&call.context, &request, &call.response, [this, &call](const grpc::Status& status) {
        call.status = status;
        call.done.store(true);
        ended_.fetch_add(1);
      });
    }
  }
  ~Merges() { EXPECT_TRUE(CancelAndAwait()); }

  int CountEnded(Code code) const {
    return static_cast<int>(std::count_if(calls_.begin(), calls_.end(), [code](const Call& call) {
      return call.done.load() && call.status.error_code() == code;
    }));
  }
  bool CancelAndAwait() {
    for (Call& call : calls_) call.context.TryCancel();
    return Becomes(kPatience, [this] { return ended_.load() == static_cast<int>(calls_.size()); });
  }
  bool HaveRetryHints(Code code) const {
    return std::all_of(calls_.begin(), calls_.end(), [code](const Call& call) {
      return call.status.error_code() != code ||
             call.context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms") == 1;
    });
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::MergeResponse response;
    grpc::Status status;
    std::atomic<bool> done = false;
  };
  std::unique_ptr<v1::Reduction::Stub> stub_;
  std::vector<Call> calls_;
  std::atomic<int> ended_ = 0;
};

// More than gRPC has threads, and than their queue holds: others are answered long before these are.
TEST(MergeTest, ManyLeaveTheServerToOthers) {
  ServerOptions options;
  options.engines.memory = std::make_shared<MemoryBudget>();
  const TestServer server(options);
  constexpr int kCalls = 400;
  v1::MergeRequest request;
  *request.add_arrays() = StateByKeys(server, test::kSlowBuild ? 4'000 : 20'000);
  Merges merges(server, request, kCalls);
  v1::ReduceResponse response;
  EXPECT_TRUE(server.client().Reduce(SmallSum(), &response).ok());
  int health = 0;
  EXPECT_TRUE(server.client().Health("", &health).ok());
  EXPECT_EQ(health, kServing);
  EXPECT_LT(merges.CountEnded(Code::OK), kCalls / 2);
  // Those beyond the queue are refused, the others end as they are cancelled: those that run, too.
  EXPECT_TRUE(Becomes(kPatience, [&] { return merges.CountEnded(Code::RESOURCE_EXHAUSTED) > 0; }));
  EXPECT_TRUE(merges.CancelAndAwait());
  EXPECT_TRUE(merges.HaveRetryHints(Code::RESOURCE_EXHAUSTED));
  EXPECT_GT(merges.CountEnded(Code::CANCELLED), 0);
  EXPECT_EQ(
      merges.CountEnded(Code::OK) + merges.CountEnded(Code::RESOURCE_EXHAUSTED) + merges.CountEnded(Code::CANCELLED),
      kCalls);
  EXPECT_TRUE(Becomes(kPatience, [&] { return options.engines.memory->taken() == 0; }));
}

// A part costs what it has, not what those before have: if each went through all keys, these would take minutes.
TEST(MergeTest, PartsWithoutKeysCostNothing) {
  const TestServer server;
  const v1::ArraysState keys = StateByKeys(server, 20'000);
  const v1::ArraysState none = StateByKeys(server, 0);
  v1::MergeRequest request;
  *request.add_arrays() = keys;
  for (int i = 0; i < (test::kSlowBuild ? 20'000 : 200'000); ++i) *request.add_arrays() = none;
  *request.add_arrays() = keys;
  const auto stub = v1::Reduction::NewStub(server.client().channel());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::MergeResponse merged;
  const grpc::Status status = stub->Merge(&context, request, &merged);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(merged.count(), 40'000);
  EXPECT_EQ(merged.keys().array().shape(0), 20'000);
  const std::vector<std::uint64_t> twos(20'000, 2);
  EXPECT_EQ(merged.arrays(0).data(), std::string(reinterpret_cast<const char*>(twos.data()), twos.size() * 8));
}

}  // namespace
}  // namespace reduced::server
