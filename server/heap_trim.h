// The heap after a peak. By default glibc returns free memory to the system only from the end of its heap, so that a
// process keeps nearly all that it ever had in use.
#ifndef REDUCED_SERVER_HEAP_TRIM_H_
#define REDUCED_SERVER_HEAP_TRIM_H_

#include <cstdint>

#include "absl/time/time.h"

namespace reduced::server {

// Memory that allocations once took, that is free now, and that the process still has, in bytes; approximately.
std::int64_t FreeHeapBytes();

// Returns free memory to the system, when that is worth its time. Not thread-safe.
class HeapTrim {
 public:
  // Call it often. `idle`: no request is in progress; allocations wait while a heap is trimmed, some milliseconds for a
  // gibibyte. Trims at most every 10 s, and only if 64 MiB more are free than after the last time. True: it trimmed.
  bool Trim(absl::Time now, bool idle);

 private:
  absl::Time next_ = absl::InfinitePast();
  std::int64_t left_ = 0;  // FreeHeapBytes() after the last time
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_HEAP_TRIM_H_
