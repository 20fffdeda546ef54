// Reductions along axes on a CUDA device whose answers are made there: one read of the array.
//
// There is a kernel for each class of layouts:
//
// - VectorRows: rows of 16 to 512 bytes, a power of two. Lanes of a warp share a row, a vector each, and a lane has
//   several vectors in flight. Their states are exchanged so that at each step a lane merges half as many: eight lanes
//   take seven merges for eight rows each, not 24.
// - ShortRows: other rows of up to 1 KiB. A block loads whole rows to shared memory, from where a few threads take one.
// - Columns: neighbouring outputs have neighbouring elements. Neighbouring threads take neighbouring columns, however
//   few, and the rest of the block the rows that follow; blocks cut the reduced dimensions into parts.
// - Gather: everything else, long rows among it. A warp or a block takes an output, or a part of it, by vectors where
//   its runs allow that.
//
// Outputs that are cut into parts have their states merged by one more kernel.
#ifndef REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_
#define REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/slice_folds.cuh"
#include "kernels/cuda/slice_layout.cuh"
#include "kernels/cuda/slices.h"
#include "kernels/cuda/vector16.cuh"

namespace reduced {

inline constexpr int kSliceThreads = 256;
inline constexpr int kSliceWarps = kSliceThreads / kWarpSize;

enum class SliceWay : std::uint8_t { kVectorRows, kShortRows, kColumns, kGather };

struct SliceCut {
  SliceWay way = SliceWay::kGather;
  int parts = 1;               // of each output; kColumns, kGather
  int lanes = 1;               // threads that share an output; kColumns: 1
  std::int64_t rows = 0;       // kShortRows: of a block. kColumns: threads that share a column
  std::int64_t columns = 0;    // kColumns: of a block
  std::int64_t tiles = 0;      // kColumns: blocks for neighbouring columns
  int pack = 1;                // kColumns: that a thread takes together, of which `columns` are so many
  bool whole_vectors = false;  // kGather: runs are whole aligned vectors
  bool contiguous = false;     // kGather: an output is one run
};

template <class State>
__device__ inline State ShuffleXor(const State& state, int mask) {
  static_assert(sizeof(State) % 4 == 0);
  unsigned words[sizeof(State) / 4];
  memcpy(words, &state, sizeof(State));
#pragma unroll
  for (unsigned& word : words) word = __shfl_xor_sync(kFullWarp, word, mask);
  State other;
  memcpy(&other, words, sizeof(State));
  return other;
}

// The merged states of `lanes` neighbouring lanes, a power of two, for all of them.
template <class State>
__device__ inline void MergeLanes(State* state, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) MergeStates(state, ShuffleXor(*state, mask));
}

template <class T>
__device__ inline T LoadElementOnce(const T* address) {
  T x;
  if constexpr (sizeof(T) == 8) {
    const unsigned long long word = __ldg(reinterpret_cast<const unsigned long long*>(address));
    memcpy(&x, &word, sizeof x);
  } else if constexpr (sizeof(T) == 4) {
    const unsigned word = __ldg(reinterpret_cast<const unsigned*>(address));
    memcpy(&x, &word, sizeof x);
  } else if constexpr (sizeof(T) == 2) {
    const unsigned short word = __ldg(reinterpret_cast<const unsigned short*>(address));
    memcpy(&x, &word, sizeof x);
  } else {
    const unsigned char word = __ldg(reinterpret_cast<const unsigned char*>(address));
    memcpy(&x, &word, sizeof x);
  }
  return x;
}

template <class T, SliceBundle kBundle>
__global__ void __launch_bounds__(kSliceThreads)
    VectorRowsKernel(const __grid_constant__ QuickSlices slices, int lanes) {
  using Fold = SliceFold<T, kBundle>;
  using State = typename Fold::State;
  constexpr int kAtOnce = sizeof(State) <= 32 ? 8 : 4;
  constexpr int kElements = Vector16<T>::kElements;
  const auto lane = static_cast<int>(threadIdx.x % kWarpSize);
  const std::int64_t vectors = slices.array.outputs * lanes;
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * kSliceWarps + threadIdx.x / kWarpSize) * (kAtOnce * kWarpSize) + lane;
  const auto* const data = static_cast<const uint4*>(slices.array.data);
  Vector16<T> tile[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    if (first + i * kWarpSize < vectors) tile[i] = LoadOnce<T>(data + first + i * kWarpSize);
  }
  State state[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    Fold fold;
    if (first + i * kWarpSize < vectors) {
      fold.Tile(tile[i].element, static_cast<unsigned>((lane & (lanes - 1)) * kElements), 1, slices.omit_nan);
    }
    state[i] = fold.Settle();
  }
  // Which of its vectors' states a lane is left with.
  int which = 0;
  int left = kAtOnce;
  int mask = 1;
#pragma unroll
  for (int half = kAtOnce / 2; half > 0; half /= 2) {
    if (mask < lanes) {
      const bool upper = (lane & mask) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const State given = upper ? state[i] : state[i + half];
        if (upper) state[i] = state[i + half];
        MergeStates(&state[i], ShuffleXor(given, mask));
      }
      which += upper ? half : 0;
      left = half;
      mask *= 2;
    }
  }
  for (; mask < lanes; mask *= 2) MergeStates(&state[0], ShuffleXor(state[0], mask));
  // Of lanes with the same output, the first one.
  if ((lane & (lanes - 1)) >= kAtOnce) return;
  const int shift = 31 - __clz(lanes);
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    const std::int64_t vector = first + (which + i) * kWarpSize;
    if (vector < vectors) Finish<T, kBundle>(slices, vector >> shift, state[0]);
#pragma unroll
    for (int next = 1; next < kAtOnce; ++next) state[next - 1] = state[next];  // which keeps them in registers
  }
}

template <class T, SliceBundle kBundle>
__global__ void __launch_bounds__(kSliceThreads)
    ShortRowsKernel(const __grid_constant__ QuickSlices slices, int tile_rows, int lanes) {
  using Fold = SliceFold<T, kBundle>;
  extern __shared__ uint4 shared[];
  const auto row_elements = static_cast<int>(slices.array.elements);
  const std::int64_t first_row = std::int64_t{blockIdx.x} * tile_rows;
  const auto rows = static_cast<int>(min(std::int64_t{tile_rows}, slices.array.outputs - first_row));
  const auto* const begin = static_cast<const char*>(slices.array.data);
  const char* const end = begin + slices.array.outputs * row_elements * static_cast<std::int64_t>(sizeof(T));
  const char* const from = begin + first_row * row_elements * static_cast<std::int64_t>(sizeof(T));
  const auto shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % 16);
  const char* const aligned = from - shift;
  const int vectors = (shift + rows * row_elements * static_cast<int>(sizeof(T)) + 15) / 16;
  constexpr int kAtOnce = 4;
  for (int v = static_cast<int>(threadIdx.x); v < vectors; v += kAtOnce * kSliceThreads) {
    uint4 loaded[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const char* const at = aligned + 16 * (v + i * kSliceThreads);
      if (v + i * kSliceThreads >= vectors) continue;
      if (at >= begin && at + 16 <= end) {
        const Vector16<unsigned> vector = LoadOnce<unsigned>(reinterpret_cast<const uint4*>(at));
        loaded[i] = {vector.element[0], vector.element[1], vector.element[2], vector.element[3]};
      } else {  // an edge of the array: beyond it nothing is read
        char bytes[16] = {};
        for (int b = 0; b < 16; ++b) {
          if (at + b >= begin && at + b < end) bytes[b] = at[b];
        }
        memcpy(&loaded[i], bytes, 16);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (v + i * kSliceThreads < vectors) shared[v + i * kSliceThreads] = loaded[i];
    }
  }
  __syncthreads();
  const auto* const elements = reinterpret_cast<const T*>(reinterpret_cast<const char*>(shared) + shift);
  const auto lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  for (int base = 0; base < rows; base += kSliceThreads / lanes) {
    const int row = base + static_cast<int>(threadIdx.x) / lanes;
    Fold fold;
    if (row < rows) {
      const T* const x = elements + row * row_elements;
      int i = lane;
      for (; i + 3 * lanes < row_elements; i += 4 * lanes) {
        const T four[4] = {x[i], x[i + lanes], x[i + 2 * lanes], x[i + 3 * lanes]};
        fold.Tile(four, static_cast<unsigned>(i), static_cast<unsigned>(lanes), slices.omit_nan);
      }
      for (; i < row_elements; i += lanes) {
        const T one[1] = {x[i]};
        fold.Tile(one, static_cast<unsigned>(i), 1, slices.omit_nan);
      }
    }
    typename Fold::State state = fold.Settle();
    MergeLanes(&state, lanes);
    if (row < rows && lane == 0) Finish<T, kBundle>(slices, first_row + row, state);
  }
}

// Hands in the state of one part of an output.
template <class T, SliceBundle kBundle>
__device__ inline void HandIn(const QuickSlices& slices, std::int64_t output, int part, int parts,
                              const typename SliceFold<T, kBundle>::State& state) {
  using State = typename SliceFold<T, kBundle>::State;
  if (parts == 1) return Finish<T, kBundle>(slices, output, state);
  static_cast<State*>(slices.states)[part * slices.array.outputs + output] = state;
}

// Neighbouring columns that a thread takes together, so that a warp loads 128 bytes at a time.
template <class T, SliceBundle kBundle>
inline constexpr int kPackedColumns = sizeof(T) < 4 && sizeof(typename SliceFold<T, kBundle>::State) <= 32
                                          ? 4 / sizeof(T)
                                          : 1;

template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Packed {
  T element[kCount];
};

// kPack: 1, or kPackedColumns, by which all columns, strides and the array's address can be divided.
template <class T, SliceBundle kBundle, int kPack>
__global__ void __launch_bounds__(kSliceThreads)
    ColumnsKernel(const __grid_constant__ QuickSlices slices, const __grid_constant__ SliceCut cut) {
  using Fold = SliceFold<T, kBundle>;
  using State = typename Fold::State;
  __shared__ alignas(16) unsigned char shared[kSliceThreads * sizeof(State)];
  auto* const states = reinterpret_cast<State*>(shared);
  const SliceArray& array = slices.array;
  const auto columns = static_cast<unsigned>(cut.columns);
  const auto sharing = static_cast<unsigned>(cut.rows);
  const unsigned thread = threadIdx.x;
  const unsigned column_of = thread % columns;
  const unsigned turn = thread / columns;
  const std::int64_t all_columns = array.kept.size[array.kept.count - 1];
  const std::int64_t outer = blockIdx.x / cut.tiles;
  const std::int64_t column = ((blockIdx.x - outer * cut.tiles) * cut.columns + column_of) * kPack;
  const bool active = turn < sharing && column < all_columns;
  Fold fold[kPack];
  if (active) {
    const auto* const data =
        static_cast<const T*>(array.data) + OffsetOf(array.kept, outer, array.kept.count - 1) + column;
    const PartOfSlice part(array.elements, static_cast<int>(blockIdx.y), cut.parts);
    constexpr int kAtOnce = sizeof(State) <= 32 ? 8 : 4;
    const bool one_stride = array.reduced.count == 1;
    const std::int64_t stride = one_stride ? array.reduced.stride[0] : 0;
    const auto load = [&](std::int64_t i) {
      return LoadElementOnce(reinterpret_cast<const Packed<T, kPack>*>(data + i));
    };
    std::int64_t i = part.begin + turn;
    for (; i + (kAtOnce - 1) * sharing < part.end; i += kAtOnce * sharing) {
      Packed<T, kPack> loaded[kAtOnce];
      if (one_stride) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) loaded[j] = load((i + j * sharing) * stride);
      } else {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) loaded[j] = load(OffsetOf(array.reduced, i + j * sharing));
      }
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        T x[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) x[j] = loaded[j].element[e];
        fold[e].Tile(x, static_cast<unsigned>(i), sharing, slices.omit_nan);
      }
    }
    for (; i < part.end; i += sharing) {
      const Packed<T, kPack> loaded = load(OffsetOf(array.reduced, i));
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        const T x[1] = {loaded.element[e]};
        fold[e].Tile(x, static_cast<unsigned>(i), 1, slices.omit_nan);
      }
    }
  }
  const unsigned most = sharing <= 1 ? 0 : 1u << (31 - __clz(static_cast<int>(sharing - 1)));
#pragma unroll 1
  for (int e = 0; e < kPack; ++e) {
    State state = fold[0].Settle();
#pragma unroll
    for (int other = 1; other < kPack; ++other) {
      if (e == other) state = fold[other].Settle();
    }
    __syncthreads();  // `states` may be in use
    states[thread] = state;
    for (unsigned half = most; half > 0; half /= 2) {
      __syncthreads();
      if (active && turn < half && turn + half < sharing) {
        MergeStates(&state, states[thread + half * columns]);
        states[thread] = state;
      }
    }
    if (active && turn == 0) {
      HandIn<T, kBundle>(slices, outer * all_columns + column + e, static_cast<int>(blockIdx.y), cut.parts, state);
    }
  }
}

template <class T, SliceBundle kBundle>
__global__ void __launch_bounds__(kSliceThreads)
    GatherKernel(const __grid_constant__ QuickSlices slices, const __grid_constant__ SliceCut cut) {
  using Fold = SliceFold<T, kBundle>;
  using State = typename Fold::State;
  constexpr int kElements = Vector16<T>::kElements;
  constexpr int kAtOnce = sizeof(State) <= 32 ? 4 : 2;
  __shared__ alignas(16) unsigned char shared[kSliceWarps * sizeof(State)];
  const SliceArray& array = slices.array;
  const bool by_warp = cut.lanes == kWarpSize;
  const unsigned thread = by_warp ? threadIdx.x % kWarpSize : threadIdx.x;
  const auto lanes = static_cast<unsigned>(cut.lanes);
  const std::int64_t output =
      by_warp ? std::int64_t{blockIdx.x} * kSliceWarps + threadIdx.x / kWarpSize : std::int64_t{blockIdx.x};
  if (output >= array.outputs) return;  // a whole warp
  const auto* const data = static_cast<const T*>(array.data) + OffsetOf(array.kept, output);
  Fold fold;
  const auto add_one = [&](const T* at, std::int64_t position) {
    const T x[1] = {LoadElementOnce(at)};
    fold.Tile(x, static_cast<unsigned>(position), 1, slices.omit_nan);
  };
  // Adds vectors from `begin` to `end`, which `at` finds, whose first element has position `first`.
  const auto add_vectors = [&](unsigned begin, unsigned end, std::int64_t first, auto at) {
    unsigned v = begin + thread;
    for (; v < end && end - v > (kAtOnce - 1) * lanes; v += kAtOnce * lanes) {
      Vector16<T> tile[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) tile[j] = LoadOnce<T>(at(v + j * lanes));
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const std::int64_t position = first + std::int64_t{v + j * lanes} * kElements;
        fold.Tile(tile[j].element, static_cast<unsigned>(position), 1, slices.omit_nan);
      }
    }
    for (; v < end; v += lanes) {
      const Vector16<T> vector = LoadOnce<T>(at(v));
      fold.Tile(vector.element, static_cast<unsigned>(first + std::int64_t{v} * kElements), 1, slices.omit_nan);
    }
  };
  const auto part = static_cast<int>(blockIdx.y);
  if (cut.contiguous) {
    const PartOfSlice slice(array.elements, part, cut.parts);
    const T* const from = data + slice.begin;
    const auto to_boundary = static_cast<std::int64_t>((-reinterpret_cast<std::uintptr_t>(from) & 15) / sizeof(T));
    const std::int64_t head = min(to_boundary, slice.end - slice.begin);
    const std::int64_t vectors = (slice.end - slice.begin - head) / kElements;
    if (thread < head) add_one(from + thread, slice.begin + thread);
    const auto* const first = reinterpret_cast<const uint4*>(from + head);
    add_vectors(0, static_cast<unsigned>(vectors), slice.begin + head, [&](unsigned v) { return first + v; });
    const std::int64_t tail = slice.begin + head + vectors * kElements + thread;
    if (tail < slice.end) add_one(data + tail, tail);
  } else if (cut.whole_vectors) {
    const PartOfSlice slice(array.elements / kElements, part, cut.parts);
    const auto run = static_cast<unsigned>(array.reduced.size[array.reduced.count - 1] / kElements);
    add_vectors(static_cast<unsigned>(slice.begin), static_cast<unsigned>(slice.end), 0, [&](unsigned v) {
      const unsigned outer = v / run;
      const T* const start = data + OffsetOf(array.reduced, outer, array.reduced.count - 1);
      return reinterpret_cast<const uint4*>(start) + (v - outer * run);
    });
  } else {
    const PartOfSlice slice(array.elements, part, cut.parts);
    for (std::int64_t i = slice.begin + thread; i < slice.end; i += lanes) {
      add_one(data + OffsetOf(array.reduced, i), i);
    }
  }
  State state = fold.Settle();
  MergeLanes(&state, kWarpSize);
  if (!by_warp) {
    auto* const states = reinterpret_cast<State*>(shared);
    if (threadIdx.x % kWarpSize == 0) states[threadIdx.x / kWarpSize] = state;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < kSliceWarps; ++warp) MergeStates(&state, states[warp]);
    }
  }
  if (thread == 0) HandIn<T, kBundle>(slices, output, part, cut.parts, state);
}

// Merges the parts of outputs: `lanes` threads for each.
template <class T, SliceBundle kBundle>
__global__ void __launch_bounds__(kSliceThreads)
    MergePartsKernel(const __grid_constant__ QuickSlices slices, int parts, int lanes) {
  using State = typename SliceFold<T, kBundle>::State;
  const std::int64_t outputs = slices.array.outputs;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kSliceThreads + threadIdx.x;
  const std::int64_t output = thread / lanes;
  const auto lane = static_cast<int>(thread & (lanes - 1));
  State state = SliceFold<T, kBundle>().Settle();
  if (output < outputs) {
    for (int part = lane; part < parts; part += lanes) {
      MergeStates(&state, static_cast<const State*>(slices.states)[part * outputs + output]);
    }
  }
  MergeLanes(&state, lanes);
  if (output < outputs && lane == 0) Finish<T, kBundle>(slices, output, state);
}

// How the launch cuts the outputs. `pack`: columns that a thread can take together.
inline SliceCut CutOf(const QuickSlices& slices, int pack) {
  const SliceArray& array = slices.array;
  const std::int64_t width = RowOf(slices.dtype).bytes;
  const std::int64_t row_bytes = array.elements * width;
  const SliceDimensions& kept = array.kept;
  const SliceDimensions& reduced = array.reduced;
  const bool contiguous = array.elements == 1 || (reduced.count == 1 && reduced.stride[0] == 1);
  const bool neighbours = contiguous && (kept.count == 0 || (kept.count == 1 && kept.stride[0] == array.elements));
  const bool aligned = reinterpret_cast<std::uintptr_t>(slices.array.data) % 16 == 0;
  SliceCut cut;
  if (neighbours && aligned && row_bytes >= 16 && row_bytes <= 512 &&
      std::has_single_bit(static_cast<std::uint64_t>(row_bytes))) {
    cut.way = SliceWay::kVectorRows;
    cut.lanes = static_cast<int>(row_bytes / 16);
    return cut;
  }
  if (neighbours && row_bytes <= 1024) {
    constexpr std::int64_t kThreadBytes = 128;
    constexpr std::int64_t kTileBytes = 16 << 10;
    cut.way = SliceWay::kShortRows;
    const auto wanted = static_cast<std::uint64_t>((row_bytes + kThreadBytes - 1) / kThreadBytes);
    cut.lanes = static_cast<int>(std::min<std::uint64_t>(kWarpSize, std::bit_ceil(wanted)));
    const std::int64_t at_once = kSliceThreads / cut.lanes;
    cut.rows = std::max<std::int64_t>(1, kTileBytes / row_bytes / at_once) * at_once;
    return cut;
  }
  const std::int64_t blocks_wanted = std::int64_t{slices.multiprocessors} * 16;
  if (kept.count > 0 && kept.stride[kept.count - 1] == 1) {
    constexpr std::int64_t kMostColumns = 128;
    cut.way = SliceWay::kColumns;
    bool packed = reinterpret_cast<std::uintptr_t>(slices.array.data) % 4 == 0 && kept.size[kept.count - 1] % pack == 0;
    for (int i = 0; i + 1 < kept.count; ++i) packed = packed && kept.stride[i] % pack == 0;
    for (int i = 0; i < reduced.count; ++i) packed = packed && reduced.stride[i] % pack == 0;
    if (!packed) pack = 1;
    cut.pack = pack;
    const std::int64_t columns = kept.size[kept.count - 1] / pack;
    cut.tiles = columns <= kSliceThreads ? 1 : (columns + kMostColumns - 1) / kMostColumns;
    cut.columns = (columns + cut.tiles - 1) / cut.tiles;
    cut.rows = kSliceThreads / cut.columns;
    const std::int64_t blocks = array.outputs / kept.size[kept.count - 1] * cut.tiles;
    const std::int64_t most = std::max<std::int64_t>(1, array.elements / (cut.rows * 32));
    cut.parts =
        static_cast<int>(std::min<std::int64_t>({std::max<std::int64_t>(1, blocks_wanted / blocks), most, 4096}));
    return cut;
  }
  constexpr std::int64_t kBlockBytes = 16 << 10;  // of an output that is worth a block
  const std::int64_t elements_of_vector = 16 / width;
  cut.contiguous = contiguous;
  bool whole = aligned && reduced.count > 1 && reduced.stride[reduced.count - 1] == 1 &&
               reduced.size[reduced.count - 1] % elements_of_vector == 0;
  for (int i = 0; i < kept.count; ++i) whole = whole && kept.stride[i] % elements_of_vector == 0;
  for (int i = 0; i + 1 < reduced.count; ++i) whole = whole && reduced.stride[i] % elements_of_vector == 0;
  cut.whole_vectors = whole;
  const bool by_block = row_bytes >= kBlockBytes || (array.outputs < slices.multiprocessors * 16 && row_bytes >= 2048);
  cut.lanes = by_block ? kSliceThreads : kWarpSize;
  if (by_block) {
    const std::int64_t most = std::max<std::int64_t>(1, row_bytes / (2 * kBlockBytes));
    cut.parts = static_cast<int>(
        std::min<std::int64_t>({std::max<std::int64_t>(1, blocks_wanted / array.outputs), most, 4096}));
  }
  return cut;
}

template <class T, SliceBundle kBundle>
std::size_t StatesBytesOf(const QuickSlices& slices) {
  const SliceCut cut = CutOf(slices, kPackedColumns<T, kBundle>);
  return cut.parts == 1 ? 0
                        : static_cast<std::size_t>(cut.parts * slices.array.outputs) *
                              sizeof(typename SliceFold<T, kBundle>::State);
}

inline unsigned BlocksFor(std::int64_t items, std::int64_t of_block) {
  return static_cast<unsigned>((items + of_block - 1) / of_block);
}

template <class T, SliceBundle kBundle>
cudaError_t LaunchBundle(const QuickSlices& slices) {
  const SliceCut cut = CutOf(slices, kPackedColumns<T, kBundle>);
  const std::int64_t outputs = slices.array.outputs;
  const auto parts = static_cast<unsigned>(cut.parts);
  if (cut.way == SliceWay::kVectorRows) {
    constexpr int kAtOnce = sizeof(typename SliceFold<T, kBundle>::State) <= 32 ? 8 : 4;
    const unsigned blocks = BlocksFor(outputs * cut.lanes, kAtOnce * kSliceThreads);
    VectorRowsKernel<T, kBundle><<<blocks, kSliceThreads, 0, slices.stream>>>(slices, cut.lanes);
  } else if (cut.way == SliceWay::kShortRows) {
    const auto bytes = static_cast<std::size_t>(cut.rows * slices.array.elements) * sizeof(T) + 32;
    ShortRowsKernel<T, kBundle><<<BlocksFor(outputs, cut.rows), kSliceThreads, bytes, slices.stream>>>(
        slices, static_cast<int>(cut.rows), cut.lanes);
  } else if (cut.way == SliceWay::kColumns) {
    const std::int64_t columns = slices.array.kept.size[slices.array.kept.count - 1];
    const dim3 grid(static_cast<unsigned>(outputs / columns * cut.tiles), parts);
    constexpr int kPack = kPackedColumns<T, kBundle>;
    const auto kernel = cut.pack == kPack ? &ColumnsKernel<T, kBundle, kPack> : &ColumnsKernel<T, kBundle, 1>;
    kernel<<<grid, kSliceThreads, 0, slices.stream>>>(slices, cut);
  } else {
    const dim3 grid(BlocksFor(outputs, cut.lanes == kWarpSize ? kSliceWarps : 1), parts);
    GatherKernel<T, kBundle><<<grid, kSliceThreads, 0, slices.stream>>>(slices, cut);
  }
  if (parts > 1) {
    const auto wanted = std::bit_ceil(static_cast<unsigned>((cut.parts + 3) / 4));
    const int lanes = static_cast<int>(std::min<unsigned>(kWarpSize, wanted));
    MergePartsKernel<T, kBundle>
        <<<BlocksFor(outputs * lanes, kSliceThreads), kSliceThreads, 0, slices.stream>>>(slices, cut.parts, lanes);
  }
  return cudaGetLastError();
}

// The bundles of a dtype: floats have all, integers those that are exact in words.
template <class T>
inline constexpr bool kHasPowers = kIsFloat<T>;

// Calls visit(bundle) with the bundle as a constant.
template <class T, class Visitor>
auto VisitBundle(SliceBundle bundle, Visitor visit) {
  if constexpr (kHasPowers<T>) {
    if (bundle == SliceBundle::kPowers) return visit(std::integral_constant<SliceBundle, SliceBundle::kPowers>());
    if (bundle == SliceBundle::kDescription) {
      return visit(std::integral_constant<SliceBundle, SliceBundle::kDescription>());
    }
  }
  if (bundle == SliceBundle::kExtrema) return visit(std::integral_constant<SliceBundle, SliceBundle::kExtrema>());
  return visit(std::integral_constant<SliceBundle, SliceBundle::kSums>());
}

// The launches of one dtype, which a source of its own compiles.
struct QuickSlicesOf {
  std::size_t (*states_bytes)(const QuickSlices& slices);
  cudaError_t (*launch)(const QuickSlices& slices);
};
template <class T>
constexpr QuickSlicesOf MakeQuickSlices() {
  return {[](const QuickSlices& slices) {
            return VisitBundle<T>(slices.bundle, [&](auto bundle) { return StatesBytesOf<T, bundle>(slices); });
          },
          [](const QuickSlices& slices) {
            return VisitBundle<T>(slices.bundle, [&](auto bundle) { return LaunchBundle<T, bundle>(slices); });
          }};
}

extern const QuickSlicesOf kQuickF16, kQuickBF16, kQuickF32, kQuickF64;
extern const QuickSlicesOf kQuickI8, kQuickI16, kQuickI32, kQuickI64, kQuickU8;

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_SLICES_CUH_
