// Variances and roots of many outputs from sums of two doubles: once for each vector target.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/cpu/quick_sums.h"
#include "kernels/cpu/tiles.h"
#include "kernels/exact/answers.h"
#include "kernels/exact/sums.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced::test {
namespace {

constexpr std::int64_t kOutputs = kQuickOutputs - 3;  // some of which are left over after whole vectors
constexpr double kNotWritten = -12345;

// So many elements of an output, as their sums by doubles and exactly.
struct Outputs {
  std::unique_ptr<QuickSums> sums = std::make_unique<QuickSums>();
  std::unique_ptr<QuickSums> squares = std::make_unique<QuickSums>();
  std::vector<ExactSums> exact = std::vector<ExactSums>(kOutputs);
  std::vector<std::int64_t> counts = std::vector<std::int64_t>(kOutputs);

  Outputs() {
    ClearSums(kQuickOutputs, sums.get());
    ClearSums(kQuickOutputs, squares.get());
  }
  void Add(std::int64_t output, double x) {
    const auto i = static_cast<std::size_t>(output);
    AddExactly(x, sums->sum + i, sums->rest + i, sums->lost + i);
    AddSquareExactly(x, squares->sum + i, squares->rest + i, squares->lost + i);
    reduced::Add(x, SetOf(Accumulator::kSum) | SetOf(Accumulator::kSumSquares), /*elsewhere=*/false, &exact[i]);
    ++counts[i];
  }
};

// Compares what is known with the exact answers. Returns how many are known.
std::int64_t Compare(const Outputs& outputs, Op op, std::int64_t ddof) {
  std::vector<double> got(kQuickOutputs, kNotWritten);
  bool known[kQuickOutputs];
  std::fill_n(known, kQuickOutputs, true);
  known[7] = false;
  QuickStoresFor().moments(op, *outputs.sums, *outputs.squares, kOutputs, outputs.counts.data(), ddof,
                           reinterpret_cast<std::byte*>(got.data()), known);
  EXPECT_FALSE(known[7]) << "what was not known before is not known after";
  EXPECT_EQ(got[kOutputs], kNotWritten);
  std::int64_t answered = 0;
  ReduceSpec spec{.dtype = DType::kF64};
  spec.ddof = ddof;
  for (std::int64_t i = 0; i < kOutputs; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!known[i]) continue;
    ++answered;
    const double right = op != Op::kL2 && outputs.counts[at] <= ddof
                             ? std::numeric_limits<double>::quiet_NaN()
                             : ExactAnswer(spec, op, outputs.counts[at], outputs.exact[at]);
    if (std::isnan(right)) {
      EXPECT_TRUE(std::isnan(got[at])) << got[at];
    } else {
      EXPECT_EQ(got[at], right) << RowOf(op).name << " of " << outputs.counts[at] << " elements, output " << i;
    }
  }
  return answered;
}

class QuickStoresTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  // Outputs of up to `most` elements, each of which `element` makes.
  template <class Element>
  void Check(std::int64_t most, double least_known, const Element& element) {
    Outputs outputs;
    for (std::int64_t i = 0; i < kOutputs; ++i) {
      const auto count = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most + 1));
      for (std::int64_t k = 0; k < count; ++k) outputs.Add(i, element(i));
    }
    for (const Op op : {Op::kVar, Op::kStd, Op::kL2}) {
      for (const std::int64_t ddof : {0, 1, 3}) {
        SCOPED_TRACE(::testing::Message() << RowOf(op).name << ", ddof " << ddof);
        const std::int64_t answered = Compare(outputs, op, ddof);
        EXPECT_GE(static_cast<double>(answered), least_known * kOutputs);
      }
    }
  }
  double Uniform() { return std::ldexp(static_cast<double>(random_() >> 11), -53); }

  const OnlyTarget only_{GetParam()};
  std::mt19937_64 random_{11};
};

TEST_P(QuickStoresTest, OfFloats) {
  Check(8, 0.99, [&](std::int64_t) { return double{static_cast<float>(Uniform() - 0.5)}; });
  Check(100, 0.99, [&](std::int64_t) { return double{static_cast<float>(Uniform() * 1000)}; });
}

TEST_P(QuickStoresTest, OfDoubles) {
  Check(8, 0.95, [&](std::int64_t) { return Uniform(); });
  Check(40, 0.95, [&](std::int64_t) { return 1e6 + Uniform(); });
}

// Whose variances are small numbers, and often exact or ties.
TEST_P(QuickStoresTest, OfSmallIntegers) {
  Check(9, 0.9, [&](std::int64_t) { return static_cast<double>(random_() % 5) - 2; });
  Check(4, 0.9, [&](std::int64_t) { return static_cast<double>(random_() % 3) * 0x1p52 + 1; });
}

// Nearly all of a mean's square is subtracted again.
TEST_P(QuickStoresTest, OfNearlyTheSame) {
  Check(8, 0, [&](std::int64_t i) {
    const double mean = std::ldexp(1 + Uniform() * 0x1p-48, static_cast<int>(i % 60));
    return std::nextafter(mean, 0) + Uniform() * 0x1p-40;
  });
  double same = 0;
  std::int64_t of = -1;
  Check(6, 0.6, [&](std::int64_t i) {
    if (i != of) same = Uniform() * 100;
    of = i;
    return same;
  });
}

TEST_P(QuickStoresTest, OfManySizes) {
  Check(8, 0.5, [&](std::int64_t) { return std::ldexp(Uniform() - 0.5, static_cast<int>(random_() % 90)); });
  Check(8, 0, [&](std::int64_t) { return std::ldexp(Uniform() - 0.5, static_cast<int>(random_() % 600) - 400); });
  Check(3, 0, [&](std::int64_t) { return std::ldexp(Uniform() - 0.5, static_cast<int>(random_() % 2040) - 1030); });
}

// What additions lost may be more than what rounding leaves open.
TEST_P(QuickStoresTest, OfSumsThatAreNotKnown) {
  Outputs outputs;
  for (std::int64_t i = 0; i < kOutputs; ++i) {
    for (int k = 0; k < 5; ++k) outputs.Add(i, 1 + Uniform());
  }
  const auto ask = [&](Op op) {
    std::vector<double> got(kQuickOutputs);
    bool known[kQuickOutputs];
    std::fill_n(known, kQuickOutputs, true);
    QuickStoresFor().moments(op, *outputs.sums, *outputs.squares, kOutputs, outputs.counts.data(), 0,
                             reinterpret_cast<std::byte*>(got.data()), known);
    return std::count(known, known + kOutputs, true);
  };
  std::fill_n(outputs.squares->lost, kOutputs, 0x1p-40);
  for (const Op op : {Op::kVar, Op::kStd, Op::kL2}) EXPECT_EQ(ask(op), 0) << RowOf(op).name;
  std::fill_n(outputs.squares->lost, kOutputs, 0.0);
  std::fill_n(outputs.sums->lost, kOutputs, 0x1p-40);
  for (const Op op : {Op::kVar, Op::kStd}) EXPECT_EQ(ask(op), 0) << RowOf(op).name;
}

// What is not finite is not known, whatever its neighbours are.
TEST_P(QuickStoresTest, BesideNansAndInfinities) {
  Outputs outputs;
  for (std::int64_t i = 0; i < kOutputs; ++i) {
    for (int k = 0; k < 5; ++k) outputs.Add(i, Uniform());
  }
  outputs.sums->sum[2] = outputs.squares->sum[2] = std::numeric_limits<double>::quiet_NaN();
  outputs.squares->sum[9] = std::numeric_limits<double>::infinity();
  outputs.sums->lost[9] = outputs.squares->lost[9] = std::numeric_limits<double>::quiet_NaN();
  for (const Op op : {Op::kVar, Op::kStd, Op::kL2}) {
    EXPECT_GE(Compare(outputs, op, 0), kOutputs - 8) << RowOf(op).name;
  }
}

INSTANTIATE_TEST_SUITE_P(, QuickStoresTest, ::testing::ValuesIn(VectorTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace reduced::test
