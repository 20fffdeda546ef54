#include "client/reducectl/output/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace reduced::client {

Summary Summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double fraction) {
    const double position = fraction * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return std::lerp(samples[below], samples[above], position - static_cast<double>(below));
  };
  return {samples.front(), quantile(0.25), quantile(0.5), quantile(0.75), samples.back()};
}

}  // namespace reduced::client
