// Exact sums of floats on a CUDA device: one launch, one read of the array, the same integers as the CPU's.
//
// Why it is fast: an element costs a thread three additions of f64 for each of two or three bins that it keeps in
// registers (how and why: cpu/exact_tiles.h), which is less than the f64 units have time for while the element comes
// from memory. A warp takes a tile of a few vectors a thread, anchored where its tiles before were. If it turns out,
// for any thread, that a number was larger, or that the last bin left something over, the warp forgets what it did to
// its bins and folds the tile once more, in as many rounds as it takes, each anchored by the largest number that is
// left. Before so many deposits that a bin could leave its binade, and at the end, bins become integers: summed up by
// shuffles, added to the digits that the block has in shared memory, in the end to those in global memory, where the
// last block to finish finds them, hands them out and leaves zeros for the next launch. All of these are sums of
// integers, so that neither the number of blocks nor their order matters.
//
// Sources: S. Collange, D. Defour, S. Graillat, R. Iakymchuk, "Numerical reproducibility for the parallel reduction on
// multi- and many-core architectures" (2015, ExBLAS); those of cpu/exact_tiles.h and pipelines/single_pass.cu.
#include <algorithm>

#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/exact_terms.cuh"
#include "kernels/cuda/vector16.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 3;
constexpr int kVectors = 4;  // of 16 bytes that a thread has in flight
constexpr std::uintptr_t kLineBytes = 128;
constexpr std::size_t kTicketBytes = 256;  // before the digits, in the scratch memory
static_assert(kTicketBytes + sizeof(ExactDigits) <= kExactScratchBytes);

// As in single_pass.cu: a head up to the first line boundary, whole vectors, and a tail.
struct Arguments {
  const void* data;
  std::int64_t count;
  unsigned head;     // elements
  unsigned vectors;  // of 16 bytes
  unsigned tail;     // elements
  unsigned* ticket;
  ExactDigits* digits;
  ExactDigits* out;
};

// -0 adds nothing to any sum, and nothing to what is known of it.
template <class T>
__device__ inline T NegativeZero() {
  if constexpr (sizeof(T) == 2) {
    return T{0x8000};
  } else {
    return -T{0};
  }
}

template <class T>
using Tile = Vector16<T>[kVectors];

// A thread's share of one of the sums. All functions but the constructor are called by all threads of a warp.
template <class T, Accumulator kA, bool kCounts>
class WarpSum {
  using Terms = ExactTerms<T, kA>;
  static constexpr int kElements = Vector16<T>::kElements;
  static constexpr int kTileDeposits = kVectors * kElements * Terms::kValues;

 public:
  __device__ void Add(const Tile<T>& tile, ExactDigits* digits) {
    bool done = false;
    if (wide_ > 0) {
      --wide_;
    } else if (top_ != kNoTop) {
      if (deposits_ + kTileDeposits > kMaxDeposits) Flush(digits);
      done = AddExpected(tile);
    }
    if (!done) AddUnexpected(tile, digits);
    if constexpr (kA == Accumulator::kSum) LookAtZeros(tile);
  }

  // Bins to digits; once more before the digits are read.
  __device__ void Flush(ExactDigits* digits) {
    if (deposits_ == 0) return;
    FlushBins(bin_, top_, digits);
    Anchor();
  }

  __device__ bool not_only_negative_zeros() const { return not_only_negative_zeros_; }

 private:
  __device__ void Anchor() {
    deposits_ = 0;
#pragma unroll
    for (int b = 0; b < Terms::kBins; ++b) bin_[b] = AnchorOf(top_, b);
  }

  template <int kBins>
  __device__ static void FlushBins(const double (&bin)[kBins], int top, ExactDigits* digits) {
#pragma unroll 1
    for (int b = 0; b < kBins; ++b) {
      double of_bin = bin[0];  // no indexing by what isn't constant: the bins stay in registers
#pragma unroll
      for (int i = 1; i < kBins; ++i) of_bin = b == i ? bin[i] : of_bin;
      long long units = __double_as_longlong(of_bin) - __double_as_longlong(AnchorOf(top, b));
#pragma unroll
      for (int offset = kWarpSize / 2; offset > 0; offset /= 2) units += __shfl_down_sync(kFullWarp, units, offset);
      if (threadIdx.x % kWarpSize == 0) AddUnits(Terms::DigitsOf(digits), units, UnitOf(top, b) - Terms::kLow);
    }
  }

  // False, having changed nothing: not all is as expected, for one of the warp's threads.
  __device__ bool AddExpected(const Tile<T>& tile) {
    double bin[Terms::kBins];
#pragma unroll
    for (int b = 0; b < Terms::kBins; ++b) bin[b] = bin_[b];
    unsigned left = 0;
    unsigned largest = 0;
    unsigned smallest = 0xffffffffu;  // but for zeros
    const auto keep = [&left](double rest) {
      left |= UpperMagnitude(rest);
      left |= static_cast<unsigned>(__double2loint(rest));
    };
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const double x = ToDouble(tile[v].element[e]);
        const double first = Terms::First(x);
        largest = max(largest, UpperMagnitude(first));
        keep(Deposit<0>(bin, first));
        if constexpr (Terms::kTwo) {
          keep(Deposit<1>(bin, Terms::Second(x, first)));
          smallest = min(smallest, UpperMagnitudeOr1(x) - 1);  // 0 becomes the largest of all
        }
      }
    }
    const bool bad = left != 0 || largest >= UpperOfPower(top_) || (Terms::kTwo && smallest < Terms::kSmallest);
    if (__any_sync(kFullWarp, bad)) return false;
#pragma unroll
    for (int b = 0; b < Terms::kBins; ++b) bin_[b] = bin[b];
    deposits_ += kTileDeposits;
    return true;
  }

  // Anchors the bins anew, for the tiles to come.
  __device__ void AddUnexpected(const Tile<T>& tile, ExactDigits* digits) {
    constexpr int kSlack = 2;
    constexpr int kPatience = 16;                       // tiles that are not even tried
    constexpr int kGroup = std::max(1, 8 / kElements);  // vectors at a time, so that what is left fits in registers
    constexpr int kNumbers = kGroup * kElements * Terms::kValues;
    constexpr int kGroupBins = 3;
    Flush(digits);
    int highest = kNoTop;
    int most_rounds = 0;
#pragma unroll
    for (int group = 0; group < kVectors; group += kGroup) {
      double rest[kNumbers];
      unsigned largest = 0;
#pragma unroll
      for (int i = 0; i < kGroup * kElements; ++i) {
        double x = ToDouble(tile[group + i / kElements].element[i % kElements]);
        if (!Terms::Ordinary(x)) {
          AddAlone<kA, kCounts>(x, digits);
          x = 0;
        }
        rest[i] = Terms::First(x);
        largest = max(largest, UpperMagnitudeOr1(rest[i]));
        if constexpr (Terms::kTwo) rest[kGroup * kElements + i] = Terms::Second(x, rest[i]);
      }
      int rounds = 0;
      for (largest = WarpExtremum<true>(largest); largest != 0; largest = WarpExtremum<true>(largest)) {
        const int top = TopFor(largest);
        if (rounds == 0) highest = max(highest, top);
        double bin[kGroupBins];
#pragma unroll
        for (int b = 0; b < kGroupBins; ++b) bin[b] = AnchorOf(top, b);
        largest = 0;
#pragma unroll
        for (double& each : rest) {
          each = Deposit<0>(bin, each);
          largest = max(largest, UpperMagnitudeOr1(each));
        }
        FlushBins(bin, top, digits);
        ++rounds;
      }
      most_rounds = max(most_rounds, rounds);
    }
    if (highest != kNoTop) {
      top_ = min(highest + kSlack, kLargestTop);
      Anchor();
    }
    if (most_rounds > 1) wide_ = kPatience;
  }

  __device__ void LookAtZeros(const Tile<T>& tile) {
    if (not_only_negative_zeros_) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const double x = ToDouble(tile[v].element[e]);
        const bool negative_zero = __double_as_longlong(x) == static_cast<long long>(1ull << 63);
        if (!negative_zero && !IsNan(x)) not_only_negative_zeros_ = true;
      }
    }
  }

  double bin_[Terms::kBins];
  int top_ = kNoTop;  // of the bins; the same for the whole warp, like the two that follow
  int deposits_ = 0;  // since they were anchored
  int wide_ = 0;      // so many tiles are expected to have more than the bins hold
  bool not_only_negative_zeros_ = false;
};

__device__ inline bool DrawsLastTicket(unsigned* ticket) {
  unsigned drawn;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(drawn)
               : "l"(ticket), "r"(gridDim.x - 1)
               : "memory");
  return drawn == gridDim.x - 1;
}

// Sums: one or two WarpSum.
template <class T, class... Sums>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor) ExactSumsKernel(Arguments args) {
  __shared__ unsigned long long words[kExactDigitWords];
  auto* const digits = reinterpret_cast<ExactDigits*>(words);
  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) words[i] = 0;
  __syncthreads();

  const T* const data = static_cast<const T*>(args.data);
  const auto* const vectors = reinterpret_cast<const uint4*>(data + args.head);
  const unsigned lane = threadIdx.x % kWarpSize;
  const unsigned threads = gridDim.x * kThreads;
  const auto walk = [&](Sums... sums) {
    Tile<T> tile;
    // The edges, by one warp: fewer elements than kMost a thread.
    if (blockIdx.x == 0 && threadIdx.x < kWarpSize) {
      constexpr int kElements = Vector16<T>::kElements;
      constexpr int kMost = 3;
      static_assert(kLineBytes / sizeof(T) + 16 / sizeof(T) <= kMost * kWarpSize && kMost <= kVectors * kElements);
#pragma unroll
      for (int i = 0; i < kVectors * kElements; ++i) {
        const unsigned at = lane + static_cast<unsigned>(i) * kWarpSize;
        T x = NegativeZero<T>();
        if (i < kMost && at < args.head) x = data[at];
        if (i < kMost && at >= args.head && at < args.head + args.tail)
          x = data[args.count - args.tail + (at - args.head)];
        tile[i / kElements].element[i % kElements] = x;
      }
      (sums.Add(tile, digits), ...);
    }
    // The same for all threads of a warp: whether there is a tile.
    const unsigned first = blockIdx.x * kThreads + threadIdx.x - lane;
    for (unsigned begin = first; begin < args.vectors; begin += kVectors * threads) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const unsigned at = begin + lane + static_cast<unsigned>(v) * threads;
        if (at < args.vectors) {
          tile[v] = LoadOnce<T>(vectors + at);
        } else {
#pragma unroll
          for (T& x : tile[v].element) x = NegativeZero<T>();
        }
      }
      (sums.Add(tile, digits), ...);
    }
    (sums.Flush(digits), ...);
    const bool others = (sums.not_only_negative_zeros() || ...);
    if (__any_sync(kFullWarp, others) && lane == 0) AddTo(&digits->not_only_negative_zeros, 1);
  };
  walk(Sums()...);
  __syncthreads();

  auto* const global = reinterpret_cast<unsigned long long*>(args.digits);
  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) AddTo(global + i, words[i]);
  __threadfence();
  __syncthreads();
  const bool is_last = __syncthreads_or(threadIdx.x == 0 && DrawsLastTicket(args.ticket));
  if (!is_last) return;
  __threadfence();
  auto* const out = reinterpret_cast<unsigned long long*>(args.out);
  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) {
    const unsigned long long word = atomicExch(global + i, 0ull);
    if (word != 0) out[i] = word;  // several launches have words of their own
  }
}

template <class T, class... Sums>
cudaError_t LaunchKernel(const ExactLaunch& launch) {
  const auto to_boundary =
      static_cast<std::int64_t>((-reinterpret_cast<std::uintptr_t>(launch.data) & (kLineBytes - 1)) / sizeof(T));
  const std::int64_t head = std::min(to_boundary, launch.count);
  const std::int64_t vectors = (launch.count - head) / Vector16<T>::kElements;
  auto* const scratch = static_cast<unsigned char*>(launch.scratch);
  const Arguments args{.data = launch.data,
                       .count = launch.count,
                       .head = static_cast<unsigned>(head),
                       .vectors = static_cast<unsigned>(vectors),
                       .tail = static_cast<unsigned>(launch.count - head - vectors * Vector16<T>::kElements),
                       .ticket = reinterpret_cast<unsigned*>(scratch),
                       .digits = reinterpret_cast<ExactDigits*>(scratch + kTicketBytes),
                       .out = launch.out};
  // As few as have a tile for each thread, no more than run at once.
  constexpr std::int64_t kTileVectors = std::int64_t{kThreads} * kVectors;
  const std::int64_t wanted = std::max<std::int64_t>(1, (vectors + kTileVectors - 1) / kTileVectors);
  const std::int64_t most = std::int64_t{launch.multiprocessors} * kBlocksPerMultiprocessor;
  ExactSumsKernel<T, Sums...><<<static_cast<unsigned>(std::min(wanted, most)), kThreads, 0, launch.stream>>>(args);
  return cudaGetLastError();
}

// Sums and sums of squares, as variances take them, are one read of the array, any others one each. The first of them
// counts what isn't finite.
template <class T>
cudaError_t LaunchFor(const ExactLaunch& launch) {
  const auto has = [&launch](Accumulator a) { return (launch.accumulators & SetOf(a)) != 0; };
  const bool sum = has(Accumulator::kSum);
  const bool squares = has(Accumulator::kSumSquares);
  cudaError_t error = cudaSuccess;
  if (sum && squares) {
    error = LaunchKernel<T, WarpSum<T, Accumulator::kSum, true>, WarpSum<T, Accumulator::kSumSquares, false>>(launch);
  } else if (sum) {
    error = LaunchKernel<T, WarpSum<T, Accumulator::kSum, true>>(launch);
  } else if (squares) {
    error = LaunchKernel<T, WarpSum<T, Accumulator::kSumSquares, true>>(launch);
  }
  if (error != cudaSuccess || !has(Accumulator::kAbsSum)) return error;
  if (sum || squares) return LaunchKernel<T, WarpSum<T, Accumulator::kAbsSum, false>>(launch);
  return LaunchKernel<T, WarpSum<T, Accumulator::kAbsSum, true>>(launch);
}

}  // namespace

cudaError_t LaunchExactSums(const ExactLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) return LaunchFor<T>(launch);
    return cudaErrorInvalidValue;
  });
}

}  // namespace reduced
