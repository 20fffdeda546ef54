// reducectl reduce.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/commands/reduce_axes.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

struct ReduceArguments {
  Question question{};
  std::string state{};  // the file for the state of the one input or array; empty: none
  bool quiet = false;
  bool verbose = false;
  AxesArguments axes{};
};

// The ops whose results depend on --ddof, and those that sum floats, of which there is a precision.
bool HasDdof(absl::string_view op) { return op == "var" || op == "std"; }
bool HasPrecision(absl::string_view op) {
  return HasDdof(op) || op == "sum" || op == "mean" || op == "sum_squares" || op == "l1" || op == "l2" || op == "prod";
}

// The source of the elements, for people.
std::string SourceText(absl::string_view via) {
  if (via == "local") return "in this process";
  if (via == "resident") return "resident array";
  if (via == Question::kRegion) return "read in a region";
  return absl::StrCat("sent ", via);
}

// One line of JSON.
std::string Line(const Answer& answer, const ReduceOptions& options) {
  Json results = Json::object(), ddof = Json::object();
  for (const Result& result : answer.reply.results) {
    results[result.op] = JsonOf(result);
    if (HasDdof(result.op)) ddof["ddof"] = options.ddof;
  }
  return JsonLine(answer, std::move(results), ddof);
}

// The results alone, as text with tabs between them, after the name of one of several arrays.
std::string Values(const Answer& answer) {
  const auto text = [](std::string* out, const Result& result) { *out += TextOf(result); };
  return absl::StrCat(answer.several ? Printable(NameOf(answer)) + "\t" : "",
                      absl::StrJoin(answer.reply.results, "\t", text), "\n");
}

// "cpu, exact, 22.0 us": the precision only of sums of floats.
std::string RanOn(const Answer& answer) {
  const Reply& reply = answer.reply;
  std::string precision;
  for (const Result& result : reply.results) {
    // The dtype of a resident array isn't known; but only sums of floats are said to be exact.
    const bool is_float =
        absl::StrContains(
            answer.dtype.empty() && result.op == "sum" && result.value.ok() ? result.value->dtype : answer.dtype,
            'f') ||
        (answer.dtype.empty() && reply.execution.precision == "exact");
    if (is_float && HasPrecision(result.op)) precision = absl::StrCat(", ", reply.execution.precision);
  }
  return absl::StrCat(reply.execution.device, precision, ", ",
                      FormatMicros(reply.timing.total_us.value_or(answer.round_trip_us)));
}

// The text for people.
std::string Table(const Answer& answer, const ReduceArguments& arguments) {
  const Reply& reply = answer.reply;
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) {
    rows.push_back(
        {"", HasDdof(result.op) ? absl::StrCat(result.op, " (ddof ", arguments.question.options.ddof, ")") : result.op,
         TextOf(result)});
  }
  if (answer.nans.has_value() && *answer.nans > 0) {
    rows.push_back(
        {"", "NaN", absl::StrCat(*answer.nans, " of ", reply.count, " elements; leave them out with --nan omit")});
  }
  if (arguments.verbose) {
    rows.push_back(
        {"", "ran on",
         absl::StrCat(reply.execution.device, ", pipeline ", reply.execution.pipeline, ", precision ",
                      reply.execution.precision, ", ", SourceText(reply.via), ": ", reply.execution.reason)});
    rows.push_back({"", "time",
                    absl::StrCat(answer.read_us > 0 ? absl::StrCat("read ", FormatMicros(answer.read_us), ", ") : "",
                                 ToText(reply.timing), "; round trip ", FormatMicros(answer.round_trip_us),
                                 reply.attempts > 1 ? absl::StrCat(", sent ", reply.attempts, " times") : "")});
  } else {
    rows.push_back({"", "ran on", RanOn(answer)});
  }
  const std::string what = answer.dtype.empty()
                               ? absl::StrCat(reply.count, " elements")
                               : absl::StrCat(answer.dtype, " (", absl::StrJoin(answer.shape, ", "), ")");
  return absl::StrCat(Printable(TitleOf(answer)), ": ", what, ", ", FormatBytes(reply.timing.bytes), "\n",
                      FormatTable(rows));
}

ExitCode Run(const CommonOptions& common, ReduceArguments arguments) {
  if (arguments.axes.given()) {
    arguments.axes.quiet = arguments.quiet;
    arguments.axes.state = arguments.state;
    arguments.question.options.return_state = arguments.question.one = !arguments.state.empty();
    return ReduceAxes(common, arguments.question, arguments.axes);
  }
  arguments.question.options.return_state = arguments.question.one = !arguments.state.empty();
  return Ask(common, arguments.question, [&](const Answer& answer) {
    std::cout << (common.json       ? Line(answer, arguments.question.options)
                  : arguments.quiet ? Values(answer)
                                    : Table(answer, arguments))
              << std::flush;
    return arguments.state.empty() ? kOk : WriteFile(arguments.state, answer.reply.state);
  });
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
  AddParsed(command, "--ddof", ParseWholeNumber, &options->ddof, "var and std divide by n - ddof")
      ->type_name("N")
      ->default_str("0");
}

// Throws CLI::Error if the options contradict each other.
void Check(const ReduceArguments& arguments) {
  const Question& question = arguments.question;
  CheckInput(question.input);
  const std::size_t inputs = question.sources.empty() ? question.arrays.size() : question.sources.size();
  if (inputs == 0) throw CLI::RequiredError("FILE or --array");
  AxesArguments axes = arguments.axes;
  axes.state = arguments.state;
  CheckAxes(question, axes);
  if (arguments.state.empty()) return;
  if (inputs > 1) throw CLI::ValidationError("--state", absl::StrCat("got ", inputs, " inputs; allowed: 1"));
  if (question.in_session()) throw CLI::ExcludesError("--state", absl::StrCat("--via ", question.via));
}

}  // namespace

void AddReduce(CommandLine& line) {
  const auto arguments = std::make_shared<ReduceArguments>();
  Question* const question = &arguments->question;
  CLI::App* command =
      line.Add("reduce", "reduce arrays from files: .npy, .npz, raw elements, columns of text such as CSV",
               [arguments](const CommonOptions& common) { return Run(common, *arguments); });
  line.choices["--op"] = OpNames();
  command
      ->add_option_function<std::vector<std::string>>(
          "--op",
          [question](const std::vector<std::string>& lists) {
            question->ops.clear();
            for (const std::string& list : lists) {
              for (std::string& op : ParseOps(list)) question->ops.push_back(std::move(op));
            }
          },
          absl::StrCat("the ops, some with parameters, such as quantile(0.25,0.75), topk(10) or histogram(0,1,64): see "
                       "`reducectl ops`: ",
                       absl::StrJoin(OpNames(), ", ")))
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->default_str(absl::StrJoin(question->ops, ","));
  AddOptions(line, command, &question->options);
  command->add_flag("-q,--quiet", arguments->quiet,
                    "print only the results, of each array on a line with tabs between them, after the name of the "
                    "column or array if there are several");
  command->add_flag("-v,--verbose", arguments->verbose, "also print why it ran there, and the time of each stage");
  command
      ->add_option("--state", arguments->state,
                   "also write the state of the one input to this file, for `reducectl merge`")
      ->type_name("FILE");
  AddAxes(line, command, &arguments->axes);
  // These options are about reading and sending files.
  std::vector<CLI::Option*> sending = AddInput(line, command, &question->sources, &question->input);
  sending.erase(sending.begin());
  std::vector<std::string> vias = ViaNames();
  vias.insert(vias.end(), {Question::kSession, Question::kRing, Question::kRegion});
  sending.push_back(AddChoice(line, command, "--via", &question->via,
                              "how the elements reach the server; ring: through memory that it shares with a session; "
                              "region: it reads them in shared memory",
                              vias)
                        ->capture_default_str());
  sending.push_back(command
                        ->add_option("--connections", question->connections,
                                     "stream an array of 32 MiB or more in parts over so many connections, at most 64; "
                                     "default: 4 on a machine of 8 cores or more, else 1")
                        ->check(Positive())
                        ->type_name("N"));
  command
      ->add_option(
          "--array", question->arrays,
          "reduce resident arrays instead of files: see `reducectl arrays`; with files: names of arrays in .npz "
          "and .safetensors files, of which each needs an --array of its own")
      ->type_name("ID|NAME...");
  command->final_callback([arguments, sending] {
    const std::vector<std::string>& ops = arguments->question.ops;
    // What has an op of the distribution is answered with arrays.
    arguments->axes.options.whole = !arguments->axes.given() && std::any_of(ops.begin(), ops.end(), IsOfDistribution);
    Check(*arguments);
    if (!arguments->question.sources.empty()) return;
    for (const CLI::Option* option : sending) {
      if (option->count() > 0) throw CLI::ExcludesError("--array", option->get_name());
    }
  });
}

}  // namespace reduced::client
