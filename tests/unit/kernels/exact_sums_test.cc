// Exact sums element by element, and what they answer: against Python's rational numbers (exact_vectors.py), and
// against big integers by the schoolbook on random arrays.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact/answers.h"
#include "kernels/exact/digits.h"
#include "kernels/exact/sums.h"
#include "tests/support/exact_oracle.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

using test::kInfinity;
using test::kNan;

constexpr Op kExactOps[] = {Op::kSum, Op::kMean, Op::kL1, Op::kSumSquares, Op::kL2, Op::kVar, Op::kStd};

struct Vector {
  DType dtype;
  std::int64_t ddof;
  std::vector<double> elements;
  std::vector<double> answers;  // of kExactOps
};

std::vector<Vector> Vectors() {
  return {
#include "tests/unit/kernels/exact_vectors.inc"
  };
}

ExactSums SumsOf(const std::vector<double>& elements) {
  ExactSums sums;
  for (const double x : elements) Add(x, kExactAccumulators, /*elsewhere=*/false, &sums);
  return sums;
}

double AnswerTo(Op op, const std::vector<double>& elements, const ExactSums& sums,
                NanPolicy policy = NanPolicy::kPropagate, std::int64_t ddof = 0) {
  const ReduceSpec spec{.dtype = DType::kF64,
                        .count = static_cast<std::int64_t>(elements.size()),
                        .ops = {op},
                        .nan_policy = policy,
                        .ddof = ddof,
                        .precision = Precision::kExact};
  return ExactAnswer(spec, op, spec.count, sums);
}

std::string Hex(double x) {
  char text[64];
  snprintf(text, sizeof(text), "%a", x);
  return text;
}

// To the bit; any NaN for a NaN.
void ExpectSame(double got, double expected, const std::string& what) {
  if (std::isnan(expected) && std::isnan(got)) return;
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(expected))
      << what << ": " << Hex(got) << ", not " << Hex(expected);
}

// Every op, both policies and some ddof, against the schoolbook, which takes most of the time.
void ExpectRight(const std::vector<double>& elements, const std::string& what) {
  const ExactSums sums = SumsOf(elements);
  for (const Op op : kExactOps) {
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      for (const std::int64_t ddof : {0, 1}) {
        if (ddof != 0 && op != Op::kVar && op != Op::kStd) continue;
        ExpectSame(AnswerTo(op, elements, sums, policy, ddof), test::ExactlyBySchoolbook(op, elements, policy, ddof),
                   what + ", " + std::string(RowOf(op).name));
      }
    }
  }
}

// Fewer where they take long.
int Runs(int runs) { return test::kSlowBuild ? std::max(1, runs / 10) : runs; }

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t Whole(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  // Of either sign, from 2^low to 2^(high + 1).
  double Float(int low, int high) {
    const double x =
        std::ldexp(1 + std::ldexp(static_cast<double>(engine_() >> 12), -52), static_cast<int>(Whole(low, high)));
    return Whole(0, 1) != 0 ? x : -x;
  }
  double AnyFinite() {
    const double x = std::bit_cast<double>(static_cast<std::uint64_t>(engine_()));
    return std::isfinite(x) ? x : 1.0;
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

TEST(ExactSums, AnswerAsRationalNumbersDo) {
  for (const Vector& vector : Vectors()) {
    const ExactSums sums = SumsOf(vector.elements);
    for (std::size_t i = 0; i < std::size(kExactOps); ++i) {
      const Op op = kExactOps[i];
      const std::string what = std::string(RowOf(op).name) + " of " + std::to_string(vector.elements.size()) +
                               " from " + Hex(vector.elements.front());
      ExpectSame(AnswerTo(op, vector.elements, sums, NanPolicy::kPropagate, vector.ddof), vector.answers[i], what);
      ExpectSame(test::ExactlyBySchoolbook(op, vector.elements, NanPolicy::kPropagate, vector.ddof), vector.answers[i],
                 what + ", by the oracle");
    }
  }
}

TEST(ExactSums, AreRightWhateverTheExponents) {
  Random random(1);
  const std::pair<int, int> ranges[] = {{0, 0}, {-20, 20}, {-200, 200}, {-1022, 1023}, {-1022, -1000}, {960, 1023}};
  for (const auto& [low, high] : ranges) {
    for (int run = 0; run < Runs(12); ++run) {
      std::vector<double> elements;
      for (std::int64_t n = random.Whole(1, 12); n > 0; --n) elements.push_back(random.Float(low, high));
      ExpectRight(elements, "2^" + std::to_string(low) + " to 2^" + std::to_string(high));
    }
  }
  for (int run = 0; run < Runs(30); ++run) {
    std::vector<double> elements;
    for (std::int64_t n = random.Whole(1, 12); n > 0; --n) elements.push_back(random.AnyFinite());
    ExpectRight(elements, "any bits");
  }
}

TEST(ExactSums, AreRightWhereAlmostAllCancels) {
  Random random(2);
  for (const int condition : {10, 50, 100, 300, 900}) {  // 2^100 is more than 1e30
    for (int run = 0; run < Runs(8); ++run) {
      std::vector<double> elements;
      for (int i = 0; i < 5; ++i) {
        elements.push_back(random.Float(0, condition));
        elements.push_back(-elements.back());
      }
      if (run % 2 == 0) elements.push_back(random.Float(-60, 0));
      std::shuffle(elements.begin(), elements.end(), random.engine());
      ExpectRight(elements, "condition 2^" + std::to_string(condition));
    }
  }
}

TEST(ExactSums, RoundHalfwayCasesToEven) {
  Random random(3);
  for (int run = 0; run < Runs(40); ++run) {
    const double x = random.Float(-100, 100);
    const double half_unit = std::ldexp(1.0, std::ilogb(x) - 53);
    for (const double rest : {0.0, 0x1p-1074, -0x1p-1074}) ExpectRight({x, half_unit, rest}, "halfway");
  }
  for (const double tiny : {0x1p-1074, 0x1p-1073, 0x3p-1074}) {  // means that are half a unit of the smallest numbers
    ExpectRight({tiny, 0.0}, "denormal");
    ExpectRight({-tiny, 0.0}, "denormal");
    ExpectRight({tiny, tiny, 0.0}, "denormal");
  }
}

TEST(ExactSums, KeepSignsOfZeroInfinitiesAndNans) {
  const std::vector<std::vector<double>> arrays = {{},
                                                   {-0.0},
                                                   {-0.0, -0.0},
                                                   {-0.0, 0.0},
                                                   {1.0, -1.0},
                                                   {-1.0, 1.0, -0.0},
                                                   {kNan},
                                                   {-0.0, kNan},
                                                   {kInfinity, 1.0},
                                                   {-kInfinity, 1e308},
                                                   {kInfinity, -kInfinity},
                                                   {kInfinity, kNan},
                                                   {kNan, 2.0, 3.0}};
  for (const std::vector<double>& elements : arrays)
    ExpectRight(elements, "array of " + std::to_string(elements.size()));
}

TEST(ExactSums, CarryThroughNumbersWhoseBitsAreAllOnes) {
  Random random(4);
  for (int run = 0; run < Runs(50);
       ++run) {  // -2^-1074 is ones throughout: each number of the other sign carries to the end
    std::vector<double> elements = {-0x1p-1074};
    for (int i = 0; i < 6; ++i) {
      elements.push_back(std::ldexp(1.0, static_cast<int>(random.Whole(-1074, 1000))) * (i % 2 == 0 ? 1 : -1));
    }
    ExpectRight(elements, "ones");
  }
}

TEST(ExactSums, DontDependOnOrderOrCuts) {
  Random random(5);
  std::vector<double> elements;
  for (int i = 0; i < 300; ++i) elements.push_back(random.AnyFinite());
  elements.push_back(kNan);
  elements.push_back(-kInfinity);
  const ExactSums whole = SumsOf(elements);
  for (int run = 0; run < 20; ++run) {
    std::shuffle(elements.begin(), elements.end(), random.engine());
    const auto cut = elements.begin() + random.Whole(0, static_cast<std::int64_t>(elements.size()));
    ExactSums parts = SumsOf({cut, elements.end()});
    Merge(SumsOf({elements.begin(), cut}), &parts);
    EXPECT_TRUE(parts == whole);
  }
}

TEST(ExactSums, MergeTheSignsOfZeros) {
  const ReduceSpec spec{.dtype = DType::kF64, .count = 2, .ops = {Op::kSum}, .precision = Precision::kExact};
  for (const double first : {0.0, -0.0}) {
    for (const double second : {0.0, -0.0}) {
      ExactSums sums = SumsOf({first});
      Merge(SumsOf({second}), &sums);
      ExpectSame(ExactAnswer(spec, Op::kSum, 2, sums), first + second, "sum");
    }
  }
}

// 2^62 elements, by doubling what is known of one.
TEST(ExactSums, HoldAsManyElementsAsAnArrayCanHave) {
  for (const double x : {std::numeric_limits<double>::max(), -std::numeric_limits<double>::max(), 0x1p-1074, 0.1}) {
    ExactSums sums = SumsOf({x});
    for (int i = 0; i < 62; ++i) Merge(ExactSums(sums), &sums);
    const std::int64_t count = std::int64_t{1} << 62;
    ReduceSpec spec{.dtype = DType::kF64, .count = count, .ops = {Op::kMean}, .precision = Precision::kExact};
    ExpectSame(ExactAnswer(spec, Op::kMean, count, sums), x, "mean");
    ExpectSame(ExactAnswer(spec, Op::kSum, count, sums), std::ldexp(x, 62), "sum");
    ExpectSame(ExactAnswer(spec, Op::kL1, count, sums), std::ldexp(std::fabs(x), 62), "l1");
    ExpectSame(ExactAnswer(spec, Op::kL2, count, sums), std::ldexp(std::fabs(x), 31), "l2");
    ExpectSame(ExactAnswer(spec, Op::kVar, count, sums), 0.0, "var");
  }
}

// Digits are signed and overlap: those of -1 may be 2^32 - 1 and -1.
TEST(ExactSums, AreWhatDigitsAddUpTo) {
  ExactDigits digits;
  const auto word = [](std::int64_t x) { return static_cast<unsigned long long>(x); };
  digits.sum[0] = word(-5);
  digits.sum[1] = word((std::int64_t{7} << 32) + 1);  // 2^32, and 7 x 2^64
  digits.sum[ExactDigits::kSumDigits - 1] = word(-1);
  digits.sum_squares[2] = word(3);
  digits.nans = 4;
  digits.positive_infinities = 5;
  digits.negative_infinities = 6;
  digits.not_only_negative_zeros = 7;
  ExactSums expected;
  expected.sum.Add(-5, ExactSum::kLow);
  expected.sum.Add(1, ExactSum::kLow + 32);
  expected.sum.Add(7, ExactSum::kLow + 64);
  expected.sum.Add(-1, ExactSum::kLow + 32 * (ExactDigits::kSumDigits - 1));
  expected.sum_squares.Add(3, ExactSquares::kLow + 64);
  expected.nans = 4;
  expected.positive_infinities = 5;
  expected.negative_infinities = 6;
  expected.not_only_negative_zeros = true;
  ExactSums sums;
  Merge(digits, &sums);
  EXPECT_TRUE(sums == expected);
}

}  // namespace
}  // namespace reduced
