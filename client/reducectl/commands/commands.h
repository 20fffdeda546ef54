// The commands of reducectl. Each prints its answer on standard output, its errors on standard error, and gives the
// exit code.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/loadtest/options.h"
#include "reduced/client.h"

namespace CLI {
class App;
}

namespace reduced::client {

// Of several inputs, or arrays, that fail, the first one's.
enum ExitCode : int {
  kOk = 0,
  kOutput = 1,      // standard output, or a file to write, can't be written
  kUsage = 2,       // the command line is wrong
  kConnection = 3,  // no server answers at the address, or it is going away
  kServer = 4,      // the server refused the request or failed
  kData = 5,        // an input can't be read, or isn't what it should be
  kWrong = 6,       // a pipeline gave a wrong result, or not the same bits run after run though it promises them
  kMissed = 7,      // a load test missed an objective, or a comparison found the second run worse
  kUnstable = 8,    // a load test was not stable
  kUnhealthy = 9,   // health: the server isn't SERVING; doctor: a check failed
  kInterrupted = 130,
};

struct CommonOptions {
  std::string server = "127.0.0.1:50051";
  bool server_given = false;              // by the command line or the environment
  std::optional<absl::Duration> timeout;  // default: as the command has it
  bool json = false;
  // As of ClientOptions.
  std::string tls_ca{}, tls_cert{}, tls_key{}, tls_server_name{}, token_file{};
};

// What --via says besides ViaNames(): one session for all inputs; or nothing is sent, the server reads them where they
// are.
inline constexpr char kSessionName[] = "session";
inline constexpr char kShmName[] = "shm";

struct ReduceArguments {
  std::vector<std::string> sources;
  std::vector<std::string> arrays;  // instead: ids of arrays that the server keeps
  std::vector<std::string> ops = {"sum", "min", "max", "mean"};
  ReduceOptions options;
  std::string via = ReduceOptions().via;  // or kSessionName, kShmName
  int connections = ClientOptions().connections;
  std::string state;  // file to write the state to, of one input or array; empty: none
  InputOptions input;
};

struct MergeArguments {
  std::vector<std::string> files;  // of states
  std::string state;               // file to write the merged state to; empty: none
};

struct PutArguments {
  std::vector<std::string> sources;
  PutOptions options;  // no owner: user@host
  InputOptions input;
};

struct LadderArguments {
  LadderOptions options;     // neither a dtype nor a count: the two workloads of the pipelines' sources, in turn
  bool sweep_block = false;  // with every block size that the one pipeline of the options has
  bool csv = false;
  std::string svg;   // file to write; empty: none
  std::string from;  // shows the runs that this file has instead; empty: none
};

ExitCode RunReduce(const CommonOptions& common, ReduceArguments arguments);
ExitCode RunMerge(const CommonOptions& common, const MergeArguments& arguments);
ExitCode RunArraysPut(const CommonOptions& common, PutArguments arguments);
ExitCode RunArraysList(const CommonOptions& common, const std::string& owner);  // empty: everyone's
ExitCode RunArraysDelete(const CommonOptions& common, const std::vector<std::string>& ids,
                         const std::string& owner);  // empty: user@host
ExitCode RunInfo(const CommonOptions& common);
ExitCode RunOps(const CommonOptions& common);
ExitCode RunPipelines(const CommonOptions& common);
ExitCode RunHealth(const CommonOptions& common, bool watch);
ExitCode RunDoctor(const CommonOptions& common);
ExitCode RunLadder(const CommonOptions& common, const LadderArguments& arguments);
ExitCode RunLoadtest(const CommonOptions& common, const LoadtestArguments& arguments);
ExitCode RunLoadtestCompare(const CommonOptions& common, const LoadtestArguments& arguments);

// Adds the command to `app`; its choices to `choices`. It is the only one that does something with and without a
// subcommand.
inline constexpr char kLoadtest[] = "loadtest";
void AddLoadtest(CLI::App* app, LoadtestArguments* arguments, std::map<std::string, std::vector<std::string>>* choices);

// Prints a bash completion script for the commands and options of `app`. `choices`: the values that options like
// "--engine" can have; "loadtest --via": of one command only.
ExitCode PrintBashCompletion(const CLI::App& app, const std::map<std::string, std::vector<std::string>>& choices);

// What the common options say of a client.
ClientOptions ClientOptionsOf(const CommonOptions& common, absl::Duration default_timeout = ClientOptions().timeout,
                              int connections = ClientOptions().connections);

// Null, having printed why, if what the command line says makes no client.
std::unique_ptr<Client> MakeClient(const CommonOptions& common,
                                   absl::Duration default_timeout = ClientOptions().timeout,
                                   int connections = ClientOptions().connections);

// Writes a file; kOutput, having printed why, if it can't be written.
ExitCode WriteState(const std::string& file, const std::string& state);

// Prints what went wrong with `subject`, a source or a command; gives the exit code for it.
ExitCode ReportCallError(absl::string_view subject, const absl::Status& status);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_COMMANDS_H_
