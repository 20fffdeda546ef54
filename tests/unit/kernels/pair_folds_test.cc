// Folds of ops about pairs of elements, and of skew and kurtosis: against Python's rational numbers (pair_vectors.py);
// and cut, merged and saved in any way, by any vectors: the bits of the whole.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "kernels/algebra/entries.h"
#include "kernels/cpu/tiles.h"
#include "kernels/exact/natural.h"
#include "kernels/exact/scaled.h"
#include "kernels/folds/compare.h"
#include "kernels/folds/fold.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced {
namespace {

using test::Bytes;
using test::OnlyTarget;

const FoldLimits& Boundless() {
  static const FoldLimits& limits = *new FoldLimits{.take = [](std::int64_t) { return absl::OkStatus(); },
                                                    .give = [](std::int64_t) {},
                                                    .why_stop = [] { return absl::OkStatus(); }};
  return limits;
}

// Elements, and those of the other operand.
struct PairArrays {
  DType dtype, other;
  Bytes x, y;

  std::int64_t count() const { return std::ssize(x) / RowOf(dtype).bytes; }
  // Adds elements [first, end), or pairs.
  void Add(Op op, std::int64_t first, std::int64_t end, DistributionFold* fold) const {
    const void* const others = OtherOf(op) == OtherOperand::kNone ? nullptr : y.data() + first * RowOf(other).bytes;
    EXPECT_EQ(fold->Add(x.data() + first * RowOf(dtype).bytes, others, first, end - first), absl::OkStatus());
  }
};

// The answer, or the words of the error.
std::string FinishedPairs(const OpCall& call, const ReduceSpec& spec, DistributionFold* fold) {
  std::string answer(static_cast<std::size_t>(AnswerElements(call) * RowOf(ResultDType(call, spec.dtype)).bytes), '\0');
  const absl::Status status =
      fold->Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(answer.data()));
  return status.ok() ? answer : std::string(status.message());
}

Entries SavedPairs(const OpCall& call, const ReduceSpec& spec, DistributionFold* fold) {
  Entries entries = NoEntries(call, spec.dtype);
  EXPECT_EQ(fold->Save([](std::int64_t rank) { return rank; }, &entries), absl::OkStatus());
  EXPECT_LE(std::ssize(entries.keys), *MostEntries(call, spec.dtype));
  return entries;
}

std::string WholeAnswer(const OpCall& call, const ReduceSpec& spec, const PairArrays& arrays, Entries* state) {
  const auto fold = MakeDistributionFold(call, spec, Boundless());
  EXPECT_EQ(fold->Begin(arrays.count()), absl::OkStatus());
  arrays.Add(call.op, 0, arrays.count(), fold.get());
  *state = SavedPairs(call, spec, fold.get());
  return FinishedPairs(call, spec, fold.get());
}

// Cuts the pairs anywhere, and merges the parts two by two, in any order; half of them as states.
std::string CutAnswer(const OpCall& call, const ReduceSpec& spec, const PairArrays& arrays, std::mt19937_64& random,
                      Entries* state) {
  const auto any = [&random](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  const auto fold = MakeDistributionFold(call, spec, Boundless());
  EXPECT_EQ(fold->Begin(arrays.count()), absl::OkStatus());
  std::vector<std::unique_ptr<DistributionFold>> parts;
  std::vector<Entries> states;
  for (std::int64_t first = 0; first < arrays.count();) {
    const std::int64_t end = first + std::min(arrays.count() - first, 1 + any(any(2) == 0 ? 10 : 2'000));
    auto part = fold->Part().value();
    arrays.Add(call.op, first, end, part.get());
    if (any(2) == 0) {
      states.push_back(SavedPairs(call, spec, part.get()));
    } else {
      parts.push_back(std::move(part));
    }
    first = end;
  }
  std::shuffle(parts.begin(), parts.end(), random);
  for (; parts.size() > 1; parts.pop_back()) {
    const auto into = static_cast<std::size_t>(any(std::ssize(parts) - 1));
    EXPECT_EQ(parts[into]->Merge(*parts.back()), absl::OkStatus());
  }
  if (!parts.empty()) states.push_back(SavedPairs(call, spec, parts.front().get()));
  std::shuffle(states.begin(), states.end(), random);
  *state = NoEntries(call, spec.dtype);
  for (const Entries& each : states) Merge(each, state);
  EXPECT_EQ(fold->Load(*state), absl::OkStatus());
  return FinishedPairs(call, spec, fold.get());
}

struct PairVector {
  std::string dtype, other;
  std::vector<std::uint64_t> x, y;                  // bits
  std::vector<std::vector<std::uint64_t>> answers;  // of kVectorOps by two variants, or of compare by kVectorRules
};

// OPS and RULES of pair_vectors.py.
constexpr Op kVectorOps[] = {Op::kDot,        Op::kWeightedSum, Op::kWeightedMean, Op::kWeightedVar, Op::kWeightedStd,
                             Op::kCov,        Op::kCorr,        Op::kSlope,        Op::kIntercept,   Op::kDistanceL1,
                             Op::kDistanceL2, Op::kDistanceMax, Op::kCosine,       Op::kSkew,        Op::kKurtosis};
struct VectorRules {
  NanPolicy nan_policy;
  double rtol, atol;
  bool equal_nan;
};
constexpr VectorRules kVectorRules[] = {
    {NanPolicy::kPropagate, 0, 0, false}, {NanPolicy::kPropagate, 1e-5, 1e-8, true}, {NanPolicy::kOmit, 0.5, 0, false}};

const std::vector<PairVector>& PairVectors() {
  static const auto& vectors = *new std::vector<PairVector>{
#include "tests/unit/kernels/pair_vectors.inc"
  };
  return vectors;
}

Bytes BytesOfBits(DType dtype, const std::vector<std::uint64_t>& bits) {
  const auto width = static_cast<std::size_t>(RowOf(dtype).bytes);
  Bytes bytes(bits.size() * width);
  for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(bytes.data() + i * width, &bits[i], width);
  return bytes;
}

// Of f64, all NaNs are the same.
std::string AnswerText(const std::string& answer) {
  if (answer.size() % sizeof(double) != 0) return answer;
  std::string text;
  for (std::size_t i = 0; i < answer.size(); i += sizeof(double)) {
    double figure;
    std::memcpy(&figure, &answer[i], sizeof(double));
    absl::StrAppend(&text, std::isnan(figure) ? "nan" : absl::StrCat(absl::Hex(std::bit_cast<std::uint64_t>(figure))),
                    " ");
  }
  return text;
}

// By every vector target; and cut, whose state has the same bits.
void ExpectAnswer(const OpCall& call, const ReduceSpec& spec, const PairArrays& arrays, const std::string& expected,
                  std::mt19937_64& random, const std::string& what) {
  Entries whole, cut;
  EXPECT_EQ(AnswerText(CutAnswer(call, spec, arrays, random, &cut)), AnswerText(expected)) << what << ", cut";
  for (const std::int64_t target : VectorTargets()) {
    const OnlyTarget only(target);
    EXPECT_EQ(AnswerText(WholeAnswer(call, spec, arrays, &whole)), AnswerText(expected)) << what;
    EXPECT_TRUE(whole.keys == cut.keys && whole.values == cut.values) << what;
  }
}

TEST(PairFolds, AnswersAreRationalNumbersRoundedOnce) {
  std::mt19937_64 random(1);
  for (const PairVector& vector : PairVectors()) {
    const DType dtype = *DTypeFromName(vector.dtype), other = *DTypeFromName(vector.other);
    const PairArrays arrays{dtype, other, BytesOfBits(dtype, vector.x), BytesOfBits(other, vector.y)};
    ReduceSpec spec{.dtype = dtype, .overflow_policy = OverflowPolicy::kWrap};
    const auto expect = [&](const OpCall& call, const std::uint64_t* answer) {
      spec.ops = {call};
      const auto size = static_cast<std::size_t>(AnswerElements(call)) * sizeof(*answer);
      const std::string text(reinterpret_cast<const char*>(answer), size);
      ExpectAnswer(
          call, spec, arrays, text, random,
          absl::StrFormat("%s of %d %s and %s", RowOf(call.op).name, vector.x.size(), vector.dtype, vector.other));
    };
    if (vector.answers.size() == std::size(kVectorRules)) {
      for (std::size_t i = 0; i < vector.answers.size(); ++i) {
        const auto& [nan_policy, rtol, atol, equal_nan] = kVectorRules[i];
        spec.nan_policy = nan_policy;
        expect({Op::kCompare, {.rtol = rtol, .atol = atol, .equal_nan = equal_nan, .other = other}},
               vector.answers[i].data());
      }
      continue;
    }
    for (const bool second : {false, true}) {
      spec.nan_policy = second ? NanPolicy::kOmit : NanPolicy::kPropagate;
      spec.ddof = second ? 1 : 0;
      for (std::size_t i = 0; i < std::size(kVectorOps); ++i) {
        expect(OpCall(kVectorOps[i]).With(other), &vector.answers[second ? 1 : 0][i]);
      }
    }
  }
}

std::vector<Op> PairOps() {
  std::vector<Op> ops = {Op::kSkew, Op::kKurtosis};
  for (const OpRow& row : kOps) {
    if (row.other != OtherOperand::kNone && !IsWeightedQuantile(row.op)) ops.push_back(row.op);
  }
  return ops;
}

TEST(PairFolds, NeitherCutsNorVectorsMatter) {
  static const std::int64_t kCount = test::kSlowBuild ? 1'203 : 3'003;
  std::mt19937_64 random(2);
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, dtype.dtype)) continue;
      // Of the same dtype, and of any other one that goes with it.
      DType other = dtype.dtype;
      while (random() % 2 == 0 || RowOf(other).is_float != dtype.is_float) {
        other = kDTypes[random() % std::size(kDTypes)].dtype;
      }
      const auto kind = random() % 2 == 0 || !RowOf(other).is_float ? test::DataKind::kUniform : data.kind;
      const PairArrays arrays{dtype.dtype, other, test::MakeData(data.kind, dtype.dtype, kCount, 3),
                              test::MakeData(kind, other, kCount, 4)};
      for (const Op op : PairOps()) {
        const OpCall call(op, {.rtol = 0.1, .atol = 0.01, .equal_nan = random() % 2 == 0, .other = other});
        const ReduceSpec spec{.dtype = dtype.dtype,
                              .ops = {call},
                              .nan_policy = random() % 2 == 0 ? NanPolicy::kOmit : NanPolicy::kPropagate,
                              .overflow_policy = OverflowPolicy::kSaturate,
                              .ddof = 1};
        const std::string what =
            absl::StrFormat("%s of %s and %s, %s", RowOf(op).name, dtype.name, RowOf(other).name, data.name);
        Entries whole;
        ExpectAnswer(call, spec, arrays, WholeAnswer(call, spec, arrays, &whole), random, what);
      }
    }
  }
}

// A column of rows of elements.
Bytes ColumnOf(const Bytes& rows, std::size_t columns, std::size_t column, std::size_t width) {
  Bytes elements(rows.size() / columns);
  for (std::size_t row = 0; row < elements.size() / width; ++row) {
    std::memcpy(&elements[row * width], &rows[(row * columns + column) * width], width);
  }
  return elements;
}

// A matrix has the answers of pairs of columns, also if rows were cut anywhere, and those of merged states of whole
// rows.
TEST(PairFolds, MatricesAreOfPairsOfColumns) {
  std::mt19937_64 random(4);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI8, DType::kI64}) {
    for (const std::int64_t columns : {1, 2, 5, 64}) {
      for (const test::DataKindRow& data : test::kDataKinds) {
        if (!test::Applies(data, dtype)) continue;
        const std::int64_t rows = columns == 64 ? 37 : 1'203, count = rows * columns, width = RowOf(dtype).bytes;
        const PairArrays arrays{dtype, dtype, test::MakeData(data.kind, dtype, count, 5), {}};
        const Op op = random() % 2 == 0 ? Op::kCovMatrix : Op::kCorrMatrix;
        const OpCall call(op, {.columns = columns});
        const ReduceSpec spec{.dtype = dtype,
                              .ops = {call},
                              .nan_policy = random() % 2 == 0 ? NanPolicy::kOmit : NanPolicy::kPropagate,
                              .ddof = 1};
        const std::string what =
            absl::StrFormat("%s of %d columns of %s, %s", RowOf(op).name, columns, RowOf(dtype).name, data.name);
        Entries whole;
        const std::string answer = WholeAnswer(call, spec, arrays, &whole);
        ASSERT_EQ(answer.size(), static_cast<std::size_t>(8 * columns * columns)) << what << ": " << answer;
        for (int tries = 0; tries < 4; ++tries) {
          const std::size_t i = random() % static_cast<std::size_t>(columns);
          const std::size_t j = random() % static_cast<std::size_t>(columns);
          const auto column = [&](std::size_t at) {
            return ColumnOf(arrays.x, static_cast<std::size_t>(columns), at, static_cast<std::size_t>(width));
          };
          Entries state;
          const OpCall pair = OpCall(op == Op::kCovMatrix ? Op::kCov : Op::kCorr).With(dtype);
          EXPECT_EQ(WholeAnswer(pair, spec, {dtype, dtype, column(i), column(j)}, &state),
                    answer.substr(8 * (i * static_cast<std::size_t>(columns) + j), 8))
              << what << ", " << i << " and " << j;
        }

        const auto fold = MakeDistributionFold(call, spec, Boundless());
        ASSERT_EQ(fold->Begin(count), absl::OkStatus());
        std::vector<std::unique_ptr<DistributionFold>> parts;
        for (int i = 0; i < 3; ++i) parts.push_back(fold->Part().value());
        for (std::int64_t first = 0; first < count;) {  // each part gets any of the cuts
          const std::int64_t end = std::min<std::int64_t>(count, first + 1 + static_cast<std::int64_t>(random() % 500));
          arrays.Add(op, first, end, parts[random() % parts.size()].get());
          first = end;
        }
        for (const auto& part : parts) EXPECT_EQ(fold->Merge(*part), absl::OkStatus());
        EXPECT_EQ(FinishedPairs(call, spec, fold.get()), answer) << what;

        Entries merged = NoEntries(call, dtype);
        for (const auto& [first, end] :
             {std::pair(rows / 3, rows), {rows / 3, rows / 3}, {std::int64_t{0}, rows / 3}}) {
          ASSERT_EQ(fold->Begin((end - first) * columns), absl::OkStatus());
          arrays.Add(op, first * columns, end * columns, fold.get());
          Merge(SavedPairs(call, spec, fold.get()), &merged);
        }
        EXPECT_EQ(merged.keys, whole.keys) << what;
        EXPECT_EQ(merged.values, whole.values) << what;
        ASSERT_EQ(fold->Load(merged), absl::OkStatus());
        EXPECT_EQ(FinishedPairs(call, spec, fold.get()), answer) << what;
      }
    }
  }
}

TEST(PairFolds, MatricesHaveWholeRows) {
  const OpCall call(Op::kCovMatrix, {.columns = 3});
  const ReduceSpec spec{.dtype = DType::kI8, .ops = {call}};
  const auto fold = MakeDistributionFold(call, spec, Boundless());
  ASSERT_EQ(fold->Begin(7), absl::OkStatus());
  const PairArrays arrays{DType::kI8, DType::kI8, Bytes(7), {}};
  arrays.Add(call.op, 0, 7, fold.get());
  EXPECT_EQ(FinishedPairs(call, spec, fold.get()), "op cov_matrix: got 7 elements; allowed: whole rows of 3");
}

// More pairs than 2^31, by merging a state with itself.
TEST(PairFolds, CountsOfBillions) {
  const OpCall call(Op::kWeightedMean, {.other = DType::kF32});
  const ReduceSpec spec{.dtype = DType::kF64, .ops = {call}};
  const std::uint64_t tenth = std::bit_cast<std::uint64_t>(0.1);
  const PairArrays arrays{
      DType::kF64, DType::kF32, BytesOfBits(DType::kF64, {tenth, tenth}),
      BytesOfBits(DType::kF32, {std::bit_cast<std::uint32_t>(3.0F), std::bit_cast<std::uint32_t>(1.0F)})};
  Entries state;
  (void)WholeAnswer(call, spec, arrays, &state);
  for (int i = 0; i < 47; ++i) {
    const Entries same = state;
    Merge(same, &state);
  }
  const auto fold = MakeDistributionFold(call, spec, Boundless());
  ASSERT_EQ(fold->Load(state), absl::OkStatus());
  EXPECT_EQ(state.values.front(), std::uint64_t{1} << 48);
  double answer = 0;
  const std::string bytes = FinishedPairs(call, spec, fold.get());
  std::memcpy(&answer, bytes.data(), sizeof(answer));
  EXPECT_EQ(answer, 0.1);
}

TEST(PairFolds, SumsOfIntegersFollowTheOverflowPolicy) {
  const OpCall call(Op::kDot, {.other = DType::kU64});
  const PairArrays arrays{DType::kU64, DType::kU64, BytesOfBits(DType::kU64, {~std::uint64_t{0}, 2}),
                          BytesOfBits(DType::kU64, {~std::uint64_t{0}, 3})};
  const auto answer = [&](OverflowPolicy policy) {
    Entries state;
    const std::string bytes =
        WholeAnswer(call, {.dtype = DType::kU64, .ops = {call}, .overflow_policy = policy}, arrays, &state);
    std::uint64_t number = 0;
    if (bytes.size() == sizeof(number)) std::memcpy(&number, bytes.data(), sizeof(number));
    return bytes.size() == sizeof(number) ? absl::StrCat(number) : bytes;
  };
  EXPECT_EQ(answer(OverflowPolicy::kWrap), "7");
  EXPECT_EQ(answer(OverflowPolicy::kSaturate), "18446744073709551615");
  EXPECT_EQ(answer(OverflowPolicy::kError),
            "integer overflow: the dot of this u64 array is 340282366920938463426481119284349108231, which u64 doesn't "
            "hold; overflow policies wrap and saturate give a result");
}

// Keys that no fold saves are refused, and no value does harm.
TEST(PairFolds, AnyEntriesAreHarmless) {
  std::mt19937_64 random(3);
  for (const Op op : PairOps()) {
    for (const DType dtype : {DType::kF64, DType::kF16, DType::kI64}) {
      const OpCall call(op, {.other = dtype});
      const ReduceSpec spec{.dtype = dtype, .ops = {call}, .overflow_policy = OverflowPolicy::kWrap};
      const auto fold = MakeDistributionFold(call, spec, Boundless());
      for (int i = 0; i < 200; ++i) {
        Entries entries = NoEntries(call, dtype);
        std::vector<std::uint64_t> keys;
        for (int k = 0; k < 20; ++k) {
          keys.push_back(random() % 4 == 0 ? RecordKey(random() % 5, random() % 4)
                                           : IntegerKey(random() % 11, random() % 140));
        }
        std::sort(keys.begin(), keys.end());
        keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
        for (const std::uint64_t key : keys) entries.Add(key, random() >> (random() % 64));
        if (fold->Load(entries).ok()) (void)FinishedPairs(call, spec, fold.get());
      }
      Entries beyond = NoEntries(call, dtype);
      beyond.Add(IntegerKey(9'999, 0), 1);
      if (op == Op::kDistanceMax) continue;
      EXPECT_EQ(fold->Load(beyond).code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(Scaled, QuotientsOfAnySizeAreRoundedOnce) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2'000; ++i) {
    // a = q b + r, with digits that division guesses wrong.
    const auto any = [&](std::size_t words) {
      std::vector<std::uint64_t> number(words + 1);
      for (std::size_t word = 0; word < words; ++word) {
        number[word] = random() % 3 == 0 ? ~std::uint64_t{0} : random() % 3 == 0 ? 0 : random();
      }
      return Natural::MagnitudeOf(number);
    };
    const Natural quotient = any(random() % 4), divisor = any(1 + random() % 4), rest = any(1);
    if (!rest.LessThan(divisor)) continue;
    bool more = false;
    const Natural found = quotient.Times(divisor).Plus(rest).Over(divisor, &more);
    EXPECT_TRUE(!found.LessThan(quotient) && !quotient.LessThan(found));
    EXPECT_EQ(more, !rest.zero());
  }
  const Scaled third{.negative = true, .magnitude = Natural(1), .exponent = -2000};
  const Scaled three{.negative = false, .magnitude = Natural(3), .exponent = -2000};
  EXPECT_EQ(RoundedQuotient(third, three), -1.0 / 3);
  EXPECT_EQ(RoundedRootOfQuotient(third, three), std::sqrt(Rounded({false, Natural(1), 0}) / 3));
  EXPECT_EQ((three + third).magnitude.Bits(0, 64), 2U);
  EXPECT_EQ((third - three).sign(), -1);
}

TEST(Compare, EachFigureHasAName) {
  std::vector<std::string_view> names;
  for (const ComparisonFigure& figure : kComparisonFiguresNames) names.push_back(figure.name);
  const std::vector<std::string_view> expected = {"mismatches", "first",         "first_x",        "first_y",
                                                  "max_abs",    "max_abs_index", "max_rel",        "max_rel_index",
                                                  "max_ulp",    "max_ulp_index", "different_bits", "rmse"};
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace reduced
