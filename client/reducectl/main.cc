// reducectl: the command line of reduced.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/flags.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr char kExitCodes[] = R"(Exit codes:
  0  done
  1  standard output, or a file to write, can't be written
  2  the command line is wrong
  3  no server answers at the address, or it is going away
  4  the server refused the request or failed, of a load test any of its requests
  5  an input can't be read, or isn't what it should be
  6  a pipeline gave a wrong result, or not the same bits run after run though it promises them; a load test got a wrong
     answer
  7  a load test missed an objective of --slo, or a comparison found the second run worse
  8  a load test was not stable
  9  health: the server isn't SERVING; doctor: a check failed
130  a load test was interrupted
With several inputs, or arrays, all are tried; the code is that of the first failure.)";

// What the command line says.
struct Arguments {
  CommonOptions common;
  ReduceArguments reduce;
  MergeArguments merge;
  PutArguments put;
  std::string list_owner;
  std::vector<std::string> delete_ids;
  std::string delete_owner;
  LadderArguments ladder;
  LoadtestArguments loadtest;
  Choices choices;
};

// These give what is wrong with the text, if anything is.

std::string ParseTtl(const std::string& text, absl::Duration* ttl) {
  if (absl::ParseDuration(text, ttl) && *ttl > absl::ZeroDuration()) return "";
  return absl::StrCat("\"", text, "\" is not a positive duration; allowed: like 90s, 10m, 1h30m");
}

std::string ParseShape(const std::string& text, std::optional<std::vector<std::int64_t>>* shape) {
  shape->emplace();
  for (const absl::string_view extent : absl::StrSplit(text, ',')) {
    std::int64_t value = 0;
    if (!absl::SimpleAtoi(extent, &value) || value < 0) {
      return absl::StrCat("\"", text, "\" is not a shape; allowed: like 1000 or 20,50");
    }
    (*shape)->push_back(value);
  }
  return "";
}

std::string ParseCount(const std::string& text, std::int64_t* count) {
  absl::string_view digits = text;
  std::int64_t unit = 1;
  for (const auto& [suffix, bits] : {std::pair{"Ki", 10}, {"Mi", 20}, {"Gi", 30}}) {
    if (!absl::ConsumeSuffix(&digits, suffix)) continue;
    unit = std::int64_t{1} << bits;
    break;
  }
  const bool fits = absl::SimpleAtoi(digits, count) && !__builtin_mul_overflow(*count, unit, count);
  if (fits && *count > 0) return "";
  return absl::StrCat("\"", text, "\" is not a number of elements; allowed: like 1000, 512Ki, 16Mi, 1Gi");
}

void AddCommonOptions(CLI::App* app, Arguments* arguments) {
  CommonOptions& common = arguments->common;
  app->add_option("--server", common.server, "where the server is: host:port or unix:/path")
      ->envname("REDUCED_SERVER")
      ->type_name("ADDRESS")
      ->capture_default_str();
  AddParsed(app, "--timeout", ParseTimeout, &common.timeout,
            "how long one call may take, like 500ms, 5s, 1m30s or inf; default: 5s, of ladder 10m, of health "
            "and doctor 2s, of health --watch inf")
      ->type_name("DURATION");
  struct Credential {
    const char* option;
    std::string* value;
    const char* variable;
    const char* help;
  };
  for (const Credential& each : {
           Credential{"--tls-ca", &common.tls_ca, "REDUCED_TLS_CA",
                      "use TLS, with a server whose certificate is signed by one in this PEM file; system: by one that "
                      "this machine trusts"},
           Credential{"--tls-cert", &common.tls_cert, "REDUCED_TLS_CERT",
                      "PEM file of the certificate that tells the server who you are"},
           Credential{"--tls-key", &common.tls_key, "REDUCED_TLS_KEY", "PEM file of its private key"},
           Credential{"--tls-server-name", &common.tls_server_name, "REDUCED_TLS_SERVER_NAME",
                      "whose certificate the server has, if not that of the host in its address"},
           Credential{"--token-file", &common.token_file, "REDUCED_TOKEN_FILE",
                      "file of the token that goes with every call"},
       }) {
    const bool is_name = each.value == &common.tls_server_name;
    app->add_option(each.option, *each.value, each.help)->envname(each.variable)->type_name(is_name ? "NAME" : "FILE");
  }
  app->add_flag("--json", common.json, "print JSON, one object a line");
}

// The files that a command reads, and how. Gives the options that say so.
std::vector<CLI::Option*> AddInput(CLI::App* command, Arguments* arguments, std::vector<std::string>* sources,
                                   InputOptions* input) {
  CLI::Option* file = command->add_option("FILE", *sources, "files to read; - is standard input")->type_name("");
  CLI::Option* format =
      AddChoice(command, &arguments->choices, "--format", &input->format, "how to read the files, if it isn't plain",
                {std::begin(kFormats), std::end(kFormats)});
  CLI::Option* dtype = AddChoice(command, &arguments->choices, "--dtype", &input->dtype,
                                 "read raw elements of this type, little-endian", DTypeNames());
  CLI::Option* offset = command->add_option("--offset", input->offset, "raw: bytes to skip at the start")
                            ->check(CLI::NonNegativeNumber)
                            ->type_name("BYTES")
                            ->needs(dtype)
                            ->capture_default_str();
  CLI::Option* shape = AddParsed(command, "--shape", ParseShape, &input->shape,
                                 "raw: elements along each dimension; default: one dimension, all there are")
                           ->type_name("N,...")
                           ->needs(dtype);
  CLI::Option* column = command->add_option("--column", input->column, "CSV: a name of the header, or an index from 0")
                            ->type_name("NAME|INDEX")
                            ->excludes(dtype);
  return {file, format, dtype, offset, shape, column};
}

// What the options of AddInput() say together.
void CheckInput(const InputOptions& input) {
  const std::string& format = input.format;
  if (format == "raw" && input.dtype.empty()) throw CLI::ValidationError("--format raw", "needs --dtype");
  if (!format.empty() && format != "raw" && !input.dtype.empty()) {
    throw CLI::ValidationError("--dtype", "is of raw elements only, not of --format " + format);
  }
}

void AddReduce(CLI::App* app, Arguments* arguments) {
  CLI::App* command = app->add_subcommand("reduce", "reduce arrays from files: .npy, raw elements, a column of a CSV");
  ReduceArguments& reduce = arguments->reduce;
  AddChoice(command, &arguments->choices, "--op", &reduce.ops, "ops to compute", OpNames())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->default_str(absl::StrJoin(reduce.ops, ","));
  AddChoice(command, &arguments->choices, "--engine", &reduce.options.engine, "what to run on", EngineNames())
      ->capture_default_str();
  command->add_option("--device", reduce.options.device, "device to run on: a name of `reducectl info`, such as cuda:1")
      ->type_name("NAME");
  command->add_option("--pipeline", reduce.options.pipeline, "how to reduce: a name of `reducectl pipelines`")
      ->type_name("NAME");
  command->add_option("--block", reduce.options.block_size, "threads of a block, of pipelines that have the choice")
      ->check(Positive())
      ->type_name("N");
  AddChoice(command, &arguments->choices, "--precision", &reduce.options.precision,
            "how sums of floats are accumulated; exact: rounded once, the same bits everywhere, and the default of "
            "pipelines that have it",
            PrecisionNames())
      ->default_str("exact");
  AddChoice(command, &arguments->choices, "--nan", &reduce.options.nan_policy, "what NaNs do to the answer",
            NanPolicyNames())
      ->default_str("propagate");
  AddChoice(command, &arguments->choices, "--overflow", &reduce.options.overflow_policy,
            "what an integer that doesn't fit does", OverflowPolicyNames())
      ->default_str("error");
  command->add_option("--ddof", reduce.options.ddof, "var and std divide by n - ddof")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--state", reduce.state,
                   "besides, write what is known of the array into this file, for `reducectl merge`; of one input")
      ->type_name("FILE");
  // Of arrays that are read and sent, so not of those that are there.
  std::vector<CLI::Option*> sending = AddInput(command, arguments, &reduce.sources, &reduce.input);
  std::vector<std::string> ways = ViaNames();
  ways.emplace_back(kSessionName);
  ways.emplace_back(kShmName);
  sending.push_back(AddChoice(command, &arguments->choices, "--via", &reduce.via,
                              "how the elements get to the server; shm: it reads them in memory that is shared", ways)
                        ->capture_default_str());
  sending.push_back(
      command
          ->add_option("--connections", reduce.connections,
                       "stream an array of 32 MiB or more in parts over so many connections, at most 64; default: 4 on "
                       "a machine of 8 cores or more, else 1")
          ->check(Positive())
          ->type_name("N"));
  CLI::Option* array = command
                           ->add_option("--array", reduce.arrays,
                                        "instead of files, arrays that the server keeps: see `reducectl arrays`")
                           ->type_name("ID...");
  for (CLI::Option* option : sending) array->excludes(option);
  command->final_callback([&reduce] {
    CheckInput(reduce.input);
    if (reduce.sources.empty() && reduce.arrays.empty()) throw CLI::RequiredError("FILE or --array");
    if (reduce.state.empty()) return;
    if (reduce.sources.size() + reduce.arrays.size() > 1) {
      throw CLI::ValidationError("--state", "is of one input; there are several");
    }
    if (reduce.via == kSessionName) throw CLI::ExcludesError("--state", "--via session");
  });
}

void AddMerge(CLI::App* app, Arguments* arguments) {
  CLI::App* command = app->add_subcommand(
      "merge", "the answers about all of an array from what `reduce --state` has written about its parts, in order");
  command->add_option("FILE", arguments->merge.files, "the states of consecutive parts")->required()->type_name("");
  command->add_option("--state", arguments->merge.state, "besides, write the merged state into this file")
      ->type_name("FILE");
}

void AddArrays(CLI::App* app, Arguments* arguments) {
  CLI::App* arrays = app->add_subcommand("arrays", "keep arrays on the server, to reduce them any number of times");
  arrays->require_subcommand(0, 1);  // as of `app`

  CLI::App* put = arrays->add_subcommand("put", "have the server keep arrays from files; prints their ids");
  PutOptions& options = arguments->put.options;
  AddInput(put, arguments, &arguments->put.sources, &arguments->put.input).front()->required();
  put->final_callback([&input = arguments->put.input] { CheckInput(input); });
  put->add_option("--device", options.device,
                  "where to, like cpu or cuda:0: see `reducectl info`; default: the first GPU, if there is one")
      ->type_name("NAME");
  put->add_option("--owner", options.owner, "whose they are; default: user@host")->type_name("NAME");
  AddParsed(put, "--ttl", ParseTtl, &options.ttl,
            "they go when they have not been used for so long, like 90s or 10m; default: as the server has it")
      ->type_name("DURATION");

  CLI::App* list = arrays->add_subcommand("list", "the arrays that the server keeps");
  list->add_option("--owner", arguments->list_owner, "only this owner's")->type_name("NAME");

  CLI::App* remove = arrays->add_subcommand("delete", "have the server forget arrays");
  remove->add_option("ID", arguments->delete_ids, "of `arrays put` or `arrays list`")->required()->type_name("");
  remove->add_option("--owner", arguments->delete_owner, "whose they are; default: user@host")->type_name("NAME");
}

void AddLadder(CLI::App* app, Arguments* arguments) {
  CLI::App* command =
      app->add_subcommand("ladder",
                          "time pipelines against each other on an array that the server makes; default: "
                          "on 16Mi random i32, then on 100Mi f64 of 1.23");
  LadderArguments& ladder = arguments->ladder;
  LadderOptions& options = ladder.options;
  AddChoice(command, &arguments->choices, "--dtype", &options.dtype, "what the elements are", DTypeNames())
      ->default_str("i32");
  AddParsed(command, "--n", ParseCount, &options.count, "how many elements, like 1000, 512Ki, 16Mi or 1Gi")
      ->type_name("N")
      ->default_str("16Mi");
  AddChoice(command, &arguments->choices, "--op", &options.op, "what to reduce by", OpNames())->capture_default_str();
  command->add_option("--fill", options.fill, "what every element is; default: random ones")->type_name("X");
  AddParsed(command, "--seed", ParseSeed, &options.seed, "of the random ones")->type_name("N")->default_str("0");
  command->add_option("--pipeline", options.pipelines, "names of `reducectl pipelines`; default: all that can")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  CLI::Option* block =
      command->add_option("--block", options.block_sizes, "threads of a block, several to compare them")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->check(Positive())
          ->type_name("N,...");
  command->add_flag("--sweep-block", ladder.sweep_block, "with every block size that the one --pipeline has")
      ->excludes(block);
  command->add_option("--repeats", options.repeats, "timed runs of each, at most 1000; default: 20")
      ->check(Positive())
      ->type_name("N");
  const std::vector<CLI::Option*> measuring = command->get_options([](const CLI::Option*) { return true; });
  CLI::Option* from = command
                          ->add_option("--from", ladder.from,
                                       "measure nothing, show what --json printed into this file; - is standard input")
                          ->type_name("FILE");
  command->add_flag("--csv", ladder.csv, "print CSV");
  command->add_option("--svg", ladder.svg, "besides, draw a plot into this file")->type_name("FILE");
  command->final_callback([from, measuring, &ladder, &options, &common = arguments->common] {
    for (const CLI::Option* option : measuring) {
      if (from->count() > 0 && option->count() > 0) throw CLI::ExcludesError("--from", option->get_name());
    }
    if (ladder.csv && common.json) throw CLI::ExcludesError("--csv", "--json");
    if (ladder.sweep_block && options.pipelines.size() != 1) {
      throw CLI::ValidationError("--sweep-block", "needs exactly one --pipeline");
    }
  });
}

ExitCode Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Asks a `reduced` server what arrays reduce to.", "reducectl");
  app.footer(kExitCodes);
  app.require_subcommand(0, 1);  // that there is one is checked below: CLI11 wouldn't name an unknown one
  app.fallthrough();             // common options may follow the command
  app.set_version_flag("--version", REDUCED_VERSION);
  AddCommonOptions(&app, &arguments);
  AddReduce(&app, &arguments);
  AddMerge(&app, &arguments);
  AddArrays(&app, &arguments);
  AddLadder(&app, &arguments);
  AddLoadtest(&app, &arguments.loadtest, &arguments.choices);
  app.add_subcommand("info", "what the server is: version, devices, limits and what is in use, calibration");
  app.add_subcommand("ops", "the ops, what they answer, and the dtypes they are for");
  app.add_subcommand("pipelines", "the pipelines: techniques to reduce by, and where they come from");
  bool watch = false;
  app.add_subcommand("health", "whether the server serves; the exit code says so, too")
      ->add_flag("--watch", watch, "go on, and print what changes, until the server is gone or --timeout is over");
  app.add_subcommand("doctor", "what this machine and the server lack, and what to do about it");
  std::string shell;
  app.add_subcommand("completion", "print a completion script for a shell")
      ->add_option("SHELL", shell, "the shell: bash")
      ->required()
      ->check(OneOf({"bash"}))
      ->type_name("");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return static_cast<ExitCode>(app.exit(error));  // --help, --version
    std::cerr << "reducectl: " << error.what() << "; see reducectl --help\n";
    return kUsage;
  }

  arguments.common.server_given = app.get_option("--server")->count() > 0;

  // Down to the last subcommand: "arrays put".
  std::string command;
  for (const CLI::App* at = &app; !at->get_subcommands({}).empty();) {
    if (at->get_subcommands().empty()) {
      if (at->get_name() == kLoadtest) break;  // does something by itself, too
      const auto name = [](std::string* out, const CLI::App* each) { absl::StrAppend(out, each->get_name()); };
      std::cerr << "reducectl: " << command << (command.empty() ? "" : ": ")
                << "no subcommand; allowed: " << absl::StrJoin(at->get_subcommands({}), ", ", name)
                << "; see reducectl --help\n";
      return kUsage;
    }
    at = at->get_subcommands().front();
    absl::StrAppend(&command, command.empty() ? "" : " ", at->get_name());
  }
  if (command == "reduce") return RunReduce(arguments.common, arguments.reduce);
  if (command == "merge") return RunMerge(arguments.common, arguments.merge);
  if (command == "arrays put") return RunArraysPut(arguments.common, arguments.put);
  if (command == "arrays list") return RunArraysList(arguments.common, arguments.list_owner);
  if (command == "arrays delete") {
    return RunArraysDelete(arguments.common, arguments.delete_ids, arguments.delete_owner);
  }
  if (command == "health") return RunHealth(arguments.common, watch);
  if (command == "doctor") return RunDoctor(arguments.common);
  if (command == "ladder") return RunLadder(arguments.common, arguments.ladder);
  if (command == "loadtest") return RunLoadtest(arguments.common, arguments.loadtest);
  if (command == "loadtest compare") return RunLoadtestCompare(arguments.common, arguments.loadtest);
  if (command == "info") return RunInfo(arguments.common);
  if (command == "ops") return RunOps(arguments.common);
  if (command == "pipelines") return RunPipelines(arguments.common);
  return PrintBashCompletion(app, arguments.choices);
}

}  // namespace
}  // namespace reduced::client

int main(int argc, char** argv) {
  // Messages of many megabytes come and go: giving their pages back to the system each time halves the throughput.
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#ifdef NDEBUG
  // Abseil's, which gRPC locks with, too. Debian's looks for deadlocks at every lock, which costs small requests 10 to
  // 20%.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // what matters to the user is in the error of the call
  const int code = reduced::client::Main(argc, argv);
  if (!std::cout.flush()) {
    std::cerr << "reducectl: can't write to standard output\n";
    return code == 0 ? reduced::client::kOutput : code;
  }
  return code;
}
