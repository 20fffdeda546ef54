// The engines of this process and the choice between them.
#ifndef REDUCED_KERNELS_ENGINE_ENGINES_H_
#define REDUCED_KERNELS_ENGINE_ENGINES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"

namespace reduced {

struct EngineOptions {
  // CPU engine
  int cpu_threads = 0;  // 0: one for each core the process may use
  int cpu_lanes = 2;    // reductions at once; each may use every thread
  // CUDA engine, for each device
  bool cuda = true;  // false: leave the GPUs alone
  int cuda_lanes = 4;
  std::int64_t chunk_bytes = 8 << 20;  // of the pinned and device chunks that uploads go through; 3 of each for a lane
  // Both
  int queue_limit = 256;  // reductions waiting for a lane, for each engine
  // What Engine::Allocate gives out at most, all together
  std::int64_t cpu_array_bytes = std::int64_t{1} << 30;
  std::int64_t cuda_array_bytes = std::int64_t{8} << 30;
};

// A place for a reduction, and why it was chosen, in words for the response.
struct Placement {
  Engine* engine = nullptr;
  std::string reason;
};

// Thread-safe once made.
class Engines {
 public:
  // Starts the CPU engine and, where the build has it and a device is there, the CUDA engine on device 0. Takes a
  // moment: each is calibrated.
  static absl::StatusOr<std::unique_ptr<Engines>> Start(const EngineOptions& options);

  // The engines given, one of kind kCpu among them; for tests. no_cuda_reason: see below.
  static std::unique_ptr<Engines> Of(std::vector<std::unique_ptr<Engine>> all, std::string no_cuda_reason);

  const std::vector<std::unique_ptr<Engine>>& all() const { return engines_; }
  // The engine of that kind, or FAILED_PRECONDITION saying why it isn't there. kAuto: the CPU engine.
  absl::StatusOr<Engine*> Get(EngineKind kind) const;
  // The engine that runs on the device of that name, or FAILED_PRECONDITION listing those that there are. Empty: that
  // of the first GPU or, where there is none, the CPU engine.
  absl::StatusOr<Engine*> OnDevice(std::string_view name) const;
  // Why there is no CUDA engine; empty if there is one.
  const std::string& no_cuda_reason() const { return no_cuda_reason_; }

  // The engine for the job: the one the spec or its pipeline names; the one whose device holds the array; else the one
  // that is predicted to be done first. FAILED_PRECONDITION: the engine asked for isn't there.
  absl::StatusOr<Placement> Place(const ReduceSpec& spec, const ArrayRef& array) const;

 private:
  Engines() = default;

  std::vector<std::unique_ptr<Engine>> engines_;
  std::string no_cuda_reason_;
};

std::string_view NameOf(EngineKind kind);  // "auto", "cpu", "cuda"

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ENGINES_H_
