// What the calls of a server have in common.
#ifndef REDUCED_SERVER_BACKEND_H_
#define REDUCED_SERVER_BACKEND_H_

#include <atomic>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/engines.h"
#include "server/arrays.h"
#include "server/gate.h"
#include "server/observe/observer.h"
#include "server/options.h"
#include "server/regions.h"
#include "server/uploads.h"

namespace reduced {

// Thread-safe. Outlives the calls that use it.
struct Backend {
  // `engines` must outlive it.
  explicit Backend(const Engines& engines, const RequestLimits& limits = {}, const RegionOptions& region_options = {},
                   const ObserverOptions& observer_options = {})
      : engines(engines), limits(limits), observer(observer_options), regions(engines, region_options) {}

  const Engines& engines;
  const RequestLimits limits;
  const absl::Time started = absl::Now();
  Gate gate;                      // every call that works is inside
  std::atomic<int> streams = 0;   // arrays that stream in; see EnterStream
  std::atomic<int> sessions = 0;  // open; not more than limits.max_sessions
  Observer observer;              // hears of every call when it ends
  Uploads uploads;
  ResidentArrays arrays{limits.max_arrays};
  Regions regions;

  // Counts an array in that streams in. RESOURCE_EXHAUSTED: limits.max_streams do already.
  absl::Status EnterStream() {
    if (streams.fetch_add(1) < limits.max_streams) return absl::OkStatus();
    LeaveStream();
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d arrays stream in already, no more are allowed at once", limits.max_streams));
  }
  // Counts out one that was counted in.
  void LeaveStream() { streams.fetch_sub(1); }
};

}  // namespace reduced

#endif  // REDUCED_SERVER_BACKEND_H_
