// Sums by key into few groups on a CUDA device, without sorting the rows: integers in shared memory, of a unit so small
// that hardly an element has bits below it.
#ifndef REDUCED_KERNELS_CUDA_KEY_TABLES_H_
#define REDUCED_KERNELS_CUDA_KEY_TABLES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"

namespace reduced {

// Of one group: the sum of its elements that are not listed is (high 2^32 + low) 2^unit.
struct KeySum {
  unsigned long long low = 0;
  long long high = 0;
  unsigned long long count = 0;  // of these elements
};

// An element that is no multiple of the unit, or -0, which would be lost in an integer, or not finite.
struct ListedElement {
  double value = 0;
  std::uint64_t group = 0;  // as wide as the value: all bytes go to the host, and padding would not be initialized
};

// Precedes the sums in device memory.
struct KeyTablesHeader {
  unsigned largest = 0;  // pattern of the magnitudes of finite elements
  int unit = 0;          // as a power of two; 0 for integers
  unsigned listed = 0;   // elements; more than there was room for: the sums are not complete
  unsigned unused = 0;
};

struct KeyTablesLaunch {
  static constexpr std::int64_t kMostGroups = 4096;
  static constexpr unsigned kMostListed = 1 << 14;

  DType dtype = DType::kF32;  // no f64, no integers of 64 bits
  const void* data = nullptr;
  const std::uint32_t* ids = nullptr;  // the group of each row; `groups` or more: none
  std::int64_t rows = 0;               // > 0
  std::int64_t groups = 0;             // at most kMostGroups
  int multiprocessors = 1;
  // Device memory.
  KeyTablesHeader* header = nullptr;
  KeySum* sums = nullptr;           // of each group
  ListedElement* listed = nullptr;  // room for kMostListed
  cudaStream_t stream = nullptr;
};
// Whether such elements can be added up so.
bool HasKeyTables(DType dtype);
cudaError_t LaunchKeyTables(const KeyTablesLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_KEY_TABLES_H_
