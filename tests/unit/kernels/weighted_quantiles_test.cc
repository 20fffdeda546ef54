// The fold of weighted_median and weighted_quantile: against sums of natural numbers of any size; cut, merged and
// shuffled in any way, and with little memory, the bits of the whole.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/exact/natural.h"
#include "kernels/folds/fold.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

using test::Bytes;
using ::testing::HasSubstr;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfiniteWeight = std::numeric_limits<double>::infinity();
const std::vector<double> kShares = {0.5, 0, 1, 0.25, 1.0 / 3, 0.9, 5e-324, 1 - 0x1p-53, 0.1, 0.25};

struct WeightedArrays {
  DType dtype, other;
  Bytes x, weights;

  std::int64_t count() const { return std::ssize(x) / RowOf(dtype).bytes; }
  absl::Status Add(std::int64_t begin, std::int64_t end, DistributionFold* fold) const {
    return fold->Add(x.data() + begin * RowOf(dtype).bytes, weights.data() + begin * RowOf(other).bytes, begin,
                     end - begin);
  }
};

template <class T>
WeightedArrays Weighted(const std::vector<T>& x, const std::vector<T>& weights) {
  const auto bytes = [](const std::vector<T>& from) {
    const auto* const begin = reinterpret_cast<const std::byte*>(from.data());
    return Bytes(begin, begin + from.size() * sizeof(T));
  };
  constexpr DType kDType = std::is_same_v<T, double> ? DType::kF64 : DType::kI64;
  return {kDType, kDType, bytes(x), bytes(weights)};
}

// As `weights`, without signs.
Bytes WithoutSigns(DType dtype, Bytes weights) {
  const auto width = static_cast<std::size_t>(RowOf(dtype).bytes);
  for (std::size_t i = width - 1; RowOf(dtype).is_signed && i < weights.size(); i += width)
    weights[i] &= std::byte{127};
  return weights;
}

WeightedArrays Shuffled(const WeightedArrays& from, std::mt19937_64& random) {
  std::vector<std::size_t> order(static_cast<std::size_t>(from.count()));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  WeightedArrays to = from;
  const auto copy = [&](const Bytes& source, std::size_t width, Bytes* target) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(order[i] * width), width,
                  target->begin() + static_cast<std::ptrdiff_t>(i * width));
    }
  };
  copy(from.x, static_cast<std::size_t>(RowOf(from.dtype).bytes), &to.x);
  copy(from.weights, static_cast<std::size_t>(RowOf(from.other).bytes), &to.weights);
  return to;
}

FoldLimits LimitsOf(std::int64_t most, std::int64_t* taken) {
  return {.take =
              [=](std::int64_t bytes) {
                if (*taken + bytes > most) return absl::ResourceExhaustedError("as the test wants it");
                *taken += bytes;
                return absl::OkStatus();
              },
          .give = [=](std::int64_t bytes) { *taken -= bytes; },
          .why_stop = [] { return absl::OkStatus(); }};
}

// The bytes of the answers, or the words of the error.
std::string Reduced(const OpCall& call, const ReduceSpec& spec, const WeightedArrays& arrays, int parts = 1,
                    std::int64_t memory = std::int64_t{1} << 40, int* passes = nullptr) {
  std::int64_t taken = 0;
  const FoldLimits limits = LimitsOf(memory, &taken);
  std::string answers(static_cast<std::size_t>(AnswerElements(call) * RowOf(ResultDType(call, spec.dtype)).bytes), '?');
  absl::Status status;
  {
    const std::unique_ptr<DistributionFold> fold = MakeDistributionFold(call, spec, limits);
    status = fold->Begin(arrays.count());
    for (absl::StatusOr<bool> again = true; status.ok() && *again; status = again.status()) {
      if (passes != nullptr) ++*passes;
      std::vector<std::unique_ptr<DistributionFold>> own;
      for (int i = 0; i + 1 < parts; ++i) {
        absl::StatusOr<std::unique_ptr<DistributionFold>> part = fold->Part();
        if (part.ok()) own.push_back(*std::move(part));
      }
      constexpr std::int64_t kBlock = 777;
      for (std::int64_t begin = 0; begin < arrays.count(); begin += kBlock) {
        const auto number = static_cast<std::size_t>(begin / kBlock) % (own.size() + 1);
        DistributionFold* const to = number == own.size() ? fold.get() : own[number].get();
        EXPECT_EQ(arrays.Add(begin, std::min(arrays.count(), begin + kBlock), to), absl::OkStatus());
      }
      std::reverse(own.begin(), own.end());  // any order
      for (const auto& each : own) EXPECT_EQ(fold->Merge(*each), absl::OkStatus());
      own.clear();
      again = fold->NextPass();
      if (!again.ok()) {
        status = again.status();
        break;
      }
    }
    if (status.ok()) {
      status = fold->Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(answers.data()));
    }
  }
  EXPECT_EQ(taken, 0);
  return status.ok() ? answers : std::string(status.message());
}

// The number, 0 or more, in units of 2^-1200.
Natural Exactly(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return Natural(static_cast<std::uint64_t>(std::ldexp(fraction, 53))).ShiftedLeft(1200 + exponent - 53);
}

// By sorting, and adding up natural numbers: S >= q W. Weights are finite, and 0 or more.
std::string Wanted(const OpCall& call, const ReduceSpec& spec, const WeightedArrays& arrays) {
  return VisitDType(arrays.dtype, [&]<class T>(std::type_identity<T>) {
    struct Element {
      T x;
      Natural weight;
    };
    std::vector<Element> elements;
    bool nan = false;
    Natural total;
    VisitDType(arrays.other, [&]<class W>(std::type_identity<W>) {
      for (std::int64_t i = 0; i < arrays.count(); ++i) {
        T x;
        W weight;
        std::memcpy(&x, arrays.x.data() + i * static_cast<std::int64_t>(sizeof x), sizeof x);
        std::memcpy(&weight, arrays.weights.data() + i * static_cast<std::int64_t>(sizeof weight), sizeof weight);
        Natural exact;
        if constexpr (kIsFloat<W>) {
          exact = Exactly(ToDouble(weight));
        } else {
          exact = Natural(static_cast<std::uint64_t>(ToInteger(weight)));
        }
        nan = nan || IsNan(x);
        if (IsNan(x) || exact.zero()) continue;
        elements.push_back({x, exact});
        total = total.Plus(exact);
      }
    });
    const auto value = [](T x) {
      if constexpr (kIsFloat<T>) {
        return ToDouble(x);
      } else {
        return ToInteger(x);
      }
    };
    std::sort(elements.begin(), elements.end(), [&](const Element& a, const Element& b) {
      if (value(a.x) != value(b.x)) return value(a.x) < value(b.x);
      if constexpr (kIsFloat<T>) return std::signbit(value(a.x)) && !std::signbit(value(b.x));
      return false;
    });
    const std::vector<double> shares =
        call.op == Op::kWeightedMedian ? std::vector<double>{0.5} : call.given().quantiles;
    std::vector<std::size_t> order(shares.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return shares[a] < shares[b]; });
    std::vector<T> answers(shares.size(), SortKey<T>::Element(kIsFloat<T> ? SortKey<T>::kNan : SortKey<T>::Of(T{})));
    if (nan && spec.nan_policy == NanPolicy::kPropagate) elements.clear();
    Natural sum;
    auto at = order.begin();
    for (const Element& each : elements) {
      sum = sum.Plus(each.weight);
      for (; at != order.end(); ++at) {
        int exponent = 0;
        const double fraction = std::frexp(shares[*at], &exponent);
        const Natural product = total.Times(Natural(static_cast<std::uint64_t>(std::ldexp(fraction, 53))));
        if (sum.ShiftedLeft(53 - exponent).LessThan(product)) break;
        answers[*at] = SortKey<T>::Element(SortKey<T>::Of(each.x));
      }
    }
    return std::string(reinterpret_cast<const char*>(answers.data()), answers.size() * sizeof(T));
  });
}

OpCall Shares(std::vector<double> shares, DType other) {
  return {Op::kWeightedQuantile, {.quantiles = std::move(shares), .other = other}};
}

TEST(WeightedQuantiles, AreThoseOfNaturalNumbers) {
  std::mt19937_64 random(1);
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, dtype.dtype)) continue;
      for (const std::int64_t count : {1, 2, 61, 4'096, 6'000}) {
        if (test::kSlowBuild && count == 4'096) continue;
        DType other = dtype.dtype;
        while (random() % 2 == 0 || RowOf(other).is_float != dtype.is_float) {
          other = kDTypes[random() % std::size(kDTypes)].dtype;
        }
        constexpr test::DataKind kKinds[] = {test::DataKind::kUniform, test::DataKind::kFull, test::DataKind::kSmall,
                                             test::DataKind::kOutlier};
        const test::DataKind kind = kKinds[random() % std::size(kKinds)];
        const WeightedArrays arrays{dtype.dtype, other, test::MakeData(data.kind, dtype.dtype, count, random()),
                                    WithoutSigns(other, test::MakeData(kind, other, count, random()))};
        const ReduceSpec spec{.dtype = dtype.dtype,
                              .nan_policy = random() % 2 == 0 ? NanPolicy::kOmit : NanPolicy::kPropagate,
                              .empty_policy = EmptyPolicy::kFill};
        for (const OpCall& call : {Shares(kShares, other), OpCall(Op::kWeightedMedian).With(other)}) {
          const std::string what =
              absl::StrFormat("%s and %s, %s, %d", dtype.name, RowOf(other).name, data.name, count);
          const std::string wanted = Wanted(call, spec, arrays);
          ASSERT_EQ(Reduced(call, spec, arrays), wanted) << what;
          ASSERT_EQ(Reduced(call, spec, Shuffled(arrays, random), 1 + static_cast<int>(random() % 5)), wanted) << what;
        }
      }
    }
  }
}

// Weights whose sums a double does not have, and those at both ends of its range.
TEST(WeightedQuantiles, NothingIsRounded) {
  std::mt19937_64 random(2);
  const ReduceSpec spec{.dtype = DType::kF64};
  const auto ask = [&](const std::vector<double>& x, const std::vector<double>& weights, double q) {
    const WeightedArrays arrays = Weighted(x, weights);
    const std::string got = Reduced(Shares({q}, DType::kF64), spec, arrays);
    EXPECT_EQ(Reduced(Shares({q}, DType::kF64), spec, Shuffled(arrays, random)), got);
    double answer = 0;
    std::memcpy(&answer, got.data(), sizeof answer);
    return answer;
  };
  EXPECT_EQ(ask({1, 2}, {1, 1}, 0.5), 1);          // lower
  EXPECT_EQ(ask({1, 2}, {1e308, 1e308}, 0.5), 1);  // whose sum overflows
  EXPECT_EQ(ask({1, 2, 3}, {1e308, 5e-324, 1e308}, 0.5), 2);
  EXPECT_EQ(ask({1, 2, 3}, {1e308, 5e-324, 1e308}, 0), 1);
  EXPECT_EQ(ask({1, 2, 3}, {1e308, 1e308, 5e-324}, 1), 3);
  EXPECT_EQ(ask({1, 2, 3}, {5e-324, 1e308, 1e308}, 5e-324), 2);  // a share above 5e-324
  EXPECT_EQ(ask({1, 2, 3}, {1, 0x1p-60, 1}, 0.5), 2);
  // The doubles of tenths are no tenths: 0.1 is above, 0.3 is below.
  const std::vector<double> ten = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<double> ones(10, 1.0);
  EXPECT_EQ(ask(ten, ones, 0.1), 2);
  EXPECT_EQ(ask(ten, ones, 0.3), 3);
  EXPECT_EQ(ask(ten, ones, 0.5), 5);
  EXPECT_EQ(ask({-0.0, 0.0}, {1, 1}, 0.5), 0);
  EXPECT_TRUE(std::signbit(ask({0.0, -0.0}, {1, 1}, 0.5)));
  EXPECT_EQ(ask({kInfiniteWeight, -kInfiniteWeight, 0}, {1, 1, 1}, 0), -kInfiniteWeight);
  EXPECT_EQ(ask({kInfiniteWeight, -kInfiniteWeight, 0}, {1, 1, 1}, 1), kInfiniteWeight);
  // Elements of weight 0 are not there, at either end.
  EXPECT_EQ(ask({1, 2, 3, 4}, {0, 1, 1, -0.0}, 0), 2);
  EXPECT_EQ(ask({1, 2, 3, 4}, {0, 1, 1, 0}, 1), 3);
  // Integers of 64 bits, whose sums have more.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const WeightedArrays integers = Weighted<std::int64_t>({kMost, -5, 7}, {kMost, kMost, 1});
  const std::string answer = Reduced(Shares({0.5}, DType::kI64), {.dtype = DType::kI64}, integers);
  std::int64_t number = 0;
  std::memcpy(&number, answer.data(), sizeof number);
  EXPECT_EQ(number, 7);
}

TEST(WeightedQuantiles, WeightsThatAreNoneDecideTheAnswer) {
  const OpCall median = OpCall(Op::kWeightedMedian).With(DType::kF64);
  const auto ask = [&](const std::vector<double>& x, const std::vector<double>& weights, NanPolicy policy) {
    const std::string got = Reduced(median, {.dtype = DType::kF64, .nan_policy = policy}, Weighted(x, weights));
    double answer = 0;
    if (got.size() > sizeof answer) return got;
    std::memcpy(&answer, got.data(), sizeof answer);
    return absl::StrCat(answer);
  };
  constexpr NanPolicy kOmit = NanPolicy::kOmit, kPropagate = NanPolicy::kPropagate;
  EXPECT_EQ(ask({1, kNoNumber, 3}, {1, 1, 1}, kPropagate), "nan");
  EXPECT_EQ(ask({1, kNoNumber, 3}, {1, 0, 1}, kPropagate), "nan");
  EXPECT_EQ(ask({1, kNoNumber, 3}, {1, 5, 1}, kOmit), "1");
  EXPECT_EQ(ask({1, 2, 3}, {1, kNoNumber, 2}, kPropagate), "nan");
  EXPECT_EQ(ask({1, 2, 3}, {1, kNoNumber, 2}, kOmit), "3");
  EXPECT_EQ(ask({1, 2, 3}, {1, kInfiniteWeight, 2}, kOmit), "nan");
  EXPECT_EQ(ask({1, 2, 3}, {0, 0, 0}, kOmit), "nan");
  EXPECT_EQ(ask({kNoNumber}, {1}, kOmit), "nan");
  EXPECT_EQ(ask({}, {}, kPropagate), "nan");
  const std::string wrong = "with op weighted_median; allowed: 0 or more";
  EXPECT_EQ(ask({1, 2, 3}, {1, -1, -5e-324}, kPropagate), absl::StrCat("weights: got 2 below 0 ", wrong));
  EXPECT_EQ(ask({1, 2, 3}, {kNoNumber, -kInfiniteWeight, 1}, kPropagate),
            absl::StrCat("weights: got 1 below 0 ", wrong));
  EXPECT_EQ(ask({kNoNumber, 2}, {-1, 1}, kOmit), "2");  // the pair is left out

  const OpCall integers = OpCall(Op::kWeightedMedian).With(DType::kI64);
  const WeightedArrays none = Weighted<std::int64_t>({3, 4}, {0, 0});
  EXPECT_EQ(Reduced(integers, {.dtype = DType::kI64}, none),
            "op weighted_median: got no element with a weight above 0; allowed: at least 1");
  EXPECT_EQ(Reduced(integers, {.dtype = DType::kI64, .empty_policy = EmptyPolicy::kFill}, none), std::string(8, '\0'));
}

// Long arrays take several passes, in tables of sums; with little memory more of them, or there is none.
TEST(WeightedQuantiles, LongArraysAndLittleMemory) {
  static const std::int64_t kCount = test::kSlowBuild ? 60'000 : 200'000;
  std::mt19937_64 random(3);
  std::vector<double> many;
  for (int i = 0; i < 1024; ++i) many.push_back(i * 37 % 1024 / 1023.0);
  const struct {
    DType dtype, other;
    test::DataKind data;
  } kCases[] = {
      {DType::kF64, DType::kF64, test::DataKind::kFull},    {DType::kF64, DType::kF32, test::DataKind::kFarFromZero},
      {DType::kF32, DType::kF64, test::DataKind::kUniform}, {DType::kI64, DType::kU8, test::DataKind::kOutlier},
      {DType::kU64, DType::kI64, test::DataKind::kEqual},   {DType::kBF16, DType::kF16, test::DataKind::kUniform},
      {DType::kU8, DType::kI32, test::DataKind::kFull}};
  for (const auto& each : kCases) {
    const WeightedArrays arrays{
        each.dtype, each.other, test::MakeData(each.data, each.dtype, kCount, 5),
        WithoutSigns(each.other, test::MakeData(test::DataKind::kUniform, each.other, kCount, 6))};
    const ReduceSpec spec{.dtype = each.dtype};
    for (const std::vector<double>& shares : {kShares, many}) {
      const OpCall call = Shares(shares, each.other);
      int passes = 0;
      const std::string whole = Reduced(call, spec, arrays, 1, std::int64_t{1} << 40, &passes);
      EXPECT_LE(passes, 4) << RowOf(each.dtype).name;
      EXPECT_EQ(whole, Wanted(call, spec, arrays));
      EXPECT_EQ(Reduced(call, spec, Shuffled(arrays, random), 3), whole);
      for (const std::int64_t memory : {1'000, 30'000, 300'000, 3'000'000}) {
        const std::string poor = Reduced(call, spec, arrays, 2, memory);
        if (poor == "as the test wants it") continue;
        EXPECT_EQ(poor, whole) << RowOf(each.dtype).name << ", " << memory;
      }
    }
  }
}

// Elements that change between two passes, as those of a region may: some answer, and no access beyond.
TEST(WeightedQuantiles, ElementsThatChange) {
  constexpr std::int64_t kCount = 2'000'000;
  std::int64_t taken = 0;
  const FoldLimits limits = LimitsOf(std::int64_t{1} << 30, &taken);
  const OpCall call = Shares(kShares, DType::kF64);
  const ReduceSpec spec{.dtype = DType::kF64};
  for (const double scale : {1e-3, 1.0, 1e3}) {
    const std::unique_ptr<DistributionFold> fold = MakeDistributionFold(call, spec, limits);
    ASSERT_TRUE(fold->Begin(kCount).ok());
    std::vector<double> x(kCount, 1.0), weights(kCount, 1.0);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += 1e-9 * static_cast<double>(i % 1'000'003);
    WeightedArrays arrays = Weighted(x, weights);
    absl::StatusOr<bool> again = true;
    while (again.ok() && *again) {
      ASSERT_TRUE(arrays.Add(0, kCount, fold.get()).ok());
      again = fold->NextPass();
      for (double& weight : weights) weight *= scale;
      for (double& element : x) element = scale == 1 ? 1.0 : element;
      arrays = Weighted(x, weights);
    }
    ASSERT_TRUE(again.ok());
    std::vector<double> answers(kShares.size());
    EXPECT_TRUE(
        fold->Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(answers.data())).ok());
    for (const double answer : answers) EXPECT_TRUE(answer >= 1 && answer < 2.1) << answer;
  }
}

TEST(WeightedQuantiles, StopAtTheDeadline) {
  const FoldLimits limits{.take = [](std::int64_t) { return absl::OkStatus(); },
                          .give = [](std::int64_t) {},
                          .why_stop = [] { return absl::DeadlineExceededError("late"); }};
  constexpr std::int64_t kCount = 100'000;  // are collected and sorted
  const WeightedArrays arrays{DType::kF64, DType::kF64, test::MakeData(test::DataKind::kEqual, DType::kF64, kCount, 1),
                              Bytes(8 * kCount, std::byte{1})};
  const std::unique_ptr<DistributionFold> fold =
      MakeDistributionFold(Shares({0.5}, DType::kF64), {.dtype = DType::kF64}, limits);
  ASSERT_TRUE(fold->Begin(kCount).ok());
  ASSERT_TRUE(arrays.Add(0, kCount, fold.get()).ok());
  ASSERT_EQ(fold->NextPass().value(), true);
  ASSERT_TRUE(arrays.Add(0, kCount, fold.get()).ok());
  ASSERT_EQ(fold->NextPass().value(), false);
  double answer = 0;
  const absl::Status status =
      fold->Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(&answer));
  EXPECT_THAT(std::string(status.message()), HasSubstr("late"));
}

}  // namespace
}  // namespace reduced
