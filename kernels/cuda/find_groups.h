// How groups are found on a CUDA device: offsets and keys are checked as they are copied, keys that are not given are
// looked up, and rows or their elements are sorted by key.
#ifndef REDUCED_KERNELS_CUDA_FIND_GROUPS_H_
#define REDUCED_KERNELS_CUDA_FIND_GROUPS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/cuda/groups.h"

namespace reduced {

// What the checks say, in device memory.
struct GroupChecks {
  std::int64_t bad = 0;    // the first offset that descends or leaves the array, or row of a key outside of the groups
  std::int64_t first = 0;  // of the offsets
  std::int64_t last = 0;
};
inline constexpr std::int64_t kNoneBad = 0x7f7f7f7f7f7f7f7f;

struct CheckOffsetsLaunch {
  DType dtype = DType::kI64;  // or i32
  const void* offsets = nullptr;
  std::int64_t count = 0;          // of offsets, > 0
  std::int64_t rows = 0;           // what they may not exceed
  std::int64_t* bounds = nullptr;  // the offsets, in 64 bits
  GroupChecks* checks = nullptr;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchCheckOffsets(const CheckOffsetsLaunch& launch);

struct CheckKeysLaunch {
  DType dtype = DType::kI32;
  const void* keys = nullptr;
  std::int64_t rows = 0;         // > 0
  std::int64_t groups = 0;       // of keys 0 to groups - 1, fewer than 2^32 - 1
  bool drop = false;             // keys outside are not bad
  GroupArray array;              // its mask and columns: rows of which nothing is left have no group
  std::uint32_t* ids = nullptr;  // the group of each row, or `groups`
  GroupChecks* checks = nullptr;
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchCheckKeys(const CheckKeysLaunch& launch);

// The least and the greatest key of the rows that the mask leaves, as unsigned numbers in the order of the keys. least
// > greatest: it leaves none.
struct KeyRange {
  std::uint64_t least = 0;
  std::uint64_t greatest = 0;

  constexpr std::uint64_t span() const { return greatest - least; }
};

// Stands for the group of a row that has none.
inline constexpr std::uint32_t kNoKey = ~0U;

// The keys of rows. Another process may change them, so that each pass may see other ones.
struct KeysToFind {
  DType dtype = DType::kI32;
  const void* keys = nullptr;
  std::int64_t rows = 0;  // > 0
  GroupArray array;       // as of CheckKeysLaunch
};

struct KeyRangeLaunch {
  KeysToFind keys;
  KeyRange* range = nullptr;  // device memory
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchKeyRange(const KeyRangeLaunch& launch);

// Finds which keys there are. If the range has not many more numbers than there are rows, each of them has a place in a
// table; else the keys are sorted, by CUB's radix sort.
struct FindKeysLaunch {
  KeysToFind keys;
  KeyRange range{};                // least <= greatest
  void* found = nullptr;           // device memory for most_groups() keys: those that there are, ascending
  std::int64_t* groups = nullptr;  // device memory: how many
  std::uint32_t* ids = nullptr;    // the group of each row, or kNoKey
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;
  cudaStream_t stream = nullptr;

  std::int64_t most_groups() const {
    const auto rows = static_cast<std::uint64_t>(keys.rows);
    return static_cast<std::int64_t>(range.span() < rows ? range.span() + 1 : rows);
  }
};
// False: there are more rows than the toolkit's CUB can sort.
bool CanFindKeys(const FindKeysLaunch& launch);
// How much scratch memory that takes.
cudaError_t FindKeysScratch(const FindKeysLaunch& launch, std::size_t* bytes);
cudaError_t LaunchFindKeys(const FindKeysLaunch& launch);

// Numbers rows: 0, 1 and so on.
cudaError_t LaunchNumberRows(std::uint32_t* numbers, std::int64_t rows, cudaStream_t stream);

// Values of rows in the order of the rows' groups, and of the rows within each, by CUB's stable radix sort.
struct SortByGroupLaunch {
  std::int64_t rows = 0;    // > 0, fewer than 2^32
  std::int64_t groups = 0;  // fewer than 2^32 - 1
  int low_bit = 0;          // groups that differ in lower bits only are taken for one
  // The group of each row. `groups` and kNoKey: none, which come last; greater ones have any place.
  const std::uint32_t* ids = nullptr;
  std::uint32_t* sorted_ids = nullptr;  // memory for as many
  int value_bytes = 4;                  // 1, 2, 4 or 8
  const void* values = nullptr;
  void* sorted_values = nullptr;
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;
  cudaStream_t stream = nullptr;
};
// How much scratch memory that takes.
cudaError_t SortByGroupScratch(const SortByGroupLaunch& launch, std::size_t* bytes);
cudaError_t LaunchSortByGroup(const SortByGroupLaunch& launch);

// Where the rows of each group begin.
struct FindBoundsLaunch {
  const std::uint32_t* sorted_ids = nullptr;
  std::int64_t rows = 0;
  std::int64_t groups = 0;
  std::int64_t* bounds = nullptr;  // groups + 1
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchFindBounds(const FindBoundsLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_FIND_GROUPS_H_
