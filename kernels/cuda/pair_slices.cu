// Ops about two arrays along axes. Compiled without contraction of operations, as two_doubles.h wants it.
//
// Bytes and operations: a weighted mean of f32 reads 8 bytes and takes about 13 operations of f64 a pair, of which an
// H200 has 26 in the time that they come from memory. So lanes have whole tiles of a row, and merge as seldom as the
// reads allow: eight lanes read 128 neighbouring bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/pair_slices.h"

namespace reduced {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = ~0U;
// Blocks of a multiprocessor that registers are to be enough for.
constexpr int kBlocks = 2;
// Whether rows load elements while the ones before are added. Of f64 more blocks are better, of five sums registers are
// too few.
template <class Fold>
constexpr bool kLoadsAhead = Fold::kSums == 2 && !Fold::kF64;
template <class Fold>
constexpr int kRowBlocks = Fold::kSums == 2 && Fold::kF64 ? 3 : kBlocks;

template <class Fold>
__device__ void MergeLanes(int lanes, Fold* fold) {
  for (int distance = lanes >> 1; distance > 0; distance >>= 1) {
    const auto across = [&](auto member) { return __shfl_xor_sync(kAllLanes, member, distance); };
    Fold other;
#pragma unroll
    for (int i = 0; i < Fold::kSums; ++i) {
      other.sum[i] = {across(fold->sum[i].value), across(fold->sum[i].rest), across(fold->sum[i].error)};
    }
    other.nans = across(fold->nans);
    other.open = across(fold->open);
    fold->Merge(other);
  }
}

template <class Fold>
__device__ void Finish(const PairSlicesLaunch& launch, std::int64_t output, const Fold& fold) {
  bool known = true;
  for (int i = 0; i < launch.ops; ++i) {
    double answer;
    known = fold.Answer(launch.op[i], launch.question, &answer) && known;
    launch.answers[i][output] = answer;
  }
  if (!known) atomicOr(launch.open + output / 32, 1U << (output % 32));
}

// Rows, or parts of them: `lanes` lanes each.
template <class Fold, bool kVectors>
__global__ void __launch_bounds__(kThreads, kRowBlocks<Fold>)
    RowsKernel(const __grid_constant__ PairSlicesLaunch launch) {
  using T = typename Fold::T;
  constexpr int kElements = kVectors ? 16 / sizeof(T) : 1;
  constexpr int kLoads = Fold::kTile / kElements;
  const PairPlan& plan = launch.plan;
  const PairArray& array = launch.array;
  const int lane = static_cast<int>(threadIdx.x) & (plan.lanes - 1), lanes_log = __ffs(plan.lanes) - 1;
  const std::int64_t units = array.outputs * plan.parts;
  const auto loads = static_cast<unsigned>(plan.run / kElements), step = static_cast<unsigned>(plan.lanes);
  const bool one_run = plan.run == array.elements;
  const std::int64_t run_tiles = (loads + kLoads * step - 1) / (kLoads * step);
  const std::int64_t tiles = one_run ? run_tiles : run_tiles * (array.elements / plan.run);
  const std::int64_t part_tiles = plan.parts == 1 ? tiles : (tiles + plan.parts - 1) / plan.parts;
  const std::int64_t y_step = array.reduced.y[array.reduced.count - 1];  // 1, or 0: y has one element for a run
  const std::int64_t unit = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) >> lanes_log;
  const std::int64_t output = plan.parts == 1 ? unit : unit / plan.parts, part = unit - output * plan.parts;
  // Lanes without a unit stay, since those of a warp merge together.
  Fold fold;
  const std::int64_t end = unit < units ? min(tiles, (part + 1) * part_tiles) : 0;
  const PairOffset start = PairOffsetOf(array.kept, unit < units ? output : 0, array.kept.count);
  const auto load = [&](std::int64_t tile, T(&x)[Fold::kTile], T(&y)[Fold::kTile]) {
    const std::int64_t run = one_run ? 0 : tile / run_tiles;
    const unsigned at = static_cast<unsigned>(tile - run * run_tiles) * kLoads * step + lane;
    PairOffset from = start;
    if (!one_run) {
      const PairOffset more = PairOffsetOf(array.reduced, run, array.reduced.count - 1);
      from = {from.x + more.x, from.y + more.y};
    }
    const auto load_one = [&](const T* data, T(&to)[Fold::kTile]) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const unsigned index = at + i * step;
        if constexpr (kVectors) {
          const uint4 raw = index < loads ? __ldg(reinterpret_cast<const uint4*>(data) + index) : uint4{};
          memcpy(to + i * kElements, &raw, sizeof(raw));
        } else {
          to[i] = index < loads ? data[index] : T{};
        }
      }
    };
    load_one(static_cast<const T*>(array.x) + from.x, x);
    const T* const y_data = static_cast<const T*>(array.y) + from.y;
    if (y_step != 0) return load_one(y_data, y);
    const T one = *y_data;
#pragma unroll
    for (int i = 0; i < Fold::kTile; ++i) y[i] = at + i / kElements * step < loads ? one : T{};
  };
  constexpr bool kAhead = kLoadsAhead<Fold>;
  T x[Fold::kTile], y[Fold::kTile];
  std::int64_t tile = part * part_tiles;
  if (kAhead && tile < end) load(tile, x, y);
  while (tile < end) {
    if constexpr (kAhead) {
      T next_x[Fold::kTile], next_y[Fold::kTile];
      if (++tile < end) load(tile, next_x, next_y);
      fold.Add(x, y);
#pragma unroll
      for (int i = 0; i < Fold::kTile; ++i) x[i] = next_x[i], y[i] = next_y[i];
    } else {
      load(tile++, x, y);
      fold.Add(x, y);
    }
  }
  MergeLanes(plan.lanes, &fold);
  if (lane != 0 || unit >= units) return;
  if (plan.parts == 1) {
    Finish(launch, output, fold);
  } else {
    reinterpret_cast<Fold*>(launch.folds)[unit] = fold;
  }
}

// Columns, or parts of them with every parts-th row: a thread each, so that threads read neighbours.
template <class Fold>
__global__ void __launch_bounds__(kThreads, kBlocks) ColumnsKernel(const __grid_constant__ PairSlicesLaunch launch) {
  using T = typename Fold::T;
  const PairArray& array = launch.array;
  const std::int64_t parts = launch.plan.parts;
  const std::int64_t unit = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (unit >= array.outputs * parts) return;
  const std::int64_t part = parts == 1 ? 0 : unit / array.outputs, output = unit - part * array.outputs;
  const PairOffset start = PairOffsetOf(array.kept, output, array.kept.count);
  const T* const x_data = static_cast<const T*>(array.x) + start.x;
  const T* const y_data = static_cast<const T*>(array.y) + start.y;
  Fold fold;
  for (std::int64_t begin = part; begin < array.elements; begin += Fold::kTile * parts) {
    T x[Fold::kTile], y[Fold::kTile];
#pragma unroll
    for (int i = 0; i < Fold::kTile; ++i) {
      const std::int64_t at = begin + i * parts;
      const bool there = at < array.elements;
      PairOffset offset{at * array.reduced.x[0], at * array.reduced.y[0]};
      if (array.reduced.count > 1) offset = PairOffsetOf(array.reduced, there ? at : 0, array.reduced.count);
      x[i] = there ? x_data[offset.x] : T{};
      y[i] = there ? y_data[offset.y] : T{};
    }
    fold.Add(x, y);
  }
  if (parts == 1) {
    Finish(launch, output, fold);
  } else {
    reinterpret_cast<Fold*>(launch.folds)[output * parts + part] = fold;
  }
}

// Merges the parts of each output, by a warp.
template <class Fold>
__global__ void __launch_bounds__(kThreads) MergeKernel(const __grid_constant__ PairSlicesLaunch launch) {
  const std::int64_t output = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
  if (output >= launch.array.outputs) return;
  const auto* const folds = reinterpret_cast<const Fold*>(launch.folds) + output * launch.plan.parts;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  Fold fold;
  for (std::int64_t i = lane; i < launch.plan.parts; i += kWarpSize) fold.Merge(folds[i]);
  MergeLanes(kWarpSize, &fold);
  if (lane == 0) Finish(launch, output, fold);
}

template <class Fold>
cudaError_t LaunchFold(const PairSlicesLaunch& launch) {
  static_assert(sizeof(Fold) <= kMostPairFoldBytes);
  const auto blocks = [](std::int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); };
  const PairPlan& plan = launch.plan;
  const std::int64_t units = launch.array.outputs * plan.parts;
  if (plan.columns) {
    ColumnsKernel<Fold><<<blocks(units), kThreads, 0, launch.stream>>>(launch);
  } else {
    const auto kernel = plan.vectors ? &RowsKernel<Fold, true> : &RowsKernel<Fold, false>;
    kernel<<<blocks(units * plan.lanes), kThreads, 0, launch.stream>>>(launch);
  }
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || plan.parts == 1) return error;
  MergeKernel<Fold><<<blocks(launch.array.outputs * kWarpSize), kThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

template <PairFamily kFamily>
cudaError_t LaunchFamily(const PairSlicesLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) return LaunchFold<PairFold<T, kFamily>>(launch);
    return cudaErrorInvalidValue;
  });
}

}  // namespace

cudaError_t LaunchPairSlices(const PairSlicesLaunch& launch) {
  switch (launch.family) {
    case PairFamily::kMeans:
      return LaunchFamily<PairFamily::kMeans>(launch);
    case PairFamily::kMoments:
      return LaunchFamily<PairFamily::kMoments>(launch);
    case PairFamily::kDistances:
      return LaunchFamily<PairFamily::kDistances>(launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace reduced
