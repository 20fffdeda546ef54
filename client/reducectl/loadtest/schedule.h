// The planned times of requests, and the loads of a run.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_SCHEDULE_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace reduced::client {

// Parses loads: a list of numbers and ranges.
//
//   8              one load
//   4..64          4, 8, 16, 32, 64: doubles; includes the end
//   1000..5000:500 1000, 1500, ... 5000: in steps; includes the end
//
// Numbers are above 0 and may have a fraction. INVALID_ARGUMENT: `text` isn't such a list, or has more than 1000 loads.
absl::StatusOr<std::vector<double>> ParseLoads(const std::string& text);

enum class ArrivalKind { kConstant, kPoisson };

// The planned times of requests in an open loop. Thread-compatible.
class Arrivals {
 public:
  // `per_s` must be above 0. The same seed gives the same Poisson arrivals.
  Arrivals(ArrivalKind kind, double per_s, std::uint64_t seed);

  // Nanoseconds after the start; never decreases. The first constant arrival is at the start.
  std::int64_t Next();

 private:
  const ArrivalKind kind_;
  const double gap_ns_;  // mean
  std::uint64_t random_;
  std::int64_t index_ = 0;
  double last_ns_ = 0;
};

// A random number from 0 to 2^64 - 1; advances the state: splitmix64 (G. Steele et al.).
std::uint64_t NextRandom(std::uint64_t* state);

// A random number in [0, 1).
double NextUniform(std::uint64_t* state);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_SCHEDULE_H_
