#include "reduced/merge.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

std::string Line(const MergeReply& reply) {
  Json results = Json::object();
  for (const Result& result : reply.results) results[result.op] = ToJson(result.value);
  return Dump({{"count", reply.count}, {"results", std::move(results)}}) + "\n";
}

std::string Table(const MergeReply& reply) {
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) rows.push_back({"", result.op, ToText(result.value)});
  return absl::StrCat(reply.count, " elements\n", FormatTable(rows));
}

}  // namespace

ExitCode WriteState(const std::string& file, const std::string& state) {
  std::ofstream out(file, std::ios::binary);
  if (out.write(state.data(), static_cast<std::streamsize>(state.size())).flush()) return kOk;
  std::cerr << "reducectl: " << file << ": can't be written\n";
  return kOutput;
}

ExitCode RunMerge(const CommonOptions& common, const MergeArguments& arguments) {
  std::vector<std::string> states;
  for (const std::string& file : arguments.files) {
    std::ifstream in(file, std::ios::binary);
    states.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!in.is_open() || in.bad()) {
      std::cerr << "reducectl: " << file << ": can't be read\n";
      return kData;
    }
  }
  const absl::StatusOr<MergeReply> reply =
      MergeStates(states, {.return_state = !arguments.state.empty(), .names = arguments.files});
  if (!reply.ok()) {
    std::cerr << "reducectl: merge: " << reply.status().message() << "\n";
    return kData;
  }
  std::cout << (common.json ? Line(*reply) : Table(*reply)) << std::flush;
  return arguments.state.empty() ? kOk : WriteState(arguments.state, reply->state);
}

}  // namespace reduced::client
