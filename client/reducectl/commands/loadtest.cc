// reducectl loadtest: its options.

#include "client/reducectl/loadtest/loadtest.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/loadtest/options.h"

namespace reduced::client {
namespace {

constexpr char kHelp[] =
    R"(measure a server under load: latency, throughput, errors, wrong results; starts a server if no address is given)";

constexpr char kFooter[] =
    R"(Loads are lists of numbers and ranges: 1,2,4..64 doubles from 4 to 64; 1000..20000:1000 goes up in steps.
Without --rate the loop is closed: --concurrency requests are in flight at any time. With --rate the loop is open:
requests are planned at that rate, and latency counts from the planned time, even if a request had to wait for an earlier
one. The latency without that wait is shown as "uncorrected".)";

// An option whose text is parsed by `parse`.
template <class Field, class Result>
CLI::Option* AddChecked(CLI::App* command, const std::string& option,
                        absl::StatusOr<Result> (*parse)(const std::string&), Field* field, const std::string& help) {
  const auto set = [=](const std::string& text) {
    absl::StatusOr<Result> result = parse(text);
    if (!result.ok()) {
      absl::string_view problem = result.status().message();
      absl::ConsumePrefix(&problem, absl::StrCat(option.substr(2), ": "));  // as the fields of a profile are named
      throw CLI::ValidationError(option, std::string(problem));
    }
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
        absl::StrCat("got ", load, "; allowed: whole numbers from 1 to ", kMaxConcurrency));
  }
  return loads;
}

absl::StatusOr<absl::Duration> ParseSpan(const std::string& text) {
  absl::Duration span;
  if (absl::ParseDuration(text, &span) && span >= absl::Milliseconds(10) && span <= absl::Hours(24 * 30)) return span;
  return absl::InvalidArgumentError(
      absl::StrCat("got \"", text, "\"; allowed: durations from 10ms, like 500ms, 10s, 1h"));
}

absl::StatusOr<absl::Duration> ParseWarmup(const std::string& text) {
  absl::Duration span;
  if (text == "0" || (absl::ParseDuration(text, &span) && span >= absl::ZeroDuration() && span <= absl::Hours(24))) {
    return span;
  }
  return absl::InvalidArgumentError(absl::StrCat("got \"", text, "\"; allowed: durations like 0, 500ms, 5s"));
}

absl::StatusOr<std::int64_t> ParseRequests(const std::string& text) {
  std::int64_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count > 0) return count;
  return absl::InvalidArgumentError(absl::StrCat("got \"", text, "\"; allowed: whole numbers from 1"));
}

void AddLoad(CommandLine& line, CLI::App* command, LoadtestArguments* arguments) {
  CLI::Option* concurrency = AddChecked(command, "--concurrency", ParseConcurrency, &arguments->concurrency,
                                        "requests in flight; with --rate the limit of them; default: 1, with --rate 64")
                                 ->type_name("LOADS");
  CLI::Option* rate = AddChecked(command, "--rate", ParseLoads, &arguments->rates,
                                 "open loop: planned requests per second; with --find-max the range to search")
                          ->type_name("LOADS");
  static const std::vector<std::string> kNames = {"constant", "poisson"};
  line.choices["--arrivals"] = kNames;
  const auto set_arrivals = [arguments](const std::string& name) {
    arguments->arrivals = name == kNames.back() ? ArrivalKind::kPoisson : ArrivalKind::kConstant;
  };
  CLI::Option* arrivals =
      command
          ->add_option_function<std::string>("--arrivals", set_arrivals,
                                             "the arrivals of an open loop: constant, poisson; default: constant")
          ->check(OneOf(kNames))
          ->type_name("NAME");
  AddChecked(command, "--warmup", ParseWarmup, &arguments->warmup, "the time before each measurement; default: 1s")
      ->type_name("DURATION");
  CLI::Option* duration = AddChecked(command, "--duration", ParseSpan, &arguments->duration,
                                     "the measured time of each load; default: 10s, with --find-max 3s")
                              ->type_name("DURATION");
  CLI::Option* count = AddChecked(command, "--count", ParseRequests, &arguments->count,
                                  "measured requests of each load, instead of --duration")
                           ->excludes(duration)
                           ->type_name("N");
  AddChecked(command, "--stability", ParsePercentage, &arguments->max_spread,
             "a load is stable if its windows spread less than this; default: 20%")
      ->type_name("PERCENT");
  CLI::Option* slo = AddChecked(command, "--slo", ParseObjectives, &arguments->objectives,
                                "objectives of the latency, like p99=2ms,max=50ms")
                         ->type_name("BOUNDS");
  CLI::Option* find_max =
      command->add_flag("--find-max", arguments->find_max, "search for the highest rate that meets --slo")
          ->needs(slo)
          ->excludes(count);
  command->final_callback([=] {
    if (rate->count() == 0 && arrivals->count() > 0 && find_max->count() == 0) {
      throw CLI::ValidationError("--arrivals", "requires --rate or --find-max: a closed loop has no arrivals");
    }
    if (arguments->concurrency.size() > 1 && (rate->count() > 0 || find_max->count() > 0)) {
      throw CLI::ValidationError(concurrency->get_name(), "got several; allowed with --rate or --find-max: one");
    }
    if (!arguments->profile.empty() && (arguments->op_sets.size() > 1 || arguments->dtypes.size() > 1)) {
      throw CLI::ValidationError(
          "--profile", "got it with several --op or --dtype; allowed: one of each, for kinds without their own");
    }
  });
}

void AddWork(CommandLine& line, CLI::App* command, LoadtestArguments* arguments) {
  Kind& kind = arguments->kind;
  const std::vector<std::string> vias = LoadtestVias();
  line.choices["loadtest --via"] = vias;  // not those of `reduce`
  const auto add_ops = [arguments](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      arguments->op_sets.push_back(ParseOps(text));
      for (const std::string& op : arguments->op_sets.back()) {
        const absl::Status status = CheckLoadOp(op);
        if (!status.ok()) throw CLI::ValidationError("--op", std::string(absl::StripPrefix(status.message(), "op: ")));
      }
    }
  };
  command
      ->add_option_function<std::vector<std::string>>(
          "--op", add_ops, "the ops of a request; may be repeated: each list is used equally often; default: sum")
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  command
      ->add_option("--dtype", arguments->dtypes,
                   "the type of the elements; several: each is used equally often; default: f32")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(OneOf(DTypeNames()))
      ->type_name("NAME,...");
  AddChecked(command, "--size", ParseSizes, &kind.sizes,
             "bytes of an array: 4Ki; 4Ki,64Ki, each equally often; 1Ki..1Mi, log-uniform; default: 4Ki")
      ->type_name("SIZES");
  command->add_option("--engine", kind.engine, "the engine")
      ->check(OneOf(EngineNames()))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--pipeline", kind.pipeline, "the pipeline: a name of `reducectl pipelines`")->type_name("NAME");
  command
      ->add_option("--precision", kind.precision,
                   "the precision of float sums; default: exact, if the pipeline supports it")
      ->check(OneOf(PrecisionNames()))
      ->type_name("NAME");
  command
      ->add_option("--via", kind.via,
                   absl::StrCat("how the elements reach the server; resident: they are put before the test; "
                                "device_region: they are in memory of a GPU of this process; ring_...: the same, with "
                                "requests through a ring: ",
                                absl::StrJoin(vias, ", ")))
      ->check(OneOf(vias))
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--profile", arguments->profile, "a JSON file with a mix of kinds of requests: see client/README.md")
      ->type_name("FILE");
  AddParsed(command, "--seed", ParseSeed, &arguments->seed, "the seed of the elements, the mix and the arrivals")
      ->type_name("N")
      ->default_str("1");
  command->add_flag(
      "--include-fill", arguments->include_fill,
      "include the time to write the elements to where they are sent from; with --via resident to put them");
  AddChecked(command, "--verify", ParsePercentage, &arguments->verify,
             "the share of the results that are verified; default: 1%")
      ->type_name("PERCENT");
}

void AddOutput(CLI::App* command, LoadtestArguments* arguments) {
  const struct {
    const char* name;
    std::string* path;
    const char* help;
  } files[] = {
      {"--json", &arguments->json, "write all figures to this file; -: print them instead of the text"},
      {"--csv", &arguments->csv, "write a line for each load to this file; -: print them instead of the text"},
      {"--html", &arguments->html, "write a page with plots to this file"},
      {"--histogram", &arguments->histogram,
       "write the distribution of the latency of each load to this file, in the format of HdrHistogram"},
  };
  for (const auto& file : files) command->add_option(file.name, *file.path, file.help)->type_name("FILE");
}

void AddComparison(CommandLine& line, CLI::App* loadtest) {
  const auto files = std::make_shared<std::vector<std::string>>();
  line.Add(loadtest, "compare", "compare runs that --json wrote: is the second side worse, beyond the noise?",
           [files](const CommonOptions& common) { return CompareLoadtests(common, files->front(), files->back()); })
      ->add_option("FILE", *files,
                   "the first side and the second side: a run each, or several with commas, a1.json,a2.json,a3.json")
      ->required()
      ->expected(2)
      ->type_name("");
}

}  // namespace

void AddLoadtest(CommandLine& line) {
  const auto arguments = std::make_shared<LoadtestArguments>();
  CLI::App* command =
      line.Add("loadtest", kHelp, [arguments](const CommonOptions& common) { return RunLoadtest(common, *arguments); });
  command->footer(absl::StrCat(kFooter, "\n\n", line.app.get_footer()));
  command->require_subcommand(0, 1);
  AddLoad(line, command, arguments.get());
  AddWork(line, command, arguments.get());
  command->add_option("--connections", arguments->connections, "connections to the server, at most 1024; default: 1")
      ->check(Positive(1024))
      ->type_name("N");
  command
      ->add_option("--threads", arguments->threads,
                   "threads that send, at most 256; default: one for each request in flight, at most 64")
      ->check(Positive(kMaxThreads))
      ->type_name("N");
  command
      ->add_option("--server-flag", arguments->server_flags,
                   "a flag of the server that is started, like --server-flag=--cpu_lanes=2; may be repeated")
      ->allow_extra_args(false)
      ->type_name("FLAG");
  AddOutput(command, arguments.get());
  AddComparison(line, command);
}

}  // namespace reduced::client
