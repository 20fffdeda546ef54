// Reduce and GetServerInfo answer right: values, what ran, and where the time went.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/pipelines.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::ElementsAre;

bool Contains(const google::protobuf::RepeatedField<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

class ReduceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer; }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  static v1::ReduceResponse Reduce(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_->client().Reduce(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  static TestServer* server_;
};
TestServer* ReduceTest::server_ = nullptr;

// Worked out by hand. "" : the dtype lacks the op.
struct Answers {
  std::string i32, f32, u8, boolean;
};
const std::map<std::string, Answers>& AnswersByOp() {
  static const auto* const answers = new std::map<std::string, Answers>{
      // of           {3, -1, 4, -1, 5}  {3, -1, 4, -1, 5.5}  {3, 1, 4, 1, 5}  {true, false, true, true}
      {"sum", {"i64:10", "f64:10.5", "u64:14", "u64:3"}},
      {"prod", {"i64:60", "f64:66", "u64:60", "u64:0"}},
      {"min", {"i32:-1", "f32:-1", "u8:1", "bool:false"}},
      {"max", {"i32:5", "f32:5.5", "u8:5", "bool:true"}},
      {"mean", {"f64:2", "f64:2.1", "f64:2.8", "f64:0.75"}},
      {"var", {"f64:6.4", "f64:7.04", "f64:2.56", "f64:0.1875"}},
      {"std", {"f64:2.52982212813", "f64:2.65329983228", "f64:1.6", "f64:0.433012701892"}},
      {"sum_squares", {"u64:52", "f64:57.25", "u64:52", "u64:3"}},
      {"l1", {"u64:14", "f64:14.5", "u64:14", "u64:3"}},
      {"l2", {"f64:7.21110255093", "f64:7.56637297521", "f64:7.21110255093", "f64:1.73205080757"}},
      {"argmin", {"u64:1", "u64:1", "u64:1", "u64:1"}},
      {"argmax", {"u64:4", "u64:4", "u64:4", "u64:0"}},
      {"any", {"bool:true", "bool:true", "bool:true", "bool:true"}},
      {"all", {"bool:true", "bool:true", "bool:true", "bool:false"}},
      {"count_nonzero", {"u64:5", "u64:5", "u64:5", "u64:3"}},
      {"nan_count", {"u64:0", "u64:0", "u64:0", "u64:0"}},
      {"bit_and", {"i32:0", "", "u8:0", "bool:false"}},
      {"bit_or", {"i32:-1", "", "u8:7", "bool:true"}},
      {"bit_xor", {"i32:2", "", "u8:2", "bool:true"}},
      {"count", {"u64:5", "u64:5", "u64:5", "u64:4"}},
      {"range", {"u64:6", "f64:6.5", "u64:4", "u64:1"}},
  };
  return *answers;
}

TEST_F(ReduceTest, EveryOpAnswersAlone) {
  for (const OpRow& row : kOps) {
    if (!HasAccumulator(row.op)) continue;
    const std::string name(row.name);
    SCOPED_TRACE(name);
    ASSERT_TRUE(AnswersByOp().contains(name)) << "a new op: add its answers above";
    const Answers& answers = AnswersByOp().at(name);
    const auto op = static_cast<v1::Op>(row.op);
    EXPECT_THAT(Texts(Reduce(RequestOf<std::int32_t>(v1::DTYPE_I32, {3, -1, 4, -1, 5}, {op}))),
                ElementsAre(answers.i32));
    EXPECT_THAT(Texts(Reduce(RequestOf<std::uint8_t>(v1::DTYPE_U8, {3, 1, 4, 1, 5}, {op}))), ElementsAre(answers.u8));
    // Any non-zero byte is true.
    EXPECT_THAT(Texts(Reduce(RequestOf<std::uint8_t>(v1::DTYPE_BOOL, {1, 0, 7, 255}, {op}))),
                ElementsAre(answers.boolean));
    const v1::ReduceRequest floats = RequestOf<float>(v1::DTYPE_F32, {3, -1, 4, -1, 5.5F}, {op});
    if (Supports(row.op, DType::kF32)) {
      EXPECT_THAT(Texts(Reduce(floats)), ElementsAre(answers.f32));
    } else {
      v1::ReduceResponse response;
      EXPECT_EQ(server_->client().Reduce(floats, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    }
  }
}

TEST_F(ReduceTest, FusedOpsAnswerInTheOrderAsked) {
  std::vector<v1::Op> ops;
  std::vector<std::string> expected;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second time backwards
    for (std::size_t i = 0; i < 16; ++i) {
      const OpRow& row = kOps[repeat == 0 ? i : 15 - i];
      ops.push_back(static_cast<v1::Op>(row.op));
      expected.push_back(AnswersByOp().at(std::string(row.name)).f32);
    }
  }
  const v1::ReduceResponse response = Reduce(RequestOf<float>(v1::DTYPE_F32, {3, -1, 4, -1, 5.5F}, ops));
  EXPECT_EQ(Texts(response), expected);
  for (int i = 0; i < response.results_size(); ++i) EXPECT_EQ(response.results(i).op(), ops[i]);
  EXPECT_EQ(response.count(), 5);
}

TEST_F(ReduceTest, EveryDtypeIsRead) {
  for (const DTypeRow& row : kDTypes) {
    SCOPED_TRACE(std::string(row.name));
    v1::ReduceRequest request;
    request.mutable_array()->set_dtype(static_cast<v1::DType>(row.dtype));
    request.mutable_array()->add_shape(2);
    request.mutable_array()->add_shape(3);
    request.set_inline_data(std::string(6 * row.bytes, '\0'));
    request.add_ops(v1::OP_SUM);
    request.add_ops(v1::OP_COUNT_NONZERO);
    request.add_ops(v1::OP_MAX);
    const v1::ReduceResponse response = Reduce(request);
    EXPECT_EQ(response.count(), 6);
    if (row.dtype == DType::kF8E8M0) {  // bits of zero are 2^-127
      EXPECT_THAT(Texts(response), ElementsAre("f64:3.52648305247e-38", "u64:6", "f8_e8m0fnu:5.87747175411e-39"));
      continue;
    }
    const std::string wide = row.is_float ? "f64:0" : row.is_signed ? "i64:0" : "u64:0";
    const std::string max = row.dtype == DType::kBool ? "bool:false" : absl::StrCat(std::string(row.name), ":0");
    EXPECT_THAT(Texts(response), ElementsAre(wide, "u64:0", max));
  }
}

TEST_F(ReduceTest, HalvesAreExact) {
  const std::vector<std::uint16_t> halves = {0x3c00, 0x3800, 0xc000};  // 1, 0.5, -2
  EXPECT_THAT(Texts(Reduce(RequestOf(v1::DTYPE_F16, halves, {v1::OP_SUM, v1::OP_MIN}))),
              ElementsAre("f64:-0.5", "f16:-2"));
  const std::vector<std::uint16_t> bfloats = {0x3f80, 0x3f00, 0xc000};
  EXPECT_THAT(Texts(Reduce(RequestOf(v1::DTYPE_BF16, bfloats, {v1::OP_SUM, v1::OP_MIN}))),
              ElementsAre("f64:-0.5", "bf16:-2"));
}

TEST_F(ReduceTest, ShapesAreMultiplied) {
  v1::ReduceRequest scalar = RequestOf<double>(v1::DTYPE_F64, {2.5}, {v1::OP_SUM});
  scalar.mutable_array()->clear_shape();
  EXPECT_THAT(Texts(Reduce(scalar)), ElementsAre("f64:2.5"));
  EXPECT_EQ(Reduce(scalar).count(), 1);

  v1::ReduceRequest cube = RequestOf<double>(v1::DTYPE_F64, std::vector<double>(24, 0.5), {v1::OP_SUM});
  cube.mutable_array()->clear_shape();
  for (const int size : {2, 3, 4}) cube.mutable_array()->add_shape(size);
  EXPECT_THAT(Texts(Reduce(cube)), ElementsAre("f64:12"));
}

TEST_F(ReduceTest, EmptyArraysHaveTheirAnswers) {
  v1::ReduceRequest request =
      RequestOf<float>(v1::DTYPE_F32, {}, {v1::OP_SUM, v1::OP_PROD, v1::OP_MEAN, v1::OP_VAR, v1::OP_ANY, v1::OP_ALL});
  // A zero makes it empty, whatever the other dimensions, and wherever it is.
  request.mutable_array()->clear_shape();
  for (int i = 0; i < 4; ++i) request.mutable_array()->add_shape(std::numeric_limits<std::int64_t>::max());
  request.mutable_array()->add_shape(0);
  const v1::ReduceResponse response = Reduce(request);
  EXPECT_THAT(Texts(response), ElementsAre("f64:0", "f64:1", "f64:nan", "f64:nan", "bool:false", "bool:true"));
  EXPECT_EQ(response.count(), 0);
  EXPECT_EQ(response.timing().bytes(), 0);
  EXPECT_FALSE(response.timing().has_kernel_gb_per_s());
}

TEST_F(ReduceTest, NanPolicies) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  v1::ReduceRequest request = RequestOf<float>(v1::DTYPE_F32, {1, nan, 3},
                                               {v1::OP_SUM, v1::OP_MAX, v1::OP_ARGMAX, v1::OP_NAN_COUNT, v1::OP_MEAN});
  EXPECT_THAT(Texts(Reduce(request)), ElementsAre("f64:nan", "f32:nan", "u64:1", "u64:1", "f64:nan"));
  request.mutable_options()->set_nan_policy(v1::NAN_POLICY_PROPAGATE);
  EXPECT_THAT(Texts(Reduce(request)), ElementsAre("f64:nan", "f32:nan", "u64:1", "u64:1", "f64:nan"));
  request.mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT);
  EXPECT_THAT(Texts(Reduce(request)), ElementsAre("f64:4", "f32:3", "u64:2", "u64:1", "f64:2"));
}

TEST_F(ReduceTest, DdofIsSubtracted) {
  v1::ReduceRequest request = RequestOf<double>(v1::DTYPE_F64, {1, 2, 3, 6}, {v1::OP_VAR, v1::OP_STD});
  EXPECT_THAT(Texts(Reduce(request)), ElementsAre("f64:3.5", "f64:1.87082869339"));
  request.mutable_options()->set_ddof(2);
  EXPECT_THAT(Texts(Reduce(request)), ElementsAre("f64:7", "f64:2.64575131106"));
  for (const std::int64_t ddof : {std::int64_t{4}, std::int64_t{5}, std::numeric_limits<std::int64_t>::max()}) {
    request.mutable_options()->set_ddof(ddof);
    EXPECT_THAT(Texts(Reduce(request)), ElementsAre("f64:nan", "f64:nan")) << ddof;
  }
}

TEST_F(ReduceTest, OverflowWrapsOrSaturatesIfAsked) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  v1::ReduceRequest request = RequestOf<std::int64_t>(v1::DTYPE_I64, {max, 2}, {v1::OP_SUM, v1::OP_PROD});
  request.mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_WRAP);
  EXPECT_THAT(Texts(Reduce(request)), ElementsAre("i64:-9223372036854775807", "i64:-2"));
  request.mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_SATURATE);
  EXPECT_THAT(Texts(Reduce(request)), ElementsAre("i64:9223372036854775807", "i64:9223372036854775807"));
}

TEST_F(ReduceTest, AnOpWithoutAnAnswerTakesNoOtherWithIt) {
  const std::int64_t large = std::int64_t{1} << 62;
  v1::ReduceRequest request =
      RequestOf<std::int64_t>(v1::DTYPE_I64, {large, large}, {v1::OP_MEAN, v1::OP_SUM, v1::OP_PROD, v1::OP_MAX});
  v1::ReduceResponse response;
  EXPECT_EQ(server_->client().Reduce(request, &response).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  request.set_op_errors(true);
  response = Reduce(request);
  ASSERT_EQ(response.results_size(), 4);
  EXPECT_EQ(Text(response.results(0).value()), "f64:4.61168601843e+18");
  EXPECT_EQ(response.results(3).value().i(), large);
  for (const int i : {1, 2}) {
    EXPECT_EQ(response.results(i).op(), request.ops(i));
    EXPECT_FALSE(response.results(i).has_value());
    EXPECT_EQ(response.results(i).error().code(), grpc::StatusCode::OUT_OF_RANGE);
  }
  EXPECT_EQ(response.results(1).error().message().substr(0, 39), "integer overflow: the sum of this i64 a");
  // A request none of whose ops has an answer fails, as with one op.
  request.mutable_ops()->Clear();
  request.add_ops(v1::OP_SUM);
  request.add_ops(v1::OP_PROD);
  EXPECT_EQ(server_->client().Reduce(request, &response).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  // So with an empty array, whose error is known before it is reduced.
  request = RequestOf<float>(v1::DTYPE_F32, {}, {v1::OP_MIN, v1::OP_SUM});
  request.set_op_errors(true);
  response = Reduce(request);
  EXPECT_EQ(response.results(0).error().message(), "op min: got an empty array; allowed: at least 1 element");
  EXPECT_EQ(response.results(0).error().code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Text(response.results(1).value()), "f64:0");
  request.mutable_ops()->RemoveLast();
  EXPECT_EQ(server_->client().Reduce(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ReduceTest, SaysWhatRan) {
  v1::ReduceRequest request = RequestOf<float>(v1::DTYPE_F32, {1, 2}, {v1::OP_SUM});
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server_->client().Info(&info).ok());
  for (const v1::Engine engine : {v1::ENGINE_AUTO, v1::ENGINE_CPU}) {
    request.mutable_options()->set_engine(engine);
    const v1::Execution ran = Reduce(request).execution();
    EXPECT_EQ(ran.engine(), v1::ENGINE_CPU);
    EXPECT_EQ(ran.device(), info.devices(0).name());
    EXPECT_EQ(ran.pipeline(), "tiled_simd");
    EXPECT_EQ(ran.precision(), v1::PRECISION_EXACT);
    EXPECT_FALSE(ran.reason().empty());
  }
  for (const v1::PipelineInfo& pipeline : info.pipelines()) {
    if (pipeline.engine() != v1::ENGINE_CPU) continue;
    request.mutable_options()->set_pipeline(pipeline.name());
    const v1::ReduceResponse response = Reduce(request);
    EXPECT_EQ(response.execution().pipeline(), pipeline.name());
    EXPECT_THAT(Texts(response), ElementsAre("f64:3"));
    EXPECT_EQ(response.timing().has_scratch_copy_us(), pipeline.name() == "recursive_pairs");
  }
}

TEST_F(ReduceTest, TimingHasTheStagesThatHappened) {
  for (const std::size_t count : {std::size_t{4}, std::size_t{1} << 20}) {
    SCOPED_TRACE(count);
    const v1::ReduceResponse response =
        Reduce(RequestOf<float>(v1::DTYPE_F32, std::vector<float>(count, 1.0F), {v1::OP_SUM}));
    const v1::Timing& timing = response.timing();
    ASSERT_TRUE(timing.has_receive_us());
    ASSERT_TRUE(timing.has_kernel_us());
    ASSERT_TRUE(timing.has_total_us());
    EXPECT_GT(timing.receive_us(), 0);
    EXPECT_GT(timing.kernel_us(), 0);
    EXPECT_GE(timing.total_us(), timing.receive_us() + timing.queue_us() + timing.kernel_us());
    EXPECT_EQ(timing.bytes(), static_cast<std::int64_t>(count * sizeof(float)));
    EXPECT_NEAR(timing.kernel_gb_per_s(), static_cast<double>(timing.bytes()) / timing.kernel_us() / 1e3, 1e-6);
    // There was no device.
    EXPECT_FALSE(timing.has_host_copy_us());
    EXPECT_FALSE(timing.has_host_to_device_us());
    EXPECT_FALSE(timing.has_device_to_host_us());
  }
}

TEST_F(ReduceTest, ManyThreadsManySizes) {
  constexpr int kThreads = 8;
  constexpr int kCalls = 40;
  std::vector<int> right(kThreads, 0);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, &right] {
      TestClient client(server_->address());
      for (int i = 0; i < kCalls; ++i) {
        const std::size_t count = (i % 8 == 7) ? 300'000 + t : 1 + (t * kCalls + i);
        std::vector<std::int32_t> elements(count, t + 1);
        elements.back() = -i;
        v1::ReduceResponse response;
        const v1::ReduceRequest request = RequestOf(v1::DTYPE_I32, elements, {v1::OP_SUM, v1::OP_ARGMIN});
        if (!client.Reduce(request, &response).ok()) continue;
        const std::int64_t sum = static_cast<std::int64_t>(count - 1) * (t + 1) - i;
        if (response.results(0).value().i() == sum && response.results(1).value().u() == count - 1) ++right[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(kCalls));
}

TEST_F(ReduceTest, InfoListsEverything) {
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server_->client().Info(&info).ok());
  EXPECT_EQ(info.version(), REDUCED_VERSION);
  EXPECT_GE(info.uptime_ms(), 0);
  const ServerOptions defaults;
  EXPECT_EQ(info.limits().max_message_bytes(), defaults.limits.max_message_bytes);
  EXPECT_EQ(info.limits().max_elements(), defaults.limits.max_elements);
  EXPECT_EQ(info.limits().max_ops(), defaults.limits.max_ops);
  EXPECT_EQ(info.limits().max_ladder_bytes(), defaults.limits.max_ladder_bytes);

  ASSERT_EQ(info.devices_size(), 1);
  const v1::DeviceInfo& cpu = info.devices(0);
  EXPECT_EQ(cpu.name(), "cpu");
  EXPECT_EQ(cpu.engine(), v1::ENGINE_CPU);
  EXPECT_GT(cpu.memory_bytes(), 0);
  EXPECT_GT(cpu.parallel_units(), 0);
  EXPECT_EQ(cpu.lanes(), defaults.engines.cpu_lanes);
  EXPECT_EQ(cpu.queue_limit(), defaults.engines.queue_limit);
  EXPECT_EQ(cpu.queue_length(), 0);
  EXPECT_GT(cpu.host_gb_per_s(), 0);
  EXPECT_FALSE(info.no_cuda_reason().empty());

  ASSERT_EQ(info.ops_size(), static_cast<int>(std::size(kOps)));
  for (int i = 0; i < info.ops_size(); ++i) {
    const OpRow& row = kOps[i];
    EXPECT_EQ(info.ops(i).name(), std::string(row.name));
    EXPECT_EQ(info.ops(i).op(), static_cast<int>(row.op));
    EXPECT_FALSE(info.ops(i).summary().empty());
    int supported = 0;
    for (const DTypeRow& dtype : kDTypes) supported += Supports(row.op, dtype.dtype) ? 1 : 0;
    EXPECT_EQ(info.ops(i).dtypes_size(), supported);
  }
  ASSERT_EQ(info.dtypes_size(), static_cast<int>(std::size(kDTypes)));
  for (int i = 0; i < info.dtypes_size(); ++i) {
    EXPECT_EQ(info.dtypes(i).name(), std::string(kDTypes[i].name));
    EXPECT_EQ(info.dtypes(i).bytes(), kDTypes[i].bytes);
  }
}

TEST_F(ReduceTest, InfoTellsThePipelinesApart) {
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server_->client().Info(&info).ok());
  ASSERT_EQ(info.pipelines_size(), static_cast<int>(Pipelines().size()));
  std::vector<std::string> defaults;
  for (int i = 0; i < info.pipelines_size(); ++i) {
    const v1::PipelineInfo& pipeline = info.pipelines(i);
    const PipelineRow& row = Pipelines()[i];
    SCOPED_TRACE(pipeline.name());
    EXPECT_EQ(pipeline.name(), row.name);
    EXPECT_EQ(pipeline.engine(), static_cast<int>(row.engine));
    EXPECT_FALSE(pipeline.summary().empty());
    EXPECT_FALSE(pipeline.origin().empty());
    EXPECT_EQ(pipeline.fused(), !row.rung);
    EXPECT_EQ(pipeline.fixed_order(), row.fixed_order);
    EXPECT_EQ(pipeline.exact(), row.exact);
    EXPECT_EQ(pipeline.block_sizes_size(), row.block_sizes ? 5 : 0);
    // What it lists is what it supports, wherever the op is defined for the dtype.
    for (const OpRow& op : kOps) {
      for (const DTypeRow& dtype : kDTypes) {
        if (!Supports(op.op, dtype.dtype)) continue;
        const bool listed = Contains(pipeline.ops(), static_cast<int>(op.op)) &&
                            Contains(pipeline.dtypes(), static_cast<int>(dtype.dtype));
        EXPECT_EQ(listed, Supports(row, op.op, dtype.dtype)) << op.name << " of " << dtype.name;
      }
    }
    if (pipeline.default_of_engine()) defaults.push_back(pipeline.name());
  }
  EXPECT_EQ(defaults.front(), "tiled_simd");
}

// The tables' names and the proto's are the same words (that the numbers are, request.cc asserts).
TEST(ProtoTest, NamesAgreeWithTheTables) {
  for (const DTypeRow& row : kDTypes) {
    EXPECT_EQ(v1::DType_Name(static_cast<v1::DType>(row.dtype)),
              absl::StrCat("DTYPE_", absl::AsciiStrToUpper(std::string(row.name))));
  }
  for (const OpRow& row : kOps) {
    EXPECT_EQ(v1::Op_Name(static_cast<v1::Op>(row.op)),
              absl::StrCat("OP_", absl::AsciiStrToUpper(std::string(row.name))));
  }
}

}  // namespace
}  // namespace reduced::server
