// reducectl corr.
#include <cstddef>
#include <cstdint>
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
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr std::size_t kMaxCorrColumns = 64;

struct CorrArguments {
  Question question{};
  bool cov = false;
};

// The columns of an array of two dimensions, each as an array.
std::vector<Input> ColumnsOf(const Input& whole) {
  const auto rows = static_cast<std::size_t>(whole.layout.shape[0]);
  const auto columns = static_cast<std::size_t>(whole.layout.shape[1]);
  const ArrayView view = whole.View();
  const auto width = static_cast<std::size_t>(*DTypeBytes(view.dtype));
  std::vector<Input> split(columns);
  for (std::size_t column = 0; column < columns; ++column) {
    std::string elements(rows * width, '\0');
    for (std::size_t row = 0; row < rows; ++row) {
      const char* const from = static_cast<const char*>(view.data) + (row * columns + column) * width;
      std::copy(from, from + width, &elements[row * width]);
    }
    split[column].layout = {.dtype = view.dtype, .shape = {whole.layout.shape[0]}};
    split[column].memory = Memory(std::move(elements));
    split[column].column = absl::StrCat(column);
  }
  return split;
}

std::string NameOfColumn(const Input& column, std::size_t number) {
  return !column.column.empty() ? column.column : !column.array.empty() ? column.array : absl::StrCat(number);
}

// Why arrays are no columns of one table.
absl::Status CheckColumns(const std::vector<Input>& columns) {
  if (columns.size() < 2 || columns.size() > kMaxCorrColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns: got ", columns.size(), "; allowed: 2 to ", kMaxCorrColumns, ", which --column names"));
  }
  for (const Input& column : columns) {
    if (column.layout.shape.size() == 1 && column.layout.shape == columns[0].layout.shape) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("got arrays of shapes (", absl::StrJoin(columns[0].layout.shape, ", "), ") and (",
                     absl::StrJoin(column.layout.shape, ", "), "); allowed: columns of one length"));
  }
  return absl::OkStatus();
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
  std::vector<std::string> notes;
  std::vector<Input> columns = ReadArrays(source, input, common.json, &code, &notes);
  if (code != kOk) return code;
  if (columns.size() == 1 && columns[0].layout.shape.size() == 2) columns = ColumnsOf(columns[0]);
  if (const absl::Status status = CheckColumns(columns); !status.ok())
    return ReportError(source, status.message(), kData);
  std::vector<std::string> names;
  for (const Input& column : columns) names.push_back(NameOfColumn(column, names.size()));
  std::vector<std::vector<Value>> matrix(columns.size(), std::vector<Value>(columns.size()));
  Execution ran;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t j = i; j < columns.size(); ++j) {
      const std::string subject = absl::StrCat(source, ": columns ", names[i], " and ", names[j]);
      const absl::StatusOr<std::vector<HostArray>> doubles = AlikeDoubles({&columns[i], &columns[j]});
      if (!doubles.ok()) return ReportError(subject, doubles.status().message(), kData);
      const absl::StatusOr<ArrayReply> reply = AskPair(place, common, ViewOf(columns[i], (*doubles)[0]),
                                                       ViewOf(columns[j], (*doubles)[1]), op, question.options);
      if (!reply.ok()) return ReportCallError(subject, reply.status());
      if (!reply->results[0].error.ok()) return ReportCallError(subject, reply->results[0].error);
      matrix[i][j] = matrix[j][i] = reply->results[0].array.At(0);
      ran = reply->execution;
    }
  }
  const std::int64_t count = columns[0].layout.shape[0];
  if (common.json) {
    Json rows = Json::array(), json = {{"source", source}, {"columns", names}, {"count", count}};
    for (const std::vector<Value>& row : matrix) {
      rows.push_back(Json::array());
      for (const Value& value : row) rows.back().push_back(ToJson(value));
    }
    json["results"][op] = std::move(rows);
    if (arguments.cov) json["ddof"] = question.options.ddof;
    json.update({{"engine", ran.engine}, {"device", ran.device}});
    if (!notes.empty()) json["notes"] = notes;
    std::cout << Dump(json) << "\n" << std::flush;
    return std::cout ? kOk : kOutput;
  }
  std::vector<std::vector<std::string>> rows(1, {"", ""});
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    rows.push_back({"", names[i]});
    for (const Value& value : matrix[i]) rows.back().push_back(value.Text());
  }
  std::cout << Printable(source) << ": " << op
            << (arguments.cov ? absl::StrCat(" (ddof ", question.options.ddof, ")") : "") << ", " << count
            << " rows, ran on " << Printable(ran.device) << "\n"
            << FormatTable(std::move(rows), 2) << std::flush;
  return std::cout ? kOk : kOutput;
}

ExitCode RunCorr(const CommonOptions& common, const CorrArguments& arguments) {
  const std::optional<Place> place = PlaceOf(common, arguments.question);
  if (!place.has_value()) return kUsage;
  ExitCode first_failure = kOk;
  for (const std::string& source : arguments.question.sources) {
    const ExitCode code = AskMatrix(*place, common, arguments, source);
    if (first_failure == kOk) first_failure = code;
  }
  return first_failure;
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
  command->add_option("--array", question->arrays, "the names of arrays in .npz files; default: all")
      ->allow_extra_args(false)
      ->type_name("NAME");
  command->final_callback([question] { CheckInput(question->input); });
}

}  // namespace reduced::client
