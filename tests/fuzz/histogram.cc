// The load tester's histograms and their logs, against the sorted samples.
#include "client/reducectl/loadtest/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {
namespace {

using client::Histogram;

constexpr std::size_t kMostSamples = 512;

// The log's percentiles never fall, and its last line has every sample.
void CheckLog(const Histogram& histogram) {
  double last_value = -1, last_fraction = -1;
  std::int64_t last_count = 0;
  std::size_t lines = 0;
  const std::string log = histogram.PercentileLog();
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    double value = 0, fraction = 0;
    std::int64_t count = 0;
    if (words.size() < 3 || !absl::SimpleAtod(words[0], &value) || !absl::SimpleAtod(words[1], &fraction) ||
        !absl::SimpleAtoi(words[2], &count)) {
      continue;
    }
    Require(value >= last_value && fraction > last_fraction && count >= last_count, "a log rises", log);
    last_value = value;
    last_fraction = fraction;
    last_count = count;
    ++lines;
  }
  Require(last_count == histogram.count(), "a log ends with every sample", log);
  Require(histogram.count() == 0 || last_fraction == 1, "a log ends with the maximum", log);
  Require(lines < 2000, "a log is short");
}

}  // namespace

FUZZ_TARGET(histogram) {
  Histogram whole, first, second;
  std::vector<std::int64_t> samples;
  while (!input.empty() && samples.size() < kMostSamples) {
    // Mostly durations of the sizes that there are: the first byte says how many bits.
    const std::uint8_t kind = input.Number();
    const auto bits = input.Number<std::int64_t>();
    const std::int64_t sample = kind % 64 == 63 ? bits : (bits & ((std::int64_t{1} << kind % 64) - 1));
    samples.push_back(sample);
    whole.Record(sample);
    (kind < 128 ? first : second).Record(sample);
  }
  first.Merge(second);
  Require(first.count() == whole.count() && first.min_ns() == whole.min_ns() && first.max_ns() == whole.max_ns(),
          "merging keeps every sample");

  for (std::int64_t& sample : samples) sample = std::max<std::int64_t>(sample, 0);
  std::sort(samples.begin(), samples.end());
  Require(whole.count() == static_cast<std::int64_t>(samples.size()), "every sample is counted");
  double last = 0;
  for (const double percent : {0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0}) {
    const double got = whole.PercentileNs(percent);
    Require(got == first.PercentileNs(percent), "merging keeps the percentiles");
    Require(got >= last, "percentiles rise");
    last = got;
    if (samples.empty()) continue;
    const double count = static_cast<double>(samples.size());
    const auto rank = static_cast<std::size_t>(std::max(1.0, std::ceil(percent / 100 * count - 1e-7)));
    const auto sample = static_cast<double>(samples[rank - 1]);
    const double error = Histogram::kRelativeError * sample + 0.5;
    // Longer durations than kMaxNs count as that.
    const double least = percent == 100 ? sample : std::min(sample, static_cast<double>(Histogram::kMaxNs));
    Require(got >= least - error && got <= sample + error, "a percentile is that of the samples");
  }
  CheckLog(whole);
  whole.Clear();
  Require(whole.count() == 0 && whole.PercentileNs(50) == 0 && whole.Buckets().empty(), "a cleared histogram is empty");
}

}  // namespace reduced::fuzz
