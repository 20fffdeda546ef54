// Compares two load tests.
//
// Reads these fields of each step: name, requests_per_s, latency_us.corrected.{p50,p99}, and requests_per_s, p50_us and
// p99_us of its windows. The windows give the noise of a figure. The standard error of the median of n windows is about
// 1.25 sigma / sqrt(n), and the middle half of a normal distribution is 1.35 sigma wide. Two medians differ if their
// distance is more than twice the combined standard error and more than 2%, by which the machine may differ from one
// minute to the next without any window showing it.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/reducectl/loadtest/report.h"
#include "client/reducectl/output/statistics.h"

namespace reduced::client {
namespace {

constexpr double kSigmas = 2;
constexpr double kLeast = 0.02;
constexpr std::size_t kFewestWindows = 3;

struct Figure {
  double value = 0;
  double noise = 0;  // a fraction of the value
};

// Throws Json::exception.
Figure FigureOf(const Json& value, const Json& windows, const char* key) {
  Figure figure{value.get<double>(), 1};
  std::vector<double> samples;
  for (const Json& window : windows) samples.push_back(window.at(key).get<double>());
  if (samples.size() < kFewestWindows) return figure;
  const Summary summary = Summarize(samples);
  if (summary.median <= 0) return figure;
  const double sigma = 2 * summary.Spread() / 1.35;
  figure.noise = 1.25 * sigma / std::sqrt(static_cast<double>(samples.size()));
  return figure;
}

std::string Show(double value, bool us) { return us ? FormatMicros(value) : absl::StrFormat("%.0f", value); }

}  // namespace

absl::StatusOr<Comparison> Compare(const std::string& first, const std::string& second) {
  Comparison comparison;
  std::vector<std::vector<std::string>> rows = {{"LOAD", "FIGURE", "FIRST", "SECOND", "CHANGE", "NOISE", "VERDICT"}};
  const std::string* at = &first;
  try {
    const Json a = Json::parse(first).at("steps");
    at = &second;
    const Json b = Json::parse(second).at("steps");
    for (const Json& before : a) {
      for (const Json& after : b) {
        if (before.at("name") != after.at("name")) continue;
        const auto add = [&](const char* name, const Figure& x, const Figure& y, bool us) {
          if (x.value <= 0 || y.value <= 0) return;
          const double change = y.value / x.value - 1;
          const double noise = std::max(kLeast, kSigmas * std::hypot(x.noise, y.noise));
          const bool worse = us ? change > noise : change < -noise;
          const bool better = us ? change < -noise : change > noise;
          comparison.worse = comparison.worse || worse;
          rows.push_back({before.at("name").get<std::string>(), name, Show(x.value, us), Show(y.value, us),
                          absl::StrFormat("%+.1f%%", 100 * change), absl::StrFormat("+-%.1f%%", 100 * noise),
                          worse    ? "WORSE"
                          : better ? "better"
                                   : "same"});
        };
        const Json& wx = before.at("windows");
        const Json& wy = after.at("windows");
        const Json& lx = before.at("latency_us").at("corrected");
        const Json& ly = after.at("latency_us").at("corrected");
        add("requests/s", FigureOf(before.at("requests_per_s"), wx, "requests_per_s"),
            FigureOf(after.at("requests_per_s"), wy, "requests_per_s"), false);
        add("p50", FigureOf(lx.at("p50"), wx, "p50_us"), FigureOf(ly.at("p50"), wy, "p50_us"), true);
        add("p99", FigureOf(lx.at("p99"), wx, "p99_us"), FigureOf(ly.at("p99"), wy, "p99_us"), true);
        break;
      }
    }
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("the ", at == &first ? "first" : "second",
                                                   " is not what `reducectl loadtest --json` wrote: ", error.what()));
  }
  if (rows.size() == 1) return absl::InvalidArgumentError("no load is in both runs");
  comparison.text = FormatTable(rows, 2);
  return comparison;
}

}  // namespace reduced::client
