#include "client/reducectl/ladder/run.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace reduced::client {
namespace {

// The ops that round intermediate results of floats. All others are exact, and all are of integers.
constexpr absl::string_view kRounding[] = {"sum", "prod", "mean", "sum_squares", "l1", "l2", "var", "std"};

Json ToJson(const LadderRow& row) {
  const LadderStep& step = row.step;
  Json json = {{"pipeline", step.pipeline}, {"engine", step.engine}, {"device", step.device}};
  json["kernel_us"] = step.kernel_us;
  if (step.scratch_copy_us.has_value()) json["scratch_copy_us"] = *step.scratch_copy_us;
  if (step.read_gb_per_s.has_value()) json["read_gb_per_s"] = *step.read_gb_per_s;
  json["value"] = ToJson(step.value);
  json["correct"] = step.correct;
  json["same_bits"] = step.same_bits;
  json["promised_bits"] = row.promised_bits;
  if (step.occupancy.has_value()) {
    json["occupancy"] = {{"block_size", step.occupancy->block_size},
                         {"registers", step.occupancy->registers},
                         {"shared_bytes", step.occupancy->shared_bytes},
                         {"blocks_per_multiprocessor", step.occupancy->blocks_per_multiprocessor},
                         {"max_threads_per_multiprocessor", step.occupancy->max_threads_per_multiprocessor}};
  }
  return json;
}

// Throws Json::exception, as all functions below do that read JSON.
std::optional<double> OptionalDouble(const Json& json, const char* key) {
  if (!json.contains(key)) return std::nullopt;
  return DoubleFromJson(json.at(key));
}

LadderRow RowFromJson(const Json& json) {
  LadderRow row;
  LadderStep& step = row.step;
  json.at("pipeline").get_to(step.pipeline);
  json.at("engine").get_to(step.engine);
  json.at("device").get_to(step.device);
  json.at("kernel_us").get_to(step.kernel_us);
  step.scratch_copy_us = OptionalDouble(json, "scratch_copy_us");
  step.read_gb_per_s = OptionalDouble(json, "read_gb_per_s");
  step.value = ValueFromJson(json.at("value"));
  json.at("correct").get_to(step.correct);
  json.at("same_bits").get_to(step.same_bits);
  json.at("promised_bits").get_to(row.promised_bits);
  if (json.contains("occupancy")) {
    const Json& from = json.at("occupancy");
    Occupancy& to = step.occupancy.emplace();
    from.at("block_size").get_to(to.block_size);
    from.at("registers").get_to(to.registers);
    from.at("shared_bytes").get_to(to.shared_bytes);
    from.at("blocks_per_multiprocessor").get_to(to.blocks_per_multiprocessor);
    from.at("max_threads_per_multiprocessor").get_to(to.max_threads_per_multiprocessor);
  }
  return row;
}

LadderRun RunFromJson(const Json& json) {
  LadderRun run;
  json.at("op").get_to(run.options.op);
  json.at("dtype").get_to(run.options.dtype);
  json.at("count").get_to(run.options.count);
  run.options.fill = OptionalDouble(json, "fill");
  if (!run.options.fill.has_value()) json.at("seed").get_to(run.options.seed);
  if (json.contains("block_sizes")) json.at("block_sizes").get_to(run.options.block_sizes);
  json.at("bytes").get_to(run.start.bytes);
  run.start.expected = ValueFromJson(json.at("expected"));
  json.at("version").get_to(run.version);
  json.at("devices").get_to(run.devices);
  for (const Json& row : json.at("steps")) run.rows.push_back(RowFromJson(row));
  run.start.steps = static_cast<int>(run.rows.size());
  return run;
}

}  // namespace

absl::Status Validate(const LadderRun& run) {
  if (run.rows.empty()) return absl::InvalidArgumentError("steps: got none; allowed: at least 1");
  for (const LadderRow& row : run.rows) {
    const std::vector<double>& us = row.step.kernel_us;
    if (us.empty() || !std::all_of(us.begin(), us.end(), [](double each) { return each > 0; })) {
      return absl::InvalidArgumentError(absl::StrCat("kernel_us of step ", row.step.pipeline,
                                                     ": got none, or one of 0 or less; allowed: times above 0"));
    }
  }
  return absl::OkStatus();
}

bool DependsOnOrder(absl::string_view op, absl::string_view dtype) {
  const bool is_float = absl::StrContains(dtype, 'f');
  return is_float && std::find(std::begin(kRounding), std::end(kRounding), op) != std::end(kRounding);
}

std::vector<LadderLine> LinesOf(const LadderRun& run) {
  std::vector<LadderLine> lines;
  std::map<absl::string_view, double> first_us;  // by engine
  for (const LadderRow& row : run.rows) {
    const LadderStep& step = row.step;
    const Summary us = Summarize(step.kernel_us);
    LadderLine line = {.run = &run,
                       .step = &step,
                       .promised_bits = row.promised_bits,
                       .label = step.pipeline,
                       .us = us,
                       .gb_per_s = static_cast<double>(run.start.bytes) / us.median / 1e3};
    line.total_up = first_us.emplace(step.engine, us.median).first->second / us.median;
    if (!lines.empty() && lines.back().step->engine == step.engine) line.step_up = lines.back().us.median / us.median;
    if (const double read = BestRead(run, step.device); read > 0) line.roofline = line.gb_per_s / read;
    if (step.occupancy.has_value()) {
      const Occupancy& fit = *step.occupancy;
      line.occupancy = 1.0 * fit.blocks_per_multiprocessor * fit.block_size / fit.max_threads_per_multiprocessor;
      if (!run.options.block_sizes.empty()) absl::StrAppend(&line.label, "/", fit.block_size);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

double BestRead(const LadderRun& run, absl::string_view device) {
  double best = 0;
  for (const LadderRow& row : run.rows) {
    if (row.step.device == device) best = std::max(best, row.step.read_gb_per_s.value_or(0));
  }
  return best;
}

std::string NameOf(const LadderRun& run) {
  return absl::StrCat(run.options.op, " of ", run.options.count, " ", run.options.dtype);
}

std::string ArrayOf(const LadderRun& run) {
  const std::string elements = run.options.fill.has_value()
                                   ? absl::StrCat("all ", Value{"f64", *run.options.fill}.Text())
                                   : absl::StrCat("random, seed ", run.options.seed);
  return absl::StrCat(FormatBytes(run.start.bytes), ", ", elements);
}

Json ToJson(const LadderRun& run) {
  const LadderOptions& options = run.options;
  Json json = {{"op", options.op}, {"dtype", options.dtype}, {"count", options.count}};
  if (options.fill.has_value()) {
    json["fill"] = ToJson(Value{"f64", *options.fill});
  } else {
    json["seed"] = options.seed;
  }
  if (!options.block_sizes.empty()) json["block_sizes"] = options.block_sizes;
  json["bytes"] = run.start.bytes;
  json["expected"] = ToJson(run.start.expected);
  json["version"] = run.version;
  json["devices"] = run.devices;
  Json& steps = json["steps"] = Json::array();
  for (const LadderRow& row : run.rows) steps.push_back(ToJson(row));
  return json;
}

absl::StatusOr<std::vector<LadderRun>> ParseLadderRuns(absl::string_view text) {
  std::vector<LadderRun> runs;
  std::int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const auto error = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is not what `reducectl ladder --json` prints: ", why));
    };
    try {
      runs.push_back(RunFromJson(Json::parse(line)));
    } catch (const Json::exception& exception) {
      return error(exception.what());
    }
    if (const absl::Status valid = Validate(runs.back()); !valid.ok()) return error(valid.message());
  }
  if (runs.empty())
    return absl::InvalidArgumentError("has no ladder in it; allowed: what `reducectl ladder --json` prints");
  return runs;
}

}  // namespace reduced::client
