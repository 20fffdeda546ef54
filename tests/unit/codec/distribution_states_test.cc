// States of the ops of the distribution: parts of an array, as messages, merged: the answers of the whole, bit for bit;
// quantiles by rounds; and messages that are no states.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/polynomial.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/fold.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/quantile_rounds.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

using ::testing::HasSubstr;

const FoldLimits& NoLimits() {
  static const FoldLimits& limits = *new FoldLimits{.take = [](std::int64_t) { return absl::OkStatus(); },
                                                    .give = [](std::int64_t) {},
                                                    .why_stop = [] { return absl::OkStatus(); }};
  return limits;
}

// The state of elements [begin, end), which are one output.
v1::ArraysState StateOfPart(const ReduceSpec& spec, const test::Bytes& array, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = RowOf(spec.dtype).bytes, count = end - begin;
  State state;
  state.partial.count = count;
  for (const OpCall& call : spec.ops) {
    const auto fold = MakeStateFold(call, spec, NoLimits());
    EXPECT_EQ(fold->Begin(count), absl::OkStatus());
    const auto part = fold->Part().value();
    const std::int64_t half = count / 2;
    EXPECT_EQ(fold->Add(array.data() + begin * width, nullptr, 0, half), absl::OkStatus());
    EXPECT_EQ(part->Add(array.data() + (begin + half) * width, nullptr, half, count - half), absl::OkStatus());
    EXPECT_EQ(fold->Merge(*part), absl::OkStatus());
    state.entries.push_back(NoEntries(call, spec.dtype));
    const absl::Status saved = fold->Save([](std::int64_t rank) { return rank; }, &state.entries.back());
    EXPECT_EQ(saved, absl::OkStatus());
  }
  ReduceSpec part = spec;
  part.count = count;
  v1::ArraysState message, read;
  ToProto(part, count, {state}, &message);
  EXPECT_TRUE(read.ParseFromString(message.SerializeAsString()));
  return read;
}

v1::MergeResponse Merged(const std::vector<v1::ArraysState>& parts, bool results) {
  ArraysMerger merger({});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(merger.Append(parts[i], absl::StrCat("part ", i)), absl::OkStatus());
  }
  v1::MergeResponse response;
  EXPECT_EQ(merger.Finish({.state = true, .results = results, .op_errors = true}, &response), absl::OkStatus());
  return response;
}

std::string AnswerOf(const ReduceSpec& spec, const OpCall& call, const test::Bytes& array) {
  const auto fold = MakeDistributionFold(call, spec, NoLimits());
  const std::int64_t count = std::ssize(array) / RowOf(spec.dtype).bytes;
  EXPECT_EQ(fold->Begin(count), absl::OkStatus());
  do {
    EXPECT_EQ(fold->Add(array.data(), nullptr, 0, count), absl::OkStatus());
  } while (*fold->NextPass());
  std::string answer(static_cast<std::size_t>(AnswerElements(call) * RowOf(ResultDType(call, spec.dtype)).bytes), '\0');
  const absl::Status status =
      fold->Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(answer.data()));
  return status.ok() ? answer : std::string(status.message());
}

std::vector<std::int64_t> CutsOf(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::int64_t> cuts = {0, count};
  for (int i = 0; i < 5; ++i)
    cuts.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count + 1)));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

std::string ResultOf(const v1::ArrayResult& result) {
  return result.has_error() ? result.error().message() : result.data();
}

std::vector<OpCall> MergedCalls(DType dtype) {
  std::vector<OpCall> calls = {Op::kDistinct,
                               Op::kDistinctExact,
                               Op::kFingerprint,
                               {Op::kHistogram, {.edges = {-3, -1, 0, 1, 2}}},
                               {Op::kTopK, {.k = 100}},
                               {Op::kArgTopK, {.k = 100}},
                               {Op::kBottomK, {.k = 7}},
                               {Op::kArgBottomK, {.k = 1}},
                               {Op::kMedian, {.counts = {.bits = 8 * RowOf(dtype).bytes}}}};
  if (RowOf(dtype).bytes <= 2) calls.push_back(Op::kMode);
  return calls;
}

TEST(DistributionStates, MergedPartsAnswerAsTheWhole) {
  static const std::int64_t kCount = test::kSlowBuild ? 501 : 3'001;
  std::mt19937_64 random(7);
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, dtype.dtype)) continue;
      for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        const test::Bytes array = test::MakeData(data.kind, dtype.dtype, kCount, 3);
        const ReduceSpec spec{.dtype = dtype.dtype, .ops = MergedCalls(dtype.dtype), .nan_policy = nan};
        std::vector<v1::ArraysState> parts;
        const std::vector<std::int64_t> cuts = CutsOf(kCount, random);
        for (std::size_t i = 1; i < cuts.size(); ++i) {
          parts.push_back(StateOfPart(spec, array, cuts[i - 1], cuts[i]));
        }
        const v1::MergeResponse merged = Merged(parts, true);
        const v1::ArraysState whole = StateOfPart(spec, array, 0, kCount);
        EXPECT_EQ(merged.arrays_state().outputs(0).SerializeAsString(), whole.outputs(0).SerializeAsString());
        for (std::size_t i = 0; i < spec.ops.size(); ++i) {
          EXPECT_THAT(ResultOf(merged.arrays(static_cast<int>(i))), HasSubstr(AnswerOf(spec, spec.ops[i], array)))
              << RowOf(spec.ops[i]).name << " of " << dtype.name << ", " << data.name;
        }
      }
    }
  }
}

// However the elements are distributed, and with the table of counts or without.
TEST(DistributionStates, RoundsFindQuantiles) {
  std::mt19937_64 random(8);
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, dtype.dtype)) continue;
      for (const std::int64_t count : {1, 2, 1'001, 140'000}) {
        if (count > 100'000 && random() % (test::kSlowBuild ? 16 : 4) != 0) continue;
        const test::Bytes array = test::MakeData(data.kind, dtype.dtype, count, 4);
        const ReduceSpec spec{.dtype = dtype.dtype,
                              .ops = {Op::kMedian,
                                      Op::kDistinct,
                                      {Op::kQuantile, {.quantiles = {1, 0, 0.37}, .method = QuantileMethod::kLower}}},
                              .nan_policy = random() % 2 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit};
        const std::vector<std::int64_t> cuts = CutsOf(count, random);
        const auto ask = [&](const ReduceSpec& asked) {
          std::vector<v1::ArraysState> parts;
          for (std::size_t i = 1; i < cuts.size(); ++i) {
            parts.push_back(StateOfPart(asked, array, cuts[i - 1], cuts[i]));
          }
          return Merged(parts, false).arrays_state();
        };
        v1::ArraysState whole = ask(spec);
        absl::StatusOr<std::vector<OpCall>> calls = StartRounds(&whole);
        int rounds = 1;
        for (; calls.ok() && !calls->empty(); ++rounds) {
          ReduceSpec asked = spec;
          asked.ops = *calls;
          calls = NextRound(ask(asked), &whole);
        }
        ASSERT_EQ(calls.status(), absl::OkStatus());
        EXPECT_LE(rounds, dtype.bytes == 8 ? 3 : dtype.bytes == 4 ? 2 : 1);
        const v1::MergeResponse merged = Merged({whole}, true);
        for (std::size_t i = 0; i < spec.ops.size(); ++i) {
          EXPECT_THAT(ResultOf(merged.arrays(static_cast<int>(i))), HasSubstr(AnswerOf(spec, spec.ops[i], array)))
              << RowOf(spec.ops[i]).name << " of " << count << " " << dtype.name << ", " << data.name;
        }
      }
    }
  }
}

TEST(DistributionStates, AStateOfAQuantileHasNoAnswerByItself) {
  const test::Bytes array = test::MakeData(test::DataKind::kFull, DType::kI32, 100, 1);
  const ReduceSpec spec{.dtype = DType::kI32, .ops = {Op::kMedian, Op::kDistinct}};
  const v1::MergeResponse merged = Merged({StateOfPart(spec, array, 0, 100)}, true);
  EXPECT_THAT(merged.arrays(0).error().message(), HasSubstr("got a state with the highest 20 of 32 bits"));
  EXPECT_TRUE(merged.arrays(1).has_data());
}

// Bounds of f32 and f64 that are not next to 0 are within 2^-8 of each other, and those of 16 bits are equal.
TEST(DistributionStates, BoundsEncloseQuantiles) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kI32, DType::kU64}) {
    const test::Bytes array = test::MakeData(test::DataKind::kFull, dtype, 5'001, 6);
    const ReduceSpec spec{.dtype = dtype,
                          .ops = {{Op::kQuantile, {.quantiles = {0.1, 0.5, 1}, .method = QuantileMethod::kLower}}},
                          .nan_policy = NanPolicy::kOmit};
    const v1::ArraysState state = StateOfPart(spec, array, 0, 5'001);
    std::vector<std::string> bounds;
    for (const bool largest : {false, true}) {
      v1::ArraysState bound = state;
      ASSERT_EQ(ToBound(largest, &bound), absl::OkStatus());
      bounds.push_back(ResultOf(Merged({bound}, true).arrays(0)));
    }
    const std::string right = AnswerOf(spec, spec.ops[0], array);
    ASSERT_EQ(bounds[0].size(), right.size());
    EXPECT_EQ(bounds[0] == bounds[1], RowOf(dtype).bytes == 2);
    VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
      for (std::size_t i = 0; i < right.size(); i += sizeof(T)) {
        T low, exact, high;
        std::memcpy(&low, &bounds[0][i], sizeof(T));
        std::memcpy(&exact, &right[i], sizeof(T));
        std::memcpy(&high, &bounds[1][i], sizeof(T));
        EXPECT_LE(SortKey<T>::Of(low), SortKey<T>::Of(exact));
        EXPECT_LE(SortKey<T>::Of(exact), SortKey<T>::Of(high));
        if constexpr (kIsFloat<T>) {
          const double least = std::abs(ToDouble(low)), most = std::abs(ToDouble(high));
          if (std::isfinite(most) && std::isfinite(least)) {
            EXPECT_LE(std::abs(least - most), std::ldexp(std::min(least, most), -8));
          }
        }
      }
    });
  }
}

// What one field is changed to, in the state of 3 f16: 1, NaN, 1.
TEST(DistributionStates, ContradictionsAreRefused) {
  constexpr std::uint16_t kOne = 0x3c00, kNan = 0x7e00;
  const std::uint16_t elements[] = {kOne, kNan, kOne};
  test::Bytes array(sizeof(elements));
  std::memcpy(array.data(), elements, sizeof(elements));
  const ReduceSpec spec{.dtype = DType::kF16,
                        .ops = {Op::kMode,
                                Op::kDistinct,
                                Op::kMedian,
                                {Op::kHistogram, {.edges = {0, 1, 2}}},
                                {Op::kTopK, {.k = 2}},
                                {Op::kArgBottomK, {.k = 2}},
                                {Op::kFingerprint, {.shard = Shard{.whole = {4}, .part = {3}}}}}};
  const v1::ArraysState right = StateOfPart(spec, array, 0, 3);
  const auto refused = [&](const std::string& message, auto change) {
    v1::ArraysState wrong = right;
    change(wrong);
    ArraysMerger merger({});
    const absl::Status status = merger.Append(wrong, "it");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  const auto entries = [](v1::ArraysState& state, int i) { return state.mutable_outputs(0)->mutable_entries(i); };
  refused("entries: got 6", [&](auto& s) { s.mutable_outputs(0)->mutable_entries()->RemoveLast(); });
  refused("ops: got some", [&](auto& s) { s.mutable_outputs(0)->add_ops(v1::OP_SUM); });
  refused("entries[0].values: got 2 of them for 3 keys", [&](auto& s) { entries(s, 0)->add_keys(1); });
  refused("entries[0].values: got 1 elements fewer", [&](auto& s) { entries(s, 0)->set_values(0, 1); });
  refused("entries[0].values: got 4", [&](auto& s) { entries(s, 0)->set_values(0, 4); });
  refused("entries[0].values: got 0", [&](auto& s) { entries(s, 0)->set_values(0, 0); });
  refused("entries[0].keys: got 65536", [&](auto& s) { entries(s, 0)->set_keys(0, 65'536); });
  refused("entries[0].keys: got 18446744073709551615 after",
          [&](auto& s) { entries(s, 0)->set_keys(1, ~std::uint64_t{0}); });
  refused("entries[1].values: got 1 of them for 2 keys", [&](auto& s) { entries(s, 1)->add_values(1); });
  refused("entries[1].keys: got 0 of them; allowed: at least 1", [&](auto& s) { entries(s, 1)->clear_keys(); });
  refused("entries[2].keys: got key", [&](auto& s) { entries(s, 2)->set_keys(1, 0); });
  refused("entries[2].keys: got 1 after 0", [&](auto& s) { entries(s, 2)->set_keys(0, 1); });  // of a negative NaN
  refused("entries[3].keys: got 2 after 0", [&](auto& s) { entries(s, 3)->set_keys(0, 2); });
  refused("entries[3].keys: got 18446744073709551615 after 0",
          [&](auto& s) { entries(s, 3)->set_keys(0, ~std::uint64_t{0}); });
  refused("entries[4].values: got 3; allowed: 0 to 2", [&](auto& s) { entries(s, 4)->set_values(0, 3); });
  refused("entries[4].values: got index 0 twice", [&](auto& s) {
    entries(s, 4)->set_values(0, 0);
    entries(s, 4)->set_values(1, 0);
  });
  refused("entries[5].keys: got 1 of them; allowed: at least 2", [&](auto& s) {
    entries(s, 5)->mutable_keys()->RemoveLast();
    entries(s, 5)->mutable_values()->RemoveLast();
  });
  refused("entries[6].keys: got 2 after 0", [&](auto& s) { entries(s, 6)->set_keys(0, 2); });
  refused("entries[6].keys: got key 0 twice", [&](auto& s) { entries(s, 6)->set_keys(1, 0); });
  refused("entries[6].keys: got 0 of them; allowed: 2", [&](auto& s) { entries(s, 6)->Clear(); });
  refused("entries[6].values: got 2305843009213693951; allowed: 0 to 2305843009213693950",
          [&](auto& s) { entries(s, 6)->set_values(1, kPrime); });
  refused("question: calls[6].fingerprint.shape[0]: got -1",
          [&](auto& s) { s.mutable_question()->mutable_calls(6)->mutable_fingerprint()->set_shape(0, -1); });
  refused("question: calls[3].histogram.edges.edge[1]", [&](auto& s) {
    s.mutable_question()->mutable_calls(3)->mutable_histogram()->mutable_edges()->set_edge(1, -1);
  });
}

// Bytes that hardly anybody wrote: they are refused, or have an answer.
TEST(DistributionStates, AnyBytesAreHarmless) {
  std::mt19937_64 random(9);
  for (const DType dtype : {DType::kF16, DType::kI64, DType::kF64, DType::kBool}) {
    const test::Bytes array = test::MakeData(test::DataKind::kSmall, dtype, 50, 2);
    const ReduceSpec spec{.dtype = dtype, .ops = MergedCalls(dtype)};
    const std::string right = StateOfPart(spec, array, 0, 50).SerializeAsString();
    int taken = 0;
    for (int i = 0; i < 3'000; ++i) {
      std::string bytes = right;
      for (std::uint64_t n = 1 + random() % 3; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
      v1::ArraysState state;
      if (!state.ParseFromString(bytes)) continue;
      ArraysMerger merger({});
      if (!merger.Append(state, "it").ok()) continue;
      ++taken;
      v1::MergeResponse response;
      (void)merger.Finish({.state = true, .op_errors = true}, &response);
      (void)StartRounds(&state);
      (void)NextRound(state, &state);
    }
    EXPECT_GT(taken, 0);
  }
}

}  // namespace
}  // namespace reduced
