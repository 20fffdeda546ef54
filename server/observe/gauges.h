// What a server holds at the moment it is asked, and whom it has refused.
#ifndef REDUCED_SERVER_OBSERVE_GAUGES_H_
#define REDUCED_SERVER_OBSERVE_GAUGES_H_

#include <vector>

#include "kernels/system/nvml.h"
#include "prometheus/metric_family.h"
#include "server/calls/backend.h"

namespace reduced::server {

// Lanes, queues, arrays, regions, streams, sessions, GPUs, which build it is, calls refused. `nvml`: null where there
// is none.
std::vector<prometheus::MetricFamily> CollectGauges(const Backend& backend, const Nvml* nvml);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_GAUGES_H_
