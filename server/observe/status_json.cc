#include "server/observe/status_json.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/algebra/dtype.h"
#include "nlohmann/json.hpp"
#include "server/config/configuration.h"

namespace reduced::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxArrays = 100;
constexpr std::size_t kIdCharacters = 6;

Json DeviceJson(const DeviceInfo& device, const Nvml* nvml) {
  Json json = {{"name", device.name},
               {"model", device.model},
               {"lanes", device.lanes},
               {"lanes_busy", device.lanes_busy},
               {"queue_limit", device.queue_limit},
               {"queue_length", device.queue_length},
               {"array_bytes", device.array_bytes},
               {"array_bytes_limit", device.array_bytes_limit}};
  if (nvml == nullptr || device.uuid.empty()) return json;
  const absl::StatusOr<GpuUsage> usage = nvml->Read(device.uuid);
  if (!usage.ok()) return json;
  json["gpu"] = {{"memory_used_bytes", usage->memory_used_bytes}, {"memory_bytes", usage->memory_total_bytes}};
  if (usage->utilisation.has_value()) json["gpu"]["utilisation"] = *usage->utilisation;
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

Json ArrayJson(const v1::ArrayInfo& array) {
  const auto dtype = DTypeFromNumber(array.array().dtype());
  Json json = {
      {"id", array.id().substr(0, kIdCharacters) + "..."},     {"owner", array.owner()}, {"device", array.device()},
      {"dtype", dtype.has_value() ? RowOf(*dtype).name : "?"}, {"shape", Json::array()}, {"bytes", array.bytes()}};
  for (const std::int64_t extent : array.array().shape()) json["shape"].push_back(extent);
  return json;
}

}  // namespace

std::string StatusJson(const Backend& backend, const Nvml* nvml) {
  const auto usage = [](const char* name, std::int64_t used, std::int64_t limit) {
    return Json{{"name", name}, {"used", used}, {"limit", limit}};
  };
  const CallMetrics& metrics = backend.observer.metrics();
  Json json = {{"version", REDUCED_VERSION},
               {"uptime_s", absl::ToDoubleSeconds(absl::Now() - backend.started)},
               {"calls", metrics.calls()},
               {"errors_total", metrics.errors()},
               {"devices", Json::array()},
               {"no_cuda_reason", backend.engines.no_cuda_reason()},
               {"left_out", Json::array()},
               {"usage",
                {usage("streams", backend.streams.load(), backend.limits.max_streams),
                 usage("sessions", backend.sessions.load(), backend.limits.max_sessions),
                 usage("arrays", backend.arrays.count(), backend.limits.max_arrays),
                 usage("regions", backend.regions.count(), 0)}},
               {"history", HistoryJson(backend.observer.history())},
               {"errors", Json::array()},
               {"arrays", Json::array()},
               {"flags", Json::array()}};
  for (const FlagValue& flag : backend.flags) {
    json["flags"].push_back({flag.name, ToldValue(flag)});
  }
  for (const LeftOutDevice& device : backend.engines.left_out()) {
    json["left_out"].push_back({{"name", device.name}, {"reason", device.reason}});
  }
  for (const auto& engine : backend.engines.all()) json["devices"].push_back(DeviceJson(engine->info(), nvml));
  for (const CallError& error : backend.observer.errors()) {
    json["errors"].push_back({{"time", absl::FormatTime(absl::RFC3339_sec, error.when, absl::UTCTimeZone())},
                              {"rpc", NameOf(error.rpc)},
                              {"status", absl::StatusCodeToString(error.code)},
                              {"message", error.message},
                              {"request_id", error.request_id}});
  }
  const std::vector<v1::ArrayInfo> arrays = backend.arrays.ListAll();
  json["arrays_total"] = arrays.size();
  for (std::size_t i = 0; i < std::min(arrays.size(), kMaxArrays); ++i) json["arrays"].push_back(ArrayJson(arrays[i]));
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace reduced::server
