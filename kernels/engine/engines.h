// The engines of this process, one for each device, and the choice between them.
#ifndef REDUCED_KERNELS_ENGINE_ENGINES_H_
#define REDUCED_KERNELS_ENGINE_ENGINES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/hang_watch.h"
#include "kernels/engine/memory_budget.h"

namespace reduced {

struct EngineOptions {
  // CPU engine
  int cpu_threads = 0;  // 0: one for each core the process may use
  int cpu_lanes = 2;    // reductions at once; each may use every thread
  // CUDA engine, for each device
  bool cuda = true;              // false: leave the GPUs alone
  std::set<int> cuda_devices{};  // ordinals of the GPUs to use; empty: all that CUDA shows to this process
  int cuda_lanes = 4;
  std::int64_t chunk_bytes = 8 << 20;  // of the pinned and device chunks that uploads go through; 3 of each for a lane
  std::int64_t cuda_staging_bytes = std::int64_t{64} << 20;  // of pinned memory that Engine::Stage lends
  // The memory pool for arrays returns what was unused for so long, at most twice as long, except up to 96 MiB.
  absl::Duration cuda_keeps = absl::Seconds(5);
  // A device that has not ended something after that and 100 times its predicted time hangs: Engine::Health says so.
  absl::Duration device_timeout = absl::Minutes(1);
  // What to do if one does while its engine starts, when there is no Health to ask yet. Null: the start never ends.
  OnHang on_hang = nullptr;
  // Both
  // Host memory for all requests together, which the CPU engine's arrays and the scratch memory of rungs count towards.
  std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>();
  int queue_limit = 256;  // reductions waiting for a lane, for each engine
  // Reductions that would wait longer for others of their caller are refused; twice as long until all of them have
  // waited longer for 100 ms.
  absl::Duration queue_target = absl::Minutes(5);
  // What Engine::Allocate gives out at most, all together
  std::int64_t cpu_array_bytes = std::int64_t{1} << 30;
  // Of each device. Absent: three quarters of the device's memory that was free when its engine started,
  // rounded down to GiB from 16 GiB on.
  std::optional<std::int64_t> cuda_array_bytes{};
};

// The GPUs of this process. Tests have others than those that there are.
struct Gpus {
  // How many there are. An error says why there are none.
  absl::FunctionRef<absl::StatusOr<int>()> count;
  absl::FunctionRef<absl::StatusOr<std::unique_ptr<Engine>>(int ordinal)> start;
};

// A GPU that no engine uses.
struct LeftOutDevice {
  std::string name{};  // "cuda:1"
  std::string reason{};
};

// A place for a reduction, and why it was chosen, in words for the response.
struct Placement {
  Engine* engine = nullptr;
  std::string reason;
};

// Thread-safe once made.
class Engines {
 public:
  // Starts the CPU engine and an engine on each GPU. A GPU whose engine can't start is left out, with the reason; the
  // others serve. Takes a moment: each engine is calibrated. INVALID_ARGUMENT: cuda_devices names a GPU that CUDA
  // doesn't show.
  static absl::StatusOr<std::unique_ptr<Engines>> Start(const EngineOptions& options);
  static absl::StatusOr<std::unique_ptr<Engines>> Start(const EngineOptions& options, const Gpus& gpus);

  // The engines given, one of kind kCpu among them; for tests. no_cuda_reason: see below.
  static std::unique_ptr<Engines> Of(std::vector<std::unique_ptr<Engine>> all, std::string no_cuda_reason);

  const std::vector<std::unique_ptr<Engine>>& all() const { return engines_; }
  // The first engine of that kind, or FAILED_PRECONDITION saying why there is none. kAuto: the CPU engine.
  absl::StatusOr<Engine*> Get(EngineKind kind) const;
  // The engine that runs on the device of that name, or FAILED_PRECONDITION listing those that there are. Empty: that
  // of the GPU with the most room for arrays or, where there is none, the CPU engine.
  absl::StatusOr<Engine*> OnDevice(std::string_view name) const;
  // Why there is no CUDA engine; empty if there is one.
  const std::string& no_cuda_reason() const { return no_cuda_reason_; }
  // The GPUs that could be used, but whose engines didn't start.
  const std::vector<LeftOutDevice>& left_out() const { return left_out_; }

  // The engine for the job, among those that the spec allows by device, engine or pipeline: the one whose device holds
  // the array; for host memory, the one that is predicted to be done first, with what waits there.
  // FAILED_PRECONDITION: none that is allowed is there, or the array is in the memory of another device.
  // INVALID_ARGUMENT: the spec's device isn't of its engine or pipeline.
  absl::StatusOr<Placement> Place(const ReduceSpec& spec, const ArrayRef& array) const;

  // Engine::Pin, once for all engines: a range is registered by the first engine that has a use for it.
  absl::StatusOr<std::shared_ptr<const void>> Pin(const void* data, std::int64_t bytes) const;
  // Engine::Import and Engine::Open, by the engine whose device has that UUID. FAILED_PRECONDITION: there is none.
  absl::StatusOr<std::shared_ptr<const void>> Import(const std::string& device_uuid, int file) const;
  absl::StatusOr<HeldArray> Open(const SharedDeviceMemory& memory) const;

 private:
  Engines() = default;

  std::string DeviceNames() const;  // "cpu, cuda:0"
  absl::StatusOr<Engine*> OfUuid(const std::string& device_uuid) const;

  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<DeviceInfo> devices_;  // by engine, as it was at the start
  std::string no_cuda_reason_;
  std::vector<LeftOutDevice> left_out_;
};

std::string_view NameOf(EngineKind kind);  // "auto", "cpu", "cuda"

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ENGINES_H_
