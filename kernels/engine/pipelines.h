// The pipelines: the ways to reduce an array that a request can choose from, by name.
//
// To add one: a file in kernels/ladder, and a row in pipelines.cc.
#ifndef REDUCED_KERNELS_ENGINE_PIPELINES_H_
#define REDUCED_KERNELS_ENGINE_PIPELINES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/algebra/spec.h"

namespace reduced {

struct CudaPipeline;  // cuda/pipeline.h
struct HostRung;      // ladder/host_rungs.h

struct PipelineRow {
  std::string_view name;
  EngineKind engine;
  std::string_view summary;
  std::string_view origin;
  // A production pipeline takes any ops together, of any dtype, and either NaN policy. A rung of the ladder takes one
  // op at a time, if RungSupports() it, and NaNs propagate.
  bool rung = true;
  // Whether a ladder has the rung if the request names none; others show something beside the way up.
  bool on_the_way_up = true;
  // Of rungs that show what a branch costs: the share of a warp's threads that are active in it, by its arithmetic.
  std::optional<double> active_threads{};
  // The same bits run after run: float sums in Precision::kF64 are added in an order that depends only on the length
  // and, of single_pass, on the address modulo 128 bytes and on how the array is cut into chunks.
  bool fixed_order = true;
  bool block_sizes = true;             // takes ReduceSpec.block_size
  bool exact = false;                  // has Precision::kExact
  const CudaPipeline* cuda = nullptr;  // of engine kCuda
  const HostRung* host = nullptr;      // of rungs of engine kCpu
};

inline constexpr std::array<int, 5> kBlockSizes = {64, 128, 256, 512, 1024};
inline constexpr int kDefaultBlockSize = 512;

// The pipelines of this build, in the order of the ladder: each is, or was when it was new, faster than the one before.
const std::vector<PipelineRow>& Pipelines();
// The row called `name`, or null.
const PipelineRow* FindPipeline(std::string_view name);
// What an engine runs when nothing is asked for.
const PipelineRow& DefaultPipeline(EngineKind engine);

// What every rung supports.
constexpr bool RungSupports(Op op, DType dtype) {
  constexpr std::array kDTypes = {DType::kI32, DType::kI64, DType::kU32, DType::kF32, DType::kF64};
  constexpr std::array kOps = {Op::kSum,        Op::kProd,  Op::kMin,   Op::kMax, Op::kMean,
                               Op::kSumSquares, Op::kL2,    Op::kAny,   Op::kAll, Op::kCountNonzero,
                               Op::kBitAnd,     Op::kBitOr, Op::kBitXor};
  bool known_dtype = false;
  for (const DType each : kDTypes) known_dtype = known_dtype || each == dtype;
  bool known_op = false;
  for (const Op each : kOps) known_op = known_op || each == op;
  return known_dtype && known_op && Supports(op, dtype);
}

// One op, of one dtype.
constexpr bool Supports(const PipelineRow& row, Op op, DType dtype) {
  if (row.engine == EngineKind::kCuda && !HasKernels(dtype)) return false;
  return row.rung ? RungSupports(op, dtype) : Supports(op, dtype);
}

// The ops that a pipeline supports for some dtype, and the dtypes for some op.
std::vector<Op> OpsOf(const PipelineRow& row);
std::vector<DType> DTypesOf(const PipelineRow& row);

// The precision of a request that names none: exact, unless it names a pipeline that has no exact sums. `pipeline`:
// empty: none.
Precision DefaultPrecision(std::string_view pipeline);

// Whether the spec asks for exact sums, and for an op that has them.
bool WantsExactSums(const ReduceSpec& spec);

// What the answers are read from: a State of the array, or what the outputs of a Partition have.
enum class AnswerSource : std::uint8_t { kState, kPartition };

// OK, or what is wrong with the spec itself, whatever the engine: INVALID_ARGUMENT for no op, an op the dtype lacks, a
// negative count or ddof, an unknown pipeline or one of another engine than the one asked for, a block size that the
// pipeline doesn't take. UNIMPLEMENTED: the pipeline doesn't support these ops, dtype, NaN policy or precision; the
// message names those that do; or an op has no State to answer it from. `op_errors`: an empty array is an error of
// single ops, and so of the spec only if it is one of every op.
absl::Status ValidateSpec(const ReduceSpec& spec, bool op_errors = false, AnswerSource source = AnswerSource::kState);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_PIPELINES_H_
