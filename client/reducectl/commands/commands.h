// The commands of reducectl, one file each. Every function here adds a command, with its options, its help and what it
// runs.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_

#include "client/reducectl/command_line/exit_code.h"

namespace reduced::client {

// Runs the command that the arguments of main() ask for. Prints its answer on standard output and errors on standard
// error.
ExitCode RunCommand(int argc, char** argv);

struct CommandLine;

void AddReduce(CommandLine& line);
void AddDescribe(CommandLine& line);
void AddHistogram(CommandLine& line);
void AddCompare(CommandLine& line);
void AddCorr(CommandLine& line);
void AddFingerprint(CommandLine& line);
void AddMerge(CommandLine& line);
void AddArrays(CommandLine& line);
void AddLadder(CommandLine& line);
void AddLoadtest(CommandLine& line);
void AddInfo(CommandLine& line);
void AddOps(CommandLine& line);
void AddPipelines(CommandLine& line);
void AddHealth(CommandLine& line);
void AddDoctor(CommandLine& line);
void AddCompletion(CommandLine& line);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_
