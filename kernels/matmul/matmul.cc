#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#ifdef REDUCED_HAVE_CUDA
#include "kernels/matmul/launch.h"
#define REDUCED_MATMUL_KERNEL(kernel) &kernel
#else
#define REDUCED_MATMUL_KERNEL(kernel) nullptr
#endif

namespace reduced {
namespace {

constexpr std::string_view kLecture = "a lecture's matrix product in shared memory, N = 2048";
constexpr std::array<bool, 3> kAll = {true, true, true};
constexpr std::array<bool, 3> kFloats = {false, true, true};
constexpr std::array<bool, 3> kF64Only = {false, false, true};

std::int64_t RoundUp(std::int64_t side) {
  constexpr std::int64_t kLargestTile = 128;
  return (side + kLargestTile - 1) / kLargestTile * kLargestTile;
}

absl::Status ValidateSide(std::string_view name, std::int64_t side, std::int64_t least) {
  if (side >= least && side <= kMaxMatmulSide) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("matmul.%s: got %d; allowed: %d to %d", name, side, least, kMaxMatmulSide));
}

}  // namespace

const std::vector<MatmulRow>& MatmulRows() {
  static const auto* const rows = new std::vector<MatmulRow>{
      {.name = "matmul_host",
       .engine = EngineKind::kCpu,
       .summary = "one thread; B is transposed first, so that both factors are read in the order of memory",
       .origin = kLecture,
       .dtypes = kAll},
      {.name = "matmul_global",
       .summary = "one thread an element of C, from global memory",
       .origin = kLecture,
       .dtypes = kAll,
       .blocks = true,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulGlobal)},
      {.name = "matmul_smem_1",
       .summary = "tiles in shared memory, B's transposed: a warp reads one bank",
       .origin = kLecture,
       .dtypes = kAll,
       .tiles = true,
       .layout = &TransposedTile,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulShared1)},
      {.name = "matmul_smem_2",
       .summary = "rows of B's tile padded by one element: no bank conflicts",
       .origin = kLecture,
       .dtypes = kAll,
       .tiles = true,
       .layout = &PaddedTransposedTile,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulShared2)},
      {.name = "matmul_smem_3",
       .summary = "B's tile as it is: a warp reads a row",
       .origin = kLecture,
       .dtypes = kAll,
       .tiles = true,
       .layout = &StraightTile,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulShared3)},
      {.name = "matmul_smem_4",
       .summary = "2 elements of C a thread",
       .origin = kLecture,
       .dtypes = kAll,
       .tiles = true,
       .layout = &StraightTile,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulShared4)},
      {.name = "matmul_smem_5",
       .summary = "4 elements of C a thread",
       .origin = kLecture,
       .dtypes = kAll,
       .tiles = true,
       .layout = &StraightTile,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulShared5)},
      {.name = "matmul_register_tile",
       .summary = "8 x 8 elements of C a thread in registers, 128 x 128 a block; asynchronous copies to three buffers",
       .origin = "this project, after V. Volkov and J. Demmel, and NVIDIA CUTLASS",
       .dtypes = kFloats,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulRegisterTile)},
      {.name = "matmul_tensor_f64",
       .summary = "the multiplications by the tensor cores, in f64",
       .origin = "this project; PTX ISA, mma.sync",
       .dtypes = kF64Only,
       .compute_major = 8,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulTensorF64)},
      {.name = "cublas",
       .summary = "cublasSgemm and cublasDgemm, without TF32, if the server finds the library",
       .origin = "NVIDIA cuBLAS",
       .dtypes = kFloats,
       .cublas = true,
       .cuda = REDUCED_MATMUL_KERNEL(kMatmulCublas)},
  };
  return *rows;
}

const MatmulRow* FindMatmulRow(std::string_view name) {
  for (const MatmulRow& row : MatmulRows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool Supports(const MatmulRow& row, DType dtype) {
  const auto* const found = std::find(std::begin(kMatmulDTypes), std::end(kMatmulDTypes), dtype);
  return found != std::end(kMatmulDTypes) && row.dtypes[static_cast<std::size_t>(found - std::begin(kMatmulDTypes))];
}

absl::Status ValidateMatmul(const MatmulSpec& spec) {
  if (std::find(std::begin(kMatmulDTypes), std::end(kMatmulDTypes), spec.dtype) == std::end(kMatmulDTypes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("dtype: got %s for matrix products; allowed: i32, f32, f64", RowOf(spec.dtype).name));
  }
  absl::Status status = ValidateSide("m", spec.m, 1);
  status.Update(ValidateSide("n", spec.n, 1));
  status.Update(ValidateSide("k", spec.k, 0));
  if (!status.ok()) return status;
  const std::int64_t work = RoundUp(spec.m) * RoundUp(spec.n);
  if (spec.k > 0 && work > kMaxMatmulWork / spec.k) {
    return absl::InvalidArgumentError(
        absl::StrFormat("matmul: got m = %d, n = %d, k = %d; allowed: products of at most %d, with m and n rounded up "
                        "to multiples of 128",
                        spec.m, spec.n, spec.k, kMaxMatmulWork));
  }
  if (std::find(kMatmulTiles.begin(), kMatmulTiles.end(), spec.tile) == kMatmulTiles.end()) {
    return absl::InvalidArgumentError(absl::StrFormat("matmul.tile: got %d; allowed: 0 (the default, %d), %s",
                                                      spec.tile, kDefaultMatmulTile,
                                                      absl::StrJoin(kMatmulTiles, ", ")));
  }
  if (std::find(std::begin(kMatmulBlocks), std::end(kMatmulBlocks), spec.block) == std::end(kMatmulBlocks)) {
    const auto shape = [](std::string* out, const BlockShape& block) { absl::StrAppend(out, block.x, "x", block.y); };
    return absl::InvalidArgumentError(absl::StrFormat("matmul.blocks: got %dx%d; allowed: %s", spec.block.x,
                                                      spec.block.y, absl::StrJoin(kMatmulBlocks, ", ", shape)));
  }
  return absl::OkStatus();
}

std::optional<int> BankConflictsOf(const MatmulSpec& spec) {
  if (spec.row->layout == nullptr) return std::nullopt;
  return BankConflictWays(spec.row->layout(spec.tile), spec.tile, RowOf(spec.dtype).bytes);
}

void MatmulVerdict::Look(MatmulJob& job, MatmulMeasurement* measurement) {
  const std::string_view bits(static_cast<const char*>(job.c), static_cast<std::size_t>(job.spec.bytes_c()));
  const std::size_t hash = std::hash<std::string_view>()(bits);
  if (hash_ == hash) return;
  if (hash_.has_value()) measurement->same_bits = false;
  measurement->correct = job.is_right() && measurement->correct;
  hash_ = hash;
}

}  // namespace reduced
