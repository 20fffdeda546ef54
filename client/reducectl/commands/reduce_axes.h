// reducectl reduce with --axis, --segments, --lengths, --keys, --where or an op of the distribution: the options, and
// what they do.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_REDUCE_AXES_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_REDUCE_AXES_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/group_by.h"
#include "client/reducectl/commands/side_files.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {

inline constexpr char kOpPlaceholder[] = "{op}";  // in the name of a file for results: the op

struct AxesArguments {
  PartitionOptions options{};
  bool axis = false;  // --axis
  SideArguments sides{};
  GroupByOptions group_by{};
  std::string groups = "any";
  std::string outside = "error";
  bool keep = false;
  KeepOptions kept{};  // with `keep`
  bool quiet = false;
  std::string out{};       // the files for results, with {op} for the op; empty: print them
  std::string out_keys{};  // the file for the keys; empty: print them
  std::string write_to{};  // the shared memory that the server writes results to; empty: none
  std::int64_t write_offset = 0;
  std::string state{};  // the file for the state; empty: none

  // Whether keys stay what they are, of which only integers can be keys of a server: their groups are given, or others
  // will see the keys.
  bool plain_keys() const { return groups != AxesArguments().groups || keep || !write_to.empty() || !state.empty(); }
  // Whether the results are arrays.
  bool given() const { return axis || sides.given() || options.whole; }
};

void AddAxes(CommandLine& line, CLI::App* command, AxesArguments* arguments);

// Throws CLI::Error if the options contradict each other or the question.
void CheckAxes(const Question& question, const AxesArguments& arguments);

// Reduces all arrays of the question, in order, and prints or writes the results. Returns the code of the first
// failure.
ExitCode ReduceAxes(const CommonOptions& common, Question question, const AxesArguments& arguments);

// Writes arrays of results, and keys if there are any, to the files of the arguments.
ExitCode WriteArrays(const AxesArguments& arguments, const std::vector<ResultArray>& results, const ResultArray& keys);

// An array of results, or where it is, as JSON. One without dimensions that is printed is its value; an error is null.
Json ArrayJson(const AxesArguments& arguments, const ResultArray& result);
// All of them as text, after the keys if there are any.
std::string ArraysText(const AxesArguments& arguments, const std::vector<ResultArray>& results,
                       const ResultArray& keys);

// The bytes of an array as a .npy file, to a file of that name.
ExitCode WriteNpy(const std::string& path, const HostArray& array);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_REDUCE_AXES_H_
