// The diagnosis of `reducectl doctor`: facts about this machine and the server, and checks of them. The checks use
// nothing but the facts.
#ifndef REDUCED_CLIENT_REDUCECTL_DOCTOR_DOCTOR_H_
#define REDUCED_CLIENT_REDUCECTL_DOCTOR_DOCTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/reducectl/command_line/client.h"
#include "kernels/system/nvml.h"
#include "reduced/types.h"

namespace reduced::client {

struct GpuStack {
  bool on_bus = false;          // an NVIDIA GPU is visible on the PCI bus
  std::string kernel_module{};  // version; empty: not loaded
  bool device_files = false;    // /dev/nvidiactl exists
  bool device_files_usable = false;
  std::string no_library{};     // why libcuda.so.1 can't be loaded; empty: it is
  int init_error = 0;           // of cuInit, a CUresult; 0: none
  int driver_cuda_version = 0;  // of cuDriverGetVersion: 13000
  int devices = 0;
  std::string no_nvml{};  // why NVML can't be used; empty: it can
  std::vector<GpuFacts> gpus{};
};

struct SystemFacts {
  std::optional<std::int64_t> memory_bytes{}, available_bytes{};
  std::optional<std::int64_t> cgroup_limit_bytes{};
  std::optional<std::int64_t> shm_bytes{}, shm_free_bytes{};  // of /dev/shm; absent: it doesn't exist
  std::optional<std::int64_t> files_limit{}, files_hard_limit{};
  std::optional<std::int64_t> locked_limit_bytes{};  // absent: unlimited
  bool clock_synchronized = false;
  bool clock_known = false;  // the system reports whether it is synchronized
  std::int64_t year = 0;
  std::string clock_source{};
};

// A Unix socket as this process sees it.
struct SocketFacts {
  std::string path{};
  std::string problem{};  // why this process can't connect to it; empty: it can
  int error = 0;          // errno
  // Whether the server's process has the same namespaces as this one. Absent: unknown.
  std::optional<bool> same_ipc_namespace{}, same_pid_namespace{};
};

struct ServerFacts {
  std::string address{};
  bool named = false;        // on the command line or in the environment
  std::string version{};     // of reducectl
  absl::Status reachable{};  // of GetServerInfo
  ServerInfo info{};         // if that is OK
  std::optional<Health> health{};
  std::string no_health{};                     // why `health` is absent
  std::optional<SocketFacts> socket{};         // of a unix: address
  std::optional<SocketFacts> region_socket{};  // if the server is on this machine and has one
};

struct Facts {
  GpuStack gpu{};
  SystemFacts system{};
  ServerFacts server{};
};

enum class Level { kOk, kWarning, kFailure };

struct Finding {
  std::string check{};  // "driver"
  Level level = Level::kOk;
  std::string text{};
  std::string remedy{};  // what to do about it; may be empty
};

GpuStack GatherGpuStack();
SystemFacts GatherSystem();
ServerFacts GatherServer(const CommonOptions& common, Client& client);

std::vector<Finding> CheckGpuStack(const GpuStack& gpu, const ServerFacts& server);
std::vector<Finding> CheckSystem(const SystemFacts& system);
std::vector<Finding> CheckServer(const ServerFacts& server);
// All checks.
std::vector<Finding> Examine(const Facts& facts);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_DOCTOR_DOCTOR_H_
