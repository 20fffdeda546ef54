// Names, sizes and array views, through the shared library alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "reduced/client.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string StatusText(const absl::StatusOr<T>& result) {
  return result.ok() ? "OK" : result.status().ToString();
}

TEST(Names, AreThoseOfTheProtoInLowerCase) {
  EXPECT_THAT(EngineNames(), ElementsAre("auto", "cpu", "cuda"));
  EXPECT_THAT(PrecisionNames(), ElementsAre("f64", "exact"));
  EXPECT_THAT(NanPolicyNames(), ElementsAre("propagate", "omit"));
  EXPECT_THAT(OverflowPolicyNames(), ElementsAre("error", "wrap", "saturate"));
  EXPECT_THAT(DTypeNames(), ElementsAre("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16",
                                        "f32", "f64", "f8_e4m3fn", "f8_e5m2", "f8_e8m0fnu"));
  EXPECT_THAT(OpNames(),
              ElementsAre("sum", "prod", "min", "max", "mean", "var", "std", "sum_squares", "l1", "l2", "argmin",
                          "argmax", "any", "all", "count_nonzero", "nan_count", "bit_and", "bit_or", "bit_xor", "count",
                          "range", "median", "quantile", "histogram", "topk", "bottomk", "argtopk", "argbottomk",
                          "distinct", "distinct_exact", "mode", "skew", "kurtosis", "dot", "weighted_sum",
                          "weighted_mean", "weighted_var", "weighted_std", "cov", "corr", "slope", "intercept",
                          "distance_l1", "distance_l2", "distance_max", "cosine", "compare", "cov_matrix",
                          "corr_matrix", "fingerprint", "weighted_median", "weighted_quantile"));
}

TEST(DTypeBytes, IsTheWidthOfEachDType) {
  std::vector<std::int64_t> bytes;
  for (const std::string& name : DTypeNames()) bytes.push_back(DTypeBytes(name).value());
  EXPECT_THAT(bytes, ElementsAre(1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 1));
  EXPECT_THAT(StatusText(DTypeBytes("float")), HasSubstr("dtype: got \"float\"; allowed: bool, i8"));
  EXPECT_THAT(StatusText(DTypeBytes("unspecified")), HasSubstr("dtype: got \"unspecified\""));
}

TEST(ArrayBytes, MultipliesAndChecks) {
  using Shape = std::vector<std::int64_t>;
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(ArrayBytes("f32", Shape{}).value(), 4);
  EXPECT_EQ(ArrayBytes("i16", Shape{3, 5}).value(), 30);
  EXPECT_EQ(ArrayBytes("f64", Shape{kMax, kMax, 0}).value(), 0);
  EXPECT_EQ(ArrayBytes("u8", Shape{kMax}).value(), kMax);
  EXPECT_THAT(StatusText(ArrayBytes("u16", Shape{kMax})),
              HasSubstr("of u16; allowed: at most 9223372036854775807 bytes"));
  EXPECT_THAT(StatusText(ArrayBytes("f32", Shape{std::int64_t{1} << 33, std::int64_t{1} << 33})),
              HasSubstr("allowed: at most"));
  EXPECT_THAT(StatusText(ArrayBytes("f32", Shape{2, -1})),
              HasSubstr("shape: got (2, -1); allowed: dimensions of 0 and more"));
}

template <class T>
std::string DTypeOf() {
  const std::array<T, 3> elements = {};
  const ArrayView view = ArrayView::Of(std::span<const T>(elements));
  EXPECT_EQ(view.data, elements.data());
  EXPECT_THAT(view.shape, ElementsAre(3));
  return view.dtype;
}

TEST(ArrayView, NamesTheElementType) {
  EXPECT_EQ(DTypeOf<bool>(), "bool");
  EXPECT_EQ(DTypeOf<std::int8_t>(), "i8");
  EXPECT_EQ(DTypeOf<std::int64_t>(), "i64");
  EXPECT_EQ(DTypeOf<std::uint16_t>(), "u16");
  EXPECT_EQ(DTypeOf<float>(), "f32");
  EXPECT_EQ(DTypeOf<double>(), "f64");
}

TEST(Create, ChecksTheAddress) {
  for (const char* address :
       {"127.0.0.1:50051", "localhost:1", "[::1]:65535", "unix:/run/reduced.sock", "unix:here",
        "unix:///run/reduced.sock", "unix-abstract:reduced", "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:1,127.0.0.2:2",
        "ipv6:[::1]:1,[::1]:2", "dns:reduced:50051", "dns:///reduced:50051", "dns://8.8.8.8/reduced:1",
        "127.0.0.1:1,127.0.0.2:2", "[::1]:1,[::1]:2"}) {
    EXPECT_TRUE(Client::Create({.server = address}).ok()) << address;
  }
  for (const char* address : {"",
                              ":50051",
                              "localhost",
                              "localhost:",
                              "localhost:0",
                              "localhost:65536",
                              "host:http",
                              "unix:",
                              "::1:50051",
                              "http://host:50051",
                              "/run/reduced.sock",
                              "unix-abstract:",
                              "ipv4:",
                              "ipv4:name:1",
                              "ipv4:127.0.0.1",
                              "ipv6:127.0.0.1:1",
                              "dns:",
                              "dns:///reduced",
                              "dns://reduced:50051",
                              "127.0.0.1:1,",
                              "127.0.0.1:1,127.0.0.1",
                              "xds:///reduced",
                              "vsock:1:2"}) {
    const auto client = Client::Create({.server = address});
    EXPECT_THAT(StatusText(client), HasSubstr(std::string("server: got \"") + address + "\"; allowed: host:port, "));
    EXPECT_TRUE(absl::IsInvalidArgument(client.status())) << address;
  }
}

TEST(Create, ChecksTheTimeout) {
  const auto client = Client::Create({.timeout = absl::ZeroDuration()});
  EXPECT_THAT(StatusText(client), HasSubstr("timeout: got 0; allowed: positive durations"));
}

}  // namespace
}  // namespace reduced::client
