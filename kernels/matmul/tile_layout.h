// Where the elements of a tile of B lie in shared memory, and what that means for its banks.
#ifndef REDUCED_KERNELS_MATMUL_TILE_LAYOUT_H_
#define REDUCED_KERNELS_MATMUL_TILE_LAYOUT_H_

#include <algorithm>

#include "kernels/algebra/portable.h"

namespace reduced {

struct MatmulTileLayout {
  bool transposed = false;
  int row = 0;  // elements from one row of what is stored to the next

  // Of element (step, column): `step` along the shared axis.
  REDUCED_HD constexpr int IndexOf(int step, int column) const {
    return transposed ? column * row + step : step * row + column;
  }
};

REDUCED_HD constexpr MatmulTileLayout TransposedTile(int tile) { return {true, tile}; }
REDUCED_HD constexpr MatmulTileLayout PaddedTransposedTile(int tile) { return {true, tile + 1}; }
REDUCED_HD constexpr MatmulTileLayout StraightTile(int tile) { return {false, tile}; }

// How many times shared memory is accessed when a warp reads once from B's tile, for each time that would do without
// conflicts: 32 banks of 4 bytes, of which a bank delivers one word at a time to any number of lanes. Elements of 8
// bytes are read by half a warp at a time. Source: CUDA C++ Programming Guide, "Shared Memory".
constexpr int BankConflictWays(MatmulTileLayout layout, int tile, int element_bytes) {
  constexpr int kWarp = 32, kBanks = 32, kWordBytes = 4;
  const int words = element_bytes / kWordBytes;
  const int lanes = kWarp / words;  // that are served together
  int most = 0;
  for (int bank = 0; bank < kBanks; ++bank) {
    int found[kWarp] = {};  // different words of this bank
    int count = 0;
    for (int i = 0; i < lanes * words; ++i) {
      const int word = layout.IndexOf(0, i / words % tile) * words + i % words;
      if (word % kBanks != bank) continue;
      bool known = false;
      for (int j = 0; j < count; ++j) known = known || found[j] == word;
      if (!known) found[count++] = word;
    }
    most = std::max(most, count);
  }
  return most;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_TILE_LAYOUT_H_
