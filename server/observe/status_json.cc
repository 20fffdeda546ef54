#include "server/observe/status_json.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace reduced::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxArrays = 100;  // that are listed
constexpr std::size_t kMaxCallers = 20;  // likewise, those with most calls

Json DeviceJson(const DeviceInfo& device, const Nvml* nvml) {
  Json json = {{"name", device.name},
               {"model", device.model},
               {"lanes", device.lanes},
               {"lanes_busy", device.lanes_busy},
               {"queue_limit", device.queue_limit},
               {"queue_length", device.queue_length},
               {"array_bytes", device.array_bytes},
               {"array_bytes_limit", device.array_bytes_limit},
               {"reductions", device.reductions},
               {"reduced_bytes", device.reduced_bytes}};
  if (nvml == nullptr || device.uuid.empty()) return json;
  const absl::StatusOr<GpuUsage> usage = nvml->Read(device.uuid);
  if (!usage.ok()) return json;
  json["gpu"] = {{"memory_used_bytes", usage->memory_used_bytes}, {"memory_bytes", usage->memory_total_bytes}};
  if (usage->utilisation.has_value()) json["gpu"]["utilisation"] = *usage->utilisation;
  return json;
}

Json CallersJson(std::vector<CallerCounts::Row> callers) {
  using Row = CallerCounts::Row;
  const auto weight = [](const Row& row) {
    return row.counts[CallerCounts::kCalls] + row.counts[CallerCounts::kUnauthenticated];
  };
  std::stable_sort(callers.begin(), callers.end(), [&](const Row& a, const Row& b) { return weight(a) > weight(b); });
  Json json = Json::array();
  for (const Row& row : callers) {
    if (weight(row) == 0 || json.size() == kMaxCallers) break;
    json.push_back({{"kind", row.kind},
                    {"caller", row.name},
                    {"calls", row.counts[CallerCounts::kCalls]},
                    {"failures", row.counts[CallerCounts::kFailures]},
                    {"unauthenticated", row.counts[CallerCounts::kUnauthenticated]},
                    {"bytes", row.counts[CallerCounts::kBytes]}});
  }
  return json;
}

Json HistoryJson(const std::vector<HistorySample>& history) {
  Json json = {{"seconds", Observer::kHistorySeconds}, {"calls", Json::array()}, {"errors", Json::array()}};
  for (const HistorySample& sample : history) {
    json["calls"].push_back(sample.calls);
    json["errors"].push_back(sample.errors);
  }
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    Json p50 = Json::array();
    Json p99 = Json::array();
    for (const HistorySample& sample : history) {
      p50.push_back(sample.stages[stage].p50_us);
      p99.push_back(sample.stages[stage].p99_us);
    }
    json["stages"][std::string(kStageNames[stage])] = {{"p50_us", std::move(p50)}, {"p99_us", std::move(p99)}};
  }
  return json;
}

}  // namespace

std::string StatusJson(const Observer& observer, const Snapshot& snapshot, const Nvml* nvml) {
  const CallMetrics& metrics = observer.metrics();
  Json json = {{"version", REDUCED_VERSION},
               {"serving", snapshot.serving},
               {"uptime_s", absl::ToDoubleSeconds(absl::Now() - snapshot.started)},
               {"calls", metrics.calls()},
               {"errors_total", metrics.errors()},
               {"unauthenticated", snapshot.refused_calls},
               {"refused_connections", Json::object()},
               {"dropped_log_lines", snapshot.dropped_log_lines},
               {"callers", CallersJson(metrics.callers())},
               {"devices", Json::array()},
               {"no_cuda_reason", snapshot.no_cuda_reason},
               {"left_out", Json::array()},
               {"usage", Json::array()},
               {"history", HistoryJson(observer.history())},
               {"errors", Json::array()},
               {"arrays_total", snapshot.arrays.size()},
               {"arrays", Json::array()},
               {"flags", Json::array()}};
  for (const DeviceInfo& device : snapshot.devices) json["devices"].push_back(DeviceJson(device, nvml));
  for (const LeftOutDevice& device : snapshot.left_out) {
    json["left_out"].push_back({{"name", device.name}, {"reason", device.reason}});
  }
  for (const ResourceUsage& usage : snapshot.usage) {
    json["usage"].push_back({{"name", usage.name}, {"used", usage.used}, {"limit", usage.limit}});
  }
  for (const auto& [reason, count] : snapshot.refused_connections) {
    json["refused_connections"][std::string(reason)] = count;
  }
  for (const CallError& error : observer.errors()) {
    json["errors"].push_back({{"time", absl::FormatTime(absl::RFC3339_sec, error.when, absl::UTCTimeZone())},
                              {"rpc", error.rpc},
                              {"peer", error.peer},
                              {"status", absl::StatusCodeToString(error.code)},
                              {"message", error.message},
                              {"request_id", error.request_id},
                              {"count", error.count}});
  }
  for (std::size_t i = 0; i < std::min(snapshot.arrays.size(), kMaxArrays); ++i) {
    const ArraySummary& array = snapshot.arrays[i];
    json["arrays"].push_back({{"id", array.id_prefix + "..."},
                              {"owner", array.owner},
                              {"device", array.device},
                              {"dtype", array.dtype},
                              {"shape", array.shape},
                              {"bytes", array.bytes}});
  }
  for (const FlagValue& flag : snapshot.flags) json["flags"].push_back({flag.name, flag.value});
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace reduced::server
