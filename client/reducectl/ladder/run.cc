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
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

// The ops that round intermediate results of floats. All others are exact, and all are of integers.
constexpr absl::string_view kRounding[] = {"sum", "prod", "mean", "sum_squares", "l1", "l2", "var", "std"};

Json ToJson(const LadderRow& row, bool of_product) {
  const LadderStep& step = row.step;
  Json json = {{"pipeline", step.pipeline}, {"engine", step.engine}, {"device", step.device}};
  json["kernel_us"] = step.kernel_us;
  if (step.read_bytes != 0) json["read_bytes"] = step.read_bytes;
  if (step.scratch_copy_us.has_value()) json["scratch_copy_us"] = *step.scratch_copy_us;
  if (step.read_gb_per_s.has_value()) json["read_gb_per_s"] = *step.read_gb_per_s;
  if (step.peak_gflops.has_value()) json["peak_gflops"] = *step.peak_gflops;
  if (step.bank_conflicts.has_value()) json["bank_conflicts"] = *step.bank_conflicts;
  if (step.active_threads.has_value()) json["active_threads"] = *step.active_threads;
  if (step.block.has_value()) json["block"] = {step.block->x, step.block->y};
  if (!of_product) json["value"] = ToJson(step.value);
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

LadderRow RowFromJson(const Json& json, bool of_product) {
  LadderRow row;
  LadderStep& step = row.step;
  json.at("pipeline").get_to(step.pipeline);
  json.at("engine").get_to(step.engine);
  json.at("device").get_to(step.device);
  json.at("kernel_us").get_to(step.kernel_us);
  if (json.contains("read_bytes")) json.at("read_bytes").get_to(step.read_bytes);
  step.scratch_copy_us = OptionalDouble(json, "scratch_copy_us");
  step.read_gb_per_s = OptionalDouble(json, "read_gb_per_s");
  step.peak_gflops = OptionalDouble(json, "peak_gflops");
  step.active_threads = OptionalDouble(json, "active_threads");
  if (json.contains("bank_conflicts")) json.at("bank_conflicts").get_to(step.bank_conflicts.emplace());
  if (json.contains("block")) step.block = {json.at("block").at(0).get<int>(), json.at("block").at(1).get<int>()};
  if (!of_product) step.value = ValueFromJson(json.at("value"));
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

MatmulOptions ProductFromJson(const Json& json) {
  MatmulOptions product;
  json.at("m").get_to(product.m);
  json.at("n").get_to(product.n);
  json.at("k").get_to(product.k);
  json.at("tile").get_to(product.tile);
  json.at("source_fill").get_to(product.source_fill);
  return product;
}

Json ToJson(const MatmulOptions& product) {
  return {{"m", product.m},
          {"n", product.n},
          {"k", product.k},
          {"tile", product.tile},
          {"source_fill", product.source_fill}};
}

LadderRun RunFromJson(const Json& json) {
  LadderRun run;
  if (json.contains("matmul")) {
    json.at("dtype").get_to(run.options.dtype);
    run.options.matmul = ProductFromJson(json.at("matmul"));
    json.at("seed").get_to(run.options.seed);
    json.at("operations").get_to(run.start.operations);
  } else {
    json.at("op").get_to(run.options.op);
    json.at("dtype").get_to(run.options.dtype);
    json.at("count").get_to(run.options.count);
    run.options.fill = OptionalDouble(json, "fill");
    if (!run.options.fill.has_value()) json.at("seed").get_to(run.options.seed);
    if (json.contains("block_sizes")) json.at("block_sizes").get_to(run.options.block_sizes);
    run.start.expected = ValueFromJson(json.at("expected"));
  }
  json.at("bytes").get_to(run.start.bytes);
  json.at("version").get_to(run.version);
  json.at("devices").get_to(run.devices);
  for (const Json& row : json.at("steps")) run.rows.push_back(RowFromJson(row, run.options.matmul.has_value()));
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

std::int64_t ReadBytes(const LadderLine& line) {
  return line.step->read_bytes != 0 ? line.step->read_bytes : line.run->start.bytes;
}

std::vector<LadderLine> LinesOf(const LadderRun& run) {
  std::vector<LadderLine> lines;
  std::map<absl::string_view, double> first_us;  // by engine
  for (const LadderRow& row : run.rows) {
    const LadderStep& step = row.step;
    const Summary us = Summarize(step.kernel_us);
    LadderLine line = {
        .run = &run, .step = &step, .promised_bits = row.promised_bits, .label = step.pipeline, .us = us};
    const std::int64_t work = run.options.matmul.has_value() ? run.start.operations : ReadBytes(line);
    line.rate = static_cast<double>(work) / us.median / 1e3;
    line.total_up = first_us.emplace(step.engine, us.median).first->second / us.median;
    if (!lines.empty() && lines.back().step->engine == step.engine) line.step_up = lines.back().us.median / us.median;
    if (const double best = BestRate(run, step.device); best > 0) line.roofline = line.rate / best;
    if (step.block.has_value()) absl::StrAppend(&line.label, "/", step.block->x, "x", step.block->y);
    if (step.occupancy.has_value()) {
      const Occupancy& fit = *step.occupancy;
      line.occupancy = 1.0 * fit.blocks_per_multiprocessor * fit.block_size / fit.max_threads_per_multiprocessor;
      if (!run.options.block_sizes.empty()) absl::StrAppend(&line.label, "/", fit.block_size);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string RateUnit(const LadderRun& run) { return run.options.matmul.has_value() ? "GFLOP/s" : "GB/s"; }

double BestRate(const LadderRun& run, absl::string_view device) {
  double best = 0;
  for (const LadderRow& row : run.rows) {
    if (row.step.device != device) continue;
    const auto& rate = run.options.matmul.has_value() ? row.step.peak_gflops : row.step.read_gb_per_s;
    best = std::max(best, rate.value_or(0));
  }
  return best;
}

std::string BestName(const LadderRun& run) { return run.options.matmul.has_value() ? "peak" : "plain read"; }

std::string NameOf(const LadderRun& run) {
  if (const auto& product = run.options.matmul; product.has_value()) {
    return absl::StrCat("product of ", product->m, " x ", product->k, " and ", product->k, " x ", product->n, " ",
                        run.options.dtype);
  }
  return absl::StrCat(run.options.op, " of ", run.options.count, " ", run.options.dtype);
}

std::string ArrayOf(const LadderRun& run) {
  const bool source_fill = run.options.matmul.has_value() && run.options.matmul->source_fill;
  const std::string elements = source_fill ? "the source's fill"
                               : run.options.fill.has_value()
                                   ? absl::StrCat("all ", Value{"f64", *run.options.fill}.Text())
                                   : absl::StrCat("random, seed ", run.options.seed);
  return absl::StrCat(FormatBytes(run.start.bytes), ", ", elements);
}

Json ToJson(const LadderRun& run) {
  const LadderOptions& options = run.options;
  Json json;
  if (options.matmul.has_value()) {
    json = {{"matmul", ToJson(*options.matmul)}, {"dtype", options.dtype}, {"seed", options.seed}};
    json["bytes"] = run.start.bytes;
    json["operations"] = run.start.operations;
  } else {
    json = {{"op", options.op}, {"dtype", options.dtype}, {"count", options.count}};
    if (options.fill.has_value()) {
      json["fill"] = ToJson(Value{"f64", *options.fill});
    } else {
      json["seed"] = options.seed;
    }
    if (!options.block_sizes.empty()) json["block_sizes"] = options.block_sizes;
    json["bytes"] = run.start.bytes;
    json["expected"] = ToJson(run.start.expected);
  }
  json["version"] = run.version;
  json["devices"] = run.devices;
  Json& steps = json["steps"] = Json::array();
  for (const LadderRow& row : run.rows) steps.push_back(ToJson(row, options.matmul.has_value()));
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
      return error(WhyNotJson(exception));
    }
    if (const absl::Status valid = Validate(runs.back()); !valid.ok()) return error(valid.message());
  }
  if (runs.empty())
    return absl::InvalidArgumentError("has no ladder in it; allowed: what `reducectl ladder --json` prints");
  return runs;
}

}  // namespace reduced::client
