#include "kernels/system/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/system/failpoint.h"

namespace reduced {
namespace {

namespace fs = std::filesystem;

// The smallest limit in the files `name` of the folders from top / path up to `top`.
void LowerTo(const fs::path& top, std::string_view path, const char* name, std::optional<std::int64_t>* limit) {
  constexpr std::int64_t kNone = std::int64_t{1} << 60;  // version 1 has a huge number for no limit
  fs::path group = fs::path(path).relative_path();
  while (true) {
    std::ifstream file(top / group / name);
    std::int64_t bytes = 0;
    if (FAILPOINT("memory/cgroup")) file.setstate(std::ios::failbit);
    if (file >> bytes && bytes < kNone) *limit = std::min(bytes, limit->value_or(bytes));
    if (group.empty()) return;
    group = group.parent_path();
  }
}

}  // namespace

std::optional<std::int64_t> ControlGroupMemory(const std::string& root) {
  const fs::path mounted = absl::StrCat(root, "/sys/fs/cgroup");
  std::optional<std::int64_t> limit;
  // A line has hierarchy:controllers:path; version 2 has the hierarchy 0 and no controllers. In a container the path
  // may be that outside, which isn't there: then the top folder is the container's own.
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) LowerTo(mounted, parts[2], "memory.max", &limit);
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      LowerTo(mounted / "memory", parts[2], "memory.limit_in_bytes", &limit);
    }
  }
  return limit;
}

std::int64_t UsableMemory() {
  const std::int64_t machine = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min(machine, ControlGroupMemory().value_or(machine));
}

void FillWithZeros(std::size_t size, std::string* bytes) {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  bytes->reserve(size);
  // What is the string's alone: whole huge pages between its ends.
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes->data()) + kHugePage - 1) & ~(kHugePage - 1);
  const auto end = (reinterpret_cast<std::uintptr_t>(bytes->data()) + size) & ~(kHugePage - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  bytes->resize(size);
}

}  // namespace reduced
