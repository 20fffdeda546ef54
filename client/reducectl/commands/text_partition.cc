#include "client/reducectl/commands/text_partition.h"

#include <algorithm>
#include <cstddef>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

absl::Status CheckRows(const char* option, std::int64_t rows, const std::vector<std::int64_t>* shape) {
  if (shape == nullptr || (!shape->empty() && shape->front() == rows)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(option, ": got ", rows, " rows; allowed: the ",
                                                 shape->empty() ? 1 : shape->front(), " of the input"));
}

// Integers of a column of text as they are, for a server that looks at them.
absl::Status UsePlainKeys(const FieldColumn& column, TextPartition* partition) {
  const auto error = [&](std::int64_t row, absl::string_view got, absl::string_view allowed) {
    return absl::InvalidArgumentError(absl::StrCat("--keys: line ", column.line(row), ": column \"",
                                                   column.name().substr(0, 60), "\": got ", got,
                                                   "; allowed: ", allowed));
  };
  for (std::int64_t row = 0; row < column.rows(); ++row) {
    if (!column.missing(row) && column.dtype() != "i64" && column.dtype() != "u64") {
      return error(
          std::max(row, column.first_text()),
          absl::StrCat("\"", absl::CHexEscape(column.text(std::max(row, column.first_text())).substr(0, 60)), "\""),
          "integers with --groups N, --keep, --write-to or --state");
    }
    if (column.missing(row))
      return error(row, "a missing field", "integers with --groups N, --keep, --write-to or --state");
  }
  partition->key_name = column.name();
  partition->options.keys->keys = ArrayView{column.numbers().bytes().data(), column.dtype(), {column.rows()}, {}};
  return absl::OkStatus();
}

// Copies a mask of one byte or bit for each row, if it is in memory, to partition->mask.
void TakeMask(const std::vector<std::int64_t>* shape, TextPartition* partition) {
  const auto* const view = std::get_if<ArrayView>(&partition->options.where->mask);
  if (view == nullptr || shape == nullptr || shape->size() != 1) return;
  const auto* const bytes = static_cast<const unsigned char*>(view->data);
  if (!partition->options.where->bits && (view->dtype != "bool" || view->shape != *shape)) return;
  for (std::int64_t row = 0; row < shape->front(); ++row) {
    const bool kept = partition->options.where->bits ? (bytes[row / 8] >> (row % 8) & 1) != 0 : bytes[row] != 0;
    partition->mask.push_back(kept ? 1 : 0);
  }
}

}  // namespace

absl::Status MakePartition(const AxesArguments& arguments, const SideFiles& sides,
                           const std::vector<FieldColumn>* fields, const std::vector<std::int64_t>* shape,
                           TextPartition* partition) {
  *partition = TextPartition{.options = arguments.options};
  PartitionOptions& options = partition->options;
  if (fields == nullptr && (!sides.key_columns.empty() || !sides.mask_column.empty())) {
    return absl::InvalidArgumentError("has no columns; allowed: text, or files for --keys and --where");
  }
  const auto add_notes = [&](const char* option, const std::vector<std::string>& notes) {
    for (const std::string& note : notes) partition->notes.push_back(absl::StrCat(option, ": ", note));
  };
  const FieldColumn* mask = sides.mask_fields.empty() ? nullptr : &sides.mask_fields.front();
  if (!sides.mask_column.empty() && fields != nullptr) mask = &fields->back();
  if (mask != nullptr) {
    RETURN_IF_ERROR(CheckRows("--where", mask->rows(), shape));
    absl::StatusOr<std::string> bytes = MaskOf(*mask, sides.comparison);
    if (!bytes.ok()) return absl::InvalidArgumentError(absl::StrCat("--where: ", bytes.status().message()));
    partition->mask = *std::move(bytes);
    add_notes("--where", mask->notes());
  }
  const auto use_mask = [&] {
    if (mask != nullptr) {
      options.where = Mask{.mask = ArrayView{partition->mask.data(), "bool", {mask->rows()}, {}}};
    }
    return absl::OkStatus();
  };
  if (!sides.encodes_keys()) return use_mask();
  std::vector<const FieldColumn*> keys;
  const std::vector<FieldColumn>& from = sides.key_fields.empty() ? *fields : sides.key_fields;
  const std::size_t count = sides.key_fields.empty() ? sides.key_columns.size() : sides.key_fields.size();
  for (std::size_t i = 0; i < count; ++i) keys.push_back(&from[i]);
  RETURN_IF_ERROR(CheckRows("--keys", keys.front()->rows(), shape));
  if (arguments.plain_keys()) {
    if (count > 1) {
      return absl::InvalidArgumentError(
          "--keys: got several columns; allowed: one of integers with --groups N, --keep, --write-to or --state");
    }
    RETURN_IF_ERROR(UsePlainKeys(*keys.front(), partition));
    return use_mask();
  }
  // Under a mask that is not here, groups may be empty.
  if (mask == nullptr && options.where.has_value()) TakeMask(shape, partition);
  if (!partition->mask.empty()) options.where.reset();
  absl::StatusOr<TextGroups> groups = GroupByFields(keys, arguments.group_by, partition->mask);
  if (!groups.ok()) return absl::InvalidArgumentError(absl::StrCat("--keys: ", groups.status().message()));
  partition->groups = *std::move(groups);
  add_notes("--keys", partition->groups->notes);
  options.keys = partition->groups->codes.AsKeys();
  if (partition->groups->codes.groups() == 0) {
    options.keys->groups = 1;
    options.empty = "fill";
  }
  return absl::OkStatus();
}

std::vector<LabelColumn> LabelsOf(const TextPartition& partition, const ArrayReply& reply) {
  if (partition.groups.has_value()) return partition.groups->labels;
  const std::string name = partition.key_name.empty() ? "key" : partition.key_name;
  if (!reply.keys.array.dtype.empty()) return {LabelsOf(name, reply.keys.array)};
  if (!partition.options.keys.has_value() || partition.options.keys->groups == 0) return {};
  LabelColumn labels{.name = name, .dtype = "i64"};
  for (std::int64_t key = 0; key < partition.options.keys->groups; ++key) {
    labels.labels.emplace_back(Value{.dtype = "i64", .value = key});
  }
  return {labels};
}

void EndGroups(const TextPartition& partition, ArrayReply* reply) {
  if (!partition.groups.has_value() || partition.groups->codes.groups() > 0) return;
  for (ResultArray& result : reply->results) {
    if (!result.error.ok()) continue;
    result.array.shape.front() = 0;
    result.array.data.clear();
  }
}

}  // namespace reduced::client
