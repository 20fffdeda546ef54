// Client::ReduceMany: how operands are put together in calls, and whose error an error is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::StartsWith;

// The message of an error.
std::string MessageOf(const absl::StatusOr<std::vector<Reply>>& replies) {
  return std::string(replies.status().message());
}

class ManyTest : public CallTest {
 protected:
  void SetUp() override {
    CallTest::SetUp();
    service_.on_many = [this](const v1::ReduceManyRequest& request) {
      calls_.push_back(request.operands_size());
      bytes_.push_back(static_cast<std::int64_t>(request.ByteSizeLong()));
      return grpc::Status::OK;
    };
    service_.on_reduce = [](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
      // The sum, so that an answer tells whose it is.
      const auto* const elements = reinterpret_cast<const float*>(request.inline_data().data());
      double sum = 0;
      for (std::size_t i = 0; i < request.inline_data().size() / sizeof(float); ++i) sum += elements[i];
      v1::Result& result = *response->add_results();
      result.set_op(v1::OP_SUM);
      result.mutable_value()->set_dtype(v1::DTYPE_F64);
      result.mutable_value()->set_f(sum);
      return grpc::Status::OK;
    };
  }

  std::vector<int> calls_;           // how many operands each has
  std::vector<std::int64_t> bytes_;  // of the messages
};

TEST_F(ManyTest, PutsOperandsTogether) {
  std::vector<std::vector<float>> arrays;
  for (int i = 0; i < 2500; ++i) arrays.push_back({static_cast<float>(i), 1});
  std::vector<Operand> operands;
  for (const std::vector<float>& array : arrays) operands.emplace_back(ArrayView::Of(array));
  const auto replies = client_->ReduceMany(operands, {"sum"});
  ASSERT_TRUE(replies.ok()) << replies.status();
  ASSERT_EQ(replies->size(), arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ((*replies)[i].Find("sum")->AsDouble(), static_cast<double>(i) + 1);
    EXPECT_EQ((*replies)[i].via, "inline");
    EXPECT_EQ((*replies)[i].count, 2);
  }
  EXPECT_THAT(calls_, ElementsAre(1024, 1024, 452));
}

TEST_F(ManyTest, KeepsMessagesSmall) {
  const std::vector<float> array(100'000, 1);  // 400 KB, which are not streamed
  const std::vector<Operand> operands(50, ArrayView::Of(array));
  ASSERT_TRUE(client_->ReduceMany(operands, {"sum"}).ok());
  EXPECT_THAT(bytes_, Each(Le((4 << 20) + 10'000)));
  EXPECT_THAT(calls_, ElementsAre(10, 10, 10, 10, 10));
}

TEST_F(ManyTest, StreamsLargeArraysByThemselves) {
  std::int64_t streamed = 0;
  service_.on_stream = [&](const v1::ReduceStreamRequest& request) {
    streamed += static_cast<std::int64_t>(request.chunk().size());
    return grpc::Status::OK;
  };
  service_.spoil = [](v1::ReduceResponse* response) {
    response->clear_results();
    v1::Result& result = *response->add_results();
    result.set_op(v1::OP_SUM);
    result.mutable_value()->set_dtype(v1::DTYPE_F64);
    result.mutable_value()->set_f(-5);
  };
  const std::vector<float> large(200'000, 1);
  const auto replies = client_->ReduceMany({array_, ArrayView::Of(large), array_}, {"sum"});
  ASSERT_TRUE(replies.ok()) << replies.status();
  EXPECT_EQ(streamed, 800'000);
  EXPECT_THAT(calls_, ElementsAre(2));
  EXPECT_EQ((*replies)[0].Find("sum")->AsDouble(), 7);
  EXPECT_EQ((*replies)[1].Find("sum")->AsDouble(), -5);
  EXPECT_EQ((*replies)[1].via, "stream");
  EXPECT_EQ((*replies)[2].Find("sum")->AsDouble(), 7);
}

TEST_F(ManyTest, NamesTheCallersOperandInErrors) {
  const std::vector<Operand> operands(1030, array_);
  service_.on_many = [this](const v1::ReduceManyRequest& request) {
    calls_.push_back(request.operands_size());
    return calls_.size() < 2 ? grpc::Status::OK
                             : grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "operands[3]: integer overflow");
  };
  EXPECT_EQ(client_->ReduceMany(operands, {"sum"}).status(), absl::OutOfRangeError("operands[1027]: integer overflow"));
  ArrayView wrong = array_;
  wrong.dtype = "f31";
  EXPECT_THAT(MessageOf(client_->ReduceMany({array_, wrong}, {"sum"})), StartsWith("operands[1].dtype: got "));
  wrong = array_;
  wrong.data = nullptr;
  EXPECT_THAT(MessageOf(client_->ReduceMany({array_, wrong}, {"sum"})), StartsWith("operands[1].data: got null"));
  EXPECT_THAT(MessageOf(client_->ReduceMany({}, {"sum"})), StartsWith("operands: got none; allowed: 1 or more"));
  EXPECT_THAT(MessageOf(client_->ReduceMany({array_}, {"some"})), StartsWith("op: got \"some\""));
  EXPECT_THAT(MessageOf(client_->ReduceMany({array_}, {})), StartsWith("ops: got none"));
  EXPECT_EQ(calls_.size(), 2U) << "nothing of these is sent";
}

TEST_F(ManyTest, ChecksTheAnswers) {
  service_.spoil_many = [](v1::ReduceManyResponse* response) { response->mutable_responses()->RemoveLast(); };
  EXPECT_THAT(MessageOf(client_->ReduceMany({array_, array_}, {"sum"})),
              HasSubstr("is wrong: responses: got 1; allowed: 2"));
  service_.spoil_many = [](v1::ReduceManyResponse* response) { response->mutable_responses(1)->set_count(4); };
  EXPECT_TRUE(absl::IsInternal(client_->ReduceMany({array_, array_}, {"sum"}).status()));
}

}  // namespace
}  // namespace reduced::client
