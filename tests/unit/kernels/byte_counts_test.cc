// Answers from how many elements have each value of 8 bits: of few elements those of the folds that add each of them,
// and of numbers of elements that no test has memory for, those that are known otherwise.
#include "kernels/folds/byte_counts.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cpu/folding.h"

namespace reduced {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;
constexpr DType kDTypesOf8Bits[] = {DType::kBool,   DType::kI8,     DType::kU8,
                                    DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0};

const FoldLimits kNoLimits{.take = [](std::int64_t) { return absl::OkStatus(); },
                           .give = [](std::int64_t) {},
                           .why_stop = [] { return absl::OkStatus(); }};

ReduceSpec SpecOf(DType dtype, const ByteCounts& counts, std::vector<OpCall> ops) {
  ReduceSpec spec{.dtype = dtype, .ops = std::move(ops), .precision = Precision::kExact};
  for (const unsigned long long count : counts.counts) spec.count += static_cast<std::int64_t>(count);
  return spec;
}

double F64Answer(DType dtype, const ByteCounts& counts, const OpCall& call) {
  const ReduceSpec spec = SpecOf(dtype, counts, {call});
  if (HasAccumulator(call)) return std::get<double>(Finalize(spec, call.op, StateOfCounts(spec, counts))->value);
  double answer = 0;
  EXPECT_EQ(AnswerFromCounts(call, spec, counts.counts, kNoLimits, reinterpret_cast<std::byte*>(&answer)),
            absl::OkStatus());
  return answer;
}

// Equal, or both NaN.
bool AreSame(const Value& a, const Value& b) {
  const auto is_nan = [](const Value& value) {
    const double* const x = std::get_if<double>(&value.value);
    return x != nullptr && std::isnan(*x);
  };
  return a == b || (is_nan(a) && is_nan(b));
}

std::uint8_t BitsOf(double x) { return FromDouble<F8E4M3>(x).bits; }

std::vector<OpCall> DistributionCalls() {
  return {Op::kMedian,
          {Op::kQuantile, {.quantiles = {0, 0.3, 1}, .method = QuantileMethod::kHigher}},
          {Op::kHistogram, {.edges = {-100, -1, 0, 0.5, 1, 7, 120}}},
          {Op::kTopK, {.k = 9}},
          {Op::kBottomK, {.k = 9}},
          Op::kDistinct,
          Op::kDistinctExact,
          Op::kMode,
          Op::kSkew,
          Op::kKurtosis};
}

TEST(ByteCounts, AnswerAsFoldsOfEachElement) {
  std::mt19937_64 random(7);
  for (const DType dtype : kDTypesOf8Bits) {
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      for (const int values : {1, 3, 120, 256}) {
        std::vector<std::uint8_t> elements(9 + random() % 5000);
        for (std::uint8_t& each : elements) each = static_cast<std::uint8_t>(random() % static_cast<unsigned>(values));
        ByteCounts counts;
        for (const std::uint8_t each : elements) ++counts.counts[each];
        for (const OpCall& call : DistributionCalls()) {
          ReduceSpec spec = SpecOf(dtype, counts, {call});
          spec.nan_policy = policy;
          spec.empty_policy = EmptyPolicy::kFill;
          std::vector<std::byte> got(8 * static_cast<std::size_t>(AnswerElements(call))), expected(got);
          const auto fold = MakeDistributionFold(call, spec, kNoLimits);
          ASSERT_EQ(fold->Begin(std::ssize(elements)), absl::OkStatus());
          bool again = true;
          while (again) {
            ASSERT_EQ(fold->Add(elements.data(), nullptr, 0, std::ssize(elements)), absl::OkStatus());
            const absl::StatusOr<bool> next = fold->NextPass();
            ASSERT_EQ(next.status(), absl::OkStatus());
            again = *next;
          }
          const absl::Status wanted = fold->Finish([](std::int64_t rank) { return rank; }, expected.data());
          const absl::Status status = AnswerFromCounts(call, spec, counts.counts, kNoLimits, got.data());
          EXPECT_EQ(status, wanted) << RowOf(dtype).name << " " << RowOf(call.op).name;
          EXPECT_EQ(got, expected) << RowOf(dtype).name << " " << RowOf(call.op).name << " " << values;
        }
      }
    }
  }
}

TEST(ByteCounts, HaveTheStateOfEachElement) {
  std::mt19937_64 random(8);
  for (const DType dtype : kDTypesOf8Bits) {
    for (const Precision precision : {Precision::kExact, Precision::kF64}) {
      std::vector<std::uint8_t> elements(3000);
      for (std::uint8_t& each : elements) each = static_cast<std::uint8_t>(random());
      ByteCounts counts;
      for (const std::uint8_t each : elements) ++counts.counts[each];
      ReduceSpec spec = SpecOf(dtype, counts, {});
      spec.precision = precision;
      spec.nan_policy = NanPolicy::kOmit;
      spec.overflow_policy = OverflowPolicy::kWrap;
      for (const OpRow& row : kOps) {
        if (HasAccumulator(row.op) && Supports(row.op, dtype)) spec.ops.emplace_back(row.op);
      }
      const Plan plan(spec);
      State expected;
      Folded folded(spec, plan, &expected.partial);
      FoldElements(plan, elements.data(), 0, spec.count, &folded);
      if (folded.exact.has_value()) expected.exact = std::make_unique<ExactSums>(folded.exact->sums());
      expected.partial.count = spec.count;
      const State got = StateOfCounts(spec, counts);
      for (const OpCall& call : spec.ops) {
        if (HasPosition(call.op)) continue;
        // These are rounded as their order has it.
        if (precision == Precision::kF64 && IsExactOp(call.op, dtype)) continue;
        if (RowOf(dtype).is_float && call.op == Op::kProd) continue;
        EXPECT_TRUE(AreSame(*Finalize(spec, call.op, got), *Finalize(spec, call.op, expected)))
            << RowOf(dtype).name << " " << RowOf(call.op).name;
      }
      ASSERT_EQ(got.exact == nullptr, expected.exact == nullptr);
      if (got.exact != nullptr) {
        EXPECT_EQ(*got.exact, *expected.exact) << RowOf(dtype).name;
      }
    }
  }
}

TEST(ByteCounts, HavePlaces) {
  ByteCounts counts;
  counts.counts[BitsOf(1)] = counts.counts[BitsOf(2)] = counts.counts[0x7f] = 5;
  const ReduceSpec spec = SpecOf(DType::kF8E4M3, counts, {Op::kArgmin});
  EXPECT_EQ(StateOfCounts(spec, counts).partial.extrema.min_index, 0);
  counts.inverse_least = ~0ULL;
  counts.inverse_greatest = ~static_cast<unsigned long long>(kMany);
  counts.inverse_nan = ~7ULL;
  const ExtremaState extrema = StateOfCounts(spec, counts).partial.extrema;
  EXPECT_EQ(extrema.min_index, 0);
  EXPECT_EQ(extrema.max_index, kMany);
  EXPECT_EQ(extrema.nan_index, 7);
}

TEST(ByteCounts, SumsOfManyAreExact) {
  ByteCounts counts;
  counts.counts[BitsOf(448)] = kMany + 1;
  counts.counts[BitsOf(-448)] = kMany;
  counts.counts[BitsOf(0x1p-9)] = kMany - 1;
  const double many = static_cast<double>(kMany);
  EXPECT_EQ(F64Answer(DType::kF8E4M3, counts, Op::kSum), 448 + 0x1p-9 * (many - 1));
  EXPECT_EQ(F64Answer(DType::kF8E4M3, counts, Op::kSumSquares),
            static_cast<double>(448.0L * 448 * (2 * static_cast<long double>(kMany) + 1) + 0x1p-18L * (kMany - 1)));
  // Scales: 2^127 and 2^-127, of which no sum in doubles has both.
  ByteCounts scales;
  scales.counts[254] = scales.counts[0] = kMany;
  EXPECT_EQ(F64Answer(DType::kF8E8M0, scales, Op::kSum), 0x1p167);
  EXPECT_EQ(F64Answer(DType::kF8E8M0, scales, Op::kL2), 0x1p147);
  ByteCounts bytes;
  bytes.counts[255] = bytes.counts[0] = kMany;
  EXPECT_EQ(F64Answer(DType::kU8, bytes, Op::kVar), 127.5 * 127.5);
  EXPECT_EQ(F64Answer(DType::kU8, bytes, Op::kSkew), 0);
  EXPECT_EQ(F64Answer(DType::kU8, bytes, Op::kKurtosis), -2);
  EXPECT_EQ(F64Answer(DType::kU8, bytes, Op::kMedian), 127.5);
}

TEST(ByteCounts, ProductsAreRoundedOnce) {
  ByteCounts counts;
  counts.counts[BitsOf(-3)] = counts.counts[BitsOf(5)] = 20;
  counts.counts[BitsOf(-13)] = 5;
  UInt128 product = 1;
  for (int i = 0; i < 20; ++i) product *= 15;
  for (int i = 0; i < 5; ++i) product *= 13;
  EXPECT_EQ(F64Answer(DType::kF8E4M3, counts, Op::kProd), -static_cast<double>(product));
  // (7/8)^n (9/8)^n is near e^(-n/64): far from what rounding each of 2^20 factors would leave in the last bits.
  ByteCounts many;
  many.counts[BitsOf(0.875)] = many.counts[BitsOf(1.125)] = 1 << 15;
  EXPECT_EQ(F64Answer(DType::kF8E4M3, many, Op::kProd), static_cast<double>(powl(63.0L / 64, 1 << 15)));
  many.counts[BitsOf(0)] = 1;
  EXPECT_EQ(F64Answer(DType::kF8E4M3, many, Op::kProd), 0);
  ByteCounts endless;
  endless.counts[FromDouble<F8E5M2>(HUGE_VAL).bits] = 3;
  endless.counts[FromDouble<F8E5M2>(-1).bits] = kMany + 1;
  EXPECT_EQ(F64Answer(DType::kF8E5M2, endless, Op::kProd), -HUGE_VAL);
}

}  // namespace
}  // namespace reduced
