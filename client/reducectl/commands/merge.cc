// reducectl merge.
#include "reduced/merge.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

struct MergeArguments {
  std::vector<std::string> files;  // of states
  std::string state;               // the file for the merged state; empty: none
};

std::string Line(const MergeReply& reply) {
  Json results = Json::object();
  for (const Result& result : reply.results) results[result.op] = ToJson(result.value);
  return Dump({{"count", reply.count}, {"results", std::move(results)}}) + "\n";
}

std::string Table(const MergeReply& reply) {
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) rows.push_back({"", result.op, result.value.Text()});
  return absl::StrCat(reply.count, " elements\n", FormatTable(rows));
}

ExitCode Run(const CommonOptions& common, const MergeArguments& arguments) {
  std::vector<std::string> states;
  for (const std::string& file : arguments.files) {
    const absl::StatusOr<Memory> state = ReadSource(file, common.timeout.value_or(absl::InfiniteDuration()));
    if (!state.ok()) return ReportError(file, state.status().message(), kData);
    states.emplace_back(state->bytes());
  }
  const absl::StatusOr<MergeReply> reply =
      MergeStates(states, {.return_state = !arguments.state.empty(), .names = arguments.files});
  if (!reply.ok()) return ReportError("merge", reply.status().message(), kData);
  std::cout << (common.json ? Line(*reply) : Table(*reply)) << std::flush;
  return arguments.state.empty() ? kOk : WriteFile(arguments.state, reply->state);
}

}  // namespace

void AddMerge(CommandLine& line) {
  const auto arguments = std::make_shared<MergeArguments>();
  CLI::App* command = line.Add(
      "merge",
      "merge the states that `reduce --state` wrote for consecutive parts of an array, in order, and print the "
      "results for the whole array",
      [arguments](const CommonOptions& common) { return Run(common, *arguments); });
  command->add_option("FILE", arguments->files, "the states of the parts, in order")->required()->type_name("");
  command->add_option("--state", arguments->state, "also write the merged state to this file")->type_name("FILE");
}

}  // namespace reduced::client
