// matmul_tensor_f64: as `matmul_register_tile`, with the multiplications by tensor cores.
//
// Why it is faster: one instruction of a warp multiplies 16 x 8 by 8 x 8 elements, and a GPU for data centres does
// twice as many such operations a second as others of f64. Results are still those of f64, rounded after each step.
//
// A block computes 128 x 128 elements of C, a warp 64 x 32 of them. Rows of the tiles in shared memory are padded to 4
// elements more than a multiple of 16, so that the 16 lanes that are served together read from different banks.
#include "kernels/matmul/staged_tiles.cuh"
#include "kernels/matmul/tensor_f64.cuh"

namespace reduced {
namespace {

constexpr int kTile = 128;                                          // rows and columns of C that a block computes
constexpr int kWarpRows = 64, kWarpColumns = 32;                    // that a warp computes
constexpr int kAcross = kTile / kWarpColumns;                       // warps
constexpr int kShapeRows = 16, kShapeColumns = 8, kShapeDepth = 8;  // of one multiplication
constexpr int kDown = kWarpRows / kShapeRows, kWide = kWarpColumns / kShapeColumns;

template <int kStages>
using Staged = StagedTiles<double, kTile, kTile, 16, 4, 4, kStages>;

template <int kStages, bool kAligned>
__global__ void __launch_bounds__(kStagedThreads, 1) MatmulTensorKernel(MatmulMatrices<double> matrices) {
  using Tiles = Staged<kStages>;
  extern __shared__ uint4 shared_tiles[];
  const BlockOrigin origin = OriginOf(matrices.n, kTile, kTile);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, of_group = lane % 4;
  const int row = warp / kAcross * kWarpRows + group, column = warp % kAcross * kWarpColumns;
  double sums[kDown][kWide][4] = {};
  Tiles::template ForEach<kAligned>(
      reinterpret_cast<double*>(shared_tiles), matrices, origin, [&](const double* a_tile, const double* b_tile) {
#pragma unroll
        for (int first = 0; first < Tiles::kDepth; first += kShapeDepth) {
          double b[kWide][2];
#pragma unroll
          for (int j = 0; j < kWide; ++j) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              b[j][i] = b_tile[(first + of_group + 4 * i) * Tiles::kRowB + column + j * kShapeColumns + group];
            }
          }
#pragma unroll
          for (int d = 0; d < kDown; ++d) {
            double a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              a[i] = a_tile[(row + d * kShapeRows + i % 2 * 8) * Tiles::kRowA + first + of_group + i / 2 * 4];
            }
#pragma unroll
            for (int j = 0; j < kWide; ++j) MultiplyTensorF64(a, b[j], sums[d][j]);
          }
        }
      });
#pragma unroll
  for (int d = 0; d < kDown; ++d) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        StoreElement(matrices, origin.row + row + d * kShapeRows + i / 2 * 8,
                     origin.column + column + j * kShapeColumns + 2 * of_group + i % 2, sums[d][j][i]);
      }
    }
  }
}

// Three buffers where a block may have so much shared memory, else two. Calls with(kernel, bytes).
template <class With>
cudaError_t WithKernel(const MatmulLaunch& launch, With with) {
  int device = 0;
  int most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  const bool aligned = RowsAreAligned<double>(launch);
  const auto of_stages = [&]<int kStages>(std::integral_constant<int, kStages>) {
    constexpr int kBytes = Staged<kStages>::kBytes;
    return aligned ? with(&MatmulTensorKernel<kStages, true>, kBytes)
                   : with(&MatmulTensorKernel<kStages, false>, kBytes);
  };
  return most >= Staged<3>::kBytes ? of_stages(std::integral_constant<int, 3>{})
                                   : of_stages(std::integral_constant<int, 2>{});
}

cudaError_t Run(const MatmulLaunch& launch) {
  return WithKernel(launch,
                    [&](auto kernel, int bytes) { return LaunchStaged<double>(kernel, kTile, kTile, bytes, launch); });
}

cudaError_t Describe(const MatmulLaunch& launch, Occupancy* occupancy) {
  return WithKernel(launch, [&](auto kernel, int bytes) { return DescribeStaged(kernel, bytes, occupancy); });
}

}  // namespace

const MatmulKernel kMatmulTensorF64 = {&Run, &Describe};

}  // namespace reduced
