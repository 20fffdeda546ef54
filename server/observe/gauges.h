// A snapshot as gauges of Prometheus.
#ifndef REDUCED_SERVER_OBSERVE_GAUGES_H_
#define REDUCED_SERVER_OBSERVE_GAUGES_H_

#include <vector>

#include "kernels/system/nvml.h"
#include "prometheus/metric_family.h"
#include "server/observe/snapshot.h"

namespace reduced::server {

// Devices, resources in use, refused calls and the build. `nvml` may be null: then there are no figures of GPUs.
std::vector<prometheus::MetricFamily> CollectGauges(const Snapshot& snapshot, const Nvml* nvml);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_GAUGES_H_
