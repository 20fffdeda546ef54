#include "server/observe/gauges.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
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

// One of each device.
struct DeviceGauge {
  std::string_view name;
  std::string_view help;
  double (*read)(const DeviceInfo&);
};
constexpr DeviceGauge kDeviceGauges[] = {
    {"reduced_lanes", "Reductions that can run at once.", [](const DeviceInfo& d) { return double(d.lanes); }},
    {"reduced_lanes_busy", "Reductions that run.", [](const DeviceInfo& d) { return double(d.lanes_busy); }},
    {"reduced_queue_length", "Reductions that wait for a lane.",
     [](const DeviceInfo& d) { return double(d.queue_length); }},
    {"reduced_queue_limit", "Reductions that can wait for a lane.",
     [](const DeviceInfo& d) { return double(d.queue_limit); }},
    {"reduced_array_bytes", "Memory of the arrays that are kept.",
     [](const DeviceInfo& d) { return static_cast<double>(d.array_bytes); }},
    {"reduced_array_limit_bytes", "Memory that arrays may be kept in.",
     [](const DeviceInfo& d) { return static_cast<double>(d.array_bytes_limit); }},
};

void CollectGpus(const std::vector<DeviceInfo>& devices, const Nvml& nvml, std::vector<MetricFamily>* families) {
  Gauge used("reduced_gpu_memory_used_bytes", "Memory of the GPU that is in use, by every process.");
  Gauge total("reduced_gpu_memory_bytes", "Memory of the GPU.");
  Gauge busy("reduced_gpu_utilisation_ratio", "Part of the last moment in which a kernel ran on the GPU, 0 to 1.");
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

// Of no RPC: such a call ends before there is a service that could count it.
MetricFamily Unauthenticated(const Backend& backend) {
  MetricFamily family;
  family.name = "reduced_unauthenticated_total";
  family.help = "Calls refused because they had no token that the server knows.";
  family.type = prometheus::MetricType::Counter;
  ClientMetric& metric = family.metric.emplace_back();
  if (backend.security != nullptr) metric.counter.value = static_cast<double>(backend.security->refused());
  return family;
}

}  // namespace

std::vector<MetricFamily> CollectGauges(const Backend& backend, const Nvml* nvml) {
  std::vector<DeviceInfo> devices;
  for (const auto& engine : backend.engines.all()) devices.push_back(engine->info());

  std::vector<MetricFamily> families;
  families.push_back(Gauge("reduced_build_info", "1; the labels say which build it is.")
                         .Set(1, {{"version", REDUCED_VERSION}, {"compiler", __VERSION__}})
                         .Take());
  families.push_back(Gauge("reduced_start_time_seconds", "When the server started, in seconds since 1970.")
                         .Set(absl::ToDoubleSeconds(backend.started - absl::UnixEpoch()))
                         .Take());
  Gauge info("reduced_device_info", "1; the labels say which device it is.");
  for (const DeviceInfo& device : devices) info.Set(1, {{"device", device.name}, {"model", device.model}});
  families.push_back(info.Take());
  for (const DeviceGauge& row : kDeviceGauges) {
    Gauge gauge(row.name, row.help);
    for (const DeviceInfo& device : devices) gauge.Set(row.read(device), {{"device", device.name}});
    families.push_back(gauge.Take());
  }
  families.push_back(Gauge("reduced_streams", "Arrays that stream in.").Set(backend.streams.load()).Take());
  families.push_back(
      Gauge("reduced_streams_limit", "Arrays that may stream in at once.").Set(backend.limits.max_streams).Take());
  families.push_back(Gauge("reduced_sessions", "Sessions that are open.").Set(backend.sessions.load()).Take());
  families.push_back(
      Gauge("reduced_sessions_limit", "Sessions that may be open at once.").Set(backend.limits.max_sessions).Take());
  families.push_back(Gauge("reduced_arrays", "Arrays that are kept.").Set(backend.arrays.count()).Take());
  families.push_back(
      Gauge("reduced_arrays_limit", "Arrays that may be kept at once.").Set(backend.limits.max_arrays).Take());
  families.push_back(
      Gauge("reduced_regions", "Regions of shared memory that are open.").Set(backend.regions.count()).Take());
  families.push_back(Unauthenticated(backend));
  if (nvml != nullptr) CollectGpus(devices, *nvml, &families);
  return families;
}

}  // namespace reduced::server
