// reducectl ladder: times pipelines against each other, or shows stored times.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/ladder/run.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(10);  // of one ladder

struct LadderArguments {
  LadderOptions options;     // without a dtype and a count: the two workloads of the pipelines' sources, in turn
  bool sweep_block = false;  // run the one pipeline with each block size that it has
  bool csv = false;
  std::string svg;      // the file for the plot; empty: none
  bool matmul = false;  // matrix products; `product` says which, options.count is n
  MatmulOptions product;
  std::string from;  // show the runs in this file instead of measuring; empty: measure
};

const PipelineInfo* FindPipeline(const ServerInfo& info, absl::string_view name) {
  for (const PipelineInfo& pipeline : info.pipelines) {
    if (pipeline.name == name) return &pipeline;
  }
  return nullptr;
}

// The workloads to run: without a dtype and a count, those of the sources of the pipelines.
std::vector<LadderOptions> Workloads(const LadderOptions& asked) {
  constexpr std::int64_t kMi = 1 << 20;
  LadderOptions first = asked;
  if (first.dtype.empty()) first.dtype = "i32";
  if (first.count == 0) first.count = 16 * kMi;
  if (!asked.dtype.empty() || asked.count != 0) return {first};
  LadderOptions second = asked;
  second.dtype = "f64";
  second.count = 100 * kMi;
  second.fill = asked.fill.value_or(1.23);
  return {first, second};
}

// A product of square matrices unless m and k are given.
LadderOptions ProductWorkload(const LadderArguments& arguments) {
  constexpr std::int64_t kSide = 2048;  // of the source
  LadderOptions workload = arguments.options;
  MatmulOptions& product = workload.matmul.emplace(arguments.product);
  product.n = workload.count == 0 ? kSide : workload.count;
  if (product.m == 0) product.m = product.n;
  if (product.k < 0) product.k = product.n;
  product.sweep_blocks = arguments.sweep_block;
  workload.count = 0;
  if (workload.dtype.empty()) workload.dtype = "f32";
  return workload;
}

// Overwrites the last line of standard error, if that is a terminal.
void ShowProgress(absl::string_view text) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) std::cerr << "\r\033[K" << Printable(text) << std::flush;
}

absl::StatusOr<LadderRun> Measure(Client& client, const ServerInfo& info, const LadderOptions& workload) {
  LadderRun run;
  run.options = workload;
  run.version = info.version;
  for (const DeviceInfo& device : info.devices) run.devices[device.name] = device.model;
  const bool product = workload.matmul.has_value();
  const bool exact = !product && !DependsOnOrder(workload.op, workload.dtype);
  ShowProgress(NameOf(run));
  const absl::StatusOr<LadderStart> start =
      client.Ladder(workload, [&](const LadderStart& start, const LadderStep& step) {
        const PipelineInfo* const pipeline = FindPipeline(info, step.pipeline);
        // Every rung of products has one order of its own; the library may choose.
        const bool fixed = product ? step.pipeline != "cublas" : pipeline != nullptr && pipeline->fixed_order;
        run.rows.push_back({step, exact || fixed});
        ShowProgress(absl::StrCat(NameOf(run), ": ", run.rows.size(), " of ", start.steps, ", ", step.pipeline));
      });
  ShowProgress("");
  if (!start.ok()) return start.status();
  run.start = *start;
  if (const absl::Status valid = Validate(run); !valid.ok()) return absl::InternalError(valid.message());
  return run;
}

// Sets the block sizes of a workload to all that its one pipeline has. The server refuses a pipeline that it doesn't
// know.
ExitCode Sweep(const ServerInfo& info, LadderOptions* workload) {
  const PipelineInfo* const pipeline = FindPipeline(info, workload->pipelines.front());
  if (pipeline == nullptr) return kOk;
  workload->block_sizes = pipeline->block_sizes;
  if (!workload->block_sizes.empty()) return kOk;
  std::vector<std::string> others;
  for (const PipelineInfo& each : info.pipelines) {
    if (!each.block_sizes.empty()) others.push_back(each.name);
  }
  const std::string allowed = others.empty() ? "none on this server" : absl::StrJoin(others, ", ");
  return ReportError("ladder",
                     absl::StrCat("--sweep-block: got pipeline ", pipeline->name,
                                  ", which has no choice of block sizes; allowed: ", allowed),
                     kUsage);
}

// Prints a run. Returns kWrong if a step is wrong.
ExitCode Print(const CommonOptions& common, const LadderArguments& arguments, const LadderRun& run, bool first) {
  if (common.json) {
    std::cout << Dump(ToJson(run)) << "\n" << std::flush;
  } else if (arguments.csv) {
    std::cout << (first ? CsvHeader() : "") << ToCsv(run) << std::flush;
  } else {
    std::cout << (first ? "" : "\n") << ToText(run) << std::flush;
  }
  const std::vector<LadderLine> lines = LinesOf(run);
  return std::all_of(lines.begin(), lines.end(), [](const LadderLine& line) { return line.Good(); }) ? kOk : kWrong;
}

// Draws the runs if --svg is given. Returns `code`, unless that is kOk and the file can't be written.
ExitCode Draw(const LadderArguments& arguments, const std::vector<LadderRun>& runs, ExitCode code) {
  if (arguments.svg.empty()) return code;
  const ExitCode written = WriteFile(arguments.svg, ToSvg(runs));
  return code == kOk ? written : code;
}

ExitCode MeasureAll(const CommonOptions& common, const LadderArguments& arguments) {
  const std::unique_ptr<Client> client = MakeClient(common, kTimeout);
  if (client == nullptr) return kUsage;
  const absl::StatusOr<ServerInfo> info = client->GetServerInfo();
  if (!info.ok()) return ReportCallError("ladder", info.status());
  ExitCode code = kOk;
  std::vector<LadderRun> runs;
  std::vector<LadderOptions> workloads =
      arguments.matmul ? std::vector{ProductWorkload(arguments)} : Workloads(arguments.options);
  for (LadderOptions& workload : workloads) {
    if (arguments.sweep_block && !arguments.matmul) {
      if (const ExitCode swept = Sweep(*info, &workload); swept != kOk) return swept;
    }
    absl::StatusOr<LadderRun> run = Measure(*client, *info, workload);
    if (!run.ok()) return ReportCallError("ladder", run.status());
    code = std::max(code, Print(common, arguments, *run, runs.empty()));
    runs.push_back(*std::move(run));
  }
  return Draw(arguments, runs, code);
}

ExitCode ShowStored(const CommonOptions& common, const LadderArguments& arguments) {
  const absl::StatusOr<Memory> text = ReadSource(arguments.from, common.timeout.value_or(absl::InfiniteDuration()));
  const absl::StatusOr<std::vector<LadderRun>> runs = text.ok() ? ParseLadderRuns(text->bytes()) : text.status();
  if (!runs.ok()) return ReportError(arguments.from, runs.status().message(), kData);
  ExitCode code = kOk;
  for (const LadderRun& run : *runs) code = std::max(code, Print(common, arguments, run, &run == &runs->front()));
  return Draw(arguments, *runs, code);
}

std::string ParseCount(const std::string& text, std::int64_t* count) {
  *count = ParseSize(text).value_or(0);
  if (*count > 0) return "";
  return absl::StrCat("got \"", text, "\"; allowed: numbers of elements like 1000, 512Ki, 16Mi, 1Gi");
}

std::string ParseSide(const std::string& text, std::int64_t* side) {
  *side = text == "0" ? 0 : ParseSize(text).value_or(-1);
  if (*side >= 0) return "";
  return absl::StrCat("got \"", text, "\"; allowed: numbers of elements like 1000, 2Ki");
}

std::string ParseFill(const std::string& text, std::optional<double>* fill) {
  if (absl::SimpleAtod(text, &fill->emplace())) return "";
  return absl::StrCat("got \"", text, "\"; allowed: numbers, nan, inf, -inf");
}

// The options of a measurement, which don't go with --from.
void AddMeasuring(CommandLine& line, CLI::App* command, LadderArguments* arguments) {
  LadderOptions& options = arguments->options;
  AddChoice(line, command, "--dtype", &options.dtype, "the type of the elements", DTypeNames())->default_str("i32");
  AddParsed(command, "--n", ParseCount, &options.count, "the number of elements, like 1000, 512Ki, 16Mi or 1Gi")
      ->type_name("N")
      ->default_str("16Mi");
  AddChoice(line, command, "--op", &options.op, "the op", OpNames())->capture_default_str();
  AddParsed(command, "--fill", ParseFill, &options.fill, "the value of every element; default: random elements")
      ->type_name("X");
  AddParsed(command, "--seed", ParseSeed, &options.seed, "the seed of random elements")
      ->type_name("N")
      ->default_str("0");
  command
      ->add_option("--pipeline", options.pipelines,
                   "names of `reducectl pipelines`; default: all that support the op and dtype")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  CLI::Option* block = command->add_option("--block", options.block_sizes, "threads per block; several: compare them")
                           ->delimiter(',')
                           ->allow_extra_args(false)
                           ->check(Positive())
                           ->type_name("N,...");
  command->add_flag("--sweep-block", arguments->sweep_block, "compare all block sizes of the one --pipeline")
      ->excludes(block);
  command->add_option("--repeats", options.repeats, "timed runs of each pipeline, at most 1000; default: 20")
      ->check(Positive())
      ->type_name("N");
}

// The options of matrix products.
void AddProducts(CLI::App* command, LadderArguments* arguments) {
  MatmulOptions& product = arguments->product;
  product.k = -1;
  CLI::Option* matmul = command->add_flag("--matmul", arguments->matmul,
                                          "time matrix products, m x k by k x n elements; default: --n 2048 of f32");
  AddParsed(command, "--m", ParseSide, &product.m, "rows of the product; default: --n")->type_name("N")->needs(matmul);
  AddParsed(command, "--k", ParseSide, &product.k, "the shared axis; default: --n")->type_name("N")->needs(matmul);
  command->add_option("--tile", product.tile, "the side of tiles in shared memory, 16 or 32; default: 32")
      ->check(CLI::IsMember({16, 32}))
      ->type_name("N")
      ->needs(matmul);
  command
      ->add_flag("--source-fill", product.source_fill,
                 "multiply a[i][k] = 2 k + i by b[k][j] = j - k, whose product has a closed form")
      ->needs(matmul);
  for (const char* const other : {"--op", "--fill", "--block"}) matmul->excludes(command->get_option(other));
}

}  // namespace

void AddLadder(CommandLine& line) {
  const auto arguments = std::make_shared<LadderArguments>();
  CLI::App* command = line.Add(
      "ladder",
      "time pipelines against each other on an array that the server generates; default: on 16Mi random i32, then on "
      "100Mi f64 of 1.23",
      [arguments](const CommonOptions& common) {
        return arguments->from.empty() ? MeasureAll(common, *arguments) : ShowStored(common, *arguments);
      });
  AddMeasuring(line, command, arguments.get());
  AddProducts(command, arguments.get());
  const std::vector<CLI::Option*> measuring = command->get_options([](const CLI::Option*) { return true; });
  CLI::Option* from = command
                          ->add_option("--from", arguments->from,
                                       "measure nothing, show what --json printed to this file; - is standard input")
                          ->type_name("FILE");
  command->add_flag("--csv", arguments->csv, "print CSV");
  command->add_option("--svg", arguments->svg, "also draw a plot into this file")->type_name("FILE");
  command->final_callback([from, measuring, arguments, &common = line.common] {
    for (const CLI::Option* option : measuring) {
      if (from->count() > 0 && option->count() > 0) throw CLI::ExcludesError("--from", option->get_name());
    }
    if (arguments->csv && common.json) throw CLI::ExcludesError("--csv", "--json");
    if (arguments->sweep_block && arguments->options.pipelines.size() != 1) {
      throw CLI::ValidationError("--sweep-block", "requires exactly one --pipeline");
    }
  });
}

}  // namespace reduced::client
