#include "reduced/group_keys.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/key_encoder.h"
#include "client/lib/key_rows.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

template <class Key>
KeyCodes Encode(const KeyRows<Key>& rows, const KeyEncoding& how) {
  if (rows.count() > std::numeric_limits<std::int32_t>::max()) return EncodeRows<Key, std::int64_t>(rows, how);
  return EncodeRows<Key, std::int32_t>(rows, how);
}

// The codes of several columns together. Those that have as many combinations as a number of 64 bits can tell apart
// are one column of numbers; what follows is combined with their codes.
KeyCodes Combine(std::vector<KeyCodes> columns, const KeyEncoding& how) {
  KeyCodes so_far = std::move(columns[0]);
  for (std::size_t next = 1; next < columns.size();) {
    std::vector<const KeyCodes*> together = {&so_far};
    unsigned __int128 combinations = static_cast<std::uint64_t>(so_far.groups());
    for (; next < columns.size(); ++next) {
      combinations *= static_cast<std::uint64_t>(columns[next].groups());
      if (combinations > std::numeric_limits<std::uint64_t>::max()) {
        if (together.size() == 1) throw std::bad_alloc();  // two columns of more than 2^32 groups: no memory has both
        break;
      }
      together.push_back(&columns[next]);
    }
    so_far = Encode(*CombinedRows(together), how);
  }
  return so_far;
}

}  // namespace

absl::StatusOr<KeyCodes> EncodeKeys(std::span<const KeyColumn> columns, const EncodeOptions& options) {
  if (columns.empty()) return absl::InvalidArgumentError("keys: got no column; allowed: one or more");
  const std::vector<std::string> names = MissingKeyNames();
  if (std::find(names.begin(), names.end(), options.missing) == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("missing: got ", options.missing, "; allowed: drop, group"));
  }
  const KeyEncoding how = {.sort = options.sort, .group_missing = options.missing == "group"};
  std::vector<std::variant<NumberRows, TextRows>> all;
  std::int64_t count = 0;
  for (const KeyColumn& column : columns) {
    const std::string name = absl::StrCat("keys[", all.size(), "]");
    ASSIGN_OR_RETURN(auto rows, RowsOf(column, name));
    const std::int64_t its = std::visit([](const auto& each) { return each->count(); }, rows);
    if (!all.empty() && its != count) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": got ", its, " rows; allowed: the ", count, " of keys[0]"));
    }
    count = its;
    all.push_back(std::move(rows));
  }
  try {
    std::vector<KeyCodes> codes;
    codes.reserve(all.size());
    for (const auto& rows : all) {
      codes.push_back(std::visit([&](const auto& each) { return Encode(*each, how); }, rows));
    }
    return Combine(std::move(codes), how);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("keys: there is no memory for the groups of ", count, " rows"));
  }
}

std::vector<std::string> MissingKeyNames() { return {"drop", "group"}; }

}  // namespace reduced::client
