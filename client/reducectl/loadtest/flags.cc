// The command line of `reducectl loadtest`.
#include "client/reducectl/commands/flags.h"

#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/loadtest/options.h"

namespace reduced::client {
namespace {

constexpr char kHelp[] =
    R"(measure a server under load: latency, throughput, errors, wrong answers; starts a server if no address is given)";

constexpr char kFooter[] =
    R"(Loads are lists of numbers and ranges: 1,2,4..64 doubles from 4 to 64; 1000..20000:1000 goes up in steps.
Without --rate the loop is closed: so many requests are under way at any time. With it the loop is open: requests are
planned at that rate, and latency counts from the planned time, also if the request had to wait for an earlier one; what
it took from its turn on is shown beside it, as uncorrected.)";

// An option whose text goes through a function that gives a value or says what is wrong.
template <class Field, class Result>
CLI::Option* AddChecked(CLI::App* command, const std::string& option,
                        absl::StatusOr<Result> (*parse)(const std::string&), Field* field, const std::string& help) {
  const auto set = [=](const std::string& text) {
    absl::StatusOr<Result> result = parse(text);
    if (!result.ok()) throw CLI::ValidationError(option, std::string(result.status().message()));
    *field = *std::move(result);
  };
  return command->add_option_function<std::string>(option, set, help);
}

absl::StatusOr<std::vector<double>> ParseConcurrency(const std::string& text) {
  absl::StatusOr<std::vector<double>> loads = ParseLoads(text);
  if (!loads.ok()) return loads;
  for (const double load : *loads) {
    if (load == std::floor(load) && load <= kMaxConcurrency) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(load, " requests can't be under way at once; allowed: whole numbers from 1 to ", kMaxConcurrency));
  }
  return loads;
}

absl::StatusOr<absl::Duration> ParseSpan(const std::string& text) {
  absl::Duration span;
  if (absl::ParseDuration(text, &span) && span >= absl::Milliseconds(10) && span <= absl::Hours(24 * 30)) return span;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no duration to measure for; allowed: from 10ms on, like 500ms, 10s, 1h"));
}

absl::StatusOr<absl::Duration> ParseWarmup(const std::string& text) {
  absl::Duration span;
  if (text == "0" || (absl::ParseDuration(text, &span) && span >= absl::ZeroDuration() && span <= absl::Hours(24))) {
    return span;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no duration; allowed: like 0, 500ms, 5s"));
}

absl::StatusOr<std::int64_t> ParseRequests(const std::string& text) {
  std::int64_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count > 0) return count;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a whole number from 1 on"));
}

CLI::Validator UpTo(int limit) {
  const auto check = [limit](const std::string& text) -> std::string {
    int value = 0;
    if (absl::SimpleAtoi(text, &value) && value > 0 && value <= limit) return "";
    return absl::StrCat("\"", text, "\" is not a whole number from 1 to ", limit);
  };
  return CLI::Validator(check, "");
}

void AddLoad(CLI::App* command, LoadtestArguments* arguments, Choices* choices) {
  CLI::Option* concurrency = AddChecked(command, "--concurrency", ParseConcurrency, &arguments->concurrency,
                                        "requests under way at once; with --rate, at most. Default: 1, with --rate 64")
                                 ->type_name("LOADS");
  CLI::Option* rate = AddChecked(command, "--rate", ParseLoads, &arguments->rates,
                                 "an open loop: requests planned a second; with --find-max, the range to search")
                          ->type_name("LOADS");
  static const std::vector<std::string> kNames = {"constant", "poisson"};
  (*choices)["--arrivals"] = kNames;
  const auto set_arrivals = [arguments](const std::string& name) {
    arguments->arrivals = name == kNames.back() ? ArrivalKind::kPoisson : ArrivalKind::kConstant;
  };
  CLI::Option* arrivals =
      command
          ->add_option_function<std::string>("--arrivals", set_arrivals,
                                             "how an open loop plans them: constant, poisson; default: constant")
          ->check(OneOf(kNames))
          ->type_name("NAME");
  AddChecked(command, "--warmup", ParseWarmup, &arguments->warmup, "at each load, before it counts; default: 1s")
      ->type_name("DURATION");
  CLI::Option* duration = AddChecked(command, "--duration", ParseSpan, &arguments->duration,
                                     "measured at each load; default: 10s, with --find-max 3s")
                              ->type_name("DURATION");
  CLI::Option* count =
      AddChecked(command, "--count", ParseRequests, &arguments->count, "instead: requests measured at each load")
          ->excludes(duration)
          ->type_name("N");
  AddChecked(command, "--stability", ParsePercentage, &arguments->max_spread,
             "the spread of the windows from which on a load isn't called stable; default: 20%")
      ->type_name("PERCENT");
  CLI::Option* slo = AddChecked(command, "--slo", ParseObjectives, &arguments->objectives,
                                "bounds of the latency, like p99=2ms,max=50ms")
                         ->type_name("BOUNDS");
  CLI::Option* find_max =
      command->add_flag("--find-max", arguments->find_max, "search the highest rate that meets --slo")
          ->needs(slo)
          ->excludes(count);
  command->final_callback([=] {
    if (rate->count() == 0 && arrivals->count() > 0 && find_max->count() == 0) {
      throw CLI::ValidationError("--arrivals", "needs --rate or --find-max: a closed loop has none");
    }
    if (arguments->concurrency.size() > 1 && (rate->count() > 0 || find_max->count() > 0)) {
      throw CLI::ValidationError(concurrency->get_name(), "can't be several with --rate or --find-max");
    }
    if (!arguments->profile.empty() && (arguments->op_sets.size() > 1 || arguments->dtypes.size() > 1)) {
      throw CLI::ValidationError("--profile", "can't be with several --op or --dtype: its kinds have their own");
    }
  });
}

void AddWork(CLI::App* command, LoadtestArguments* arguments, Choices* choices) {
  Kind& kind = arguments->kind;
  const std::vector<std::string> ways = {std::begin(kWays), std::end(kWays)};
  (*choices)[absl::StrCat(kLoadtest, " --via")] = ways;  // not those of `reduce`
  const auto add_ops = [arguments](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      std::vector<std::string> ops = absl::StrSplit(text, ',');
      for (const std::string& op : ops) {
        if (const std::string problem = OneOf(OpNames())(op); !problem.empty()) {
          throw CLI::ValidationError("--op", problem);
        }
      }
      arguments->op_sets.push_back(std::move(ops));
    }
  };
  command
      ->add_option_function<std::vector<std::string>>(
          "--op", add_ops, "ops of a request; given several times, each alike often. Default: sum")
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  command->add_option("--dtype", arguments->dtypes, "of the elements; several: each alike often. Default: f32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(OneOf(DTypeNames()))
      ->type_name("NAME,...");
  AddChecked(command, "--size", ParseSizes, &kind.sizes,
             "bytes of an array: 4Ki; 4Ki,64Ki, each alike often; 1Ki..1Mi, log-uniform. Default: 4Ki")
      ->type_name("SIZES");
  command->add_option("--engine", kind.engine, "what to run on")
      ->check(OneOf(EngineNames()))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--pipeline", kind.pipeline, "how to reduce: a name of `reducectl pipelines`")->type_name("NAME");
  command->add_option("--precision", kind.precision, "of sums of floats. Default: exact, if the pipeline has it")
      ->check(OneOf(PrecisionNames()))
      ->type_name("NAME");
  command
      ->add_option("--via", kind.via,
                   absl::StrCat("how the elements get there; put: they are kept there beforehand; ipc: they are in "
                                "memory of a GPU of this process: ",
                                absl::StrJoin(ways, ", ")))
      ->check(OneOf(ways))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--profile", arguments->profile, "a JSON file with a mix of kinds of requests: see README")
      ->type_name("FILE");
  AddParsed(command, "--seed", ParseSeed, &arguments->seed, "of the elements, the mix and the arrivals")
      ->type_name("N")
      ->default_str("1");
  command->add_flag("--include-fill", arguments->include_fill,
                    "count what it takes to write the elements where they are sent from; with put, putting them");
  AddChecked(command, "--verify", ParsePercentage, &arguments->verify,
             "share of the answers that are compared with the right ones; default: 1%")
      ->type_name("PERCENT");
}

}  // namespace

void AddLoadtest(CLI::App* app, LoadtestArguments* arguments, Choices* choices) {
  CLI::App* command = app->add_subcommand(kLoadtest, kHelp);
  command->footer(absl::StrCat(kFooter, "\n\n", app->get_footer()));
  command->require_subcommand(0, 1);
  AddLoad(command, arguments, choices);
  AddWork(command, arguments, choices);
  command->add_option("--connections", arguments->connections, "to the server, at most 1024; default: 1")
      ->check(UpTo(1024))
      ->type_name("N");
  command
      ->add_option("--threads", arguments->threads,
                   "that send, at most 256; default: one for each request under way, at most 64")
      ->check(UpTo(kMaxThreads))
      ->type_name("N");
  command
      ->add_option("--server-flag", arguments->server_flags,
                   "a flag of the server that is started, like --server-flag=--cpu_lanes=2; any number of times")
      ->allow_extra_args(false)
      ->type_name("FLAG");
  command->add_option("--json", arguments->json, "write all figures into this file; - prints them instead")
      ->type_name("FILE");
  command->add_option("--csv", arguments->csv, "write a line for each load")->type_name("FILE");
  command->add_option("--html", arguments->html, "write a page with plots")->type_name("FILE");
  command
      ->add_option("--histogram", arguments->histogram,
                   "write the distribution of the latency as HdrHistogram prints it, for each load")
      ->type_name("FILE");

  CLI::App* compare = command->add_subcommand("compare", "compare two runs that --json wrote: is the second worse?");
  compare->add_option("FILE", arguments->compared, "the first and the second")->required()->expected(2)->type_name("");
}

}  // namespace reduced::client
