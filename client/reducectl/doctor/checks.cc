// Checks the facts.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/doctor/doctor.h"
#include "client/reducectl/output/health.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

constexpr std::int64_t kSmallShmBytes = std::int64_t{64} << 20;  // the default of containers
constexpr std::int64_t kFewFiles = 4096;
constexpr std::int64_t kLittleMemoryBytes = std::int64_t{512} << 20;
constexpr double kFewPercent = 0.1;  // of a GPU's memory
constexpr int kOldestCuda = 12000;   // that a server with CUDA supports
constexpr std::int64_t kFirstYear = 2025;

struct InitError {
  int code;
  absl::string_view name, remedy;
};
constexpr InitError kInitErrors[] = {
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "free memory of the GPU: see nvidia-smi"},
    {34, "CUDA_ERROR_STUB_LIBRARY",
     "libcuda.so.1 is the toolkit's stub: remove its folder from LD_LIBRARY_PATH and install the driver"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process has exclusive access to the GPU: see nvidia-smi -c"},
    {100, "CUDA_ERROR_NO_DEVICE",
     "no GPU is visible: see CUDA_VISIBLE_DEVICES; start a container with --gpus all or a limit of nvidia.com/gpu"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "see CUDA_VISIBLE_DEVICES"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "start the fabric manager: systemctl start nvidia-fabricmanager"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the kernel module and libcuda.so.1 are of different drivers: restart the machine, or reload the module"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "this GPU doesn't support the compatibility package: install a newer driver or remove the package"},
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
    return Ok(kCheck, "no NVIDIA GPU and no driver found: arrays are reduced on the CPU");
  }
  if (gpu.kernel_module.empty() && !gpu.device_files && gpu.on_bus) {
    return Fail(kCheck, "there is an NVIDIA GPU, but its driver isn't loaded",
                "install the driver (Debian: nvidia-driver) and load it: modprobe nvidia nvidia_uvm");
  }
  if (!gpu.no_library.empty()) {
    return Fail(kCheck, absl::StrCat("libcuda.so.1 can't be loaded: ", gpu.no_library),
                "install the driver's libraries (Debian: libcuda1), or start the container with NVIDIA's runtime");
  }
  if (!any_sign) {
    return Ok(kCheck, "libcuda.so.1 is installed, but no NVIDIA GPU is visible: arrays are reduced on the CPU");
  }
  if (gpu.device_files && !gpu.device_files_usable) {
    return Fail(kCheck, "/dev/nvidiactl can't be opened for reading and writing",
                "give this user access to /dev/nvidia*, for example by its group");
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

// `served`: a server uses the GPU, so that it is normal that its memory is in use.
Finding CheckGpu(const GpuFacts& gpu, std::size_t index, bool served) {
  const std::string check = absl::StrCat("gpu ", index);
  if (gpu.uncorrected_errors.value_or(0) > 0) {
    return Fail(
        check, absl::StrCat(gpu.name, ": ", *gpu.uncorrected_errors, " errors of its memory that were not corrected"),
        "stop all programs that use it and reset it (nvidia-smi --gpu-reset); replace it if the errors come back");
  }
  if (gpu.exclusive) {
    return Warn(check, absl::StrCat(gpu.name, ": at most one process may use it at a time"),
                "to share its memory between processes: nvidia-smi -c DEFAULT");
  }
  if (!gpu.memory_bytes.has_value() || !gpu.free_bytes.has_value()) {
    return Warn(check, absl::StrCat(gpu.name, ": NVML doesn't report its memory"), "see nvidia-smi");
  }
  const std::string text =
      absl::StrCat(gpu.name, ": ", FormatBytes(*gpu.free_bytes), " of ", FormatBytes(*gpu.memory_bytes), " free");
  const bool little = static_cast<double>(*gpu.free_bytes) < kFewPercent * static_cast<double>(*gpu.memory_bytes);
  if (little && !served) return Warn(check, text, "see the processes that use it in nvidia-smi");
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
      return "no process listens there: start the server";
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
    if (socket.same_ipc_namespace.has_value()) return Ok(kCheck, "IPC and PID: the same as the server's");
    return Ok(kCheck, "those of the server are unknown; sharing memory by descriptor doesn't depend on them");
  }
  const std::string text =
      absl::StrCat("not the same as the server's (", socket.same_ipc_namespace.value_or(true) ? "" : "IPC ",
                   socket.same_pid_namespace.value_or(true) ? "" : "PID ", "differ): host memory can be shared");
  if (!gpu) return Ok(kCheck, text);
  return Warn(kCheck, absl::StrCat(text, ", but not memory of cudaMalloc, nor an event of a GPU"),
              "for CUDA IPC start both with --ipc=host --pid=host, or with --ipc=container:NAME --pid=container:NAME");
}

}  // namespace

std::vector<Finding> CheckGpuStack(const GpuStack& gpu, const ServerFacts& server) {
  std::vector<Finding> findings = {CheckDriver(gpu)};
  const bool served = std::any_of(server.info.devices.begin(), server.info.devices.end(),
                                  [](const DeviceInfo& device) { return device.engine == "cuda"; });
  for (std::size_t i = 0; i < gpu.gpus.size(); ++i) findings.push_back(CheckGpu(gpu.gpus[i], i, served));
  if (gpu.devices > 0 && !gpu.no_nvml.empty()) {
    findings.push_back(Warn("nvml", absl::StrCat("NVML can't be used: ", gpu.no_nvml),
                            "install NVML (Debian: libnvidia-ml1) to see the memory and the errors of GPUs"));
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
                         ? absl::StrCat(", ", FormatBytes(*system.cgroup_limit_bytes), " allowed by the control group")
                         : "");
    const std::int64_t room =
        std::min(*system.available_bytes, system.cgroup_limit_bytes.value_or(*system.available_bytes));
    findings.push_back(
        room >= kLittleMemoryBytes
            ? Ok("memory", text)
            : Warn("memory", text,
                   "give the machine or container more memory, or lower --memory_quota_bytes, --cpu_array_bytes and "
                   "--max_message_bytes"));
  }

  if (!system.shm_bytes.has_value()) {
    findings.push_back(
        Warn("shm", "/dev/shm doesn't exist: there is no POSIX shared memory, only memfds", "mount a tmpfs there"));
  } else {
    const std::string text = absl::StrCat("/dev/shm: ", FormatBytes(*system.shm_free_bytes), " of ",
                                          FormatBytes(*system.shm_bytes), " free");
    findings.push_back(*system.shm_bytes > kSmallShmBytes
                           ? Ok("shm", text)
                           : Warn("shm", text,
                                  "for POSIX shared memory start the container with --shm-size=1g; memfds, "
                                  "which reducectl uses, don't need it"));
  }

  const std::string files = absl::StrCat(
      "open files: ", system.files_limit.has_value() ? absl::StrCat(*system.files_limit) : "unlimited", ", at most ",
      system.files_hard_limit.has_value() ? absl::StrCat(*system.files_hard_limit) : "unlimited");
  findings.push_back(system.files_hard_limit.value_or(kFewFiles) >= kFewFiles
                         ? Ok("limits", files)
                         : Warn("limits", files,
                                "a server needs one for each connection and region: raise the hard "
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
    findings.push_back(
        Fail("clock", absl::StrCat("it is in the year ", system.year), "set it: certificates depend on it"));
  } else if (slow_clock) {
    findings.push_back(
        Warn("clock", absl::StrCat("reading it is slow: the clock source is ", system.clock_source),
             "boot with clocksource=tsc if the machine's TSC is reliable: small requests read the clock often"));
  } else if (system.clock_known && !system.clock_synchronized) {
    findings.push_back(Warn("clock", "it isn't synchronized", "run a time service, such as chrony"));
  } else {
    findings.push_back(
        Ok("clock", absl::StrCat(system.clock_known ? "synchronized" : "synchronization unknown", ", source ",
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
    findings.push_back(
        Fail("server", server.named ? text : absl::StrCat(text, ", the default address"), kNoServerAdvice));
    return findings;
  }
  const std::string text =
      absl::StrCat(server.address, ", version ", server.info.version, ", up ", FormatSeconds(server.info.uptime));
  findings.push_back(server.info.version == server.version
                         ? Ok("server", text)
                         : Warn("server", absl::StrCat(text, "; the version of reducectl is ", server.version),
                                "install the same version of both"));
  if (!server.health.has_value()) {
    findings.push_back(Fail("health", server.no_health, "see the server's log"));
  } else if (*server.health == Health::kServing) {
    findings.push_back(Ok("health", TextOf(*server.health)));
  } else {
    findings.push_back(
        Fail("health", TextOf(*server.health),
             "it is draining, or a device failed: see the server's log; it exits and must be restarted"));
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
    findings.push_back(Warn("regions", "the server has no region socket: memory can't be shared with it",
                            "add a unix: address to its --listen, or set --region_socket"));
  } else {
    findings.push_back(
        Ok("regions", absl::StrCat(server.info.region_socket,
                                   " on the server's machine; not tried, because the server was reached over TCP")));
  }
  if (server.socket.has_value() && server.socket->problem.empty()) findings.push_back(CheckNamespaces(server));
  return findings;
}

std::vector<Finding> Examine(const Facts& facts) {
  std::vector<Finding> findings = CheckGpuStack(facts.gpu, facts.server);
  for (std::vector<Finding>& more : std::vector{CheckSystem(facts.system), CheckServer(facts.server)}) {
    findings.insert(findings.end(), more.begin(), more.end());
  }
  return findings;
}

}  // namespace reduced::client
