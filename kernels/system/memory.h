// How much memory this process may use, and how it gets large pieces of it.
#ifndef REDUCED_KERNELS_SYSTEM_MEMORY_H_
#define REDUCED_KERNELS_SYSTEM_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace reduced {

// The memory limit of this process's control group (version 1 or 2) or of one above it, whichever is the smallest, in
// bytes: that of its container, or of its systemd unit. Absent: there is none. `root`: for tests, in place of "/".
std::optional<std::int64_t> ControlGroupMemory(const std::string& root = "");

// The machine's memory, or the control group's limit if that is smaller, in bytes.
std::int64_t UsableMemory();

// Makes an empty string so many zero bytes: where huge pages can be had in these, with far fewer page faults.
void FillWithZeros(std::size_t size, std::string* bytes);

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_MEMORY_H_
