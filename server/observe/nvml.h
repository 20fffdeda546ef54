// What the driver's management library says of GPUs. It is looked for when the server runs: a machine without it, or a
// build without CUDA, has nothing to say.
#ifndef REDUCED_SERVER_OBSERVE_NVML_H_
#define REDUCED_SERVER_OBSERVE_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reduced::server {

struct GpuUsage {
  std::uint64_t memory_used_bytes = 0;  // by every process
  std::uint64_t memory_total_bytes = 0;
  std::optional<double> utilisation{};  // 0 to 1: the part of the last moment in which a kernel ran; absent: not told
};

// Thread-safe.
class Nvml {
 public:
  // FAILED_PRECONDITION: there is none, or it lacks something, or it finds no driver; with the reason.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Of the GPU whose UUID has these 16 bytes. NOT_FOUND: it knows none. UNAVAILABLE: it can't say.
  absl::StatusOr<GpuUsage> Read(std::string_view uuid) const;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<const Functions> functions);

  void* const library_;
  const std::unique_ptr<const Functions> functions_;
};

// "GPU-01234567-89ab-cdef-0123-456789abcdef" of 16 bytes.
std::string NvmlUuid(std::string_view uuid);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_NVML_H_
