// The state that the calls of a server share.
#ifndef REDUCED_SERVER_CALLS_BACKEND_H_
#define REDUCED_SERVER_CALLS_BACKEND_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/fair_limit.h"
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

// By the name of each GPU, as v1::DeviceInfo.links.
using DeviceLinks = std::map<std::string, std::vector<std::string>>;

// Thread-safe. It must outlive the calls that use it.
struct Backend {
  // `engines` and `security` must outlive it. `security` may be null: then every caller is anonymous,
  // and none has a quota.
  explicit Backend(const Engines& engines, const RequestLimits& limits = {}, const RegionOptions& region_options = {},
                   Security* security = nullptr, const ObserverOptions& observer_options = {})
      : engines(engines),
        limits(limits),
        security(security),
        observer(observer_options, [this](const grpc::ServerContextBase& context) { return PeerOf(context); }),
        regions(engines, region_options) {}

  const Engines& engines;
  const RequestLimits limits;
  Security* const security;
  const absl::Time started = absl::Now();
  // Host memory for all requests together, and a small part beside it for what is small: see CallPayers. Set before the
  // first call.
  std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>();
  std::shared_ptr<MemoryBudget> small_memory = SmallMemory(*memory, limits.caller_share);
  static std::shared_ptr<MemoryBudget> SmallMemory(const MemoryBudget& memory, double share) {
    constexpr std::int64_t kLeast = 16 << 20;
    return std::make_shared<MemoryBudget>(std::max(kLeast, memory.limit() / 16), share);
  }
  Gate gate;
  FairLimit streams{limits.max_streams, limits.caller_share};    // slots
  FairLimit sessions{limits.max_sessions, limits.caller_share};  // slots
  Observer observer;
  Uploads uploads;
  std::vector<FlagValue> flags;  // for GetServerInfo and the status page; set before the first call
  DeviceLinks links;             // likewise
  ResidentArrays arrays{limits.max_arrays};
  Regions regions;
  Watchdog watchdog{limits.timeouts, memory};
  Pollers pollers{GpuLanes(engines)};  // of the sessions' rings
  static int GpuLanes(const Engines& engines) {
    int lanes = 0;
    for (const auto& engine : engines.all()) lanes += engine->kind() == EngineKind::kCuda ? engine->info().lanes : 0;
    return lanes;
  }

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

  // For people to read, as Security::ExactPeerOf.
  std::string PeerOf(const grpc::ServerContextBase& context) const {
    return security == nullptr ? PeerOfUri(context.peer()) : security->ExactPeerOf(context);
  }

  // For metrics and the status page.
  Snapshot TakeSnapshot(Detail detail) const;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_BACKEND_H_
