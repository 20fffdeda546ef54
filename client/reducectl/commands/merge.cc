// reducectl merge.
#include "reduced/merge.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/commands/answer.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/reduce_axes.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

struct MergeArguments {
  std::vector<std::string> files;  // of states
  std::string state;               // the file for the merged state; empty: none
  AxesArguments arrays;            // where arrays of results go
};

std::string Line(const MergeReply& reply) {
  Json results = Json::object();
  for (const Result& result : reply.results) results[result.op] = JsonOf(result);
  Json json = {{"count", reply.count}, {"results", std::move(results)}};
  AddErrors(ErrorsOf(reply.results), &json);
  return Dump(json) + "\n";
}

std::string Table(const MergeReply& reply) {
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) rows.push_back({"", result.op, TextOf(result)});
  return absl::StrCat(reply.count, " elements\n", FormatTable(rows));
}

// After the results: writes the state, and says which ops have none.
template <class AnyReply>
ExitCode End(const MergeArguments& arguments, const AnyReply& reply) {
  ExitCode code = arguments.state.empty() ? kOk : WriteFile(arguments.state, reply.state);
  for (const auto& [op, error] : ErrorsOf(reply.results)) code = ReportError("merge", error.message(), kData);
  return code;
}

// Of states without results: if only an op's answer is what they lack, writes the merged state nevertheless.
template <class Merge>
ExitCode EndWithError(const MergeArguments& arguments, const std::vector<std::string>& states, const Merge& merge,
                      const absl::Status& error) {
  if (!arguments.state.empty()) {
    const auto reply =
        merge(states, MergeStatesOptions{.return_state = true, .results = false, .names = arguments.files});
    if (reply.ok()) WriteFile(arguments.state, reply->state);
  }
  return ReportError("merge", error.message(), kData);
}

// Of states of arrays of results.
ExitCode MergeArrays(const CommonOptions& common, const MergeArguments& arguments,
                     const std::vector<std::string>& states) {
  const AxesArguments& arrays = arguments.arrays;
  const absl::StatusOr<MergeArraysReply> reply =
      MergeArrayStates(states, {.return_state = !arguments.state.empty(), .names = arguments.files});
  if (!reply.ok()) return EndWithError(arguments, states, MergeArrayStates, reply.status());
  if (reply->results.size() > 1 && !arrays.out.empty() && !absl::StrContains(arrays.out, "{op}")) {
    return ReportError("--out", "got one name for several ops; allowed: a name with {op} in it", kData);
  }
  const ExitCode code = WriteArrays(arrays, reply->results, reply->keys);
  if (code != kOk) return code;
  const bool keys = !reply->keys.array.dtype.empty();
  if (common.json) {
    Json results = Json::object();
    for (const ResultArray& result : reply->results) results[result.op] = ArrayJson(arrays, result);
    Json json = {{"count", reply->count}};
    if (keys) json["keys"] = ArrayJson(arrays, reply->keys);
    json["results"] = std::move(results);
    AddErrors(ErrorsOf(reply->results), &json);
    std::cout << Dump(json) << std::endl;
  } else {
    std::cout << reply->count << " elements\n" << ArraysText(arrays, reply->results, reply->keys) << std::flush;
  }
  if (!std::cout) return kOutput;
  return End(arguments, *reply);
}

ExitCode Run(const CommonOptions& common, const MergeArguments& arguments) {
  std::vector<std::string> states;
  for (const std::string& file : arguments.files) {
    const absl::StatusOr<Memory> state = ReadSource(file, common.timeout.value_or(absl::InfiniteDuration()));
    if (!state.ok()) return ReportError(file, state.status().message(), kData);
    states.emplace_back(state->bytes());
  }
  if (IsArrayState(states.front())) return MergeArrays(common, arguments, states);
  if (!arguments.arrays.out.empty() || !arguments.arrays.out_keys.empty()) {
    return ReportError("merge", "--out, --out-keys: got states of one result for each op; allowed: of arrays", kData);
  }
  const absl::StatusOr<MergeReply> reply =
      MergeStates(states, {.return_state = !arguments.state.empty(), .names = arguments.files});
  if (!reply.ok()) return EndWithError(arguments, states, MergeStates, reply.status());
  std::cout << (common.json ? Line(*reply) : Table(*reply)) << std::flush;
  return End(arguments, *reply);
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
  command
      ->add_option("--out", arguments->arrays.out,
                   "write arrays of results to .npy files of this name, in which {op} is the op; default: print them")
      ->type_name("FILE");
  command->add_option("--out-keys", arguments->arrays.out_keys, "write the keys of the outputs to this .npy file")
      ->type_name("FILE");
}

}  // namespace reduced::client
