// reducectl corr.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/commands/missing.h"
#include "client/reducectl/commands/pairs.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "kernels/algebra/op_call.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

struct CorrArguments {
  Question question{};
  bool cov = false;
};

std::string NameOfColumn(const Input& column, std::size_t number) {
  return !column.column.empty() ? column.column : !column.array.empty() ? column.array : absl::StrCat(number);
}

// The columns of a table, row by row. INVALID_ARGUMENT: arrays are no columns of one table.
absl::StatusOr<HostArray> RowsOf(const std::vector<Input>& columns) {
  std::vector<const Input*> inputs;
  for (const Input& column : columns) {
    inputs.push_back(&column);
    if (column.layout.shape.size() == 1 && column.layout.shape == columns[0].layout.shape) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("got arrays of shapes (", absl::StrJoin(columns[0].layout.shape, ", "), ") and (",
                     absl::StrJoin(column.layout.shape, ", "), "); allowed: columns of one length"));
  }
  ASSIGN_OR_RETURN(const std::vector<HostArray> doubles, AlikeDoubles(inputs, /*one_dtype=*/true));
  const std::int64_t rows = columns[0].layout.shape[0], size = std::ssize(columns);
  HostArray table{.dtype = ViewOf(columns[0], doubles[0]).dtype, .shape = {rows, size}};
  const auto width = static_cast<std::size_t>(*DTypeBytes(table.dtype));
  table.data.resize(static_cast<std::size_t>(rows * size) * width);
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const ArrayView view = ViewOf(columns[column], doubles[column]);
    char* to = table.data.data() + column * width;
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row, to += columns.size() * width) {
      std::memcpy(to, static_cast<const char*>(view.data) + row * width, width);
    }
  }
  return table;
}

ExitCode AskMatrix(const Place& place, const CommonOptions& common, const CorrArguments& arguments,
                   const std::string& source) {
  const Question& question = arguments.question;
  const std::string op = arguments.cov ? "cov" : "corr";
  InputOptions input = question.input;
  input.timeout = common.timeout.value_or(absl::InfiniteDuration());
  input.arrays = question.arrays;
  input.all_columns = true;
  input.missing = MissingFor({op}, question.options, Missing::kZero);
  ExitCode code = kOk;
  std::vector<std::string> notes, names;
  const std::vector<Input> columns = ReadArrays(source, input, common.json, &code, &notes);
  if (code != kOk) return code;
  const bool is_table = columns.size() == 1 && columns[0].layout.shape.size() == 2 && columns[0].missing.empty();
  const auto size = is_table ? static_cast<std::size_t>(columns[0].layout.shape[1]) : columns.size();
  if (size < 2 || size > kMaxColumns) {
    const std::string got = absl::StrCat("columns: got ", size, "; allowed: 2 to ", kMaxColumns);
    return ReportError(source, absl::StrCat(got, ", which --column names"), kData);
  }
  for (std::size_t i = 0; i < size; ++i) names.push_back(is_table ? absl::StrCat(i) : NameOfColumn(columns[i], i));
  absl::StatusOr<HostArray> rows = HostArray();
  if (!is_table) rows = RowsOf(columns);
  if (!rows.ok()) return ReportError(source, rows.status().message(), kData);
  const ArrayView table = is_table ? columns[0].View() : rows->View();
  const absl::StatusOr<ArrayReply> reply =
      AskWhole(place, table, std::nullopt, absl::StrCat(op, "_matrix(", size, ")"), question.options);
  if (!reply.ok()) return ReportCallError(source, reply.status());
  if (!reply->results[0].error.ok()) return ReportCallError(source, reply->results[0].error);
  std::vector<std::vector<Value>> matrix(size);
  for (std::size_t i = 0; i < size * size; ++i) {
    matrix[i / size].push_back(reply->results[0].array.At(static_cast<std::int64_t>(i)));
  }
  const Execution& ran = reply->execution;
  const std::int64_t count = table.shape[0];
  if (common.json) {
    Json lines = Json::array(), json = {{"source", source}, {"columns", names}, {"count", count}};
    for (const std::vector<Value>& row : matrix) {
      lines.push_back(Json::array());
      for (const Value& value : row) lines.back().push_back(ToJson(value));
    }
    json["results"][op] = std::move(lines);
    if (arguments.cov) json["ddof"] = question.options.ddof;
    json.update({{"engine", ran.engine}, {"device", ran.device}});
    if (!notes.empty()) json["notes"] = notes;
    std::cout << Dump(json) << "\n" << std::flush;
    return std::cout ? kOk : kOutput;
  }
  std::vector<std::vector<std::string>> lines(1, {"", ""});
  lines[0].insert(lines[0].end(), names.begin(), names.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    lines.push_back({"", names[i]});
    for (const Value& value : matrix[i]) lines.back().push_back(value.Text());
  }
  std::cout << Printable(source) << ": " << op
            << (arguments.cov ? absl::StrCat(" (ddof ", question.options.ddof, ")") : "") << ", " << count
            << " rows, ran on " << Printable(ran.device) << "\n"
            << FormatTable(std::move(lines), 2) << std::flush;
  return std::cout ? kOk : kOutput;
}

ExitCode RunCorr(const CommonOptions& common, const CorrArguments& arguments) {
  const std::optional<Place> place = PlaceOf(common, arguments.question);
  if (!place.has_value()) return kUsage;
  ExitCode failure = kOk;
  for (const std::string& source : arguments.question.sources) {
    KeepFirst(AskMatrix(*place, common, arguments, source), &failure);
  }
  return failure;
}

}  // namespace

void AddCorr(CommandLine& line) {
  const auto arguments = std::make_shared<CorrArguments>();
  Question* const question = &arguments->question;
  question->options.ddof = 1;
  CLI::App* command =
      line.Add("corr",
               "print the Pearson correlations of the columns of texts and of arrays of two dimensions, "
               "or of the arrays of .npz files, each with each; NaN of a constant one",
               [arguments](const CommonOptions& common) { return RunCorr(common, *arguments); });
  command->add_flag("--cov", arguments->cov, "print covariances instead");
  AddParsed(command, "--ddof", ParseWholeNumber, &question->options.ddof, "with --cov: they are divided by n - ddof")
      ->type_name("N")
      ->default_str("1");
  AddChoice(line, command, "--nan", &question->options.nan_policy,
            "what NaNs and missing fields do to the results; omit: rows in which one of two columns lacks its element "
            "are left out of that pair",
            NanPolicyNames())
      ->default_str("propagate");
  AddChoice(line, command, "--engine", &question->options.engine, "the engine", EngineNames())->capture_default_str();
  const std::vector<CLI::Option*> options = AddInput(line, command, &question->sources, &question->input);
  options.front()->required();
  command->get_option("--column")->delimiter(',')->type_name("NAME|INDEX,...");
  AddArrayNames(command, &question->arrays);
  command->final_callback([question] { CheckInput(question->input); });
}

}  // namespace reduced::client
