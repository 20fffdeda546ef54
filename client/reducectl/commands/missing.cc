#include "client/reducectl/commands/missing.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

bool Omits(const ReduceOptions& options) { return options.nan_policy == "omit"; }

// Whether the answer of an op is a number of elements, of which the missing ones are some.
bool CountsMissing(const std::string& op, const ReduceOptions& options) {
  return op == "nan_count" || (op == "count" && !Omits(options));
}

// The position of element `index` among all, missing ones included.
std::uint64_t PositionOf(std::uint64_t index, const std::vector<std::uint64_t>& missing) {
  std::size_t low = 0, high = missing.size();  // how many missing ones are before it
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (missing[middle] - middle <= index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return index + low;
}

// The mask that leaves the missing elements out, and what `where` leaves out.
absl::StatusOr<std::string> MaskOf(const std::string& lacks, const std::optional<Mask>& where) {
  std::string mask(lacks.size(), '\1');
  for (std::size_t i = 0; i < lacks.size(); ++i) mask[i] = lacks[i] == 0 ? '\1' : '\0';
  if (!where.has_value()) return mask;
  const ArrayView* const view = std::get_if<ArrayView>(&where->mask);
  if (view == nullptr) {
    return absl::InvalidArgumentError("where: got a resident array, with elements that are missing; allowed: a file");
  }
  const auto* const bytes = static_cast<const unsigned char*>(view->data);
  for (std::size_t i = 0; i < lacks.size(); ++i) {
    const bool left = where->bits ? ((bytes[i / 8] >> (i % 8)) & 1) != 0 : bytes[i] != 0;
    if (!left) mask[i] = '\0';
  }
  return mask;
}

// The rows' positions among the keys of the outputs; those of other rows are beyond.
absl::StatusOr<std::vector<std::int64_t>> PositionsAmong(const HostArray& found, const Keys& keys) {
  const ArrayView* const view = std::get_if<ArrayView>(&keys.keys);
  if (view == nullptr) {
    return absl::InvalidArgumentError(
        "keys: got a resident array, and a key all of whose elements are missing; allowed: "
        "a file");
  }
  const auto width = static_cast<std::size_t>(*DTypeBytes(found.dtype));
  std::unordered_map<std::string, std::int64_t> positions;
  for (std::int64_t i = 0; i < found.shape.front(); ++i) {
    positions.emplace(found.data.substr(static_cast<std::size_t>(i) * width, width), i);
  }
  std::vector<std::int64_t> of_rows;
  for (std::int64_t row = 0; row < view->shape.front(); ++row) {
    const std::string key(static_cast<const char*>(view->data) + static_cast<std::size_t>(row) * width, width);
    const auto position = positions.find(key);
    of_rows.push_back(position == positions.end() ? found.shape.front() : position->second);
  }
  return of_rows;
}

}  // namespace

Missing MissingFor(const std::vector<std::string>& ops, const ReduceOptions& options, Missing left_out) {
  const auto counts = [&](const std::string& op) { return CountsMissing(op, options); };
  return Omits(options) || std::all_of(ops.begin(), ops.end(), counts) ? left_out : Missing::kError;
}

void CountMissing(const std::vector<std::uint64_t>& missing, const ReduceOptions& options, Reply* reply) {
  if (missing.empty()) return;
  reply->count += static_cast<std::int64_t>(missing.size());
  for (Result& result : reply->results) {
    if (!result.value.ok()) continue;
    auto* const number = std::get_if<std::uint64_t>(&result.value->value);
    if (CountsMissing(result.op, options)) *number += missing.size();
    if (AnswersIndexes(result.op)) *number = PositionOf(*number, missing);
  }
  constexpr auto kNoElement = std::numeric_limits<std::uint64_t>::max();
  for (ResultArray& result : reply->arrays) {
    if (!AnswersIndexes(result.op)) continue;
    std::string& data = result.array.data;
    for (std::size_t at = 0; at < data.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t index = 0;
      std::memcpy(&index, &data[at], sizeof(index));
      if (index != kNoElement) index = PositionOf(index, missing);
      std::memcpy(&data[at], &index, sizeof(index));
    }
  }
}

bool AnswersIndexes(const std::string& op) {
  const absl::string_view name = absl::StripAsciiWhitespace(absl::string_view(op).substr(0, op.find('(')));
  return name == "argmin" || name == "argmax" || name == "argtopk" || name == "argbottomk";
}

bool StateLacksMissing(const std::vector<std::string>& ops, const ReduceOptions& options) {
  return std::any_of(ops.begin(), ops.end(),
                     [&](const std::string& op) { return CountsMissing(op, options) || AnswersIndexes(op); });
}

absl::StatusOr<ArrayReply> ReduceMasked(const Input& input, const std::vector<std::string>& ops,
                                        const PartitionOptions& partition, const ReduceOptions& options,
                                        ReduceArrayCall reduce) {
  if (partition.keep.has_value() || partition.write_to.has_value()) {
    return absl::InvalidArgumentError(
        "got missing elements, with results that stay on the server or in shared memory; allowed: results that are "
        "sent");
  }
  std::vector<std::string> others;
  for (const std::string& op : ops) {
    if (!CountsMissing(op, options)) others.push_back(op);
  }
  if (options.return_state && StateLacksMissing(ops, options)) {
    return absl::InvalidArgumentError("got missing elements; allowed: none with --state and ops that count them");
  }
  std::string lacks(static_cast<std::size_t>(input.layout.shape.front()), '\0');
  for (const std::uint64_t position : input.missing) lacks[position] = 1;
  // How many are missing of each output, and the keys of all.
  absl::StatusOr<ArrayReply> counts =
      reduce({lacks.data(), "bool", input.layout.shape, {}}, {"count_nonzero", "count"}, partition);
  if (!counts.ok()) return counts.status();
  absl::StatusOr<ArrayReply> reply = counts;
  if (!others.empty()) {
    ASSIGN_OR_RETURN(const std::string mask, MaskOf(lacks, partition.where));
    PartitionOptions masked = partition;
    masked.where = Mask{.mask = ArrayView{mask.data(), "bool", input.layout.shape, {}}};
    reply = reduce(input.View(), others, masked);
    if (reply.ok() && reply->keys.array.shape != counts->keys.array.shape) {
      if (options.return_state) {
        return absl::InvalidArgumentError("state: got a key all of whose elements are missing; allowed: none");
      }
      ASSIGN_OR_RETURN(const std::vector<std::int64_t> rows, PositionsAmong(counts->keys.array, *partition.keys));
      masked.keys = Keys{ArrayView::Of(rows), counts->keys.array.shape.front(), /*drop_outside=*/true};
      reply = reduce(input.View(), others, masked);
      if (reply.ok()) reply->keys = counts->keys;
    }
    if (!reply.ok()) return reply.status();
  }
  std::vector<ResultArray> results;
  auto other = reply->results.begin();
  for (const std::string& op : ops) {
    if (!CountsMissing(op, options)) {
      results.push_back(std::move(*other++));
    } else {
      results.push_back(counts->results[op == "nan_count" ? 0 : 1]);
      results.back().op = op;
    }
  }
  reply->results = std::move(results);
  return reply;
}

}  // namespace reduced::client
