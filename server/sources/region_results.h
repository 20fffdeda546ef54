// Results on their way to a region: the server collects them in memory of its own, from which the kernel copies them.
//
// The region belongs to another process, which may do anything to it meanwhile. What copies is a read() of the server's
// own file into the mapped region. Where the region has become shorter that ends with an error, not with a SIGBUS; it
// never makes the region longer; and it waits for no lock of the region's file, which the other process could hold for
// as long as it likes, as a pwrite() to that file would.
#ifndef REDUCED_SERVER_SOURCES_REGION_RESULTS_H_
#define REDUCED_SERVER_SOURCES_REGION_RESULTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reduced::server {

// Results in a region begin at multiples of this.
inline constexpr std::int64_t kResultAlignment = 64;

// A part of a region that may be written to.
struct WritablePart {
  std::byte* data = nullptr;  // mapped: the kernel may write there, a thread must not
  std::int64_t offset = 0;    // of its first byte in the region
  std::int64_t bytes = 0;
  int file = -1;                       // the region's
  std::shared_ptr<const void> held{};  // keeps all of that
};

// The memory in which they are collected: a file of this process, mapped. Movable, not thread-safe.
class RegionResults {
 public:
  // Zeros. RESOURCE_EXHAUSTED: there is no memory, address space or descriptor for them.
  static absl::StatusOr<RegionResults> Allocate(std::int64_t bytes);
  RegionResults(RegionResults&& other) noexcept;
  RegionResults& operator=(RegionResults&& other) noexcept;
  ~RegionResults();

  std::byte* data() const { return data_; }  // null if there are no bytes

  // Copies `bytes` bytes from byte `at` on, to the same bytes of `to`, all within both. FAILED_PRECONDITION: the region
  // has shrunk or lost its memory, also if that was noticed only after the copy; it may have some of the bytes. The
  // first error of `why_stop`, which is asked every few milliseconds.
  absl::Status CopyTo(const WritablePart& to, std::int64_t at, std::int64_t bytes,
                      absl::FunctionRef<absl::Status()> why_stop) const;

 private:
  RegionResults() = default;

  int file_ = -1;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_REGION_RESULTS_H_
