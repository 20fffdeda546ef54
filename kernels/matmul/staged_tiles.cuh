// Tiles of A and B on their way through several buffers in shared memory, while the one before is multiplied.
//
// Copies (copy_to_shared.cuh) fill with zeros what lies beyond the matrices. Where rows of both matrices begin at
// multiples of 16 bytes they take 16 bytes each, else one element.
#ifndef REDUCED_KERNELS_MATMUL_STAGED_TILES_CUH_
#define REDUCED_KERNELS_MATMUL_STAGED_TILES_CUH_

#include <cstdint>

#include "kernels/cuda/copy_to_shared.cuh"
#include "kernels/matmul/kernel.cuh"

namespace reduced {

inline constexpr int kStagedThreads = 256;  // of a block

// Buffers of kRows x kDepth elements of A and kDepth x kColumns of B, both as they lie in the matrices. Rows have some
// padding, so that threads which read different rows read from different banks.
template <class T, int kTileRows, int kTileColumns, int kTileDepth, int kPaddingA, int kPaddingB, int kStageCount>
struct StagedTiles {
  static constexpr int kRows = kTileRows, kColumns = kTileColumns, kDepth = kTileDepth, kStages = kStageCount;
  static constexpr int kRowA = kDepth + kPaddingA, kRowB = kColumns + kPaddingB;  // elements of a row
  static constexpr int kElementsA = kRows * kRowA, kElementsB = kDepth * kRowB;
  static constexpr int kBytes = kStages * (kElementsA + kElementsB) * static_cast<int>(sizeof(T));

  // Copies kTall x kWide elements of a rows x columns matrix, from (row, column) on. The whole block calls it.
  template <int kTall, int kWide, int kRow, bool kAligned>
  __device__ static void CopyTile(T* tile, const T* matrix, int rows, int columns, int row, int column) {
    constexpr int kElements = kAligned ? 16 / static_cast<int>(sizeof(T)) : 1;  // of a copy
    constexpr int kAcross = kWide / kElements;
    constexpr int kCopies = kTall * kAcross / kStagedThreads;
    static_assert(kCopies * kStagedThreads == kTall * kAcross);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int number = static_cast<int>(threadIdx.x) + i * kStagedThreads;
      const int r = number / kAcross, c = number % kAcross * kElements;
      // Aligned rows have a multiple of kElements: a copy is all within, or all beyond.
      const bool within = row + r < rows && column + c < columns;
      const T* const from = within ? matrix + static_cast<std::int64_t>(row + r) * columns + column + c : matrix;
      constexpr int kCopyBytes = kElements * static_cast<int>(sizeof(T));
      CopyToShared<kCopyBytes>(tile + r * kRow + c, from, within ? kCopyBytes : 0);
    }
  }

  // Starts the copies of tile number `tile` along the shared axis, if there is one, and ends their group.
  template <bool kAligned>
  __device__ static void Start(T* shared, const MatmulMatrices<T>& matrices, const BlockOrigin& origin, int tile) {
    const int first = tile * kDepth;
    if (first < matrices.k) {
      T* const a = TileA(shared, tile);
      CopyTile<kRows, kDepth, kRowA, kAligned>(a, matrices.a, matrices.m, matrices.k, origin.row, first);
      CopyTile<kDepth, kColumns, kRowB, kAligned>(a + kElementsA, matrices.b, matrices.k, matrices.n, first,
                                                  origin.column);
    }
    EndCopies();
  }
  __device__ static T* TileA(T* shared, int tile) { return shared + tile % kStages * (kElementsA + kElementsB); }

  // Calls multiply(a, b) for the tiles along the shared axis. The whole block calls it.
  template <bool kAligned, class Multiply>
  __device__ static void ForEach(T* shared, const MatmulMatrices<T>& matrices, const BlockOrigin& origin,
                                 Multiply multiply) {
    const int tiles = (matrices.k + kDepth - 1) / kDepth;
    for (int tile = 0; tile < kStages - 1; ++tile) Start<kAligned>(shared, matrices, origin, tile);
    for (int tile = 0; tile < tiles; ++tile) {
      AwaitCopies<kStages - 2>();
      __syncthreads();  // all see this tile, and all have done with the one whose buffer is filled next
      Start<kAligned>(shared, matrices, origin, tile + kStages - 1);
      const T* const a = TileA(shared, tile);
      multiply(a, a + kElementsA);
    }
  }
};

// Whether rows of A and B begin at multiples of 16 bytes.
template <class T>
bool RowsAreAligned(const MatmulLaunch& launch) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  return launch.k % kElements == 0 && launch.n % kElements == 0;
}

// Runs a kernel that takes the matrices and has kStagedThreads threads a block.
template <class T, class Kernel>
cudaError_t LaunchStaged(Kernel kernel, int rows, int columns, int shared_bytes, const MatmulLaunch& launch) {
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  kernel<<<BlocksOf(launch, rows, columns), kStagedThreads, shared_bytes, launch.stream>>>(MatricesOf<T>(launch));
  return cudaGetLastError();
}

template <class Kernel>
cudaError_t DescribeStaged(Kernel kernel, int shared_bytes, Occupancy* occupancy) {
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  return error == cudaSuccess ? MatmulOccupancy(kernel, kStagedThreads, shared_bytes, occupancy) : error;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_STAGED_TILES_CUH_
