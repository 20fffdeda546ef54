#include "client/reducectl/commands/group_by.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr char kDates[] = "dates in ISO 8601, such as 2026-03-01, 2026-03-01T06:30 or 2026-03-01T06:30:00Z";

absl::Status BadDate(const FieldColumn& column, std::int64_t row, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("line ", column.line(row), ": column \"", column.name().substr(0, 60),
                                                 "\": got \"", absl::CHexEscape(column.text(row).substr(0, 60)),
                                                 "\"; allowed: ", allowed));
}

// Whether the first field that is not missing is a date.
bool BeginsWithDate(const FieldColumn& column) {
  for (std::int64_t row = 0; row < column.rows(); ++row) {
    if (!column.missing(row)) return ParseDateTime(column.text(row)).has_value();
  }
  return false;
}

// The first second of the bucket of each row, or 0 where the key is missing.
absl::StatusOr<std::vector<std::int64_t>> BucketStarts(const FieldColumn& column, const Bucket& bucket, bool* offset) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(column.rows()));
  std::int64_t first = -1;  // row with a date
  for (std::int64_t row = 0; row < column.rows(); ++row) {
    if (column.missing(row)) continue;
    const std::optional<DateTime> time = ParseDateTime(column.text(row));
    if (!time.has_value()) return BadDate(column, row, kDates);
    if (first < 0) *offset = time->offset;
    if (first < 0) first = row;
    if (time->offset != *offset) {
      return BadDate(
          column, row,
          absl::StrCat(*offset ? "times with Z or an offset" : "no offset", ", as line ", column.line(first), " has"));
    }
    starts[static_cast<std::size_t>(row)] = BucketStart(bucket, time->seconds);
  }
  return starts;
}

KeyColumn NumbersOf(const FieldColumn& column, const void* elements, std::string dtype) {
  return KeyColumn::Numbers({.data = elements, .dtype = std::move(dtype), .shape = {column.rows()}},
                            {.data = column.valid().data()});
}

// The groups that are left where the mask is 1, in their order.
absl::StatusOr<KeyCodes> Masked(const KeyCodes& codes, const std::string& mask, const GroupByOptions& options) {
  std::vector<std::uint8_t> kept(mask.begin(), mask.end());
  codes.Visit([&](const auto* each) {
    for (std::size_t row = 0; row < kept.size(); ++row) kept[row] = kept[row] != 0 && each[row] >= 0 ? 1 : 0;
  });
  const KeyColumn column = KeyColumn::Numbers(codes.View(), {.data = kept.data()});
  return EncodeKeys({&column, 1}, {.sort = options.sort});
}

}  // namespace

absl::StatusOr<TextGroups> GroupByFields(const std::vector<const FieldColumn*>& columns, const GroupByOptions& options,
                                         const std::string& mask) {
  TextGroups groups;
  std::vector<KeyColumn> keys;
  std::vector<std::vector<std::int64_t>> starts(columns.size());  // of buckets; empty: the column has none
  std::size_t buckets = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const FieldColumn& column = *columns[i];
    if (options.bucket.has_value() && (columns.size() == 1 || BeginsWithDate(column))) {
      bool offset = false;
      ASSIGN_OR_RETURN(starts[i], BucketStarts(column, *options.bucket, &offset));
      ++buckets;
      if (offset) groups.notes.push_back(absl::StrCat("column \"", column.name().substr(0, 60), "\": times are UTC"));
      keys.push_back(NumbersOf(column, starts[i].data(), "i64"));
    } else if (!column.dtype().empty()) {
      keys.push_back(NumbersOf(column, column.numbers().bytes().data(), column.dtype()));
    } else {
      keys.push_back(KeyColumn::Utf8(column.offsets(), column.data(), {.data = column.valid().data()}));
    }
    for (std::string& note : column.notes()) groups.notes.push_back(std::move(note));
  }
  if (options.bucket.has_value() && buckets == 0) {
    const auto name = [](std::string* out, const FieldColumn* column) { absl::StrAppend(out, column->name()); };
    return absl::InvalidArgumentError(
        absl::StrCat("got --bucket for ", absl::StrJoin(columns, ", ", name), "; allowed: a column of ", kDates));
  }
  absl::StatusOr<KeyCodes> codes = EncodeKeys(keys, {.sort = options.sort, .missing = options.missing});
  if (!codes.ok()) return codes.status();
  codes->Visit([&](const auto* each) {
    for (std::int64_t row = 0; row < codes->rows(); ++row) {
      const bool kept = mask.empty() || mask[static_cast<std::size_t>(row)] != 0;
      groups.dropped += kept && each[row] < 0 ? 1 : 0;
    }
  });
  if (!mask.empty()) codes = Masked(*codes, mask, options);
  if (!codes.ok()) return codes.status();
  groups.codes = *std::move(codes);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const FieldColumn& column = *columns[i];
    LabelColumn labels{.name = column.name(), .dtype = column.dtype().empty() ? "text" : column.dtype()};
    if (!starts[i].empty()) labels.dtype = "text";
    for (const std::int64_t row : groups.codes.first) {
      if (column.missing(row)) {
        labels.labels.emplace_back();
      } else if (!starts[i].empty()) {
        labels.labels.emplace_back(BucketText(*options.bucket, starts[i][static_cast<std::size_t>(row)]));
      } else if (labels.dtype == "text") {
        labels.labels.emplace_back(std::string(column.text(row)));
      } else {
        const std::int64_t width = *DTypeBytes(labels.dtype);
        const std::string element(
            column.numbers().bytes().substr(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width)));
        labels.labels.emplace_back(HostArray{.dtype = labels.dtype, .shape = {1}, .data = element}.At(0));
      }
    }
    groups.labels.push_back(std::move(labels));
  }
  return groups;
}

LabelColumn LabelsOf(std::string name, const HostArray& keys) {
  LabelColumn labels{.name = std::move(name), .dtype = keys.dtype};
  for (std::int64_t i = 0; i < keys.shape.front(); ++i) labels.labels.emplace_back(keys.At(i));
  return labels;
}

}  // namespace reduced::client
