// What the calls of a server have in common.
#ifndef REDUCED_SERVER_CALLS_BACKEND_H_
#define REDUCED_SERVER_CALLS_BACKEND_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/engine/engines.h"
#include "server/calls/gate.h"
#include "server/config/options.h"
#include "server/observe/observer.h"
#include "server/security/quotas.h"
#include "server/security/security.h"
#include "server/sources/arrays.h"
#include "server/sources/regions.h"
#include "server/sources/uploads.h"

namespace reduced::server {

// Thread-safe. Outlives the calls that use it.
struct Backend {
  // `engines` and `security` must outlive it. `security`: null: every caller is nobody in particular.
  explicit Backend(const Engines& engines, const RequestLimits& limits = {}, const RegionOptions& region_options = {},
                   Security* security = nullptr, const ObserverOptions& observer_options = {})
      : engines(engines),
        limits(limits),
        security(security),
        observer(observer_options,
                 [this](const grpc::ServerContextBase& context) { return CallerOf(context).value_or(""); }),
        regions(engines, region_options) {}

  const Engines& engines;
  const RequestLimits limits;
  Security* const security;
  const absl::Time started = absl::Now();
  Gate gate;                      // every call that works is inside
  std::atomic<int> streams = 0;   // arrays that stream in; see EnterStream
  std::atomic<int> sessions = 0;  // open; not more than limits.max_sessions
  Observer observer;              // hears of every call when it ends
  Uploads uploads;
  std::vector<FlagValue> flags;  // told in GetServerInfo; set before there is a call
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

  // As Security::CallerOf.
  absl::StatusOr<std::string> CallerOf(const grpc::ServerContextBase& context) const {
    return security == nullptr ? std::string() : security->CallerOf(context);
  }
  // As Quotas.
  absl::StatusOr<Quotas::Lease> TakeRequest(const std::string& caller) {
    return security == nullptr ? Quotas::Lease() : security->quotas().TakeRequest(caller);
  }
  absl::StatusOr<Quotas::Lease> TakeArrayBytes(const std::string& caller, std::int64_t bytes) {
    return security == nullptr ? Quotas::Lease() : security->quotas().TakeArrayBytes(caller, bytes);
  }
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_BACKEND_H_
