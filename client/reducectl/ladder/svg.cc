// The plot of ladders.
#include "client/reducectl/output/svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/ladder/run.h"

namespace reduced::client {
namespace {

// Lengths in pixels.
constexpr double kWidth = 960;
constexpr double kMargin = 16;
constexpr double kRow = 20;
constexpr double kBar = 13;
constexpr double kCharacter = 7.3;  // of the monospaced font: an upper bound, as fonts differ
constexpr double kFigures = 240;    // the columns at the right: time, GB/s, share of the roofline
constexpr double kGap = 12;

// The plot has its own background: the page around it may not follow the browser's color scheme.
constexpr absl::string_view kStyle = R"(<style>
  text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }
  .title { font-weight: bold; font-size: 14px }
  .dim { fill: #59636e }
  .end { text-anchor: end }
  .middle { text-anchor: middle }
  .page { fill: #ffffff; stroke: #d1d9e0 }
  .grid { stroke: #d1d9e0 }
  .roofline { stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 5 3 }
  .roof { fill: #bc4c00 }
  .host { fill: #818b98 }
  .device { fill: #1a7f37 }
  .wrong { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .dim { fill: #9198a1 }
    .page { fill: #0d1117; stroke: #3d444d }
    .grid { stroke: #3d444d }
    .roofline { stroke: #f0883e }
    .roof { fill: #f0883e }
    .host { fill: #656c76 }
    .device { fill: #3fb950 }
    .wrong { fill: #f85149 }
  }
</style>
)";

std::string Bar(double x, double y, double width, absl::string_view style) {
  return absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" class=\"%s\"/>\n", x, y,
                         width, kBar, style);
}

absl::string_view StyleOf(absl::string_view engine) { return engine == "cpu" ? "host" : "device"; }

// 1, 2 and 5 times the powers of ten, from the last one up to `low` to the first one from `high` on.
std::vector<double> Ticks(double low, double high) {
  std::vector<double> ticks;
  for (double decade = std::pow(10, std::floor(std::log10(low)));; decade *= 10) {
    for (const double factor : {1, 2, 5}) {
      const double tick = factor * decade;
      if (tick <= low) ticks.clear();
      ticks.push_back(tick);
      if (tick >= high && ticks.size() > 1) return ticks;
    }
  }
}

// Draws one run with its upper edge at *y, and moves *y to its lower edge.
// Of what takes part in a logarithmic scale: a product whose shared axis is empty has no operations.
double Shown(double rate) { return std::max(rate, 1e-3); }

std::string Panel(const LadderRun& run, double* y) {
  const std::vector<LadderLine> lines = LinesOf(run);
  const std::string unit = RateUnit(run);
  double low = Shown(lines.front().rate), high = low;
  std::size_t longest = 0;
  std::map<absl::string_view, absl::string_view> devices;  // and their engines
  for (const LadderLine& line : lines) {
    low = std::min(low, Shown(line.rate));
    high = std::max({high, line.rate, BestRate(run, line.step->device)});
    longest = std::max(longest, line.label.size());
    devices.emplace(line.step->device, line.step->engine);
  }
  const double left = kMargin + kCharacter * static_cast<double>(longest) + kGap;
  const double right = kWidth - kMargin - kFigures;
  const std::vector<double> ticks = Ticks(low / 2, high);  // half: the shortest bar is one
  const auto x_of = [&](double rate) {
    return left + (right - left) * std::log(rate / ticks.front()) / std::log(ticks.back() / ticks.front());
  };

  std::string svg = SvgText(kMargin, *y += kRow, "title", NameOf(run));
  svg += SvgText(kWidth - kMargin, *y, "dim end", ArrayOf(run));
  for (const auto& [name, engine] : devices) {
    *y += kRow;
    svg += Bar(kMargin, *y - kBar + 2, kBar, StyleOf(engine));
    const auto model = run.devices.find(std::string(name));
    svg += SvgText(kMargin + kBar + kGap, *y, "dim",
                   model == run.devices.end() ? std::string(name) : absl::StrCat(name, ", ", model->second));
    if (const double read = BestRate(run, name); read > 0) {
      svg += SvgText(kWidth - kMargin, *y, "roof end", absl::StrCat(BestName(run), " ", FormatScaled(read), " ", unit));
    }
  }

  const double top = *y + kRow / 2;
  const double bottom = top + kRow * static_cast<double>(lines.size()) + 4;
  const bool few = ticks.size() <= 10;
  for (const double tick : ticks) {
    const bool decade = std::round(std::log10(tick)) == std::log10(tick);
    if (!few && !decade) continue;
    svg += SvgVerticalLine(x_of(tick), top, bottom, "grid");
    svg += SvgText(x_of(tick), bottom + kRow - 4, "dim middle", absl::StrFormat("%g", tick));
  }
  svg += SvgText(kWidth - kMargin, bottom + kRow - 4, "dim end", unit + ", on a logarithmic scale");

  *y = top;
  for (const LadderLine& line : lines) {
    *y += kRow;
    svg += SvgText(left - kGap, *y - 4, "end", line.label);
    svg += Bar(left, *y - kBar - 2, x_of(Shown(line.rate)) - left, line.Good() ? StyleOf(line.step->engine) : "wrong");
    svg += SvgText(right + kFigures / 3, *y - 4, "end", FormatMicros(line.us.median));
    svg += SvgText(right + 2 * kFigures / 3 + kGap, *y - 4, "end", absl::StrCat(FormatScaled(line.rate), " ", unit));
    if (!line.Good()) {
      svg += SvgText(right + kFigures, *y - 4, "end", line.step->correct ? "BROKEN" : "WRONG");
    } else if (line.roofline.has_value()) {
      svg += SvgText(right + kFigures, *y - 4, "end", FormatPercent(*line.roofline));
    }
  }
  for (const auto& [name, engine] : devices) {
    if (const double read = BestRate(run, name); read > 0) svg += SvgVerticalLine(x_of(read), top, bottom, "roofline");
  }
  *y = bottom + 2 * kRow;
  return svg;
}

}  // namespace

std::string ToSvg(const std::vector<LadderRun>& runs) {
  std::string panels, names;
  double y = kMargin / 2;
  for (const LadderRun& run : runs) {
    absl::StrAppend(&panels, Panel(run, &y));
    absl::StrAppend(&names, names.empty() ? "" : "; ", NameOf(run));
  }
  return absl::StrFormat(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
             "role=\"img\">\n<title>%s</title>\n",
             kWidth, y, kWidth, y, SvgEscape(names)) +
         absl::StrFormat("%s<rect x=\"0.5\" y=\"0.5\" width=\"%.0f\" height=\"%.0f\" rx=\"6\" class=\"page\"/>\n",
                         kStyle, kWidth - 1, y - 1) +
         panels + "</svg>\n";
}

}  // namespace reduced::client
