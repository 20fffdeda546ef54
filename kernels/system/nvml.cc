#include "kernels/system/nvml.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reduced {
namespace {

// The few declarations of the library's public interface that are needed, as they have been since its version 2.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): the library's own types
};
struct Utilisation {
  unsigned int gpu, memory;  // percent
};
struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
constexpr int kSuccess = 0;
constexpr unsigned kMaxLinks = 18;
constexpr int kPeerRead = 0, kPeerNvlink = 2;  // what a P2P status is of

// Where the paths of two GPUs over PCIe meet, by the library's number for it.
struct MeetingRow {
  int level;
  const char* text;
};
constexpr MeetingRow kMeetings[] = {
    {0, "PCIe on one board"},           {10, "PCIe through one switch"}, {20, "PCIe through several switches"},
    {30, "PCIe through a host bridge"}, {40, "PCIe within a NUMA node"}, {50, "PCIe between NUMA nodes"},
};

}  // namespace

struct Nvml::Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error)(int) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*utilisation)(Device, Utilisation*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;  // NOLINT(google-runtime-int)
  int (*compute_mode)(Device, int*) = nullptr;
  // Null with a driver that lacks them.
  int (*p2p_status)(Device, Device, int, int*) = nullptr;
  int (*meeting)(Device, Device, int*) = nullptr;
  int (*link_state)(Device, unsigned, int*) = nullptr;
  int (*link_peer)(Device, unsigned, PciInfo*) = nullptr;
  int (*pci_info)(Device, PciInfo*) = nullptr;
  int (*most_instances)(Device, unsigned*) = nullptr;
  int (*instance)(Device, unsigned, Device*) = nullptr;
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::FailedPreconditionError(dlerror());
  auto functions = std::make_unique<Functions>();
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    void* const symbol = dlsym(handle, name);
    if (symbol == nullptr) missing = name;
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(symbol);
  };
  find("nvmlInit_v2", &functions->init);
  find("nvmlShutdown", &functions->shutdown);
  find("nvmlErrorString", &functions->error);
  find("nvmlDeviceGetHandleByUUID", &functions->by_uuid);
  find("nvmlDeviceGetMemoryInfo", &functions->memory);
  find("nvmlDeviceGetUtilizationRates", &functions->utilisation);
  find("nvmlDeviceGetCount_v2", &functions->count);
  find("nvmlDeviceGetHandleByIndex_v2", &functions->by_index);
  find("nvmlDeviceGetName", &functions->name);
  find("nvmlDeviceGetTotalEccErrors", &functions->ecc_errors);
  find("nvmlDeviceGetComputeMode", &functions->compute_mode);
  const std::string required = std::exchange(missing, "");
  find("nvmlDeviceGetP2PStatus", &functions->p2p_status);
  find("nvmlDeviceGetTopologyCommonAncestor", &functions->meeting);
  find("nvmlDeviceGetNvLinkState", &functions->link_state);
  find("nvmlDeviceGetNvLinkRemotePciInfo_v2", &functions->link_peer);
  find("nvmlDeviceGetPciInfo_v3", &functions->pci_info);
  find("nvmlDeviceGetMaxMigDeviceCount", &functions->most_instances);
  find("nvmlDeviceGetMigDeviceHandleByIndex", &functions->instance);
  missing = required;
  if (!missing.empty()) {
    dlclose(handle);
    return absl::FailedPreconditionError(absl::StrCat(library, " has no ", missing));
  }
  if (const int code = functions->init(); code != kSuccess) {
    const std::string why = functions->error(code);
    dlclose(handle);
    return absl::FailedPreconditionError(why);
  }
  return std::unique_ptr<Nvml>(new Nvml(handle, std::move(functions)));
}

Nvml::Nvml(void* library, std::unique_ptr<const Functions> functions)
    : library_(library), functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
  dlclose(library_);
}

absl::StatusOr<GpuUsage> Nvml::Read(std::string_view uuid) const {
  Device device = nullptr;
  if (const int code = functions_->by_uuid(NvmlUuid(uuid).c_str(), &device); code != kSuccess) {
    return absl::NotFoundError(functions_->error(code));
  }
  Memory memory{};
  if (const int code = functions_->memory(device, &memory); code != kSuccess) {
    return absl::UnavailableError(functions_->error(code));
  }
  GpuUsage usage{memory.used, memory.total};
  Utilisation utilisation{};
  if (functions_->utilisation(device, &utilisation) == kSuccess) usage.utilisation = utilisation.gpu / 100.0;
  return usage;
}

// The links that lead to the other GPU; of GPUs behind NVLink switches, all.
int Nvml::CountNvlinks(void* device, void* other) const {
  PciInfo of_other{};
  const bool known = functions_->pci_info != nullptr && functions_->pci_info(other, &of_other) == kSuccess;
  int all = 0, direct = 0;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    int active = 0;
    if (functions_->link_state == nullptr || functions_->link_state(device, link, &active) != kSuccess) break;
    if (active == 0) continue;
    ++all;
    PciInfo peer{};
    if (!known || functions_->link_peer == nullptr || functions_->link_peer(device, link, &peer) != kSuccess) continue;
    direct += peer.domain == of_other.domain && peer.bus == of_other.bus && peer.device == of_other.device ? 1 : 0;
  }
  return direct > 0 ? direct : all;
}

absl::StatusOr<std::string> Nvml::LinkBetween(std::string_view uuid, std::string_view other_uuid) const {
  Device device = nullptr, other = nullptr;
  for (const auto& [of, handle] : {std::pair(uuid, &device), std::pair(other_uuid, &other)}) {
    if (const int code = functions_->by_uuid(NvmlUuid(of).c_str(), handle); code != kSuccess) {
      return absl::NotFoundError(functions_->error(code));
    }
  }
  if (functions_->p2p_status == nullptr || functions_->meeting == nullptr) {
    return absl::UnavailableError("the driver's NVML does not tell how GPUs are linked");
  }
  const auto is_ok = [&](int what) {
    int status = -1;
    return functions_->p2p_status(device, other, what, &status) == kSuccess && status == 0;
  };
  const char* const peer_access = is_ok(kPeerRead) ? "peer access" : "no peer access";
  if (is_ok(kPeerNvlink)) return absl::StrFormat("NVLink x%d, %s", CountNvlinks(device, other), peer_access);
  int level = 0;
  if (const int code = functions_->meeting(device, other, &level); code != kSuccess) {
    return absl::UnavailableError(functions_->error(code));
  }
  const char* path = "PCIe";
  for (const MeetingRow& row : kMeetings) path = row.level == level ? row.text : path;
  return absl::StrCat(path, ", ", peer_access);
}

int Nvml::CountMigInstances() const {
  unsigned gpus = 0;
  if (functions_->most_instances == nullptr || functions_->instance == nullptr) return 0;
  if (functions_->count(&gpus) != kSuccess) return 0;
  int found = 0;
  for (unsigned i = 0; i < gpus; ++i) {
    Device gpu = nullptr, instance = nullptr;
    unsigned most = 0;
    if (functions_->by_index(i, &gpu) != kSuccess || functions_->most_instances(gpu, &most) != kSuccess) continue;
    for (unsigned j = 0; j < most; ++j) found += functions_->instance(gpu, j, &instance) == kSuccess ? 1 : 0;
  }
  return found;
}

std::vector<GpuFacts> Nvml::List() const {
  std::vector<GpuFacts> gpus;
  unsigned count = 0;
  if (functions_->count(&count) != kSuccess) return gpus;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (functions_->by_index(i, &device) != kSuccess) continue;
    GpuFacts& facts = gpus.emplace_back();
    char name[96] = "a GPU without a name";
    functions_->name(device, name, sizeof(name));
    facts.name = name;
    if (Memory memory{}; functions_->memory(device, &memory) == kSuccess) {
      facts.memory_bytes = static_cast<std::int64_t>(memory.total);
      facts.free_bytes = static_cast<std::int64_t>(memory.free);
    }
    unsigned long long uncorrected = 0;  // NOLINT(google-runtime-int)
    if (functions_->ecc_errors(device, /*uncorrected=*/1, /*volatile=*/0, &uncorrected) == kSuccess) {
      facts.uncorrected_errors = static_cast<std::int64_t>(uncorrected);
    }
    int mode = 0;
    facts.exclusive = functions_->compute_mode(device, &mode) == kSuccess && mode != 0;
  }
  return gpus;
}

std::string NvmlUuid(std::string_view uuid) {
  const std::string hex = absl::BytesToHexString(absl::string_view(uuid.data(), uuid.size()));
  if (hex.size() != 32) return "";
  return absl::StrFormat("GPU-%s-%s-%s-%s-%s", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4),
                         hex.substr(20));
}

}  // namespace reduced
