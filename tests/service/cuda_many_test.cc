// ReduceMany of arrays in the memory of a GPU, which its engine reduces together: the answers are those of each alone.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/array_calls.h"
#include "tests/service/many_calls.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

class CudaManyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.cuda_array_bytes = std::int64_t{64} << 20;
    absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
    ASSERT_TRUE(engines.ok()) << engines.status();
    ServerOptions server;
    server.limits.max_result_bytes = 1 << 20;
    server_ = std::make_unique<TestServer>(server, *std::move(engines));
    v1::GetServerInfoResponse info;
    ASSERT_TRUE(client().Info(&info).ok());
    if (!info.no_cuda_reason().empty()) {
      if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << info.no_cuda_reason();
      GTEST_SKIP() << info.no_cuda_reason();
    }
  }
  TestClient& client() { return server_->client(); }

  void AddResident(DType dtype, const std::string& elements, v1::ReduceManyRequest* request) {
    v1::ArrayInfo array;
    const auto count = static_cast<std::int64_t>(elements.size()) / RowOf(dtype).bytes;
    v1::PutArrayHeader header = PutHeaderOf(static_cast<v1::DType>(dtype), count);
    header.set_device("cuda:0");
    ASSERT_TRUE(PutElements(client(), header, elements, 1 << 20, &array).ok());
    request->add_operands()->set_array_id(array.id());
  }
  // Resident arrays of every dtype, and inline ones between them.
  v1::ReduceManyRequest EveryDType() {
    v1::ReduceManyRequest request;
    for (const std::int64_t count : {0, 1, 1000, 90'000}) {
      for (const DTypeRow& dtype : kDTypes) {
        AddResident(dtype.dtype, ElementsOf(dtype.dtype, count), &request);
        if (count == 1000) AddOperand(dtype.dtype, 100, &request);
      }
    }
    return request;
  }

 private:
  std::unique_ptr<TestServer> server_;
};

TEST_F(CudaManyTest, AnswersAsReduceDoes) {
  v1::ReduceManyRequest request = EveryDType();
  AddOps({v1::OP_SUM, v1::OP_MIN, v1::OP_ARGMAX, v1::OP_MEAN, v1::OP_STD, v1::OP_L2, v1::OP_COUNT}, &request);
  request.mutable_question()->set_op_errors(true);
  for (const v1::NanPolicy policy : {v1::NAN_POLICY_PROPAGATE, v1::NAN_POLICY_OMIT}) {
    request.mutable_question()->mutable_options()->set_nan_policy(policy);
    ExpectAsAlone(client(), request);
  }
  request.mutable_question()->set_return_state(true);
  ExpectAsAlone(client(), request);
}

TEST_F(CudaManyTest, AnswersFingerprintsAsReduceDoes) {
  for (const std::vector<v1::Op>& ops : {std::vector<v1::Op>{v1::OP_FINGERPRINT},
                                         {v1::OP_FINGERPRINT, v1::OP_SUM},
                                         {v1::OP_FINGERPRINT, v1::OP_MEDIAN}}) {
    v1::ReduceManyRequest request = EveryDType();
    AddOps(ops, &request);
    request.mutable_question()->set_op_errors(true);
    ExpectAsAlone(client(), request);
    request.mutable_question()->set_return_state(true);
    request.mutable_question()->set_omit_results(true);
    ExpectAsAlone(client(), request);
  }
}

TEST_F(CudaManyTest, TheErrorOfAnArrayHasItsIndex) {
  v1::ReduceManyRequest request;
  const std::vector<std::int64_t> large(10, std::int64_t{1} << 62);
  AddResident(DType::kI64, ElementsOf(DType::kI64, 1000), &request);
  AddOperand(DType::kF32, 100, &request);
  AddResident(DType::kI64, std::string(reinterpret_cast<const char*>(large.data()), 80), &request);
  AddResident(DType::kBF16, ElementsOf(DType::kBF16, 1000), &request);
  AddOps({v1::OP_SUM}, &request);
  v1::ReduceManyResponse response;
  const grpc::Status status = ReduceMany(client(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), ::testing::StartsWith("operands[2]: integer overflow"));
  request.mutable_operands()->DeleteSubrange(2, 1);
  ExpectAsAlone(client(), request);
  for (const v1::ArrayInfo& array : ListArrays(client())) EXPECT_EQ(array.users(), 0);
}

}  // namespace
}  // namespace reduced::server
