// Gathers the facts about GPUs. CUDA's driver is loaded at run time if it is installed: reducectl is built and runs
// without it. The few declarations that this needs are public and stable.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/doctor/doctor.h"
#include "kernels/system/nvml.h"

namespace reduced::client {
namespace {

struct Close {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

Library Load(const char* name, std::string* why_not) {
  Library library(dlopen(name, RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) *why_not = dlerror();
  return library;
}

template <class Function>
bool Find(const Library& library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library.get(), name));
  return *function != nullptr;
}

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Of class 0x03 (display) or 0x12 (accelerator).
bool IsOnBus() {
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/bus/pci/devices", error)) {
    if (FirstLine(device.path() / "vendor") != "0x10de") continue;
    const std::string kind = FirstLine(device.path() / "class");
    if (absl::StartsWith(kind, "0x03") || absl::StartsWith(kind, "0x12")) return true;
  }
  return false;
}

// "NVRM version: NVIDIA UNIX ... Kernel Module for x86_64  580.95.05  Release Build ..."
std::string KernelModule() {
  for (const absl::string_view word :
       absl::StrSplit(FirstLine("/proc/driver/nvidia/version"), ' ', absl::SkipEmpty())) {
    if (absl::StrContains(word, '.') && word.find_first_not_of("0123456789.") == absl::string_view::npos) {
      return std::string(word);
    }
  }
  return "";
}

void AskDriver(GpuStack* gpu) {
  const Library library = Load("libcuda.so.1", &gpu->no_library);
  if (library == nullptr) return;
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*count)(int*) = nullptr;
  if (!Find(library, "cuInit", &init) || !Find(library, "cuDriverGetVersion", &version) ||
      !Find(library, "cuDeviceGetCount", &count)) {
    gpu->no_library = "it lacks cuInit, cuDriverGetVersion or cuDeviceGetCount";
    return;
  }
  version(&gpu->driver_cuda_version);
  gpu->init_error = init(0);
  if (gpu->init_error == 0) gpu->init_error = count(&gpu->devices);
}

void AskNvml(GpuStack* gpu) {
  const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Load();
  if (nvml.ok()) {
    gpu->gpus = (*nvml)->List();
  } else {
    gpu->no_nvml = std::string(nvml.status().message());
  }
}

}  // namespace

GpuStack GatherGpuStack() {
  GpuStack gpu;
  gpu.on_bus = IsOnBus();
  gpu.kernel_module = KernelModule();
  gpu.device_files = access("/dev/nvidiactl", F_OK) == 0;
  gpu.device_files_usable = access("/dev/nvidiactl", R_OK | W_OK) == 0;
  AskDriver(&gpu);
  AskNvml(&gpu);
  return gpu;
}

}  // namespace reduced::client
