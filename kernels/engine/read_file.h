// Reading an array that is a file: a memfd, a shared memory object, a file on disk.
#ifndef REDUCED_KERNELS_ENGINE_READ_FILE_H_
#define REDUCED_KERNELS_ENGINE_READ_FILE_H_

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Whether reading the array may take any time: it is in a file that isn't mapped, which may be on a disk.
inline bool MayBlock(const ArrayRef& array) { return array.space == MemorySpace::kFile && array.data == nullptr; }

// Fills `to` with `bytes` from byte `offset` of the file on. FAILED_PRECONDITION: it doesn't have them any more, or
// they can't be read.
inline absl::Status ReadFile(int file, std::int64_t offset, std::int64_t bytes, void* to) {
  std::int64_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(file, static_cast<std::byte*>(to) + done, static_cast<std::size_t>(bytes - done),
                              static_cast<off_t>(offset + done));
    if (got > 0) {
      done += got;
    } else if (got == 0) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the array's memory has shrunk: it ends at byte %d, where %d more are needed", offset + done, bytes - done));
    } else if (errno != EINTR) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the array's memory can't be read at byte %d: %s", offset + done, std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_READ_FILE_H_
