// What an error of the library says besides its code and its message.
#ifndef REDUCED_ERRORS_H_
#define REDUCED_ERRORS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "reduced/array.h"

namespace reduced::client {

// The request id of the call that failed, which the server's log and status page have. Empty: no server answered, it
// gives no ids (--request_ids=false), or the error is of one request of a session.
REDUCED_EXPORT std::string RequestIdOf(const absl::Status& error);

// How long the server asks to wait before the next attempt. Absent: it did not say, which is so for most errors.
REDUCED_EXPORT std::optional<absl::Duration> RetryAfterOf(const absl::Status& error);

}  // namespace reduced::client

#endif  // REDUCED_ERRORS_H_
