#include "client/reducectl/loadtest/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_format.h"

namespace reduced::client {

// The first 2^8 buckets hold one value each; after them 2^7 for each power of two.
std::size_t Histogram::IndexOf(std::int64_t ns) {
  const auto value = static_cast<std::uint64_t>(std::clamp<std::int64_t>(ns, 0, kMaxNs));
  const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - kBucketBits - 1);
  return (static_cast<std::size_t>(shift) << kBucketBits) + static_cast<std::size_t>(value >> shift);
}

Histogram::Bucket Histogram::BucketAt(std::size_t index) {
  const std::size_t shift = std::max<std::size_t>(index >> kBucketBits, 1) - 1;
  const auto low = static_cast<std::int64_t>((index - (shift << kBucketBits)) << shift);
  return {low, low + (std::int64_t{1} << shift) - 1, 0};
}

Histogram::Histogram() : counts_(IndexOf(kMaxNs) + 1) {}

void Histogram::Record(std::int64_t ns) {
  ns = std::max<std::int64_t>(ns, 0);
  ++counts_[IndexOf(ns)];
  min_ = count_ == 0 ? ns : std::min(min_, ns);
  max_ = std::max(max_, ns);
  ++count_;
  sum_ += static_cast<double>(ns);
}

void Histogram::Merge(const Histogram& other) {
  if (other.count_ == 0) return;
  const std::size_t last = IndexOf(other.max_);  // nothing is beyond the extremes
  for (std::size_t i = IndexOf(other.min_); i <= last; ++i) counts_[i] += other.counts_[i];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  count_ += other.count_;
  sum_ += other.sum_;
}

void Histogram::Clear() {
  if (count_ == 0) return;
  for (std::size_t i = IndexOf(min_), last = IndexOf(max_); i <= last; ++i) counts_[i] = 0;
  count_ = min_ = max_ = 0;
  sum_ = 0;
}

double Histogram::PercentileNs(double percent) const {
  if (count_ == 0) return 0;
  if (percent >= 100) return static_cast<double>(max_);
  // p99.9 of 1000 samples is the 999th. The rounding of the product must not make it the 1000th.
  const double exact_rank = percent / 100 * static_cast<double>(count_);
  const auto rank = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(exact_rank - 1e-9 * exact_rank)));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen < rank) continue;
    const Bucket bucket = BucketAt(i);
    const double middle = static_cast<double>(bucket.low_ns + bucket.high_ns) / 2;
    return std::clamp(middle, static_cast<double>(min_), static_cast<double>(max_));
  }
  return static_cast<double>(max_);
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    buckets.push_back(BucketAt(i));
    buckets.back().count = counts_[i];
  }
  return buckets;
}

std::string Histogram::PercentileLog() const {
  constexpr double kTicks = 5;  // lines per halving of the distance to 100%
  constexpr double kNsPerMs = 1e6;
  std::string log = absl::StrFormat("%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
  const std::vector<Bucket> buckets = Buckets();
  double deviation = 0;
  std::int64_t seen = 0;
  double next = 0;  // the next fraction to write
  for (const Bucket& bucket : buckets) {
    const double middle = static_cast<double>(bucket.low_ns + bucket.high_ns) / 2;
    deviation += std::pow(middle - MeanNs(), 2) * static_cast<double>(bucket.count);
    seen += bucket.count;
    const double fraction = static_cast<double>(seen) / static_cast<double>(count_);
    const double value = seen == count_ ? static_cast<double>(max_) : middle;
    while (next <= fraction && next < 1) {
      absl::StrAppendFormat(&log, "%12.3f %14.12f %10d %14.2f\n", value / kNsPerMs, next, seen, 1 / (1 - next));
      const double halvings = std::floor(std::log2(1 / (1 - next))) + 1;
      next += 1 / (kTicks * std::pow(2, halvings));
      if (1 - next < 0.5 / static_cast<double>(count_)) next = 1;
    }
  }
  if (count_ > 0) {
    absl::StrAppendFormat(&log, "%12.3f %14.12f %10d\n", static_cast<double>(max_) / kNsPerMs, 1.0, count_);
    deviation = std::sqrt(deviation / static_cast<double>(count_));
  }
  absl::StrAppendFormat(&log, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", MeanNs() / kNsPerMs,
                        deviation / kNsPerMs);
  absl::StrAppendFormat(&log, "#[Max     = %12.3f, Total count    = %12d]\n", static_cast<double>(max_) / kNsPerMs,
                        count_);
  absl::StrAppendFormat(&log, "#[Buckets = %12d, SubBuckets     = %12d]\n", 40 - kBucketBits, 1 << kBucketBits);
  return log;
}

}  // namespace reduced::client
