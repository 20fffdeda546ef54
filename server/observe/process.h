// What the process itself takes of the machine, as metrics of Prometheus.
#ifndef REDUCED_SERVER_OBSERVE_PROCESS_H_
#define REDUCED_SERVER_OBSERVE_PROCESS_H_

#include <vector>

#include "prometheus/metric_family.h"

namespace reduced::server {

// Memory, processor time, descriptors and threads, by the names that Prometheus's client libraries agree on
// (https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics). What can't be read is left out.
std::vector<prometheus::MetricFamily> CollectProcess();

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_PROCESS_H_
