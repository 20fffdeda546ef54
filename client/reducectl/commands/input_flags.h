// The options of commands that read arrays from files.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_INPUT_FLAGS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_INPUT_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {

// Adds FILE..., which is the first option that this returns, and the options about its format.
std::vector<CLI::Option*> AddInput(CommandLine& line, CLI::App* command, std::vector<std::string>* sources,
                                   InputOptions* input);

// Adds --array: which arrays of files with several are read; none: all.
void AddArrayNames(CLI::App* command, std::vector<std::string>* arrays);

// Throws CLI::ValidationError if the options contradict each other.
void CheckInput(const InputOptions& input);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_INPUT_FLAGS_H_
