// The form of errors of requests: which field, what it has, and what is allowed.
#ifndef REDUCED_TESTS_SERVICE_ERROR_FORM_H_
#define REDUCED_TESTS_SERVICE_ERROR_FORM_H_

#include "gmock/gmock.h"

namespace reduced::server {

// Matches `field: got X; allowed: A`. The errors of single ops have the op in the place of the field, and before it the
// output that has no answer.
inline auto IsErrorOfField() {
  return ::testing::MatchesRegex(R"((output [[0-9, ]+]: )?(op [a-z_0-9]+|[][a-z_.0-9]+): got .+; allowed: .+)");
}

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_ERROR_FORM_H_
