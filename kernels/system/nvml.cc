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
constexpr int kSuccess = 0;

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
