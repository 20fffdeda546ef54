// What failpoint.cc is in builds without failpoints: nothing arms one.
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/system/failpoint.h"

namespace reduced::failpoint {

bool Pass(std::size_t /*index*/) { return false; }

absl::StatusOr<std::string> ArmFromEnvironment() { return std::string(); }

}  // namespace reduced::failpoint
