// The status page, status_page.html, and the figures that it loads.
#ifndef REDUCED_SERVER_OBSERVE_STATUS_JSON_H_
#define REDUCED_SERVER_OBSERVE_STATUS_JSON_H_

#include <string>
#include <string_view>

#include "kernels/system/nvml.h"
#include "server/observe/observer.h"
#include "server/observe/snapshot.h"

namespace reduced::server {

// The page, with @NONCE@ in place of the nonce of the response's Content-Security-Policy.
extern const std::string_view kStatusPage;

// The figures as one JSON object. Texts of clients are unchanged but for JSON's escapes. `snapshot`: taken with
// Detail::kFull. `nvml` may be null.
std::string StatusJson(const Observer& observer, const Snapshot& snapshot, const Nvml* nvml);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_STATUS_JSON_H_
