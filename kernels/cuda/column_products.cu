// How products of columns are added up by tensor cores without rounding. An element of f32 is split into two whole
// numbers: h units of 2^(top - 20) and l units of 2^(top - 40), where the elements of its column are below 2^top. The
// products of such numbers are below 2^40, and f64 adds up 2^13 of them exactly, in any order. So a warp multiplies the
// transposed matrix of the h and l of 16 columns with itself, and has whole numbers to add to the digits every 2^13
// rows. Rows with an element that is not a sum of such units, for it is too large or has digits below 2^(top - 40), are
// added up one by one; where they are many, the tops move.
//
// Bytes and operations: a row of 16 columns of f32 has 64 bytes, and 136 products of two numbers of two halves each:
// 640 multiplications with additions of f64, by 5 instructions for 8 rows. That takes 0.34 ms a GiB at the 33 T of them
// a second that an H200 is said to have, 1.4 times a plain read.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/column_products.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/matmul/tensor_f64.cuh"

namespace reduced {
namespace {

constexpr int kGroup = 8;         // columns of a fragment of the tensor cores
constexpr int kTaskColumns = 16;  // of a warp, or twice as many
constexpr int kStepRows = 8;      // of an instruction
constexpr int kSteps = 4;         // whose elements are loaded together
constexpr int kBatchRows = kSteps * kStepRows;
constexpr int kFlushRows = 1 << 13;
constexpr int kHalfBits = 20;
constexpr int kLowestTop = -100, kHighestTop = 118;
constexpr int kMostOdd = kBatchRows / 8;      // rows of a batch that are added up one by one before tops move
constexpr int kMostThreads = 10 * kWarpSize;  // of 64 columns: a warp for each of 10 tasks
constexpr unsigned kAll = ~0U;

// Adds value x 2^position, in units of 2^ColumnDigits::kUnit.
__device__ void AddWhole(ColumnDigits* to, long long value, int position) {
  const int shift = (position - ColumnDigits::kUnit) & 31;
  unsigned long long* const digit = to->digit + ((position - ColumnDigits::kUnit) >> 5);
  const auto low = static_cast<unsigned long long>(value) << shift;
  const auto high = static_cast<unsigned long long>((value >> 1) >> (63 - shift));
  if ((low & 0xffffffff) != 0) atomicAdd(digit, low & 0xffffffff);
  if (low >> 32 != 0) atomicAdd(digit + 1, low >> 32);
  if (high != 0) atomicAdd(digit + 2, high);
}

__device__ double PowerOfTwo(int exponent) { return __hiloint2double((exponent + 1023) << 20, 0); }
__device__ float FloatPowerOfTwo(int exponent) { return __int_as_float((exponent + 127) << 23); }

// A finite float is a whole number times a power of two.
struct WholeFloat {
  long long magnitude;
  int exponent;
};
__device__ WholeFloat WholeOf(float x) {
  const int bits = __float_as_int(x), field = bits >> 23 & 0xff;
  const int magnitude = (bits & 0x7fffff) | (field == 0 ? 0 : 0x800000);
  return {bits < 0 ? -magnitude : magnitude, max(field, 1) - 150};
}

// Of the pair of columns a and b.
__device__ int PairOf(int a, int b, int columns) {
  const int first = min(a, b), second = max(a, b);
  return first * columns - first * (first - 1) / 2 + second - first;
}

// Products of fragments: those of p, and of q, with r.
struct Block {
  int p, q, r;
};
// The columns of one task: 16 with each other, or 16 with 16 others. Fragments are the h, and then the l, of groups of
// eight columns.
template <bool kSame>
struct TaskShape;
template <>
struct TaskShape<true> {
  static constexpr int kGroups = 2, kBlocks = 5;
  // h0 h0, h1 h0; l0 h0, l1 h0; h1 h1, l0 h1; l0 l0, l1 l0; l1 l1, h1 l1.
  __device__ static constexpr Block At(int i) {
    constexpr Block blocks[] = {{0, 1, 0}, {2, 3, 0}, {1, 2, 1}, {2, 3, 2}, {3, 1, 3}};
    return blocks[i];
  }
};
template <>
struct TaskShape<false> {
  static constexpr int kGroups = 4, kBlocks = 8;
  __device__ static constexpr Block At(int i) {  // h or l of groups 0 and 1, with h or l of groups 2 and 3
    return {i / 4 * 4, i / 4 * 4 + 1, i % 4 / 2 * 4 + 2 + i % 2};
  }
};

template <class T, bool kSame>
class Task {
  using Shape = TaskShape<kSame>;
  static constexpr int kGroups = Shape::kGroups, kBlocks = Shape::kBlocks;

 public:
  // first[i]: the first column of 16.
  __device__ Task(const ColumnProductsLaunch& launch, const int (&first)[2])
      : launch_(launch), data_(static_cast<const T*>(launch.data)), of_row_(Lane() % 4), of_group_(Lane() / 4) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      column_[g] = first[g / 2] + g % 2 * kGroup + of_group_;
      SetTop(g, 0);
    }
  }

  // Adds the batches of rows `batch`, batch + step, ...
  __device__ void Run(std::int64_t batch, std::int64_t step) {
    for (;; batch += step) {
      const bool more = batch * kBatchRows < launch_.rows;
      float x[kSteps][kGroups][2];
      unsigned odd[kSteps];
      int top[kGroups];
      Load(batch * kBatchRows + of_row_, x);
      const bool moves = FindOdd(x, odd) > kMostOdd && FindTops(x, top);
      if (!more || moves || rows_ + kBatchRows > kFlushRows) Flush();
      if (!more) return;
      if (moves) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) SetTop(g, top[g]);
        FindOdd(x, odd);
      }
      rows_ += kBatchRows;
      float few[2 * kGroups] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        AddStep(x[s], odd[s], few);
        for (unsigned left = odd[s]; left != 0; left &= left - 1) {
          const std::int64_t row = batch * kBatchRows + s * kStepRows + __ffs(static_cast<int>(left)) - 1;
          AddAlone(launch_, row, column_[0] - of_group_, column_[kGroups - 2] - of_group_);
        }
      }
#pragma unroll
      for (int f = 0; kSame && f < 2 * kGroups; ++f) sum_[f] += few[f];
    }
  }

 private:
  // Beyond the matrix there are zeros.
  __device__ void Load(std::int64_t row, float (&x)[kSteps][kGroups][2]) const {
    const T* at = data_ + row * launch_.columns;
    const std::int64_t left = launch_.rows - row;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const bool there = s * kStepRows + i * 4 < left && column_[g] < launch_.columns;
          x[s][g][i] = there ? FloatOf(at[column_[g]]) : 0.0F;
        }
        at += 4 * launch_.columns;
      }
    }
  }

  __device__ static int Lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  // x = h + l; false: it is no sum of such units.
  __device__ bool Split(float x, int g, float* h, float* l) const {
    *h = __fsub_rn(__fadd_rn(x, anchor_[g]), anchor_[g]);
    *l = __fsub_rn(x, *h);
    return fabsf(x) < limit_[g] && __fsub_rn(__fadd_rn(*l, low_anchor_[g]), low_anchor_[g]) == *l;
  }
  __device__ void SetTop(int g, int top) {
    top_[g] = top;
    limit_[g] = FloatPowerOfTwo(top);
    anchor_[g] = 1.5F * FloatPowerOfTwo(23 + top - kHalfBits);
    low_anchor_[g] = 1.5F * FloatPowerOfTwo(23 + top - 2 * kHalfBits);
  }

  // Which of the rows of each step have an element that no split is for: a bit each. Returns how many.
  __device__ int FindOdd(const float (&x)[kSteps][kGroups][2], unsigned (&odd)[kSteps]) const {
    int found = 0;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      odd[s] = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        bool splits = true;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          float h, l;
          splits = Split(x[s][g][i], g, &h, &l) && splits;
        }
        if (__all_sync(kAll, splits)) continue;
        const unsigned lanes = __ballot_sync(kAll, !splits);
#pragma unroll
        for (int r = 0; r < 4; ++r) odd[s] |= (lanes & (0x11111111U << r)) != 0 ? 1U << (i * 4 + r) : 0;
      }
      found += __popc(odd[s]);
    }
    return found;
  }

  // The tops of columns for the elements of a batch. False: they are there.
  __device__ bool FindTops(const float (&x)[kSteps][kGroups][2], int (&top)[kGroups]) const {
    bool moves = false;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      int largest = 0;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int magnitude = __float_as_int(x[s][g][i]) & 0x7fffffff;
          if (magnitude < 0x7f800000) largest = max(largest, magnitude);
        }
      }
      for (int distance = 1; distance < 4; distance *= 2) {
        largest = max(largest, __shfl_xor_sync(kAll, largest, distance));
      }
      constexpr int kRoom = 1;
      top[g] = min(max((largest >> 23) - 126 + kRoom, kLowestTop), kHighestTop);
      moves = moves || top[g] != top_[g];
    }
    return __any_sync(kAll, moves);
  }

  // few: the sums of h and l, of which f32 has eight exactly.
  __device__ void AddStep(const float (&x)[kGroups][2], unsigned odd, float (&few)[2 * kGroups]) {
    double fragment[2 * kGroups][2];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float h, l;
        Split((odd >> (i * 4 + of_row_) & 1) != 0 ? 0.0F : x[g][i], g, &h, &l);
        fragment[g][i] = h;
        fragment[kGroups + g][i] = l;
        if (kSame) few[g] += h, few[kGroups + g] += l;
      }
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const Block block = Shape::At(b);
      const double(&p)[2] = fragment[block.p];
      const double(&q)[2] = fragment[block.q];
      MultiplyTensorF64({p[0], q[0], p[1], q[1]}, fragment[block.r], product_[b]);
    }
  }

  // Adds a row whose elements are whatever they are, of the 16 columns from two on. Takes no member, which would be in
  // memory.
  __device__ __noinline__ static void AddAlone(const ColumnProductsLaunch& launch, std::int64_t row, int first,
                                               int second) {
    const T* const data = static_cast<const T*>(launch.data) + row * launch.columns;
    const int column = (Lane() < kTaskColumns ? first : second - kTaskColumns) + Lane();
    if (!__all_sync(kAll, column >= launch.columns || isfinite(FloatOf(data[column])))) {
      if (Lane() == 0) atomicAdd(launch.not_finite, 1ULL);
      return;
    }
    for (int i = Lane(); i < kTaskColumns * kTaskColumns; i += kWarpSize) {
      const int a = first + i / kTaskColumns, b = second + i % kTaskColumns;
      if (a >= launch.columns || b >= launch.columns || b < a) continue;
      const WholeFloat x = WholeOf(FloatOf(data[a])), y = WholeOf(FloatOf(data[b]));
      AddWhole(launch.out + PairOf(a, b, launch.columns), x.magnitude * y.magnitude, x.exponent + y.exponent);
      if (a == b) AddWhole(OfColumn(launch, a), x.magnitude, x.exponent);
    }
  }
  __device__ static float FloatOf(T x) { return static_cast<float>(ToDouble(x)); }
  __device__ static ColumnDigits* OfColumn(const ColumnProductsLaunch& launch, int column) {
    return launch.out + launch.columns * (launch.columns + 1) / 2 + column;
  }

  // The exponent of a fragment's units, in this lane's column.
  __device__ int UnitOf(int fragment) const {
    return top_[fragment % kGroups] - (fragment < kGroups ? 1 : 2) * kHalfBits;
  }

  // Whole numbers to digits.
  __device__ __forceinline__ void Flush() {
    if (rows_ == 0) return;
    rows_ = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const Block block = Shape::At(b);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int fragment = i / 2 == 0 ? block.p : block.q;
        const int lane_of_r = (of_row_ * 2 + i % 2) * 4;  // that has the column
        const int r_column = __shfl_sync(kAll, column_[block.r % kGroups], lane_of_r);
        const int unit = UnitOf(fragment) + __shfl_sync(kAll, UnitOf(block.r), lane_of_r);
        const int column = column_[fragment % kGroups];
        auto value = static_cast<long long>(product_[b][i] * PowerOfTwo(-unit));
        product_[b][i] = 0;
        // Of a group with itself there are both orders: of h l they are different sums, of h h and l l the same one.
        if (kSame && fragment == block.r && column > r_column) continue;
        if (kSame && fragment != block.r && column == r_column) value *= 2;
        if (value == 0 || column >= launch_.columns || r_column >= launch_.columns) continue;
        AddWhole(launch_.out + PairOf(column, r_column, launch_.columns), value, unit);
      }
    }
#pragma unroll
    for (int f = 0; kSame && f < 2 * kGroups; ++f) {
      const auto value = static_cast<long long>(sum_[f] * PowerOfTwo(-UnitOf(f)));
      sum_[f] = 0;
      if (value != 0) AddWhole(OfColumn(launch_, column_[f % kGroups]), value, UnitOf(f));
    }
  }

  const ColumnProductsLaunch& launch_;
  const T* const data_;
  const int of_row_, of_group_;  // of this lane's elements, in a step
  int column_[kGroups];
  int top_[kGroups];
  float limit_[kGroups], anchor_[kGroups], low_anchor_[kGroups];
  int rows_ = 0;  // since all products were added to digits
  double product_[kBlocks][4] = {};
  double sum_[2 * kGroups] = {};
};

// Warps of a block have the same rows. The tasks are each 16 columns with themselves, and with each 16 later ones.
// kOnePart: there are 16 columns at most.
template <class T, bool kOnePart>
__global__ void __launch_bounds__(kOnePart ? 4 * kWarpSize : kMostThreads, kOnePart ? 4 : 1)
    ColumnProductsKernel(const __grid_constant__ ColumnProductsLaunch launch) {
  const int parts = (launch.columns + kTaskColumns - 1) / kTaskColumns, tasks = parts * (parts + 1) / 2;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, teams = static_cast<int>(blockDim.x) / kWarpSize / tasks;
  int task = warp % tasks, row = 0;
  for (; task >= parts - row; ++row) task -= parts - row;
  const int first[2] = {row * kTaskColumns, (row + task) * kTaskColumns};
  const std::int64_t batch = std::int64_t{blockIdx.x} * teams + warp / tasks, step = std::int64_t{gridDim.x} * teams;
  if (kOnePart || task == 0) {
    Task<T, true>(launch, first).Run(batch, step);
  } else {
    Task<T, false>(launch, first).Run(batch, step);
  }
}

template <class T>
cudaError_t LaunchKernel(const ColumnProductsLaunch& launch) {
  const int parts = (launch.columns + kTaskColumns - 1) / kTaskColumns, tasks = parts * (parts + 1) / 2;
  const int teams = std::max(4 / tasks, 1), threads = teams * tasks * kWarpSize;
  const auto kernel = parts == 1 ? &ColumnProductsKernel<T, true> : &ColumnProductsKernel<T, false>;
  int resident = 1;  // blocks of a multiprocessor
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0);
  if (error != cudaSuccess) return error;
  const std::int64_t batches = (launch.rows + kBatchRows - 1) / kBatchRows;
  const std::int64_t blocks = std::min<std::int64_t>((batches + teams - 1) / teams,
                                                     std::int64_t{std::max(resident, 1)} * launch.multiprocessors);
  kernel<<<static_cast<unsigned>(blocks), threads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchColumnProducts(const ColumnProductsLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T> && sizeof(T) <= sizeof(float)) return LaunchKernel<T>(launch);
    return cudaErrorInvalidValue;
  });
}

}  // namespace reduced
