// Folds of pairs in two doubles (kernels/cuda/pair_folds.h), against the exact folds of kernels/folds: each known
// answer is the exact one, and of ordinary data every answer is known.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cuda/pair_folds.h"
#include "kernels/folds/fold.h"

namespace reduced {
namespace {

// How pairs of an output are drawn.
struct Draw {
  int spread = 0;        // powers of two that magnitudes differ by
  double offset = 0;     // of all of x
  bool whole = false;    // small whole numbers
  bool cancels = false;  // each second x is the one before, negated, or nearly so
  bool alike = false;    // y is x, or nearly so
  double nan_share = 0;
};

template <class T>
void DrawPairs(const Draw& draw, int count, std::mt19937_64& random, std::vector<T>* x, std::vector<T>* y) {
  const auto uniform = [&] { return std::uniform_real_distribution<double>(-1, 1)(random); };
  const auto number = [&] {
    const double value = draw.whole ? std::floor(32 * uniform()) : uniform();
    return std::ldexp(value, draw.spread == 0 ? 0 : static_cast<int>(random() % draw.spread) - draw.spread / 2);
  };
  for (int i = 0; i < count; ++i) {
    double a = number() + draw.offset;
    if (draw.cancels && i % 2 == 1) a = -ToDouble(x->back()) * (random() % 64 == 0 ? 1 + 0x1p-20 : 1);
    double b = draw.alike     ? a * (random() % 4 == 0 ? 1 + 0x1p-18 : 1)
               : draw.cancels ? std::ldexp(1, draw.spread == 0 ? 0 : -(i % 32 / 2))
                              : number();
    if (std::uniform_real_distribution<double>(0, 1)(random) < draw.nan_share) (random() % 2 == 0 ? a : b) = NAN;
    x->push_back(FromDouble<T>(a));
    y->push_back(FromDouble<T>(b));
  }
}

double ExactAnswer(Op op, const ReduceSpec& spec, const void* x, const void* y) {
  const FoldLimits limits{[](std::int64_t) { return absl::OkStatus(); }, [](std::int64_t) {},
                          [] { return absl::OkStatus(); }};
  const std::unique_ptr<DistributionFold> fold = MakeDistributionFold(OpCall(op).With(spec.dtype), spec, limits);
  double answer = 0;
  EXPECT_TRUE(fold->Begin(spec.count).ok() && fold->Add(x, y, 0, spec.count).ok());
  EXPECT_TRUE(fold->Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(&answer)).ok());
  return answer;
}

// Returns how many answers are known.
template <class T, PairFamily kFamily>
int Check(DType dtype, const std::vector<T>& x, const std::vector<T>& y, NanPolicy policy, int* asked) {
  using Fold = PairFold<T, kFamily>;
  const auto count = static_cast<int>(x.size());
  Fold parts[3];
  for (int i = 0; i < count; i += Fold::kTile) {
    T a[Fold::kTile] = {}, b[Fold::kTile] = {};
    for (int j = 0; j < Fold::kTile && i + j < count; ++j) {
      const std::size_t at = static_cast<std::size_t>(i) + static_cast<std::size_t>(j);
      a[j] = x[at];
      b[j] = y[at];
    }
    parts[i / Fold::kTile % 3].Add(a, b);
  }
  parts[1].Merge(parts[2]);
  parts[0].Merge(parts[1]);
  ReduceSpec spec;
  spec.dtype = dtype;
  spec.count = count;
  spec.ddof = 1;
  spec.nan_policy = policy;
  int known = 0;
  for (const OpRow& row : kOps) {
    if (!HasPairFamily(row.op, kFamily)) continue;
    ++*asked;
    double got = 0;
    if (!parts[0].Answer(row.op, {count, spec.ddof, policy == NanPolicy::kOmit}, &got)) continue;
    ++known;
    const double wanted = ExactAnswer(row.op, spec, x.data(), y.data());
    EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(wanted))
        << row.name << " of " << count << " " << RowOf(dtype).name << ": got " << got << ", not " << wanted;
  }
  return known;
}

template <class T>
void CheckDraws(DType dtype) {
  std::mt19937_64 random(7);
  const Draw draws[] = {{},
                        {.whole = true},
                        {.offset = 1000},
                        {.spread = 20},
                        {.spread = 32},
                        {.spread = 60},
                        {.spread = 90},
                        {.spread = 240},
                        {.spread = 1900},
                        {.cancels = true},
                        {.spread = 40, .cancels = true},
                        {.spread = 64, .cancels = true},
                        {.spread = 100, .cancels = true},
                        {.alike = true},
                        {.spread = 30, .alike = true},
                        {.nan_share = 0.01},
                        {.spread = 60, .nan_share = 0.3}};
  for (const Draw& draw : draws) {
    for (const int count : {1, 2, 7, 33, 1000}) {
      int known = 0, asked = 0;
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<T> x, y;
        DrawPairs(draw, count, random, &x, &y);
        for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
          known += Check<T, PairFamily::kMeans>(dtype, x, y, policy, &asked);
          known += Check<T, PairFamily::kMoments>(dtype, x, y, policy, &asked);
          known += Check<T, PairFamily::kDistances>(dtype, x, y, policy, &asked);
        }
      }
      if (&draw == &draws[0] && count > 1) {
        EXPECT_GE(known, asked * 99 / 100) << RowOf(dtype).name << ", " << count;
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(PairFolds, KnowTheExactAnswers) {
  CheckDraws<float>(DType::kF32);
  CheckDraws<double>(DType::kF64);
  CheckDraws<Half>(DType::kF16);
  CheckDraws<BFloat16>(DType::kBF16);
}

}  // namespace
}  // namespace reduced
