// The parts of an error that reduced/errors.h reads.
#ifndef REDUCED_CLIENT_LIB_ERRORS_H_
#define REDUCED_CLIENT_LIB_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace reduced::client {

void SetRequestId(absl::string_view id, absl::Status* error);
void SetRetryAfter(absl::Duration delay, absl::Status* error);

// The same error in other words.
absl::Status WithMessage(const absl::Status& error, absl::string_view message);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_ERRORS_H_
