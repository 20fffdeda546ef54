// The matrix product as a reduction: C[i][j] is the sum over k of A[i][k] B[k][j]. The rungs of its ladder, and what is
// measured of them.
//
// To add one: a file in this folder, its line in launch.h, and its row in matmul.cc.
#ifndef REDUCED_KERNELS_MATMUL_MATMUL_H_
#define REDUCED_KERNELS_MATMUL_MATMUL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/spec.h"
#include "kernels/engine/occupancy.h"
#include "kernels/engine/why_stop.h"
#include "kernels/matmul/tile_layout.h"

namespace reduced {

struct MatmulKernel;  // launch.h

// Threads of a block along the columns and the rows of C.
struct BlockShape {
  int x = 0;
  int y = 0;
  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

struct MatmulRow {
  std::string_view name;
  EngineKind engine = EngineKind::kCuda;
  std::string_view summary;
  std::string_view origin;
  std::array<bool, 3> dtypes{};  // i32, f32, f64
  bool tiles = false;            // takes MatmulSpec::tile
  bool blocks = false;           // takes MatmulSpec::block
  int compute_major = 0;         // of the least GPU that has what it needs
  bool cublas = false;           // needs that library
  // Where B's tile lies in shared memory, if a warp reads one element a lane from it.
  MatmulTileLayout (*layout)(int tile) = nullptr;
  const MatmulKernel* cuda = nullptr;  // of engine kCuda; null in builds without CUDA
};

inline constexpr DType kMatmulDTypes[] = {DType::kI32, DType::kF32, DType::kF64};
inline constexpr std::array<int, 2> kMatmulTiles = {16, 32};
inline constexpr int kDefaultMatmulTile = 32;
inline constexpr BlockShape kMatmulBlocks[] = {{8, 8},   {16, 8},  {16, 16},  {32, 4},  {32, 8},  {32, 16}, {32, 32},
                                               {64, 4},  {64, 8},  {64, 16},  {128, 1}, {128, 8}, {256, 1}, {256, 4},
                                               {512, 1}, {512, 2}, {1024, 1}, {1, 32},  {1, 256}};
inline constexpr BlockShape kDefaultMatmulBlock = {32, 32};
inline constexpr std::int64_t kMaxMatmulSide = std::int64_t{1} << 20;
// Multiplications of one product, its sides rounded up to the largest tile: the slowest rung takes seconds for so many,
// and nothing can stop a kernel.
inline constexpr std::int64_t kMaxMatmulWork = std::int64_t{1} << 40;

// The rungs, in the order of the ladder: also those that this build or machine can't run.
const std::vector<MatmulRow>& MatmulRows();
// The row called `name`, or null.
const MatmulRow* FindMatmulRow(std::string_view name);

bool Supports(const MatmulRow& row, DType dtype);

// One product by one rung.
struct MatmulSpec {
  const MatmulRow* row = nullptr;
  DType dtype = DType::kF32;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int tile = kDefaultMatmulTile;
  BlockShape block = kDefaultMatmulBlock;

  std::int64_t bytes_a() const { return m * k * RowOf(dtype).bytes; }
  std::int64_t bytes_b() const { return k * n * RowOf(dtype).bytes; }
  std::int64_t bytes_c() const { return m * n * RowOf(dtype).bytes; }
  std::int64_t operations() const { return 2 * m * n * k; }  // additions and multiplications
};

// OK, or INVALID_ARGUMENT: a dtype that no rung has, a side or their product out of range, a tile or block that is none
// of the above.
absl::Status ValidateMatmul(const MatmulSpec& spec);

// How many times a warp that reads B's tile takes the time of an access without bank conflicts; absent: the rung does
// not read shared memory that way.
std::optional<int> BankConflictsOf(const MatmulSpec& spec);

struct MatmulJob {
  MatmulSpec spec;
  const void* a = nullptr;  // host memory, row-major, aligned to 8 bytes; as `b` unchanged until `done` runs
  const void* b = nullptr;
  void* c = nullptr;  // host memory for the product
  // Whether the product in `c` is right; anything once WhyStop has a reason. Called by the engine, for each repeat
  // whose bits differ from the one before.
  absl::AnyInvocable<bool()> is_right{};
  absl::Time deadline = absl::InfiniteFuture();
  CancelFlag cancelled{};  // may be null
  RunLimit limit{};        // starts when the job gets a lane
  std::uint64_t caller = 0;
};

inline absl::Status WhyStop(const MatmulJob& job) { return WhyStop(job.cancelled, job.deadline, job.limit); }

struct MatmulMeasurement {
  Execution ran{};
  std::vector<double> kernel_us{};  // of each repeat; at least one
  bool correct = true;              // all were
  bool same_bits = true;            // all had
  // Additions and multiplications of the dtype that the device does at best, 10^9 a second; absent: not measured.
  std::optional<double> peak_gflops{};
  std::optional<Occupancy> occupancy{};
};

// Follows the products of a job's repeats.
class MatmulVerdict {
 public:
  // Looks at the product in job.c.
  void Look(MatmulJob& job, MatmulMeasurement* measurement);

 private:
  std::optional<std::size_t> hash_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_MATMUL_H_
