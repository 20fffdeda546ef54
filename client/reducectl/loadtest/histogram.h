// A histogram of durations, of constant size: the buckets of each power of two are equally wide, like those of
// HdrHistogram (G. Tene).
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_HISTOGRAM_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace reduced::client {

// Thread-compatible: use one per thread and merge them.
class Histogram {
 public:
  static constexpr int kBucketBits = 7;  // 2^7 buckets for each power of two
  // The error of a percentile relative to its sample: half a bucket. Below 256 ns percentiles are exact.
  static constexpr double kRelativeError = 1.0 / (2 << kBucketBits);
  static constexpr std::int64_t kMaxNs = (std::int64_t{1} << 40) - 1;  // 18 minutes

  Histogram();  // allocates all of its memory: 34 KiB

  // Never allocates. Negative durations count as 0, and those above kMaxNs as kMaxNs; max_ns() is exact.
  void Record(std::int64_t ns);
  void Merge(const Histogram& other);
  void Clear();

  std::int64_t count() const { return count_; }
  std::int64_t min_ns() const { return count_ == 0 ? 0 : min_; }  // exact
  std::int64_t max_ns() const { return max_; }                    // exact
  double MeanNs() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double SumNs() const { return sum_; }

  // The smallest duration that `percent` of the samples don't exceed, 0 to 100. For 100 this is the exact maximum. 0 if
  // there are no samples.
  double PercentileNs(double percent) const;

  struct Bucket {
    std::int64_t low_ns = 0, high_ns = 0;  // inclusive
    std::int64_t count = 0;
  };
  std::vector<Bucket> Buckets() const;  // those with samples, in order

  // The distribution in milliseconds, in the format that HdrHistogram's plotters read.
  std::string PercentileLog() const;

 private:
  static std::size_t IndexOf(std::int64_t ns);
  static Bucket BucketAt(std::size_t index);

  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
  std::int64_t min_ = 0;
  std::int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_HISTOGRAM_H_
