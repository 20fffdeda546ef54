// Load tests that have been run, stored and shown.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_REPORT_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/reducectl/loadtest/options.h"
#include "client/reducectl/loadtest/result.h"
#include "client/reducectl/output/render.h"
#include "reduced/types.h"

namespace reduced::client {

// A whole run: several loads, on one server.
struct LoadtestRun {
  std::string address{};
  bool spawned = false;  // the server was started for it
  LoadtestArguments arguments{};
  std::vector<Kind> kinds{};
  ServerInfo before{}, after{};
  std::vector<StepResult> steps{};
  std::optional<double> max_rate{};  // of a search: the highest that met the objectives; 0: none did
};

// The percentiles that are shown.
inline constexpr double kPercentiles[] = {50, 90, 99, 99.9, 99.99, 100};
std::string PercentileName(double percent);  // "p99.9"; of 100 "max"

// The objectives that a step misses, with what it had: "p99=2ms: 3.10 ms".
std::vector<std::string> Missed(const StepResult& step, const std::vector<Objective>& objectives);

// What a reader has to know of a step before believing its figures.
std::vector<std::string> Remarks(const LoadtestRun& run, const StepResult& step);

// "sum of f32, 4.00 KiB, inline".
std::string NameOf(const Kind& kind);

// What the run is, before its first step.
std::string HeadText(const LoadtestRun& run);
// One step: what it came to, a table by stage, and what is wrong with it.
std::string StepText(const LoadtestRun& run, const StepResult& step);
// All steps, a line each; empty if there is but one.
std::string SummaryText(const LoadtestRun& run);

// One object. What `loadtest compare` reads is described in compare.cc.
Json ToJson(const LoadtestRun& run);

std::string ToCsv(const LoadtestRun& run);

// A page with plots. It takes nothing from anywhere else.
std::string ToHtml(const LoadtestRun& run);

// The latency of each step as HdrHistogram logs it, corrected, and uncorrected if that is another.
std::string ToHistogramLog(const LoadtestRun& run);

// Two runs, the same loads in both, as texts of ToJson(); `worse` says whether the second is, beyond what the windows
// of each run differ by. INVALID_ARGUMENT: a text that isn't one, or no load is in both.
struct Comparison {
  std::string text{};
  bool worse = false;
};
absl::StatusOr<Comparison> Compare(const std::string& first, const std::string& second);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_REPORT_H_
