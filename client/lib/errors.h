// The parts of an error that reduced/errors.h reads.
#ifndef REDUCED_CLIENT_LIB_ERRORS_H_
#define REDUCED_CLIENT_LIB_ERRORS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace reduced::client {

void SetRequestId(absl::string_view id, absl::Status* error);
void SetRetryAfter(absl::Duration delay, absl::Status* error);

// The same error in other words.
absl::Status WithMessage(const absl::Status& error, absl::string_view message);
// The error of one of many arrays, with its index: "operands[3].dtype: got ...". OK stays OK, and what is no error of
// the array as it is.
absl::Status OfOperand(std::size_t index, const absl::Status& error);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_ERRORS_H_
