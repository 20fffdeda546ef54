// What a server says of itself over HTTP: /metrics for Prometheus, / for people and /status.json for the page at /.
#ifndef REDUCED_SERVER_OBSERVE_PAGES_H_
#define REDUCED_SERVER_OBSERVE_PAGES_H_

#include <string>

#include "kernels/system/nvml.h"
#include "server/calls/backend.h"
#include "server/observe/http_server.h"
#include "server/observe/status_json.h"

namespace reduced::server {

// The pages. `status_page`: with those for people. What it is given must outlive them; `nvml` may be null.
HttpPages MakePages(const Backend& backend, const Nvml* nvml, bool status_page);

// The text that Prometheus reads.
std::string MetricsText(const Backend& backend, const Nvml* nvml);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_PAGES_H_
