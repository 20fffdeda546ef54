// What the headers give C++ programs: views of their memory, values and results, what an error says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

static_assert(REDUCED_VERSION_MAJOR * 10000 + REDUCED_VERSION_MINOR * 100 + REDUCED_VERSION_PATCH > 0);

void ExpectView(const ArrayView& view, const void* data, const std::string& dtype, std::vector<std::int64_t> shape) {
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.dtype, dtype);
  EXPECT_EQ(view.shape, shape);
}

TEST(ArrayViewTest, IsOfWhatLiesInOnePieceOfMemory) {
  std::vector<float> vector(6);
  const std::vector<std::uint16_t> constant(2);
  std::array<bool, 3> array{};
  double plain[4] = {};
  ExpectView(ArrayView::Of(vector), vector.data(), "f32", {6});
  ExpectView(ArrayView::Of(vector, {{2, 3}}), vector.data(), "f32", {2, 3});
  ExpectView(ArrayView::Of(constant), constant.data(), "u16", {2});
  ExpectView(ArrayView::Of(array), array.data(), "bool", {3});
  ExpectView(ArrayView::Of(plain), plain, "f64", {4});
  ExpectView(ArrayView::Of(std::span(vector).subspan(2)), &vector[2], "f32", {4});  // a span may be a temporary
  ExpectView(ArrayView::Of(std::span<const double>(plain), {{2, 2}}), plain, "f64", {2, 2});
  ExpectView(ArrayView::Of(vector.data(), 5), vector.data(), "f32", {5});
}

TEST(ValueTest, IsADoubleAnIntegerAndAText) {
  struct Case {
    Value value;
    double number;
    std::optional<std::int64_t> integer;
    std::string text;
  };
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const Case cases[] = {
      {{"i64", kMin}, -0x1p63, kMin, "-9223372036854775808"},
      {{"i64", kMax}, 0x1p63, kMax, "9223372036854775807"},
      {{"u64", std::uint64_t{7}}, 7, 7, "7"},
      {{"u64", std::uint64_t{1} << 63}, 0x1p63, std::nullopt, "9223372036854775808"},
      {{"bool", true}, 1, 1, "true"},
      {{"bool", false}, 0, 0, "false"},
      {{"f64", 0.1}, 0.1, std::nullopt, "0.1"},
      {{"f32", double{0.1F}}, double{0.1F}, std::nullopt, "0.1"},
      {{"f16", 0x1.998p-4}, 0x1.998p-4, std::nullopt, "0.1"},
      {{"f64", 499500.0}, 499500, 499500, "499500.0"},
      {{"f64", -0x1p63}, -0x1p63, kMin, "-9223372036854775808.0"},
      {{"f64", 0x1p63}, 0x1p63, std::nullopt, "9223372036854775808.0"},
      {{"f64", INFINITY}, INFINITY, std::nullopt, "Infinity"},
      {{"f32", -INFINITY}, -INFINITY, std::nullopt, "-Infinity"},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(each.value.AsDouble(), each.number) << each.text;
    EXPECT_EQ(each.value.AsInt64(), each.integer) << each.text;
    EXPECT_EQ(each.value.Text(), each.text);
  }
  EXPECT_EQ((Value{"f64", NAN}).AsInt64(), std::nullopt);
  EXPECT_EQ((Value{"f64", NAN}).Text(), "NaN");
  EXPECT_TRUE(std::isnan((Value{"f16", NAN}).AsDouble()));
}

TEST(ResultsTest, AreFoundByName) {
  const Reply reply{.results = {{"sum", Value{"i64", std::int64_t{3}}}, {"max", Value{"i32", std::int64_t{2}}}}};
  ASSERT_NE(reply.Find("max"), nullptr);
  EXPECT_EQ(reply.Find("max")->AsInt64(), 2);
  EXPECT_EQ(reply.Find("min"), nullptr);
  const MergeReply merged{.results = reply.results};
  EXPECT_EQ(merged.Find("sum"), &*merged.results[0].value);
}

TEST(SharedBufferTest, IsASpanOfElements) {
  const absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(22);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const std::span<float> elements = buffer->As<float>();
  ASSERT_EQ(elements.size(), 5);
  std::iota(elements.begin(), elements.end(), 1);
  EXPECT_THAT(std::span(static_cast<const float*>(buffer->data()), 5), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(CallTest, AShapeOfOtherElementsIsAnError) {
  const std::vector<float> elements(5);
  const absl::Status status = client_->Reduce(ArrayView::Of(elements, {{2, 3}}), {"sum"}).status();
  EXPECT_EQ(status, absl::InvalidArgumentError("shape: got [2, 3], 6 elements; allowed: shapes of 5"));
}

TEST_F(CallTest, AnErrorHasTheRequestIdAndTheHint) {
  grpc::Status answer(grpc::StatusCode::RESOURCE_EXHAUSTED, "no lane");
  service_.on_reduce = [&](const v1::ReduceRequest&, v1::ReduceResponse*) { return answer; };
  service_.on_context = [](grpc::CallbackServerContext* context) {
    context->AddTrailingMetadata("x-request-id", "abc-7");
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "1");
  };
  const std::vector<float> elements(5);
  const absl::Status refused = client_->Reduce(ArrayView::Of(elements), {"sum"}).status();
  EXPECT_THAT(refused.message(), HasSubstr("tried 4 times"));
  EXPECT_EQ(RequestIdOf(refused), "abc-7");
  EXPECT_EQ(RetryAfterOf(refused), absl::Milliseconds(1));

  answer = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "ops: got none");
  service_.on_context = [](grpc::CallbackServerContext* context) {
    context->AddTrailingMetadata("x-request-id", "abc-8");
  };
  const absl::Status wrong = client_->Reduce(ArrayView::Of(elements), {"sum"}).status();
  EXPECT_EQ(RequestIdOf(wrong), "abc-8");
  EXPECT_EQ(RetryAfterOf(wrong), std::nullopt);
  // What the library finds itself has neither.
  const absl::Status own = client_->Reduce(ArrayView::Of(elements), {"no"}).status();
  EXPECT_EQ(RequestIdOf(own), "");
  EXPECT_EQ(RetryAfterOf(own), std::nullopt);
}

}  // namespace
}  // namespace reduced::client
