#include "client/reducectl/loadtest/result.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/reducectl/output/render.h"
#include "client/reducectl/output/statistics.h"

namespace reduced::client {
namespace {

constexpr double kHeld = 0.99;          // the share of the due requests that must be sent for a rate to be held
constexpr std::int64_t kEdge = 2;       // requests that may be due at the end without having had their turn
constexpr double kBusy = 0.9;           // of the processors
constexpr double kBusyThread = 0.95;    // of the time
constexpr double kLatePercentile = 90;  // single late wake-ups are the machine's, not a lack of processors
constexpr double kLateNs = 1e6;         // at this percentile
// With fewer windows or requests, the spread would be that of counting.
constexpr std::size_t kFewestRateWindows = 5;
constexpr std::int64_t kFewestRequests = 20;  // on average

}  // namespace

void Tally::Merge(const Tally& other) {
  corrected.Merge(other.corrected);
  uncorrected.Merge(other.uncorrected);
  lateness.Merge(other.lateness);
  for (std::size_t i = 0; i < kStages; ++i) stages[i].Merge(other.stages[i]);
  answered += other.answered;
  bytes += other.bytes;
  for (std::size_t i = 0; i < kCodes; ++i) {
    errors[i] += other.errors[i];
    if (messages[i].empty()) messages[i] = other.messages[i];
  }
  verified += other.verified;
  wrong += other.wrong;
  if (first_wrong.empty()) first_wrong = other.first_wrong;
  unsent += other.unsent;
}

void Tally::Clear() {
  corrected.Clear();
  uncorrected.Clear();
  lateness.Clear();
  for (Histogram& stage : stages) stage.Clear();
  answered = bytes = verified = wrong = unsent = 0;
  errors.fill(0);
  for (std::string& message : messages) message.clear();
  first_wrong.clear();
}

std::int64_t Tally::failed() const { return std::accumulate(errors.begin(), errors.end(), std::int64_t{0}); }

std::string StepResult::Name() const {
  return rate > 0 ? absl::StrFormat("rate %g", rate) : absl::StrCat("concurrency ", concurrency);
}

double StepResult::Spread() const {
  std::vector<double> rates, medians;
  std::int64_t requests = 0;
  for (const Window& window : windows) {
    requests += window.answered;
    rates.push_back(window.PerSecond());
    if (window.answered > 0) medians.push_back(window.p50_us);
  }
  const auto count = static_cast<std::int64_t>(rates.size());
  if (rates.size() < kFewestRateWindows || requests < kFewestRequests * count) return 0;
  const Summary of_rates = Summarize(rates), of_medians = Summarize(medians);
  return std::max(of_rates.median > 0 ? of_rates.Spread() : 1, of_medians.median > 0 ? of_medians.Spread() : 0);
}

bool StepResult::RateHeld() const {
  const std::int64_t due = tally.answered + tally.failed() + tally.unsent;
  return rate == 0 || tally.unsent <= kEdge ||
         static_cast<double>(tally.unsent) < (1 - kHeld) * static_cast<double>(due);
}

std::string StepResult::Saturation() const {
  if (cpu_share >= kBusy) return absl::StrCat("it used ", FormatPercent(cpu_share), " of its processors");
  if (thread_share >= kBusyThread) {
    return absl::StrCat("one of its threads ran for ", FormatPercent(thread_share), " of the time");
  }
  const double late_ns = tally.lateness.PercentileNs(kLatePercentile);
  if (late_ns >= kLateNs) return absl::StrCat("it woke up late, by ", FormatMicros(late_ns / 1e3), " at p90");
  return "";
}

}  // namespace reduced::client
