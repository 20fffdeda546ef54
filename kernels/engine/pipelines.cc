#include "kernels/engine/pipelines.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/algebra/validate.h"
#include "kernels/engine/engines.h"
#include "kernels/exact/answers.h"
#include "kernels/ladder/host_rungs.h"
#ifdef REDUCED_HAVE_CUDA
#include "kernels/cuda/pipeline.h"
#endif
#include "kernels/system/quoted.h"

namespace reduced {
namespace {

constexpr std::string_view kBook = "Professional CUDA C Programming, chapter 3";
#ifdef REDUCED_HAVE_CUDA
constexpr std::string_view kHarris = "M. Harris, Optimizing Parallel Reduction in CUDA";
constexpr std::string_view kGroups = "CUDA C++ Programming Guide, Cooperative Groups";
constexpr std::string_view kWarpGuide = "NVIDIA, Using CUDA Warp-Level Primitives";
#endif

std::string NamesOf(const std::vector<const PipelineRow*>& rows) {
  const auto name = [](std::string* out, const PipelineRow* row) { out->append(row->name); };
  return absl::StrJoin(rows, ", ", name);
}

bool SupportsAll(const PipelineRow& row, const ReduceSpec& spec) {
  if (row.rung && (spec.ops.size() > 1 || (spec.nan_policy == NanPolicy::kOmit && RowOf(spec.dtype).is_float))) {
    return false;
  }
  if (!row.exact && WantsExactSums(spec)) return false;
  return std::all_of(spec.ops.begin(), spec.ops.end(), [&](Op op) { return Supports(row, op, spec.dtype); });
}

// That the pipeline lacks something that the spec asks for, and those that have it.
absl::Status Unsupported(const PipelineRow& row, const ReduceSpec& spec) {
  std::vector<const PipelineRow*> others;
  for (const PipelineRow& each : Pipelines()) {
    if (SupportsAll(each, spec)) others.push_back(&each);
  }
  const auto name = [](std::string* out, Op op) { out->append(RowOf(op).name); };
  return absl::UnimplementedError(absl::StrFormat(
      "pipeline: got %s for %s of %s%s%s%s; allowed: %s", row.name, absl::StrJoin(spec.ops, ", ", name),
      RowOf(spec.dtype).name, spec.nan_policy == NanPolicy::kOmit ? " without the NaNs" : "",
      WantsExactSums(spec) ? ", exactly" : "", spec.ops.size() > 1 ? ", in one request" : "", NamesOf(others)));
}

absl::Status ValidatePipeline(const ReduceSpec& spec) {
  const PipelineRow* const row = FindPipeline(spec.pipeline);
  if (row == nullptr) {
    std::vector<const PipelineRow*> all;
    for (const PipelineRow& each : Pipelines()) all.push_back(&each);
    return absl::InvalidArgumentError(
        absl::StrFormat("pipeline: got %s; allowed: %s", Quoted(spec.pipeline), NamesOf(all)));
  }
  if (spec.engine != EngineKind::kAuto && spec.engine != row->engine) {
    return absl::InvalidArgumentError(absl::StrFormat("engine: got %s with pipeline %s; allowed: auto, %s",
                                                      NameOf(spec.engine), row->name, NameOf(row->engine)));
  }
  if (spec.block_size != 0 && !row->block_sizes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("block_size: got %d with pipeline %s; allowed: 0, since it has no choice of block sizes",
                        spec.block_size, row->name));
  }
  return SupportsAll(*row, spec) ? absl::OkStatus() : Unsupported(*row, spec);
}

}  // namespace

const std::vector<PipelineRow>& Pipelines() {
  static const auto* const rows = new std::vector<PipelineRow>{
      {.name = "sequential",
       .engine = EngineKind::kCpu,
       .summary = "one thread, one element after the other",
       .origin = "the definition",
       .block_sizes = false,
       .host = &kSequential},
      {.name = "recursive_pairs",
       .engine = EngineKind::kCpu,
       .summary = "one thread: the upper half of the array is added to the lower, until one element is left",
       .origin = kBook,
       .block_sizes = false,
       .host = &kRecursivePairs},
      {.name = "tiled_simd",
       .engine = EngineKind::kCpu,
       .summary = "cache-sized tiles, every accumulator folded by vector instructions while a tile is in the L1 cache; "
                  "tiles on all threads",
       .origin = "this project; vectors by Highway, threads by oneTBB",
       .rung = false,
       .block_sizes = false,
       .exact = true},
#ifdef REDUCED_HAVE_CUDA
      {.name = "neighbored",
       .engine = EngineKind::kCuda,
       .summary = "in place in global memory: every second thread adds its neighbour, then every fourth...",
       .origin = kBook,
       .cuda = &kNeighbored},
      {.name = "neighbored_less",
       .engine = EngineKind::kCuda,
       .summary = "the same additions by the first threads of the block: whole warps work or rest",
       .origin = kBook,
       .cuda = &kNeighboredLess},
      {.name = "interleaved",
       .engine = EngineKind::kCuda,
       .summary = "the upper half of a block's elements is added to the lower: loads of a warp are adjacent",
       .origin = kBook,
       .cuda = &kInterleaved},
      {.name = "unroll2",
       .engine = EngineKind::kCuda,
       .summary = "a block first adds up 2 blocks of elements: half the blocks, no thread idle at the start",
       .origin = kBook,
       .cuda = &kUnroll2},
      {.name = "unroll4",
       .engine = EngineKind::kCuda,
       .summary = "4 blocks of elements: more loads in flight for each thread",
       .origin = kBook,
       .cuda = &kUnroll4},
      {.name = "unroll8",
       .engine = EngineKind::kCuda,
       .summary = "8 blocks of elements",
       .origin = kBook,
       .cuda = &kUnroll8},
      {.name = "unroll_warps2",
       .engine = EngineKind::kCuda,
       .summary = "unroll2, and the last warp goes on without block-wide barriers",
       .origin = kBook,
       .cuda = &kUnrollWarps2},
      {.name = "unroll_warps8",
       .engine = EngineKind::kCuda,
       .summary = "unroll8, and the last warp goes on without block-wide barriers",
       .origin = kBook,
       .cuda = &kUnrollWarps8},
      {.name = "complete_unroll8",
       .engine = EngineKind::kCuda,
       .summary = "the loop over strides written out too, with tests of the block's size at run time",
       .origin = kBook,
       .cuda = &kCompleteUnroll8},
      {.name = "template_unroll8",
       .engine = EngineKind::kCuda,
       .summary = "the block's size as a template parameter: those tests cost nothing",
       .origin = kBook,
       .cuda = &kTemplateUnroll8},
      {.name = "shared_neighbored",
       .engine = EngineKind::kCuda,
       .summary = "in shared memory: every second thread adds its neighbour, then every fourth...",
       .origin = kHarris,
       .cuda = &kSharedNeighbored},
      {.name = "shared_neighbored_less",
       .engine = EngineKind::kCuda,
       .summary = "the same by the first threads of the block: no divergence, but bank conflicts",
       .origin = kHarris,
       .cuda = &kSharedNeighboredLess},
      {.name = "shared_interleaved",
       .engine = EngineKind::kCuda,
       .summary = "halves of the block's elements: no bank conflicts",
       .origin = kHarris,
       .cuda = &kSharedInterleaved},
      {.name = "shared_first_add",
       .engine = EngineKind::kCuda,
       .summary = "each thread adds 2 elements as it loads: half the blocks, no thread idle at the start",
       .origin = kHarris,
       .cuda = &kSharedFirstAdd},
      {.name = "shared_unroll_warp",
       .engine = EngineKind::kCuda,
       .summary = "the same, and the last warp goes on without block-wide barriers",
       .origin = kHarris,
       .cuda = &kSharedUnrollWarp},
      {.name = "shared_atomic",
       .engine = EngineKind::kCuda,
       .summary = "shared_interleaved with one atomic a block in place of the pass over the blocks' results",
       .origin = kHarris,
       .fixed_order = false,
       .cuda = &kSharedAtomic},
      {.name = "warp_sync",
       .engine = EngineKind::kCuda,
       .summary = "the last warp goes on in shared memory, kept in step by __syncwarp; one atomic a block",
       .origin = kWarpGuide,
       .fixed_order = false,
       .cuda = &kWarpSync},
      {.name = "warp_shuffle",
       .engine = EngineKind::kCuda,
       .summary = "the last warp passes registers by shuffles; one atomic a block",
       .origin = kWarpGuide,
       .fixed_order = false,
       .cuda = &kWarpShuffle},
      {.name = "cooperative_groups_tree",
       .engine = EngineKind::kCuda,
       .summary =
           "halves in shared memory with the group's sync() after each step, the last warp by shuffles of a tile; one "
           "atomic a block",
       .origin = kGroups,
       .fixed_order = false,
       .cuda = &kCooperativeGroupsTree},
      {.name = "cooperative_groups",
       .engine = EngineKind::kCuda,
       .summary = "each warp by the library's reduce over a tile of 32, one atomic a block",
       .origin = kGroups,
       .fixed_order = false,
       .cuda = &kCooperativeGroups},
      {.name = "two_level_shuffle",
       .engine = EngineKind::kCuda,
       .summary = "shuffles in every warp, shared memory across the warps of the block: two barriers",
       .origin = "J. Luitjens, Faster Parallel Reductions on Kepler",
       .cuda = &kTwoLevelShuffle},
      {.name = "grid_stride_two_pass",
       .engine = EngineKind::kCuda,
       .summary = "at most 10240 blocks, each thread adds elements a grid apart in a register; then one block",
       .origin = kHarris,
       .cuda = &kGridStrideTwoPass},
      {.name = "divergent_map",
       .engine = EngineKind::kCuda,
       .summary = "elements go through a branch that every second thread takes: both ways, one after the other",
       .origin = kBook,
       .on_the_way_up = false,
       .active_threads = 0.5,
       .cuda = &kDivergentMap},
      {.name = "uniform_map",
       .engine = EngineKind::kCuda,
       .summary = "the same branch, which every second warp takes: one way each",
       .origin = kBook,
       .on_the_way_up = false,
       .active_threads = 1,
       .cuda = &kUniformMap},
      {.name = "cub",
       .engine = EngineKind::kCuda,
       .summary = "DeviceReduce::TransformReduce of the CUDA Core Compute Libraries",
       .origin = "NVIDIA CUB",
       .block_sizes = false,
       .cuda = &kCub},
      {.name = "single_pass",
       .engine = EngineKind::kCuda,
       .summary = "one launch: 16-byte loads, warp shuffles, and the last block to finish combines the blocks in index "
                  "order",
       .origin = "after M. Harris, Optimizing Parallel Reduction in CUDA, and the CUDA sample threadFenceReduction",
       .rung = false,
       .block_sizes = false,
       .exact = true,
       .cuda = &kSinglePass},
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

const PipelineRow& DefaultPipeline(EngineKind engine) {
  for (const PipelineRow& row : Pipelines()) {
    if (!row.rung && row.engine == engine) return row;
  }
  __builtin_unreachable();  // each engine that was built has one
}

std::vector<Op> OpsOf(const PipelineRow& row) {
  std::vector<Op> ops;
  for (const OpRow& op : kOps) {
    const auto has = [&](const DTypeRow& dtype) { return Supports(row, op.op, dtype.dtype); };
    if (std::any_of(std::begin(kDTypes), std::end(kDTypes), has)) ops.push_back(op.op);
  }
  return ops;
}

std::vector<DType> DTypesOf(const PipelineRow& row) {
  std::vector<DType> dtypes;
  for (const DTypeRow& dtype : kDTypes) {
    const auto has = [&](const OpRow& op) { return Supports(row, op.op, dtype.dtype); };
    if (std::any_of(std::begin(kOps), std::end(kOps), has)) dtypes.push_back(dtype.dtype);
  }
  return dtypes;
}

Precision DefaultPrecision(std::string_view pipeline) {
  const PipelineRow* const row = pipeline.empty() ? nullptr : FindPipeline(pipeline);
  return row == nullptr || row->exact ? Precision::kExact : Precision::kF64;
}

bool WantsExactSums(const ReduceSpec& spec) { return ExactAccumulatorsFor(spec) != 0; }

absl::Status ValidateSpec(const ReduceSpec& spec, bool op_errors, AnswerSource source) {
  const auto always_answers = [&](const OpCall& call) { return LeastElements(call, spec.dtype) == 0; };
  if (op_errors && spec.count == 0 && std::any_of(spec.ops.begin(), spec.ops.end(), always_answers)) {
    ReduceSpec one = spec;
    one.count = 1;
    return ValidateSpec(one, false, source);
  }
  if (const absl::Status status = ValidateOps(spec); !status.ok()) return status;
  const auto has_accumulator = [](Op op) { return HasAccumulator(op); };
  const auto without = std::find_if_not(spec.ops.begin(), spec.ops.end(), has_accumulator);
  if (source == AnswerSource::kState && without != spec.ops.end()) {
    return absl::UnimplementedError(
        absl::StrFormat("op %s: got a request that is answered from a state; allowed: requests that are answered in "
                        "arrays, without their states",
                        RowOf(*without).name));
  }
  if (spec.block_size != 0) {
    if (std::find(kBlockSizes.begin(), kBlockSizes.end(), spec.block_size) == kBlockSizes.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("block_size: got %d; allowed: 0 (the default), %s",
                                                        spec.block_size, absl::StrJoin(kBlockSizes, ", ")));
    }
    if (spec.pipeline.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "block_size: got %d without a pipeline; allowed: 0, since the default pipelines have no choice",
          spec.block_size));
    }
  }
  return spec.pipeline.empty() ? absl::OkStatus() : ValidatePipeline(spec);
}

}  // namespace reduced
