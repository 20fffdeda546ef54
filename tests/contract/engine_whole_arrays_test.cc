// Ops about distributions of long arrays on the CUDA engine: every way by which it launches kernels for them, on data
// that those ways differ by. The answers are those of the CPU engine, byte for byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/layout.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

std::vector<double> EvenEdges(double low, double high, int bins) {
  std::vector<double> edges;
  for (int i = 0; i <= bins; ++i) edges.push_back(i == bins ? high : low + (high - low) / bins * i);
  return edges;
}

// Calls of every kind of pass.
std::vector<OpCall> AllCalls(DType dtype) {
  std::vector<double> percentiles, squares;
  for (int i = 0; i <= 100; ++i) percentiles.push_back(i / 100.0);
  for (int i = 0; i < 40; ++i) squares.push_back(i * i - 100);
  std::vector<OpCall> calls = {
      Op::kMedian,
      {Op::kQuantile, {.quantiles = {0.5}, .method = QuantileMethod::kLower}},
      {Op::kQuantile, {.quantiles = {0, 0.25, 0.5, 0.75}}},
      {Op::kQuantile, {.quantiles = percentiles, .method = QuantileMethod::kNearest}},
      {Op::kHistogram, {.edges = EvenEdges(-1, 1, 10)}},
      {Op::kHistogram, {.edges = EvenEdges(-128, 128, 256)}},
      {Op::kHistogram, {.edges = EvenEdges(-1, 1, 20'000)}},
      {Op::kHistogram, {.edges = EvenEdges(-3, 3, 65'536)}},
      {Op::kHistogram, {.edges = squares}},
      {Op::kTopK, {.k = 10}},
      {Op::kArgTopK, {.k = 1024}},
      {Op::kBottomK, {.k = 1000}},
      {Op::kArgBottomK, {.k = 7}},
      Op::kDistinct,
      Op::kFingerprint,
      Op::kCount,
      Op::kDistinctExact,
  };
  if (RowOf(dtype).bytes <= 2) calls.push_back(Op::kMode);
  if (RowOf(dtype).bytes == 1) calls.insert(calls.end(), {Op::kSkew, Op::kKurtosis});
  for (const OpRow& row : kOps) {  // of dtypes without kernels; the last bits of a product depend on the order
    if (!HasKernels(dtype) && HasAccumulator(row.op) && Supports(row.op, dtype) && row.op != Op::kProd) {
      calls.push_back(row.op);
    }
  }
  return calls;
}

struct ValuesRow {
  const char* name;
  double (*value)(std::int64_t i, std::int64_t count);
};
const ValuesRow kValues[] = {
    {"constant", [](std::int64_t, std::int64_t) { return 1.0; }},
    {"sorted",
     [](std::int64_t i, std::int64_t count) { return 64.0 * static_cast<double>(i) / static_cast<double>(count); }},
    {"descending",
     [](std::int64_t i, std::int64_t count) {
       return 64.0 * static_cast<double>(count - i) / static_cast<double>(count);
     }},
    {"half zeros",
     [](std::int64_t i, std::int64_t) {
       return i % 2 == 0 ? (i % 4 == 0 ? 0.0 : -0.0) : static_cast<double>(i % 101) - 50;
     }},
    {"two values", [](std::int64_t i, std::int64_t) { return i % 3 == 0 ? 1.0 : 2.0; }},
    // The best elements are equal, and late.
    {"late ties",
     [](std::int64_t i, std::int64_t count) { return i < count - 200'000 ? static_cast<double>(i % 50) : 60.0; }},
    {"an outlier",
     [](std::int64_t i, std::int64_t) { return i == 77'777 ? 100.0 : static_cast<double>(i % 997) / 997; }},
};

Bytes BytesOfValues(DType dtype, std::int64_t count, const ValuesRow& row) {
  Bytes bytes(static_cast<std::size_t>(count * RowOf(dtype).bytes));
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = row.value(i, count);
      T element{};
      if constexpr (kIsFloat<T>) {
        element = FromDouble<T>(value);
      } else if constexpr (std::is_integral_v<T>) {
        element = static_cast<T>(static_cast<std::int64_t>(value));
      } else {
        element.byte = value != 0 ? 3 : 0;
      }
      std::memcpy(bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), &element, sizeof(T));
    }
  });
  return bytes;
}

class EngineWholeArrays : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  void Check(const Bytes& array, const std::vector<OpCall>& calls, NanPolicy policy, const std::string& name,
             std::vector<std::int64_t> shape = {}) {
    if (shape.empty()) shape = {std::ssize(array) / RowOf(dtype()).bytes};
    Partition partition;
    std::vector<bool> axes(shape.size(), true);
    axes[0] = shape.size() == 1;
    partition.layout = LayoutOf(shape, axes);
    CheckPartition(array, calls, policy, name, partition);
  }
  void CheckPartition(const Bytes& array, const std::vector<OpCall>& calls, NanPolicy policy, const std::string& name,
                      const Partition& partition) {
    const std::int64_t count = std::ssize(array) / RowOf(dtype()).bytes;
    ReduceSpec spec = Spec(dtype(), count);
    spec.ops = calls;
    spec.nan_policy = policy;
    spec.empty_policy = EmptyPolicy::kFill;
    spec.precision = Precision::kExact;
    const Job job{.spec = spec, .array = {array.data()}};
    const Reply got = ReducePartition(engine(), job, partition);
    const Reply expected = ReducePartition(engine_for(1), job, partition);
    ASSERT_EQ(got.status, absl::OkStatus()) << name;
    ASSERT_EQ(expected.status, absl::OkStatus()) << name;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(got.answers->memory[i] == expected.answers->memory[i])
          << name << ", " << RowOf(calls[i].op).name << " " << i << ", policy " << static_cast<int>(policy);
    }
  }
};

TEST_P(EngineWholeArrays, AnswerAsTheCpuEngine) {
  constexpr std::int64_t kCount = 400'003;
  for (const DataKindRow& row : kDataKinds) {
    if (!Applies(row, dtype())) continue;
    const Bytes array = MakeData(row.kind, dtype(), kCount, 3);
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      if (policy == NanPolicy::kOmit && !RowOf(dtype()).is_float) continue;
      Check(array, AllCalls(dtype()), policy, std::string(row.name));
    }
  }
  for (const ValuesRow& row : kValues) {
    Check(BytesOfValues(dtype(), kCount, row), AllCalls(dtype()), NanPolicy::kPropagate, row.name);
  }
}

// Of two dimensions: each long row is an array of its own, at an address of any alignment.
TEST_P(EngineWholeArrays, LongRows) {
  const Bytes array = MakeData(DataKind::kFull, dtype(), 3 * 70'001, 3);
  Check(array, AllCalls(dtype()), NanPolicy::kPropagate, "rows", {3, 70'001});
}

// Each way by which quantiles of many outputs are launched: selected from registers by one lane, some, a warp or a
// block for each, with lengths around those where these change; sorted in shared memory, all of them or some at a time;
// and as arrays; whatever lies between the elements.
TEST_P(EngineWholeArrays, QuantilesOfManyOutputs) {
  std::vector<double> percentiles;
  for (int i = 100; i >= 0; --i) percentiles.push_back(i / 100.0);
  const std::vector<OpCall> calls = {Op::kMedian,
                                     Op::kCount,
                                     {Op::kMedian, {.method = QuantileMethod::kHigher}},
                                     {Op::kQuantile, {.quantiles = {0.75, 0, 1, 0.001}}},
                                     {Op::kQuantile, {.quantiles = {0.3}, .method = QuantileMethod::kMidpoint}},
                                     {Op::kQuantile, {.quantiles = percentiles, .method = QuantileMethod::kNearest}},
                                     {Op::kBottomK, {.k = 1}}};
  constexpr std::int64_t kCount = 400'000;
  const std::vector<std::int64_t> offsets = {3,      3,       4,       9,       73,      1'097,   1'097,   6'000,
                                             40'000, 340'007, 340'100, 341'000, 350'000, 351'024, 352'000, 400'000};
  const Bytes bounds = BytesOf(offsets);
  std::vector<std::int32_t> few, many;
  for (std::int64_t i = 0; i < kCount; ++i) {
    few.push_back(static_cast<std::int32_t>(i * i % 11));
    many.push_back(static_cast<std::int32_t>(i * 7 % 1'013));
  }
  const Bytes few_keys = BytesOf(few), many_keys = BytesOf(many);
  Bytes bits(kCount / 8 + 1);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::byte>(i % 250 * 3);
  const auto check = [&](const Bytes& array, NanPolicy policy, const std::string& name, Partition partition) {
    if (partition.grouped()) {
      partition.layout = LayoutOf(std::vector{kCount}, {true});
      partition.rows = kCount;
    }
    CheckPartition(array, calls, policy, name, partition);
    partition.mask = Mask{.array = SideOf(DType::kU8, bits), .bits = true, .first_bit = 5};
    CheckPartition(array, calls, policy, name + " under a mask", partition);
  };
  for (const DataKind kind : {DataKind::kFull, DataKind::kSomeNan}) {
    if (!Applies(kDataKinds[static_cast<int>(kind)], dtype())) continue;
    const NanPolicy policy = kind == DataKind::kSomeNan ? NanPolicy::kOmit : NanPolicy::kPropagate;
    const Bytes array = MakeData(kind, dtype(), kCount, 3);
    Partition partition;
    for (const std::int64_t size :
         {1, 7, 32, 33, 64, 257, 1'000, 1'024, 1'025, 4'000, 16'384, 16'385, 32'768, 32'769, 50'000, 300'000}) {
      const std::int64_t others = kCount / size;  // some sizes leave elements out
      const Bytes some(array.begin(),
                       array.begin() + static_cast<std::ptrdiff_t>(size * others * RowOf(dtype()).bytes));
      if (kSlowBuild && size % 1'000 != 0) continue;  // the other lengths are about kernels
      partition.layout = LayoutOf(std::vector{others, size}, {false, true});
      check(some, policy, "rows of " + std::to_string(size), partition);
      partition.layout = LayoutOf(std::vector{size, others}, {true, false});
      check(some, policy, "columns of " + std::to_string(size), partition);
    }
    partition.layout = LayoutOf(std::vector<std::int64_t>{50, 160, 50}, {false, true, false});
    check(array, policy, "the middle", partition);
    partition.segments = Segments{.bounds = SideOf(DType::kI64, bounds)};
    check(array, policy, "segments", partition);
    partition.segments.reset();
    partition.keys = Keys{.keys = SideOf(DType::kI32, many_keys), .groups = 1'013};
    check(array, policy, "many keys", partition);
    partition.keys = Keys{.keys = SideOf(DType::kI32, few_keys)};
    check(array, policy, "few keys", partition);
  }
}

// Long enough that bounds of the best elements, and brackets of quantiles, come from a sample.
TEST_P(EngineWholeArrays, SampledArrays) {
  const std::int64_t count = (std::int64_t{33} << 20) / RowOf(dtype()).bytes;
  if (RowOf(dtype()).bytes < 4) GTEST_SKIP() << "the same launches as of longer elements, of more of these";
  std::vector<double> many;
  for (int i = 0; i <= 1000; ++i) many.push_back(i / 1000.0);
  const std::vector<OpCall> calls = {{Op::kTopK, {.k = 10}},
                                     {Op::kArgBottomK, {.k = 1000}},
                                     Op::kMedian,
                                     {Op::kQuantile, {.quantiles = {0.25, 0.5, 0.75}}},
                                     {Op::kQuantile, {.quantiles = {0.001, 0, 1, 0.999}}},
                                     {Op::kQuantile, {.quantiles = many, .method = QuantileMethod::kLower}}};
  const std::vector<OpCall> few(calls.begin(), calls.begin() + 4);
  Check(MakeData(DataKind::kFull, dtype(), count, 3), calls, NanPolicy::kPropagate, "full");
  if (RowOf(dtype()).is_float) {
    const Bytes array = MakeData(DataKind::kSomeNan, dtype(), count, 3);
    Check(array, calls, NanPolicy::kOmit, "NaNs");
    Check(array, calls, NanPolicy::kPropagate, "NaNs");
  }
  for (const ValuesRow& row : kValues) {
    Check(BytesOfValues(dtype(), count, row), few, NanPolicy::kPropagate, row.name);
  }
  // One of eight pieces of 128 bytes is sampled, and is like no other.
  const ValuesRow misleading = {"a sample that misleads", [](std::int64_t i, std::int64_t) {
                                  return i / 32 % 8 == 0 ? 100.0 : static_cast<double>(i * 7919 % 65'521) / 997 - 30;
                                }};
  Check(BytesOfValues(dtype(), count, misleading), few, NanPolicy::kPropagate, misleading.name);
}

REDUCED_INSTANTIATE_ON_CUDA(EngineWholeArrays, DType::kF32, DType::kF64, DType::kI32, DType::kU64, DType::kF16,
                            DType::kBF16, DType::kI16, DType::kU8, DType::kI8, DType::kBool, DType::kF8E4M3,
                            DType::kF8E5M2, DType::kF8E8M0);

}  // namespace
}  // namespace reduced::test
