#include "client/reducectl/loadtest/report.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/output/printable.h"

namespace reduced::client {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string CodeName(std::size_t code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

std::string FormatNs(double ns) { return FormatMicros(ns / 1e3); }

std::vector<std::string> PercentileRow(const std::string& name, const Histogram& histogram) {
  std::vector<std::string> row = {"", name};
  for (const double percent : kPercentiles) {
    row.push_back(histogram.count() == 0 ? "-" : FormatNs(histogram.PercentileNs(percent)));
  }
  return row;
}

std::string SizesText(const Sizes& sizes) {
  if (sizes.high > 0) return absl::StrCat(FormatBytes(sizes.low), " to ", FormatBytes(sizes.high), " log-uniform");
  return absl::StrJoin(sizes.list, " or ", [](std::string* out, std::int64_t bytes) { *out += FormatBytes(bytes); });
}

std::string Errors(const Tally& tally) {
  std::vector<std::string> errors;
  for (std::size_t code = 0; code < kCodes; ++code) {
    if (tally.errors[code] > 0) errors.push_back(absl::StrCat(tally.errors[code], " ", CodeName(code)));
  }
  if (errors.empty()) return tally.answered > 0 ? "no errors" : "NO REQUEST WAS MEASURED";
  return absl::StrCat("ERRORS: ", absl::StrJoin(errors, ", "));
}

std::string LoadText(const StepResult& step) {
  if (step.rate == 0) return step.Name();
  return absl::StrCat(step.Name(), ", at most ", step.concurrency, " in flight");
}

// The remark for a step whose rate was not held.
std::string NotHeld(const StepResult& step) {
  return absl::StrCat("the rate was not held: ", step.tally.unsent, " requests that were due were not sent by the end");
}

Json HistogramJson(const Histogram& histogram) {
  Json json = Json::object();
  for (const double percent : kPercentiles) json[PercentileName(percent)] = histogram.PercentileNs(percent) / 1e3;
  json["min"] = static_cast<double>(histogram.min_ns()) / 1e3;
  json["mean"] = histogram.MeanNs() / 1e3;
  json["count"] = histogram.count();
  return json;
}

Json BucketsJson(const Histogram& histogram) {
  Json buckets = Json::array();
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    buckets.push_back(Json::array({bucket.low_ns, bucket.high_ns, bucket.count}));
  }
  return buckets;
}

Json StepJson(const LoadtestRun& run, const StepResult& step) {
  const Tally& tally = step.tally;
  Json latency = {{"corrected", HistogramJson(tally.corrected)}, {"uncorrected", HistogramJson(tally.uncorrected)}};
  for (std::size_t i = 0; i < kStages; ++i) {
    if (tally.stages[i].count() > 0) latency[std::string(kStageRows[i].name)] = HistogramJson(tally.stages[i]);
  }
  Json errors = Json::object();
  for (std::size_t code = 0; code < kCodes; ++code) {
    if (tally.errors[code] == 0) continue;
    errors[CodeName(code)] = {{"count", tally.errors[code]}, {"first", tally.messages[code]}};
  }
  Json windows = Json::array();
  for (const Window& window : step.windows) {
    windows.push_back({{"seconds", window.seconds},
                       {"requests_per_s", window.PerSecond()},
                       {"p50_us", window.p50_us},
                       {"p99_us", window.p99_us}});
  }
  Json json = {{"name", step.Name()},
               {"concurrency", step.concurrency},
               {"rate", step.rate},
               {"seconds", step.seconds},
               {"requests", tally.answered},
               {"requests_per_s", step.PerSecond()},
               {"gb_per_s", step.GbPerSecond()},
               {"latency_us", std::move(latency)},
               {"errors", std::move(errors)},
               {"verified", tally.verified},
               {"wrong", tally.wrong},
               {"first_wrong", tally.first_wrong},
               {"unsent", tally.unsent},
               {"rate_held", step.RateHeld()},
               {"slo_missed", Missed(step, run.arguments.objectives)},
               {"spread", step.Spread()},
               {"stable", step.Spread() <= run.arguments.max_spread},
               {"generator",
                {{"cpu_share", step.cpu_share},
                 {"thread_share", step.thread_share},
                 {"late_p90_us", tally.lateness.PercentileNs(90) / 1e3},
                 {"late_p99_us", tally.lateness.PercentileNs(99) / 1e3},
                 {"saturated", step.Saturation()}}},
               {"interrupted", step.interrupted},
               {"windows", std::move(windows)},
               {"remarks", Remarks(run, step)},
               {"corrected_ns", BucketsJson(tally.corrected)}};
  if (step.rate > 0) json["uncorrected_ns"] = BucketsJson(tally.uncorrected);
  return json;
}

Json KindJson(const Kind& kind) {
  Json sizes = kind.sizes.list;
  if (kind.sizes.high > 0) sizes = absl::StrCat(kind.sizes.low, "..", kind.sizes.high);
  return {{"weight", kind.weight},       {"op", kind.ops},        {"dtype", kind.dtype},
          {"size", std::move(sizes)},    {"engine", kind.engine}, {"pipeline", kind.pipeline},
          {"precision", kind.precision}, {"via", kind.via}};
}

}  // namespace

std::string PercentileName(double percent) { return percent >= 100 ? "max" : absl::StrFormat("p%g", percent); }

std::vector<std::string> Missed(const StepResult& step, const std::vector<Objective>& objectives) {
  std::vector<std::string> missed;
  for (const Objective& objective : objectives) {
    const double ns = step.tally.corrected.PercentileNs(objective.percent);
    if (ns > objective.ms * 1e6) missed.push_back(absl::StrCat(objective.text, ": ", FormatNs(ns)));
  }
  if (!objectives.empty() && !step.RateHeld()) missed.push_back(NotHeld(step));
  if (!objectives.empty() && step.Empty()) missed.emplace_back("no request was answered");
  return missed;
}

std::vector<std::string> Remarks(const LoadtestRun& run, const StepResult& step) {
  std::vector<std::string> remarks;
  const Tally& tally = step.tally;
  if (tally.wrong > 0) {
    remarks.push_back(absl::StrCat("WRONG RESULTS: ", tally.wrong, " of ", tally.verified,
                                   " verified; the first: ", Printable(tally.first_wrong)));
  }
  if (step.Empty() && tally.failed() == 0) {
    remarks.emplace_back("NO REQUEST WAS MEASURED: none was answered in the measured time; measure for longer");
  }
  for (std::size_t code = 0; code < kCodes; ++code) {
    if (tally.errors[code] > 0) remarks.push_back(absl::StrCat(CodeName(code), ": ", Printable(tally.messages[code])));
  }
  for (const std::string& missed : Missed(step, run.arguments.objectives)) {
    remarks.push_back(absl::StrCat("SLO MISSED: ", missed));
  }
  if (!step.RateHeld() && run.arguments.objectives.empty()) remarks.push_back(NotHeld(step));
  if (step.Spread() > run.arguments.max_spread) {
    remarks.push_back(absl::StrCat("NOT STABLE: the windows differ by +-", FormatPercent(step.Spread()), ", more than ",
                                   FormatPercent(run.arguments.max_spread)));
  }
  if (const std::string why = step.Saturation(); !why.empty()) {
    remarks.push_back(absl::StrCat("the load generator is saturated: ", why));
  }
  if (step.interrupted) remarks.push_back("interrupted");
  return remarks;
}

std::string NameOf(const Kind& kind) {
  return absl::StrCat(absl::StrJoin(kind.ops, ","), " of ", kind.dtype, ", ", SizesText(kind.sizes), ", via ", kind.via,
                      ", engine ", kind.engine, kind.pipeline.empty() ? "" : ", pipeline ", kind.pipeline,
                      kind.precision.empty() ? "" : ", precision ", kind.precision);
}

std::string HeadText(const LoadtestRun& run) {
  std::string text;
  for (const Kind& kind : run.kinds) {
    absl::StrAppend(&text, NameOf(kind));
    if (run.kinds.size() > 1) absl::StrAppendFormat(&text, ", weight %g", kind.weight);
    text += "\n";
  }
  std::vector<std::string> devices;
  for (const DeviceInfo& device : run.before.devices) devices.push_back(absl::StrCat(device.name, " ", device.model));
  absl::StrAppend(&text, "server ", run.spawned ? "started for this run" : run.address, ", version ",
                  Printable(run.before.version), ", ", Printable(absl::StrJoin(devices, ", ")), "\n");
  const LoadtestArguments& arguments = run.arguments;
  const absl::Duration duration = arguments.duration.value_or(arguments.find_max ? kSearchDuration : kDuration);
  absl::StrAppend(
      &text, arguments.connections, arguments.connections == 1 ? " connection" : " connections", "; each load ",
      arguments.count > 0 ? absl::StrCat(arguments.count, " requests") : absl::FormatDuration(duration), " after ",
      absl::FormatDuration(arguments.warmup), "; ", FormatPercent(arguments.verify), " of the results verified",
      arguments.include_fill ? "; including the time to fill the arrays" : "", "\n");
  return text;
}

std::string StepText(const LoadtestRun& run, const StepResult& step) {
  const Tally& tally = step.tally;
  std::string text =
      absl::StrCat("\n", LoadText(step), ": ", absl::StrFormat("%.0f", step.PerSecond()), " requests/s, ",
                   FormatScaled(step.GbPerSecond()), " GB/s, ", tally.answered, " in ",
                   absl::StrFormat("%.1f s, ", step.seconds), Errors(tally), ", ", tally.verified, " verified");
  absl::StrAppend(&text, step.Spread() > 0 ? absl::StrCat(", windows +-", FormatPercent(step.Spread())) : "", "\n");
  Rows rows = {{"", "LATENCY"}};
  for (const double percent : kPercentiles) rows[0].push_back(PercentileName(percent));
  if (step.rate > 0) {
    rows.push_back(PercentileRow("from the plan", tally.corrected));
    rows.push_back(PercentileRow("uncorrected", tally.uncorrected));
  } else {
    rows.push_back(PercentileRow("whole", tally.corrected));
  }
  for (std::size_t i = 0; i < kStages; ++i) {
    if (tally.stages[i].count() > 0)
      rows.push_back(PercentileRow(absl::StrCat("  ", kStageRows[i].name), tally.stages[i]));
  }
  absl::StrAppend(&text, FormatTable(rows, 2));
  for (const std::string& remark : Remarks(run, step)) absl::StrAppend(&text, "  ", remark, "\n");
  return text;
}

std::string SummaryText(const LoadtestRun& run) {
  std::string text;
  if (run.steps.size() > 1) {
    Rows rows = {{"LOAD", "REQUESTS/S", "GB/s", "p50", "p90", "p99", "p99.9", "max", "ERRORS", "NOTES"}};
    for (const StepResult& step : run.steps) {
      const Histogram& latency = step.tally.corrected;
      std::vector<std::string> row = {step.Name(), absl::StrFormat("%.0f", step.PerSecond()),
                                      FormatScaled(step.GbPerSecond())};
      for (const double percent : {50.0, 90.0, 99.0, 99.9, 100.0})
        row.push_back(FormatNs(latency.PercentileNs(percent)));
      row.push_back(absl::StrCat(step.tally.failed()));
      std::vector<std::string> notes;
      if (step.tally.wrong > 0) notes.emplace_back("WRONG");
      if (step.Empty()) notes.emplace_back("nothing measured");
      if (!Missed(step, run.arguments.objectives).empty()) notes.emplace_back("slo missed");
      if (!step.RateHeld()) notes.emplace_back("rate not held");
      if (step.Spread() > run.arguments.max_spread) notes.emplace_back("not stable");
      if (!step.Saturation().empty()) notes.emplace_back("generator saturated");
      row.push_back(absl::StrJoin(notes, ", "));
      rows.push_back(std::move(row));
    }
    text = absl::StrCat("\n", FormatTable(rows, 1));
  }
  const std::string asked =
      absl::StrJoin(run.arguments.objectives, ",", [](std::string* out, const Objective& each) { *out += each.text; });
  if (!run.no_verdict.empty()) {
    absl::StrAppend(&text, "\nno verdict: ", run.no_verdict, "\n");
    if (run.met_rate > 0)
      absl::StrAppendFormat(&text, "%s is met at least up to %.0f requests/s\n", asked, run.met_rate);
  }
  if (run.max_rate.has_value()) {
    absl::StrAppend(&text, "\n",
                    *run.max_rate > 0 ? absl::StrFormat("%s is met up to %.0f requests/s\n", asked, *run.max_rate)
                                      : absl::StrCat(asked, " was met at none of the rates\n"));
  }
  return text;
}

Json ToJson(const LoadtestRun& run) {
  Json kinds = Json::array(), steps = Json::array();
  for (const Kind& kind : run.kinds) kinds.push_back(KindJson(kind));
  for (const StepResult& step : run.steps) steps.push_back(StepJson(run, step));
  const LoadtestArguments& arguments = run.arguments;
  Json json = {{"loadtest", 1},  // the format's version
               {"date", run.date},
               {"host", run.host},
               {"command", run.command},
               {"address", run.address},
               {"spawned", run.spawned},
               {"server_flags", arguments.server_flags},
               {"kinds", std::move(kinds)},
               {"seed", arguments.seed},
               {"connections", arguments.connections},
               {"threads", arguments.threads},
               {"arrivals", arguments.arrivals == ArrivalKind::kPoisson ? "poisson" : "constant"},
               {"slo", absl::StrJoin(arguments.objectives, ",",
                                     [](std::string* out, const Objective& each) { *out += each.text; })},
               {"find_max", arguments.find_max},
               {"stability", arguments.max_spread},
               {"warmup_s", absl::ToDoubleSeconds(arguments.warmup)},
               {"verify", arguments.verify},
               {"include_fill", arguments.include_fill},
               {"server_before", ToJson(run.address, run.before)},
               {"server_after", ToJson(run.address, run.after)},
               {"steps", std::move(steps)}};
  if (run.met_rate > 0) json["met_rate"] = run.met_rate;
  if (run.max_rate.has_value()) json["max_rate"] = *run.max_rate;
  if (!run.no_verdict.empty()) json["no_verdict"] = run.no_verdict;
  return json;
}

std::string ToCsv(const LoadtestRun& run) {
  std::string csv =
      "load,concurrency,rate,seconds,requests,requests_per_s,gb_per_s,errors,verified,wrong,unsent,spread";
  for (const absl::string_view kind : {"corrected", "uncorrected"}) {
    for (const double percent : kPercentiles) absl::StrAppend(&csv, ",", kind, "_", PercentileName(percent), "_us");
  }
  for (const StageRow& stage : kStageRows) absl::StrAppend(&csv, ",", stage.name, "_mean_us");
  csv += "\n";
  for (const StepResult& step : run.steps) {
    const Tally& tally = step.tally;
    absl::StrAppend(&csv, step.Name(), ",", step.concurrency, ",", step.rate, ",", step.seconds, ",", tally.answered,
                    ",", step.PerSecond(), ",", step.GbPerSecond(), ",", tally.failed(), ",", tally.verified);
    absl::StrAppend(&csv, ",", tally.wrong, ",", tally.unsent, ",", step.Spread());
    for (const Histogram* const histogram : {&tally.corrected, &tally.uncorrected}) {
      for (const double percent : kPercentiles) absl::StrAppend(&csv, ",", histogram->PercentileNs(percent) / 1e3);
    }
    for (const Histogram& stage : tally.stages) {
      absl::StrAppend(&csv, ",", stage.count() == 0 ? "" : absl::StrCat(stage.MeanNs() / 1e3));
    }
    csv += "\n";
  }
  return csv;
}

std::string ToHtml(const LoadtestRun& run) {
  Json stages = Json::array(), percentiles = Json::array();
  for (const StageRow& stage : kStageRows) stages.push_back(stage.name);
  for (const double percent : kPercentiles) percentiles.push_back(PercentileName(percent));
  const Json data = {{"title", NameOf(run.kinds.front())},
                     {"head", std::vector<std::string>(absl::StrSplit(HeadText(run), '\n', absl::SkipEmpty()))},
                     {"stages", std::move(stages)},
                     {"percentiles", std::move(percentiles)},
                     {"run", ToJson(run)}};
  // In JSON, "<" only stands in strings. Escaped, it can't end the script element.
  return absl::StrReplaceAll(kLoadtestPage, {{"@DATA@", absl::StrReplaceAll(Dump(data), {{"<", "\\u003c"}})}});
}

std::string ToHistogramLog(const LoadtestRun& run) {
  std::string log;
  for (const StepResult& step : run.steps) {
    absl::StrAppend(&log, "#[", step.Name(), ", milliseconds", step.rate > 0 ? ", from the planned time" : "", "]\n",
                    step.tally.corrected.PercentileLog());
    if (step.rate == 0) continue;
    absl::StrAppend(&log, "#[", step.Name(), ", milliseconds, uncorrected]\n", step.tally.uncorrected.PercentileLog());
  }
  return log;
}

}  // namespace reduced::client
