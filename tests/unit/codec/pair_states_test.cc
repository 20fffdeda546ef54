// States of ops about pairs of elements, and of skew and kurtosis, as messages: merged, the answers of the whole; and
// messages that are no states.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/compare.h"
#include "kernels/folds/fold.h"
#include "proto/codec/arrays_state.h"
#include "tests/support/data.h"

namespace reduced {
namespace {

using test::Bytes;
using ::testing::HasSubstr;

const FoldLimits& LimitsOfPairs() {
  static const FoldLimits& limits = *new FoldLimits{.take = [](std::int64_t) { return absl::OkStatus(); },
                                                    .give = [](std::int64_t) {},
                                                    .why_stop = [] { return absl::OkStatus(); }};
  return limits;
}

ReduceSpec SpecOfPairs(DType dtype, NanPolicy nan_policy) {
  ReduceSpec spec{.dtype = dtype, .nan_policy = nan_policy, .overflow_policy = OverflowPolicy::kSaturate};
  for (const OpRow& row : kOps) {
    if (row.other != OtherOperand::kNone && !IsWeightedQuantile(row.op)) spec.ops.push_back(OpCall(row.op).With(dtype));
    if (row.op == Op::kSkew || row.op == Op::kKurtosis) spec.ops.emplace_back(row.op);
    if (IsMatrix(row.op)) spec.ops.emplace_back(row.op, OpParameters{.columns = 1});
  }
  return spec;
}

std::unique_ptr<DistributionFold> FoldOfPairs(const ReduceSpec& spec, const OpCall& call, const Bytes& x,
                                              const Bytes& y, std::int64_t begin, std::int64_t end) {
  auto fold = MakeStateFold(call, spec, LimitsOfPairs());
  const std::int64_t at = begin * RowOf(spec.dtype).bytes;
  EXPECT_EQ(fold->Begin(end - begin), absl::OkStatus());
  EXPECT_EQ(fold->Add(x.data() + at, OtherOf(call.op) == OtherOperand::kNone ? nullptr : y.data() + at, 0, end - begin),
            absl::OkStatus());
  return fold;
}

// The state of elements [begin, end), which are one output.
v1::ArraysState StateOfPairs(const ReduceSpec& spec, const Bytes& x, const Bytes& y, std::int64_t begin,
                             std::int64_t end) {
  State state;
  state.partial.count = end - begin;
  for (const OpCall& call : spec.ops) {
    state.entries.push_back(NoEntries(call, spec.dtype));
    const auto fold = FoldOfPairs(spec, call, x, y, begin, end);
    EXPECT_EQ(fold->Save([](std::int64_t rank) { return rank; }, &state.entries.back()), absl::OkStatus());
  }
  ReduceSpec part = spec;
  part.count = end - begin;
  v1::ArraysState message;
  ToProto(part, part.count, {state}, &message);
  return message;
}

TEST(PairStates, MergedPartsAnswerAsTheWhole) {
  constexpr std::int64_t kCount = 701;
  for (const DType dtype : {DType::kF64, DType::kF16, DType::kI32, DType::kU64}) {
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, dtype)) continue;
      const ReduceSpec spec = SpecOfPairs(dtype, NanPolicy::kOmit);
      const Bytes x = test::MakeData(data.kind, dtype, kCount, 1),
                  y = test::MakeData(test::DataKind::kFull, dtype, kCount, 2);
      ArraysMerger merger({});
      std::int64_t begin = 0;
      for (const std::int64_t end : {0, 3, 300, 301, 701}) {
        EXPECT_EQ(merger.Append(StateOfPairs(spec, x, y, begin, end), "part"), absl::OkStatus()) << data.name;
        begin = end;
      }
      v1::MergeResponse merged;
      ASSERT_EQ(merger.Finish({.state = true, .results = true, .op_errors = true}, &merged), absl::OkStatus());
      EXPECT_EQ(merged.arrays_state().outputs(0).SerializeAsString(),
                StateOfPairs(spec, x, y, 0, kCount).outputs(0).SerializeAsString())
          << data.name;
      for (std::size_t i = 0; i < spec.ops.size(); ++i) {
        const OpCall& call = spec.ops[i];
        std::string answer(static_cast<std::size_t>(AnswerElements(call) * RowOf(ResultDType(call, dtype)).bytes),
                           '\0');
        EXPECT_EQ(FoldOfPairs(spec, call, x, y, 0, kCount)
                      ->Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(answer.data())),
                  absl::OkStatus());
        EXPECT_EQ(merged.arrays(static_cast<int>(i)).data(), answer) << RowOf(call.op).name << ", " << data.name;
      }
    }
  }
}

// What one field is changed to, in the state of three pairs.
TEST(PairStates, ContradictionsAreRefused) {
  const Bytes x = test::MakeData(test::DataKind::kAscending, DType::kF32, 3, 1);
  const Bytes y = test::MakeData(test::DataKind::kDescending, DType::kF32, 3, 1);
  ReduceSpec spec{.dtype = DType::kF32, .nan_policy = NanPolicy::kOmit};
  for (const Op op : {Op::kCosine, Op::kDistanceMax, Op::kCompare}) spec.ops.push_back(OpCall(op).With(DType::kF32));
  spec.ops.emplace_back(Op::kCovMatrix, OpParameters{.columns = 3});
  const v1::ArraysState right = StateOfPairs(spec, x, y, 0, 3);
  // Entries of op `at`, with the value of one key set, or added, or without the key.
  const auto refused = [&](int at, const std::string& message, std::uint64_t key, std::uint64_t value,
                           bool without = false) {
    const OpCall& call = spec.ops[static_cast<std::size_t>(at)];
    const auto fold = FoldOfPairs(spec, call, x, y, 0, 3);
    Entries entries = NoEntries(call, spec.dtype), changed = entries;
    ASSERT_EQ(fold->Save([](std::int64_t rank) { return rank; }, &entries), absl::OkStatus());
    bool added = without;
    for (std::size_t i = 0; i < entries.keys.size(); ++i) {
      if (!added && entries.keys[i] >= key) changed.Add(key, value), added = true;
      if (entries.keys[i] != key) changed.Add(entries.keys[i], entries.values[i]);
    }
    if (!added) changed.Add(key, value);
    v1::ArraysState wrong = right;
    v1::StateEntries& to = *wrong.mutable_outputs(0)->mutable_entries(at);
    to.Clear();
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < changed.keys.size(); ++i) {
      to.add_keys(changed.keys[i] - before);
      to.add_values(changed.values[i]);
      before = changed.keys[i];
    }
    ArraysMerger merger({});
    const absl::Status status = merger.Append(wrong, "it");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  const auto words = static_cast<std::size_t>(NoEntries(spec.ops[0], spec.dtype).most);
  const auto count = [](TermCount which) { return IntegerKey(static_cast<std::size_t>(which), 0); };
  refused(0, "entries[0].keys: got", IntegerKey(kTermCounts, words), 1);
  refused(0, "entries[0].keys: got", IntegerKey(kTermCounts + 3, 0), 1);
  refused(0, "entries[0].keys: got", IntegerKey(0, 1), 1);
  refused(0, "entries[0].keys: got", RecordKey(0, 0), 1);
  refused(0, "entries[0].values: got 0; allowed: words that are not 0", IntegerKey(kTermCounts, 0), 0);
  refused(0, "entries[0].values: got 4 elements; allowed: 3 or less", count(TermCount::kElements), 4);
  refused(0, "entries[0].values: got 4 elements that are not finite; allowed: 0 to 3", count(TermCount::kUndefined), 4);
  refused(0, "entries[0].values: got a negative sum", IntegerKey(kTermCounts + 1, words - 1), ~std::uint64_t{0});
  refused(1, "entries[1].keys: got 1 after 0", 1, 5);
  refused(1, "entries[1].values: got 0; allowed: the bits of a distance", 0, 0);
  refused(1, "entries[1].values: got 18446744073709551615", 0, ~std::uint64_t{0});
  refused(2, "entries[2].values: got 4 different pairs; allowed: 0 to 3", IntegerKey(kMismatches, 0), 4);
  refused(2, "entries[2].keys: got 0 mismatches and a first one", IntegerKey(kMismatches, 0), 0, true);
  refused(2, "allowed: records of 4 words", RecordKey(1, 2), 0, true);
  refused(2, "entries[2].values: got rank 1; allowed: 0, or that of a difference", RecordKey(0, 0), 1);
  refused(2, "entries[2].values: got rank 1; allowed: 0, or that of a difference", RecordKey(1, 0), 1);
  constexpr std::size_t kOfPair = kTermCounts + 3;  // integers
  refused(3, "entries[3].keys: got", IntegerKey(6 * kOfPair, 0), 1);
  refused(3, "entries[3].keys: got", IntegerKey(2 * kOfPair, 1), 1);
  refused(3, "entries[3].values: got 2 elements; allowed: 1 or less", IntegerKey(2 * kOfPair, 0), 2);
  refused(3, "entries[3].values: got 2 elements that are not finite; allowed: 0 to 1", IntegerKey(5 * kOfPair + 1, 0),
          2);
  refused(2, "entries[2].values: got index 3; allowed: 0 to 2", RecordKey(2, kRecordIndex), 3);
}

// Bytes that hardly anybody wrote: they are refused, or have an answer.
TEST(PairStates, AnyBytesAreHarmless) {
  std::mt19937_64 random(9);
  for (const DType dtype : {DType::kF16, DType::kI64, DType::kF64, DType::kBool}) {
    const Bytes x = test::MakeData(test::DataKind::kSmall, dtype, 50, 2),
                y = test::MakeData(test::DataKind::kFull, dtype, 50, 2);
    const std::string right = StateOfPairs(SpecOfPairs(dtype, NanPolicy::kPropagate), x, y, 0, 50).SerializeAsString();
    int taken = 0;
    for (int i = 0; i < 1'000; ++i) {
      std::string bytes = right;
      for (std::uint64_t n = 1 + random() % 3; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
      v1::ArraysState state;
      if (!state.ParseFromString(bytes)) continue;
      ArraysMerger merger({});
      if (!merger.Append(state, "it").ok()) continue;
      ++taken;
      (void)merger.Append(state, "it again");
      v1::MergeResponse response;
      (void)merger.Finish({.state = true, .results = true, .op_errors = true}, &response);
    }
    EXPECT_GT(taken, 0);
  }
}

}  // namespace
}  // namespace reduced
