// What Client::Ladder takes and returns.
#ifndef REDUCED_LADDER_H_
#define REDUCED_LADDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "reduced/array.h"

namespace reduced::client {

// Threads of a block along the columns and the rows of a product.
struct BlockShape {
  int x = 0;
  int y = 0;
};

// The product of an m x k and a k x n matrix: Matmul in reduced.proto.
struct MatmulOptions {
  std::int64_t m = 0;  // at least 1, as n
  std::int64_t n = 0;
  std::int64_t k = 0;                // at least 0
  int tile = 0;                      // 16 or 32; 0: 32
  std::vector<BlockShape> blocks{};  // that pipelines with a choice run with; none: 32 x 32
  bool sweep_blocks = false;         // instead of `blocks`: all that there are
  bool source_fill = false;          // a[i][k] = 2 k + i and b[k][j] = j - k instead of random elements
};

// An array for the server to generate, and the pipelines to time on it.
struct LadderOptions {
  std::string dtype{};
  std::int64_t count = 0;  // elements, at least 1; ServerInfo.max_ladder_bytes limits their size
  std::string op = "sum";
  std::optional<double> fill{};          // the value of every element; absent: random elements
  std::uint64_t seed = 0;                // of random elements: the same seed gives the same array
  std::vector<std::string> pipelines{};  // names of ServerInfo.pipelines; none: all that support the op and dtype
  // Threads per block. Each pipeline runs with each of them that it has. None: each pipeline runs with its default.
  std::vector<int> block_sizes{};
  int repeats = 0;  // timed runs, 1 to 1000; 0: 20
  // Times matrix products instead of reductions: without `count`, `op`, `fill` and `block_sizes`; of i32, f32 or f64.
  std::optional<MatmulOptions> matmul{};
  std::optional<absl::Duration> timeout{};  // of the whole ladder; overrides ClientOptions.timeout
};

// What all steps of a ladder have in common.
struct LadderStart {
  std::int64_t bytes = 0;       // of the array, or of three matrices
  int steps = 0;                // that follow
  Value expected{};             // the result of the CPU engine's default pipeline; none of a matrix product
  std::int64_t operations = 0;  // additions and multiplications of one matrix product
};

// How many blocks of a kernel fit on one multiprocessor, and what they use.
struct Occupancy {
  int block_size = 0;    // threads
  int registers = 0;     // per thread
  int shared_bytes = 0;  // per block
  int blocks_per_multiprocessor = 0;
  int max_threads_per_multiprocessor = 0;
};

// The measurement of one pipeline with one block size.
struct LadderStep {
  std::string pipeline{};
  std::string engine{};
  std::string device{};
  // The time of each repeat, by the clock of the GPU; wall time on the CPU.
  std::vector<double> kernel_us{};
  // What each repeat reads at least: the array, or the copy of it that a pipeline reduces in place, whose values have 8
  // bytes even if the elements have 4. 0: of a matrix product.
  std::int64_t read_bytes = 0;
  // The mean time that copying to scratch memory took before each repeat. Absent if the pipeline doesn't need that.
  std::optional<double> scratch_copy_us{};
  // What can be read at best, measured between the repeats: on a GPU by a kernel that only reads device memory; on the
  // CPU by as many threads as reduce the array, which only read it.
  std::optional<double> read_gb_per_s{};
  // Of matrix products: what the device adds and multiplies at best (not on the CPU), by how much bank conflicts slow
  // down reads of shared memory (from the layout), and the block, of pipelines that have a choice.
  std::optional<double> peak_gflops{};
  std::optional<int> bank_conflicts{};
  std::optional<BlockShape> block{};
  // Of pipelines that show what a branch costs: the share of a warp's threads that are active in it, by its arithmetic.
  std::optional<double> active_threads{};
  Value value{};           // of the last repeat; none of a matrix product
  bool correct = false;    // every repeat was; LadderStep in reduced.proto says what counts as correct
  bool same_bits = false;  // every repeat gave the same bits
  // Absent on the CPU, and if the pipeline chooses its launch itself.
  std::optional<Occupancy> occupancy{};
};

}  // namespace reduced::client

#endif  // REDUCED_LADDER_H_
