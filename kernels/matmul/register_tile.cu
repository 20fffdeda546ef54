// matmul_register_tile: a block computes 128 x 128 elements of C, and a thread 8 x 8 of them, in registers.
//
// Why it is faster than `matmul_smem_5`: for the 64 multiplications of a step along the shared axis a thread reads 16
// elements from shared memory instead of 128, and 16 bytes at a time; while a tile is multiplied, the next two arrive
// by copies that no thread waits for. A multiprocessor has one block, whose threads have all its registers: two blocks
// with half as many each would be slower (0.76 instead of 0.81 of cuBLAS on an H200).
//
// A warp is 4 x 8 threads. A thread has rows 16 apart, so that the rows which a warp reads at once are adjacent, and
// columns in groups of 16 bytes, adjacent for adjacent threads: neither has bank conflicts.
//
// Source: V. Volkov, J. Demmel, "Benchmarking GPUs to Tune Dense Linear Algebra" (the idea: outputs in registers);
// NVIDIA, "CUTLASS: Fast Linear Algebra in CUDA C++" (the levels of tiles).
#include "kernels/matmul/staged_tiles.cuh"

namespace reduced {
namespace {

constexpr int kTile = 128;   // rows and columns of C that a block computes
constexpr int kOutputs = 8;  // rows and columns of C that a thread computes
constexpr int kThreadRows = kTile / kOutputs;
constexpr int kVectorBytes = 16;

template <class T>
inline constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(T));  // elements
template <class T>
using Staged = StagedTiles<T, kTile, kTile, 4 * kVector<T>, kVector<T>, 0, 3>;

// Elements of one load.
template <class T>
struct alignas(kVectorBytes) Vector {
  T element[kVector<T>];
};
template <class T>
__device__ inline Vector<T> LoadVector(const T* from) {
  return *reinterpret_cast<const Vector<T>*>(from);
}

template <class T, bool kAligned>
__global__ void __launch_bounds__(kStagedThreads) MatmulRegisterTileKernel(MatmulMatrices<T> matrices) {
  using Tiles = Staged<T>;
  constexpr int kGroups = kOutputs / kVector<T>;  // of columns
  extern __shared__ uint4 shared_tiles[];
  const BlockOrigin origin = OriginOf(matrices.n, kTile, kTile);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int y = warp / 2 * 4 + lane / 8, x = (warp % 2 * 8 + lane % 8) * kVector<T>;
  T sums[kOutputs][kOutputs] = {};
  Tiles::template ForEach<kAligned>(
      reinterpret_cast<T*>(shared_tiles), matrices, origin, [&](const T* a_tile, const T* b_tile) {
#pragma unroll
        for (int first = 0; first < Tiles::kDepth; first += kVector<T>) {
          Vector<T> a[kOutputs];
#pragma unroll
          for (int i = 0; i < kOutputs; ++i) a[i] = LoadVector(a_tile + (y + i * kThreadRows) * Tiles::kRowA + first);
#pragma unroll
          for (int step = 0; step < kVector<T>; ++step) {
            Vector<T> b[kGroups];
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
              b[g] = LoadVector(b_tile + (first + step) * Tiles::kRowB + x + g * kThreadRows * kVector<T>);
            }
#pragma unroll
            for (int i = 0; i < kOutputs; ++i) {
#pragma unroll
              for (int j = 0; j < kOutputs; ++j) {
                sums[i][j] += a[i].element[step] * b[j / kVector<T>].element[j % kVector<T>];
              }
            }
          }
        }
      });
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) {
      const int column = x + j / kVector<T> * kThreadRows * kVector<T> + j % kVector<T>;
      StoreElement(matrices, origin.row + y + i * kThreadRows, origin.column + column, sums[i][j]);
    }
  }
}

// Calls with(std::type_identity<T>{}, kernel).
template <class With>
cudaError_t WithKernel(const MatmulLaunch& launch, With with) {
  const auto of_type = [&]<class T>(std::type_identity<T> type) {
    return RowsAreAligned<T>(launch) ? with(type, &MatmulRegisterTileKernel<T, true>)
                                     : with(type, &MatmulRegisterTileKernel<T, false>);
  };
  return launch.dtype == DType::kF64 ? of_type(std::type_identity<double>{}) : of_type(std::type_identity<float>{});
}

cudaError_t Run(const MatmulLaunch& launch) {
  return WithKernel(launch, [&]<class T>(std::type_identity<T>, auto kernel) {
    return LaunchStaged<T>(kernel, kTile, kTile, Staged<T>::kBytes, launch);
  });
}

cudaError_t Describe(const MatmulLaunch& launch, Occupancy* occupancy) {
  return WithKernel(launch, [&]<class T>(std::type_identity<T>, auto kernel) {
    return DescribeStaged(kernel, Staged<T>::kBytes, occupancy);
  });
}

}  // namespace

const MatmulKernel kMatmulRegisterTile = {&Run, &Describe};

}  // namespace reduced
