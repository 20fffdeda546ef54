#include "server/observe/gauges.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace reduced::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

class Gauge {
 public:
  Gauge(std::string_view name, std::string_view help) {
    family_.name = std::string(name);
    family_.help = std::string(help);
    family_.type = prometheus::MetricType::Gauge;
  }

  template <class Number>
  Gauge& Set(Number value, std::vector<ClientMetric::Label> labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = static_cast<double>(value);
    family_.metric.push_back(std::move(metric));
    return *this;
  }
  MetricFamily Take() { return std::move(family_); }
  bool empty() const { return family_.metric.empty(); }

 private:
  MetricFamily family_;
};

// A gauge with one value for each device.
struct DeviceGauge {
  std::string_view name;
  std::string_view help;
  double (*read)(const DeviceInfo&);
};
constexpr DeviceGauge kDeviceGauges[] = {
    {"reduced_lanes", "Reductions that can run at once.", [](const DeviceInfo& d) { return double(d.lanes); }},
    {"reduced_lanes_busy", "Reductions that are running.", [](const DeviceInfo& d) { return double(d.lanes_busy); }},
    {"reduced_queue_length", "Reductions that wait for a lane.",
     [](const DeviceInfo& d) { return double(d.queue_length); }},
    {"reduced_queue_limit", "Reductions that can wait for a lane.",
     [](const DeviceInfo& d) { return double(d.queue_limit); }},
    {"reduced_array_bytes", "Memory of the resident arrays, in bytes.",
     [](const DeviceInfo& d) { return static_cast<double>(d.array_bytes); }},
    {"reduced_array_limit_bytes", "Memory that resident arrays may take, in bytes.",
     [](const DeviceInfo& d) { return static_cast<double>(d.array_bytes_limit); }},
};

struct DeviceCounter {
  std::string_view name;
  std::string_view help;
  std::int64_t DeviceInfo::*value;
};
constexpr DeviceCounter kDeviceCounters[] = {
    {"reduced_device_reductions_total", "Reductions that the device has answered.", &DeviceInfo::reductions},
    {"reduced_device_bytes_total", "Bytes of the arrays that the device has reduced.", &DeviceInfo::reduced_bytes},
};

MetricFamily CollectDevices(const DeviceCounter& row, const std::vector<DeviceInfo>& devices) {
  MetricFamily family;
  family.name = std::string(row.name);
  family.help = std::string(row.help);
  family.type = prometheus::MetricType::Counter;
  for (const DeviceInfo& device : devices) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"device", device.name}};
    metric.counter.value = static_cast<double>(device.*row.value);
  }
  return family;
}

void CollectGpus(const std::vector<DeviceInfo>& devices, const Nvml& nvml, std::vector<MetricFamily>* families) {
  Gauge used("reduced_gpu_memory_used_bytes", "Memory of the GPU in use by all processes, in bytes.");
  Gauge total("reduced_gpu_memory_bytes", "Memory of the GPU, in bytes.");
  Gauge busy("reduced_gpu_utilisation_ratio",
             "Fraction of the last sampling period in which a kernel ran on the GPU, 0 to 1.");
  for (const DeviceInfo& device : devices) {
    if (device.uuid.empty()) continue;
    const absl::StatusOr<GpuUsage> usage = nvml.Read(device.uuid);
    if (!usage.ok()) continue;
    used.Set(usage->memory_used_bytes, {{"device", device.name}});
    total.Set(usage->memory_total_bytes, {{"device", device.name}});
    if (usage->utilisation.has_value()) busy.Set(*usage->utilisation, {{"device", device.name}});
  }
  for (Gauge* const gauge : {&used, &total, &busy}) {
    if (!gauge->empty()) families->push_back(gauge->Take());
  }
}

MetricFamily RefusedConnections(const Snapshot& snapshot) {
  MetricFamily family;
  family.name = "reduced_connections_refused_total";
  family.help = "Connections closed at once, by reason.";
  family.type = prometheus::MetricType::Counter;
  for (const auto& [reason, count] : snapshot.refused_connections) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"reason", std::string(reason)}};
    metric.counter.value = static_cast<double>(count);
  }
  return family;
}

struct ServerCounter {
  std::string_view name;
  std::string_view help;
  std::uint64_t Snapshot::*value;
};
constexpr ServerCounter kServerCounters[] = {
    // A refused call ends before a service sees it, so no RPC counts it.
    {"reduced_unauthenticated_total", "Calls refused because they had no valid token.", &Snapshot::refused_calls},
    {"reduced_log_dropped_lines_total", "Lines of the log dropped because standard error did not take them.",
     &Snapshot::dropped_log_lines},
};

MetricFamily CollectCounter(const ServerCounter& row, const Snapshot& snapshot) {
  MetricFamily family;
  family.name = std::string(row.name);
  family.help = std::string(row.help);
  family.type = prometheus::MetricType::Counter;
  family.metric.emplace_back().counter.value = static_cast<double>(snapshot.*row.value);
  return family;
}

void CollectUsage(const ResourceUsage& usage, std::vector<MetricFamily>* families) {
  const std::string name = absl::StrCat("reduced_", std::string(usage.name));
  families->push_back(Gauge(name, usage.help).Set(usage.used).Take());
  if (usage.limit == 0) return;
  families->push_back(Gauge(name + "_limit", absl::StrCat("Limit of ", name, ".")).Set(usage.limit).Take());
}

}  // namespace

std::vector<MetricFamily> CollectGauges(const Snapshot& snapshot, const Nvml* nvml) {
  std::vector<MetricFamily> families;
  families.push_back(Gauge("reduced_build_info", "1, with the build in its labels.")
                         .Set(1, {{"version", REDUCED_VERSION}, {"compiler", __VERSION__}})
                         .Take());
  families.push_back(Gauge("reduced_start_time_seconds", "Time when the server started, in seconds since 1970.")
                         .Set(absl::ToDoubleSeconds(snapshot.started - absl::UnixEpoch()))
                         .Take());
  Gauge info("reduced_device_info", "1, with the device in its labels.");
  for (const DeviceInfo& device : snapshot.devices) info.Set(1, {{"device", device.name}, {"model", device.model}});
  families.push_back(info.Take());
  for (const DeviceGauge& row : kDeviceGauges) {
    Gauge gauge(row.name, row.help);
    for (const DeviceInfo& device : snapshot.devices) gauge.Set(row.read(device), {{"device", device.name}});
    families.push_back(gauge.Take());
  }
  for (const DeviceCounter& row : kDeviceCounters) families.push_back(CollectDevices(row, snapshot.devices));
  families.push_back(Gauge("reduced_devices_left_out", "GPUs that could not be used when the server started.")
                         .Set(snapshot.left_out.size())
                         .Take());
  families.push_back(Gauge("reduced_serving", "1 while health says SERVING, 0 while it says NOT_SERVING.")
                         .Set(snapshot.serving)
                         .Take());
  families.push_back(
      Gauge("reduced_draining", "1 once the server was told to stop, else 0.").Set(snapshot.draining).Take());
  if (snapshot.certificate_expiry.has_value()) {
    families.push_back(
        Gauge("reduced_certificate_expiry_time_seconds", "Time when --tls_cert expires, in seconds since 1970.")
            .Set(absl::ToDoubleSeconds(*snapshot.certificate_expiry - absl::UnixEpoch()))
            .Take());
  }
  if (!snapshot.failed_reloads.empty()) {
    Gauge failed("reduced_reload_failed",
                 "1 if the files could not be read again, so that the server uses what it read before.");
    for (const auto& [files, is_failed] : snapshot.failed_reloads) {
      failed.Set(is_failed, {{"files", std::string(files)}});
    }
    families.push_back(failed.Take());
  }
  for (const ResourceUsage& usage : snapshot.usage) CollectUsage(usage, &families);
  families.push_back(RefusedConnections(snapshot));
  for (const ServerCounter& row : kServerCounters) families.push_back(CollectCounter(row, snapshot));
  if (nvml != nullptr) CollectGpus(snapshot.devices, *nvml, &families);
  return families;
}

}  // namespace reduced::server
