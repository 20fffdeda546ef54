// Ops about two arrays: partitions x shapes of the other array x dtypes x data, against a fold of the pairs of each
// output, which are found one by one. What folds answer is tested by itself (tests/unit/kernels).
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/algebra/layout.h"
#include "kernels/folds/fold.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced::test {
namespace {

// A partition, and which output each element belongs to.
struct PairCase {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> other;  // the shape of the other array
  std::vector<bool> axes{};         // which dimensions are reduced; none: by keys, of dimension 0
  std::int64_t groups = 0;
  bool masked = false;

  std::int64_t count() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }
};

std::int64_t KeyOf(std::int64_t row) { return row * 7 % 5; }
bool Keeps(std::int64_t index) { return index * 13 % 17 < 9; }

const PairCase kPairCases[] = {
    {"whole", {70'001}, {70'001}, {true}},
    {"few", {3}, {3}, {true}},
    {"one_for_all", {5000}, {1}, {true}},
    {"rows", {40, 1000}, {40, 1000}, {false, true}},
    {"long_rows", {3, 20'000}, {3, 20'000}, {false, true}},
    {"weights_of_columns", {40, 1000}, {1000}, {false, true}},
    {"weights_of_rows", {40, 300}, {40, 1}, {true, false}},
    {"columns", {900, 7}, {900, 7}, {true, false}},
    {"weights_of_the_middle", {6, 50, 8}, {50, 1}, {true, true, false}},
    {"masked", {30'000}, {30'000}, {true}, 0, true},
    {"masked_weights_of_rows", {30, 700}, {30, 1}, {true, true}, 0, true},
    {"keys", {9000}, {9000}, {}, 5},
    {"keys_of_rows", {600, 9}, {600, 1}, {}, 5},
    {"keys_masked", {6000}, {6000}, {}, 5, true},
};

class EnginePairsTest : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  // `magnitudes`: the other array has no signs.
  void Check(const PairCase& each, DType other, DataKind data, NanPolicy policy, const std::vector<OpCall>& calls,
             bool magnitudes = false) {
    const std::int64_t count = each.count();
    std::int64_t other_count = 1;
    for (const std::int64_t size : each.other) other_count *= size;
    const Bytes x = MakeData(data, dtype(), count, 2);
    Bytes y = MakeData(data, other, other_count, 5);
    const auto width = static_cast<std::size_t>(RowOf(other).bytes);
    for (std::size_t i = width - 1; magnitudes && RowOf(other).is_signed && i < y.size(); i += width) {
      y[i] &= std::byte{127};
    }
    const absl::StatusOr<std::vector<Dimension>> broadcast = Broadcast("y", each.other, each.shape);
    ASSERT_TRUE(broadcast.ok()) << broadcast.status();

    const bool keyed = each.axes.empty();
    std::vector<bool> axes = each.axes;
    if (keyed) axes.assign(each.shape.size(), false), axes[0] = true;
    Partition partition{.layout = LayoutOf(each.shape, axes), .rows = each.shape[0]};
    std::vector<std::int64_t> keys;
    if (keyed) {
      for (std::int64_t row = 0; row < each.shape[0]; ++row) keys.push_back(KeyOf(row));
    }
    const Bytes key_bytes = BytesOf(keys);
    if (keyed) partition.keys = Keys{.keys = SideOf(DType::kI64, key_bytes), .groups = each.groups};
    Bytes mask(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) mask[static_cast<std::size_t>(i)] = std::byte{Keeps(i)};
    if (each.masked) partition.mask = Mask{.array = SideOf(DType::kBool, mask)};

    ReduceSpec spec = Spec(dtype(), count);
    spec.ops.clear();
    for (const OpCall& call : calls) spec.ops.push_back(call.With(other));
    spec.nan_policy = policy;
    spec.ddof = 1;
    Job job{.spec = spec, .array = {x.data()}};
    job.y = OtherArray{SideOf(other, y), *broadcast};
    job.weights = job.y;
    std::vector<absl::Status> errors;
    job.errors = &errors;
    const Reply reply = ReducePartition(engine(), job, partition);
    ASSERT_EQ(reply.status, absl::OkStatus()) << each.name;

    // The pairs of each output.
    struct Pairs {
      Bytes x, y;
      std::vector<std::int64_t> indexes;
    };
    std::vector<Pairs> outputs(static_cast<std::size_t>(reply.outputs));
    for (std::int64_t output = 0; output < partition.layout.outputs; ++output) {
      for (std::int64_t position = 0; position < partition.layout.elements; ++position) {
        const std::int64_t index = partition.layout.Start(output) + partition.layout.At(position);
        if (each.masked && !Keeps(index)) continue;
        const std::int64_t number = keyed ? KeyOf(position) * partition.layout.outputs + output : output;
        Pairs& to = outputs[static_cast<std::size_t>(number)];
        std::int64_t at = 0, left = index, stride = 1;  // in the other array
        for (std::size_t d = 0; d < each.shape.size(); ++d) {
          const std::size_t dimension = each.shape.size() - 1 - d;
          const std::int64_t of_dimension = left % each.shape[dimension];
          left /= each.shape[dimension];
          const std::int64_t size = d < each.other.size() ? each.other[each.other.size() - 1 - d] : 1;
          if (size > 1) at += of_dimension * stride;
          stride *= size;
        }
        const auto append = [](const Bytes& from, std::int64_t i, DType of, Bytes* bytes) {
          const auto width = static_cast<std::ptrdiff_t>(RowOf(of).bytes);
          bytes->insert(bytes->end(), from.begin() + i * width, from.begin() + (i + 1) * width);
        };
        append(x, index, dtype(), &to.x);
        append(y, at, other, &to.y);
        to.indexes.push_back(position);
      }
    }
    const FoldLimits limits{[](std::int64_t) { return absl::OkStatus(); }, [](std::int64_t) {},
                            [] { return absl::OkStatus(); }};
    for (std::size_t i = 0; i < spec.ops.size(); ++i) {
      const OpCall& call = spec.ops[i];
      const auto bytes = static_cast<std::size_t>(AnswerElements(call) * RowOf(ResultDType(call, dtype())).bytes);
      absl::Status error;
      for (std::size_t number = 0; number < outputs.size() && error.ok(); ++number) {
        const Pairs& pairs = outputs[number];
        const std::unique_ptr<DistributionFold> fold = MakeDistributionFold(call, spec, limits);
        const auto pair_count = std::ssize(pairs.indexes);
        ASSERT_TRUE(fold->Begin(pair_count).ok());
        absl::StatusOr<bool> again = true;
        for (; again.ok() && *again; again = fold->NextPass()) {
          ASSERT_TRUE(fold->Add(pairs.x.data(), pairs.y.data(), 0, pair_count).ok());
        }
        Bytes wanted(bytes);
        error = fold->Finish([&](std::int64_t rank) { return pairs.indexes[static_cast<std::size_t>(rank)]; },
                             wanted.data());
        if (!error.ok()) break;
        const Bytes got(reply.answers->data[i] + number * bytes, reply.answers->data[i] + (number + 1) * bytes);
        if (got == wanted || !errors[i].ok()) continue;
        FAIL() << each.name << ", " << RowOf(call.op).name << " with " << RowOf(other).name << ", data "
               << kDataKinds[static_cast<int>(data)].name << ", output " << number << ": got "
               << ::testing::PrintToString(got) << ", not " << ::testing::PrintToString(wanted);
      }
      EXPECT_EQ(errors[i].code(), error.code()) << each.name << ", " << RowOf(call.op).name << ": " << errors[i];
    }
  }
};

// All but compare, whose indexes and ties need no more than one case each.
std::vector<OpCall> PairCalls() {
  std::vector<OpCall> calls = {{Op::kCompare, {.rtol = 1e-3, .atol = 1e-6}}};
  for (const OpRow& row : kOps) {
    const bool own = row.op == Op::kCompare || IsWeightedQuantile(row.op);
    if (row.other != OtherOperand::kNone && !own) calls.emplace_back(row.op);
  }
  return calls;
}

// Whose weights are 0 or more.
std::vector<OpCall> WeightedQuantileCalls() {
  return {Op::kWeightedMedian, {Op::kWeightedQuantile, {.quantiles = {0.9, 0, 0.25, 1, 0.25}}}};
}

TEST_P(EnginePairsTest, EachPartitionAndShape) {
  for (const PairCase& each : kPairCases) {
    Check(each, dtype(), DataKind::kUniform, NanPolicy::kPropagate, PairCalls());
    Check(each, dtype(), DataKind::kUniform, NanPolicy::kPropagate, WeightedQuantileCalls(), /*magnitudes=*/true);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EnginePairsTest, EachKindOfData) {
  for (const DataKindRow& data : kDataKinds) {
    if (!Applies(data, dtype())) continue;
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      Check(kPairCases[4], dtype(), data.kind, policy, PairCalls());
      Check(kPairCases[9], dtype(), data.kind, policy, {Op::kDot, Op::kCorr});
      for (const int at : {0, 4, 9, 13}) {
        if (data.kind != DataKind::kFull && (kSlowBuild || at != 4)) continue;
        Check(kPairCases[at], dtype(), data.kind, policy, WeightedQuantileCalls(), /*magnitudes=*/true);
        Check(kPairCases[at], dtype(), data.kind, policy, WeightedQuantileCalls());  // errors of ops
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EnginePairsTest, OtherDTypes) {
  for (const DTypeRow& other : kDTypes) {
    if (other.is_float != RowOf(dtype()).is_float || other.dtype == dtype()) continue;
    for (const int at : {4, 6, 11}) {
      if (kSlowBuild && at != 4) continue;
      Check(kPairCases[at], other.dtype, DataKind::kUniform, NanPolicy::kOmit, PairCalls());
      Check(kPairCases[at], other.dtype, DataKind::kUniform, NanPolicy::kOmit, WeightedQuantileCalls(), true);
    }
    if (HasFatalFailure()) return;
  }
}

// Products of small numbers have digits below the smallest double.
TEST_P(EnginePairsTest, SmallMagnitudes) {
  if (dtype() != DType::kF64) GTEST_SKIP() << "other dtypes have no such numbers";
  constexpr std::int64_t kCount = 40'000;
  for (const int exponent : {-300, -490, -500, -600, -700, -1000}) {
    std::vector<double> x(kCount), y(kCount);
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool is_large = i >= 30'000 && i % 100 == 0;
      x[at] = std::ldexp(static_cast<double>(i % 997) + 0.25, is_large ? 3 : exponent);
      y[at] = std::ldexp(static_cast<double>(i % 89) - 40.5, exponent);
    }
    const Bytes x_bytes = BytesOf(x), y_bytes = BytesOf(y);
    ReduceSpec spec = Spec(dtype(), kCount);
    spec.ops.clear();
    for (const Op op : {Op::kDot, Op::kCosine, Op::kCorr, Op::kSlope, Op::kDistanceL1, Op::kDistanceL2}) {
      spec.ops.push_back(OpCall(op).With(dtype()));
    }
    Job job{.spec = spec, .array = {x_bytes.data()}};
    job.y = OtherArray{SideOf(dtype(), y_bytes)};
    const Partition whole{.layout = LayoutOf(std::vector<std::int64_t>{kCount}, {true})};
    const Reply got = ReducePartition(engine(), job, whole), wanted = ReducePartition(engine_for(1), job, whole);
    ASSERT_EQ(got.status, absl::OkStatus());
    ASSERT_EQ(wanted.status, absl::OkStatus());
    for (std::size_t i = 0; i < spec.ops.size(); ++i) {
      EXPECT_EQ(std::memcmp(got.answers->data[i], wanted.answers->data[i], sizeof(double)), 0)
          << RowOf(spec.ops[i]).name << ", 2^" << exponent;
    }
  }
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EnginePairsTest);

}  // namespace
}  // namespace reduced::test
