#include "server/observe/gauges.h"

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

// A refused call ends before a service sees it, so no RPC counts it.
MetricFamily Unauthenticated(const Snapshot& snapshot) {
  MetricFamily family;
  family.name = "reduced_unauthenticated_total";
  family.help = "Calls refused because they had no valid token.";
  family.type = prometheus::MetricType::Counter;
  family.metric.emplace_back().counter.value = static_cast<double>(snapshot.refused_calls);
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
  for (const ResourceUsage& usage : snapshot.usage) CollectUsage(usage, &families);
  families.push_back(Unauthenticated(snapshot));
  if (nvml != nullptr) CollectGpus(snapshot.devices, *nvml, &families);
  return families;
}

}  // namespace reduced::server
