// Times pipelines against each other, and shows what came out, or what is stored of it.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/ladder/run.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(10);  // of one ladder

const PipelineInfo* FindPipeline(const ServerInfo& info, absl::string_view name) {
  for (const PipelineInfo& pipeline : info.pipelines) {
    if (pipeline.name == name) return &pipeline;
  }
  return nullptr;
}

// What to run. Of no dtype and no count, what the sources of the pipelines run themselves.
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

// Writes over one line of standard error, if that is a terminal.
void ShowProgress(absl::string_view text) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) std::cerr << "\r\033[K" << text << std::flush;
}

absl::StatusOr<LadderRun> Measure(Client& client, const ServerInfo& info, const LadderOptions& workload) {
  LadderRun run;
  run.options = workload;
  run.version = info.version;
  for (const DeviceInfo& device : info.devices) run.devices[device.name] = device.model;
  const bool exact = !DependsOnOrder(workload.op, workload.dtype);
  ShowProgress(NameOf(run));
  const absl::StatusOr<LadderStart> start =
      client.Ladder(workload, [&](const LadderStart& start, const LadderStep& step) {
        const PipelineInfo* const pipeline = FindPipeline(info, step.pipeline);
        run.rows.push_back({step, exact || (pipeline != nullptr && pipeline->fixed_order)});
        ShowProgress(absl::StrCat(NameOf(run), ": ", run.rows.size(), " of ", start.steps, ", ", step.pipeline));
      });
  ShowProgress("");
  if (!start.ok()) return start.status();
  run.start = *start;
  if (const absl::Status valid = Validate(run); !valid.ok()) return absl::InternalError(valid.message());
  return run;
}

// Lets a workload of one pipeline be run with every block size that this pipeline has. One that the server doesn't know
// is left for it to refuse.
ExitCode Sweep(const ServerInfo& info, LadderOptions* workload) {
  const PipelineInfo* const pipeline = FindPipeline(info, workload->pipelines.front());
  if (pipeline == nullptr) return kOk;
  workload->block_sizes = pipeline->block_sizes;
  if (!workload->block_sizes.empty()) return kOk;
  std::vector<std::string> others;
  for (const PipelineInfo& each : info.pipelines) {
    if (!each.block_sizes.empty()) others.push_back(each.name);
  }
  std::cerr << "reducectl: ladder: pipeline " << pipeline->name << " has no choice of block sizes; those that do: "
            << (others.empty() ? "none on this server" : absl::StrJoin(others, ", ")) << "\n";
  return kUsage;
}

// Prints a run as asked for; tells whether it is all right.
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

// Draws the runs if that was asked for. Gives `code`, unless that is fine and this fails.
ExitCode Draw(const LadderArguments& arguments, const std::vector<LadderRun>& runs, ExitCode code) {
  if (arguments.svg.empty()) return code;
  std::ofstream file(arguments.svg);
  if (file << ToSvg(runs) && file.flush()) return code;
  std::cerr << "reducectl: " << arguments.svg << ": can't be written\n";
  return code == kOk ? kOutput : code;
}

ExitCode MeasureAll(const CommonOptions& common, const LadderArguments& arguments) {
  const std::unique_ptr<Client> client = MakeClient(common, kTimeout);
  if (client == nullptr) return kUsage;
  const absl::StatusOr<ServerInfo> info = client->GetServerInfo();
  if (!info.ok()) return ReportCallError("ladder", info.status());
  ExitCode code = kOk;
  std::vector<LadderRun> runs;
  for (LadderOptions& workload : Workloads(arguments.options)) {
    if (arguments.sweep_block) {
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
  const absl::StatusOr<Memory> text = ReadSource(arguments.from);
  const absl::StatusOr<std::vector<LadderRun>> runs = text.ok() ? ParseLadderRuns(text->bytes()) : text.status();
  if (!runs.ok()) {
    std::cerr << "reducectl: " << arguments.from << ": " << runs.status().message() << "\n";
    return kData;
  }
  ExitCode code = kOk;
  for (const LadderRun& run : *runs) code = std::max(code, Print(common, arguments, run, &run == &runs->front()));
  return Draw(arguments, *runs, code);
}

}  // namespace

ExitCode RunLadder(const CommonOptions& common, const LadderArguments& arguments) {
  return arguments.from.empty() ? MeasureAll(common, arguments) : ShowStored(common, arguments);
}

}  // namespace reduced::client
