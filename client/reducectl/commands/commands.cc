#include "client/reducectl/commands/commands.h"

#include "client/reducectl/command_line/command_line.h"

namespace reduced::client {
namespace {

// In the order of --help.
constexpr void (*kCommands[])(CommandLine&) = {
    AddReduce, AddDescribe, AddHistogram, AddCompare, AddFingerprint, AddCorr,   AddMerge,  AddArrays,
    AddLadder, AddLoadtest, AddInfo,      AddOps,     AddPipelines,   AddHealth, AddDoctor, AddCompletion};

}  // namespace

ExitCode RunCommand(int argc, char** argv) {
  CommandLine line;
  line.app.set_version_flag("--version", "reducectl " REDUCED_VERSION);
  for (const auto& add : kCommands) add(line);
  return line.ParseAndRun(argc, argv);
}

}  // namespace reduced::client
