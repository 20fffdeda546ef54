// The measurements of a load test.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_RESULT_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_RESULT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/reducectl/loadtest/histogram.h"
#include "reduced/types.h"

namespace reduced::client {

// The stages of a request, in the order in which they happen. Together they are the latency; in a stream some of them
// overlap.
enum Stage : std::size_t {
  kClientStage,   // waiting for its turn in an open loop; with --include-fill also writing the array
  kNetworkStage,  // the round trip without the time of the server: transport and library
  kServerStages,  // from here on: what the server reports in Timing
};

struct StageRow {
  absl::string_view name;
  std::array<std::optional<double> Timing::*, 4> parts{};  // which are added; null: none
};
inline constexpr StageRow kStageRows[] = {
    {"client"},
    {"network"},
    {"receive", {&Timing::receive_us}},
    {"queue", {&Timing::queue_us}},
    {"copy", {&Timing::host_copy_us, &Timing::host_to_device_us, &Timing::scratch_copy_us, &Timing::device_to_host_us}},
    {"kernel", {&Timing::kernel_us}},
    {"reply"},  // the rest of the server's total
};
inline constexpr std::size_t kStages = std::size(kStageRows);
inline constexpr std::size_t kCodes = 17;  // gRPC's status codes

// Counts and durations of requests. Allocates all of its memory when it is created.
struct Tally {
  Histogram corrected;    // from the planned time; in a closed loop from the turn of the request
  Histogram uncorrected;  // from the turn of the request
  Histogram lateness;     // in an open loop: how late the thread woke up for a request that it was waiting for
  std::array<Histogram, kStages> stages;
  std::int64_t answered = 0;  // the above are of answered requests; `corrected` includes the unsent ones
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

// A part of the measured time.
struct Window {
  double seconds = 0;
  std::int64_t answered = 0;
  double p50_us = 0, p99_us = 0;  // corrected

  double PerSecond() const { return static_cast<double>(answered) / seconds; }
};

// The measurement of one load.
struct StepResult {
  int concurrency = 1;
  double rate = 0;  // planned requests per second; 0: a closed loop
  double seconds = 0;
  Tally tally{};
  std::vector<Window> windows{};
  double cpu_share = 0;     // the share of the processors of this process that it used
  double thread_share = 0;  // the share of the measured time that its busiest thread ran
  bool interrupted = false;

  double PerSecond() const { return seconds > 0 ? static_cast<double>(tally.answered) / seconds : 0; }
  double GbPerSecond() const { return seconds > 0 ? static_cast<double>(tally.bytes) / seconds / 1e9 : 0; }
  std::string Name() const;  // "concurrency 4", "rate 1000"

  // The spread of the windows (Summary::Spread): the greater one of their throughput and of their median latency. 0,
  // for unknown, if there are less than 5 windows or 20 requests per window.
  double Spread() const;

  // Less than 1% of the requests of an open loop, or at most two, were due but not sent.
  bool RateHeld() const;

  // No request was answered in the measured time: there is no figure.
  bool Empty() const { return tally.answered == 0; }

  // Why this process limits the figures as much as the server does; empty if it doesn't.
  std::string Saturation() const;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_RESULT_H_
