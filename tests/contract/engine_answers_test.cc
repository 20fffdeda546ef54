// What engines answer: every op and dtype against the reference.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"

namespace reduced::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr NanPolicy kNanPolicies[] = {NanPolicy::kPropagate, NanPolicy::kOmit};

// The edges of vectors, warps, blocks and tiles, and what stands beside them.
constexpr std::int64_t kSmallSizes[] = {0,  1,  2,  3,   4,   5,   7,   8,   9,   15,  16,  17,  31,   32,   33,  47,
                                        63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025};
constexpr std::int64_t kMiddleSizes[] = {2047, 2048, 2049, 4095, 4097, 8191, 16385, 65537};
const std::int64_t kLargeSize = kSlowBuild ? 150'001 : 1'000'007;

class EngineAnswers : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  Answer Reduce(const ReduceSpec& spec, const void* data) {
    absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = {data, MemorySpace::kHost}});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? *std::move(result) : Answer{};
  }

  // All ops at once under one NaN policy.
  void Check(const Facts& facts, const void* data, NanPolicy policy) {
    ReduceSpec spec = Spec(dtype(), facts.count);
    spec.nan_policy = policy;
    CheckAnswers(facts, spec, Reduce(spec, data).state);
  }

  void CheckKind(const DataKindRow& row, std::int64_t count) {
    const auto seed = static_cast<std::uint64_t>(count) / 2 + (count % 3 == 0 ? 1 : 0);
    const Bytes array = MakeData(row.kind, dtype(), count, seed);
    const Facts facts = Study(dtype(), array.data(), count);
    for (const NanPolicy policy : kNanPolicies) {
      // Without NaNs the policies differ in the code that runs, not in the answer: one each is enough for integers.
      if (!RowOf(dtype()).is_float && (policy == NanPolicy::kOmit) != (count % 2 == 0)) continue;
      SCOPED_TRACE(std::string(row.name) + (policy == NanPolicy::kOmit ? ", NaNs omitted" : ""));
      Check(facts, array.data(), policy);
    }
  }

  // The answers to each of spec's ops, integers modulo 2^64.
  std::vector<Value> Answers(ReduceSpec spec, const void* data) {
    spec.overflow_policy = OverflowPolicy::kWrap;
    const absl::StatusOr<std::vector<Value>> values = Finalize(spec, Reduce(spec, data).state);
    EXPECT_TRUE(values.ok()) << values.status().ToString();
    return values.ok() ? *values : std::vector<Value>(spec.ops.size());
  }
};

TEST_P(EngineAnswers, SmallSizes) {
  for (const std::int64_t count : kSmallSizes) {
    for (const DataKindRow& row : kDataKinds) {
      if (Applies(row, dtype())) CheckKind(row, count);
      if (HasFailure()) return;
    }
  }
}

TEST_P(EngineAnswers, MiddleSizes) {
  int turn = 0;
  for (const std::int64_t count : kMiddleSizes) {
    for (const DataKindRow& row : kDataKinds) {
      // Every kind with half of the sizes.
      if (Applies(row, dtype()) && (++turn % 2 == 0)) CheckKind(row, count);
      if (HasFailure()) return;
    }
    ++turn;
  }
}

TEST_P(EngineAnswers, LargeSize) {
  for (const DataKind kind : {DataKind::kUniform, DataKind::kFull, DataKind::kFarFromZero, DataKind::kSomeNan}) {
    const DataKindRow& row = kDataKinds[static_cast<int>(kind)];
    ASSERT_EQ(row.kind, kind);
    if (Applies(row, dtype())) CheckKind(row, kLargeSize);
    if (HasFailure()) return;
  }
}

TEST_P(EngineAnswers, AnyByteAddress) {
  for (const std::int64_t count : {1, 2, 17, 64, 1025, 20'011}) {
    for (const DataKind kind : {DataKind::kFull, DataKind::kUniform, DataKind::kSomeNan}) {
      if (!Applies(kDataKinds[static_cast<int>(kind)], dtype())) continue;
      const Bytes array = MakeData(kind, dtype(), count, 7);
      const Facts facts = Study(dtype(), array.data(), count);
      for (std::size_t misalignment = 0; misalignment < 18; ++misalignment) {
        SCOPED_TRACE(misalignment);
        const ExactArray copy(array, misalignment == 17 ? 63 : misalignment);
        Check(facts, copy.data(), misalignment % 2 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit);
        if (HasFailure()) return;
      }
    }
  }
}

// A read outside the array, or a write into it, ends the process: the pages around it have no access.
TEST_P(EngineAnswers, TouchesNothingBeyondTheArray) {
  const std::int64_t page = 4096 / RowOf(dtype()).bytes;
  std::vector<std::int64_t> counts = {0, page - 1, page, page + 1, 2 * page, 10 * page + 3};
  for (std::int64_t count = 1; count < 70; ++count) counts.push_back(count);
  for (const std::int64_t count : counts) {
    const Bytes array = MakeData(DataKind::kSmall, dtype(), count, 3);
    const Facts facts = Study(dtype(), array.data(), count);
    for (const auto against : {GuardedArray::Against::kPageBefore, GuardedArray::Against::kPageAfter}) {
      for (const std::size_t gap : {0, 1, 3, 15}) {
        const GuardedArray guarded(array, against, gap);
        Check(facts, guarded.data(), NanPolicy::kPropagate);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EngineAnswers, NothingIsNeededOfAnEmptyArray) {
  const Facts facts = Study(dtype(), nullptr, 0);
  for (const NanPolicy policy : kNanPolicies) Check(facts, nullptr, policy);
}

// A kernel that gets one op's sum from another's must not make a NaN of an infinity.
TEST_P(EngineAnswers, InfinitiesBesideOtherOps) {
  if (!RowOf(dtype()).is_float) return;
  for (const std::int64_t count : {std::int64_t{2}, std::int64_t{70'001}}) {
    for (const double first : {-0.5, 0.0, 0.5, -kInfinity}) {
      for (const std::int64_t where : {std::int64_t{1}, count / 2, count - 1}) {
        Bytes array(static_cast<std::size_t>(count * RowOf(dtype()).bytes));
        for (std::int64_t i = 0; i < count; ++i) SetElement(dtype(), i, first, &array);
        SetElement(dtype(), where, kInfinity, &array);
        ReduceSpec spec = Spec(dtype(), count);
        for (const std::vector<OpCall>& ops :
             {std::vector<OpCall>{Op::kL2, Op::kMin}, std::vector<OpCall>{Op::kSumSquares, Op::kMax},
              std::vector<OpCall>{Op::kSum, Op::kSumSquares, Op::kNanCount}}) {
          spec.ops = ops;
          CheckAnswers(Study(dtype(), array.data(), count), spec, Reduce(spec, array.data()).state);
        }
        if (HasFailure()) FAIL() << count << " elements of " << first << ", infinity at " << where;
      }
    }
  }
}

// The same answer, but for the rounding of floats that are added, or multiplied, in another order: the kernel for one
// set of ops needn't go through the array as that for another does.
// `l1`: of the array.
bool SameButForRounding(const ReduceSpec& spec, Op op, const Value& a, const Value& b, const Value& l1) {
  if (SameBits(a, b)) return true;
  const DTypeRow& dtype = RowOf(spec.dtype);
  const bool rounds =
      ResultDType(op, spec.dtype) == DType::kF64 && RowOf(op).accumulator != Accumulator::kExtrema && dtype.is_float;
  if (!rounds) return false;
  const double size = std::abs(std::get<double>(a.value));
  const double cancelled = op == Op::kSum || op == Op::kMean ? std::get<double>(l1.value) : 0;
  const double bound = 0x1p-52 * static_cast<double>(spec.count) * size + 0x1p-48 * cancelled;
  return std::abs(std::get<double>(a.value) - std::get<double>(b.value)) <= bound;
}

TEST_P(EngineAnswers, FusedOpsAnswerAsEachAlone) {
  for (const std::int64_t count : {1, 1000, kSlowBuild ? 20'011 : 200'003}) {
    for (const DataKind kind : {DataKind::kUniform, DataKind::kSomeNan}) {
      if (!Applies(kDataKinds[static_cast<int>(kind)], dtype())) continue;
      const Bytes array = MakeData(kind, dtype(), count, 11);
      // At least one element isn't a NaN, so that no op fails.
      for (const NanPolicy policy : kNanPolicies) {
        if (policy == NanPolicy::kOmit && (count == 1 || kind == DataKind::kUniform)) continue;
        ReduceSpec spec = Spec(dtype(), count);
        spec.nan_policy = policy;
        const std::vector<Value> fused = Answers(spec, array.data());
        const Value l1 = fused[std::ranges::find(spec.ops, Op::kL1, &OpCall::op) - spec.ops.begin()];
        std::mt19937_64 random(static_cast<std::uint64_t>(count));
        for (std::size_t i = 0; i < spec.ops.size(); ++i) {
          ReduceSpec some = spec;
          some.ops = {spec.ops[i]};
          const Value alone = Answers(some, array.data())[0];
          EXPECT_TRUE(SameButForRounding(spec, spec.ops[i], alone, fused[i], l1))
              << Describe(spec, RowOf(spec.ops[i]).name) << ": alone " << ToString(alone) << ", fused "
              << ToString(fused[i]);
          const std::size_t other = random() % spec.ops.size();
          some.ops = {spec.ops[other], spec.ops[i]};
          const Value pair = Answers(some, array.data())[1];
          EXPECT_TRUE(SameButForRounding(spec, spec.ops[i], pair, fused[i], l1))
              << Describe(spec, RowOf(spec.ops[i]).name) << ": after " << std::string(RowOf(spec.ops[other]).name)
              << " " << ToString(pair) << ", with all " << ToString(fused[i]);
        }
      }
    }
  }
}

TEST_P(EngineAnswers, EveryRunGivesTheSameBits) {
  const std::int64_t count = kLargeSize / 3;
  const Bytes array = MakeData(DataKind::kUniform, dtype(), count, 5);
  const ReduceSpec spec = Spec(dtype(), count);
  const std::vector<Value> first = Answers(spec, array.data());
  const auto run = [&] {
    for (int i = 0; i < 3; ++i) {
      const std::vector<Value> again = Answers(spec, array.data());
      for (std::size_t op = 0; op < first.size(); ++op) {
        EXPECT_TRUE(SameBits(again[op], first[op]))
            << RowOf(spec.ops[op]).name << ": " << ToString(first[op]) << ", then " << ToString(again[op]);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

// Every position of a short array, and those of a long one where vectors, tiles and chunks meet.
TEST_P(EngineAnswers, FindsExtremaWhereverTheyStand) {
  const DTypeRow& row = RowOf(dtype());
  const std::int64_t chunk = Options().chunk_bytes / row.bytes;
  const bool negative = row.is_signed && dtype() != DType::kF8E8M0;
  const double base = dtype() == DType::kBool ? 0 : negative ? -7 : 7;
  for (const std::int64_t count : {std::int64_t{300}, 5 * chunk + 17}) {
    std::vector<std::int64_t> positions;
    for (std::int64_t p = 0; p < count; ++p) {
      const std::int64_t to_edge = std::min(p % 1024, 1024 - p % 1024);
      if (count == 300 || to_edge < 2 || p >= count - 20) positions.push_back(p);
    }
    if (kSlowBuild && positions.size() > 100) positions.resize(100);
    Bytes array = MakeData(DataKind::kEqual, dtype(), count, 0);
    for (std::int64_t i = 0; i < count; ++i) SetElement(dtype(), i, base, &array);
    ReduceSpec spec = Spec(dtype(), count);
    spec.ops = {Op::kArgmin, Op::kArgmax, Op::kMax};
    const auto index = [](const Value& value) {
      return static_cast<std::int64_t>(std::get<std::uint64_t>(value.value));
    };
    for (const std::int64_t p : positions) {
      const std::int64_t later = p + (count - 1 - p) / 2;  // a tie: the first wins
      SetElement(dtype(), p, 100, &array);
      SetElement(dtype(), later, 100, &array);
      std::vector<Value> values = Answers(spec, array.data());
      EXPECT_EQ(index(values[1]), p) << "argmax of " << count;
      EXPECT_EQ(index(values[0]), p == 0 ? (later == 1 || count == 1 ? 2 : 1) : 0) << "argmin, " << p;
      if (row.is_float) {
        SetElement(dtype(), later, std::numeric_limits<double>::quiet_NaN(), &array);
        values = Answers(spec, array.data());
        EXPECT_EQ(index(values[0]), later) << "argmin with a NaN";
        EXPECT_EQ(index(values[1]), later) << "argmax with a NaN";
        EXPECT_TRUE(std::isnan(std::get<double>(values[2].value)));
        spec.nan_policy = NanPolicy::kOmit;
        if (later != p) {
          EXPECT_EQ(index(Answers(spec, array.data())[1]), p) << "argmax, NaN omitted";
        }
        spec.nan_policy = NanPolicy::kPropagate;
      }
      if (dtype() != DType::kBool) {
        SetElement(dtype(), p, negative ? -100 : 1, &array);
        SetElement(dtype(), later, negative ? -100 : 1, &array);
        EXPECT_EQ(index(Answers(spec, array.data())[0]), p) << "argmin of " << count;
      }
      SetElement(dtype(), p, base, &array);
      SetElement(dtype(), later, base, &array);
      if (HasFailure()) return;
    }
  }
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineAnswers);

class EngineChunks : public EngineTest<EngineKind> {};

// However the array is cut into chunks.
TEST_P(EngineChunks, DoNotShowInTheAnswers) {
  for (const std::int64_t chunk_bytes : {4 << 10, 64 << 10, 1 << 20}) {
    EngineOptions options = Options();
    options.chunk_bytes = chunk_bytes;
    const Started own = StartOwn(options);
    ASSERT_NE(own.engine, nullptr);
    for (const DTypeRow& row : kDTypes) {
      SCOPED_TRACE(chunk_bytes);
      const std::int64_t per_chunk = chunk_bytes / row.bytes;
      for (const std::int64_t count : {per_chunk - 1, per_chunk, per_chunk + 1, 3 * per_chunk + 5}) {
        if (count > 200'000 || (kSlowBuild && count > 70'000)) continue;
        const Bytes array = MakeData(row.is_float ? DataKind::kSomeNan : DataKind::kFull, row.dtype, count, 2);
        const Facts facts = Study(row.dtype, array.data(), count);
        const ExactArray copy(array, static_cast<std::size_t>(count % 16));
        ReduceSpec spec = Spec(row.dtype, count);
        spec.nan_policy = NanPolicy::kOmit;
        absl::StatusOr<Answer> result =
            ReduceAndWait(*own.engine, {.spec = spec, .array = {copy.data(), MemorySpace::kHost}});
        ASSERT_TRUE(result.ok()) << result.status().ToString();
        CheckAnswers(facts, spec, result->state);
        if (HasFailure()) return;
      }
    }
  }
}

// Nor does how many threads and lanes there are.
TEST_P(EngineChunks, ThreadsAndLanesDoNotShowInTheBits) {
  const std::int64_t count = kLargeSize / 2;
  const Bytes array = MakeData(DataKind::kUniform, DType::kF32, count, 6);
  const ReduceSpec spec = Spec(DType::kF32, count);
  std::vector<Value> first;
  for (const int threads : {1, 2, 0}) {  // 0: one for each core
    EngineOptions options = Options();
    options.cpu_threads = threads;
    options.cpu_lanes = options.cuda_lanes = threads + 1;
    const Started own = StartOwn(options);
    ASSERT_NE(own.engine, nullptr);
    const absl::StatusOr<Answer> result =
        ReduceAndWait(*own.engine, {.spec = spec, .array = {array.data(), MemorySpace::kHost}});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result->state);
    ASSERT_TRUE(values.ok()) << values.status().ToString();
    if (first.empty()) first = *values;
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(SameBits(values->at(i), first[i])) << RowOf(spec.ops[i]).name << ": " << ToString(first[i])
                                                     << ", with " << threads << " threads " << ToString(values->at(i));
    }
  }
}

REDUCED_INSTANTIATE_BY_KIND(EngineChunks);

}  // namespace
}  // namespace reduced::test
