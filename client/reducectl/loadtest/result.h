// What a load test measured.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_RESULT_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_RESULT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/reducectl/loadtest/histogram.h"

namespace reduced::client {

// Where the time of a request goes, in order. Together, but for stages that overlap in a stream, they are the latency.
enum Stage : std::size_t {
  kClientStage,   // waiting for its turn in an open loop; with --include-fill, filling in the array
  kNetworkStage,  // the round trip, less what the server says: both ways, the transport's and the library's work
  kReceiveStage,  // the rest is the server's own word: Timing
  kQueueStage,
  kCopyStage,
  kKernelStage,
  kReplyStage,  // what is left of the server's total
  kStages
};
inline constexpr std::array<absl::string_view, kStages> kStageNames = {"client", "network", "receive", "queue",
                                                                       "copy",   "kernel",  "reply"};
inline constexpr std::size_t kCodes = 17;  // of gRPC

// Counts and durations of requests, of one thread or many. All of its memory is taken at once.
struct Tally {
  Histogram corrected;    // from when a request was due; in a closed loop, from when its turn came
  Histogram uncorrected;  // from when its turn came, late or not
  Histogram lateness;     // in an open loop, of the wake-ups for requests that nothing kept from being in time
  std::array<Histogram, kStages> stages;
  std::int64_t answered = 0;  // all of the above are of requests that were, but for unsent ones in `corrected`
  std::int64_t bytes = 0;     // of their arrays
  std::array<std::int64_t, kCodes> errors{};   // by code
  std::array<std::string, kCodes> messages{};  // the first of each
  std::int64_t verified = 0;
  std::int64_t wrong = 0;
  std::string first_wrong{};
  std::int64_t unsent =
      0;  // were due, and their turn didn't come by the end; `corrected` has what they waited till then

  void Merge(const Tally& other);
  void Clear();
  std::int64_t failed() const;
};

// A stretch of the measured time.
struct Window {
  double seconds = 0;
  std::int64_t answered = 0;
  double p50_us = 0, p99_us = 0;  // corrected

  double PerSecond() const { return static_cast<double>(answered) / seconds; }
};

// How one load went.
struct StepResult {
  int concurrency = 1;
  double rate = 0;  // planned, a second; 0: a closed loop
  double seconds = 0;
  Tally tally{};
  std::vector<Window> windows{};
  double cpu_share = 0;   // of the processors that this process may use, what it used
  double wait_share = 0;  // of the time that requests took, what threads of this process waited for a processor
  bool interrupted = false;

  double PerSecond() const { return seconds > 0 ? static_cast<double>(tally.answered) / seconds : 0; }
  double GbPerSecond() const { return seconds > 0 ? static_cast<double>(tally.bytes) / seconds / 1e9 : 0; }
  std::string Name() const;  // "concurrency 4", "rate 1000"

  // Half the range of the middle half of the windows, of their throughput and of their median latency, as a fraction of
  // the median; the greater of both. 0, for nothing can be said, of less than 5 windows or 20 requests in each.
  double Spread() const;

  // Less than 1% of the requests of an open loop were due and not sent, or two at most.
  bool RateHeld() const;

  // Empty, or why the figures are as much this process's as the server's.
  std::string Saturation() const;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_RESULT_H_
