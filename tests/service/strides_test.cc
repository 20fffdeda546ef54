// Arrays in regions with strides and in big-endian byte order: by calls, sessions and rings, and hostile ones.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/client.h"
#include "reduced/shared.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using client::ElementLayout;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

class StridesTest : public ::testing::Test {
 protected:
  static constexpr std::int32_t kCount = 1200;  // the numbers 1 to 1200, as i32

  std::string path() {
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(server_.client().Info(&info).ok());
    return info.region_socket();
  }
  // The sum of a part of the region, or the error.
  std::string Sum(const std::string& token, std::vector<std::int64_t> shape, std::int64_t offset,
                  std::vector<std::int64_t> strides, v1::DType dtype = v1::DTYPE_I32, bool big_endian = false) {
    v1::ReduceRequest request;
    request.add_ops(v1::OP_SUM);
    request.mutable_array()->set_dtype(dtype);
    request.mutable_array()->mutable_shape()->Add(shape.begin(), shape.end());
    v1::RegionPart& part = *request.mutable_region();
    part.set_token(token);
    part.set_offset(strides.empty() && !big_endian ? offset : -1 - offset);
    part.mutable_strides()->Add(strides.begin(), strides.end());
    part.set_big_endian(big_endian);
    return SumOf(request);
  }
  std::string SumOf(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    if (status.ok()) return Text(response.results(0).value());
    return absl::StrFormat("%s: %s", absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())),
                           status.error_message());
  }

  TestServer server_;
};

// Sealed memory is mapped; other memory is read by calls of the system.
TEST_F(StridesTest, OfMemoryThatIsMappedAndThatIsNot) {
  Sharer sharer(path());
  for (const int seals : {0, kSeals}) {
    SCOPED_TRACE(seals);
    const Descriptor memory(NumbersInMemory(kCount, seals));
    const std::string token = sharer.Share(memory).token();
    EXPECT_EQ(Sum(token, {600}, 0, {8}), "i64:360000");          // the odd ones
    EXPECT_EQ(Sum(token, {600}, 4 * 1199, {-8}), "i64:360600");  // the even ones, backwards
    EXPECT_EQ(Sum(token, {30, 40}, 0, {4, 120}), "i64:720600");  // transposed
    EXPECT_EQ(Sum(token, {30, 40}, 0, {160, 4}), "i64:720600");  // dense
    EXPECT_EQ(Sum(token, {3, 5}, 4 * 9, {0, 0}), "i64:150");     // one element, which is 10
    EXPECT_EQ(Sum(token, {}, 4 * 6, {}), "i64:7");
    EXPECT_EQ(Sum(token, {}, 4 * 6, {}, v1::DTYPE_I32, true), "i64:117440512");  // 7 << 24
    EXPECT_EQ(Sum(token, {1, 1}, 4 * 6, {kMost, kLeast}), "i64:7");              // of one index there is no next one
    EXPECT_EQ(Sum(token, {0, 9}, 0, {kMost, kMost}), "i64:0");
    EXPECT_EQ(Sum(token, {0}, 4 * kCount, {8}), "i64:0");
    EXPECT_EQ(Sum(token, {kCount}, 0, {4}, v1::DTYPE_U8), "u64:" + std::to_string([] {
                                                            std::int64_t sum = 0;
                                                            for (int i = 1; i <= kCount; ++i) sum += i & 0xff;
                                                            return sum;
                                                          }()));
    EXPECT_EQ(Sum(token, {2}, 1, {3}, v1::DTYPE_U16), "u64:2");  // bytes 1 and 2, and 4 and 5: at odd addresses
    std::vector<std::int64_t> shape(64, 1), strides(64, 4);
    shape[20] = 3;
    EXPECT_EQ(Sum(token, shape, 0, strides), "i64:6");
    EXPECT_EQ(sharer.Release(token).code(), 0);
  }
}

TEST_F(StridesTest, ByteOrderOfEachWidth) {
  const client::SharedBuffer buffer = client::SharedBuffer::Allocate(8 * 3).value();
  const auto client = client::Client::Create({.server = server_.address(), .timeout = kPatience}).value();
  const client::Region region = client->Share(buffer).value();
  const auto check = [&]<class T>(const char* dtype, std::vector<T> values, double sum) {
    auto* const to = static_cast<std::byte*>(buffer.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(to + i * sizeof(T), &values[i], sizeof(T));
      std::reverse(to + i * sizeof(T), to + (i + 1) * sizeof(T));
    }
    const auto reply = client->Reduce(region.Array(dtype, {std::ssize(values)}, 0, {.big_endian = true}), {"sum"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->results[0].value->AsDouble(), sum) << dtype;
  };
  check("u8", std::vector<std::uint8_t>{1, 2, 3}, 6);
  check("bool", std::vector<std::uint8_t>{1, 0, 1}, 2);
  check("i16", std::vector<std::int16_t>{1, -300, 3}, -296);
  check("f16", std::vector<std::uint16_t>{0x3c00, 0x4000, 0xc400}, -1);
  check("bf16", std::vector<std::uint16_t>{0x3f80, 0x4000, 0xc080}, -1);
  check("f32", std::vector<float>{0.5F, 1024, -3}, 1021.5);
  check("i64", std::vector<std::int64_t>{std::int64_t{1} << 40, 1, -5}, 1099511627772.0);
  check("f64", std::vector<double>{1e100, 1, -1e100}, 1);
}

TEST_F(StridesTest, HostileStrides) {
  Sharer sharer(path());
  const Descriptor memory(NumbersInMemory(kCount, kSeals));
  const std::string token = sharer.Share(memory).token();
  const std::int64_t end = 4 * kCount;
  const auto error = [&](std::vector<std::int64_t> shape, std::int64_t offset, std::vector<std::int64_t> strides) {
    return Sum(token, std::move(shape), offset, std::move(strides));
  };
  EXPECT_EQ(error({2}, 0, {end - 4}), "i64:1201");
  EXPECT_EQ(
      error({2}, 0, {end - 3}),
      "OUT_OF_RANGE: region.strides: got an array of 4801 bytes from byte 0 on; allowed: within the 4800 bytes of "
      "the region");
  EXPECT_EQ(error({2}, 8, {-12}),
            "OUT_OF_RANGE: region.strides: got an array from byte -4 on; allowed: within the 4800 bytes of the region");
  EXPECT_THAT(error({2}, 0, {kLeast}), StartsWith("OUT_OF_RANGE: region.strides: got an array from byte -92"));
  EXPECT_THAT(error({2}, kMost, {kLeast}), StartsWith("OUT_OF_RANGE: region.strides: "));
  EXPECT_EQ(error({2}, -4, {4}),
            "INVALID_ARGUMENT: region.offset: got 3 with strides or big_endian; allowed: -1 - the byte, below 0");
  const char* const apart =
      "OUT_OF_RANGE: region.strides: got elements that are 2^63 bytes or more apart; allowed: within the bytes of the "
      "region";
  EXPECT_EQ(error({3}, 0, {kMost}), apart);
  EXPECT_EQ(error({3}, 0, {kLeast}), apart);
  EXPECT_EQ(error({2, 2}, 0, {kMost - 4, kMost - 4}), apart);
  EXPECT_EQ(error({5, 5}, 0, {std::int64_t{1} << 62, -(std::int64_t{1} << 62)}), apart);
  // The sum of what overflows may lie within the region.
  EXPECT_EQ(error({2, 2}, 0, {kLeast, kLeast}), apart);
  EXPECT_EQ(error({4}, 0, {4, 4}),
            "INVALID_ARGUMENT: region.strides: got 2; allowed: 1, one for each dimension of the array, or none");
  EXPECT_THAT(error({}, 0, {4}), HasSubstr("region.strides: got 1; allowed: 0, one for each dimension"));
  EXPECT_THAT(error(std::vector<std::int64_t>(65, 1), 0, std::vector<std::int64_t>(65, 4)),
              HasSubstr("array.shape: got 65 dimensions with region.strides or region.big_endian; allowed: 64"));
  // One element cannot stand for more than a request may have, nor for what takes too long.
  EXPECT_THAT(error({kMost, 2}, 0, {0, 0}), StartsWith("INVALID_ARGUMENT: array.shape: "));
  EXPECT_THAT(error({std::int64_t{1} << 50}, 0, {0}), StartsWith("INVALID_ARGUMENT: array"));
  EXPECT_THAT(Sum("no token", {2}, 0, {8}), StartsWith("NOT_FOUND: region.token"));
  EXPECT_THAT(Sum(token, {2}, 0, {8}, v1::DTYPE_UNSPECIFIED), StartsWith("INVALID_ARGUMENT: array.dtype"));
}

TEST_F(StridesTest, ACopyForAPartitionIsWithinTheMemoryOfTheServer) {
  Sharer sharer(path());
  const Descriptor memory(NumbersInMemory(kCount, kSeals));
  v1::ReduceRequest request;
  request.add_ops(v1::OP_SUM);
  request.mutable_array()->set_dtype(v1::DTYPE_I32);
  for (const std::int64_t size : {std::int64_t{1} << 30, std::int64_t{1} << 10})
    request.mutable_array()->add_shape(size);
  request.mutable_axes()->add_axis(0);
  request.mutable_region()->set_token(sharer.Share(memory).token());
  request.mutable_region()->set_offset(-1);
  for (int i = 0; i < 2; ++i) request.mutable_region()->add_strides(0);
  ServerOptions options;
  options.limits.max_run_time = absl::Hours(1000);
  TestServer patient(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(patient.client().Info(&info).ok());
  Sharer other(info.region_socket());
  request.mutable_region()->set_token(other.Share(memory).token());
  v1::ReduceResponse response;
  const grpc::Status status = patient.client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("4398046511104 bytes"));
}

TEST_F(StridesTest, ResultsHaveNone) {
  const client::SharedBuffer results = client::SharedBuffer::AllocateForResults(1 << 12).value();
  const auto client = client::Client::Create({.server = server_.address(), .timeout = kPatience}).value();
  const client::Region region = client->Share(results, {.writable = true}).value();
  v1::ReduceRequest request;
  request.add_ops(v1::OP_SUM);
  request.mutable_array()->set_dtype(v1::DTYPE_U8);
  request.mutable_array()->add_shape(2);
  request.set_inline_data("ab");
  request.mutable_axes();
  request.mutable_write_to()->set_token(region.token());
  request.mutable_write_to()->add_strides(8);
  EXPECT_THAT(SumOf(request), StartsWith("INVALID_ARGUMENT: write_to.strides: got it; allowed: none"));
  request.mutable_write_to()->clear_strides();
  request.mutable_write_to()->set_big_endian(true);
  EXPECT_THAT(SumOf(request), StartsWith("INVALID_ARGUMENT: write_to.big_endian: got it; allowed: none"));
}

// Through the client library: every call that takes an array in a region.
class StridesClientTest : public StridesTest {
 protected:
  StridesClientTest() {
    const auto numbers = buffer_.As<double>();
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  }
  // Every second column of [20, 30].
  client::RemoteArray Columns() const { return region_.Array("f64", {20, 15}, 8, {.strides = {{240, 16}}}); }

  const std::vector<double> ones_ = std::vector<double>(300, 1);
  const client::SharedBuffer buffer_ = client::SharedBuffer::Allocate(600 * 8).value();
  const std::unique_ptr<client::Client> client_ =
      client::Client::Create({.server = server_.address(), .timeout = kPatience}).value();
  const client::Region region_ = client_->Share(buffer_).value();
};

TEST_F(StridesClientTest, ByEveryCall) {
  constexpr double kSum = 90'000;  // of the odd numbers below 600
  const auto check = [&](const absl::StatusOr<client::Reply>& reply) {
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->count, 300);
    EXPECT_EQ(client::FindResult(reply->results, "sum")->AsDouble(), kSum);
    EXPECT_EQ(client::FindResult(reply->results, "argmax")->AsInt64(), 299);
  };
  check(client_->Reduce(Columns(), {"sum", "argmax"}));
  for (const char* const via : {"session", "ring"}) {
    SCOPED_TRACE(via);
    const auto session = client_->OpenSession({.via = via}).value();
    for (int i = 0; i < 3; ++i) check(session->Reduce(Columns(), {"sum", "argmax"}));
    // Not the same as a moment ago: other strides, another byte order.
    const auto dense = session->Reduce(region_.Array("f64", {20, 15}, 8), {"sum"});
    EXPECT_EQ(dense->results[0].value->AsDouble(), 300 * 301 / 2.0);
    const auto rows = session->ReduceArray(Columns(), {"max"}, {.axis = {1}}, {});
    ASSERT_TRUE(rows.ok()) << rows.status();
    double last;
    std::memcpy(&last, rows->results[0].array.data.data() + 19 * 8, 8);
    EXPECT_EQ(last, 599);
  }
  const auto many = client_->ReduceMany({Columns(), region_.Array("f64", {600})}, {"sum"}, {});
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ((*many)[0].results[0].value->AsDouble(), kSum);
  EXPECT_EQ((*many)[1].results[0].value->AsDouble(), 599 * 300.0);
}

TEST_F(StridesClientTest, ArraysBeside) {
  const client::ArrayView ones = client::ArrayView::Of(std::span<const double>(ones_));
  const auto dot = client_->ReduceArray(ones, {"dot"},
                                        {.y = region_.Array("f64", {300}, 0, {.strides = {{16}}}), .whole = true}, {});
  ASSERT_TRUE(dot.ok()) << dot.status();
  double sum;
  std::memcpy(&sum, dot->results[0].array.data.data(), 8);
  EXPECT_EQ(sum, 89'700);  // of the even numbers below 600
  const auto error = client_->ReduceArray(
      ones, {"dot"}, {.y = region_.Array("f64", {300}, 0, {.strides = {{17}}}), .whole = true}, {});
  EXPECT_THAT(std::string(error.status().message()), HasSubstr("y.region.strides: got an array of 5091 bytes"));
}

TEST_F(StridesClientTest, StridesOfAnotherNumberAreNotSent) {
  for (const std::size_t strides : {0, 1, 3}) {
    const auto array = region_.Array("f64", {4, 4}, 0, {.strides = std::vector<std::int64_t>(strides, 8)});
    const absl::Status status = client_->Reduce(array, {"sum"}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("strides: got " + std::to_string(strides) + "; allowed: 2"));
  }
}

}  // namespace
}  // namespace reduced::server
