// Arrays that are cut over several GPUs, which are fake ones: engines that leave the arithmetic to the CPU's and have
// budgets and faults of their own. What is answered is compared with the CPU engine's answer about the whole array.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/why_stop.h"
#include "tests/service/array_calls.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

// What a test changes of a GPU, and learns of it.
struct GpuState {
  explicit GpuState(const std::string& name, std::int64_t bytes) : budget(name, bytes) {}
  ArrayBudget budget;
  std::atomic<int> jobs = 0;
  std::atomic<bool> fails = false;  // from now on
  std::atomic<bool> hangs = false;  // until a job is not wanted any more
};

class GpuMemory final : public ArrayMemory {
 public:
  GpuMemory(std::unique_ptr<ArrayMemory> memory, int ordinal, std::int64_t bytes, std::shared_ptr<GpuState> state)
      : memory_(std::move(memory)), ordinal_(ordinal), bytes_(bytes), state_(std::move(state)) {}
  ~GpuMemory() override { state_->budget.Give(bytes_); }
  ArrayRef array() const override {
    return {.data = memory_->array().data, .space = MemorySpace::kDevice, .device = ordinal_};
  }
  absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) override {
    return memory_->Write(offset, data, bytes);
  }
  absl::Status Read(std::int64_t offset, std::int64_t bytes, void* to) const override {
    if (state_->fails) return absl::UnavailableError("an illegal address");
    return memory_->Read(offset, bytes, to);
  }

 private:
  const std::unique_ptr<ArrayMemory> memory_;
  const int ordinal_;
  const std::int64_t bytes_;
  const std::shared_ptr<GpuState> state_;
};

class ShardGpu : public SharedEngine {
 public:
  ShardGpu(int ordinal, std::int64_t bytes)
      : state(std::make_shared<GpuState>(absl::StrCat("cuda:", ordinal), bytes)), ordinal_(ordinal) {}

  EngineKind kind() const override { return EngineKind::kCuda; }
  DeviceInfo info() const override {
    DeviceInfo device = CpuEngine().info();
    device.name = absl::StrCat("cuda:", ordinal_);
    device.ordinal = ordinal_;
    device.array_bytes = state->budget.taken();
    device.array_bytes_limit = state->budget.limit();
    return device;
  }
  void Reduce(Job job, Done done) override {
    ++state->jobs;
    if (state->fails) return std::move(done)(absl::UnavailableError("an illegal address"));
    EXPECT_EQ(job.array.device, ordinal_);
    if (absl::Status sides = CheckSides(job, ordinal_, info().name); !sides.ok()) return std::move(done)(sides);
    job.array.space = MemorySpace::kHost;
    for (const NamedSide& side : SidesOf(job)) side.array->array.space = MemorySpace::kHost;
    if (state->hangs) {
      std::thread([job = std::move(job), done = std::move(done)]() mutable {
        while (WhyStop(job).ok()) std::this_thread::yield();
        std::move(done)(WhyStop(job));
      }).detach();
      return;
    }
    CpuEngine().Reduce(std::move(job), std::move(done));
  }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t /*caller*/) override {
    if (absl::Status status = state->budget.Take(bytes); !status.ok()) return status;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = CpuEngine().Allocate(bytes);
    if (!memory.ok()) return memory.status();
    return std::make_unique<GpuMemory>(*std::move(memory), ordinal_, bytes, state);
  }

  const std::shared_ptr<GpuState> state;

 private:
  const int ordinal_;
};

// A server with a CPU and so many GPUs.
class Cluster {
 public:
  explicit Cluster(int gpus, std::int64_t bytes = 1 << 24, const ServerOptions& options = {}) {
    std::vector<std::unique_ptr<Engine>> engines;
    engines.push_back(std::make_unique<SharedEngine>());
    for (int i = 0; i < gpus; ++i) {
      auto gpu = std::make_unique<ShardGpu>(i, bytes);
      this->gpus.push_back(gpu->state);
      engines.push_back(std::move(gpu));
    }
    server = std::make_unique<TestServer>(options, Engines::Of(std::move(engines), gpus == 0 ? "a test" : ""));
  }

  const TestClient& client() const { return server->client(); }
  std::int64_t taken() const {
    std::int64_t bytes = 0;
    for (const auto& gpu : gpus) bytes += gpu->budget.taken();
    return bytes;
  }
  int jobs() const {
    int jobs = 0;
    for (const auto& gpu : gpus) jobs += gpu->jobs;
    return jobs;
  }
  grpc::Status Ask(const v1::ReduceRequest& request, v1::ReduceResponse* response,
                   absl::Duration timeout = kPatience) const {
    return server->client().Reduce(request, response, timeout);
  }

  std::vector<std::shared_ptr<GpuState>> gpus;
  std::unique_ptr<TestServer> server;
};

v1::PutArrayHeader HeaderFor(DType dtype, const std::vector<std::int64_t>& shape,
                             const std::string& device = kAllGpus) {
  v1::PutArrayHeader header;
  header.mutable_array()->set_dtype(static_cast<v1::DType>(dtype));
  header.mutable_array()->mutable_shape()->Add(shape.begin(), shape.end());
  header.set_device(device);
  header.set_owner("me");
  return header;
}

std::string BytesOf(test::DataKind kind, DType dtype, std::int64_t count, std::uint64_t seed = 7) {
  const test::Bytes bytes = test::MakeData(kind, dtype, count, seed);
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count * RowOf(dtype).bytes)};
}

std::int64_t CountOf(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

v1::ReduceRequest FromText(const std::string& text) {
  v1::ReduceRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

template <class T>
v1::SideArray Inline(v1::DType dtype, const std::vector<T>& elements, const std::vector<std::int64_t>& shape) {
  v1::SideArray side;
  side.mutable_array()->set_dtype(dtype);
  side.mutable_array()->mutable_shape()->Add(shape.begin(), shape.end());
  side.set_inline_data(elements.data(), elements.size() * sizeof(T));
  return side;
}

// What of a response is about the elements.
std::string AnswerOf(const grpc::Status& status, const v1::ReduceResponse& response) {
  if (!status.ok()) return absl::StrCat("error ", status.error_code(), ": ", status.error_message());
  v1::ReduceResponse answer = response;
  answer.clear_execution();
  answer.clear_timing();
  return answer.DebugString();
}

// An array on the GPUs of a server, and the same elements for its CPU engine.
class Sharded {
 public:
  Sharded(const Cluster& cluster, DType dtype, const std::vector<std::int64_t>& shape, const std::string& elements)
      : cluster_(cluster), header_(HeaderFor(dtype, shape)), elements_(elements) {
    const grpc::Status status = PutElements(cluster.client(), header_, elements, 1000, &info);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  ~Sharded() { EXPECT_TRUE(DeleteArray(cluster_.client(), info.id()).ok()); }

  // Asks both; they must agree. The answer of the GPUs.
  v1::ReduceResponse Agrees(v1::ReduceRequest request) const {
    v1::ReduceResponse response, expected;
    request.set_array_id(info.id());
    const grpc::Status status = cluster_.Ask(request, &response);
    request.clear_array_id();
    *request.mutable_array() = header_.array();
    request.set_inline_data(elements_);
    request.mutable_options()->set_engine(v1::ENGINE_CPU);
    const grpc::Status expected_status = cluster_.Ask(request, &expected);
    request.clear_inline_data();
    EXPECT_EQ(AnswerOf(status, response), AnswerOf(expected_status, expected)) << request.DebugString();
    return response;
  }
  grpc::Status Fails(v1::ReduceRequest request) const {
    request.set_array_id(info.id());
    v1::ReduceResponse response;
    return cluster_.Ask(request, &response);
  }

  v1::ArrayInfo info;

 private:
  const Cluster& cluster_;
  const v1::PutArrayHeader header_;
  const std::string elements_;
};

TEST(ShardedArray, IsCutEvenlyInWholeIndexesOfItsFirstDimension) {
  const Cluster cluster(3);
  const struct {
    std::vector<std::int64_t> shape;
    std::string shards;  // first index, indexes and elements of each
  } cases[] = {{{7}, "0+3=3 3+2=2 5+2=2"},    {{6, 5}, "0+2=10 2+2=10 4+2=10"}, {{2, 3, 2}, "0+1=6 1+1=6 2+0=0"},
               {{1, 9}, "0+1=9 1+0=0 1+0=0"}, {{}, "0+1=1 1+0=0 1+0=0"},        {{0}, "0+0=0 0+0=0 0+0=0"},
               {{4, 0}, "0+2=0 2+1=0 3+1=0"}};
  for (const auto& [shape, shards] : cases) {
    const std::string elements = BytesOf(test::DataKind::kFull, DType::kI16, CountOf(shape));
    const Sharded array(cluster, DType::kI16, shape, elements);
    std::vector<std::string> got;
    for (int i = 0; i < array.info.shards_size(); ++i) {
      const v1::ArrayShard& shard = array.info.shards(i);
      EXPECT_EQ(shard.device(), absl::StrCat("cuda:", i));
      got.push_back(absl::StrCat(shard.first_index(), "+", shard.indexes(), "=", shard.count()));
    }
    EXPECT_EQ(absl::StrJoin(got, " "), shards);
    EXPECT_EQ(array.info.device(), "cuda:*");
    EXPECT_EQ(cluster.taken(), 2 * CountOf(shape));
    EXPECT_TRUE(GetElements(cluster.client(), array.info.id()) == elements);
    ASSERT_EQ(ListArrays(cluster.client()).size(), 1U);
    EXPECT_EQ(ListArrays(cluster.client())[0].shards_size(), 3);
    array.Agrees(FromText("ops: OP_SUM ops: OP_COUNT ops: OP_ARGMAX op_errors: true"));
    if (!shape.empty()) array.Agrees(FromText("ops: OP_SUM ops: OP_ARGMIN axes { axis: 0 } empty: EMPTY_POLICY_FILL"));
  }
  EXPECT_EQ(cluster.taken(), 0);
}

TEST(ShardedArray, IsOnOneGpuOrTheCpuIfNobodyAsksForMore) {
  const Cluster cluster(2);
  v1::ArrayInfo array;
  ASSERT_TRUE(PutElements(cluster.client(), HeaderFor(DType::kU8, {10}, ""), std::string(10, 1), 10, &array).ok());
  EXPECT_EQ(array.device(), "cuda:0");
  EXPECT_EQ(array.shards_size(), 0);
  grpc::Status status =
      PutElements(cluster.client(), HeaderFor(DType::kU8, {10}, "cuda:2"), std::string(10, 1), 10, &array);
  EXPECT_THAT(status.error_message(), HasSubstr("got 'cuda:2'; allowed: cpu, cuda:0, cuda:1; or cuda:*, for all GPUs"));
  const Cluster none(0);
  status = PutElements(none.client(), HeaderFor(DType::kU8, {10}), std::string(10, 1), 10, &array);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("device: got 'cuda:*'; allowed: cpu"));
}

TEST(ShardedArray, LeavesNothingBehindIfAShardDoesNotFit) {
  const Cluster cluster(3, 1000);
  cluster.gpus[1]->budget.Take(901).IgnoreError();
  v1::ArrayInfo array;
  const grpc::Status status =
      PutElements(cluster.client(), HeaderFor(DType::kU8, {300}), std::string(300, 1), 300, &array);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("cuda:1 has no room for an array of 100 bytes"));
  EXPECT_EQ(cluster.taken(), 901);
  cluster.gpus[1]->budget.Give(901);
  ASSERT_TRUE(PutElements(cluster.client(), HeaderFor(DType::kU8, {300}), std::string(300, 1), 300, &array).ok());
  EXPECT_EQ(cluster.taken(), 300);
}

// The op's parameters and what it takes beside the array, in text format.
std::string CallOf(const OpRow& row) {
  std::string call = absl::StrCat("calls { op: ", v1::Op_Name(static_cast<int>(row.op)));
  if (row.op == Op::kQuantile || row.op == Op::kWeightedQuantile)
    absl::StrAppend(&call, " quantile { q: 0 q: 0.3 q: 1 }");
  if (row.op == Op::kHistogram) absl::StrAppend(&call, " histogram { uniform { low: -2 high: 4 bins: 5 } }");
  if (row.op >= Op::kTopK && row.op <= Op::kArgBottomK) absl::StrAppend(&call, " top { k: 3 }");
  if (IsMatrix(row.op)) absl::StrAppend(&call, " matrix { columns: 4 }");
  return absl::StrCat(call, " }");
}

class ShardedOps : public ::testing::TestWithParam<DType> {
 protected:
  static void AgreeAll(const Cluster& cluster, const std::vector<std::int64_t>& shape, const std::string& partition) {
    const DType dtype = GetParam();
    const std::int64_t count = CountOf(shape);
    for (const test::DataKindRow& kind : test::kDataKinds) {
      if (!test::Applies(kind, dtype) || kind.kind == test::DataKind::kDenormals) continue;
      const Sharded array(cluster, dtype, shape, BytesOf(kind.kind, dtype, count));
      for (const OpRow& row : kOps) {
        if (!Supports(row.op, dtype)) continue;
        if (IsMatrix(row.op) &&
            (partition.find("keys") != partition.npos || partition.find("where") != partition.npos ||
             partition.find("axis: 0 }") != partition.npos)) {
          continue;
        }
        // Rounded in another order, unless no rounding takes place.
        if (row.op == Op::kProd && RowOf(dtype).is_float && kind.kind != test::DataKind::kFactors) continue;
        // States have no payloads of the NaNs that do not match.
        const bool nans = kind.kind == test::DataKind::kSomeNan || kind.kind == test::DataKind::kAllNan;
        if (row.op == Op::kCompare && nans) continue;
        v1::ReduceRequest request = FromText(absl::StrCat(CallOf(row), " op_errors: true ", partition));
        const OtherOperand other = OtherOf(row.op);
        if (other != OtherOperand::kNone) {
          v1::SideArray& side = other == OtherOperand::kY ? *request.mutable_y() : *request.mutable_weights();
          *side.mutable_array() = HeaderFor(dtype, shape).array();
          side.set_inline_data(BytesOf(test::DataKind::kFactors, dtype, count, 3));
        }
        SCOPED_TRACE(absl::StrCat(std::string(kind.name), " ", std::string(row.name)));
        const bool merged = partition.find("axis: 1") == partition.npos;
        if (IsWeightedQuantile(row.op) && merged) {
          const grpc::Status status = array.Fails(request);
          EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
          continue;
        }
        array.Agrees(request);
      }
    }
  }
};

TEST_P(ShardedOps, OfTheWholeArray) { AgreeAll(Cluster(3), {250, 4}, ""); }
TEST_P(ShardedOps, AlongTheDimensionThatIsCut) {
  AgreeAll(Cluster(2), {25, 4}, "axes { axis: 0 } empty: EMPTY_POLICY_FILL");
}
TEST_P(ShardedOps, AlongAnotherDimension) {
  AgreeAll(Cluster(4), {10, 4}, "axes { axis: 1 } empty: EMPTY_POLICY_FILL");
}

INSTANTIATE_TEST_SUITE_P(DTypes, ShardedOps,
                         ::testing::ValuesIn(test::kSlowBuild
                                                 ? std::vector{DType::kU16, DType::kBF16, DType::kF64}
                                                 : std::vector{DType::kBool, DType::kI8, DType::kU16, DType::kI32,
                                                               DType::kU64, DType::kBF16, DType::kF32, DType::kF64}),
                         [](const auto& param) { return std::string(RowOf(param.param).name); });

TEST(ShardedReduction, TakesTheFirstOfEqualElements) {
  const Cluster cluster(4);
  std::vector<float> elements(100, 1);
  for (const std::size_t at : {30, 55, 99}) elements[at] = 5;
  for (const std::size_t at : {49, 50, 75}) elements[at] = -5;
  const std::string bytes(reinterpret_cast<const char*>(elements.data()), 400);
  const Sharded array(cluster, DType::kF32, {100}, bytes);
  const v1::ReduceResponse response = array.Agrees(FromText("ops: OP_ARGMAX ops: OP_ARGMIN ops: OP_SUM"));
  EXPECT_EQ(response.results(0).value().u(), 30U);
  EXPECT_EQ(response.results(1).value().u(), 49U);
  EXPECT_EQ(response.execution().device(), "cuda:*");
  EXPECT_EQ(response.execution().reason(), "the array is cut over cuda:0, cuda:1, cuda:2, cuda:3");
  EXPECT_GT(response.timing().kernel_us(), 0);
  EXPECT_EQ(cluster.jobs(), 4);
  array.Agrees(FromText("calls { op: OP_ARGTOPK top { k: 4 } } calls { op: OP_ARGBOTTOMK top { k: 100 } }"));
}

TEST(ShardedReduction, OfGroupsAndMasks) {
  const Cluster cluster(3);
  constexpr std::int64_t kRows = 97, kColumns = 3, kCount = kRows * kColumns;
  const Sharded array(cluster, DType::kF64, {kRows, kColumns}, BytesOf(test::DataKind::kSomeNan, DType::kF64, kCount));
  const std::string ops =
      "calls { op: OP_SUM } calls { op: OP_ARGMIN } calls { op: OP_MEDIAN } calls { op: OP_VAR } calls { op: "
      "OP_DISTINCT_EXACT } "
      "calls { op: OP_FINGERPRINT } empty: EMPTY_POLICY_FILL options { nan_policy: NAN_POLICY_OMIT } ";
  std::vector<std::int32_t> keys;
  std::vector<std::uint8_t> kept, bits(kCount / 8 + 3);
  for (int i = 0; i < kRows; ++i) keys.push_back(i * 7 % 11 - (i % 5 == 0 ? 12 : 0));
  for (int i = 0; i < kCount; ++i) {
    kept.push_back(i % 3 != 0 ? 1 : 0);
    if (i % 3 != 0) bits[(i + 13) / 8] |= 1 << (i + 13) % 8;
  }
  const v1::SideArray mask = Inline(v1::DTYPE_BOOL, kept, {kRows, kColumns});
  for (const bool masked : {false, true}) {
    v1::ReduceRequest request = FromText(ops);
    if (masked) *request.mutable_where()->mutable_elements() = mask;
    if (masked) array.Agrees(request);
    *request.mutable_keys()->mutable_keys() = Inline(v1::DTYPE_I32, keys, {kRows});
    array.Agrees(request);  // of keys to be found
    request.set_return_state(true);
    array.Agrees(request);
    request.set_omit_results(true);
    array.Agrees(request);
    request.set_omit_results(false);
    request.mutable_keys()->set_groups(11);
    request.mutable_keys()->set_outside(v1::OUTSIDE_KEYS_DROP);
    array.Agrees(request);
    request.mutable_keys()->set_outside(v1::OUTSIDE_KEYS_ERROR);
    EXPECT_EQ(array.Fails(request).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  }
  v1::ReduceRequest nothing = FromText(ops);
  *nothing.mutable_keys()->mutable_keys() = Inline(v1::DTYPE_I32, keys, {kRows});
  *nothing.mutable_where()->mutable_elements() =
      Inline(v1::DTYPE_BOOL, std::vector<std::uint8_t>(kCount), {kRows, kColumns});
  EXPECT_TRUE(array.Agrees(nothing).has_keys());  // of which there are none
  for (const std::string axes :
       {"", "axes { axis: 0 }", "axes { axis: 1 }", "axes { axis: 0 axis: 1 keepdims: true }"}) {
    v1::ReduceRequest request = FromText(ops + axes);
    *request.mutable_where()->mutable_bits() = Inline(v1::DTYPE_U8, bits, {static_cast<std::int64_t>(bits.size())});
    request.mutable_where()->set_first_bit(13);
    array.Agrees(request);
    request.set_return_state(true);
    array.Agrees(request);
  }
}

TEST(ShardedReduction, OfSegments) {
  const Cluster cluster(3);
  constexpr std::int64_t kRows = 97, kColumns = 3, kCount = kRows * kColumns;  // cut at rows 33 and 65
  std::vector<std::uint8_t> kept;
  for (int i = 0; i < kCount; ++i) kept.push_back(i % 3 != 0 || i > 200 ? 1 : 0);
  const std::vector<std::vector<std::int64_t>> bounds = {{0, 50, 97},
                                                         {0, 97},
                                                         {0, 33, 65, 97},
                                                         {0, 0, 5, 5, 33, 33, 34, 97, 97},
                                                         {10, 20},
                                                         {40, 60},
                                                         {65, 65},
                                                         {97, 97},
                                                         {0, 0},
                                                         {66, 97},
                                                         {33, 65},
                                                         {12, 80, 90},
                                                         {0},
                                                         {64, 64, 64, 66},
                                                         {30, 31, 32, 33, 34, 35, 64, 65, 66}};
  for (const DType dtype : {DType::kF64, DType::kI32, DType::kBF16}) {
    if (test::kSlowBuild && dtype != DType::kF64) continue;
    const Sharded array(cluster, dtype, {kRows, kColumns}, BytesOf(test::DataKind::kUniform, dtype, kCount));
    for (const std::string ops :
         {"calls { op: OP_SUM } calls { op: OP_ARGMIN } calls { op: OP_MEDIAN } calls { op: OP_VAR } "
          "calls { op: OP_DISTINCT_EXACT } calls { op: OP_FINGERPRINT } calls { op: OP_ARGTOPK top { k: 2 } } "
          "empty: EMPTY_POLICY_FILL",
          "ops: OP_COUNT ops: OP_MEAN ops: OP_MAX op_errors: true", "ops: OP_MIN"}) {
      for (const std::vector<std::int64_t>& offsets : bounds) {
        v1::ReduceRequest request = FromText(ops);
        *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I64, offsets, {std::ssize(offsets)});
        array.Agrees(request);
        *request.mutable_where()->mutable_elements() = Inline(v1::DTYPE_BOOL, kept, {kRows, kColumns});
        array.Agrees(request);
        request.clear_where();
        std::vector<std::int32_t> lengths;
        for (std::size_t i = 1; i < offsets.size(); ++i) {
          lengths.push_back(static_cast<std::int32_t>(offsets[i] - offsets[i - 1]));
        }
        *request.mutable_segments()->mutable_lengths() = Inline(v1::DTYPE_I32, lengths, {std::ssize(lengths)});
        array.Agrees(request);  // or is refused as by one device, unless their sum is 97
      }
    }
  }
}

TEST(ShardedReduction, OfSegmentsWhoseBoundsAreElsewhere) {
  const Cluster cluster(2);
  const Sharded array(cluster, DType::kI32, {20}, BytesOf(test::DataKind::kUniform, DType::kI32, 20));
  v1::ReduceRequest request = FromText("ops: OP_SUM ops: OP_COUNT");
  for (const std::vector<std::int64_t>& bad :
       {std::vector<std::int64_t>{0, 21}, {5, 3, 20}, {-1, 20}, {0, 10, 9, 20}, {}}) {
    *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I64, bad, {std::ssize(bad)});
    array.Agrees(request);
    EXPECT_EQ(array.Fails(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  const std::vector<std::int64_t> offsets = {0, 3, 15, 20};
  *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I64, offsets, {4});
  const v1::ReduceResponse expected = array.Agrees(request);
  const std::string bytes(reinterpret_cast<const char*>(offsets.data()), 32);
  for (const std::string device : {"cpu", "cuda:1", "cuda:*"}) {
    v1::ArrayInfo info;
    ASSERT_TRUE(PutElements(cluster.client(), HeaderFor(DType::kI64, {4}, device), bytes, 32, &info).ok());
    request.mutable_segments()->mutable_offsets()->clear_array();
    request.mutable_segments()->mutable_offsets()->set_array_id(info.id());
    request.set_array_id(array.info.id());
    v1::ReduceResponse response;
    const grpc::Status status = cluster.Ask(request, &response);
    if (device == "cpu") {
      EXPECT_EQ(AnswerOf(status, response), AnswerOf(grpc::Status::OK, expected));
    } else {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << device;
      EXPECT_EQ(status.error_message(),
                "segments.offsets: got an array in the memory of a GPU for an array that is cut over cuda:0, cuda:1; "
                "allowed: one in host memory");
    }
    ASSERT_TRUE(DeleteArray(cluster.client(), info.id()).ok());
  }
  // A file, which is read: 1, 2 ... 20.
  std::vector<std::int32_t> numbers(20);
  std::iota(numbers.begin(), numbers.end(), 1);
  *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I32, numbers, {20});
  request.clear_array_id();
  const v1::ReduceResponse wanted = array.Agrees(request);
  Sharer sharer(InfoOf(*cluster.server).region_socket());
  const Descriptor memory(NumbersInMemory(20));
  request.mutable_segments()->mutable_offsets()->mutable_region()->set_token(sharer.Share(memory).token());
  request.set_array_id(array.info.id());
  v1::ReduceResponse response;
  grpc::Status status = cluster.Ask(request, &response);
  EXPECT_EQ(AnswerOf(status, response), AnswerOf(grpc::Status::OK, wanted));
  ASSERT_EQ(ftruncate(memory, 40), 0);  // the owner takes half of it away
  status = cluster.Ask(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("memory has shrunk"));
}

// Also those of segments that no GPU has rows of.
TEST(ShardedReduction, StatesTakeMemoryOfTheBudget) {
  ServerOptions options;
  options.engines.memory = std::make_shared<MemoryBudget>(64 * kMiB);
  const MemoryBudget& memory = *options.engines.memory;
  const Cluster cluster(2, 1 << 24, options);
  constexpr std::int64_t kColumns = 64;
  const Sharded array(cluster, DType::kI32, {4, kColumns}, std::string(4 * 4 * kColumns, '\1'));
  for (const std::int64_t segments : {100, 10'000}) {
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(segments), 0);
    offsets.push_back(4);
    v1::ReduceRequest request = FromText("ops: OP_COUNT");
    *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I64, offsets, {std::ssize(offsets)});
    request.set_array_id(array.info.id());
    v1::ReduceResponse response;
    const grpc::Status status = cluster.Ask(request, &response);
    const bool fits = segments == 100;
    EXPECT_EQ(status.error_code(), fits ? grpc::StatusCode::OK : grpc::StatusCode::RESOURCE_EXHAUSTED);
    if (!fits) {
      EXPECT_THAT(status.error_message(), HasSubstr("the states of a sharded array"));
    }
    EXPECT_TRUE(Becomes(kPatience, [&memory] { return memory.taken() == 0; }));
  }
}

TEST(ShardedReduction, OfTwoArraysBySegments) {
  const Cluster cluster(3);
  const std::vector<std::int64_t> shape = {31, 4};
  const Sharded x(cluster, DType::kF32, shape, BytesOf(test::DataKind::kUniform, DType::kF32, 124));
  const std::string elements = BytesOf(test::DataKind::kUniform, DType::kF32, 124, 9);
  for (const std::vector<std::int64_t>& of_y : std::vector<std::vector<std::int64_t>>{{31, 4}, {31, 1}, {1, 4}, {}}) {
    for (const std::vector<std::int64_t>& offsets : {std::vector<std::int64_t>{0, 31}, {0, 3, 25, 31}, {12, 12, 20}}) {
      v1::ReduceRequest request =
          FromText("calls { op: OP_DOT } calls { op: OP_COV } calls { op: OP_COMPARE } empty: EMPTY_POLICY_FILL");
      *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I64, offsets, {std::ssize(offsets)});
      *request.mutable_y()->mutable_array() = HeaderFor(DType::kF32, of_y).array();
      request.mutable_y()->set_inline_data(elements.substr(0, 4 * CountOf(of_y)));
      x.Agrees(request);
    }
  }
  v1::ReduceRequest request = FromText("calls { op: OP_WEIGHTED_MEDIAN }");
  *request.mutable_segments()->mutable_offsets() = Inline<std::int64_t>(v1::DTYPE_I64, {0, 31}, {2});
  *request.mutable_weights()->mutable_array() = HeaderFor(DType::kF32, shape).array();
  request.mutable_weights()->set_inline_data(elements);
  EXPECT_EQ(x.Fails(request).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(ShardedReduction, OfTwoArrays) {
  const Cluster cluster(3);
  const std::vector<std::int64_t> shape = {31, 4};
  const Sharded x(cluster, DType::kF32, shape, BytesOf(test::DataKind::kUniform, DType::kF32, 124));
  const Sharded y(cluster, DType::kF32, shape, BytesOf(test::DataKind::kUniform, DType::kF32, 124, 9));
  const Sharded other(cluster, DType::kF32, {124}, BytesOf(test::DataKind::kUniform, DType::kF32, 124, 9));
  const std::string elements = GetElements(cluster.client(), y.info.id());
  for (const std::string axes : {"axes { axis: 0 }", "axes { axis: 1 }", "axes { axis: 0 axis: 1 }"}) {
    for (const std::vector<std::int64_t>& of_y :
         std::vector<std::vector<std::int64_t>>{{31, 4}, {31, 1}, {1, 4}, {4}, {}}) {
      v1::ReduceRequest request =
          FromText("calls { op: OP_DOT } calls { op: OP_COV } calls { op: OP_COMPARE } calls { op: OP_SUM } " + axes);
      *request.mutable_y()->mutable_array() = HeaderFor(DType::kF32, of_y).array();
      request.mutable_y()->set_inline_data(elements.substr(0, 4 * CountOf(of_y)));
      x.Agrees(request);
      request.set_return_state(true);
      const v1::ReduceResponse expected = x.Agrees(request);
      if (of_y != shape) continue;
      request.mutable_y()->clear_array();
      request.mutable_y()->set_array_id(y.info.id());
      request.set_array_id(x.info.id());
      v1::ReduceResponse response;
      const grpc::Status status = cluster.Ask(request, &response);
      EXPECT_EQ(AnswerOf(status, response), AnswerOf(grpc::Status::OK, expected));
    }
  }
  v1::ReduceRequest request = FromText("calls { op: OP_DOT }");
  request.mutable_y()->set_array_id(y.info.id());
  v1::ReduceResponse response;
  *request.mutable_array() = HeaderFor(DType::kF32, shape).array();
  request.set_inline_data(elements);
  grpc::Status status = cluster.Ask(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("y: got an array that is cut over cuda:0, cuda:1, cuda:2"));
  request.clear_array();
  request.set_array_id(other.info.id());
  status = cluster.Ask(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
}

TEST(ShardedReduction, ErrorsNameTheOutputOfTheWholeArray) {
  const Cluster cluster(3);
  std::vector<std::int64_t> elements(30, 1);
  elements[24] = elements[25] = std::int64_t{1} << 62;  // rows 12 and 13 of 15: of the last shard
  elements[28] = elements[29] = std::int64_t{1} << 62;
  const std::string bytes(reinterpret_cast<const char*>(elements.data()), 240);
  const Sharded array(cluster, DType::kI64, {15, 2}, bytes);
  for (const std::string ops : {"ops: OP_SUM", "ops: OP_COUNT ops: OP_SUM op_errors: true"}) {
    for (const std::string axes : {"", " axes { axis: 0 }", " axes { axis: 1 }"}) array.Agrees(FromText(ops + axes));
  }
  const grpc::Status status = array.Fails(FromText("ops: OP_SUM axes { axis: 1 }"));
  EXPECT_THAT(status.error_message(), HasSubstr("output [12]: integer overflow"));
}

TEST(ShardedReduction, IsRefusedElsewhere) {
  const Cluster cluster(2);
  const Sharded array(cluster, DType::kI32, {10}, BytesOf(test::DataKind::kSmall, DType::kI32, 10));
  EXPECT_EQ(array.Fails(FromText("ops: OP_SUM options { engine: ENGINE_CPU }")).error_message(),
            "engine: got cpu; allowed: cuda, since the array is cut over cuda:0, cuda:1");
  EXPECT_EQ(array.Fails(FromText("ops: OP_SUM options { device: 'cuda:1' }")).error_message(),
            "device: got 'cuda:1'; allowed: none, or cuda:*, since the array is cut over cuda:0, cuda:1");
  EXPECT_EQ(array.Fails(FromText("ops: OP_SUM options { pipeline: 'sequential' }")).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(array.Fails(FromText("ops: OP_SUM options { device: 'cuda:*' engine: ENGINE_CUDA }")).ok());
  EXPECT_EQ(array.Fails(FromText("calls { op: OP_COV_MATRIX matrix { columns: 2 } }")).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);  // 5 elements each
}

TEST(ShardedReduction, ADeviceThatFailsIsNamedAndEndsTheOthers) {
  const Cluster cluster(3);
  const Sharded array(cluster, DType::kI32, {30}, BytesOf(test::DataKind::kSmall, DType::kI32, 30));
  cluster.gpus[1]->fails = true;
  cluster.gpus[0]->hangs = cluster.gpus[2]->hangs = true;
  const grpc::Status status = array.Fails(FromText("ops: OP_SUM"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "cuda:1: an illegal address");
  v1::ArrayInfo info;
  std::vector<std::string> chunks;
  EXPECT_EQ(GetArray(cluster.client(), array.info.id(), &info, &chunks).error_message(), "cuda:1: an illegal address");
  cluster.gpus[0]->hangs = cluster.gpus[1]->fails = cluster.gpus[2]->hangs = false;
  array.Agrees(FromText("ops: OP_SUM"));
}

TEST(ShardedReduction, DeadlinesAndCancellationReachEveryShard) {
  const Cluster cluster(2);
  const Sharded array(cluster, DType::kI32, {30}, BytesOf(test::DataKind::kSmall, DType::kI32, 30));
  cluster.gpus[0]->hangs = cluster.gpus[1]->hangs = true;
  v1::ReduceRequest request = FromText("ops: OP_SUM");
  request.set_array_id(array.info.id());
  v1::ReduceResponse response;
  EXPECT_EQ(cluster.Ask(request, &response, absl::Milliseconds(50)).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  PendingReduce pending(cluster.client(), request);
  ASSERT_TRUE(AwaitThat([&] { return cluster.jobs() == 4; }));
  pending.context().TryCancel();
  EXPECT_EQ(pending.Join().error_code(), grpc::StatusCode::CANCELLED);
  // No shard holds the array any more.
  EXPECT_TRUE(AwaitThat([&] { return ListArrays(cluster.client())[0].users() == 0; }));
}

TEST(ShardedReduction, QuantilesTakeRounds) {
  const Cluster cluster(2);
  constexpr std::int64_t kCount = 20'000;
  const Sharded array(cluster, DType::kF64, {kCount}, BytesOf(test::DataKind::kUniform, DType::kF64, kCount));
  array.Agrees(
      FromText("calls { op: OP_QUANTILE quantile { q: 0.1 q: 0.9 } } calls { op: OP_MEDIAN } calls { op: OP_MIN }"));
  EXPECT_GT(cluster.jobs(), 2);
}

TEST(ShardedReduction, OfManyArraysInOneCall) {
  const Cluster cluster(2);
  const Sharded a(cluster, DType::kI32, {30}, BytesOf(test::DataKind::kSmall, DType::kI32, 30));
  const Sharded b(cluster, DType::kF32, {8, 4}, BytesOf(test::DataKind::kUniform, DType::kF32, 32));
  v1::ReduceManyRequest request;
  request.mutable_question()->add_ops(v1::OP_SUM);
  for (const Sharded* each : {&a, &b}) request.add_operands()->set_array_id(each->info.id());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::ReduceManyResponse response;
  const grpc::Status status =
      v1::Reduction::NewStub(cluster.client().channel())->ReduceMany(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Texts(response.responses(0)), Texts(a.Agrees(FromText("ops: OP_SUM"))));
  EXPECT_EQ(Texts(response.responses(1)), Texts(b.Agrees(FromText("ops: OP_SUM"))));
}

}  // namespace
}  // namespace reduced::server
