// reducectl doctor: what the facts mean.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/commands/health.h"
#include "client/reducectl/doctor/doctor.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

constexpr std::int64_t kSmallShmBytes = std::int64_t{64} << 20;  // what containers have by default
constexpr std::int64_t kFewFiles = 4096;
constexpr std::int64_t kLittleMemoryBytes = std::int64_t{512} << 20;
constexpr double kFewPercent = 0.1;  // of a GPU's memory
constexpr int kOldestCuda = 12000;   // that a server with CUDA runs on
constexpr std::int64_t kFirstYear = 2025;

struct InitError {
  int code;
  absl::string_view name, remedy;
};
constexpr InitError kInitErrors[] = {
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "free memory of the GPU: see nvidia-smi"},
    {34, "CUDA_ERROR_STUB_LIBRARY",
     "libcuda.so.1 is the toolkit's stub: take its folder out of LD_LIBRARY_PATH, and install the driver"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process has the GPU for itself: see nvidia-smi -c"},
    {100, "CUDA_ERROR_NO_DEVICE",
     "no GPU is visible: see CUDA_VISIBLE_DEVICES; give a container one, as by --gpus all or nvidia.com/gpu"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "see CUDA_VISIBLE_DEVICES"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "start the fabric manager: systemctl start nvidia-fabricmanager"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the kernel module and libcuda.so.1 are of different drivers: restart the machine, or reload the module"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "this GPU takes no compatibility package: install a newer driver, or take the package out"},
    {999, "CUDA_ERROR_UNKNOWN", "load nvidia_uvm (modprobe nvidia_uvm) and see dmesg for errors of NVRM"},
};

Finding Ok(absl::string_view check, std::string text) { return {std::string(check), Level::kOk, std::move(text), ""}; }
Finding Warn(absl::string_view check, std::string text, absl::string_view remedy) {
  return {std::string(check), Level::kWarning, std::move(text), std::string(remedy)};
}
Finding Fail(absl::string_view check, std::string text, absl::string_view remedy) {
  return {std::string(check), Level::kFailure, std::move(text), std::string(remedy)};
}

Finding CheckDriver(const GpuStack& gpu) {
  constexpr absl::string_view kCheck = "driver";
  const bool any_sign = gpu.on_bus || gpu.device_files || !gpu.kernel_module.empty();
  if (!any_sign && !gpu.no_library.empty()) {
    return Ok(kCheck, "no GPU of NVIDIA is visible, and no driver: arrays are reduced on the CPU");
  }
  if (gpu.kernel_module.empty() && !gpu.device_files && gpu.on_bus) {
    return Fail(kCheck, "there is a GPU of NVIDIA, but its driver is not loaded",
                "install the driver (Debian: nvidia-driver) and load it: modprobe nvidia nvidia_uvm");
  }
  if (!gpu.no_library.empty()) {
    return Fail(kCheck, absl::StrCat("libcuda.so.1 can't be loaded: ", gpu.no_library),
                "install the driver's user part (Debian: libcuda1), or run the container with NVIDIA's runtime");
  }
  if (!any_sign) {
    return Ok(kCheck, "libcuda.so.1 is there, but no GPU of NVIDIA is visible: arrays are reduced on the CPU");
  }
  if (gpu.device_files && !gpu.device_files_usable) {
    return Fail(kCheck, "/dev/nvidiactl can't be opened for reading and writing",
                "give this user access to /dev/nvidia*, as by its group");
  }
  if (gpu.init_error != 0) {
    const auto* const known = std::find_if(std::begin(kInitErrors), std::end(kInitErrors),
                                           [&](const InitError& error) { return error.code == gpu.init_error; });
    const bool is_known = known != std::end(kInitErrors);
    return Fail(kCheck, absl::StrCat("CUDA can't be used: ", is_known ? known->name : "error", " ", gpu.init_error),
                is_known ? known->remedy : "see dmesg for errors of NVRM, and nvidia-smi");
  }
  const std::string text =
      absl::StrCat(gpu.kernel_module.empty() ? "" : absl::StrCat("version ", gpu.kernel_module, ", "), "for CUDA ",
                   gpu.driver_cuda_version / 1000, ".", gpu.driver_cuda_version % 1000 / 10, ", ", gpu.devices,
                   gpu.devices == 1 ? " device" : " devices");
  if (gpu.driver_cuda_version < kOldestCuda) return Warn(kCheck, text, "install a driver for CUDA 12 or newer");
  return Ok(kCheck, text);
}

// Memory that the server itself takes is no reason to worry.
Finding CheckGpu(const GpuFacts& gpu, std::size_t index, bool served) {
  const std::string check = absl::StrCat("gpu ", index);
  if (gpu.uncorrected_errors.value_or(0) > 0) {
    return Fail(check,
                absl::StrCat(gpu.name, ": ", *gpu.uncorrected_errors, " errors of its memory that can't be corrected"),
                "reset it (nvidia-smi --gpu-reset) with nothing running on it; if they come back, have it replaced");
  }
  if (gpu.exclusive) {
    return Warn(check, absl::StrCat(gpu.name, ": one process at a time may use it, or none"),
                "for memory shared between processes: nvidia-smi -c DEFAULT");
  }
  if (!gpu.memory_bytes.has_value() || !gpu.free_bytes.has_value()) {
    return Warn(check, absl::StrCat(gpu.name, ": it doesn't tell its memory"), "see nvidia-smi");
  }
  const std::string text =
      absl::StrCat(gpu.name, ": ", FormatBytes(*gpu.free_bytes), " of ", FormatBytes(*gpu.memory_bytes), " free");
  const bool little = static_cast<double>(*gpu.free_bytes) < kFewPercent * static_cast<double>(*gpu.memory_bytes);
  if (little && !served) return Warn(check, text, "see with nvidia-smi who takes it");
  return Ok(check, text);
}

std::string Where(const SocketFacts& socket) {
  switch (socket.error) {
    case EACCES:
    case EPERM:
      return "give this user write access to the socket and access to its folders, or join the server's group";
    case ENOENT:
      return "see the server's --listen; in a container, mount the folder that the socket is in";
    case ECONNREFUSED:
      return "nobody listens there any more: start the server";
    default:
      return "see the server's --listen";
  }
}

Finding CheckNamespaces(const ServerFacts& server) {
  constexpr absl::string_view kCheck = "namespaces";
  const SocketFacts& socket = server.region_socket.has_value() ? *server.region_socket : *server.socket;
  const bool gpu = std::any_of(server.info.devices.begin(), server.info.devices.end(),
                               [](const DeviceInfo& device) { return device.engine == "cuda"; });
  if (socket.same_ipc_namespace.value_or(true) && socket.same_pid_namespace.value_or(true)) {
    if (socket.same_ipc_namespace.has_value()) return Ok(kCheck, "IPC and PID: those of the server");
    return Ok(kCheck, "those of the server can't be seen from here: memory by descriptor needs none in common");
  }
  const std::string text =
      absl::StrCat("not those of the server (", socket.same_ipc_namespace.value_or(true) ? "" : "IPC ",
                   socket.same_pid_namespace.value_or(true) ? "" : "PID ", "differ): memory by descriptor is fine");
  if (!gpu) return Ok(kCheck, text);
  return Warn(kCheck, absl::StrCat(text, ", memory of a GPU can't be shared"),
              "for CUDA IPC run both with --ipc=host --pid=host, or with --ipc=container:NAME --pid=container:NAME");
}

}  // namespace

std::vector<Finding> CheckGpuStack(const GpuStack& gpu, const ServerFacts& server) {
  std::vector<Finding> findings = {CheckDriver(gpu)};
  const bool served = std::any_of(server.info.devices.begin(), server.info.devices.end(),
                                  [](const DeviceInfo& device) { return device.engine == "cuda"; });
  for (std::size_t i = 0; i < gpu.gpus.size(); ++i) findings.push_back(CheckGpu(gpu.gpus[i], i, served));
  if (gpu.devices > 0 && !gpu.no_nvml.empty()) {
    findings.push_back(Warn("nvml", absl::StrCat("NVML can't be used: ", gpu.no_nvml),
                            "install it (Debian: libnvidia-ml1) to see the memory and the errors of GPUs"));
  }
  return findings;
}

std::vector<Finding> CheckSystem(const SystemFacts& system) {
  std::vector<Finding> findings;
  if (!system.available_bytes.has_value() || !system.memory_bytes.has_value()) {
    findings.push_back(Warn("memory", "/proc/meminfo can't be read", "mount /proc"));
  } else {
    const std::string text =
        absl::StrCat(FormatBytes(*system.available_bytes), " of ", FormatBytes(*system.memory_bytes), " available",
                     system.cgroup_limit_bytes.has_value()
                         ? absl::StrCat(", ", FormatBytes(*system.cgroup_limit_bytes), " allowed to this control group")
                         : "");
    const std::int64_t room =
        std::min(*system.available_bytes, system.cgroup_limit_bytes.value_or(*system.available_bytes));
    findings.push_back(room >= kLittleMemoryBytes
                           ? Ok("memory", text)
                           : Warn("memory", text,
                                  "give it more, or lower --memory_quota_bytes, --cpu_array_bytes and "
                                  "--max_message_bytes"));
  }

  if (!system.shm_bytes.has_value()) {
    findings.push_back(
        Warn("shm", "/dev/shm is not there: POSIX shared memory can't be made (memfds can)", "mount a tmpfs there"));
  } else {
    const std::string text = absl::StrCat("/dev/shm: ", FormatBytes(*system.shm_free_bytes), " of ",
                                          FormatBytes(*system.shm_bytes), " free");
    findings.push_back(*system.shm_bytes > kSmallShmBytes
                           ? Ok("shm", text)
                           : Warn("shm", text,
                                  "for POSIX shared memory run the container with --shm-size=1g; memfds, "
                                  "which reducectl uses, need none of it"));
  }

  const std::string files = absl::StrCat(
      "open files: ", system.files_limit.has_value() ? absl::StrCat(*system.files_limit) : "unlimited", ", at most ",
      system.files_hard_limit.has_value() ? absl::StrCat(*system.files_hard_limit) : "unlimited");
  findings.push_back(system.files_hard_limit.value_or(kFewFiles) >= kFewFiles
                         ? Ok("limits", files)
                         : Warn("limits", files,
                                "a server takes one for each connection and region: raise the hard "
                                "limit (ulimit -Hn, LimitNOFILE=, --ulimit nofile=)"));
  if (system.locked_limit_bytes.has_value()) {
    findings.push_back(Ok("limits", absl::StrCat("locked memory: ", FormatBytes(*system.locked_limit_bytes),
                                                 " (CUDA's pinned memory doesn't count)")));
  } else {
    findings.push_back(Ok("limits", "locked memory: unlimited"));
  }

  const bool slow_clock =
      system.clock_source == "hpet" || system.clock_source == "acpi_pm" || system.clock_source == "jiffies";
  if (system.year < kFirstYear) {
    findings.push_back(Fail("clock", absl::StrCat("it is set to the year ", system.year),
                            "set it: certificates would not be valid, and logs useless"));
  } else if (slow_clock) {
    findings.push_back(Warn("clock", absl::StrCat("reading it is slow: its source is ", system.clock_source),
                            "boot with clocksource=tsc, if the machine's is reliable: small requests read it often"));
  } else if (system.clock_known && !system.clock_synchronized) {
    findings.push_back(Warn("clock", "nothing keeps it right", "run a time service, such as chrony"));
  } else {
    findings.push_back(Ok("clock", absl::StrCat(system.clock_known ? "kept right" : "can't be asked about", ", source ",
                                                system.clock_source.empty() ? "unknown" : system.clock_source)));
  }
  return findings;
}

std::vector<Finding> CheckServer(const ServerFacts& server) {
  std::vector<Finding> findings;
  if (server.socket.has_value()) {
    findings.push_back(
        server.socket->problem.empty()
            ? Ok("socket", absl::StrCat(server.socket->path, " can be connected to"))
            : Fail("socket", absl::StrCat(server.socket->path, ": ", server.socket->problem), Where(*server.socket)));
  }
  if (!server.reachable.ok()) {
    const std::string text(server.reachable.message());
    findings.push_back(server.named ? Fail("server", text, "start it with `reduced`, or name another with --server")
                                    : Warn("server", absl::StrCat(text, "; none was named"),
                                           "start one with `reduced`, or name one with --server or REDUCED_SERVER"));
    return findings;
  }
  const std::string text = absl::StrCat(server.address, ", version ", server.info.version, ", up ",
                                        absl::FormatDuration(absl::Trunc(server.info.uptime, absl::Seconds(1))));
  findings.push_back(server.info.version == server.version
                         ? Ok("server", text)
                         : Warn("server", absl::StrCat(text, "; reducectl has version ", server.version),
                                "install both from the same version"));
  if (!server.health.has_value()) {
    findings.push_back(Fail("health", server.no_health, "see the server's log"));
  } else if (*server.health == Health::kServing) {
    findings.push_back(Ok("health", TextOf(*server.health)));
  } else {
    findings.push_back(Fail("health", TextOf(*server.health),
                            "it is draining, or a device failed: see the server's log; it ends, have it restarted"));
  }
  std::vector<std::string> names;
  for (const DeviceInfo& device : server.info.devices) names.push_back(device.name);
  findings.push_back(
      Ok("engines", absl::StrCat(absl::StrJoin(names, ", "),
                                 server.info.no_cuda_reason.empty() ? "" : "; no CUDA: ", server.info.no_cuda_reason)));
  for (const LeftOutDevice& device : server.info.left_out) {
    findings.push_back(Warn("engines", absl::StrCat(device.name, " is left out: ", device.reason),
                            "see to it, then restart the server; --cuda_devices names the GPUs to use"));
  }
  if (server.region_socket.has_value()) {
    findings.push_back(server.region_socket->problem.empty()
                           ? Ok("regions", absl::StrCat(server.region_socket->path, " can be connected to"))
                           : Fail("regions",
                                  absl::StrCat(server.region_socket->path, ": ", server.region_socket->problem),
                                  Where(*server.region_socket)));
  } else if (server.info.region_socket.empty()) {
    findings.push_back(Warn("regions", "the server takes no shared memory",
                            "let it listen at a unix: address, too, or set --region_socket"));
  } else {
    findings.push_back(
        Ok("regions", absl::StrCat(server.info.region_socket,
                                   " on the server's machine; not tried, as the server was reached by TCP")));
  }
  if (server.socket.has_value() && server.socket->problem.empty()) findings.push_back(CheckNamespaces(server));
  return findings;
}

}  // namespace reduced::client
