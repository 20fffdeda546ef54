#include "proto/codec/merge.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/finalize.h"
#include "kernels/exact/answers.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/values.h"

namespace reduced {
namespace {

// Appends the part that follows.
absl::Status AppendPart(StateOfSpec part, const StateLimits& limits, const Rows& rows, StateOfSpec* whole) {
  absl::Status status = CheckSameQuestion(whole->spec, part.spec);
  if (!status.ok()) return status;
  const std::int64_t room = limits.max_elements - whole->spec.count;
  if (part.spec.count > room) {
    return absl::InvalidArgumentError(
        absl::StrFormat("count: got %d after %d of the states before; allowed: %d together", part.spec.count,
                        whole->spec.count, limits.max_elements));
  }
  Place(rows, whole->spec.count, part.spec.count, &part.state);
  Combine(part.state, &whole->state);
  whole->spec.count += part.spec.count;
  return absl::OkStatus();
}

// INVALID_ARGUMENT: there is no such number of rows.
absl::StatusOr<Rows> RowsOf(const v1::MergeRequest& request, std::int64_t count) {
  if (count < 1) return absl::InvalidArgumentError(absl::StrFormat("rows: got %d; allowed: 1 or more", count));
  if (count == 1) return Rows();
  std::int64_t elements = 0;
  bool fits = true;  // else appending that part fails
  const auto add = [&](std::int64_t more) {
    fits = fits && more >= 0 && !__builtin_add_overflow(elements, more, &elements);
  };
  for (const v1::State& state : request.states()) add(state.count());
  for (const v1::ArraysState& state : request.arrays()) {
    if (state.has_keys()) {
      return absl::InvalidArgumentError(absl::StrFormat("rows: got %d with outputs by keys; allowed: 1", count));
    }
    add(state.positions());
  }
  return Rows{.count = count, .length = fits ? elements / count : 0};
}

}  // namespace

absl::Status CheckRows(absl::string_view field, std::int64_t elements, const Rows& rows) {
  if (elements % rows.count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: got %d with %d rows; allowed: as many elements in each row", field, elements, rows.count));
}

void Place(const Rows& rows, std::int64_t before, std::int64_t elements, State* part) {
  if (rows.count == 1) return Shift(before, part);
  const std::int64_t run = elements / rows.count;
  ForIndexes(part, [&](std::int64_t index) { return index / run * rows.length + before / rows.count + index % run; });
}

absl::Status CheckSameQuestion(const ReduceSpec& first, const ReduceSpec& spec) {
  const auto exact = [](const ReduceSpec& of) { return ExactAccumulatorsFor(of) != 0; };
  const char* const differs = spec.dtype != first.dtype                       ? "dtype"
                              : spec.ops != first.ops                         ? "ops"
                              : exact(spec) != exact(first)                   ? "precision"
                              : spec.nan_policy != first.nan_policy           ? "nan_policy"
                              : spec.overflow_policy != first.overflow_policy ? "overflow_policy"
                              : spec.ddof != first.ddof                       ? "ddof"
                                                                              : nullptr;
  if (differs == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(differs, ": got another than the first state has; allowed: the same in all of them"));
}

absl::Status Merger::Append(const v1::State& part, absl::string_view name) {
  absl::StatusOr<StateOfSpec> parsed = ParseState(part, limits_);
  absl::Status status = parsed.status();
  if (status.ok()) status = CheckRows("count", parsed->spec.count, rows_);
  if (status.ok() && !whole_.has_value()) {
    whole_ = *std::move(parsed);
    Place(rows_, 0, whole_->spec.count, &whole_->state);
  } else if (status.ok()) {
    status = AppendPart(*std::move(parsed), limits_, rows_, &*whole_);
  }
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

absl::Status Merger::Finish(const WantedOfMerge& wanted, v1::MergeResponse* response) const {
  if (!whole_.has_value()) return absl::InvalidArgumentError("states: got none; allowed: at least 1");
  if (wanted.results) {
    const absl::StatusOr<std::vector<absl::StatusOr<Value>>> values =
        FinalizeEach(whole_->spec, whole_->state, wanted.op_errors);
    if (!values.ok()) return values.status();
    ToProto(whole_->spec, *values, response->mutable_results());
  }
  response->set_count(whole_->spec.count);
  if (wanted.state) ToProto(whole_->spec, whole_->state, response->mutable_state());
  return absl::OkStatus();
}

absl::Status MergeStates(const v1::MergeRequest& request, const StateLimits& limits,
                         const std::vector<std::string>& names, v1::MergeResponse* response, std::int64_t rows) {
  const auto name_of = [&names](const char* field, int i) {
    return names.empty() ? absl::StrFormat("%s[%d]", field, i) : names[static_cast<std::size_t>(i)];
  };
  const WantedOfMerge wanted{
      .state = request.return_state(), .results = !request.omit_results(), .op_errors = request.op_errors()};
  const absl::StatusOr<Rows> placed = RowsOf(request, rows);
  if (!placed.ok()) return placed.status();
  if (request.arrays_size() > 0) {
    if (request.states_size() > 0) return absl::InvalidArgumentError("arrays: got some beside states; allowed: either");
    ArraysMerger merger(limits, /*why_stop=*/nullptr, *placed);
    for (int i = 0; i < request.arrays_size(); ++i) {
      const absl::Status status = merger.Append(request.arrays(i), name_of("arrays", i));
      if (!status.ok()) return status;
    }
    return merger.Finish(wanted, response);
  }
  Merger merger(limits, *placed);
  for (int i = 0; i < request.states_size(); ++i) {
    absl::Status status = merger.Append(request.states(i), name_of("states", i));
    if (!status.ok()) return status;
  }
  return merger.Finish(wanted, response);
}

}  // namespace reduced
