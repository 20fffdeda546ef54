// What NVML, the management library of NVIDIA's driver, says of the GPUs. It is loaded at run time: a machine without
// it has nothing to say, and a build needs neither it nor CUDA.
#ifndef REDUCED_KERNELS_SYSTEM_NVML_H_
#define REDUCED_KERNELS_SYSTEM_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reduced {

struct GpuUsage {
  std::uint64_t memory_used_bytes = 0;  // by every process
  std::uint64_t memory_total_bytes = 0;
  // 0 to 1: the part of the last moment in which a kernel ran; absent: NVML doesn't say.
  std::optional<double> utilisation{};
};

// A GPU of this machine. What NVML doesn't say is absent.
struct GpuFacts {
  std::string name{};
  std::optional<std::int64_t> memory_bytes{}, free_bytes{};
  std::optional<std::int64_t> uncorrected_errors{};  // of its memory, since the driver was loaded
  bool exclusive = false;                            // only one process may use the GPU at a time, or none
};

// Thread-safe.
class Nvml {
 public:
  // FAILED_PRECONDITION, with the reason: there is no such library, it lacks a function, or it finds no driver.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // The usage of the GPU whose UUID has these 16 bytes. NOT_FOUND: NVML knows no such GPU. UNAVAILABLE: NVML can't say.
  absl::StatusOr<GpuUsage> Read(std::string_view uuid) const;

  // How two GPUs, named as for Read, reach each other's memory: "NVLink x18, peer access", "PCIe through one switch, no
  // peer access". As Read; UNAVAILABLE also for a driver that can't say.
  absl::StatusOr<std::string> LinkBetween(std::string_view uuid, std::string_view other_uuid) const;

  // MIG instances of all GPUs that this process may see.
  int CountMigInstances() const;

  // Every GPU of the machine that can be read.
  std::vector<GpuFacts> List() const;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<const Functions> functions);
  int CountNvlinks(void* device, void* other) const;

  void* const library_;
  const std::unique_ptr<const Functions> functions_;
};

// "GPU-01234567-89ab-cdef-0123-456789abcdef" of 16 bytes.
std::string NvmlUuid(std::string_view uuid);

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_NVML_H_
