// Makes requests at a given load, and measures them. The flow is written down in run.cc.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_RUN_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_RUN_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reducectl/loadtest/result.h"
#include "client/reducectl/loadtest/schedule.h"
#include "client/reducectl/loadtest/work.h"

namespace reduced::client {

// How far a step has come.
struct StepProgress {
  double per_s = 0;  // lately
  double p50_us = 0, p99_us = 0;
  std::int64_t failed = 0;  // so far
  absl::Duration elapsed;   // of the measured time; below 0: it warms up
};

struct StepOptions {
  int concurrency = 1;  // requests under way at once; in an open loop, at most
  double rate = 0;      // planned a second; 0: a closed loop
  ArrivalKind arrivals = ArrivalKind::kConstant;
  absl::Duration warmup = absl::Seconds(1);  // before it, nothing counts
  absl::Duration duration = absl::Seconds(10);
  std::int64_t count = 0;  // requests to measure, instead of the duration; 0: as that says
  int threads = 0;         // that send; 0: one for each request under way, 64 at most
  double verify = 0;       // share of the answers; the first of each thread is among them
  std::uint64_t seed = 1;
  const std::atomic<bool>* interrupt = nullptr;            // once it is true, the step ends early
  std::function<void(const StepProgress&)> on_progress{};  // called some times a second, within RunStep; null: not
};

// Waits for the requests under way at the end. An error: what a thread needs couldn't be had.
absl::StatusOr<StepResult> RunStep(Work& work, const StepOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_RUN_H_
