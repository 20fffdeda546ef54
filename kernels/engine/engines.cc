#include "kernels/engine/engines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/engine.h"
#ifdef REDUCED_HAVE_CUDA
#include "kernels/cuda/engine.h"
#endif
#include "kernels/engine/pipelines.h"

namespace reduced {
namespace {

double PredictMicros(const Calibration& calibration, double bytes) {
  return calibration.fixed_us + bytes / (calibration.host_gb_per_s * 1e3);
}

}  // namespace

std::string_view NameOf(EngineKind kind) {
  constexpr std::string_view kNames[] = {"auto", "cpu", "cuda"};
  return kNames[static_cast<int>(kind)];
}

absl::StatusOr<std::unique_ptr<Engines>> Engines::Start(const EngineOptions& options) {
  std::vector<std::unique_ptr<Engine>> all;
  all.push_back(MakeCpuEngine(options));
  std::string no_cuda_reason = "switched off by the server's options";
#ifdef REDUCED_HAVE_CUDA
  if (options.cuda) {
    absl::StatusOr<std::unique_ptr<Engine>> cuda = MakeCudaEngine(options, /*device=*/0);
    if (cuda.ok()) {
      all.push_back(*std::move(cuda));
      no_cuda_reason.clear();
    } else if (absl::IsFailedPrecondition(cuda.status())) {  // no device, no driver: run on the CPU
      no_cuda_reason = std::string(cuda.status().message());
    } else {
      return cuda.status();
    }
  }
#else
  if (options.cuda) no_cuda_reason = "this server was built without CUDA";
#endif
  return Of(std::move(all), std::move(no_cuda_reason));
}

std::unique_ptr<Engines> Engines::Of(std::vector<std::unique_ptr<Engine>> all, std::string no_cuda_reason) {
  auto engines = std::unique_ptr<Engines>(new Engines);
  engines->engines_ = std::move(all);
  engines->no_cuda_reason_ = std::move(no_cuda_reason);
  return engines;
}

absl::StatusOr<Engine*> Engines::Get(EngineKind kind) const {
  if (kind == EngineKind::kAuto) kind = EngineKind::kCpu;
  for (const auto& engine : engines_) {
    if (engine->kind() == kind) return engine.get();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("engine %s was asked for, but is not there: %s", NameOf(kind), no_cuda_reason_));
}

absl::StatusOr<Engine*> Engines::OnDevice(std::string_view name) const {
  if (name.empty()) {
    const absl::StatusOr<Engine*> cuda = Get(EngineKind::kCuda);
    return cuda.ok() ? cuda : Get(EngineKind::kCpu);
  }
  std::vector<std::string> names;
  for (const auto& engine : engines_) {
    names.push_back(engine->info().name);
    if (names.back() == name) return engine.get();
  }
  constexpr std::size_t kShown = 64;
  return absl::FailedPreconditionError(
      absl::StrCat("device '", absl::CHexEscape(std::string(name.substr(0, kShown))),
                   "' was asked for, but is not there; this server has ", absl::StrJoin(names, ", "),
                   no_cuda_reason_.empty() ? "" : absl::StrCat("; no CUDA: ", no_cuda_reason_)));
}

absl::StatusOr<Placement> Engines::Place(const ReduceSpec& spec, const ArrayRef& array) const {
  EngineKind kind = spec.engine;
  std::string reason = "asked for by the request";
  if (kind == EngineKind::kAuto && !spec.pipeline.empty()) {
    kind = FindPipeline(spec.pipeline)->engine;
    reason = absl::StrCat("pipeline ", spec.pipeline, " runs there");
  } else if (kind == EngineKind::kAuto && array.space == MemorySpace::kDevice) {
    kind = EngineKind::kCuda;
    reason = "the array is in its memory";
  }
  if (kind != EngineKind::kAuto) {
    const absl::StatusOr<Engine*> engine = Get(kind);
    if (!engine.ok()) return engine.status();
    return Placement{*engine, std::move(reason)};
  }
  if (engines_.size() == 1) {
    return Placement{engines_.front().get(), absl::StrCat("the only engine: no CUDA, ", no_cuda_reason_)};
  }
  const double bytes = static_cast<double>(spec.count) * RowOf(spec.dtype).bytes;
  const auto predict = [bytes](const auto& engine) { return PredictMicros(engine->calibration(), bytes); };
  const auto best = std::min_element(engines_.begin(), engines_.end(),
                                     [&](const auto& a, const auto& b) { return predict(a) < predict(b); });
  reason = "predicted:";
  for (const auto& engine : engines_) {
    absl::StrAppendFormat(&reason, " %s %.1f us", NameOf(engine->kind()), predict(engine));
  }
  return Placement{best->get(), std::move(reason)};
}

}  // namespace reduced
