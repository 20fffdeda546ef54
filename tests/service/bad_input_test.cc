// Bad requests: the status, and a message that says what, got and allowed. The server lives on.
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/error_form.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

struct BadInput {
  std::string name;
  std::function<void(v1::ReduceRequest*)> spoil;  // a good request: the sum of 4 f32
  grpc::StatusCode code;
  std::vector<std::string> says;
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

void SetShape(v1::ReduceRequest* request, const std::vector<std::int64_t>& shape) {
  request->mutable_array()->clear_shape();
  for (const std::int64_t size : shape) request->mutable_array()->add_shape(size);
}

template <class T>
void SetArray(v1::ReduceRequest* request, v1::DType dtype, const std::vector<T>& elements) {
  request->mutable_array()->set_dtype(dtype);
  SetShape(request, {static_cast<std::int64_t>(elements.size())});
  request->set_inline_data(elements.data(), elements.size() * sizeof(T));
}

std::vector<BadInput> BadInputs() {
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  using Request = v1::ReduceRequest;
  return {
      {"NoArray", [](Request* r) { r->clear_array(); }, kInvalid, {"array.dtype: got 0", "DTYPE_F32 (12)"}},
      {"UnknownDtype",
       [](Request* r) { r->mutable_array()->set_dtype(static_cast<v1::DType>(99)); },
       kInvalid,
       {"array.dtype: got 99", "DTYPE_BOOL (1)", "DTYPE_F64 (13)"}},
      {"NegativeDtype",
       [](Request* r) { r->mutable_array()->set_dtype(static_cast<v1::DType>(-1)); },
       kInvalid,
       {"array.dtype: got -1"}},
      {"NoOps", [](Request* r) { r->clear_ops(); }, kInvalid, {"ops: got 0 operations", "1 to 32"}},
      {"TooManyOps",
       [](Request* r) {
         while (r->ops_size() < 33) r->add_ops(v1::OP_SUM);
       },
       kInvalid,
       {"ops: got 33 operations", "1 to 32"}},
      {"UnspecifiedOp", [](Request* r) { r->add_ops(v1::OP_UNSPECIFIED); }, kInvalid, {"ops[1]: got 0", "OP_SUM (1)"}},
      {"UnknownOp",
       [](Request* r) { r->add_ops(static_cast<v1::Op>(20'000)); },
       kInvalid,
       {"ops[1]: got 20000", "OP_SUM (1)", "OP_BIT_XOR (19)"}},
      {"OpThatTheDtypeLacks", [](Request* r) { r->add_ops(v1::OP_BIT_OR); }, kInvalid, {"bit_or", "f32", "integers"}},
      {"UnknownEngine",
       [](Request* r) { r->mutable_options()->set_engine(static_cast<v1::Engine>(3)); },
       kInvalid,
       {"options.engine: got 3", "ENGINE_AUTO (0)", "ENGINE_CUDA (2)"}},
      {"UnknownPipeline",
       [](Request* r) { r->mutable_options()->set_pipeline("war\np"); },
       kInvalid,
       {"war\\np", "tiled_simd"}},
      {"LongPipeline",
       [](Request* r) { r->mutable_options()->set_pipeline(std::string(100'000, 'x')); },
       kInvalid,
       {"options.pipeline: got 100000 bytes", "allowed: 64"}},
      {"PipelineOfAnotherEngine",
       [](Request* r) {
         r->mutable_options()->set_engine(v1::ENGINE_CUDA);
         r->mutable_options()->set_pipeline("tiled_simd");
       },
       kInvalid,
       {"tiled_simd", "cpu", "cuda"}},
      {"UnknownDevice",
       [](Request* r) { r->mutable_options()->set_device("cuda:\n1"); },
       grpc::StatusCode::FAILED_PRECONDITION,
       {"device: got 'cuda:\\n1'; allowed: cpu"}},
      {"LongDevice",
       [](Request* r) { r->mutable_options()->set_device(std::string(100'000, 'x')); },
       kInvalid,
       {"options.device: got 100000 bytes", "allowed: 64"}},
      {"RungOfTwoOps",
       [](Request* r) {
         r->mutable_options()->set_pipeline("sequential");
         r->add_ops(v1::OP_MAX);
       },
       grpc::StatusCode::UNIMPLEMENTED,
       {"sequential", "sum, max of f32", "tiled_simd"}},
      {"RungThatOmitsNans",
       [](Request* r) {
         r->mutable_options()->set_pipeline("sequential");
         r->mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT);
       },
       grpc::StatusCode::UNIMPLEMENTED,
       {"sequential", "NaN", "tiled_simd"}},
      {"BlockSizeWithoutPipeline",
       [](Request* r) { r->mutable_options()->set_block_size(256); },
       kInvalid,
       {"block_size: got 256", "pipeline"}},
      {"BlockSizeOfAPipelineWithoutChoice",
       [](Request* r) {
         r->mutable_options()->set_pipeline("sequential");
         r->mutable_options()->set_block_size(256);
       },
       kInvalid,
       {"block_size: got 256 with pipeline sequential; allowed: 0"}},
      {"UnknownBlockSize",
       [](Request* r) { r->mutable_options()->set_block_size(100); },
       kInvalid,
       {"block_size: got 100", "64, 128, 256, 512, 1024"}},
      {"UnknownPrecision",
       [](Request* r) { r->mutable_options()->set_precision(static_cast<v1::Precision>(7)); },
       kInvalid,
       {"options.precision: got 7", "PRECISION_F64 (1)"}},
      {"RungOfExactSums",
       [](Request* r) {
         r->mutable_options()->set_pipeline("sequential");
         r->mutable_options()->set_precision(v1::PRECISION_EXACT);
       },
       grpc::StatusCode::UNIMPLEMENTED,
       {"sequential", "exactly", "tiled_simd"}},
      {"UnknownNanPolicy",
       [](Request* r) { r->mutable_options()->set_nan_policy(static_cast<v1::NanPolicy>(7)); },
       kInvalid,
       {"options.nan_policy: got 7", "NAN_POLICY_OMIT (2)"}},
      {"UnknownOverflowPolicy",
       [](Request* r) { r->mutable_options()->set_overflow_policy(static_cast<v1::OverflowPolicy>(7)); },
       kInvalid,
       {"options.overflow_policy: got 7", "OVERFLOW_POLICY_SATURATE (3)"}},
      {"NegativeDdof", [](Request* r) { r->mutable_options()->set_ddof(-1); }, kInvalid, {"ddof: got -1", "0"}},
      {"NegativeShape",
       [](Request* r) {
         SetShape(r, {2, -2});
       },
       kInvalid,
       {"array.shape[1]: got -2", "0 or more"}},
      {"NegativeShapeBesideZero",
       [](Request* r) {
         SetShape(r, {0, -1});
       },
       kInvalid,
       {"array.shape[1]: got -1"}},
      {"OverflowingShape",
       [](Request* r) {
         SetShape(r, {std::int64_t{1} << 32, std::int64_t{1} << 32});
       },
       kInvalid,
       {"[4294967296, 4294967296]", "64 bits", "1099511627776"}},
      {"TooManyElements",
       [](Request* r) {
         SetShape(r, {std::int64_t{1} << 20, (std::int64_t{1} << 20) + 1});
       },
       kInvalid,
       {"1099512676352 elements", "allowed: 1099511627776"}},
      {"HugeDimension", [](Request* r) { SetShape(r, {kMax}); }, kInvalid, {"allowed: 1099511627776"}},
      {"ShapeOfManyDimensions",
       [](Request* r) { SetShape(r, std::vector<std::int64_t>(100'000, 2)); },
       kInvalid,
       {"[2, 2, 2, 2, 2, 2, 2, 2, ... 100000 dimensions]"}},
      {"TooFewBytes",
       [](Request* r) { r->mutable_inline_data()->pop_back(); },
       kInvalid,
       {"inline_data: got 15 bytes", "[4] of f32", "4 x 4"}},
      {"TooManyBytes",
       [](Request* r) { r->mutable_inline_data()->push_back('\0'); },
       kInvalid,
       {"inline_data: got 17 bytes", "4 x 4"}},
      {"ShapeThatDoesNotMatch", [](Request* r) { SetShape(r, {5}); }, kInvalid, {"16 bytes", "[5] of f32", "5 x 4"}},
      {"NoSource", [](Request* r) { r->clear_source(); }, kInvalid, {"source: got none", "inline_data"}},
      {"MinOfNothing",
       [](Request* r) {
         SetArray<float>(r, v1::DTYPE_F32, {});
         r->add_ops(v1::OP_MIN);
       },
       kInvalid,
       {"min", "at least 1 element"}},
      {"ArgmaxOfNothingButNans",
       [](Request* r) {
         SetArray<float>(r, v1::DTYPE_F32, {std::numeric_limits<float>::quiet_NaN()});
         r->mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT);
         r->add_ops(v1::OP_ARGMAX);
       },
       kInvalid,
       {"argmax"}},
      {"SumThatOverflows",
       [](Request* r) {
         SetArray<std::int64_t>(r, v1::DTYPE_I64, {kMax, 1});
       },
       grpc::StatusCode::OUT_OF_RANGE,
       {"sum", "9223372036854775808"}},
      {"ProductThatOverflowsUnderTheErrorPolicy",
       [](Request* r) {
         SetArray<std::uint64_t>(r, v1::DTYPE_U64, {std::uint64_t{1} << 63, 2});
         r->set_ops(0, v1::OP_PROD);
         r->mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_ERROR);
       },
       grpc::StatusCode::OUT_OF_RANGE,
       {"prod"}},
      {"CudaWithoutGpu",
       [](Request* r) { r->mutable_options()->set_engine(v1::ENGINE_CUDA); },
       grpc::StatusCode::FAILED_PRECONDITION,
       {"cuda"}},
  };
}

class BadInputTest : public ::testing::TestWithParam<BadInput> {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer; }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static TestServer* server_;
};
TestServer* BadInputTest::server_ = nullptr;

TEST_P(BadInputTest, IsAnsweredClearly) {
  const v1::ReduceRequest good = RequestOf<float>(v1::DTYPE_F32, {1, 2, 3, 4}, {v1::OP_SUM});
  v1::ReduceRequest bad = good;
  GetParam().spoil(&bad);
  v1::ReduceResponse response;
  const grpc::Status status = server_->client().Reduce(bad, &response);
  EXPECT_EQ(status.error_code(), GetParam().code) << status.error_message();
  for (const std::string& text : GetParam().says) EXPECT_THAT(status.error_message(), HasSubstr(text));
  // What is wrong with the elements has no field.
  if (status.error_code() != grpc::StatusCode::OUT_OF_RANGE) {
    EXPECT_THAT(status.error_message(), IsErrorOfField());
  }
  EXPECT_LT(status.error_message().size(), 1000u);

  ASSERT_TRUE(server_->client().Reduce(good, &response).ok());
  EXPECT_EQ(Text(response.results(0).value()), "f64:10");
}

INSTANTIATE_TEST_SUITE_P(All, BadInputTest, ::testing::ValuesIn(BadInputs()),
                         [](const auto& info) { return info.param.name; });

TEST(LimitsTest, AreThoseOfTheOptions) {
  ServerOptions options;
  options.limits = {.max_message_bytes = 4096, .max_elements = 100, .max_ops = 2, .max_ladder_bytes = 800};
  TestServer server(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  EXPECT_EQ(info.limits().max_message_bytes(), 4096);
  EXPECT_EQ(info.limits().max_elements(), 100);
  EXPECT_EQ(info.limits().max_ops(), 2);
  EXPECT_EQ(info.limits().max_ladder_bytes(), 800);

  v1::ReduceResponse response;
  const auto reduce = [&](std::size_t count, const std::vector<v1::Op>& ops) {
    return server.client().Reduce(RequestOf(v1::DTYPE_F32, std::vector<float>(count, 1), ops), &response);
  };
  EXPECT_TRUE(reduce(100, {v1::OP_SUM, v1::OP_MAX}).ok());
  EXPECT_THAT(reduce(101, {v1::OP_SUM}).error_message(), AllOf(HasSubstr("101 elements"), HasSubstr("allowed: 100")));
  EXPECT_THAT(reduce(1, {v1::OP_SUM, v1::OP_MAX, v1::OP_MIN}).error_message(),
              AllOf(HasSubstr("3 operations"), HasSubstr("1 to 2")));
  const grpc::Status too_large = reduce(2000, {v1::OP_SUM});
  EXPECT_EQ(too_large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(too_large.error_message(), HasSubstr("4096"));
  EXPECT_TRUE(reduce(100, {v1::OP_SUM}).ok());
}

}  // namespace
}  // namespace reduced::server
