// When requests are due, and the loads that a run goes through.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_SCHEDULE_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace reduced::client {

// Loads, in the order written: numbers and ranges with commas between them.
//
//   8              one load
//   4..64          4, 8, 16, 32, 64: doubles; the end belongs to it, whether it is met or not
//   1000..5000:500 1000, 1500, ... 5000: goes up by what follows the colon; the end likewise
//
// Numbers are above 0 and may have a fraction. INVALID_ARGUMENT: something else, or more than 1000 loads.
absl::StatusOr<std::vector<double>> ParseLoads(const std::string& text);

enum class ArrivalKind { kConstant, kPoisson };

// The planned times of requests in an open loop. Thread-compatible.
class Arrivals {
 public:
  // `per_s` is above 0. Of Poisson arrivals the same seed gives the same times.
  Arrivals(ArrivalKind kind, double per_s, std::uint64_t seed);

  // Nanoseconds after the start, never less than the one before. The first constant one is due at the start.
  std::int64_t Next();

 private:
  const ArrivalKind kind_;
  const double gap_ns_;  // on average
  std::uint64_t random_;
  std::int64_t index_ = 0;
  double last_ns_ = 0;
};

// A number from 0 to 2^64 - 1 at random, and the state for the next: splitmix64 (G. Steele et al.).
std::uint64_t NextRandom(std::uint64_t* state);

// From 0 on, below 1.
double NextUniform(std::uint64_t* state);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_SCHEDULE_H_
