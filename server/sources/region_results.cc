#include "server/sources/region_results.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {

absl::StatusOr<RegionResults> RegionResults::Allocate(std::int64_t bytes) {
  RegionResults results;
  if (bytes == 0) return results;
  const auto failed = [bytes](const char* what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of results: ", what, ": ", std::strerror(errno)));
  };
  results.file_ = FAILPOINT_ERRNO("results/memory", EMFILE, memfd_create("reduced_results", MFD_CLOEXEC));
  if (results.file_ < 0) return failed("memfd_create");
  if (ftruncate(results.file_, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  void* const mapped =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, results.file_, 0);
  if (mapped == MAP_FAILED) return failed("mmap");
  results.data_ = static_cast<std::byte*>(mapped);
  results.bytes_ = bytes;
  return results;
}

RegionResults::RegionResults(RegionResults&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

RegionResults& RegionResults::operator=(RegionResults&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

RegionResults::~RegionResults() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  if (file_ >= 0) close(file_);
}

absl::Status RegionResults::CopyTo(const WritablePart& to, std::int64_t at, std::int64_t bytes,
                                   absl::FunctionRef<absl::Status()> why_stop) const {
  constexpr std::int64_t kBetweenStops = 8 << 20;
  const std::int64_t end = at + bytes;
  for (std::int64_t done = at; done < end;) {
    RETURN_IF_ERROR(why_stop());
    const ssize_t got =
        FAILPOINT_ERRNO("results/copy", EFAULT,
                        pread(file_, to.data + done, static_cast<std::size_t>(std::min(kBetweenStops, end - done)),
                              static_cast<off_t>(done)));
    if (got > 0) {
      done += got;
    } else if (got == 0 || errno != EINTR) {
      return absl::FailedPreconditionError(
          absl::StrFormat("write_to: byte %d of the region can't be written, because it has shrunk or has no memory; "
                          "allowed: a region that keeps its size",
                          to.offset + done));
    }
  }
  // What was copied may have been cut off since.
  struct stat now {};
  if (bytes > 0 && (fstat(to.file, &now) != 0 || now.st_size < to.offset + end)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("write_to: the region has shrunk to %d bytes, while %d were written; allowed: a region that "
                        "keeps its size",
                        now.st_size, to.offset + end));
  }
  return absl::OkStatus();
}

}  // namespace reduced::server
