// How much memory this process may use.
#ifndef REDUCED_KERNELS_SYSTEM_MEMORY_H_
#define REDUCED_KERNELS_SYSTEM_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace reduced {

// The memory limit of this process's control group (version 1 or 2) or of one above it, whichever is the smallest, in
// bytes: that of its container, or of its systemd unit. Absent: there is none. `root`: for tests, in place of "/".
std::optional<std::int64_t> ControlGroupMemory(const std::string& root = "");

// The machine's memory, or the control group's limit if that is smaller, in bytes.
std::int64_t UsableMemory();

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_MEMORY_H_
