#include "proto/codec/quantile_rounds.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/quantile_points.h"
#include "proto/codec/entries_codec.h"
#include "proto/codec/op_call.h"
#include "proto/codec/state_codec.h"

namespace reduced {
namespace {

constexpr std::uint64_t kFewElements = std::uint64_t{1} << 20;  // whose keys the next round collects
constexpr int kDigit = 22;                                      // bits of a round after the first one

absl::StatusOr<ReduceSpec> QuestionOf(const v1::ArraysState& state) {
  StateLimits limits{.max_elements = 0};
  limits.calls = true;
  absl::StatusOr<StateOfSpec> question = ParseState(state.question(), limits);
  if (!question.ok()) return question.status();
  question->spec.count = state.count();
  return std::move(question->spec);
}

// The numbers of the ops of quantiles whose states lack bits, and which entries of a state are theirs.
struct Unknown {
  std::size_t op;
  int entries;
};
std::vector<Unknown> UnknownOf(const ReduceSpec& spec) {
  std::vector<Unknown> found;
  int entries = 0;
  for (std::size_t op = 0; op < spec.ops.size(); ++op) {
    if (HasAccumulator(spec.ops[op])) continue;
    if (IsQuantile(spec.ops[op]) && !HasWholeKeys(spec.ops[op], spec.dtype)) found.push_back({op, entries});
    ++entries;
  }
  return found;
}

absl::StatusOr<Entries> Read(const v1::ArraysState& state, int output, int number, const ReduceSpec& spec,
                             const OpCall& call) {
  const v1::State& from = state.outputs(output);
  if (number >= from.entries_size() || from.count() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("outputs[", output, "].entries: got too few; allowed: one for each op of the distribution"));
  }
  ReduceSpec of_output = spec;
  of_output.count = from.count();
  Entries entries;
  absl::Status status = ParseEntries(from.entries(number), of_output, call, state.positions(), &entries);
  if (!status.ok()) return status;
  return entries;
}

std::uint64_t NanKey(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) { return std::uint64_t{SortKey<T>::kNan}; });
}

// The key of the largest element that is no NaN.
std::uint64_t LastKey(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) {
    using Key = SortKey<T>;
    if constexpr (kIsFloat<T>) return std::uint64_t{Key::Highest()};
    return std::is_same_v<T, Bool> ? std::uint64_t{1} : std::uint64_t{Key::kMost};
  });
}

// Adds the entries that the ranks of the quantiles are in, with how many elements these have.
void FindRanks(const Entries& entries, const ReduceSpec& spec, const OpCall& call,
               std::set<std::pair<std::uint64_t, std::uint64_t>>* found) {
  std::int64_t count = 0;
  std::size_t size = entries.keys.size();
  const bool nan = RowOf(spec.dtype).is_float && size > 0 && entries.keys.back() == NanKey(spec.dtype);
  if (nan && spec.nan_policy == NanPolicy::kPropagate) return;
  if (nan) --size;
  for (std::size_t i = 0; i < size; ++i) count += static_cast<std::int64_t>(entries.values[i]);
  if (count == 0) return;
  std::vector<std::int64_t> ranks;
  const std::vector<double> median = {0.5};
  for (const double q : call.op == Op::kMedian ? median : call.given().quantiles) {
    const QuantilePoint point = PointOf(q, count, call.given().method);
    ranks.push_back(point.lower);
    ranks.push_back(point.higher);
  }
  std::sort(ranks.begin(), ranks.end());
  std::int64_t end = 0;
  auto rank = ranks.begin();
  for (std::size_t i = 0; i < size && rank != ranks.end(); ++i) {
    end += static_cast<std::int64_t>(entries.values[i]);
    if (*rank >= end) continue;
    found->emplace(entries.keys[i], entries.values[i]);
    rank = std::lower_bound(rank, ranks.end(), end);
  }
}

void SetCall(const OpCall& call, int number, v1::ArraysState* whole) {
  v1::OpCall* const to = whole->mutable_question()->mutable_calls(number);
  to->Clear();
  ToProto(call, to);
}

// The op with other counts.
OpCall WithCounts(const OpCall& call, KeyCounts counts) {
  OpParameters parameters = call.given();
  parameters.counts = std::move(counts);
  return {call.op, std::move(parameters)};
}

}  // namespace

absl::StatusOr<std::vector<OpCall>> StartRounds(v1::ArraysState* whole) {
  const absl::StatusOr<ReduceSpec> spec = QuestionOf(*whole);
  if (!spec.ok()) return spec.status();
  const int most = 8 * RowOf(spec->dtype).bytes;
  std::vector<OpCall> calls;
  for (const auto& [op, number] : UnknownOf(*spec)) {
    const OpCall& call = spec->ops[op];
    const int bits = CountedBits(call, spec->dtype);
    std::set<std::pair<std::uint64_t, std::uint64_t>> found;  // of any output; more than one may have the same key
    std::set<std::uint64_t> prefixes;
    std::uint64_t elements = 0;
    for (int i = 0; i < whole->outputs_size(); ++i) {
      const absl::StatusOr<Entries> entries = Read(*whole, i, number, *spec, call);
      if (!entries.ok()) return entries.status();
      found.clear();
      FindRanks(*entries, *spec, call, &found);
      for (const auto& [key, size] : found) {
        prefixes.insert(key >> (most - bits));
        elements = std::min(elements + size, kFewElements + 1);  // states may say anything
      }
    }
    KeyCounts known{.bits = most};
    if (prefixes.empty()) {
      SetCall(WithCounts(call, known), static_cast<int>(op), whole);
    } else if (prefixes.size() > kMaxPrefixes) {
      calls.push_back(WithCounts(call, known));  // of all elements
    } else {
      calls.push_back(WithCounts(call, {.bits = elements <= kFewElements ? most : std::min(most, bits + kDigit),
                                        .within_bits = bits,
                                        .within = {prefixes.begin(), prefixes.end()}}));
    }
  }
  return calls;
}

absl::StatusOr<std::vector<OpCall>> NextRound(const v1::ArraysState& answer, v1::ArraysState* whole) {
  const absl::Status changed =
      absl::AbortedError("array: got other elements in another round; allowed: an array that nobody changes");
  const absl::StatusOr<ReduceSpec> spec = QuestionOf(*whole), asked = QuestionOf(answer);
  if (!spec.ok()) return spec.status();
  if (!asked.ok()) return asked.status();
  const std::vector<Unknown> unknown = UnknownOf(*spec);
  if (asked->ops.size() != unknown.size() || asked->dtype != spec->dtype || answer.count() != whole->count() ||
      answer.outputs_size() != whole->outputs_size() || answer.keys().data() != whole->keys().data()) {
    return changed;
  }
  const int most = 8 * RowOf(spec->dtype).bytes;
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    const OpCall& call = spec->ops[unknown[i].op];
    const OpCall& finer = asked->ops[i];
    const KeyCounts& counts = finer.given().counts;
    const OpCall known = WithCounts(call, {.bits = counts.bits});
    const auto refined = [&](std::uint64_t key) {
      if (counts.within.empty()) return true;
      if (RowOf(spec->dtype).is_float && key == NanKey(spec->dtype)) return false;
      return std::binary_search(counts.within.begin(), counts.within.end(), key >> (most - counts.within_bits));
    };
    for (int output = 0; output < whole->outputs_size(); ++output) {
      if (answer.outputs(output).count() != whole->outputs(output).count()) return changed;
      const absl::StatusOr<Entries> before = Read(*whole, output, unknown[i].entries, *spec, call);
      absl::StatusOr<Entries> entries = Read(answer, output, static_cast<int>(i), *asked, finer);
      if (!before.ok()) return before.status();
      if (!entries.ok()) return entries.status();
      // Those of the round take the place of what they are parts of, ...
      Entries rest;
      std::uint64_t replaced = 0, with = 0;
      for (std::size_t at = 0; at < before->keys.size(); ++at) {
        if (!refined(before->keys[at])) {
          rest.Add(before->keys[at], before->values[at]);
        } else {
          replaced += before->values[at];
        }
      }
      for (const std::uint64_t value : entries->values) with += value;
      if (replaced != with) return changed;  // ... which have as many elements
      Merge(*entries, &rest);
      v1::StateEntries* const to = whole->mutable_outputs(output)->mutable_entries(unknown[i].entries);
      to->Clear();
      ToProto(rest, to);
    }
    SetCall(known, static_cast<int>(unknown[i].op), whole);
  }
  return StartRounds(whole);
}

absl::Status ToBound(bool largest, v1::ArraysState* state) {
  const absl::StatusOr<ReduceSpec> spec = QuestionOf(*state);
  if (!spec.ok()) return spec.status();
  const int most = 8 * RowOf(spec->dtype).bytes;
  for (const auto& [op, number] : UnknownOf(*spec)) {
    const OpCall& call = spec->ops[op];
    const std::uint64_t rest = (std::uint64_t{1} << (most - CountedBits(call, spec->dtype))) - 1;
    for (int output = 0; largest && output < state->outputs_size(); ++output) {
      absl::StatusOr<Entries> entries = Read(*state, output, number, *spec, call);
      if (!entries.ok()) return entries.status();
      for (std::uint64_t& key : entries->keys) key = std::min(key | rest, std::max(key, LastKey(spec->dtype)));
      v1::StateEntries* const to = state->mutable_outputs(output)->mutable_entries(number);
      to->Clear();
      ToProto(*entries, to);
    }
    SetCall(WithCounts(call, {.bits = most}), static_cast<int>(op), state);
  }
  return absl::OkStatus();
}

}  // namespace reduced
