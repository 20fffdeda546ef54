// The HTTP pages: /metrics for Prometheus, the status page at /, and its figures at /status.json.
#ifndef REDUCED_SERVER_OBSERVE_PAGES_H_
#define REDUCED_SERVER_OBSERVE_PAGES_H_

#include <string>

#include "kernels/system/nvml.h"
#include "server/observe/http_server.h"
#include "server/observe/observer.h"
#include "server/observe/snapshot.h"
#include "server/observe/status_json.h"

namespace reduced::server {

// The pages; without the status page if `status_page` is false. The arguments must outlive them; `nvml` may be null.
HttpPages MakePages(const Observer& observer, SnapshotSource take_snapshot, const Nvml* nvml, bool status_page);

// The metrics in the text format of Prometheus.
std::string MetricsText(const Observer& observer, const Snapshot& snapshot, const Nvml* nvml);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_PAGES_H_
