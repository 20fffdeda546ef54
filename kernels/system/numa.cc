#include "kernels/system/numa.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace reduced {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Those of "0-15,64-79". Absent: it is something else.
std::optional<cpu_set_t> ParseProcessors(const std::string& list) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (const absl::string_view range : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) return std::nullopt;
    if (!absl::SimpleAtoi(ends.second.empty() ? ends.first : ends.second, &last)) return std::nullopt;
    if (first < 0 || last < first || last >= CPU_SETSIZE) return std::nullopt;
    for (int each = first; each <= last; ++each) CPU_SET(static_cast<unsigned>(each), &processors);
  }
  return processors;
}

int CountNodes(const std::string& folder) {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename();
    int number = 0;
    count += name.starts_with("node") && absl::SimpleAtoi(name.substr(4), &number) ? 1 : 0;
  }
  return count;
}

}  // namespace

std::optional<cpu_set_t> ProcessorsNear(const std::string& pci_address, const std::string& sysfs) {
  if (CountNodes(absl::StrCat(sysfs, "/devices/system/node")) < 2) return std::nullopt;
  const std::string device = absl::StrCat(sysfs, "/bus/pci/devices/", pci_address);
  int node = -1;
  if (!absl::SimpleAtoi(FirstLine(device + "/numa_node"), &node) || node < 0) return std::nullopt;
  std::optional<cpu_set_t> near = ParseProcessors(FirstLine(device + "/local_cpulist"));
  cpu_set_t usable;
  if (!near.has_value() || sched_getaffinity(0, sizeof(usable), &usable) != 0) return std::nullopt;
  CPU_AND(&*near, &*near, &usable);
  if (CPU_COUNT(&*near) == 0) return std::nullopt;
  return near;
}

OnProcessors::OnProcessors(const std::optional<cpu_set_t>& processors) {
  cpu_set_t before;
  if (!processors.has_value() || sched_getaffinity(0, sizeof(before), &before) != 0) return;
  if (sched_setaffinity(0, sizeof(*processors), &*processors) == 0) before_ = before;
}

OnProcessors::~OnProcessors() {
  if (before_.has_value()) sched_setaffinity(0, sizeof(*before_), &*before_);
}

}  // namespace reduced
