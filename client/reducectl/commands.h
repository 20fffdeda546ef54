// The commands of reducectl. Each prints its answer on standard output, its errors on standard error, and gives the
// exit code.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reducectl/input.h"
#include "reduced/types.h"

namespace CLI {
class App;
}

namespace reduced::client {

// Of several inputs that fail, the first one's.
enum ExitCode : int {
  kOk = 0,
  kOutput = 1,      // standard output can't be written
  kUsage = 2,       // the command line is wrong
  kConnection = 3,  // no server answers at the address, or it is going away
  kServer = 4,      // the server refused the request or failed
  kData = 5,        // an input can't be read, or isn't what it should be
};

struct CommonOptions {
  std::string server = "127.0.0.1:50051";
  absl::Duration timeout = absl::Seconds(5);
  bool json = false;
};

struct ReduceArguments {
  std::vector<std::string> sources;
  std::vector<std::string> ops = {"sum", "min", "max", "mean"};
  ReduceOptions options;
  InputOptions input;
};

ExitCode RunReduce(const CommonOptions& common, const ReduceArguments& arguments);
ExitCode RunInfo(const CommonOptions& common);
ExitCode RunOps(const CommonOptions& common);
ExitCode RunPipelines(const CommonOptions& common);

// Prints a bash completion script for the commands and options of `app`. `choices`: the values that options like
// "--engine" can have.
ExitCode PrintBashCompletion(const CLI::App& app, const std::map<std::string, std::vector<std::string>>& choices);

// Prints what went wrong with `subject`, a source or a command; gives the exit code for it.
ExitCode ReportCallError(absl::string_view subject, const absl::Status& status);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_H_
