// reducectl describe.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

// In the order of the table. NaNs are left out of all but nan_count.
const char* const kStatistics[] = {"count", "nan_count", "mean", "std", "min", "max", "argmin", "argmax", "sum"};
constexpr std::int64_t kDdof = 1;

std::string Line(const Answer& answer) {
  Json results = Json::object();
  for (const char* const name : kStatistics) {
    const Value* const value = answer.reply.Find(name);
    results[name] = value == nullptr ? Json() : ToJson(*value);
  }
  return JsonLine(answer, std::move(results), {{"ddof", kDdof}});
}

ExitCode Describe(const CommonOptions& common, Question question) {
  question.ops.assign(std::begin(kStatistics), std::end(kStatistics));
  question.options.nan_policy = "omit";
  question.options.ddof = kDdof;
  question.input.all_columns = true;
  question.lenient = true;
  std::vector<std::vector<std::string>> rows(1, {"", "DTYPE"});
  for (const char* const name : kStatistics) rows[0].push_back(absl::AsciiStrToUpper(name));
  const ExitCode code = Ask(common, std::move(question), [&](const Answer& answer) {
    if (common.json) {
      std::cout << Line(answer) << std::flush;
      return kOk;
    }
    const std::string name = NameOf(answer);
    rows.push_back({absl::StrCat(answer.source, name.empty() ? "" : ": ", name), answer.dtype});
    for (const char* const name : kStatistics) {
      const Value* const value = answer.reply.Find(name);
      rows.back().push_back(value == nullptr ? "-" : value->Text());
    }
    return kOk;
  });
  if (rows.size() > 1) std::cout << FormatTable(std::move(rows), 2) << std::flush;
  return code;
}

}  // namespace

void AddDescribe(CommandLine& line) {
  const auto question = std::make_shared<Question>();
  CLI::App* command = line.Add(
      "describe",
      absl::StrCat("print ", absl::StrJoin(kStatistics, ", "),
                   " of each array of files, of all columns of texts; NaNs count as missing, and std has ddof 1"),
      [question](const CommonOptions& common) { return Describe(common, *question); });
  AddChoice(line, command, "--engine", &question->options.engine, "the engine", EngineNames())->capture_default_str();
  AddInput(line, command, &question->sources, &question->input).front()->required();
  command->add_option("--array", question->arrays, "the names of arrays in .npz files; default: all")
      ->allow_extra_args(false)
      ->type_name("NAME");
  command->final_callback([question] { CheckInput(question->input); });
}

}  // namespace reduced::client
