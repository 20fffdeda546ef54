// The folds that a GPU answers outputs along axes by, on the host: what they say they know is right, and they know
// nearly all.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/quick_moments.h"
#include "kernels/exact/answers.h"
#include "kernels/exact/sums.h"

namespace reduced {
namespace {

// What `fold` has where `other` has `member`.
template <class Fold>
double MemberOf(const Fold& fold, const Fold& other, const double& member) {
  const auto at = reinterpret_cast<const std::byte*>(&member) - reinterpret_cast<const std::byte*>(&other);
  double value;
  std::memcpy(&value, reinterpret_cast<const std::byte*>(&fold) + at, sizeof(value));
  return value;
}

// The fold of elements, kAtOnce at a time, in so many shares that are merged.
template <class Fold, int kAtOnce, class T>
Fold FoldOf(const std::vector<T>& elements, const QuickElements& of, std::size_t shares) {
  using Word = typename Fold::Word;
  Fold all;
  for (std::size_t share = 0; share < shares; ++share) {
    Fold fold;
    for (std::size_t at = share * kAtOnce; at < elements.size(); at += shares * kAtOnce) {
      QuickTile<Word, kAtOnce> x{};
      int n = 0;
      for (int i = 0; i < kAtOnce; ++i) {
        const bool there = at + static_cast<std::size_t>(i) < elements.size();
        x.Set(i, there ? BitsAs<Word>(elements[at + static_cast<std::size_t>(i)]) : Fold::Padding(x[0], of));
        n += there ? 1 : 0;
      }
      fold.Add(x, n, QuickPositions<kAtOnce>{static_cast<std::uint32_t>(at)}, of);
    }
    if (share % 2 == 1 && all.plain() && fold.plain()) {
      all.MergePlain([&](const double& member) { return MemberOf(fold, all, member); });
    } else {
      all.Merge(fold);
    }
  }
  return all;
}

struct Known {
  int right = 0;
  int unknown = 0;
};

// Asks a fold for one answer, and compares it with that of the exact sums.
template <class Fold, class T>
void Ask(Op op, const std::vector<T>& elements, std::int64_t ddof, Known* known) {
  ExactSums sums;
  for (const T x : elements) Add(x, kExactAccumulators, /*elsewhere=*/false, &sums);
  const auto count = static_cast<std::int64_t>(elements.size());
  const ReduceSpec spec{
      .dtype = kDTypeOf<T>, .count = count, .ops = {op}, .ddof = ddof, .precision = Precision::kExact};
  const double expected = ExactAnswer(spec, op, count, sums);
  const QuickElements of{.dtype = kDTypeOf<T>, .count = count, .ddof = ddof};
  double got = 0;
  const QuickAnswer answer{op, reinterpret_cast<std::byte*>(&got)};
  const Fold folds[] = {FoldOf<Fold, 8>(elements, of, 1),  FoldOf<Fold, 8>(elements, of, 3),
                        FoldOf<Fold, 16>(elements, of, 2), FoldOf<Fold, 4>(elements, of, 3),
                        FoldOf<Fold, 2>(elements, of, 2),  FoldOf<Fold, 1>(elements, of, 1)};
  for (const Fold& fold : folds) {
    if (!fold.Finish(&answer, 1, 0, of)) {
      ++known->unknown;
    } else {
      ++known->right;
      ASSERT_EQ(BitsAs<std::uint64_t>(got), BitsAs<std::uint64_t>(expected))
          << RowOf(op).name << " of " << count << ": got " << got << ", not " << expected;
    }
  }
}

struct Data {
  std::string name;
  double (*element)(std::mt19937_64& random);
  double unknown;  // the share of answers that may be so, of sums; of variances of f64 all may
};

double Unit(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

const std::vector<Data>& AllData() {
  static const auto* const all = new std::vector<Data>{
      {"uniform", [](std::mt19937_64& random) { return 2 * Unit(random) - 1; }, 0.02},
      {"lognormal", [](std::mt19937_64& random) { return std::exp(5 * std::normal_distribution<double>()(random)); },
       0.05},
      {"whole", [](std::mt19937_64& random) { return static_cast<double>(random() % 17) - 8; }, 0.02},
      {"halves", [](std::mt19937_64& random) { return 0x1p24 + static_cast<double>(random() % 2); }, 0.02},
      {"binades",
       [](std::mt19937_64& random) { return std::ldexp(1 + Unit(random), static_cast<int>(random() % 60) - 30); },
       0.05},
      {"ties",
       [](std::mt19937_64& random) {
         return std::ldexp(random() % 2 == 0 ? 1.0 : -1.0, static_cast<int>(random() % 70));
       },
       0.4},
      {"far from zero", [](std::mt19937_64& random) { return 1.7e9 + 1000 * Unit(random); }, 0.02},
      {"squares that underflow in part",
       [](std::mt19937_64& random) { return std::ldexp(1 + Unit(random), static_cast<int>(random() % 30) - 500); },
       0.6},
      {"subnormal", [](std::mt19937_64& random) { return std::ldexp(Unit(random), -1040); }, 0.6},
      {"signed zeros", [](std::mt19937_64& random) { return random() % 4 == 0 ? 0.0 : -0.0; }, 0},
  };
  return *all;
}

template <class T>
void AskAll() {
  std::mt19937_64 random(1);
  for (const Data& data : AllData()) {
    SCOPED_TRACE(data.name);
    Known sums, moments;
    for (const std::size_t count : {1, 2, 3, 4, 7, 16, 100, 1000}) {
      for (int turn = 0; turn < (count > 100 ? 10 : 100); ++turn) {
        std::vector<T> elements(count);
        for (T& x : elements) x = static_cast<T>(data.element(random));
        for (const Op op : {Op::kSum, Op::kMean}) Ask<QuickFloatSum<T>>(op, elements, 0, &sums);
        for (const Op op : {Op::kVar, Op::kStd, Op::kL2, Op::kSumSquares, Op::kMean}) {
          Ask<QuickFloatMoments<T>>(op, elements, turn % 2, &moments);
        }
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    EXPECT_LE(sums.unknown, data.unknown * (sums.right + sums.unknown));
    // Of f64 the variance of a single element is not known if it shares a tile with elements that aren't there.
    const double unknown = sizeof(T) == 4 ? data.unknown : data.name == "uniform" ? 0.03 : 1;
    EXPECT_LE(moments.unknown, unknown * (moments.right + moments.unknown));
  }
}

TEST(QuickFoldsTest, KnowSumsOfF32) { AskAll<float>(); }
TEST(QuickFoldsTest, KnowSumsOfF64) { AskAll<double>(); }

// 2^53 + 1 is a tie. What rounding takes from the sum, 1 and 2^-60, would be rounded to 1.
TEST(QuickFoldsTest, RoundUpSumsThatAreJustAboveATie) {
  Known known;
  Ask<QuickFloatSum<double>>(Op::kSum, std::vector<double>{0x1p53, 1, 0x1p-60}, 0, &known);
  Ask<QuickFloatMoments<double>>(Op::kSum, std::vector<double>{0x1p53, 1, 0x1p-60}, 0, &known);
}

// (2^57 + 2^3)^2 / 4 is half a unit in the last place and very little more above 2^112.
TEST(QuickFoldsTest, RoundUpWhatIsJustAboveATie) {
  Known known;
  for (const double second : {-8.0, 8.0}) {
    Ask<QuickFloatMoments<double>>(Op::kVar, std::vector<double>{0x1p57, second}, 0, &known);
    Ask<QuickFloatMoments<double>>(Op::kStd, std::vector<double>{0x1p57, second}, 0, &known);
  }
}

}  // namespace
}  // namespace reduced
