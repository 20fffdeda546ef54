// What the calls of a server have in common.
#ifndef REDUCED_SERVER_BACKEND_H_
#define REDUCED_SERVER_BACKEND_H_

#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/engines.h"
#include "server/gate.h"
#include "server/options.h"
#include "server/regions.h"

namespace reduced {

// Thread-safe. Outlives the calls that use it.
struct Backend {
  // `engines` must outlive it.
  explicit Backend(const Engines& engines, const RequestLimits& limits = {}, const RegionOptions& region_options = {})
      : engines(engines), limits(limits), regions(engines, region_options) {}

  const Engines& engines;
  const RequestLimits limits;
  const absl::Time started = absl::Now();
  Gate gate;                      // every call that works is inside
  std::atomic<int> streams = 0;   // that take up buffers; not more than limits.max_streams
  std::atomic<int> sessions = 0;  // open; not more than limits.max_sessions
  Regions regions;
};

}  // namespace reduced

#endif  // REDUCED_SERVER_BACKEND_H_
