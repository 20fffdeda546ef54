// Waiting for what another thread does.
#ifndef REDUCED_TESTS_SUPPORT_BECOMES_H_
#define REDUCED_TESTS_SUPPORT_BECOMES_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reduced {

// Whether the condition holds within `patience`, now or later.
template <class Condition>
bool Becomes(absl::Duration patience, Condition condition) {
  for (const absl::Time deadline = absl::Now() + patience; absl::Now() < deadline;) {
    if (condition()) return true;
    absl::SleepFor(absl::Microseconds(200));
  }
  return false;
}

}  // namespace reduced

#endif  // REDUCED_TESTS_SUPPORT_BECOMES_H_
