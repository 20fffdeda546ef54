// reducectl describe.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
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

constexpr char kQuartiles[] = "quantile(0.25,0.5,0.75)";
constexpr std::int64_t kDdof = 1;

// A column of the table: the op that has it, of which NaNs are left out.
struct Statistic {
  const char* name;
  const char* op;
  std::int64_t index = 0;  // in the answer of kQuartiles
};
// The first nine as pandas has them.
constexpr Statistic kStatistics[] = {{"count", "count"},     {"missing", "nan_count"}, {"mean", "mean"},
                                     {"std", "std"},         {"min", "min"},           {"25%", kQuartiles, 0},
                                     {"50%", kQuartiles, 1}, {"75%", kQuartiles, 2},   {"max", "max"},
                                     {"argmin", "argmin"},   {"argmax", "argmax"},     {"sum", "sum"}};

// Absent: the op has no answer.
std::optional<Value> ValueOf(const Reply& reply, const Statistic& statistic) {
  if (statistic.op == kQuartiles) {
    const HostArray* const quartiles = reply.FindArray(kQuartiles);
    return quartiles == nullptr ? std::nullopt : std::optional(quartiles->At(statistic.index));
  }
  const Value* const value = reply.Find(statistic.op);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

// Of a column without numbers.
std::string WordsLine(const Answer& answer) {
  const Words& words = *answer.words;
  const auto if_known = [&words](Json value) { return words.known ? value : Json(); };
  Json json = {{"source", answer.source},
               {"column", answer.column},
               {"dtype", answer.dtype},
               {"shape", answer.shape},
               {"results",
                {{"count", words.count},
                 {"missing", words.missing},
                 {"distinct", if_known(words.distinct)},
                 {"most_frequent", if_known(words.most_frequent)},
                 {"frequency", if_known(words.frequency)}}}};
  if (!answer.notes.empty()) json["notes"] = answer.notes;
  return Dump(json) + "\n";
}

std::string Line(const Answer& answer) {
  if (answer.words.has_value()) return WordsLine(answer);
  Json results = Json::object();
  for (const Statistic& each : kStatistics) {
    const std::optional<Value> value = ValueOf(answer.reply, each);
    results[each.name] = value.has_value() ? ToJson(*value) : Json();
  }
  results["nan_count"] = results["missing"];  // its name as that of an op
  return JsonLine(answer, std::move(results), {{"ddof", kDdof}});
}

ExitCode Describe(const CommonOptions& common, Question question) {
  question.ops.clear();
  for (const Statistic& each : kStatistics) {
    if (each.index == 0) question.ops.emplace_back(each.op);
  }
  question.options.nan_policy = "omit";
  question.options.ddof = kDdof;
  question.input.all_columns = question.input.texts = true;
  question.lenient = true;
  std::vector<std::vector<std::string>> rows(1, {"", "DTYPE"});
  for (const Statistic& each : kStatistics) rows[0].push_back(absl::AsciiStrToUpper(each.name));
  const ExitCode code = Ask(common, std::move(question), [&](const Answer& answer) {
    if (common.json) {
      std::cout << Line(answer) << std::flush;
      return kOk;
    }
    const std::string name = NameOf(answer);
    rows.push_back({absl::StrCat(answer.source, name.empty() ? "" : ": ", name), answer.dtype});
    if (answer.words.has_value()) {
      const Words& words = *answer.words;
      rows.back().insert(rows.back().end(), {absl::StrCat(words.count), absl::StrCat(words.missing)});
      rows.back().resize(2 + std::size(kStatistics), "-");
      if (words.known) {
        rows.back().insert(rows.back().end(),
                           {absl::StrCat(words.distinct), words.most_frequent, absl::StrCat(words.frequency)});
      } else {
        rows.back().resize(rows.back().size() + 3, "-");
      }
      return kOk;
    }
    for (const Statistic& each : kStatistics) {
      const std::optional<Value> value = ValueOf(answer.reply, each);
      rows.back().push_back(value.has_value() ? value->Text() : "-");
    }
    return kOk;
  });
  // Columns without numbers have three more.
  const auto widest =
      std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (widest->size() > rows[0].size()) {
    rows[0].insert(rows[0].end(), {"DISTINCT", "MOST FREQUENT", "TIMES"});
    for (auto& row : rows) row.resize(rows[0].size(), "-");
  }
  if (rows.size() > 1) std::cout << FormatTable(std::move(rows), 2) << std::flush;
  return code;
}

}  // namespace

void AddDescribe(CommandLine& line) {
  const auto question = std::make_shared<Question>();
  const auto append_name = [](std::string* out, const Statistic& each) { *out += each.name; };
  CLI::App* command = line.Add(
      "describe",
      absl::StrCat("print ", absl::StrJoin(kStatistics, ", ", append_name),
                   " of each array of files and each column of texts. NaNs count as missing, and std has ddof 1. For a "
                   "column without numbers: count, missing, the number of different texts, and the most frequent one"),
      [question](const CommonOptions& common) { return Describe(common, *question); });
  AddChoice(line, command, "--engine", &question->options.engine, "the engine", EngineNames())->capture_default_str();
  AddInput(line, command, &question->sources, &question->input).front()->required();
  AddArrayNames(command, &question->arrays);
  command->final_callback([question] { CheckInput(question->input); });
}

}  // namespace reduced::client
