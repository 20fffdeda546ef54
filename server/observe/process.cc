#include "server/observe/process.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/system/read_file.h"

namespace reduced::server {
namespace {

using prometheus::MetricType;

double Seconds(const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; }
double Seconds(const timespec& time) { return double(time.tv_sec) + double(time.tv_nsec) * 1e-9; }

// A field of /proc/self/statm, which counts pages, in bytes.
std::optional<double> PagesOf(std::size_t field) {
  const absl::StatusOr<std::string> text = ReadSmallFile("/proc/self/statm", 4096, Pipes::kRefuse);
  if (!text.ok()) return std::nullopt;
  const std::vector<absl::string_view> fields = absl::StrSplit(*text, ' ');
  std::int64_t pages = 0;
  if (field >= fields.size() || !absl::SimpleAtoi(fields[field], &pages)) return std::nullopt;
  return double(pages) * double(sysconf(_SC_PAGESIZE));
}

std::optional<double> EntriesOf(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  if (error) return std::nullopt;
  double count = 0;
  for (auto entry = begin(entries); entry != end(entries); entry.increment(error)) {
    if (error) return std::nullopt;
    ++count;
  }
  return count;
}

std::optional<double> CpuSeconds() {
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) != 0) return std::nullopt;
  return Seconds(used.ru_utime) + Seconds(used.ru_stime);
}

// When the process started, in seconds since 1970: one value for its whole life, also if the clock is set meanwhile.
std::optional<double> StartTime() {
  static const std::optional<double> started = []() -> std::optional<double> {
    const absl::StatusOr<std::string> text = ReadSmallFile("/proc/self/stat", 4096, Pipes::kRefuse);
    if (!text.ok()) return std::nullopt;
    // The name of the program, in parentheses, may contain anything.
    const std::vector<absl::string_view> fields = absl::StrSplit(text->substr(text->rfind(')') + 1), ' ');
    constexpr std::size_t kTicks = 20;  // since boot; after the name and a blank
    std::int64_t ticks = 0;
    timespec now{}, since_boot{};
    if (fields.size() <= kTicks || !absl::SimpleAtoi(fields[kTicks], &ticks)) return std::nullopt;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0 || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0)
      return std::nullopt;
    const double age = Seconds(since_boot) - double(ticks) / double(sysconf(_SC_CLK_TCK));
    return Seconds(now) - age;
  }();
  return started;
}

std::optional<double> MaxDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return double(limit.rlim_cur);
}

std::optional<double> HeapUsed() {
  const struct mallinfo2 heap = mallinfo2();
  return double(heap.uordblks) + double(heap.hblkhd);
}

struct Row {
  std::string_view name;
  std::string_view help;
  MetricType type;
  std::optional<double> (*read)();
};
constexpr Row kRows[] = {
    {"reduced_heap_used_bytes", "Memory that the process has allocated and not freed, in bytes.", MetricType::Gauge,
     HeapUsed},
    {"process_resident_memory_bytes", "Memory of the process that is in RAM, in bytes.", MetricType::Gauge,
     [] { return PagesOf(1); }},
    {"process_virtual_memory_bytes", "Addresses that the process has mapped, in bytes.", MetricType::Gauge,
     [] { return PagesOf(0); }},
    {"process_cpu_seconds_total", "Processor time of the process, user and system, in seconds.", MetricType::Counter,
     CpuSeconds},
    {"process_start_time_seconds", "Time when the process started, in seconds since 1970.", MetricType::Gauge,
     StartTime},
    {"process_open_fds", "Open file descriptors.", MetricType::Gauge, [] { return EntriesOf("/proc/self/fd"); }},
    {"process_max_fds", "Limit of the file descriptors.", MetricType::Gauge, MaxDescriptors},
    {"process_threads", "Threads of the process.", MetricType::Gauge, [] { return EntriesOf("/proc/self/task"); }},
};

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcess() {
  std::vector<prometheus::MetricFamily> families;
  for (const Row& row : kRows) {
    const std::optional<double> value = row.read();
    if (!value.has_value()) continue;
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = std::string(row.name);
    family.help = std::string(row.help);
    family.type = row.type;
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    (row.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
  }
  return families;
}

}  // namespace reduced::server
