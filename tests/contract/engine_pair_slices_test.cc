// Sums of pairs along axes, and matrices of columns, on the CUDA engine: every way by which it launches kernels for
// them, on data that those ways differ by. The answers are those of the CPU engine, byte for byte.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/layout.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced::test {
namespace {

struct PairShape {
  const char* name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> other;
  std::vector<bool> axes;
};
const PairShape kPairShapes[] = {
    // Rows: by 1 to 32 lanes, by vectors and by elements, in parts; of runs; with weights of columns and of rows.
    {"rows of 3", {12'000, 3}, {12'000, 3}, {false, true}},
    {"rows of 16", {2100, 16}, {2100, 16}, {false, true}},
    {"rows of 64", {35'000, 64}, {35'000, 64}, {false, true}},
    {"rows of 250", {140, 250}, {250}, {false, true}},
    {"rows of 1024", {40, 1024}, {1024}, {false, true}},
    {"rows of 2048", {30, 2048}, {30, 1}, {false, true}},
    {"rows of 2049", {18, 2049}, {18, 2049}, {false, true}},
    {"a row", {40'000}, {1}, {true}},
    {"long rows", {3, 20'000}, {3, 20'000}, {false, true}},
    {"rows of planes", {6, 40, 200}, {40, 200}, {true, false, true}},
    // Columns: a few, in parts; wide ones; of planes.
    {"columns", {9000, 7}, {9000, 1}, {true, false}},
    {"wide columns", {9, 5000}, {9, 5000}, {true, false}},
    {"columns of planes", {6, 50, 200}, {50, 1}, {false, true, false}},
    {"columns of blocks", {6, 50, 200}, {6, 1, 200}, {true, true, false}},
    {"elements", {200, 200}, {200}, {false, false}},
};

std::uint64_t MixPair(std::uint64_t z) {  // splitmix64
  z = (z + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
double UniformPair(std::uint64_t i) { return static_cast<double>(MixPair(i) >> 11) * 0x1p-53 - 0.5; }

constexpr double kPairNan = std::numeric_limits<double>::quiet_NaN(),
                 kPairInfinity = std::numeric_limits<double>::infinity();

struct PairData {
  const char* name;
  double (*x)(std::uint64_t i);
  double (*y)(std::uint64_t i);
};
const PairData kPairData[] = {
    {"uniform", [](std::uint64_t i) { return UniformPair(i); }, [](std::uint64_t i) { return UniformPair(~i) + 0.75; }},
    {"far from zero", [](std::uint64_t i) { return 1000 + UniformPair(i); },
     [](std::uint64_t i) { return 2000 + UniformPair(i) / 8; }},
    {"cancelling", [](std::uint64_t i) { return (i % 2 == 0 ? 1 : -1) * (1 + UniformPair(i / 2)); },
     [](std::uint64_t i) { return i % 512 == 77 ? 0x1p-13 : 1.0; }},
    {"wide", [](std::uint64_t i) { return std::ldexp(UniformPair(i), static_cast<int>(MixPair(~i) % 90) - 45); },
     [](std::uint64_t i) { return std::ldexp(UniformPair(i + 7), static_cast<int>(MixPair(i) % 90) - 45); }},
    {"wide weights", [](std::uint64_t i) { return UniformPair(i); },
     [](std::uint64_t i) { return i % 100 == 3 ? 0x1p60 : 0x1p-60; }},
    {"constant", [](std::uint64_t) { return 0.1; }, [](std::uint64_t) { return -0.3; }},
    {"a line", [](std::uint64_t i) { return static_cast<double>(MixPair(i) % 100); },
     [](std::uint64_t i) { return 3 - 2 * static_cast<double>(MixPair(i) % 100); }},
    {"near", [](std::uint64_t i) { return UniformPair(i); },
     [](std::uint64_t i) { return UniformPair(i) * (1 + 0x1p-20); }},
    {"ties", [](std::uint64_t i) { return i % 2 == 0   ? 1.0
                                          : i % 4 == 1 ? 0x1p-7
                                                       : 0x1p-12; },
     [](std::uint64_t) { return 1.0; }},
    {"some NaN", [](std::uint64_t i) { return MixPair(i) % 3000 == 0 ? kPairNan : UniformPair(i); },
     [](std::uint64_t i) { return i % 9000 < 3000 ? kPairNan : UniformPair(i + 5); }},
    {"an infinity", [](std::uint64_t i) { return i == 3000 ? -kPairInfinity : UniformPair(i); },
     [](std::uint64_t i) { return i == 5000 ? kPairInfinity : UniformPair(i + 5); }},
    {"small", [](std::uint64_t i) { return std::ldexp(UniformPair(i), -130); },
     [](std::uint64_t i) { return std::ldexp(UniformPair(i + 5), i % 7 == 0 ? 0 : -140); }},
    {"least", [](std::uint64_t i) { return std::ldexp(UniformPair(i), -540); },
     [](std::uint64_t i) { return std::ldexp(UniformPair(i + 5), i % 7 == 0 ? 400 : -500); }},
    {"large", [](std::uint64_t i) { return std::ldexp(UniformPair(i), 127); },
     [](std::uint64_t i) { return std::ldexp(UniformPair(i + 5), i % 5 == 0 ? 1020 : 120); }},
    {"zeros", [](std::uint64_t i) { return i % 3 == 0 ? -0.0 : 0.0; }, [](std::uint64_t) { return -0.0; }},
};

Bytes BytesOfPairs(DType dtype, std::int64_t count, double (*value)(std::uint64_t i)) {
  Bytes bytes(static_cast<std::size_t>(count * RowOf(dtype).bytes));
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      for (std::int64_t i = 0; i < count; ++i) {
        const T element = FromDouble<T>(value(static_cast<std::uint64_t>(i)));
        std::memcpy(bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), &element, sizeof(T));
      }
    }
  });
  return bytes;
}

std::int64_t PairsOf(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

class EnginePairSlices : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  void CheckJob(Job job, const std::vector<std::int64_t>& shape, const std::vector<bool>& axes,
                const std::vector<OpCall>& calls, const std::string& name) {
    job.spec = Spec(dtype(), PairsOf(shape));
    job.spec.ops = calls;
    job.spec.ddof = 1;
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      job.spec.nan_policy = policy;
      const Partition partition{.layout = LayoutOf(shape, axes)};
      const Reply got = ReducePartition(engine(), job, partition),
                  wanted = ReducePartition(engine_for(1), job, partition);
      ASSERT_EQ(got.status, absl::OkStatus()) << name;
      ASSERT_EQ(wanted.status, absl::OkStatus()) << name;
      ASSERT_EQ(got.outputs, wanted.outputs);
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::int64_t answers = got.outputs * AnswerElements(calls[i]);
        for (std::int64_t at = 0; at < answers; ++at) {
          double a, b;
          std::memcpy(&a, got.answers->data[i] + at * std::int64_t{sizeof(a)}, sizeof(a));
          std::memcpy(&b, wanted.answers->data[i] + at * std::int64_t{sizeof(b)}, sizeof(b));
          ASSERT_EQ(std::memcmp(&a, &b, sizeof(a)), 0)
              << name << ", " << RowOf(calls[i].op).name << ", answer " << at << ": got " << a << ", not " << b;
        }
      }
    }
  }

  void Check(const PairShape& each, const PairData& data) {
    const Bytes x = BytesOfPairs(dtype(), PairsOf(each.shape), data.x);
    const Bytes y = BytesOfPairs(dtype(), PairsOf(each.other), data.y);
    const absl::StatusOr<std::vector<Dimension>> broadcast = Broadcast("y", each.other, each.shape);
    ASSERT_TRUE(broadcast.ok()) << broadcast.status();
    Job job{.spec = {}, .array = {x.data()}};
    job.y = job.weights = OtherArray{SideOf(dtype(), y), *broadcast};
    std::vector<OpCall> calls;
    for (const Op op : {Op::kDot, Op::kWeightedSum, Op::kWeightedMean, Op::kCov, Op::kCorr, Op::kSlope, Op::kIntercept,
                        Op::kCosine, Op::kDistanceL1, Op::kDistanceL2}) {
      calls.push_back(OpCall(op).With(dtype()));
    }
    CheckJob(job, each.shape, each.axes, calls, std::string(each.name) + ", " + data.name);
  }

  // Of a matrix, or of several.
  void CheckMatrix(const std::vector<std::int64_t>& shape, const PairData& data) {
    const std::int64_t columns = shape.back();
    const Bytes x = BytesOfPairs(dtype(), PairsOf(shape), data.x);
    std::vector<bool> axes(shape.size(), true);
    axes[0] = shape.size() == 2;
    CheckJob({.spec = {}, .array = {x.data()}}, shape, axes,
             {{Op::kCovMatrix, {.columns = columns}}, {Op::kCorrMatrix, {.columns = columns}}},
             std::to_string(columns) + " columns, " + data.name);
  }
};

TEST_P(EnginePairSlices, EachShape) {
  for (const PairShape& each : kPairShapes) {
    if (kSlowBuild && PairsOf(each.shape) > 1'000'000) continue;
    Check(each, kPairData[0]);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EnginePairSlices, EachKindOfData) {
  for (const PairData& data : kPairData) {
    for (const std::size_t shape : {1, 4, 7, 10, 12}) {
      Check(kPairShapes[shape], data);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EnginePairSlices, Matrices) {
  for (const std::int64_t columns : {1, 2, 8, 15, 16, 17, 40, 64}) {
    if (kSlowBuild && columns > 17) break;
    CheckMatrix({70'000 / columns, columns}, kPairData[0]);
    if (HasFatalFailure()) return;
  }
  if (kSlowBuild) return;
  for (const PairData& data : kPairData) {
    CheckMatrix({3, 2003, 16}, data);
    CheckMatrix({1100, 33}, data);
    if (HasFatalFailure()) return;
  }
}

// Each launch once, for compute-sanitizer.
TEST_P(EnginePairSlices, OnceEach) {
  for (const std::size_t shape : {3, 4, 8, 9, 10, 12}) Check(kPairShapes[shape], kPairData[9]);
  CheckMatrix({2500, 16}, kPairData[3]);
  CheckMatrix({1000, 40}, kPairData[1]);
}

INSTANTIATE_TEST_SUITE_P(Cuda, EnginePairSlices,
                         ::testing::Combine(::testing::Values(EngineKind::kCuda),
                                            ::testing::Values(DType::kF32, DType::kF64, DType::kF16, DType::kBF16)),
                         NameOfDType);

}  // namespace
}  // namespace reduced::test
