// Every way by which the CUDA engine launches kernels for a partition, once, on arrays as small as that way takes: for
// compute-sanitizer, whose tools are slow at each launch and slower still at loading each kernel. The answers are those
// of the CPU engine, byte for byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/contract/shapes.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

enum class By { kAxes, kSegments, kKeys, kFoundKeys };

struct LaunchRow {
  const char* name;
  Shape shape;
  std::vector<int> axes{};  // of By::kAxes
  By by = By::kAxes;
  std::int64_t groups = 0;  // segments or keys
  bool mask = false;
  bool uneven = false;  // one segment or key has most of the elements
};

const LaunchRow kLaunches[] = {
    // Rows: staged in shared memory, with and without padding, by 1 to 32 lanes; others by vectors and by elements, in
    // parts; not end to end.
    {"rows of 3", {400, 3}, {1}},
    {"rows of 16", {400, 16}, {1}},
    {"rows of 64", {300, 64}, {1}},
    {"rows of 250", {40, 250}, {1}},
    {"rows of 2048", {20, 2048}, {1}},
    {"rows of 2049", {20, 2049}, {1}},
    {"two long rows", {2, 70'000}, {1}},
    {"one row", {1, 40'000}, {1}},
    {"rows of planes", {6, 40, 8}, {0, 2}},
    // Columns: folded, wide, few, cut into parts, of planes; elements one by one.
    {"two columns", {2100, 2}, {0}},
    {"three long columns", {70'000, 3}, {0}},
    {"64 columns", {700, 64}, {0}},
    {"wide columns", {40, 5000}, {0}},
    {"columns of planes", {3, 40, 64}, {1}},
    {"every element", {300, 5}, {}},
    // What a mask leaves.
    {"masked rows", {64, 700}, {1}, By::kAxes, 0, true},
    {"masked columns", {700, 64}, {0}, By::kAxes, 0, true},
    {"masked long rows", {2, 50'000}, {1}, By::kAxes, 0, true},
    {"masked array", {20'000}, {0}, By::kAxes, 0, true},
    // Segments: by one lane to a warp, in parts, of columns.
    {"segments of 2", {2000}, {}, By::kSegments, 1000},
    {"segments of 60", {6000}, {}, By::kSegments, 100},
    {"segments of 500", {20'000}, {}, By::kSegments, 40},
    {"a long segment", {60'000}, {}, By::kSegments, 50, false, true},
    {"segments of 3 columns", {1500, 3}, {}, By::kSegments, 20},
    {"segments of 40 columns", {700, 40}, {}, By::kSegments, 9},
    {"masked segments", {4000}, {}, By::kSegments, 50, true},
    // Keys: tables in shared memory, in the L2 cache and beyond it; sorted rows; found in a narrow and in a wide range.
    {"9 keys", {20'000}, {}, By::kKeys, 9},
    {"3000 keys", {20'000}, {}, By::kKeys, 3000},
    {"30000 keys", {40'000}, {}, By::kKeys, 30'000},
    {"masked keys", {9000}, {}, By::kKeys, 60, true},
    {"a common key", {60'000}, {}, By::kKeys, 300, false, true},
    {"keys of 3 columns", {3000, 3}, {}, By::kKeys, 20},
    {"found keys", {20'000}, {}, By::kFoundKeys, 500},
    {"masked found keys", {9000}, {}, By::kFoundKeys, 60, true},
    {"found keys of 3 columns", {3000, 3}, {}, By::kFoundKeys, 20},
};

// Ops of each kind of fold, and all of them together.
std::vector<std::vector<OpCall>> OpSets(DType dtype) {
  std::vector<std::vector<OpCall>> sets = {{Op::kSum, Op::kMean},
                                           {Op::kVar},
                                           {Op::kL1, Op::kSumSquares},
                                           {Op::kArgmax, Op::kMin},
                                           {Op::kAny, Op::kCount, Op::kNanCount}};
  if (!RowOf(dtype).is_float) sets.push_back({Op::kBitAnd, Op::kBitXor});
  if (!RowOf(dtype).is_float) sets.push_back({Op::kProd});
  if (!HasKernels(dtype)) sets.push_back({Op::kMedian, Op::kArgmin});
  std::vector<OpCall> all = OpsOf(dtype);
  if (RowOf(dtype).is_float)
    std::erase_if(all, [](const OpCall& call) { return call.op == Op::kProd; });  // whose last bits depend on the order
  sets.push_back(std::move(all));
  return sets;
}

struct Launch {
  DType dtype;
  const LaunchRow* row;
};

class EngineLaunches : public EngineTest<std::tuple<EngineKind, Launch>> {
 protected:
  DType dtype() const { return std::get<Launch>(GetParam()).dtype; }
  std::int64_t Random(std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random_); }

  // The side arrays stay in `sides`.
  Partition PartitionOf(const LaunchRow& row, std::vector<Bytes>* sides) {
    const bool grouped = row.by != By::kAxes;
    const std::int64_t rows = row.shape[0];
    Partition partition{.layout = LayoutAlong(row.shape, grouped ? std::vector<int>{0} : row.axes), .rows = rows};
    sides->reserve(2);
    const auto side = [&](DType of, Bytes bytes) {
      sides->push_back(std::move(bytes));
      return SideOf(of, sides->back());
    };
    if (row.by == By::kSegments) {
      std::vector<std::int64_t> bounds = {0};
      for (std::int64_t i = 1; i < row.groups; ++i) {
        bounds.push_back(row.uneven ? Random(std::min<std::int64_t>(rows, 3 * row.groups))
                                    : i * rows / row.groups + Random(1));
      }
      bounds.push_back(rows);
      std::sort(bounds.begin(), bounds.end());
      partition.segments = Segments{side(DType::kI64, BytesOf(bounds))};
    } else if (grouped) {
      std::vector<std::int32_t> keys;
      for (std::int64_t i = 0; i < rows; ++i) {
        std::int64_t key = row.uneven && i % 8 != 0 ? row.groups / 2 : Random(row.groups - 1);
        if (row.by == By::kFoundKeys) key = row.mask ? key * 30'000'017 % 2'000'000'011 : key - 7;
        keys.push_back(static_cast<std::int32_t>(key));
      }
      partition.keys = Keys{side(DType::kI32, BytesOf(keys)), row.by == By::kKeys ? row.groups : 0};
    }
    if (row.mask) {
      Bytes mask(static_cast<std::size_t>(CountOf(row.shape)));
      for (std::byte& each : mask) each = std::byte{Random(2) != 0};
      partition.mask = Mask{side(DType::kBool, std::move(mask))};
    }
    return partition;
  }

  void Check(const LaunchRow& row, const std::vector<OpCall>& ops, DataKind kind, NanPolicy policy, Engine& reference) {
    SCOPED_TRACE(std::string(row.name) + ", " + std::string(RowOf(ops.front().op).name));
    std::vector<Bytes> sides;
    const Partition partition = PartitionOf(row, &sides);
    const Bytes array = MakeData(kind, dtype(), CountOf(row.shape), 5);
    ReduceSpec spec = Spec(dtype(), CountOf(row.shape));
    spec.ops = ops;
    spec.nan_policy = policy;
    spec.overflow_policy = OverflowPolicy::kWrap;
    spec.empty_policy = EmptyPolicy::kFill;
    spec.precision = Precision::kExact;
    const Job job{.spec = spec, .array = {array.data()}};
    const Reply got = ReducePartition(engine(), job, partition);
    const Reply expected = ReducePartition(reference, job, partition);
    ASSERT_TRUE(got.status.ok() && expected.status.ok()) << got.status << expected.status;
    EXPECT_EQ(got.keys, expected.keys);
    ASSERT_EQ(got.outputs, expected.outputs);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_TRUE(got.answers->memory[i] == expected.answers->memory[i]) << RowOf(ops[i].op).name;
    }
  }

  std::mt19937_64 random_{13};
};

TEST_P(EngineLaunches, OnceEach) {
  Engine& reference = engine_for(1);  // the CPU's
  const bool floats = RowOf(dtype()).is_float;
  const LaunchRow& row = *std::get<Launch>(GetParam()).row;
  const std::vector<std::vector<OpCall>> sets = OpSets(dtype());
  for (const std::vector<OpCall>& ops : sets) {
    Check(row, ops, floats ? DataKind::kFull : DataKind::kUniform, NanPolicy::kPropagate, reference);
  }
  // What is not known without states, and NaNs that are left out.
  if (floats) Check(row, sets.back(), DataKind::kSomeNan, NanPolicy::kOmit, reference);
}

// Of elements of each size, and of those that are widened.
std::vector<Launch> Launches() {
  std::vector<Launch> launches;
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF64, DType::kU8, DType::kI16, DType::kI32, DType::kU64}) {
    for (const LaunchRow& row : kLaunches) launches.push_back({dtype, &row});
  }
  // Elements that are counted.
  const auto long_rows = std::ranges::find(kLaunches, std::string("two long rows"), &LaunchRow::name);
  launches.push_back({DType::kF8E4M3, &*long_rows});
  return launches;
}

std::string NameOfLaunch(const ::testing::TestParamInfo<std::tuple<EngineKind, Launch>>& info) {
  const Launch& launch = std::get<Launch>(info.param);
  std::string name = std::string(RowOf(launch.dtype).name) + "_" + launch.row->name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cuda, EngineLaunches,
                         ::testing::Combine(::testing::Values(EngineKind::kCuda), ::testing::ValuesIn(Launches())),
                         NameOfLaunch);

}  // namespace
}  // namespace reduced::test
