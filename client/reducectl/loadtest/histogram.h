// How often which duration was seen, in memory that doesn't grow: the buckets of each power of two are equally wide, as
// those of HdrHistogram (G. Tene) are.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_HISTOGRAM_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace reduced::client {

// Thread-compatible: one for each thread, merged afterwards.
class Histogram {
 public:
  static constexpr int kBucketBits = 7;  // 2^7 buckets for each power of two
  // Of a percentile, against the sample that it stands for: half a bucket. Below 256 ns it is exact.
  static constexpr double kRelativeError = 1.0 / (2 << kBucketBits);
  static constexpr std::int64_t kMaxNs = (std::int64_t{1} << 40) - 1;  // 18 minutes

  Histogram();  // takes all the memory that it will ever need: 34 KiB

  // Never allocates. Below 0 is 0. What is above kMaxNs is counted there, though max_ns() has it exactly.
  void Record(std::int64_t ns);
  void Merge(const Histogram& other);
  void Clear();

  std::int64_t count() const { return count_; }
  std::int64_t min_ns() const { return count_ == 0 ? 0 : min_; }  // exact
  std::int64_t max_ns() const { return max_; }                    // exact
  double MeanNs() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double SumNs() const { return sum_; }

  // The least duration that `percent` of the samples don't exceed, 0 to 100; of 100 it is the maximum, exactly. 0 if
  // there is no sample.
  double PercentileNs(double percent) const;

  struct Bucket {
    std::int64_t low_ns = 0, high_ns = 0;  // both belong to it
    std::int64_t count = 0;
  };
  std::vector<Bucket> Buckets() const;  // those that have samples, in order

  // The distribution as HdrHistogram prints it, of milliseconds: what its plotters read.
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
