// The state that the calls of a server share.
#ifndef REDUCED_SERVER_CALLS_BACKEND_H_
#define REDUCED_SERVER_CALLS_BACKEND_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/memory_budget.h"
#include "server/calls/gate.h"
#include "server/calls/poller.h"
#include "server/calls/watchdog.h"
#include "server/config/options.h"
#include "server/observe/observer.h"
#include "server/observe/snapshot.h"
#include "server/security/identity.h"
#include "server/security/security.h"
#include "server/sources/arrays.h"
#include "server/sources/regions.h"
#include "server/sources/uploads.h"

namespace reduced::server {

// Thread-safe. It must outlive the calls that use it.
struct Backend {
  // `engines` and `security` must outlive it. `security` may be null: then every caller is anonymous,
  // and none has a quota.
  explicit Backend(const Engines& engines, const RequestLimits& limits = {}, const RegionOptions& region_options = {},
                   Security* security = nullptr, const ObserverOptions& observer_options = {})
      : engines(engines),
        limits(limits),
        security(security),
        observer(observer_options,
                 [this](const grpc::ServerContextBase& context) { return IdentityOf(context).value_or(""); }),
        regions(engines, region_options) {}

  const Engines& engines;
  const RequestLimits limits;
  Security* const security;
  const absl::Time started = absl::Now();
  // Host memory for all requests together. Set before the first call.
  std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>();
  Gate gate;
  std::atomic<int> streams = 0;   // slots taken
  std::atomic<int> sessions = 0;  // slots taken
  Observer observer;
  Uploads uploads;
  std::vector<FlagValue> flags;  // for GetServerInfo and the status page; set before the first call
  ResidentArrays arrays{limits.max_arrays};
  Regions regions;
  Watchdog watchdog{limits.timeouts};
  Pollers pollers;  // of the sessions' rings

  std::atomic<bool> draining = false;

  // From now on sessions end with UNAVAILABLE as soon as the requests that have arrived are answered, and so do uploads
  // of which parts have not begun: those go to another server. Everything else is served.
  void Drain() {
    draining.store(true);
    uploads.Drain();
    watchdog.Drain();
  }

  // Who makes a call, as Security::CallerOf.
  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context) const {
    if (security == nullptr) return Caller();
    absl::StatusOr<std::string> identity = security->CallerOf(context);
    if (!identity.ok()) return identity.status();
    const bool anonymous = identity->empty();
    return Caller(*std::move(identity), anonymous ? security->PeerOf(context) : "");
  }

  absl::StatusOr<std::string> IdentityOf(const grpc::ServerContextBase& context) const {
    return security == nullptr ? std::string() : security->CallerOf(context);
  }

  // For metrics and the status page.
  Snapshot TakeSnapshot(Detail detail) const;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_BACKEND_H_
