// A histogram that any number of threads add to without a lock.
#ifndef REDUCED_SERVER_OBSERVE_HISTOGRAM_H_
#define REDUCED_SERVER_OBSERVE_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace reduced::server {

// Bounds of times in nanoseconds: 1, 2 and 5 of each decade from 1 us to 100 s.
inline constexpr std::array<std::int64_t, 25> kTimeBoundsNs = [] {
  std::array<std::int64_t, 25> bounds{};
  std::int64_t decade = 1000;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    constexpr std::int64_t kSteps[] = {1, 2, 5};
    bounds[i] = kSteps[i % 3] * decade;
    if (i % 3 == 2) decade *= 10;
  }
  return bounds;
}();
// Bounds of the sizes of arrays in bytes: powers of 8 from 64 bytes on.
inline constexpr std::array<std::int64_t, 13> kByteBounds = [] {
  std::array<std::int64_t, 13> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = std::int64_t{64} << (3 * i);
  return bounds;
}();

// The counts of a histogram of N bounds: counts[i] is the number of values above bounds[i - 1] and up to bounds[i];
// counts[N], of those above the last bound.
template <std::size_t N>
struct HistogramCounts {
  std::array<std::uint64_t, N + 1> counts{};
  std::int64_t sum = 0;

  std::uint64_t total() const {
    std::uint64_t total = 0;
    for (const std::uint64_t count : counts) total += count;
    return total;
  }
  HistogramCounts& operator+=(const HistogramCounts& other) {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    sum += other.sum;
    return *this;
  }
  // The values added after `before` was read.
  HistogramCounts Since(const HistogramCounts& before) const {
    HistogramCounts since = *this;
    for (std::size_t i = 0; i < counts.size(); ++i) since.counts[i] -= before.counts[i];
    since.sum -= before.sum;
    return since;
  }
};

// The quantile `part` (0 to 1), assuming that the values between two bounds are spread evenly; 0 if there are none.
template <std::size_t N>
double Quantile(const HistogramCounts<N>& histogram, const std::array<std::int64_t, N>& bounds, double part) {
  const std::uint64_t total = histogram.total();
  if (total == 0) return 0;
  const double rank = part * static_cast<double>(total);
  double below = 0;
  for (std::size_t i = 0; i < N; ++i) {
    const auto here = static_cast<double>(histogram.counts[i]);
    if (here > 0 && below + here >= rank) {
      const double low = i == 0 ? 0 : static_cast<double>(bounds[i - 1]);
      return low + (static_cast<double>(bounds[i]) - low) * (rank - below) / here;
    }
    below += here;
  }
  return static_cast<double>(bounds[N - 1]);
}

// Thread-safe. kBounds: ascending.
template <const auto& kBounds>
class Histogram {
 public:
  using Counts = HistogramCounts<kBounds.size()>;

  void Add(std::int64_t value) {
    const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), value) - kBounds.begin();
    counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  // A value that is added concurrently may be in the counts but not in the sum, or the reverse.
  Counts Read() const {
    Counts out;
    for (std::size_t i = 0; i < counts_.size(); ++i) out.counts[i] = counts_[i].load(std::memory_order_relaxed);
    out.sum = sum_.load(std::memory_order_relaxed);
    return out;
  }

 private:
  std::array<std::atomic<std::uint64_t>, kBounds.size() + 1> counts_{};
  std::atomic<std::int64_t> sum_ = 0;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_HISTOGRAM_H_
