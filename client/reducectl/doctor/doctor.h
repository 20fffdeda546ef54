// reducectl doctor: what is known of this machine and of the server (facts), and what that means (checks). The checks
// look at nothing but the facts.
#ifndef REDUCED_CLIENT_REDUCECTL_DOCTOR_DOCTOR_H_
#define REDUCED_CLIENT_REDUCECTL_DOCTOR_DOCTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/reducectl/commands/commands.h"
#include "kernels/system/nvml.h"
#include "reduced/types.h"

namespace reduced::client {

struct GpuStack {
  bool on_bus = false;          // a GPU of NVIDIA is on the PCI bus, as far as can be seen
  std::string kernel_module{};  // version; empty: not loaded
  bool device_files = false;    // /dev/nvidiactl is there
  bool device_files_usable = false;
  std::string no_library{};     // why libcuda.so.1 can't be loaded; empty: it is
  int init_error = 0;           // of cuInit, a CUresult; 0: none
  int driver_cuda_version = 0;  // as cuDriverGetVersion has it: 13000
  int devices = 0;
  std::string no_nvml{};  // why NVML can't be used; empty: it is
  std::vector<GpuFacts> gpus{};
};

struct SystemFacts {
  std::optional<std::int64_t> memory_bytes{}, available_bytes{};
  std::optional<std::int64_t> cgroup_limit_bytes{};
  std::optional<std::int64_t> shm_bytes{}, shm_free_bytes{};  // of /dev/shm; absent: it isn't there
  std::optional<std::int64_t> files_limit{}, files_hard_limit{};
  std::optional<std::int64_t> locked_limit_bytes{};  // absent: unlimited
  bool clock_synchronized = false;
  bool clock_known = false;  // whether the system says so
  std::int64_t year = 0;
  std::string clock_source{};
};

// A Unix socket, as this process finds it.
struct SocketFacts {
  std::string path{};
  std::string problem{};  // why it can't be connected to; empty: it can
  int error = 0;          // errno
  // Of the server's process, at the other end, against this one; absent: can't be told.
  std::optional<bool> same_ipc_namespace{}, same_pid_namespace{};
};

struct ServerFacts {
  std::string address{};
  bool named = false;        // by the command line or the environment
  std::string version{};     // of reducectl
  absl::Status reachable{};  // of GetServerInfo
  ServerInfo info{};         // if that is OK
  std::optional<Health> health{};
  std::string no_health{};                     // why not
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
  std::string remedy{};  // empty if there is nothing to do
};

GpuStack GatherGpuStack();
SystemFacts GatherSystem();
ServerFacts GatherServer(const CommonOptions& common, Client& client);

std::vector<Finding> CheckGpuStack(const GpuStack& gpu, const ServerFacts& server);
std::vector<Finding> CheckSystem(const SystemFacts& system);
std::vector<Finding> CheckServer(const ServerFacts& server);
// All of them.
std::vector<Finding> Examine(const Facts& facts);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_DOCTOR_DOCTOR_H_
