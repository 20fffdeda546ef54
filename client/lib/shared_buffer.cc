#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reduced/shared.h"

namespace reduced::client {

absl::StatusOr<SharedBuffer> SharedBuffer::Allocate(std::int64_t bytes) {
  return Allocate(bytes, /*for_results=*/false);
}

absl::StatusOr<SharedBuffer> SharedBuffer::AllocateForResults(std::int64_t bytes) {
  return Allocate(bytes, /*for_results=*/true);
}

absl::StatusOr<SharedBuffer> SharedBuffer::Allocate(std::int64_t bytes, bool for_results) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes: got ", bytes, "; allowed: 0 and more"));
  SharedBuffer buffer;
  const auto failed = [bytes](const char* what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("can't allocate ", bytes, " bytes of shared memory: ", what, ": ", std::strerror(errno)));
  };
  buffer.file_ = memfd_create("reduced", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (buffer.file_ < 0) return failed("memfd_create");
  if (ftruncate(buffer.file_, bytes) != 0) return failed("ftruncate");
  if (for_results && bytes > 0) {
    // A server takes no memory with holes, which would fill with memory of its own.
    if (const int error = posix_fallocate(buffer.file_, 0, bytes); error != 0) {
      errno = error;
      return failed("posix_fallocate");
    }
  }
  if (bytes > 0) {
    void* const data =
        mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, buffer.file_, 0);
    if (data == MAP_FAILED) return failed("mmap");
    buffer.data_ = data;
    buffer.bytes_ = bytes;
  }
  // Nobody can take a page out of it any more, so that the server may map it. The mapping above stays writable.
  // Results, which the server writes, can't go to memory that is sealed so.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = for_results ? kSeals : kSeals | F_SEAL_FUTURE_WRITE;
  if (fcntl(buffer.file_, F_ADD_SEALS, seals) != 0) return failed("F_ADD_SEALS");
  return buffer;
}

SharedBuffer::SharedBuffer(SharedBuffer&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedBuffer& SharedBuffer::operator=(SharedBuffer&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedBuffer::~SharedBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  if (file_ >= 0) close(file_);
}

}  // namespace reduced::client
