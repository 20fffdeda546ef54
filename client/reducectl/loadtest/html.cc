// The page of a load test: three plots and a table.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/loadtest/report.h"
#include "client/reducectl/output/svg.h"

namespace reduced::client {
namespace {

// Lengths in pixels.
constexpr double kWidth = 960;
constexpr double kHeight = 380;  // of a plot
constexpr double kLeft = 84;     // of the area that is drawn on
constexpr double kRight = 740;   // right of it, the legend
constexpr double kTop = 16;
constexpr double kBottom = kHeight - 52;
constexpr double kLegend = kRight + 20;
constexpr double kRow = 20;
constexpr double kBar = 13;
constexpr std::size_t kColors = 8;
constexpr std::size_t kMostInLegend = 15;

constexpr absl::string_view kStyle = R"(<style>
  :root { color-scheme: light dark; --text: #1f2328; --dim: #59636e; --page: #ffffff; --line: #d1d9e0; --bad: #cf222e;
    --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #9a6700; --c6: #1b7c83; --c7: #656d76 }
  @media (prefers-color-scheme: dark) {
    :root { --text: #f0f6fc; --dim: #9198a1; --page: #0d1117; --line: #3d444d; --bad: #f85149;
      --c0: #4493f8; --c1: #f0883e; --c2: #3fb950; --c3: #ab7df8; --c4: #db61a2; --c5: #d29922; --c6: #39c5cf; --c7: #9198a1 }
  }
  body { background: var(--page); color: var(--text); font: 14px/1.5 system-ui, sans-serif; max-width: 960px; margin: 24px auto;
    padding: 0 16px }
  h1 { font-size: 20px } h2 { font-size: 16px; margin: 28px 0 4px }
  p { margin: 4px 0; color: var(--dim) }
  .bad { color: var(--bad) }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums }
  th, td { padding: 3px 10px; text-align: right; border-bottom: 1px solid var(--line) }
  th:first-child, td:first-child { text-align: left; padding-left: 0 }
  svg { width: 100%; height: auto; display: block }
  svg text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--text) }
  svg .dim { fill: var(--dim) } svg .end { text-anchor: end } svg .middle { text-anchor: middle }
  .grid { stroke: var(--line) }
  .curve { fill: none; stroke-width: 1.8 } .dashed { stroke-dasharray: 5 4 }
  .s0 { stroke: var(--c0) } .s1 { stroke: var(--c1) } .s2 { stroke: var(--c2) } .s3 { stroke: var(--c3) }
  .s4 { stroke: var(--c4) } .s5 { stroke: var(--c5) } .s6 { stroke: var(--c6) } .s7 { stroke: var(--c7) }
  .f0 { fill: var(--c0) } .f1 { fill: var(--c1) } .f2 { fill: var(--c2) } .f3 { fill: var(--c3) }
  .f4 { fill: var(--c4) } .f5 { fill: var(--c5) } .f6 { fill: var(--c6) } .f7 { fill: var(--c7) }
</style>
)";

std::string Stroke(std::size_t color) { return absl::StrCat("s", color % kColors); }
std::string Fill(std::size_t color) { return absl::StrCat("f", color % kColors); }

// From a value to where it is.
class Axis {
 public:
  static Axis Linear(double low, double high, double from, double to) { return {low, high, from, to, false}; }
  static Axis Logarithmic(double low, double high, double from, double to) {
    return {std::log(low), std::log(high), from, to, true};
  }
  double operator()(double value) const {
    const double at = ((log_ ? std::log(value) : value) - low_) / (high_ - low_);
    return std::lerp(from_, to_, std::clamp(at, 0.0, 1.0));
  }

 private:
  Axis(double low, double high, double from, double to, bool log)
      : low_(low), high_(high), from_(from), to_(to), log_(log) {}
  double low_, high_, from_, to_;
  bool log_;
};

std::string Plot(double height, const std::string& content) {
  return absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n%s</svg>\n", kWidth, height, content);
}

std::string Rectangle(double x, double y, double width, double height, absl::string_view style) {
  return absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n", x, y, width,
                         height, style);
}

using Points = std::vector<std::pair<double, double>>;  // in pixels

std::string Curve(const Points& points, absl::string_view style) {
  std::string line;
  for (const auto& [x, y] : points) absl::StrAppendFormat(&line, "%s%.1f,%.1f", line.empty() ? "" : " ", x, y);
  return absl::StrCat("<polyline points=\"", line, "\" class=\"curve ", style, "\"/>\n");
}

std::string Legend(std::size_t row, absl::string_view style, absl::string_view name) {
  const double y = kTop + kRow * (static_cast<double>(row) + 0.5);
  return absl::StrCat(Curve({{kLegend, y}, {kLegend + 26, y}}, style), SvgText(kLegend + 34, y + 4, "", name));
}

// Latencies in microseconds on a logarithmic axis, with its lines and labels: a label for each power of ten, and for 2
// and 5 times it where there is room.
Axis LatencyAxis(double low_us, double high_us, std::string* svg) {
  double low = std::pow(10, std::floor(std::log10(std::max(low_us, 0.01))));
  double high = std::pow(10, std::ceil(std::log10(std::max(high_us, low * 1.01))));
  for (const double factor : {5.0, 2.0}) {
    if (low * factor <= low_us) {
      low *= factor;
      break;
    }
  }
  for (const double factor : {5.0, 2.0}) {
    if (high / 10 * (10 / factor) >= high_us && high / factor > low) {
      high /= factor;
      break;
    }
  }
  const Axis axis = Axis::Logarithmic(low, high, kBottom, kTop);
  const bool few = high / low <= 2e3;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high * 1.001; decade *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = decade * factor;
      if (tick < low * 0.999 || tick > high * 1.001 || (!few && factor != 1)) continue;
      *svg += SvgHorizontalLine(axis(tick), kLeft, kRight, "grid");
      const std::string label = tick >= 1e6   ? absl::StrFormat("%g s", tick / 1e6)
                                : tick >= 1e3 ? absl::StrFormat("%g ms", tick / 1e3)
                                              : absl::StrFormat("%g us", tick);
      *svg += SvgText(kLeft - 8, axis(tick) + 4, "dim end", label);
    }
  }
  return axis;
}

// The smallest and the largest latency that any step shows between two percentiles, in microseconds.
std::pair<double, double> Range(const LoadtestRun& run, double low_percent, double high_percent) {
  double low = 1e18, high = 0.01;
  for (const StepResult& step : run.steps) {
    for (const Histogram* const histogram : {&step.tally.corrected, &step.tally.uncorrected}) {
      if (histogram->count() == 0) continue;
      low = std::min(low, histogram->PercentileNs(low_percent) / 1e3);
      high = std::max(high, histogram->PercentileNs(high_percent) / 1e3);
    }
  }
  return {std::min(low, high), high};
}

// The distribution: the latency at each percentile, whose distance to 100% is on a logarithmic scale.
std::string DistributionPlot(const LoadtestRun& run) {
  std::string svg;
  const auto [low, high] = Range(run, 0, 100);
  const Axis y = LatencyAxis(low, high, &svg);
  double most = 1000;
  for (const StepResult& step : run.steps) {
    most = std::max(most, 2.0 * static_cast<double>(step.tally.corrected.count()));
  }
  const Axis x = Axis::Logarithmic(1, most, kLeft, kRight);
  std::string nines = "0%";
  for (double left = 1; left <= most; left *= 10) {
    svg += SvgVerticalLine(x(left), kTop, kBottom, "grid");
    svg += SvgText(x(left), kBottom + 18, "dim middle", nines);
    nines = left < 10     ? "90%"
            : left < 100  ? "99%"
            : left < 1000 ? "99.9%"
                          : "99.9" + nines.substr(4, nines.size() - 5) + "9%";
  }
  svg += SvgText((kLeft + kRight) / 2, kBottom + 40, "dim middle", "percentile");
  const auto curve = [&](const Histogram& histogram) {
    Points points;
    std::int64_t seen = 0;
    for (const Histogram::Bucket& bucket : histogram.Buckets()) {
      const auto before = static_cast<double>(seen);
      seen += bucket.count;
      const auto count = static_cast<double>(histogram.count());
      const double us = static_cast<double>(bucket.low_ns + bucket.high_ns) / 2e3;
      points.emplace_back(x(count / (count - before)), y(us));
      points.emplace_back(x(count / std::max(count - static_cast<double>(seen), 0.5)), y(us));
      // What takes no pixel of its own needn't be drawn.
      if (points.size() > 3 && points[points.size() - 1].first - points[points.size() - 4].first < 0.5) {
        points.erase(points.end() - 3, points.end() - 1);
      }
    }
    return points;
  };
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const StepResult& step = run.steps[i];
    svg += Curve(curve(step.tally.corrected), Stroke(i));
    if (step.rate > 0) svg += Curve(curve(step.tally.uncorrected), Stroke(i) + " dashed");
    if (i < kMostInLegend) svg += Legend(i, Stroke(i), step.Name());
  }
  if (std::any_of(run.steps.begin(), run.steps.end(), [](const StepResult& step) { return step.rate > 0; })) {
    svg += Legend(std::min(run.steps.size(), kMostInLegend), "s7 dashed", "uncorrected");
  }
  return Plot(kHeight, svg);
}

// 1, 2 or 5 times a power of ten, of which about six make up `high`.
double TickOf(double high) {
  const double rough = high / 6;
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * decade) return factor * decade;
  }
  return 10 * decade;
}

std::string ThroughputPlot(const LoadtestRun& run) {
  std::string svg;
  const auto [low, high] = Range(run, 50, 99.9);
  const Axis y = LatencyAxis(low, high, &svg);
  double most = 1;
  std::vector<const StepResult*> steps;
  for (const StepResult& step : run.steps) {
    if (step.tally.answered == 0) continue;
    most = std::max(most, step.PerSecond());
    steps.push_back(&step);
  }
  // Open and closed loops are different things: a line joins loads of one sort.
  std::stable_sort(steps.begin(), steps.end(), [](const StepResult* a, const StepResult* b) {
    return std::pair(a->rate, a->concurrency) < std::pair(b->rate, b->concurrency);
  });
  const double tick = TickOf(most);
  const double end = std::ceil(most * 1.02 / tick) * tick;
  const Axis x = Axis::Linear(0, end, kLeft, kRight);
  for (int i = 0; i * tick <= end * 1.001; ++i) {
    svg += SvgVerticalLine(x(i * tick), kTop, kBottom, "grid");
    svg += SvgText(x(i * tick), kBottom + 18, "dim middle", absl::StrFormat("%.10g", i * tick));
  }
  svg += SvgText((kLeft + kRight) / 2, kBottom + 40, "dim middle", "requests/s answered");
  std::size_t series = 0;
  for (const double percent : {50.0, 99.0, 99.9}) {
    Points closed, open;
    for (const StepResult* const step : steps) {
      const double us = step->tally.corrected.PercentileNs(percent) / 1e3;
      Points& points = step->rate > 0 ? open : closed;
      points.emplace_back(x(step->PerSecond()), y(us));
      svg += absl::StrFormat(
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" class=\"%s\"><title>%s: %s, %.0f requests/s</title></circle>\n",
          points.back().first, points.back().second, Fill(series),
          SvgEscape(absl::StrCat(step->Name(), ", ", PercentileName(percent))), FormatMicros(us), step->PerSecond());
    }
    svg += Curve(closed, Stroke(series)) + Curve(open, Stroke(series)) +
           Legend(series, Stroke(series), PercentileName(percent));
    ++series;
  }
  return Plot(kHeight, svg);
}

std::string StagePlot(const LoadtestRun& run) {
  std::string svg;
  double longest = 0.001;
  const auto total_us = [](const StepResult& step) {
    double total = 0;
    for (const Histogram& stage : step.tally.stages) total += stage.SumNs();
    return step.tally.answered == 0 ? 0 : total / static_cast<double>(step.tally.answered) / 1e3;
  };
  for (const StepResult& step : run.steps) longest = std::max(longest, total_us(step));
  constexpr double kBarsFrom = 170;
  constexpr double kBarsTo = kRight - 70;
  const Axis x = Axis::Linear(0, longest, kBarsFrom, kBarsTo);
  double y = kTop;
  for (const StepResult& step : run.steps) {
    if (step.tally.answered == 0) continue;
    y += kRow;
    svg += SvgText(kBarsFrom - 8, y, "end", step.Name());
    double at_us = 0;
    for (std::size_t i = 0; i < kStages; ++i) {
      const double us = step.tally.stages[i].SumNs() / static_cast<double>(step.tally.answered) / 1e3;
      if (us > 0) svg += Rectangle(x(at_us), y - kBar + 2, x(at_us + us) - x(at_us), kBar, Fill(i));
      at_us += us;
    }
    svg += SvgText(x(at_us) + 8, y, "dim", FormatMicros(at_us));
  }
  for (std::size_t i = 0; i < kStages; ++i) {
    const double row = kTop + kRow * (static_cast<double>(i) + 1);
    svg += Rectangle(kLegend, row - kBar + 2, kBar, kBar, Fill(i)) + SvgText(kLegend + 24, row, "", kStageNames[i]);
  }
  return Plot(std::max(y, kTop + kRow * static_cast<double>(kStages)) + kTop, svg);
}

std::string Table(const LoadtestRun& run) {
  std::string html = "<table>\n<tr><th>load</th><th>requests/s</th><th>GB/s</th>";
  for (const double percent : kPercentiles) absl::StrAppend(&html, "<th>", PercentileName(percent), "</th>");
  html += "<th>errors</th><th>wrong</th></tr>\n";
  for (const StepResult& step : run.steps) {
    absl::StrAppend(&html, "<tr><td>", SvgEscape(step.Name()), "</td><td>", absl::StrFormat("%.0f", step.PerSecond()),
                    "</td><td>", FormatScaled(step.GbPerSecond()), "</td>");
    for (const double percent : kPercentiles) {
      absl::StrAppend(&html, "<td>", FormatMicros(step.tally.corrected.PercentileNs(percent) / 1e3), "</td>");
    }
    absl::StrAppend(&html, "<td>", step.tally.failed(), "</td><td>", step.tally.wrong, "</td></tr>\n");
  }
  return html + "</table>\n";
}

}  // namespace

std::string ToHtml(const LoadtestRun& run) {
  std::string html =
      absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>reducectl loadtest: ",
                   SvgEscape(NameOf(run.kinds.front())), "</title>\n", kStyle, "</head>\n<body>\n<h1>Load test</h1>\n");
  const std::string head = HeadText(run);
  for (std::size_t from = 0; from < head.size();) {
    const std::size_t end = head.find('\n', from);
    absl::StrAppend(&html, "<p>", SvgEscape(head.substr(from, end - from)), "</p>\n");
    from = end + 1;
  }
  for (const StepResult& step : run.steps) {
    for (const std::string& remark : Remarks(run, step)) {
      absl::StrAppend(&html, "<p class=\"bad\">", SvgEscape(absl::StrCat(step.Name(), ": ", remark)), "</p>\n");
    }
  }
  absl::StrAppend(&html, "<h2>Latency</h2>\n<p>By percentile, from when a request was due. Both scales are ",
                  "logarithmic.</p>\n", DistributionPlot(run));
  absl::StrAppend(&html, "<h2>Latency against throughput</h2>\n", ThroughputPlot(run));
  absl::StrAppend(&html, "<h2>Where the time goes</h2>\n<p>The mean of each stage.</p>\n", StagePlot(run));
  absl::StrAppend(&html, "<h2>Figures</h2>\n", Table(run), "</body>\n</html>\n");
  return html;
}

}  // namespace reduced::client
