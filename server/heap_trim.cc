#include "server/heap_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace reduced::server {
namespace {

constexpr absl::Duration kPause = absl::Seconds(10);
constexpr std::int64_t kWorthIt = std::int64_t{64} << 20;
constexpr std::size_t kKept = std::size_t{32} << 20;  // at the end of the heap: M_TRIM_THRESHOLD of main.cc

}  // namespace

// Neither tells it alone: mallinfo2 counts memory as free that was returned long ago, and resident memory is also what
// did not come from malloc.
std::int64_t FreeHeapBytes() {
  std::int64_t size = 0, resident = 0, shared = 0;  // pages
  std::ifstream("/proc/self/statm") >> size >> resident >> shared;
  const struct mallinfo2 heap = mallinfo2();
  const auto used = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
  const std::int64_t beyond_used = (resident - shared) * sysconf(_SC_PAGESIZE) - used;
  return std::clamp<std::int64_t>(beyond_used, 0, static_cast<std::int64_t>(heap.fordblks));
}

bool HeapTrim::Trim(absl::Time now, bool idle) {
  if (!idle || now < next_) return false;
  next_ = now + kPause;
  if (FreeHeapBytes() < left_ + kWorthIt) return false;
  malloc_trim(kKept);
  left_ = FreeHeapBytes();
  return true;
}

}  // namespace reduced::server
