#include "kernels/system/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/system/failpoint.h"

namespace reduced {

absl::Status ReadFile(int file, std::int64_t offset, std::int64_t bytes, void* to) {
  std::int64_t done = 0;
  while (done < bytes) {
    const std::int64_t wanted = FAILPOINT("read/short") ? 1 : FAILPOINT("read/shrunk") ? 0 : bytes - done;
    const ssize_t got = FAILPOINT_ERRNO("read/pread", EIO,
                                        pread(file, static_cast<std::byte*>(to) + done,
                                              static_cast<std::size_t>(wanted), static_cast<off_t>(offset + done)));
    if (got > 0) {
      done += got;
    } else if (got == 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the array's memory has shrunk: it ends at byte %d, but the array has %d bytes more",
                          offset + done, bytes - done));
    } else if (errno != EINTR) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the array's memory can't be read at byte %d: %s", offset + done, std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

// By read() itself: a stream that is given a folder throws.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::int64_t max_bytes, Pipes pipes) {
  const auto failed = [] { return absl::InvalidArgumentError(absl::StrCat("can't be read: ", std::strerror(errno))); };
  const int flags = O_RDONLY | O_CLOEXEC | (pipes == Pipes::kRefuse ? O_NONBLOCK : 0);
  const int file = FAILPOINT_ERRNO("read/open", EMFILE, open(path.c_str(), flags));
  if (file < 0) return failed();
  const absl::Cleanup close_file = [file] { close(file); };
  std::string text;
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t got = FAILPOINT_ERRNO("read/read", EIO, read(file, piece.data(), piece.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed();
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (static_cast<std::int64_t>(text.size()) > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("has more than ", max_bytes, " bytes"));
    }
  }
}

}  // namespace reduced
