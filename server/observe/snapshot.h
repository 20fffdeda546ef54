// What a server holds at one moment, as metrics and the status page report it. The server fills it; this room only
// reads it.
#ifndef REDUCED_SERVER_OBSERVE_SNAPSHOT_H_
#define REDUCED_SERVER_OBSERVE_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/engine/engines.h"
#include "server/config/options.h"

namespace reduced::server {

// One resource that is limited in number. It becomes the gauges reduced_NAME and, with a limit, reduced_NAME_limit.
struct ResourceUsage {
  std::string_view name;  // plural, such as "streams"
  std::string_view help;  // of the gauge
  std::int64_t used = 0;
  std::int64_t limit = 0;  // 0: none
};

// A resident array without what would let a reader of it use the array.
struct ArraySummary {
  std::string id_prefix;
  std::string owner;  // empty: an anonymous caller that named none
  std::string device;
  std::string_view dtype;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

struct Snapshot {
  absl::Time started;
  std::vector<DeviceInfo> devices;
  std::vector<LeftOutDevice> left_out;
  std::string no_cuda_reason;  // empty if there is a CUDA engine
  std::vector<ResourceUsage> usage;
  std::uint64_t refused_calls = 0;  // for their token; see Security::refused
  std::uint64_t dropped_log_lines = 0;
  std::vector<std::pair<std::string_view, std::uint64_t>> refused_connections{};  // by reason: kRefusals, and "regions"
  bool draining = false;
  bool serving = true;                                              // what health says
  std::optional<absl::Time> certificate_expiry{};                   // absent: the server has no certificate
  std::vector<std::pair<std::string_view, bool>> failed_reloads{};  // by kind of file; see Security::FailedReloads
  // With Detail::kFull only.
  std::vector<FlagValue> flags;      // values as RedactedValue shows them
  std::vector<ArraySummary> arrays;  // of every owner, oldest first
};

enum class Detail : std::uint8_t { kCounts, kFull };

// Takes a snapshot. Thread-safe.
using SnapshotSource = std::function<Snapshot(Detail)>;

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_SNAPSHOT_H_
