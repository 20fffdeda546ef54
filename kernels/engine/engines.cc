#include "kernels/engine/engines.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/engine.h"
#ifdef REDUCED_HAVE_CUDA
#include "kernels/cuda/engine.h"
#endif
#include "kernels/engine/pipelines.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"

namespace reduced {
namespace {

// In floating point: 2^62 elements of 8 bytes are more bytes than 64 bits hold.
double BytesOf(const ReduceSpec& spec) { return static_cast<double>(spec.count) * RowOf(spec.dtype).bytes; }

// An engine that a job could be placed on.
struct Candidate {
  std::size_t index = 0;
  double waiting_us = 0;
  double run_us = 0;

  double total_us() const { return waiting_us + run_us; }
};

Candidate Predict(std::size_t index, const Engine& engine, const ReduceSpec& spec, const ArrayRef& array) {
  return {index, engine.waiting_us(static_cast<std::int64_t>(std::min(BytesOf(spec), 0x1p62))),
          ExpectedUs(engine.calibration(), spec, array)};
}

std::string CudaName(int ordinal) { return absl::StrCat("cuda:", ordinal); }

// The GPUs to start an engine on.
absl::StatusOr<std::set<int>> Ordinals(const EngineOptions& options, int count) {
  std::set<int> ordinals = options.cuda_devices;
  if (ordinals.empty()) {
    for (int i = 0; i < count; ++i) ordinals.insert(i);
  }
  if (ordinals.empty() || (*ordinals.begin() >= 0 && *ordinals.rbegin() < count)) return ordinals;
  return absl::InvalidArgumentError(
      absl::StrFormat("cuda_devices: got %s; allowed: %s", absl::StrJoin(options.cuda_devices, ","),
                      count == 1 ? "0, this machine's only GPU" : absl::StrCat("0 to ", count - 1)));
}

}  // namespace

double ExpectedUs(const Calibration& calibration, const ReduceSpec& spec, const ArrayRef& array) {
  constexpr double kSlowest = 0.1;  // GB/s: whatever was measured, and before anything was
  const bool held = array.space == MemorySpace::kDevice;
  const double gb_per_s = std::max(held ? calibration.held_gb_per_s : calibration.host_gb_per_s, kSlowest);
  return calibration.fixed_us + BytesOf(spec) / (gb_per_s * 1e3);
}

std::string_view NameOf(EngineKind kind) {
  constexpr std::string_view kNames[] = {"auto", "cpu", "cuda"};
  return kNames[static_cast<int>(kind)];
}

absl::StatusOr<std::unique_ptr<Engines>> Engines::Start(const EngineOptions& options) {
#ifdef REDUCED_HAVE_CUDA
  return Start(options, {.count = CountCudaDevices,
                         .start = [&options](int ordinal) { return MakeCudaEngine(options, ordinal); }});
#else
  const auto none = [](int = 0) { return absl::FailedPreconditionError("this server was built without CUDA"); };
  return Start(options, {.count = none, .start = none});
#endif
}

absl::StatusOr<std::unique_ptr<Engines>> Engines::Start(const EngineOptions& options, const Gpus& gpus) {
  std::vector<std::unique_ptr<Engine>> all;
  all.push_back(MakeCpuEngine(options));
  if (!options.cuda) return Of(std::move(all), "switched off by the server's options");
  const absl::StatusOr<int> count = gpus.count();
  if (!count.ok()) return Of(std::move(all), std::string(count.status().message()));
  const absl::StatusOr<std::set<int>> ordinals = Ordinals(options, *count);
  if (!ordinals.ok()) return ordinals.status();

  std::vector<LeftOutDevice> left_out;
  for (const int ordinal : *ordinals) {
    absl::StatusOr<std::unique_ptr<Engine>> engine = gpus.start(ordinal);
    // A device that fails takes the others of its process with it: those that had started before may be lost by now.
    if (engine.ok()) {
      all.push_back(*std::move(engine));
    } else {
      left_out.push_back({CudaName(ordinal), std::string(engine.status().message())});
    }
  }
  for (auto each = all.begin() + 1; each != all.end();) {
    const absl::Status health = (*each)->Health();
    if (!health.ok()) left_out.push_back({(*each)->info().name, std::string(health.message())});
    each = health.ok() ? each + 1 : all.erase(each);
  }
  std::string no_cuda_reason;
  if (all.size() == 1) {
    const auto text = [](std::string* out, const LeftOutDevice& device) {
      absl::StrAppend(out, device.name, ": ", device.reason);
    };
    no_cuda_reason = left_out.empty() ? "there is no CUDA device" : absl::StrJoin(left_out, "; ", text);
  }
  std::unique_ptr<Engines> engines = Of(std::move(all), std::move(no_cuda_reason));
  engines->left_out_ = std::move(left_out);
  return engines;
}

std::unique_ptr<Engines> Engines::Of(std::vector<std::unique_ptr<Engine>> all, std::string no_cuda_reason) {
  auto engines = std::unique_ptr<Engines>(new Engines);
  for (const auto& engine : all) engines->devices_.push_back(engine->info());
  engines->engines_ = std::move(all);
  engines->no_cuda_reason_ = std::move(no_cuda_reason);
  return engines;
}

std::string Engines::DeviceNames() const {
  return absl::StrJoin(devices_, ", ",
                       [](std::string* out, const DeviceInfo& device) { absl::StrAppend(out, device.name); });
}

absl::StatusOr<Engine*> Engines::Get(EngineKind kind) const {
  if (kind == EngineKind::kAuto) kind = EngineKind::kCpu;
  for (const auto& engine : engines_) {
    if (engine->kind() == kind) return engine.get();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("engine: got %s; allowed: cpu, since this server has no %s engine: %s", NameOf(kind),
                      NameOf(kind), no_cuda_reason_));
}

absl::StatusOr<Engine*> Engines::OnDevice(std::string_view name) const {
  if (name.empty()) {
    const auto room = [](const auto& engine) {
      const DeviceInfo info = engine->info();
      return info.array_bytes_limit - info.array_bytes;
    };
    Engine* roomiest = nullptr;
    for (const auto& engine : engines_) {
      if (engine->kind() != EngineKind::kCuda) continue;
      if (roomiest == nullptr || room(engine) > room(roomiest)) roomiest = engine.get();
    }
    if (roomiest != nullptr) return roomiest;
    return Get(EngineKind::kCpu);
  }
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (devices_[i].name == name) return engines_[i].get();
  }
  std::string message = absl::StrCat("device: got ", Quoted(std::string(name)), "; allowed: ", DeviceNames());
  if (!no_cuda_reason_.empty()) absl::StrAppend(&message, "; this server has no CUDA engine: ", no_cuda_reason_);
  for (const LeftOutDevice& device : left_out_) {
    if (device.name == name) absl::StrAppend(&message, "; ", device.name, " is left out: ", device.reason);
  }
  return absl::FailedPreconditionError(message);
}

absl::StatusOr<Placement> Engines::Place(const ReduceSpec& spec, const ArrayRef& array) const {
  EngineKind kind = spec.engine;
  std::string reason = "asked for by the request";
  if (kind == EngineKind::kAuto && !spec.pipeline.empty()) {
    kind = FindPipeline(spec.pipeline)->engine;
    reason = absl::StrCat("pipeline ", spec.pipeline, " runs there");
  }
  if (kind != EngineKind::kAuto) {
    if (const absl::StatusOr<Engine*> any = Get(kind); !any.ok()) return any.status();
  }
  const Engine* named = nullptr;
  if (!spec.device.empty()) {
    const absl::StatusOr<Engine*> on_device = OnDevice(spec.device);
    if (!on_device.ok()) return on_device.status();
    named = *on_device;
    if (kind != EngineKind::kAuto && named->kind() != kind) {
      return absl::InvalidArgumentError(
          absl::StrFormat("device: got %s; allowed: a device of engine %s, which the request's %s is of",
                          Quoted(spec.device), NameOf(kind), spec.engine == kind ? "engine" : "pipeline"));
    }
    reason = "asked for by the request";
  }

  absl::InlinedVector<Candidate, 8> candidates;
  const bool on_device = array.space == MemorySpace::kDevice;
  // Ops about distributions, and floats of 8 bits, are answered where the array is, unless the request names an engine
  // or a device.
  const bool free_choice = kind == EngineKind::kAuto && named == nullptr;
  const bool by_kernels = AnsweredByAccumulators(spec) && HasKernels(spec.dtype);
  const bool stays = free_choice && !on_device && !by_kernels;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    const Engine& engine = *engines_[i];
    if (kind != EngineKind::kAuto && engine.kind() != kind) continue;
    if (named != nullptr && &engine != named) continue;
    if (on_device && devices_[i].ordinal != array.device) continue;
    if (stays && engine.kind() != EngineKind::kCpu) continue;
    candidates.push_back(Predict(i, engine, spec, array));
  }
  if (candidates.empty()) {  // only for an array of a device
    const std::string home = CudaName(array.device);
    if (named != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrFormat("device: got %s; allowed: %s, whose memory holds the array", spec.device, home));
    }
    if (kind != EngineKind::kCuda && kind != EngineKind::kAuto) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: got %s; allowed: %s of engine cuda, since the memory of %s holds the array",
          spec.engine == kind ? "engine" : "pipeline", spec.engine == kind ? std::string(NameOf(kind)) : spec.pipeline,
          spec.engine == kind ? "a device" : "a pipeline", home));
    }
    return absl::FailedPreconditionError(
        absl::StrFormat("array: got one in the memory of %s; allowed: in that of %s", home, DeviceNames()));
  }
  const auto best = std::min_element(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.total_us() < b.total_us();
  });
  Engine* const engine = engines_[best->index].get();
  if (on_device && named == nullptr) return Placement{engine, "the array is in its memory"};
  if (candidates.size() == 1) {
    if (stays && engines_.size() > 1) {
      return Placement{engine, HasKernels(spec.dtype)
                                   ? "ops about distributions are answered where the array is"
                                   : absl::StrCat("elements of ", std::string(RowOf(spec.dtype).name),
                                                  " are reduced where they are")};
    }
    if (free_choice) reason = absl::StrCat("the only engine: no CUDA, ", no_cuda_reason_);
    return Placement{engine, std::move(reason)};
  }
  reason = free_choice ? "predicted:" : absl::StrCat(reason, "; predicted:");
  for (const Candidate& each : candidates) {
    absl::StrAppendFormat(&reason, "%s %s %.1f us", &each == candidates.data() ? "" : ",", devices_[each.index].name,
                          each.total_us());
    if (each.waiting_us > 0) absl::StrAppendFormat(&reason, " (%.1f us of it waiting)", each.waiting_us);
  }
  return Placement{engine, std::move(reason)};
}

absl::StatusOr<std::shared_ptr<const void>> Engines::Pin(const void* data, std::int64_t bytes) const {
  for (const auto& engine : engines_) {
    absl::StatusOr<std::shared_ptr<const void>> pin = engine->Pin(data, bytes);
    if (!pin.ok() || *pin != nullptr) return pin;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const void>> Engines::Import(const std::string& device_uuid, int file) const {
  ASSIGN_OR_RETURN(Engine* const engine, OfUuid(device_uuid));
  return engine->Import(file);
}

absl::StatusOr<HeldArray> Engines::Open(const SharedDeviceMemory& memory) const {
  ASSIGN_OR_RETURN(Engine* const engine, OfUuid(memory.device_uuid));
  return engine->Open(memory);
}

absl::StatusOr<Engine*> Engines::OfUuid(const std::string& device_uuid) const {
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (!devices_[i].uuid.empty() && devices_[i].uuid == device_uuid) return engines_[i].get();
  }
  std::vector<std::string> uuids;
  for (const DeviceInfo& device : devices_) {
    if (!device.uuid.empty()) uuids.push_back(absl::BytesToHexString(device.uuid));
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("device_uuid: got %s; allowed: %s", absl::BytesToHexString(device_uuid.substr(0, 64)),
                      uuids.empty() ? absl::StrCat("none, this server has no CUDA engine: ", no_cuda_reason_)
                                    : absl::StrJoin(uuids, ", ")));
}

}  // namespace reduced
