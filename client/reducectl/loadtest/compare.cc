// Compares two sides, each of one load test or several.
//
// Reads of each run: kinds, include_fill and arrivals, which say what the workload is; what else differs is shown. Of
// each step: name, requests_per_s, latency_us.corrected.{p50,p99}, and requests_per_s, p50_us and p99_us of its
// windows.
//
// A machine differs from itself, for seconds and for minutes. One run shows only the former: between two single runs,
// figures differ if their distance is more than twice the combined standard deviation of the windows themselves (not of
// their mean) and more than 5%. With three runs or more on each side the runs are the samples, which show both, and
// figures differ if their means are more than three combined standard errors and 2% apart.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/loadtest/report.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "client/reducectl/output/statistics.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr std::size_t kFewestWindows = 3;
constexpr std::size_t kFewestRuns = 3;
constexpr double kWindowSigmas = 2, kWindowLeast = 0.05;
constexpr double kRunErrors = 3, kRunLeast = 0.02;

// A figure of a step.
struct FigureRow {
  const char* name;
  const char* percentile;  // of the latency; null: requests per second
  const char* window;      // the same in a window
};
constexpr FigureRow kFigures[] = {
    {"requests/s", nullptr, "requests_per_s"}, {"p50", "p50", "p50_us"}, {"p99", "p99", "p99_us"}};

struct Figure {
  double value = 0;         // the mean of the runs
  double window_sigma = 1;  // of the windows of all runs, as a fraction of the value; 1: unknown
  double run_error = 1;     // standard error of the mean of the runs; 1: unknown
};

using Steps = std::vector<const Json*>;  // of one load, each of another run

// Throws Json::exception.
Figure FigureOf(const Steps& steps, const FigureRow& row) {
  std::vector<double> values, windows;
  for (const Json* const step : steps) {
    values.push_back((row.percentile == nullptr ? step->at("requests_per_s")
                                                : step->at("latency_us").at("corrected").at(row.percentile))
                         .get<double>());
    for (const Json& window : step->at("windows")) windows.push_back(window.at(row.window).get<double>());
  }
  const auto runs = static_cast<double>(values.size());
  Figure figure;
  for (const double value : values) figure.value += value / runs;
  if (windows.size() >= kFewestWindows) {
    const Summary summary = Summarize(windows);
    // The middle half of a normal distribution is 1.35 standard deviations wide.
    if (summary.median > 0) figure.window_sigma = 2 * summary.Spread() / 1.35;
  }
  if (values.size() >= kFewestRuns && figure.value > 0) {
    double squares = 0;
    for (const double value : values) squares += (value - figure.value) * (value - figure.value);
    figure.run_error = std::sqrt(squares / (runs - 1) / runs) / figure.value;
  }
  return figure;
}

std::string Show(double value, bool us) { return us ? FormatMicros(value) : absl::StrFormat("%.0f", value); }

// One side: its runs, and the names of their loads in order.
struct Side {
  std::vector<Json> runs;
  std::vector<std::string> loads;

  // Throws Json::exception.
  void Add(const std::string& text) {
    runs.push_back(Json::parse(text));
    for (const Json& step : runs.back().at("steps")) {
      const auto name = step.at("name").get<std::string>();
      if (!Has(name)) loads.push_back(name);
    }
  }
  bool Has(const std::string& load) const { return std::find(loads.begin(), loads.end(), load) != loads.end(); }
  Steps Of(const std::string& load) const {
    Steps steps;
    for (const Json& run : runs) {
      for (const Json& step : run.at("steps")) {
        if (step.at("name") == load) steps.push_back(&step);
      }
    }
    return steps;
  }
};

// What a run says under one key: of itself and of each of its kinds. Throws Json::exception.
std::string Said(const Json& run, const char* key) {
  std::vector<std::string> said;
  if (run.contains(key)) said.push_back(Dump(run.at(key)));
  for (const Json& kind : run.at("kinds")) {
    if (kind.contains(key)) said.push_back(Dump(kind.at(key)));
  }
  return absl::StrJoin(said, " and ");
}

// What makes two workloads different ones, and what a comparison may be about.
constexpr const char* kWorkload[] = {"op", "dtype", "size", "weight", "include_fill", "arrivals"};
constexpr const char* kConfiguration[] = {"via",         "engine",  "pipeline",     "precision",
                                          "connections", "threads", "server_flags", "host"};

// Throws Json::exception.
absl::Status CheckSame(const Json& a, const Json& b) {
  for (const char* const key : kWorkload) {
    const std::string x = Said(a, key), y = Said(b, key);
    if (x == y) continue;
    return absl::InvalidArgumentError(absl::StrCat("the runs have different workloads: ", key, ": got ", Printable(x),
                                                   " and ", Printable(y), "; allowed: the same"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Comparison> Compare(const std::vector<std::string>& first, const std::vector<std::string>& second) {
  Comparison comparison;
  std::vector<std::vector<std::string>> rows = {{"LOAD", "FIGURE", "FIRST", "SECOND", "CHANGE", "NOISE", "VERDICT"}};
  Side a, b;
  const char* at = "first";
  try {
    for (const std::string& text : first) a.Add(text);
    at = "second";
    for (const std::string& text : second) b.Add(text);
    for (const Side* const side : {&a, &b}) {
      for (const Json& run : side->runs) {
        RETURN_IF_ERROR(CheckSame(a.runs.front(), run));
      }
    }
    for (const char* const key : kConfiguration) {
      const std::string x = Said(a.runs.front(), key), y = Said(b.runs.front(), key);
      if (x != y) absl::StrAppend(&comparison.text, key, ": ", Printable(x), " -> ", Printable(y), "\n");
    }
    for (const std::string& load : a.loads) {
      if (!b.Has(load)) continue;
      const Steps before = a.Of(load), after = b.Of(load);
      for (const FigureRow& row : kFigures) {
        const Figure x = FigureOf(before, row), y = FigureOf(after, row);
        if (x.value <= 0 || y.value <= 0) continue;
        const bool runs = before.size() >= kFewestRuns && after.size() >= kFewestRuns;
        const bool us = row.percentile != nullptr;
        const double change = y.value / x.value - 1;
        const double noise = runs ? std::max(kRunLeast, kRunErrors * std::hypot(x.run_error, y.run_error))
                                  : std::max(kWindowLeast, kWindowSigmas * std::hypot(x.window_sigma, y.window_sigma));
        const bool worse = us ? change > noise : change < -noise;
        const bool better = us ? change < -noise : change > noise;
        comparison.worse = comparison.worse || worse;
        rows.push_back({load, row.name, Show(x.value, us), Show(y.value, us), absl::StrFormat("%+.1f%%", 100 * change),
                        absl::StrFormat("+-%.1f%%", 100 * noise),
                        worse    ? "WORSE"
                        : better ? "better"
                                 : "no difference"});
      }
    }
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", at, " is not what `reducectl loadtest --json` wrote: ", WhyNotJson(error)));
  }
  if (rows.size() == 1) return absl::InvalidArgumentError("no load was measured in both runs");
  absl::StrAppend(&comparison.text, FormatTable(rows, 2));
  for (const auto& [side, other, name] : {std::tuple{&a, &b, "first"}, std::tuple{&b, &a, "second"}}) {
    for (const std::string& load : side->loads) {
      if (!other->Has(load)) absl::StrAppend(&comparison.text, "only in the ", name, ": ", Printable(load), "\n");
    }
  }
  return comparison;
}

}  // namespace reduced::client
