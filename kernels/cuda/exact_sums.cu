// Exact sums of floats on a CUDA device: one launch and one read of the array for sums and sums of squares, another for
// those of magnitudes; the same integers as the CPU's.
//
// Why it is fast: an element costs a thread three additions of f64 for each bin but the last, and one for that (how and
// why: cpu/exact_tiles.h), which is less than the f64 units have time for while the element comes from memory. One is
// enough since it is known before that nothing will be left over: a warp takes a tile of a few vectors a thread and
// looks at its exponents, with one comparison of their extremes: the largest number has to fit into the first bin, and
// the last digit of the smallest must not be below the last bin's unit.
//
// Else the tile is looked at once more. If that makes enough of a difference, the bins move to where its numbers are,
// or become more: f32 and bf16 of all magnitudes take as many as their whole range has. What the bins still can't take
// is added, element by element, to the digits that the block has in shared memory.
//
// Before so many deposits that a bin could leave its binade, and at the end, bins become integers, which the warp sums
// up and adds to the block's digits, those in the end to digits in global memory, where the last block to finish finds
// them, hands them out and leaves zeros for the next launch; a block that is the only one hands out its own. All of
// these are sums of integers, so that neither the number of blocks nor their order matters.
//
// Sources: S. Collange, D. Defour, S. Graillat, R. Iakymchuk, "Numerical reproducibility for the parallel reduction on
// multi- and many-core architectures" (2015, ExBLAS); those of cpu/exact_tiles.h and pipelines/single_pass.cu.
#include <algorithm>

#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/exact_terms.cuh"
#include "kernels/cuda/launch_end.cuh"
#include "kernels/cuda/vector16.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 2;
// Vectors of 16 bytes that a thread has in flight: as many as leave it registers for all else.
template <class T>
constexpr int kVectors = std::is_same_v<T, BFloat16> ? 2 : 4;
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
  KernelTimes* times;  // null: not wanted
};

template <class T>
using Tile = Vector16<T>[kVectors<T>];

// Calls visit(x) for each element x of a tile.
template <class SomeTile, class Visitor>
__device__ __forceinline__ void ForEach(SomeTile& tile, Visitor visit) {
  constexpr int kElements = sizeof(tile[0].element) / sizeof(tile[0].element[0]);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(tile) / sizeof(tile[0])) * kElements; ++i)
    visit(tile[i / kElements].element[i % kElements]);
}

// Has the compiler forget what it knows of a tile, so that it doesn't keep in registers what is quickly computed again.
template <class T>
__device__ __forceinline__ void Forget(Tile<T>& tile) {
#pragma unroll
  for (int v = 0; v < kVectors<T>; ++v) {
    typename Vector16<T>::Packed packed = tile[v].Words();
#pragma unroll
    for (int w = 0; w < 4; ++w) asm volatile("" : "+r"(packed.word[w]));
    memcpy(tile[v].element, &packed, sizeof(packed));
  }
}

// A thread's share of the sums kSums. Unless it says otherwise, a function is called by all threads of a warp, which
// have the same of everything but bins.
template <class T, bool kCounts, Accumulator... kSums>
class WarpSums {
  using Element = ExactElement<T>;
  using Levels = ExactLevels<T, kSums...>;
  static constexpr int kTileElements = kVectors<T> * Vector16<T>::kElements;  // a thread
  // A square of f64 is two numbers.
  static constexpr int kTileDeposits = kTileElements * (Levels::kF64 && Levels::kSquares ? 2 : 1);
  static constexpr int kWidest = Levels::kWidest;
  static constexpr Level kMost = Levels::At(kWidest);
  static constexpr bool kFixed = kMost.fixed_top != kNoTop;
  static constexpr int kMoving = kFixed ? kWidest : kWidest + 1;  // so many levels have bins that move
  // Bins of the sum that are in registers. Those beyond are in shared memory, where levels that use them have them come
  // from and go to with each tile: registers are what bounds the vectors in flight.
  static constexpr int kNear = std::min(kMost.sum, 2);
  static constexpr int kFar = kMost.sum - kNear;

 public:
  using FarBins = double[std::max(kFar, 1)][kThreads];  // by thread

  // Both in shared memory; the digits are zeros.
  __device__ WarpSums(ExactDigits* digits, FarBins* far) : digits_(digits), far_(far) {}

  __device__ __forceinline__ void Add(Tile<T>& tile) {
    if (deposits_ + kTileDeposits > kMaxDeposits) {
      Flush();
      if (kMoving > 0 && level_ >= kMoving) window_ = {};  // perhaps fewer bins would do by now
    }
    if constexpr (Levels::Has(Accumulator::kSum)) LookAtZeros(tile);
    if (window_.span == 0) Begin(tile[0]);
    unsigned farthest = 0;
    ForEach(tile, [&](T x) { farthest = max(farthest, Element::PatternOf(x) - window_.low); });
    if (!__all_sync(kFullWarp, farthest < window_.span)) TakeOutWhatDoesNotFit(tile);
    Forget<T>(tile);
    if (window_.span != 0) AddToBins(tile);
  }

  // An element that has no tile. Called by any threads.
  __device__ void AddOne(T x) {
    if (Levels::Has(Accumulator::kSum) && !Element::IsNegativeZero(x) && !IsNan(x)) not_only_negative_zeros_ = true;
    AddAlone<kCounts, kSums...>(ToDouble(x), digits_);
  }

  // Bins to digits; once more before the digits are read.
  __device__ void Flush() {
    if (deposits_ == 0) return;
    AtLevel([&](auto level) {
      constexpr Level kBins = Levels::At(level);
      if constexpr (Levels::kSum) {
        double sum[kBins.sum];
        LoadSum(sum);
        AddBins<kBins.sum>(sum, top_, ExactSum::kLow, Levels::kAbs ? digits_->abs_sum : digits_->sum);
      }
      if constexpr (Levels::kSquares) {
        AddBins<kBins.squares>(squares_, 2 * top_, ExactSquares::kLow, digits_->sum_squares);
      }
    });
    Anchor();
  }

  // Of this thread's elements.
  __device__ bool not_only_negative_zeros() const { return not_only_negative_zeros_; }

 private:
  // Patterns from low to below low + span: of numbers that the bins take. None are, if the span is 0.
  struct Window {
    unsigned low = 0;
    unsigned span = 0;

    __device__ bool Has(T x) const { return Element::PatternOf(x) - low < span; }
    __device__ int CountOutside(const Tile<T>& tile) const {
      unsigned outside = 0;
      ForEach(tile, [&](T x) { outside += !Has(x) && !Element::IsZero(x) ? 1 : 0; });
      return static_cast<int>(__reduce_add_sync(kFullWarp, outside));
    }
  };
  __device__ static unsigned PatternOfPower(int exponent) {
    return static_cast<unsigned>(exponent + Element::kBias) << Element::kFieldAt;
  }
  __device__ static int ExponentOf(unsigned pattern) {
    return static_cast<int>(pattern >> Element::kFieldAt) - Element::kBias;
  }
  // Of the numbers from 2^lowest to below 2^top.
  __device__ static Window WindowOf(int lowest, int top) {
    return {PatternOfPower(lowest), PatternOfPower(top) - PatternOfPower(lowest)};
  }

  // Where bins would be.
  struct Place {
    int level = 0;
    int top = 0;
    Window window;
  };

  __device__ static Place FixedPlace() { return {kWidest, kMost.fixed_top, {0, PatternOfPower(Element::kHighest)}}; }

  template <int kBins>
  __device__ void LoadSum(double (&bin)[kBins]) const {
#pragma unroll
    for (int b = 0; b < kBins; ++b) bin[b] = b < kNear ? sum_[b] : (*far_)[b - kNear][threadIdx.x];
  }
  template <int kBins>
  __device__ void StoreSum(const double (&bin)[kBins]) {
#pragma unroll
    for (int b = 0; b < kBins; ++b) (b < kNear ? sum_[b] : (*far_)[b - kNear][threadIdx.x]) = bin[b];
  }
  // Calls visit(level) for the current one, as a constant.
  template <int kLevel = 0, class Visitor>
  __device__ void AtLevel(Visitor visit) {
    if constexpr (kLevel < kWidest) {
      if (level_ != kLevel) return AtLevel<kLevel + 1>(visit);
    }
    visit(std::integral_constant<int, kLevel>());
  }

  __device__ void Anchor() {
    deposits_ = 0;
    AtLevel([&](auto level) {
      double sum[Levels::At(level).sum];
      AnchorBins(sum, top_);
      StoreSum(sum);
    });
    if constexpr (Levels::kSquares) AnchorBins(squares_, 2 * top_);
  }

  // Only empty bins move.
  __device__ void MoveTo(const Place& place) {
    level_ = place.level;
    top_ = place.top;
    window_ = place.window;
    Anchor();
  }

  __device__ void AddToBins(const Tile<T>& tile) {
    AtLevel([&](auto level) {
      constexpr Level kBins = Levels::At(level);
      double sum[kBins.sum];
      LoadSum(sum);
      ForEach(tile, [&](T element) {
        const double x = ToDouble(element);
        if constexpr (Levels::kSum) Deposit<0, kBins.sum>(sum, Levels::kAbs ? fabs(x) : x);
        if constexpr (Levels::kSquares && Levels::kF64) DepositWideSquare<kBins.squares>(squares_, x);
        if constexpr (Levels::kSquares && !Levels::kF64) DepositSquare<kBins.squares>(squares_, x);
      });
      StoreSum(sum);
    });
    deposits_ += kTileDeposits;
  }

  // Of the magnitudes in some elements of each thread: false if there are none that moving bins can take. Else the
  // place for them at `level` or, if that is negative, at the first level with room to spare, a third of it above.
  template <class SomeTile>
  __device__ static bool Find(const SomeTile& tile, int level, Place* place) {
    const Window any = WindowOf(Levels::kLowest, Levels::kHighest);
    unsigned largest = 0;
    unsigned smallest = 0xffffffffu;
    ForEach(tile, [&](T x) {
      if (!any.Has(x)) return;
      largest = max(largest, Element::PatternOf(x));
      smallest = min(smallest, Element::PatternOf(x));
    });
    largest = __reduce_max_sync(kFullWarp, largest);
    smallest = __reduce_min_sync(kFullWarp, smallest);
    if (largest == 0) return false;
    constexpr int kRoom = Levels::kSquares ? 4 : 16;  // squares: some that don't fit cost less than another bin
    const int least_top = ExponentOf(largest) + 1;
    const auto room_at = [&](int at) { return ExponentOf(smallest) - Levels::LowestOf(Levels::At(at), least_top); };
    place->level = level >= 0 ? level : kMoving > 1 && room_at(0) < kRoom ? 1 : 0;
    place->top = min(least_top + max(room_at(place->level), 0) / 3, Levels::kHighest);
    place->window = WindowOf(Levels::LowestOf(Levels::At(place->level), place->top), place->top);
    return true;
  }

  // Bins that are empty come to where numbers are.
  __device__ __forceinline__ void Begin(const Vector16<T>& vector) {
    Place place = FixedPlace();
    const Vector16<T> tile[] = {vector};
    if (kMoving == 0 || Find(tile, -1, &place)) MoveTo(place);
  }

  // Leaves -0 instead. Moves the bins before, if that is worth it.
  __device__ __forceinline__ void TakeOutWhatDoesNotFit(Tile<T>& tile) {
    Forget<T>(tile);
    constexpr int kMany = kTileElements;  // of the warp's 32 kTileElements: worth more bins
    if constexpr (kMoving > 0) {
      int outside = window_.span == 0 ? kWarpSize * kTileElements : window_.CountOutside(tile);
      if (outside == 0) return;
      Forget<T>(tile);
      Place place;
      if (level_ < kMoving && Find(tile, outside < kMany ? level_ : -1, &place)) {
        Forget<T>(tile);
        const int outside_there = place.window.CountOutside(tile);
        if (2 * outside_there < outside) {
          Flush();
          MoveTo(place);
          outside = outside_there;
        }
      }
      if (kFixed && level_ < kMoving && outside >= kMany) {
        Flush();
        MoveTo(FixedPlace());
      }
    }
    Forget<T>(tile);
    ForEach(tile, [&](T& x) {
      if (window_.Has(x) || Element::IsZero(x)) return;
      AddAlone<kCounts, kSums...>(ToDouble(x), digits_);
      x = Element::NegativeZero();
    });
  }

  __device__ void LookAtZeros(const Tile<T>& tile) {
    if (not_only_negative_zeros_) return;
    ForEach(tile, [&](T x) {
      if (!Element::IsNegativeZero(x) && !IsNan(x)) not_only_negative_zeros_ = true;
    });
  }

  ExactDigits* digits_;
  FarBins* far_;
  double sum_[kNear];
  double squares_[Levels::kSquares ? kMost.squares : 1];
  int level_ = 0;
  int top_ = 0;
  int deposits_ = 0;  // since the bins were empty
  Window window_;
  bool not_only_negative_zeros_ = false;
};

template <class T, bool kCounts, Accumulator... kSums>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor) ExactSumsKernel(Arguments args) {
  using Sums = WarpSums<T, kCounts, kSums...>;
  __shared__ unsigned long long words[kExactDigitWords];
  __shared__ typename Sums::FarBins far;
  SayBegun(args.times);

  const T* const data = static_cast<const T*>(args.data);
  const auto* const vectors = reinterpret_cast<const uint4*>(data + args.head);
  const unsigned lane = threadIdx.x % kWarpSize;
  const unsigned threads = gridDim.x * kThreads;
  Tile<T> tile;
  const auto load = [&](unsigned begin) {
#pragma unroll
    for (int v = 0; v < kVectors<T>; ++v) {
      const unsigned at = begin + lane + static_cast<unsigned>(v) * threads;
      if (at < args.vectors) {
        tile[v] = LoadOnce<T>(vectors + at);
      } else {
#pragma unroll
        for (T& x : tile[v].element) x = ExactElement<T>::NegativeZero();
      }
    }
  };
  unsigned begin = blockIdx.x * kThreads + threadIdx.x - lane;  // as all that follows from it, the same for a warp
  load(begin);                                                  // takes longer than the zeros do

  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) words[i] = 0;
  __syncthreads();
  auto* const digits = reinterpret_cast<ExactDigits*>(words);
  Sums sums(digits, &far);
  while (begin < args.vectors) {
    sums.Add(tile);
    begin += kVectors<T> * threads;
    load(begin);
  }
  if (blockIdx.x == 0) {  // the edges: less than a line and a vector
    for (unsigned at = threadIdx.x; at < args.head; at += kThreads) sums.AddOne(data[at]);
    const std::int64_t tail = args.count - args.tail;
    for (unsigned at = threadIdx.x; at < args.tail; at += kThreads) sums.AddOne(data[tail + at]);
  }
  sums.Flush();
  if (__any_sync(kFullWarp, sums.not_only_negative_zeros()) && lane == 0) {
    AddToShared(&digits->not_only_negative_zeros, 1u);
  }
  __syncthreads();

  // Hands out the digits of all blocks. Zeros are left, as several launches have words of their own.
  auto* const out = reinterpret_cast<unsigned long long*>(args.out);
  const auto hand_out = [&](auto word_at) {
    for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) {
      if (const unsigned long long word = word_at(i); word != 0) out[i] = word;
    }
    if (args.times == nullptr) return;
    __syncthreads();
    if (threadIdx.x == 0) SayEnded(args.times);
  };
  if (gridDim.x == 1) return hand_out([&](int i) { return words[i]; });

  auto* const global = reinterpret_cast<unsigned long long*>(args.digits);
  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) {
    if (words[i] != 0) atomicAdd(global + i, words[i]);
  }
  __syncthreads();
  if (__syncthreads_or(threadIdx.x == 0 && DrawsLastTicket(args.ticket))) {
    hand_out([&](int i) { return atomicExch(global + i, 0ull); });
  }
}

template <class T, bool kCounts, Accumulator... kSums>
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
                       .out = launch.out,
                       .times = launch.times};
  // As few as have a tile for each thread, no more than run at once, and all with as many tiles as far as can be.
  constexpr std::int64_t kTileVectors = std::int64_t{kThreads} * kVectors<T>;
  const std::int64_t wanted = std::max<std::int64_t>(1, (vectors + kTileVectors - 1) / kTileVectors);
  const std::int64_t most = std::int64_t{launch.multiprocessors} * kBlocksPerMultiprocessor;
  const std::int64_t passes = (wanted + most - 1) / most;
  const auto blocks = static_cast<unsigned>((wanted + passes - 1) / passes);
  ExactSumsKernel<T, kCounts, kSums...><<<blocks, kThreads, 0, launch.stream>>>(args);
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
    error = LaunchKernel<T, true, Accumulator::kSum, Accumulator::kSumSquares>(launch);
  } else if (sum) {
    error = LaunchKernel<T, true, Accumulator::kSum>(launch);
  } else if (squares) {
    error = LaunchKernel<T, true, Accumulator::kSumSquares>(launch);
  }
  if (error != cudaSuccess || !has(Accumulator::kAbsSum)) return error;
  if (sum || squares) return LaunchKernel<T, false, Accumulator::kAbsSum>(launch);
  return LaunchKernel<T, true, Accumulator::kAbsSum>(launch);
}

}  // namespace

cudaError_t LaunchExactSums(const ExactLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) return LaunchFor<T>(launch);
    return cudaErrorInvalidValue;
  });
}

bool ExactSumsKeepTime(const ExactLaunch& launch) {
  const AccumulatorSet abs_sum = SetOf(Accumulator::kAbsSum);
  const bool one_kernel = (launch.accumulators & abs_sum) == 0 || launch.accumulators == abs_sum;
  return one_kernel && launch.count * RowOf(launch.dtype).bytes <= kMaxTimedBytes;
}

}  // namespace reduced
