#include "server/observe/nvml.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reduced::server {
namespace {

// As the library's interface has had them since its version 2.
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
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::FailedPreconditionError(absl::StrCat("no NVML: ", dlerror()));
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
  if (!missing.empty()) {
    dlclose(handle);
    return absl::FailedPreconditionError(absl::StrCat("no NVML: ", library, " has no ", missing));
  }
  if (const int code = functions->init(); code != kSuccess) {
    const std::string why = functions->error(code);
    dlclose(handle);
    return absl::FailedPreconditionError(absl::StrCat("no NVML: ", why));
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

std::string NvmlUuid(std::string_view uuid) {
  const std::string hex = absl::BytesToHexString(absl::string_view(uuid.data(), uuid.size()));
  if (hex.size() != 32) return "";
  return absl::StrFormat("GPU-%s-%s-%s-%s-%s", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4),
                         hex.substr(20));
}

}  // namespace reduced::server
