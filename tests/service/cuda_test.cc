// Reduce on a GPU, through the RPCs: the same answers, the stages that only a device has, and arrays that stay in its
// memory.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/array_calls.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kArrayBytes = std::int64_t{1} << 30;

class CudaServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.cuda_array_bytes = kArrayBytes;
    absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
    ASSERT_TRUE(engines.ok()) << engines.status();
    server_ = std::make_unique<TestServer>(ServerOptions(), *std::move(engines));
    const v1::GetServerInfoResponse info = Info();
    if (!info.no_cuda_reason().empty()) {
      if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << info.no_cuda_reason();
      GTEST_SKIP() << info.no_cuda_reason();
    }
    ASSERT_GE(info.devices_size(), 2);
    EXPECT_EQ(info.devices(1).engine(), v1::ENGINE_CUDA);
  }
  TestClient& client() { return server_->client(); }
  v1::GetServerInfoResponse Info() {
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(client().Info(&info).ok());
    return info;
  }

 private:
  std::unique_ptr<TestServer> server_;
};

TEST_F(CudaServiceTest, AnswersAndTimesItsStages) {
  const v1::GetServerInfoResponse info = Info();
  for (const std::size_t count : {std::size_t{1000}, std::size_t{12} << 20}) {
    std::vector<std::int32_t> elements(count, 2);
    elements[count / 2] = -7;
    v1::ReduceRequest request =
        RequestOf(v1::DTYPE_I32, elements, {v1::OP_SUM, v1::OP_MIN, v1::OP_ARGMIN, v1::OP_BIT_OR});
    request.mutable_options()->set_engine(v1::ENGINE_CUDA);
    v1::ReduceResponse response;
    const grpc::Status status = client().Reduce(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.results(0).value().i(), 2 * static_cast<std::int64_t>(count - 1) - 7);
    EXPECT_EQ(response.results(1).value().i(), -7);
    EXPECT_EQ(response.results(2).value().u(), count / 2);
    EXPECT_EQ(response.results(3).value().i(), -5);  // -7 | 2
    EXPECT_EQ(response.execution().engine(), v1::ENGINE_CUDA);
    EXPECT_EQ(response.execution().device(), info.devices(1).name());
    const v1::Timing& timing = response.timing();
    EXPECT_GT(timing.host_copy_us(), 0);
    EXPECT_GT(timing.host_to_device_us(), 0);
    EXPECT_GT(timing.kernel_us(), 0);
    EXPECT_FALSE(timing.has_device_to_host_us());  // the kernel writes its result to host memory
    EXPECT_GE(timing.total_us(), timing.kernel_us());
  }
}

TEST_F(CudaServiceTest, KeepsArraysInItsMemory) {
  constexpr std::int64_t kCount = 5'000'011;
  std::vector<std::int32_t> elements(kCount, 2);
  elements[kCount / 2] = -7;
  const std::string bytes(reinterpret_cast<const char*>(elements.data()), 4 * kCount);
  v1::PutArrayHeader header;
  header.mutable_array()->set_dtype(v1::DTYPE_I32);
  header.mutable_array()->add_shape(kCount);
  PutArrayCall put(client());
  ASSERT_TRUE(put.Header(header));
  for (std::size_t i = 0; i < bytes.size(); i += 1'000'001) ASSERT_TRUE(put.Chunk(bytes.substr(i, 1'000'001)));
  const grpc::Status kept = put.End();
  ASSERT_TRUE(kept.ok()) << kept.error_message();
  const v1::ArrayInfo array = put.response().array();
  EXPECT_EQ(array.device(), "cuda:0");  // by default
  EXPECT_EQ(Info().devices(1).array_bytes(), 4 * kCount);
  EXPECT_EQ(Info().devices(1).array_bytes_limit(), kArrayBytes);

  v1::ReduceRequest request;
  request.set_array_id(array.id());
  for (const v1::Op op : {v1::OP_SUM, v1::OP_ARGMIN}) request.add_ops(op);
  v1::ReduceResponse response;
  for (const v1::Engine engine : {v1::ENGINE_AUTO, v1::ENGINE_CUDA}) {
    request.mutable_options()->set_engine(engine);
    const grpc::Status status = client().Reduce(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.results(0).value().i(), 2 * (kCount - 1) - 7);
    EXPECT_EQ(response.results(1).value().u(), kCount / 2);
    EXPECT_EQ(response.execution().device(), "cuda:0");
    if (engine == v1::ENGINE_AUTO) {
      EXPECT_EQ(response.execution().reason(), "the array is in its memory");
    }
    EXPECT_FALSE(response.timing().has_host_copy_us());
    EXPECT_FALSE(response.timing().has_host_to_device_us());
  }
  request.mutable_options()->set_engine(v1::ENGINE_CPU);
  EXPECT_EQ(client().Reduce(request, &response).error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  header.mutable_array()->set_shape(0, kArrayBytes / 4);
  PutArrayCall full(client());
  full.Header(header);
  const grpc::Status refused = full.Await();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), ::testing::HasSubstr("cuda:0 has no room for an array of 1073741824 bytes: its "
                                                            "arrays take 20000044 of the 1073741824 bytes"));

  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::DeleteArrayRequest forget;
  forget.set_id(array.id());
  v1::DeleteArrayResponse forgotten;
  EXPECT_TRUE(v1::Reduction::NewStub(client().channel())->DeleteArray(&context, forget, &forgotten).ok());
  EXPECT_EQ(Info().devices(1).array_bytes(), 0);
}

// Arrays that are sent and resident ones, answered on the device and from states; and what has no room there.
TEST_F(CudaServiceTest, AlongAxes) {
  constexpr std::int64_t kRows = 3000, kColumns = 700;
  std::vector<float> elements(kRows * kColumns);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(i * 7919 % 1009) - 300.25F;
  v1::PutArrayHeader header;
  header.mutable_array()->set_dtype(v1::DTYPE_F32);
  for (const std::int64_t size : {kRows, kColumns}) header.mutable_array()->add_shape(size);
  PutArrayCall put(client());
  ASSERT_TRUE(put.Header(header));
  const std::string bytes(reinterpret_cast<const char*>(elements.data()), 4 * elements.size());
  for (std::size_t i = 0; i < bytes.size(); i += 1'000'001) ASSERT_TRUE(put.Chunk(bytes.substr(i, 1'000'001)));
  ASSERT_TRUE(put.End().ok());

  v1::ReduceRequest resident;
  resident.set_array_id(put.response().array().id());
  EXPECT_TRUE(GetElements(client(), resident.array_id()) == bytes);
  v1::ReduceRequest sent = RequestOf(v1::DTYPE_F32, elements, {});
  *sent.mutable_array() = header.array();
  const std::vector<std::vector<v1::Op>> questions = {{v1::OP_SUM, v1::OP_MEAN},
                                                      {v1::OP_ARGMAX, v1::OP_MIN},
                                                      {v1::OP_STD, v1::OP_L2},
                                                      {v1::OP_L1, v1::OP_COUNT_NONZERO}};
  for (const std::vector<v1::Op>& ops : questions) {
    for (const int axis : {0, 1}) {
      sent.clear_ops();
      for (const v1::Op op : ops) sent.add_ops(op);
      sent.mutable_axes()->Clear();
      sent.mutable_axes()->add_axis(axis);
      sent.mutable_options()->set_engine(v1::ENGINE_CPU);
      v1::ReduceResponse expected;
      ASSERT_TRUE(client().Reduce(sent, &expected).ok());
      sent.mutable_options()->set_engine(v1::ENGINE_CUDA);
      *resident.mutable_ops() = sent.ops();
      *resident.mutable_axes() = sent.axes();
      for (const v1::ReduceRequest* const request : {&sent, &resident}) {
        v1::ReduceResponse response;
        const grpc::Status status = client().Reduce(*request, &response);
        ASSERT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(response.execution().device(), "cuda:0");
        EXPECT_GT(response.timing().kernel_us(), 0);
        ASSERT_EQ(response.arrays_size(), expected.arrays_size());
        for (int i = 0; i < expected.arrays_size(); ++i) {
          EXPECT_EQ(response.arrays(i).data(), expected.arrays(i).data())
              << v1::Op_Name(ops[static_cast<std::size_t>(i)]);
        }
      }
    }
  }

  v1::PutArrayHeader most;
  most.mutable_array()->set_dtype(v1::DTYPE_U8);
  most.mutable_array()->add_shape(kArrayBytes - static_cast<std::int64_t>(bytes.size()) - 1000);
  PutArrayCall rest(client());
  ASSERT_TRUE(rest.Header(most));
  while (Info().devices(1).array_bytes() < most.array().shape(0)) absl::SleepFor(absl::Milliseconds(1));
  // 36 MB in host memory, more than a chunk: in pieces, of columns that are more than a chunk, too.
  std::vector<float> many(9'000'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 1000) / 7;
  v1::ReduceRequest large = RequestOf(v1::DTYPE_F32, many, {v1::OP_SUM});
  const auto reduce = [&](v1::Engine engine, std::int64_t rows, v1::ReduceResponse* response) {
    large.mutable_array()->clear_shape();
    large.mutable_array()->add_shape(rows);
    large.mutable_array()->add_shape(std::ssize(many) / rows);
    large.clear_axes();
    large.mutable_axes()->add_axis(0);
    large.mutable_options()->set_engine(engine);
    return client().Reduce(large, response);
  };
  for (const std::int64_t rows : {3000, 3'000'000}) {
    v1::ReduceResponse response, expected;
    const grpc::Status in_pieces = reduce(v1::ENGINE_CUDA, rows, &response);
    ASSERT_TRUE(in_pieces.ok()) << in_pieces.error_message();
    ASSERT_TRUE(reduce(v1::ENGINE_CPU, rows, &expected).ok());
    EXPECT_EQ(response.arrays(0).data(), expected.arrays(0).data());
  }
}

}  // namespace
}  // namespace reduced::server
