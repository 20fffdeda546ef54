// The command line of reducectl: the options that all commands share, and what the commands add to it.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_COMMAND_LINE_H_
#define REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/exit_code.h"

namespace reduced::client {

// The values that options like "--engine" can have. "loadtest --via": those of one command only.
using Choices = std::map<std::string, std::vector<std::string>>;

// Must stay where it is: CLI11 and the commands keep pointers to its members.
struct CommandLine {
  // Runs a command after its options have been parsed. Prints the answer on standard output and errors on standard
  // error.
  using Run = std::function<ExitCode(const CommonOptions&)>;

  CommandLine();  // has the common options
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Adds a command to the app, or to the command `parent`. A command without `run` requires one of its subcommands.
  CLI::App* Add(const std::string& name, const std::string& help, Run run) { return Add(&app, name, help, run); }
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& help, Run run);

  // Parses the arguments and runs the command.
  ExitCode ParseAndRun(int argc, char** argv);

  CLI::App app;
  CommonOptions common;
  Choices choices;
  std::map<const CLI::App*, Run> runs;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_COMMAND_LINE_H_
