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
  int repeats = 0;                          // timed runs, 1 to 1000; 0: 20
  std::optional<absl::Duration> timeout{};  // of the whole ladder; overrides ClientOptions.timeout
};

// What all steps of a ladder have in common.
struct LadderStart {
  std::int64_t bytes = 0;  // of the array
  int steps = 0;           // that follow
  Value expected{};        // the result of the CPU engine's default pipeline
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
  // The mean time that copying to scratch memory took before each repeat. Absent if the pipeline doesn't need that.
  std::optional<double> scratch_copy_us{};
  // What can be read at best, measured between the repeats: on a GPU by a kernel that only reads device memory; on the
  // CPU by as many threads as reduce the array, which only read it.
  std::optional<double> read_gb_per_s{};
  Value value{};           // of the last repeat
  bool correct = false;    // every repeat was; LadderStep in reduced.proto says what counts as correct
  bool same_bits = false;  // every repeat gave the same bits
  // Absent on the CPU, and if the pipeline chooses its launch itself.
  std::optional<Occupancy> occupancy{};
};

}  // namespace reduced::client

#endif  // REDUCED_LADDER_H_
