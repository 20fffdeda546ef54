#include "client/reducectl/commands/group_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/array_text.h"
#include "client/reducectl/output/printable.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr std::int64_t kMostRows = 1000;  // that are all printed
constexpr std::int64_t kEdgeRows = 5;     // of others, at each end

std::int64_t Groups(const std::vector<LabelColumn>& labels) { return std::ssize(labels.front().labels); }

// The numbers of a result that each group has.
std::int64_t Width(const ResultArray& result) {
  std::int64_t width = 1;
  for (std::size_t i = 1; i < result.array.shape.size(); ++i) width *= result.array.shape[i];
  return result.error.ok() ? width : 1;
}

std::string TextOf(const Label& label, const char* missing) {
  if (const auto* const text = std::get_if<std::string>(&label)) return *text;
  if (const auto* const number = std::get_if<Value>(&label)) return number->Text();
  return missing;
}

Json JsonOf(const Label& label) {
  if (const auto* const text = std::get_if<std::string>(&label)) return *text;
  if (const auto* const number = std::get_if<Value>(&label)) return ToJson(*number);
  return {};
}

// The names of all columns, and the texts of a group in them.
std::vector<std::string> Names(const std::vector<LabelColumn>& labels, const std::vector<ResultArray>& results) {
  std::vector<std::string> names;
  for (const LabelColumn& column : labels) names.push_back(column.name);
  for (const ResultArray& result : results) {
    const std::int64_t width = Width(result);
    for (std::int64_t i = 0; i < width; ++i) {
      names.push_back(width == 1 ? result.op : absl::StrCat(result.op, "[", i, "]"));
    }
  }
  return names;
}

std::vector<std::string> Row(const std::vector<LabelColumn>& labels, const std::vector<ResultArray>& results,
                             std::int64_t group, const char* missing, const char* none) {
  std::vector<std::string> row;
  for (const LabelColumn& column : labels)
    row.push_back(TextOf(column.labels[static_cast<std::size_t>(group)], missing));
  for (const ResultArray& result : results) {
    const std::int64_t width = Width(result);
    for (std::int64_t i = 0; i < width; ++i) {
      row.push_back(result.error.ok() ? result.array.At(group * width + i).Text() : none);
    }
  }
  return row;
}

// A field of CSV: in quotes if it could be read otherwise.
std::string CsvField(const std::string& text) {
  const bool blank_end = !text.empty() && (text.front() == ' ' || text.back() == ' ');
  if (!blank_end && text.find_first_of(",\"\r\n#;\t") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

absl::Status CheckNames(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (seen.insert(name).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("got two columns of the name ", Printable(name),
                                                   " in a table; allowed: keys and ops of different names"));
  }
  return absl::OkStatus();
}

// The values of a result that one group has, as JSON.
Json ValuesOf(const ResultArray& result, std::int64_t group) {
  if (!result.error.ok()) return {};
  const std::int64_t width = Width(result);
  HostArray values{.dtype = result.array.dtype, .shape = {result.array.shape.begin() + 1, result.array.shape.end()}};
  const std::size_t bytes = static_cast<std::size_t>(width * *DTypeBytes(result.array.dtype));
  values.data = result.array.data.substr(static_cast<std::size_t>(group) * bytes, bytes);
  return ToJson(values);
}

// The characters of UTF-8. False: it is none.
bool AppendCharacters(absl::string_view text, std::vector<std::uint32_t>* characters) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t size = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || i + size > text.size()) return false;
    std::uint32_t character = size == 1 ? lead : lead & (0x7fU >> size);
    for (std::size_t j = 1; j < size; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xc0U) != 0x80) return false;
      character = character << 6 | (next & 0x3fU);
    }
    constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // of each size
    if (character < kLeast[size] || character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) return false;
    characters->push_back(character);
    i += size;
  }
  return true;
}

}  // namespace

bool IsTableName(absl::string_view path) {
  return absl::EndsWithIgnoreCase(path, ".csv") || absl::EndsWithIgnoreCase(path, ".json");
}

std::string GroupTableText(const std::vector<LabelColumn>& labels, const std::vector<ResultArray>& results) {
  std::vector<std::vector<std::string>> rows = {Names(labels, results)};
  const std::int64_t groups = Groups(labels);
  for (std::int64_t group = 0; group < groups; ++group) {
    if (groups > kMostRows && group == kEdgeRows) {
      rows.emplace_back(rows.front().size(), "...");
      group = groups - kEdgeRows;
    }
    rows.push_back(Row(labels, results, group, "(missing)", "-"));
  }
  for (std::vector<std::string>& row : rows) row.insert(row.begin(), "");
  return FormatTable(std::move(rows), labels.size() + 1);
}

std::string LabelsText(const std::vector<LabelColumn>& labels) {
  std::string text;
  for (const LabelColumn& column : labels) {
    const std::int64_t groups = std::ssize(column.labels);
    std::vector<std::string> items;
    for (std::int64_t group = 0; group < groups; ++group) {
      if (groups > kMostRows && group == kEdgeRows) {
        items.emplace_back("...");
        group = groups - kEdgeRows;
      }
      const Label& label = column.labels[static_cast<std::size_t>(group)];
      items.push_back(std::holds_alternative<std::string>(label) ? PrintableJson(Dump(JsonOf(label)))
                                                                 : TextOf(label, "null"));
    }
    absl::StrAppend(&text, "[", absl::StrJoin(items, " "), "]\n");
  }
  return text;
}

Json LabelsJson(const std::vector<LabelColumn>& labels) {
  Json all = Json::array();
  for (const LabelColumn& column : labels) {
    Json values = Json::array();
    for (const Label& label : column.labels) values.push_back(JsonOf(label));
    all.push_back({{"name", column.name},
                   {"dtype", column.dtype},
                   {"shape", {column.labels.size()}},
                   {"values", std::move(values)}});
  }
  return all.size() == 1 ? all[0] : all;
}

absl::StatusOr<std::string> GroupTableFile(absl::string_view path, const std::vector<LabelColumn>& labels,
                                           const std::vector<ResultArray>& results) {
  const std::vector<std::string> names = Names(labels, results);
  RETURN_IF_ERROR(CheckNames(names));
  const std::int64_t groups = Groups(labels);
  std::string text;
  const auto add_row = [&](const std::vector<std::string>& row) {
    absl::StrAppend(
        &text,
        absl::StrJoin(row, ",",
                      [](std::string* out, const std::string& field) { absl::StrAppend(out, CsvField(field)); }),
        "\n");
  };
  if (absl::EndsWithIgnoreCase(path, ".csv")) {
    add_row(names);
    for (std::int64_t group = 0; group < groups; ++group) add_row(Row(labels, results, group, "", ""));
    return text;
  }
  text = "[";
  for (std::int64_t group = 0; group < groups; ++group) {
    Json row = Json::object();
    for (const LabelColumn& column : labels) row[column.name] = JsonOf(column.labels[static_cast<std::size_t>(group)]);
    for (const ResultArray& result : results) row[result.op] = ValuesOf(result, group);
    absl::StrAppend(&text, group == 0 ? "\n" : ",\n", Dump(row));
  }
  return absl::StrCat(text, "\n]\n");
}

absl::StatusOr<std::string> LabelsNpy(const LabelColumn& labels) {
  const auto groups = static_cast<std::int64_t>(labels.labels.size());
  if (labels.dtype == "text") {
    std::vector<std::vector<std::uint32_t>> texts;
    std::size_t width = 1;  // NumPy has no dtype of none
    for (const Label& label : labels.labels) {
      const std::string text = TextOf(label, "");
      texts.emplace_back();
      if (!AppendCharacters(text, &texts.back())) {
        return absl::InvalidArgumentError(absl::StrCat("got \"", absl::CHexEscape(text.substr(0, 60)),
                                                       "\"; allowed: UTF-8 in a .npy file, or a .csv file"));
      }
      width = std::max(width, texts.back().size());
    }
    std::string file = NpyHeader(absl::StrCat("U", width), {groups});
    for (std::vector<std::uint32_t>& text : texts) {
      text.resize(width);
      file.append(reinterpret_cast<const char*>(text.data()), width * sizeof(std::uint32_t));
    }
    return file;
  }
  std::string file = NpyHeader(labels.dtype, {groups});
  for (const Label& label : labels.labels) {
    const auto* const number = std::get_if<Value>(&label);
    if (number == nullptr) {
      return absl::InvalidArgumentError(
          "got a missing key among numbers; allowed: none in a .npy file, or a .csv or .json file");
    }
    std::visit([&](const auto& value) { file.append(reinterpret_cast<const char*>(&value), sizeof(value)); },
               number->value);
  }
  return file;
}

}  // namespace reduced::client
