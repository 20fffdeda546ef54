// Reduce on a GPU, through the RPC: the same answers, and the stages that only a device has.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/service/test_server.h"

namespace reduced {
namespace {

TEST(CudaServiceTest, AnswersAndTimesItsStages) {
  absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start({});
  ASSERT_TRUE(engines.ok()) << engines.status();
  TestServer server(ServerOptions(), *std::move(engines));
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  if (!info.no_cuda_reason().empty()) {
    if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << info.no_cuda_reason();
    GTEST_SKIP() << info.no_cuda_reason();
  }
  ASSERT_EQ(info.devices_size(), 2);
  EXPECT_EQ(info.devices(1).engine(), v1::ENGINE_CUDA);

  for (const std::size_t count : {std::size_t{1000}, std::size_t{12} << 20}) {
    std::vector<std::int32_t> elements(count, 2);
    elements[count / 2] = -7;
    v1::ReduceRequest request =
        RequestOf(v1::DTYPE_I32, elements, {v1::OP_SUM, v1::OP_MIN, v1::OP_ARGMIN, v1::OP_BIT_OR});
    request.mutable_options()->set_engine(v1::ENGINE_CUDA);
    v1::ReduceResponse response;
    const grpc::Status status = server.client().Reduce(request, &response);
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

}  // namespace
}  // namespace reduced
