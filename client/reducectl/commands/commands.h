// The commands of reducectl, one file each. Every function here adds a command, with its options, its help and what it
// runs.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_

namespace reduced::client {

struct CommandLine;

void AddReduce(CommandLine& line);
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
