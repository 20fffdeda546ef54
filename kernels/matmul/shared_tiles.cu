// matmul_smem_1 to _5: a block computes a tile of C, and moves tiles of A and B through shared memory.
//
// Why they are faster than `matmul_global`: a block reads each element of its rows of A and columns of B once, instead
// of once a thread. They differ in where a tile of B lies and in how many elements of C a thread has:
//   1  B transposed: in each step the threads of a warp read one column of the tile, which is one bank; slower than
//      without shared memory.
//   2  the same with rows of one element more: the column lies in different banks.
//   3  B as it is: a warp reads a row of the tile.
//   4  2 elements of C a thread: what is read from B's tile is used twice.
//   5  4 elements a thread.
//
// Source: a lecture's matrix product, "SMEM-1" to "SMEM-5".
#include "kernels/matmul/kernel.cuh"
#include "kernels/matmul/tile_layout.h"

namespace reduced {
namespace {

template <class T, int kTile, class Rung>
__global__ void __launch_bounds__(kTile* kTile / Rung::kOutputs) MatmulTileKernel(MatmulMatrices<T> matrices) {
  constexpr int kRows = kTile / Rung::kOutputs;  // of threads
  constexpr MatmulTileLayout kLayout = Rung::Layout(kTile);
  __shared__ T a_tile[kTile][kTile];
  __shared__ T b_tile[kTile * kLayout.row];
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  const BlockOrigin origin = OriginOf(matrices.n, kTile, kTile);
  T sums[Rung::kOutputs] = {};
  for (int first = 0; first < matrices.k; first += kTile) {
#pragma unroll
    for (int i = 0; i < Rung::kOutputs; ++i) {
      const int row = y + i * kRows;
      a_tile[row][x] = ElementOrZero(matrices.a, matrices.m, matrices.k, origin.row + row, first + x);
      b_tile[kLayout.IndexOf(row, x)] =
          ElementOrZero(matrices.b, matrices.k, matrices.n, first + row, origin.column + x);
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kTile; ++step) {
      const T b = b_tile[kLayout.IndexOf(step, x)];
#pragma unroll
      for (int i = 0; i < Rung::kOutputs; ++i) sums[i] += a_tile[y + i * kRows][step] * b;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < Rung::kOutputs; ++i) {
    StoreElement(matrices, origin.row + y + i * kRows, origin.column + x, sums[i]);
  }
}

template <class Rung>
struct Tiles {
  // Calls with(kernel, tile).
  template <class T, class With>
  static cudaError_t WithKernel(const MatmulLaunch& launch, With with) {
    if (launch.tile == 16) return with(&MatmulTileKernel<T, 16, Rung>, 16);
    return with(&MatmulTileKernel<T, 32, Rung>, 32);
  }
  static cudaError_t Run(const MatmulLaunch& launch) {
    return VisitMatmulType(launch.dtype, [&]<class T>(std::type_identity<T>) {
      return WithKernel<T>(launch, [&](auto kernel, int tile) {
        const dim3 block(tile, tile / Rung::kOutputs);
        kernel<<<BlocksOf(launch, tile, tile), block, 0, launch.stream>>>(MatricesOf<T>(launch));
        return cudaGetLastError();
      });
    });
  }
  static cudaError_t Describe(const MatmulLaunch& launch, Occupancy* occupancy) {
    return VisitMatmulType(launch.dtype, [&]<class T>(std::type_identity<T>) {
      return WithKernel<T>(launch, [&](auto kernel, int tile) {
        return MatmulOccupancy(kernel, tile * tile / Rung::kOutputs, 0, occupancy);
      });
    });
  }
  static constexpr MatmulKernel kKernel = {&Run, &Describe};
};

struct Rung1 {
  static constexpr int kOutputs = 1;  // elements of C a thread
  static constexpr MatmulTileLayout Layout(int tile) { return TransposedTile(tile); }
};
struct Rung2 {
  static constexpr int kOutputs = 1;
  static constexpr MatmulTileLayout Layout(int tile) { return PaddedTransposedTile(tile); }
};
template <int kOutputsOfThread>
struct StraightRung {
  static constexpr int kOutputs = kOutputsOfThread;
  static constexpr MatmulTileLayout Layout(int tile) { return StraightTile(tile); }
};

}  // namespace

const MatmulKernel kMatmulShared1 = Tiles<Rung1>::kKernel;
const MatmulKernel kMatmulShared2 = Tiles<Rung2>::kKernel;
const MatmulKernel kMatmulShared3 = Tiles<StraightRung<1>>::kKernel;
const MatmulKernel kMatmulShared4 = Tiles<StraightRung<2>>::kKernel;
const MatmulKernel kMatmulShared5 = Tiles<StraightRung<4>>::kKernel;

}  // namespace reduced
