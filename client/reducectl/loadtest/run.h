// Sends requests at a given load and measures them. run.cc describes the flow.
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

// The progress of a step.
struct StepProgress {
  double per_s = 0;  // of the last progress period
  double p50_us = 0, p99_us = 0;
  std::int64_t failed = 0;  // so far
  absl::Duration elapsed;   // of the measured time; negative during the warm-up
};

struct StepOptions {
  int concurrency = 1;  // requests in flight; in an open loop the limit
  double rate = 0;      // planned requests per second; 0: a closed loop
  ArrivalKind arrivals = ArrivalKind::kConstant;
  absl::Duration warmup = absl::Seconds(1);  // requests before its end don't count
  absl::Duration duration = absl::Seconds(10);
  std::int64_t count = 0;  // measured requests; 0: the duration counts
  int threads = 0;         // that send; 0: one for each request in flight, at most 64
  double verify = 0;       // the share of verified results, which includes the first one of each thread
  std::uint64_t seed = 1;
  const std::atomic<bool>* interrupt = nullptr;            // once it is true, the step ends early
  std::function<void(const StepProgress&)> on_progress{};  // called a few times per second, within RunStep; may be null
};

// Waits for the requests in flight at the end. Returns an error if a thread can't get the resources that it needs.
absl::StatusOr<StepResult> RunStep(Work& work, const StepOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_RUN_H_
