#include "server/wire/ladder.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/engine/pipelines.h"
#include "server/wire/enums.h"

namespace reduced::server {
namespace {

// The block sizes of a ladder. Without any in the request: 0, the default of each pipeline.
absl::StatusOr<std::vector<int>> ParseBlockSizes(const v1::LadderRequest& request) {
  if (request.block_sizes().empty()) return std::vector<int>{0};
  std::vector<int> sizes;
  for (const int size : request.block_sizes()) {
    if (std::find(kBlockSizes.begin(), kBlockSizes.end(), size) == kBlockSizes.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("block_sizes: got %d; allowed: %s", size, absl::StrJoin(kBlockSizes, ", ")));
    }
    if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("block_sizes: got %d twice; allowed: each size once", size));
    }
    sizes.push_back(size);
  }
  return sizes;
}

// The pipelines of a ladder. Without any in the request: those of this server's engines that support `spec`.
absl::StatusOr<std::vector<const PipelineRow*>> ParsePipelines(const v1::LadderRequest& request, const Engines& engines,
                                                               const ReduceSpec& spec) {
  std::vector<const PipelineRow*> rows;
  if (request.pipelines().empty()) {
    for (const PipelineRow& row : Pipelines()) {
      if (Supports(row, spec.ops.front(), spec.dtype) && engines.Get(row.engine).ok()) rows.push_back(&row);
    }
    return rows;
  }
  bool have_choice = false;
  for (const std::string& name : request.pipelines()) {
    if (name.empty())
      return absl::InvalidArgumentError("pipelines: got an empty name; GetServerInfo lists the pipelines");
    ReduceSpec named = spec;
    named.pipeline = name;
    const absl::Status status = ValidateSpec(named);
    if (!status.ok()) return status;
    const PipelineRow* const row = FindPipeline(name);
    if (std::find(rows.begin(), rows.end(), row) != rows.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("pipelines: got %s twice; allowed: each pipeline once", name));
    }
    rows.push_back(row);
    have_choice = have_choice || row->block_sizes;
  }
  if (!request.block_sizes().empty() && !have_choice) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_sizes: got some; allowed: none, since none of these pipelines has a choice: ",
                     absl::StrJoin(request.pipelines(), ", ")));
  }
  return rows;
}

absl::StatusOr<std::vector<LadderRung>> ParseRungs(const v1::LadderRequest& request, const Engines& engines,
                                                   ReduceSpec spec) {
  const absl::StatusOr<std::vector<int>> block_sizes = ParseBlockSizes(request);
  if (!block_sizes.ok()) return block_sizes.status();
  const absl::StatusOr<std::vector<const PipelineRow*>> rows = ParsePipelines(request, engines, spec);
  if (!rows.ok()) return rows.status();
  std::vector<LadderRung> rungs;
  for (const PipelineRow* const row : *rows) {
    const absl::StatusOr<Engine*> engine = engines.Get(row->engine);
    if (!engine.ok()) return engine.status();
    spec.engine = row->engine;
    spec.pipeline = row->name;
    for (const int size : row->block_sizes ? *block_sizes : std::vector<int>{0}) {
      spec.block_size = size;
      rungs.push_back({*engine, spec});
    }
  }
  return rungs;
}

}  // namespace

absl::StatusOr<ParsedLadder> ParseLadder(const v1::LadderRequest& request, const Engines& engines,
                                         const RequestLimits& limits) {
  constexpr int kDefaultRepeats = 20;
  constexpr int kMaxRepeats = 1000;
  ParsedLadder ladder;
  ReduceSpec& spec = ladder.spec;

  const absl::StatusOr<DType> dtype = ParseDType("dtype", request.dtype());
  if (!dtype.ok()) return dtype.status();
  spec.dtype = *dtype;
  const absl::StatusOr<Op> op = ParseOp("op", request.op());
  if (!op.ok()) return op.status();
  spec.ops = {*op};
  const std::int64_t max_count = limits.max_ladder_bytes / RowOf(*dtype).bytes;
  if (request.count() < 1 || request.count() > max_count) {
    return absl::InvalidArgumentError(absl::StrFormat("count: got %d; allowed: 1 to %d, which is %d bytes of %s",
                                                      request.count(), max_count, limits.max_ladder_bytes,
                                                      RowOf(*dtype).name));
  }
  spec.count = request.count();
  spec.overflow_policy = OverflowPolicy::kWrap;  // sums of random integers overflow; their last 64 bits are compared
  const absl::Status status = ValidateSpec(spec);
  if (!status.ok()) return status;

  ladder.contents = {.dtype = *dtype, .seed = request.seed()};
  if (request.has_fill()) {
    const absl::StatusOr<std::uint64_t> fill = FillWord(*dtype, request.fill());
    if (!fill.ok()) return absl::InvalidArgumentError(absl::StrCat("fill: ", fill.status().message()));
    ladder.contents.fill = *fill;
  }
  if (request.repeats() < 0 || request.repeats() > kMaxRepeats) {
    return absl::InvalidArgumentError(absl::StrFormat("repeats: got %d; allowed: 0 (the default, %d) to %d",
                                                      request.repeats(), kDefaultRepeats, kMaxRepeats));
  }
  ladder.repeats = request.repeats() == 0 ? kDefaultRepeats : request.repeats();

  absl::StatusOr<std::vector<LadderRung>> rungs = ParseRungs(request, engines, spec);
  if (!rungs.ok()) return rungs.status();
  ladder.rungs = *std::move(rungs);
  return ladder;
}

}  // namespace reduced::server
