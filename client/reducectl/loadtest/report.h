// The results of a load test as text, JSON, CSV, HTML and histogram logs.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_REPORT_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/loadtest/options.h"
#include "client/reducectl/loadtest/result.h"
#include "client/reducectl/output/render.h"
#include "reduced/types.h"

namespace reduced::client {

// A run: one or more loads on one server.
struct LoadtestRun {
  std::string date{};     // when it began, in UTC: "2026-11-23T04:05:06Z"
  std::string host{};     // of this process
  std::string command{};  // as a shell takes it
  std::string address{};
  bool spawned = false;  // the run started its own server
  LoadtestArguments arguments{};
  std::vector<Kind> kinds{};
  ServerInfo before{}, after{};
  std::vector<StepResult> steps{};
  double met_rate = 0;               // of a search, also without a verdict: a rate that met the objectives; 0: none did
  std::optional<double> max_rate{};  // of a search: the highest such rate
  std::string no_verdict{};          // of a search: why there is none; empty: there is
};

// The percentiles that are shown.
inline constexpr double kPercentiles[] = {50, 90, 99, 99.9, 99.99, 100};
std::string PercentileName(double percent);  // "p99.9"; of 100 "max"

// The objectives that a step missed, with its figures: "p99=2ms: 3.10 ms".
std::vector<std::string> Missed(const StepResult& step, const std::vector<Objective>& objectives);

// Warnings about a step: errors, wrong results, missed objectives, an unstable load or a saturated generator.
std::vector<std::string> Remarks(const LoadtestRun& run, const StepResult& step);

// "sum of f32, 4.00 KiB, inline".
std::string NameOf(const Kind& kind);

// The text before the first step: server and options.
std::string HeadText(const LoadtestRun& run);
// The text of one step: its figures, the latency by stage, and the remarks.
std::string StepText(const LoadtestRun& run, const StepResult& step);
// A table with a line for each step; empty if there is only one.
std::string SummaryText(const LoadtestRun& run);

// compare.cc lists the fields that `loadtest compare` reads.
Json ToJson(const LoadtestRun& run);

std::string ToCsv(const LoadtestRun& run);

// A page with plots, which draws them from the JSON in it and loads nothing.
std::string ToHtml(const LoadtestRun& run);
extern const absl::string_view kLoadtestPage;  // page.html, with "@DATA@" for the JSON

// The latency of each step as HdrHistogram logs it: corrected, and for an open loop also uncorrected.
std::string ToHistogramLog(const LoadtestRun& run);

// Compares the loads that two sides have in common. A side is one run or several of one configuration, as ToJson()
// gives them. `worse`: the second side is worse by more than the noise. INVALID_ARGUMENT: a text isn't a run, the
// workloads differ, or no load is on both sides.
struct Comparison {
  std::string text{};  // what differs besides the figures, the figures, and the loads that are on one side only
  bool worse = false;
};
absl::StatusOr<Comparison> Compare(const std::vector<std::string>& first, const std::vector<std::string>& second);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_REPORT_H_
