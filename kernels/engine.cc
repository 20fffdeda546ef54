#include "kernels/engine.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/engines.h"

namespace reduced {

const std::vector<PipelineRow>& Pipelines() {
  static const auto* const rows = new std::vector<PipelineRow>{
      {"tiled_simd", EngineKind::kCpu,
       "cache-sized tiles, every accumulator folded by vector instructions while a tile is in the L1 cache; tiles on "
       "all threads",
       "this project; vectors by Highway, threads by oneTBB"},
#ifdef REDUCED_HAVE_CUDA
      {"single_pass", EngineKind::kCuda,
       "one launch: 16-byte loads, warp shuffles, and the last block to finish combines the blocks in index order",
       "after M. Harris, Optimizing Parallel Reduction in CUDA, and the CUDA sample threadFenceReduction"},
#endif
  };
  return *rows;
}

const PipelineRow* FindPipeline(std::string_view name) {
  for (const PipelineRow& row : Pipelines()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

absl::Status ValidateSpec(const ReduceSpec& spec) {
  if (spec.ops.empty()) return absl::InvalidArgumentError("no op was asked for, at least 1 is needed");
  if (spec.count < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("count is %d, it must be at least 0", spec.count));
  }
  if (spec.ddof < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("ddof is %d, it must be at least 0", spec.ddof));
  }
  for (const Op op : spec.ops) {
    if (!Supports(op, spec.dtype)) {
      return absl::InvalidArgumentError(absl::StrFormat("op %s is not defined for dtype %s, only for integers and bool",
                                                        RowOf(op).name, RowOf(spec.dtype).name));
    }
    if (spec.count == 0 && RowOf(op).error_if_empty) {
      return absl::InvalidArgumentError(
          absl::StrFormat("op %s needs at least 1 element, got an empty array", RowOf(op).name));
    }
  }
  if (spec.pipeline.empty()) return absl::OkStatus();
  const PipelineRow* const row = FindPipeline(spec.pipeline);
  if (row == nullptr) {
    const auto name = [](std::string* out, const PipelineRow& each) { out->append(each.name); };
    return absl::InvalidArgumentError(absl::StrFormat("unknown pipeline '%s', this server has: %s",
                                                      absl::Utf8SafeCEscape(spec.pipeline.substr(0, 64)),
                                                      absl::StrJoin(Pipelines(), ", ", name)));
  }
  if (spec.engine != EngineKind::kAuto && spec.engine != row->engine) {
    return absl::InvalidArgumentError(absl::StrFormat("pipeline %s belongs to engine %s, but engine %s was asked for",
                                                      row->name, NameOf(row->engine), NameOf(spec.engine)));
  }
  return absl::OkStatus();
}

}  // namespace reduced
