// Statistics of repeated measurements.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_STATISTICS_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_STATISTICS_H_

#include <vector>

namespace reduced::client {

struct Summary {
  double min = 0;
  double lower_quartile = 0;
  double median = 0;
  double upper_quartile = 0;
  double max = 0;

  // Half the interquartile range, as a fraction of the median: outliers don't count.
  double Spread() const { return (upper_quartile - lower_quartile) / 2 / median; }
};

// There must be at least one sample. Quantiles between two samples are interpolated.
Summary Summarize(std::vector<double> samples);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_STATISTICS_H_
