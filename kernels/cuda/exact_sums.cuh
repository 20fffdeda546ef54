// Exact sums of floats as a block of a CUDA kernel adds them up, with extrema and counts beside them in the same read:
// the integers of the CPU. Of one array by many blocks (exact_sums.cu), and of many by a block each (many_sums.cu).
//
// Why it is fast: where the magnitudes that a thread holds of a tile, a few vectors, differ by few powers of two, f64
// adds them exactly, and what it has added goes to the bins as one number; sums of f16 and bf16 begin in f32, which
// saves conversions. Else an element costs three additions of f64 for each bin but the last, and one for that (how and
// why: cpu/exact_tiles.h), which is less than the f64 units have time for while the element comes from memory. One is
// enough since it is known before that nothing will be left over: a warp looks at the exponents of its tile, with a
// comparison of their extremes: the largest number has to fit into the first bin, and the last digit of the smallest
// that isn't zero must not be below the last bin's unit.
//
// If they don't, NaNs are taken out and counted, and the tile is looked at once more. If that makes enough of a
// difference, the bins move to where its numbers are, or become more: f32 and bf16 of all magnitudes take as many as
// their whole range has. What the bins still can't take is added, element by element, to the digits that the block has
// in shared memory.
//
// Before so many deposits that a bin could leave its binade, and at the end, bins become integers, which the warp sums
// up and adds to the block's digits, those in the end to digits in global memory, where the last block to finish finds
// them, hands them out and leaves zeros for the next launch; a block that is the only one hands out its own. All of
// these are sums of integers, so that neither the number of blocks nor their order matters.
//
// Sources: S. Collange, D. Defour, S. Graillat, R. Iakymchuk, "Numerical reproducibility for the parallel reduction on
// multi- and many-core architectures" (2015, ExBLAS); those of cpu/exact_tiles.h and cuda/single_pass.cu.
#ifndef REDUCED_KERNELS_CUDA_EXACT_SUMS_CUH_
#define REDUCED_KERNELS_CUDA_EXACT_SUMS_CUH_

#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "kernels/cuda/block_states.cuh"
#include "kernels/cuda/exact_terms.cuh"
#include "kernels/cuda/vector16.cuh"
#include "kernels/exact/digits.h"

namespace reduced {

// How the work is laid out: threads of a block, blocks of a multiprocessor, vectors of 16 bytes in a thread's tile, as
// many as leave it registers for all else, and tiles in flight while it is at one.
template <int kThreadsOfBlock, int kBlocksPerMultiprocessor, int kVectorsOfTile, int kTilesAhead>
struct TileShape {
  static constexpr int kThreads = kThreadsOfBlock;
  static constexpr int kBlocks = kBlocksPerMultiprocessor;
  static constexpr int kVectors = kVectorsOfTile;
  static constexpr int kAhead = kTilesAhead;
};

// The fastest of those measured on an H200 (tests/bench/bench_matrix). What squares have to do beside extrema takes
// long enough for one large block, whose threads have the registers of two.
template <class T>
struct SumShapes {
  static constexpr bool kIsBFloat16 = std::is_same_v<T, BFloat16>;
  using Alone = TileShape<512, 2, sizeof(T) == 2 ? 3 : 4, 0>;
  using BesideOrder = std::conditional_t<kIsBFloat16, TileShape<512, 1, 4, 2>, TileShape<384, 2, 4, 1>>;
  using SquaresBesideOrder = std::conditional_t<kIsBFloat16, TileShape<512, 1, 4, 2>, TileShape<768, 1, 4, 1>>;
};

template <class T, class S>
using Tile = Vector16<T>[S::kVectors];

// A thread's tiles, one after the other: vectors from its own on, `threads` apart. Beyond the array there is -0. They
// come straight to its registers, or, where what is done with them takes long, through shared memory of its own: then
// they are on their way meanwhile.
template <class T, class S>
class TileLoads {
  using Slot = uint4[S::kVectors][S::kThreads];

 public:
  static constexpr int kSharedBytes = S::kAhead * static_cast<int>(sizeof(Slot));

  // memory: kSharedBytes, shared by the block.
  __device__ __forceinline__ TileLoads(const Walk<T>& walk, void* memory)
      : vectors_(walk.vectors),
        count_(walk.count),
        next_(walk.thread),
        threads_(walk.threads),
        slots_(static_cast<Slot*>(memory)) {}

  // Before all else. `tile` may not be used until it has arrived.
  __device__ __forceinline__ void Start(Tile<T, S>& tile) {
    if constexpr (S::kAhead == 0) Load(tile);
#pragma unroll
    for (int slot = 0; slot < S::kAhead; ++slot) LetCome(slot);
  }
  __device__ __forceinline__ void Arrive(Tile<T, S>& tile) {
    if constexpr (S::kAhead > 0) {
      __pipeline_wait_prior(S::kAhead - 1);
#pragma unroll
      for (int v = 0; v < S::kVectors; ++v) memcpy(tile[v].element, &slots_[slot_][v][threadIdx.x], sizeof(uint4));
      __syncwarp();  // read before it is written
      LetCome(slot_);
      slot_ = slot_ + 1 < S::kAhead ? slot_ + 1 : 0;
    }
  }
  // The tile is done with: it may be the next.
  __device__ __forceinline__ void Leave(Tile<T, S>& tile) {
    if constexpr (S::kAhead == 0) Load(tile);
  }

 private:
  __device__ static Vector16<T> Zeros() {
    Vector16<T> zeros;
#pragma unroll
    for (T& x : zeros.element) x = ExactElement<T>::NegativeZero();
    return zeros;
  }
  // Whether all of the next tile is within the array.
  __device__ __forceinline__ bool IsWhole() const { return next_ + (S::kVectors - 1) * threads_ < count_; }
  __device__ __forceinline__ void Load(Tile<T, S>& tile) {
#pragma unroll
    for (int v = 0; v < S::kVectors; ++v) {
      tile[v] = next_ < count_ ? LoadOnce<T>(vectors_ + next_) : Zeros();
      next_ += threads_;
    }
  }
  __device__ __forceinline__ void LetCome(int slot) {
    uint4* const to = &slots_[slot][0][threadIdx.x];
    if (IsWhole()) {
      const uint4* const from = vectors_ + next_;
#pragma unroll
      for (int v = 0; v < S::kVectors; ++v) {
        __pipeline_memcpy_async(to + v * S::kThreads, from + v * threads_, sizeof(uint4));
      }
    } else {
#pragma unroll 1
      for (int v = 0; v < S::kVectors; ++v) {
        const unsigned at = next_ + v * threads_;
        const Vector16<T> vector = at < count_ ? LoadOnce<T>(vectors_ + at) : Zeros();
        memcpy(to + v * S::kThreads, &vector, sizeof(vector));
      }
    }
    next_ += S::kVectors * threads_;
    __pipeline_commit();
  }

  const uint4* vectors_;
  unsigned count_;
  unsigned next_;  // vector to load
  unsigned threads_;
  Slot* slots_;
  int slot_ = 0;  // that arrives next
};

// Calls visit(x) for each element x of a tile.
template <class SomeTile, class Visitor>
__device__ __forceinline__ void ForEachElement(SomeTile& tile, Visitor visit) {
  constexpr int kElements = sizeof(tile[0].element) / sizeof(tile[0].element[0]);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(tile) / sizeof(tile[0])) * kElements; ++i)
    visit(tile[i / kElements].element[i % kElements]);
}

// Element i of a tile; of 16 bits from a word of two, by one instruction and its conversion to f64.
template <class T, int kVectors>
__device__ __forceinline__ double DoubleAt(const Vector16<T> (&tile)[kVectors], int i) {
  constexpr int kElements = Vector16<T>::kElements;
  if constexpr (sizeof(T) == 2) {
    const unsigned word = tile[i / kElements].Words().word[i % kElements / 2];
    if constexpr (std::is_same_v<T, BFloat16>) return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
    const PairOf<T> pair = PairFromWord<PairOf<T>>(word);
    return i % 2 == 0 ? __low2float(pair) : __high2float(pair);
  } else {
    return ToDouble(tile[i / kElements].element[i % kElements]);
  }
}

// Copies words, of which the compiler forgets what they are: elements of 16 bits that are looked at one by one are not
// to take registers of their own where the tile is added by words.
template <class T, int kVectors>
__device__ __forceinline__ void CopyWords(const Vector16<T> (&from)[kVectors], Vector16<T> (&to)[kVectors]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    auto packed = from[v].Words();
#pragma unroll
    for (unsigned& word : packed.word) asm volatile("" : "+r"(word));
    memcpy(to[v].element, &packed, sizeof(packed));
  }
}

// Counts beside exact sums, which know how many elements are NaN: only those that are not zero. Of f16 and bf16 in
// pairs, as Fold<CountsOf<T>, T> has them.
template <class T>
struct NonzeroOf : CountsOf<T> {};
template <class T>
struct Fold<NonzeroOf<T>, T> {
  typename CountsOf<T>::Local local;

  template <int kVectors>
  __device__ void Tile(const Vector16<T> (&tile)[kVectors], unsigned, const Walk<T>&) {
    if constexpr (sizeof(T) == 2) {
      using Pair = PairOf<T>;
      Pair nonzero = PairFromWord<Pair>(0);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (const unsigned word : tile[v].Words().word) {
          nonzero = __hadd2(nonzero, __hneu2(PairFromWord<Pair>(word), PairFromWord<Pair>(0)));
        }
      }
      local.nonzero += static_cast<int>(__low2float(nonzero)) + static_cast<int>(__high2float(nonzero));
    } else {
      float nonzero = 0;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (const T x : tile[v].element) nonzero += x != 0 ? 1.0F : 0.0F;
      }
      local.nonzero += static_cast<int>(nonzero);
    }
  }
  __device__ typename CountsOf<T>::State Settle(const Walk<T>&) const { return local; }
};

// What can be asked for beside exact sums. Of f64 NaNs are counted by fewer instructions than zeros.
template <class T>
using BesideSums = AccumulatorList<ExtremaOf<T>, std::conditional_t<sizeof(T) == 8, CountsOf<T>, NonzeroOf<T>>>;

// A thread's share of the sums kSums. Unless it says otherwise, a function is called by all threads of a warp, which
// have the same of everything but bins.
template <class T, class S, bool kCounts, Accumulator... kSums>
class WarpSums {
  using Element = ExactElement<T>;
  using Levels = ExactLevels<T, kSums...>;
  using Tile = reduced::Tile<T, S>;
  static constexpr int kTileElements = S::kVectors * Vector16<T>::kElements;  // a thread
  // A square of f64 is two numbers.
  static constexpr int kTileDeposits = kTileElements * (Levels::kF64 && Levels::kSquares ? 2 : 1);
  // Where a thread's magnitudes in a tile differ by at most so many powers of two, f64 holds their sum, or that of
  // their squares, exactly: that is added up first, and the bins take it as one number.
  static constexpr int kCountBits = std::countr_zero(std::bit_ceil(static_cast<unsigned>(kTileElements)));
  static constexpr int kSumSpread = 53 - Element::kDigits - kCountBits;
  static constexpr int kSquaresSpread = (53 - 2 * Element::kDigits - kCountBits) / 2;
  static constexpr bool kNarrowSquares = Levels::kSquares && kSquaresSpread > 2;
  static constexpr bool kNarrowSums = kNarrowSquares || (Levels::kSum && kSumSpread > 2);
  static constexpr int kMaxSpread = kNarrowSquares ? kSquaresSpread : kSumSpread;
  // Likewise f32 that of kInF32 neighbours: fewer are converted, which the device has the fewest units for.
  static constexpr int kInF32 = Levels::kSquares || sizeof(T) != 2 ? 1 : Levels::kBF16 ? 4 : 2;
  static constexpr int kF32Spread = 24 - Element::kDigits - std::countr_zero(static_cast<unsigned>(kInF32));
  static constexpr unsigned kF32End = static_cast<unsigned>(126 + Element::kBias) << Element::kFieldAt;  // or too large
  // Whether there is a register for it to remember that it met NaNs.
  static constexpr bool kExpectsNans = sizeof(T) != 2 || (!Levels::kBF16 && S::kAhead > 0);
  static constexpr int kWidest = Levels::kWidest;
  static constexpr Level kMost = Levels::At(kWidest);
  static constexpr bool kFixed = kMost.fixed_top != kNoTop;
  static constexpr int kMoving = kFixed ? kWidest : kWidest + 1;  // so many levels have bins that move
  // Bins of the sum that are in registers. Those beyond are in shared memory, where levels that use them have them come
  // from and go to with each tile: registers are what bounds the vectors in flight.
  static constexpr int kNear = std::min(kMost.sum, 2);
  static constexpr int kFar = kMost.sum - kNear;

 public:
  using FarBins = double[std::max(kFar, 1)][S::kThreads];  // by thread

  // Both in shared memory; the digits are zeros.
  __device__ WarpSums(ExactDigits* digits, FarBins* far) : digits_(digits), far_(far) {}

  __device__ __forceinline__ void Add(Tile& tile) {
    if (deposits_ + kTileDeposits > kMaxDeposits) {
      Flush();
      if (kMoving > 0 && level_ >= kMoving) window_ = {};  // perhaps fewer bins would do by now
    }
    if constexpr (Levels::Has(Accumulator::kSum)) LookAtZeros(tile);
    const bool looked_for_nans = kExpectsNans && expects_nans_;
    if (looked_for_nans) TakeOutNans(tile);
    PatternRange range = RangeOf(tile);
    if (!__all_sync(kFullWarp, window_.Takes(range))) {
      Tile rest;
      CopyWords(tile, rest);
      if (!looked_for_nans) {
        TakeOutNans(rest);
        range = RangeOf(rest);
      }
      if (!__any_sync(kFullWarp, range.largest != 0)) return;
      if (window_.span == 0) Begin(rest[0]);
      if (!__all_sync(kFullWarp, window_.Takes(range))) {
        TakeOutWhatDoesNotFit(rest, range);
        range = RangeOf(rest);
      }
      CopyWords(rest, tile);
    }
    Forget(tile);
    if (window_.span == 0) return;
    if (kInF32 > 1 && __all_sync(kFullWarp, SpreadOf(range) <= kF32Spread && range.largest < kF32End)) {
      return AddInF32(tile);
    }
    AddToBins(tile, __all_sync(kFullWarp, SpreadOf(range) <= kMaxSpread));
  }

  // An element that has no tile. Called by any threads.
  __device__ void AddOne(T x) {
    if (Levels::Has(Accumulator::kSum) && !Element::IsNegativeZero(x) && !IsNan(x)) not_only_negative_zeros_ = true;
    AddAlone<kCounts, kSums...>(ToDouble(x), digits_);
  }

  // All that is not in the digits yet; before they are read.
  __device__ void Finish() {
    Flush();
    const bool first = threadIdx.x % kWarpSize == 0;
    if constexpr (kCounts) {
      const unsigned nans = __reduce_add_sync(kFullWarp, nans_);
      if (first && nans != 0) AddToShared(&digits_->nans, nans);
    }
    if (__any_sync(kFullWarp, not_only_negative_zeros_) && first) AddToShared(&digits_->not_only_negative_zeros, 1u);
  }

 private:
  // Bins to digits.
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

  __device__ static PatternRange RangeOf(const Tile& tile) {
    PatternRange range;
#pragma unroll
    for (int v = 0; v < S::kVectors; ++v) range.Include(tile[v]);
    range.Settle<T>();
    return range;
  }

  // Patterns from low, at least 1, to below low + span: of numbers that the bins take, beside zeros. None are, if the
  // span is 0.
  struct Window {
    unsigned low = 1;
    unsigned span = 0;

    __device__ bool Takes(const PatternRange& range) const {
      return range.largest < low + span && range.least_less_one >= low - 1;
    }
    __device__ bool Has(T x) const { return Element::PatternOf(x) - low < span; }
    __device__ int CountOutside(const Tile& tile) const {
      unsigned outside = 0;
      ForEachElement(tile, [&](T x) { outside += !Has(x) && Element::PatternOf(x) != 0 ? 1 : 0; });
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

  __device__ static Place FixedPlace() {
    return {kWidest, kMost.fixed_top, {1, PatternOfPower(Element::kHighest) - 1}};
  }

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
    is_settled_ = false;
    Anchor();
  }

  // By how many powers of two the magnitudes in a thread's tile differ, or one more. Negative if there are none.
  __device__ static int SpreadOf(const PatternRange& range) {
    return static_cast<int>(range.largest >> Element::kFieldAt) -
           static_cast<int>(range.least_less_one >> Element::kFieldAt);
  }

  __device__ __forceinline__ void AddInF32(const Tile& tile) {
    double tile_sum = 0;
#pragma unroll
    for (int i = 0; i < kTileElements; i += kInF32) {
      float sum = 0;
#pragma unroll
      for (int e = i; e < i + kInF32; ++e) {
        const auto x = static_cast<float>(DoubleAt(tile, e));
        sum = e == i ? (Levels::kAbs ? fabsf(x) : x) : __fadd_rn(sum, Levels::kAbs ? fabsf(x) : x);
      }
      tile_sum = __dadd_rn(tile_sum, sum);
    }
    AtLevel([&](auto level) {
      constexpr Level kBins = Levels::At(level);
      double sum[kBins.sum];
      LoadSum(sum);
      Deposit<0, kBins.sum>(sum, tile_sum);
      StoreSum(sum);
    });
    deposits_ += kTileDeposits;
  }

  __device__ __forceinline__ void AddToBins(const Tile& tile, bool is_narrow) {
    AtLevel([&](auto level) {
      constexpr Level kBins = Levels::At(level);
      double sum[kBins.sum];
      LoadSum(sum);
      if (kNarrowSums && is_narrow) {
        [[maybe_unused]] double tile_sum = 0;
        [[maybe_unused]] double tile_squares = 0;
#pragma unroll
        for (int i = 0; i < kTileElements; ++i) {
          const double x = DoubleAt(tile, i);
          if constexpr (Levels::kSum) tile_sum = __dadd_rn(tile_sum, Levels::kAbs ? fabs(x) : x);
          if constexpr (kNarrowSquares) tile_squares = __fma_rn(x, x, tile_squares);
          if constexpr (Levels::kSquares && !kNarrowSquares) DepositSquare<kBins.squares>(squares_, x);
        }
        if constexpr (Levels::kSum) Deposit<0, kBins.sum>(sum, tile_sum);
        if constexpr (kNarrowSquares) Deposit<0, kBins.squares>(squares_, tile_squares);
      } else {
#pragma unroll
        for (int i = 0; i < kTileElements; ++i) {
          const double x = DoubleAt(tile, i);
          if constexpr (Levels::kSum) Deposit<0, kBins.sum>(sum, Levels::kAbs ? fabs(x) : x);
          if constexpr (Levels::kSquares && Levels::kF64) DepositWideSquare<kBins.squares>(squares_, x);
          if constexpr (Levels::kSquares && !Levels::kF64) DepositSquare<kBins.squares>(squares_, x);
        }
      }
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
    ForEachElement(tile, [&](T x) {
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
  __device__ __forceinline__ void TakeOutWhatDoesNotFit(Tile& tile, const PatternRange& range) {
    Forget(tile);
    constexpr int kMany = kTileElements;  // of the warp's 32 kTileElements: worth more bins
    // The few of few threads cost less to add than a better place to look for, once there was none.
    constexpr int kFew = 4;
    const bool few = __popc(__ballot_sync(kFullWarp, !window_.Takes(range))) <= kFew;
    is_settled_ = is_settled_ && few;
    if (kMoving > 0 && !is_settled_) {
      int outside = window_.span == 0 ? kWarpSize * kTileElements : window_.CountOutside(tile);
      if (outside == 0) return;
      is_settled_ = few;
      Forget(tile);
      Place place;
      // One more bin of a sum costs less than to come here often; one more of squares doesn't.
      if (level_ < kMoving && Find(tile, Levels::kSquares && outside < kMany ? level_ : -1, &place)) {
        Forget(tile);
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
    Forget(tile);
    ForEachElement(tile, [&](T& x) {
      if (window_.Has(x) || Element::PatternOf(x) == 0) return;
      AddAlone<kCounts, kSums...>(ToDouble(x), digits_);
      x = Element::NegativeZero();
    });
  }

  // Leaves -0 instead. There may be many; where there were some, more are expected.
  __device__ __forceinline__ void TakeOutNans(Tile& tile) {
    const unsigned before = nans_;
    CountAndClearNans(tile);
    if constexpr (kExpectsNans) expects_nans_ = __any_sync(kFullWarp, nans_ != before);
  }
  __device__ __forceinline__ void CountAndClearNans(Tile& tile) {
    if constexpr (sizeof(T) == 2) {
      using Pair = PairOf<T>;
#pragma unroll
      for (int v = 0; v < S::kVectors; ++v) {
        auto packed = tile[v].Words();
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const Pair pair = PairFromWord<Pair>(packed.word[w]);
          const unsigned nan = __hneu2_mask(pair, pair);
          nans_ += (nan & 1) + (nan >> 31);
          packed.word[w] = (packed.word[w] & ~nan) | (nan & 0x80008000u);
        }
        memcpy(tile[v].element, &packed, sizeof(packed));
      }
      return;
    }
    ForEachElement(tile, [&](T& x) {
      if (!IsNan(x)) return;
      ++nans_;
      x = Element::NegativeZero();
    });
  }

  __device__ void LookAtZeros(const Tile& tile) {
    if (not_only_negative_zeros_) return;
    Tile elements;
    CopyWords(tile, elements);
    ForEachElement(elements, [&](T x) {
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
  unsigned nans_ = 0;
  bool expects_nans_ = false;
  bool is_settled_ = false;  // there was no better place when few elements didn't fit
  Window window_;
  bool not_only_negative_zeros_ = false;
};

// The accumulators beside the sums: the folds of a thread, and the bytes of the largest state.
template <class T, class List>
struct Others;
template <class T, class... As>
struct Others<T, AccumulatorList<As...>> {
  using Folds = reduced::Folds<T, As...>;
  static constexpr bool kAny = sizeof...(As) > 0;
  static constexpr std::size_t kStateBytes = std::max({std::size_t{0}, sizeof(typename As::State)...});
  template <unsigned kBlocks>
  static constexpr std::size_t kStatesBytes = (StatesBytes<typename As::State>(kBlocks) + ... + std::size_t{0});
};

// Whether a word of ExactDigits belongs to one of those sums, or to all.
__device__ inline bool IsOf(AccumulatorSet sums, int word) {
  constexpr int kAbsAt = ExactDigits::kSumDigits;
  constexpr int kSquaresAt = kAbsAt + ExactDigits::kSumDigits;
  constexpr int kCountsAt = kSquaresAt + ExactDigits::kSquaresDigits;
  if (word < kAbsAt || word == kExactDigitWords - 1) return (sums & SetOf(Accumulator::kSum)) != 0;
  if (word < kSquaresAt) return (sums & SetOf(Accumulator::kAbsSum)) != 0;
  return word >= kCountsAt || (sums & SetOf(Accumulator::kSumSquares)) != 0;
}

// Adds up what block `block` of `blocks` has of an array. `others`: the accumulators that are wanted beside the sums;
// `omit_nan`: of these. Then calls leave(words, folds, state_of, states), by all
// threads: the words of the block's ExactDigits, in shared memory; state_of(which, fold), which gives thread 0 the
// block's state of an accumulator beside the sums; and the shared memory that it needs, in use until a barrier.
template <class T, class S, bool kCounts, class List, Accumulator... kSums, class Leave>
__device__ __forceinline__ void AddArray(const EdgedArray& array, AccumulatorSet others, bool omit_nan, unsigned block,
                                         unsigned blocks, Leave leave) {
  using Sums = WarpSums<T, S, kCounts, kSums...>;
  constexpr int kVectors = S::kVectors;
  constexpr bool kOthers = Others<T, List>::kAny;
  extern __shared__ uint4 loads_memory[];
  __shared__ unsigned long long words[kExactDigitWords];
  __shared__ typename Sums::FarBins far;
  __shared__ alignas(16) unsigned char shared_states[S::kThreads / kWarpSize * Others<T, List>::kStateBytes + 16];

  const T* const data = static_cast<const T*>(array.data);
  const Walk<T> walk = WalkOf<T, S::kThreads>(array, block, blocks, omit_nan);
  const unsigned lane = threadIdx.x % kWarpSize;
  unsigned begin = walk.thread - lane;  // as all that follows from it, the same for a warp
  Tile<T, S> tile;
  TileLoads<T, S> loads(walk, loads_memory);
  loads.Start(tile);  // takes longer than the zeros do

  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += S::kThreads) words[i] = 0;
  __syncthreads();
  auto* const digits = reinterpret_cast<ExactDigits*>(words);
  Sums sums(digits, &far);
  typename Others<T, List>::Folds folds;
  unsigned slot = 0;
  // The others first: adding the sums changes the tile.
  const auto fold_others = [&] {
    if (begin + (kWarpSize - 1) + (kVectors - 1) * walk.threads < walk.count) {
      ForEach<false>(others, folds, [&](auto, auto& fold) { fold.Tile(tile, slot, walk); });
    } else {
#pragma unroll 1
      for (unsigned v = 0; v < kVectors && walk.VectorOf(slot + v) < walk.count; ++v) {
        const Vector16<T> one[1] = {LoadOnce<T>(walk.vectors + walk.VectorOf(slot + v))};
        ForEach<false>(others, folds, [&](auto, auto& fold) { fold.Tile(one, slot + v, walk); });
      }
    }
    slot += kVectors;
  };
  while (begin < walk.count) {
    loads.Arrive(tile);
    if constexpr (kOthers) fold_others();
    sums.Add(tile);
    loads.Leave(tile);
    begin += kVectors * walk.threads;
  }
  if (block == 0) {
    for (unsigned at = threadIdx.x; at < array.edges.head; at += S::kThreads) sums.AddOne(data[at]);
    const std::int64_t tail = array.count - array.edges.tail;
    for (unsigned at = threadIdx.x; at < array.edges.tail; at += S::kThreads) sums.AddOne(data[tail + at]);
  }
  sums.Finish();
  leave(
      words, folds,
      [&]<class A>(std::type_identity<A>, auto& fold) {
        typename A::State state = BlockReduce<A, S::kThreads>(StateOf<A, T>(fold, walk, array), shared_states);
        if constexpr (std::is_same_v<A, NonzeroOf<T>>) state.nan = static_cast<std::int64_t>(digits->nans);
        return state;
      },
      shared_states);
}

// Lets blocks of a kernel take so many bytes of shared memory beside its own on the current device: more than 48 KiB in
// all have to be asked for, once.
template <auto kKernel>
cudaError_t AllowSharedMemory(int bytes) {
  static std::atomic<std::uint64_t> allowed = 0;  // devices, by bit
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::uint64_t bit = std::uint64_t{1} << (device % 64);
  if ((allowed.load(std::memory_order_relaxed) & bit) != 0 && device < 64) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) allowed.fetch_or(bit, std::memory_order_relaxed);
  return error;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_EXACT_SUMS_CUH_
