// Reading files: ranges of a descriptor, and small files whole.
#ifndef REDUCED_KERNELS_SYSTEM_READ_FILE_H_
#define REDUCED_KERNELS_SYSTEM_READ_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reduced {

// Fills `to` with `bytes` of an array from byte `offset` of the descriptor `file` on. FAILED_PRECONDITION: the file has
// shrunk, or can't be read.
absl::Status ReadFile(int file, std::int64_t offset, std::int64_t bytes, void* to);

enum class Pipes : std::uint8_t {
  kWait,    // a pipe is read until its writer closes it, however long that takes
  kRefuse,  // a pipe that has nothing to read now is an error
};

// All of the file at `path`. INVALID_ARGUMENT, in words that follow the file's name: it can't be read, is a folder, or
// has more than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::int64_t max_bytes, Pipes pipes);

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_READ_FILE_H_
