// reducectl reduce.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/progress.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

// The values of --via beside ViaNames(). Session: all inputs are sent over one session. Region: the server reads the
// inputs in shared memory.
constexpr char kSession[] = "session";
constexpr char kRegion[] = "region";

struct ReduceArguments {
  std::vector<std::string> sources;
  std::vector<std::string> arrays;  // ids of resident arrays, instead of sources
  std::vector<std::string> ops = {"sum", "min", "max", "mean"};
  ReduceOptions options;
  std::string via = ReduceOptions().via;
  int connections = ClientOptions().connections;
  std::string state;  // the file for the state of the one input or array; empty: none
  InputOptions input;
};

// The source of the elements, for people.
std::string SourceText(absl::string_view via) {
  if (via == "resident") return "resident array";
  if (via == kRegion) return "read in a region";
  return absl::StrCat("sent ", via);
}

// One line of JSON. `dtype` is empty if only the server knows it.
std::string Line(const std::string& source, const std::string& dtype, const Reply& reply, double round_trip_us) {
  Json results = Json::object();
  for (const Result& result : reply.results) results[result.op] = ToJson(result.value);
  Json timing = ToJson(reply.timing);
  timing["round_trip"] = round_trip_us;
  Json json = {{"source", source}};
  if (!dtype.empty()) json["dtype"] = dtype;
  json.update({{"count", reply.count},
               {"via", reply.via},
               {"results", std::move(results)},
               {"engine", reply.execution.engine},
               {"device", reply.execution.device},
               {"pipeline", reply.execution.pipeline},
               {"precision", reply.execution.precision},
               {"reason", reply.execution.reason},
               {"timing_us", std::move(timing)},
               {"bytes", reply.timing.bytes}});
  return Dump(json) + "\n";
}

// The text for people. `what` describes the array; it is empty if only the number of elements is known.
std::string Table(const std::string& source, const std::string& what, const Reply& reply, double round_trip_us) {
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) rows.push_back({"", result.op, ToText(result.value)});
  rows.push_back({"", "ran on",
                  absl::StrCat(reply.execution.device, ", pipeline ", reply.execution.pipeline, ", precision ",
                               reply.execution.precision, ", ", SourceText(reply.via), ": ", reply.execution.reason)});
  rows.push_back({"", "time", absl::StrCat(ToText(reply.timing), "; round trip ", FormatMicros(round_trip_us))});
  return absl::StrCat(Printable(source), ": ", what.empty() ? absl::StrCat(reply.count, " elements") : what, ", ",
                      FormatBytes(reply.timing.bytes), "\n", FormatTable(rows));
}

// One request and its outcome.
struct Item {
  // Reads the input.
  Item(std::string from, const InputOptions& options) : source(std::move(from)), input(ReadInput(source, options)) {}
  // A resident array.
  explicit Item(std::string id) : source(std::move(id)), input(Input()) {}

  const std::string source;
  const absl::StatusOr<Input> input;
  const absl::Time start = absl::Now();  // of the request
  absl::StatusOr<Reply> reply;
  absl::Time end;
  absl::Notification answered;
};

ExitCode Print(const Item& item, bool json) {
  if (!item.input.ok()) return ReportError(item.source, item.input.status().message(), kData);
  if (!item.reply.ok()) return ReportCallError(item.source, item.reply.status());
  const double round_trip_us = absl::ToDoubleMicroseconds(item.end - item.start);
  const auto& [dtype, shape, offset] = item.input->layout;
  const std::string what = dtype.empty() ? "" : absl::StrCat(dtype, " (", absl::StrJoin(shape, ", "), ")");
  std::cout << (json ? Line(item.source, dtype, *item.reply, round_trip_us)
                     : Table(item.source, what, *item.reply, round_trip_us))
            << std::flush;
  return kOk;
}

// How long sharing an input may take if it could be sent instead.
constexpr absl::Duration kShareTimeout = absl::Seconds(1);

// Shares the input if it is in memory that can be shared, else sends it.
absl::StatusOr<Reply> ReduceInput(Client& client, const Input& input, const CommonOptions& common,
                                  const ReduceArguments& arguments) {
  ReduceOptions options = arguments.options;
  if (const SharedBuffer* const buffer = input.memory.shared()) {
    ShareOptions sharing;
    if (arguments.via != kRegion) {
      sharing.timeout = std::min(kShareTimeout, common.timeout.value_or(kShareTimeout));
    }
    const absl::StatusOr<Region> region = client.Share(*buffer, sharing);
    const auto& [dtype, shape, offset] = input.layout;
    if (region.ok()) {
      return client.Reduce(region->Array(dtype, shape, static_cast<std::int64_t>(offset)), arguments.ops, options);
    }
    if (arguments.via == kRegion) return region.status();
  }
  UploadProgress progress(!common.json);
  options.via = arguments.via;
  options.on_progress = progress.hook();
  return client.Reduce(input.View(), arguments.ops, options);
}

// Makes one call for each input or resident array.
ExitCode ReduceInCalls(Client& client, const CommonOptions& common, const ReduceArguments& arguments) {
  ExitCode first_failure = kOk;
  const auto print = [&](Item& item) {
    item.end = absl::Now();
    ExitCode code = Print(item, common.json);
    if (code == kOk && !arguments.state.empty()) code = WriteFile(arguments.state, item.reply->state);
    if (first_failure == kOk) first_failure = code;
  };
  for (const std::string& source : arguments.sources) {
    Item item(source, arguments.input);
    if (item.input.ok()) item.reply = ReduceInput(client, *item.input, common, arguments);
    print(item);
  }
  for (const std::string& id : arguments.arrays) {
    Item item(id);
    item.reply = client.Reduce(RemoteArray::Resident(id), arguments.ops, arguments.options);
    print(item);
  }
  return first_failure;
}

// The number of inputs that are read and sent over a session before the answer to the first of them is printed.
constexpr std::size_t kAhead = 8;

// Sends all inputs over one session. Prints the answers in the order of the inputs.
ExitCode ReduceInSession(Client& client, bool json, const ReduceArguments& arguments) {
  std::deque<Item> items;  // sent, in order; must outlive the session, whose callbacks write to them
  const absl::StatusOr<std::unique_ptr<Session>> session = client.OpenSession();
  if (!session.ok()) return ReportCallError("reduce", session.status());
  ExitCode first_failure = kOk;
  const auto print_first = [&] {
    items.front().answered.WaitForNotification();  // the request has a timeout
    const ExitCode code = Print(items.front(), json);
    if (first_failure == kOk) first_failure = code;
    items.pop_front();
  };
  for (const std::string& source : arguments.sources) {
    if (items.size() == kAhead) print_first();
    Item& item = items.emplace_back(source, arguments.input);
    const auto done = [&item](absl::StatusOr<Reply> reply) {
      item.end = absl::Now();
      item.reply = std::move(reply);
      item.answered.Notify();
    };
    if (item.input.ok()) {
      (*session)->ReduceAsync(item.input->View(), arguments.ops, arguments.options, done);
    } else {
      item.answered.Notify();
    }
  }
  while (!items.empty()) print_first();
  return first_failure;
}

ExitCode Run(const CommonOptions& common, ReduceArguments arguments) {
  const std::unique_ptr<Client> client = MakeClient(common, ClientOptions().timeout, arguments.connections);
  if (client == nullptr) return kUsage;
  arguments.options.return_state = !arguments.state.empty();
  if (arguments.via == kRegion) arguments.input.hold = Hold::kShare;
  if (arguments.via == "auto" && UnixSocketPath(common.server).has_value()) arguments.input.hold = Hold::kShareLarge;
  return arguments.via == kSession ? ReduceInSession(*client, common.json, arguments)
                                   : ReduceInCalls(*client, common, arguments);
}

void AddOptions(CommandLine& line, CLI::App* command, ReduceOptions* options) {
  AddChoice(line, command, "--engine", &options->engine, "the engine", EngineNames())->capture_default_str();
  command->add_option("--device", options->device, "the device: a name of `reducectl info`, such as cuda:1")
      ->type_name("NAME");
  command->add_option("--pipeline", options->pipeline, "the pipeline: a name of `reducectl pipelines`")
      ->type_name("NAME");
  command->add_option("--block", options->block_size, "threads per block, for pipelines with a choice")
      ->check(Positive())
      ->type_name("N");
  AddChoice(line, command, "--precision", &options->precision,
            "the precision of float sums; exact: rounded once, the same bits everywhere, the default of pipelines that "
            "support it",
            PrecisionNames())
      ->default_str("exact");
  AddChoice(line, command, "--nan", &options->nan_policy, "what NaNs do to the results", NanPolicyNames())
      ->default_str("propagate");
  AddChoice(line, command, "--overflow", &options->overflow_policy, "what happens if an integer result doesn't fit",
            OverflowPolicyNames())
      ->default_str("error");
  command->add_option("--ddof", options->ddof, "var and std divide by n - ddof")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->capture_default_str();
}

// Throws CLI::Error if the options contradict each other.
void Check(const ReduceArguments& arguments) {
  CheckInput(arguments.input);
  const std::size_t inputs = arguments.sources.size() + arguments.arrays.size();
  if (inputs == 0) throw CLI::RequiredError("FILE or --array");
  if (arguments.state.empty()) return;
  if (inputs > 1) throw CLI::ValidationError("--state", absl::StrCat("got ", inputs, " inputs; allowed: 1"));
  if (arguments.via == kSession) throw CLI::ExcludesError("--state", "--via session");
}

}  // namespace

void AddReduce(CommandLine& line) {
  const auto arguments = std::make_shared<ReduceArguments>();
  CLI::App* command = line.Add("reduce", "reduce arrays from files: .npy, raw elements, a column of a CSV",
                               [arguments](const CommonOptions& common) { return Run(common, *arguments); });
  AddChoice(line, command, "--op", &arguments->ops, "the ops", OpNames())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->default_str(absl::StrJoin(arguments->ops, ","));
  AddOptions(line, command, &arguments->options);
  command
      ->add_option("--state", arguments->state,
                   "also write the state of the one input to this file, for `reducectl merge`")
      ->type_name("FILE");
  // These options are about reading and sending files, so that they don't go with --array.
  std::vector<CLI::Option*> sending = AddInput(line, command, &arguments->sources, &arguments->input);
  std::vector<std::string> vias = ViaNames();
  vias.insert(vias.end(), {kSession, kRegion});
  sending.push_back(AddChoice(line, command, "--via", &arguments->via,
                              "how the elements reach the server; region: it reads them in shared memory", vias)
                        ->capture_default_str());
  sending.push_back(command
                        ->add_option("--connections", arguments->connections,
                                     "stream an array of 32 MiB or more in parts over so many connections, at most 64; "
                                     "default: 4 on a machine of 8 cores or more, else 1")
                        ->check(Positive())
                        ->type_name("N"));
  CLI::Option* array =
      command
          ->add_option("--array", arguments->arrays, "reduce resident arrays instead of files: see `reducectl arrays`")
          ->type_name("ID...");
  for (CLI::Option* option : sending) array->excludes(option);
  command->final_callback([arguments] { Check(*arguments); });
}

}  // namespace reduced::client
