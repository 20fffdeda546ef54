// What the page at / shows: status_page.html, and the figures that it asks for.
#ifndef REDUCED_SERVER_OBSERVE_STATUS_JSON_H_
#define REDUCED_SERVER_OBSERVE_STATUS_JSON_H_

#include <string>
#include <string_view>

#include "kernels/system/nvml.h"
#include "server/calls/backend.h"

namespace reduced::server {

// The page, with @NONCE@ where its style and script must say the nonce of the response's Content-Security-Policy.
extern const std::string_view kStatusPage;

// One JSON object; texts in it are as clients wrote them, escaped only as JSON has it. Of the ids of arrays, which are
// what lets a client read them, only the first characters. `nvml` may be null.
std::string StatusJson(const Backend& backend, const Nvml* nvml);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_STATUS_JSON_H_
