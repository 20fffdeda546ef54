#include "server/wire/ladder.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/engine/pipelines.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/enums.h"

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

// The pipelines of a ladder. Without any in the request: the way up of this server's engines, as far as it
// supports `spec`.
absl::StatusOr<std::vector<const PipelineRow*>> ParsePipelines(const v1::LadderRequest& request, const Engines& engines,
                                                               const ReduceSpec& spec) {
  std::vector<const PipelineRow*> rows;
  if (request.pipelines().empty()) {
    for (const PipelineRow& row : Pipelines()) {
      if (row.on_the_way_up && Supports(row, spec.ops.front(), spec.dtype) && engines.Get(row.engine).ok())
        rows.push_back(&row);
    }
    return rows;
  }
  bool have_choice = false;
  for (const std::string& name : request.pipelines()) {
    if (name.empty())
      return absl::InvalidArgumentError("pipelines: got an empty name; allowed: those that GetServerInfo lists");
    ReduceSpec named = spec;
    named.pipeline = name;
    RETURN_IF_ERROR(ValidateSpec(named));
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
  ASSIGN_OR_RETURN(const std::vector<int> block_sizes, ParseBlockSizes(request));
  ASSIGN_OR_RETURN(const std::vector<const PipelineRow*> rows, ParsePipelines(request, engines, spec));
  std::vector<LadderRung> rungs;
  for (const PipelineRow* const row : rows) {
    ASSIGN_OR_RETURN(Engine* const engine, engines.Get(row->engine));
    spec.engine = row->engine;
    spec.pipeline = row->name;
    for (const int size : row->block_sizes ? block_sizes : std::vector<int>{0}) {
      spec.block_size = size;
      rungs.push_back({engine, spec});
    }
  }
  return rungs;
}

// The pipelines of matrix products that support the dtype; absent: all of them.
std::string MatmulNames(std::optional<DType> dtype) {
  std::vector<std::string> names;
  for (const MatmulRow& row : MatmulRows()) {
    if (!dtype.has_value() || Supports(row, *dtype)) names.emplace_back(row.name);
  }
  return absl::StrJoin(names, ", ");
}

// OK, or why a pipeline of matrix products can't be measured here.
absl::StatusOr<Engine*> EngineFor(const MatmulRow& row, const Engines& engines) {
  const absl::StatusOr<Engine*> engine = engines.Get(row.engine);
  if (!engine.ok()) {
    return absl::Status(engine.status().code(), absl::StrCat("pipelines: got ", std::string(row.name), " of engine ",
                                                             std::string(NameOf(row.engine)), "; allowed: those of ",
                                                             "engines that are here; ", engine.status().message()));
  }
  RETURN_IF_ERROR((*engine)->CheckMatmul(row));
  return *engine;
}

// The rungs of matrix products. Without any in the request: those that this server can measure.
absl::StatusOr<std::vector<const MatmulRow*>> ParseMatmulRows(const v1::LadderRequest& request, const Engines& engines,
                                                              DType dtype) {
  std::vector<const MatmulRow*> rows;
  if (request.pipelines().empty()) {
    for (const MatmulRow& row : MatmulRows()) {
      if (Supports(row, dtype) && EngineFor(row, engines).ok()) rows.push_back(&row);
    }
    return rows;
  }
  for (const std::string& name : request.pipelines()) {
    const MatmulRow* const row = FindMatmulRow(name);
    if (row == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat("pipelines: got %s for matrix products; allowed: %s",
                                                        Quoted(name), MatmulNames(std::nullopt)));
    }
    if (!Supports(*row, dtype)) {
      return absl::UnimplementedError(
          absl::StrFormat("pipelines: got %s for %s; allowed: %s", name, RowOf(dtype).name, MatmulNames(dtype)));
    }
    if (std::find(rows.begin(), rows.end(), row) != rows.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("pipelines: got %s twice; allowed: each pipeline once", name));
    }
    rows.push_back(row);
  }
  return rows;
}

absl::StatusOr<std::vector<BlockShape>> ParseBlocks(const v1::Matmul& request, MatmulSpec spec) {
  if (request.sweep_blocks()) {
    if (request.blocks().empty()) return std::vector<BlockShape>(std::begin(kMatmulBlocks), std::end(kMatmulBlocks));
    return absl::InvalidArgumentError("matmul.blocks: got some with sweep_blocks; allowed: none");
  }
  if (request.blocks().empty()) return std::vector<BlockShape>{kDefaultMatmulBlock};
  std::vector<BlockShape> blocks;
  for (const v1::BlockShape& shape : request.blocks()) {
    spec.block = {shape.x(), shape.y()};
    RETURN_IF_ERROR(ValidateMatmul(spec));
    if (std::find(blocks.begin(), blocks.end(), spec.block) != blocks.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("matmul.blocks: got %dx%d twice; allowed: each shape once", shape.x(), shape.y()));
    }
    blocks.push_back(spec.block);
  }
  return blocks;
}

// What only reductions have.
absl::Status CheckUnset(const v1::LadderRequest& request) {
  const std::pair<const char*, bool> fields[] = {{"count", request.count() != 0},
                                                 {"op", request.op() != v1::OP_UNSPECIFIED},
                                                 {"fill", request.has_fill()},
                                                 {"block_sizes", !request.block_sizes().empty()}};
  for (const auto& [name, is_set] : fields) {
    if (is_set) return absl::InvalidArgumentError(absl::StrCat(name, ": got some with matmul; allowed: none"));
  }
  return absl::OkStatus();
}

// What a rung may take at most: the slowest kernel and the host's one thread, with something to spare.
absl::Duration LongestTime(const MatmulRung& rung, int repeats) {
  const auto operations = static_cast<double>(rung.spec.operations());
  return rung.engine->kind() == EngineKind::kCpu ? absl::Seconds(5 + operations / 1e9)
                                                 : absl::Seconds((repeats + 1) * operations / 5e11);
}

absl::Status CheckRunTime(const ParsedMatmul& matmul, int repeats, absl::Duration most) {
  for (const MatmulRung& rung : matmul.rungs) {
    const absl::Duration longest = LongestTime(rung, repeats);
    if (longest <= most) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "matmul: got m = %d, n = %d, k = %d, for which %s may take %s; allowed: %s (--max_run_time) for each pipeline",
        matmul.spec.m, matmul.spec.n, matmul.spec.k, rung.spec.row->name,
        absl::FormatDuration(absl::Trunc(longest, absl::Seconds(1))), absl::FormatDuration(most)));
  }
  return absl::OkStatus();
}

// The least that the repeats of all rungs, and the one before them, can take: each reads the array at the best rate of
// its engine.
absl::Duration LeastTime(const ParsedLadder& ladder) {
  const auto bytes = static_cast<double>(ladder.spec.count * RowOf(ladder.spec.dtype).bytes);
  double micros = 0;
  for (const LadderRung& rung : ladder.rungs) {
    const Calibration calibration = rung.engine->calibration();
    const double gb_per_s = std::max(calibration.host_gb_per_s, calibration.held_gb_per_s);
    if (gb_per_s > 0) micros += (ladder.repeats + 1) * bytes / (gb_per_s * 1e3);
  }
  return absl::Microseconds(micros);
}

absl::Status CheckRunTime(const ParsedLadder& ladder, absl::Duration most) {
  const absl::Duration least = LeastTime(ladder);
  if (least <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "repeats: got %d of %d elements by %d pipelines, which take %s or more; allowed: %s (--max_run_time) for all of "
      "them",
      ladder.repeats, ladder.spec.count, ladder.rungs.size(),
      absl::FormatDuration(absl::Trunc(least, absl::Milliseconds(1))), absl::FormatDuration(most)));
}

absl::StatusOr<ParsedMatmul> ParseMatmul(const v1::LadderRequest& request, DType dtype, const Engines& engines,
                                         const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckUnset(request));
  const v1::Matmul& from = request.matmul();
  ParsedMatmul matmul{.spec = {.dtype = dtype, .m = from.m(), .n = from.n(), .k = from.k()},
                      .source_fill = from.source_fill()};
  if (from.tile() != 0) matmul.spec.tile = from.tile();
  RETURN_IF_ERROR(ValidateMatmul(matmul.spec));
  if (matmul.bytes() > limits.max_ladder_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("matmul: got matrices of %d bytes together; allowed: %d",
                                                      matmul.bytes(), limits.max_ladder_bytes));
  }
  const absl::StatusOr<std::vector<BlockShape>> blocks = ParseBlocks(from, matmul.spec);
  if (!blocks.ok()) return blocks.status();
  const absl::StatusOr<std::vector<const MatmulRow*>> rows = ParseMatmulRows(request, engines, dtype);
  if (!rows.ok()) return rows.status();
  const auto has = [&rows](bool MatmulRow::*choice) {
    return std::any_of(rows->begin(), rows->end(), [choice](const MatmulRow* row) { return row->*choice; });
  };
  if (!request.pipelines().empty() && from.tile() != 0 && !has(&MatmulRow::tiles)) {
    return absl::InvalidArgumentError(
        "matmul.tile: got one; allowed: none, since none of these pipelines has a choice");
  }
  if (!request.pipelines().empty() && (!from.blocks().empty() || from.sweep_blocks()) && !has(&MatmulRow::blocks)) {
    return absl::InvalidArgumentError(
        "matmul.blocks: got some; allowed: none, since none of these pipelines has a choice");
  }
  for (const MatmulRow* const row : *rows) {
    ASSIGN_OR_RETURN(Engine* const engine, EngineFor(*row, engines));
    matmul.spec.row = row;
    for (const BlockShape& block : row->blocks ? *blocks : std::vector<BlockShape>{kDefaultMatmulBlock}) {
      matmul.spec.block = block;
      matmul.rungs.push_back({engine, matmul.spec});
    }
  }
  return matmul;
}

absl::StatusOr<int> ParseRepeats(int repeats) {
  constexpr int kDefaultRepeats = 20;
  constexpr int kMaxRepeats = 1000;
  if (repeats < 0 || repeats > kMaxRepeats) {
    return absl::InvalidArgumentError(
        absl::StrFormat("repeats: got %d; allowed: 0 (the default, %d) to %d", repeats, kDefaultRepeats, kMaxRepeats));
  }
  return repeats == 0 ? kDefaultRepeats : repeats;
}

}  // namespace

absl::StatusOr<ParsedLadder> ParseLadder(const v1::LadderRequest& request, const Engines& engines,
                                         const RequestLimits& limits) {
  ParsedLadder ladder;
  ReduceSpec& spec = ladder.spec;

  ASSIGN_OR_RETURN(const DType dtype, ParseDType("dtype", request.dtype()));
  spec.dtype = dtype;
  const absl::StatusOr<int> repeats = ParseRepeats(request.repeats());
  if (request.has_matmul()) {
    ASSIGN_OR_RETURN(ParsedMatmul matmul, ParseMatmul(request, dtype, engines, limits));
    if (!repeats.ok()) return repeats.status();
    RETURN_IF_ERROR(CheckRunTime(matmul, *repeats, limits.max_run_time));
    spec.ops = {Op::kSum};
    spec.count = matmul.bytes() / RowOf(dtype).bytes;
    ladder.contents = {.dtype = dtype, .seed = request.seed()};
    ladder.repeats = *repeats;
    ladder.matmul = std::move(matmul);
    return ladder;
  }
  ASSIGN_OR_RETURN(const Op op, ParseOp("op", request.op()));
  spec.ops = {op};
  const std::int64_t max_count = limits.max_ladder_bytes / RowOf(dtype).bytes;
  if (request.count() < 1 || request.count() > max_count) {
    return absl::InvalidArgumentError(absl::StrFormat("count: got %d; allowed: 1 to %d, which is %d bytes of %s",
                                                      request.count(), max_count, limits.max_ladder_bytes,
                                                      RowOf(dtype).name));
  }
  spec.count = request.count();
  spec.overflow_policy = OverflowPolicy::kWrap;  // sums of random integers overflow; their last 64 bits are compared
  RETURN_IF_ERROR(ValidateSpec(spec));

  ladder.contents = {.dtype = dtype, .seed = request.seed()};
  if (request.has_fill()) {
    const absl::StatusOr<std::uint64_t> fill = FillWord(dtype, request.fill());
    if (!fill.ok()) return absl::InvalidArgumentError(absl::StrCat("fill: ", fill.status().message()));
    ladder.contents.fill = *fill;
  }
  if (!repeats.ok()) return repeats.status();
  ladder.repeats = *repeats;

  ASSIGN_OR_RETURN(ladder.rungs, ParseRungs(request, engines, spec));
  RETURN_IF_ERROR(CheckRunTime(ladder, limits.max_run_time));
  return ladder;
}

void ToProto(const Occupancy& occupancy, v1::Occupancy* out) {
  out->set_block_size(occupancy.block_size);
  out->set_registers(occupancy.registers);
  out->set_shared_bytes(occupancy.shared_bytes);
  out->set_blocks_per_multiprocessor(occupancy.blocks_per_multiprocessor);
  out->set_max_threads_per_multiprocessor(occupancy.max_threads_per_multiprocessor);
}

}  // namespace reduced::server
