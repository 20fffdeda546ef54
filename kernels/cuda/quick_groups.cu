// Sums, means and extrema of groups in registers: a few threads, up to a warp, walk through an output or a part of one
// side by side, several elements in flight, and merge what they have by shuffles.
//
// The answer of an output is final unless something was lost, or there is a NaN or no element: these are left to
// others. The arithmetic is that of exact/two_doubles.h, which names its sources; compiled without contraction of
// operations, as it wants.
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/order_key.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/group_elements.cuh"
#include "kernels/cuda/groups.h"
#include "kernels/exact/two_doubles.h"

namespace reduced {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // loads in flight

__device__ inline void AddExactly(double x, GroupSum& to) { to.lost += fabs(AddToTwo(x, &to.sum, &to.rest)); }

// The sums of some elements of T.
template <class T>
struct SumFold {
  struct State {
    std::conditional_t<kIsFloat<T>, GroupSum, NarrowSum<T>> sum{};
  };
  State state;

  __device__ void Add(T x, std::int64_t /*index*/) {
    if constexpr (kIsFloat<T>) {
      AddExactly(ToDouble(x), state.sum);
    } else if constexpr (sizeof(T) < 8) {
      state.sum += ToInteger(x);
    } else {
      state.sum += static_cast<UInt128>(static_cast<Int128>(x));
    }
  }
  __device__ static void Merge(State& into, const State& other) {
    if constexpr (kIsFloat<T>) {
      AddExactly(other.sum.sum, into.sum);
      AddExactly(other.sum.rest == 0 ? -0.0 : other.sum.rest, into.sum);  // -0 changes nothing
      into.sum.lost += other.sum.lost;
    } else {
      into.sum += other.sum;
    }
  }
  __device__ State Settled() const { return state; }

  // As the sum of two doubles, unless it is an integer of more than 62 bits.
  __device__ static GroupSum Split(const State& state) {
    if constexpr (kIsFloat<T>) {
      return state.sum;
    } else {
      constexpr Int128 kEnd = static_cast<Int128>(1) << 62;
      const auto wide = static_cast<Int128>(ValueOf(state.sum));
      if (wide <= -kEnd || wide >= kEnd) return {0, 0, 1};
      const auto narrow = static_cast<std::int64_t>(wide);
      const double sum = __ll2double_rn(narrow);
      return {sum, __ll2double_rn(narrow - static_cast<std::int64_t>(sum)), 0};
    }
  }
};

template <class T>
struct ExtremaFold {
  using A = ExtremaOf<T>;
  using State = typename A::State;
  typename A::Local local;

  __device__ void Add(T x, std::int64_t index) { A::Add(local, x, index); }
  __device__ static void Merge(State& into, const State& other) { A::Merge(into, other); }
  __device__ State Settled() const { return A::Settle(local); }
};

// Stores the sum and mean of output i; false if one of them is not known.
template <class T>
__device__ inline bool Answer(const typename SumFold<T>::State& state, std::int64_t count, std::int64_t i,
                              const GroupAnswers& answers) {
  const GroupSum sum = SumFold<T>::Split(state);
  if (!(sum.lost == 0) || count == 0) return false;
  if (answers.sum != nullptr) {
    if constexpr (kIsFloat<T>) {
      static_cast<double*>(answers.sum)[i] = RoundedSum(sum.sum, sum.rest);
    } else {
      static_cast<std::int64_t*>(answers.sum)[i] = static_cast<std::int64_t>(ValueOf(state.sum));
    }
  }
  return answers.mean == nullptr || RoundedMean(sum.sum, sum.rest, count, answers.mean + i);
}

// The bits of the element with that key.
template <class T, class Key>
__device__ inline Key ElementBits(Key key) {
  if constexpr (kIsFloat<T>) {
    return static_cast<Key>(key ^ ((key >> (8 * sizeof(Key) - 1)) & std::numeric_limits<Key>::max()));
  } else {
    return key;
  }
}

// The key that was widened.
template <class Key>
__device__ inline Key NarrowKey(std::int64_t key) {
  if constexpr (std::is_same_v<Key, std::uint64_t>) {
    return static_cast<std::uint64_t>(key) ^ (std::uint64_t{1} << 63);
  } else {
    return static_cast<Key>(key);
  }
}

template <class T>
__device__ inline bool Answer(const ExtremaState& state, std::int64_t count, std::int64_t i,
                              const GroupAnswers& answers) {
  using Key = typename OrderKey<T>::Type;
  if (state.nan_index != kNoIndex || count == 0) return false;
  if (answers.min != nullptr) static_cast<Key*>(answers.min)[i] = ElementBits<T>(NarrowKey<Key>(state.min_key));
  if (answers.max != nullptr) static_cast<Key*>(answers.max)[i] = ElementBits<T>(NarrowKey<Key>(state.max_key));
  if (answers.argmin != nullptr) answers.argmin[i] = state.min_index;
  if (answers.argmax != nullptr) answers.argmax[i] = state.max_index;
  return true;
}

__device__ inline GroupPart WholeOutput(const GroupOutputs& outputs, const GroupArray& array, std::int64_t output) {
  GroupPart part;
  if (outputs.bounds == nullptr) {
    part.start = OffsetOf(outputs.kept, output);
    part.end = outputs.elements;
    return part;
  }
  const std::int64_t group = outputs.columns == 1 ? output : output / outputs.columns;
  const std::int64_t begin = outputs.bounds[group];
  part.column = output - group * outputs.columns;
  part.start = array.rows != nullptr ? begin : begin * outputs.columns + part.column;
  part.end = outputs.bounds[group + 1] - begin;
  return part;
}

__global__ void __launch_bounds__(kThreads) LocateKernel(LocateLaunch launch) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < launch.count) launch.wholes[i] = WholeOutput(launch.outputs, launch.array, launch.numbers[i]);
}

// How positions lie in the array.
enum class Lie : std::uint8_t {
  kNeighbours,        // one after the other, and no mask leaves any of them out
  kMaskedNeighbours,  // likewise, with a mask of bytes
  kAny,
};

// `after`: another launch has set what is left.
template <class T, template <class> class Fold, Lie kLie>
__global__ void __launch_bounds__(kThreads) QuickGroupsKernel(QuickGroupsLaunch launch, bool after) {
  const int width = launch.width;
  const int lane = static_cast<int>(threadIdx.x) & (width - 1);
  const std::int64_t item = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / width;
  const bool there = item < launch.count;
  GroupPart part;
  bool too_long = false;
  if (there && launch.parts != nullptr) part = launch.parts[item];
  if (there && launch.parts == nullptr) {
    part = WholeOutput(launch.outputs, launch.array, launch.first + item);
    too_long = part.end > launch.longest;
    if (too_long) part.end = 0;
  }
  const GroupWalk<T> walk(launch.array, part.start, part.column);
  const T* const data = static_cast<const T*>(launch.array.data) + part.start;
  const std::uint8_t* const mask = kLie == Lie::kMaskedNeighbours ? launch.array.mask + part.start : nullptr;
  Fold<T> fold;
  ElementCount::State count;
  for (std::int64_t i = part.begin + lane; i < part.end; i += kAtOnce * width) {
    T x[kAtOnce];
    std::int64_t index[kAtOnce];
    bool kept[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t position = i + k * width;
      index[k] = position;
      kept[k] = position < part.end;
      if (!kept[k]) continue;
      if constexpr (kLie == Lie::kAny) {
        kept[k] = walk.Load(position, &x[k], &index[k]);
      } else {
        x[k] = data[position];
        if constexpr (kLie == Lie::kMaskedNeighbours) kept[k] = mask[position] != 0;
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (!kept[k]) continue;
      if constexpr (kLie != Lie::kNeighbours) ++count.count;
      fold.Add(x[k], index[k]);
    }
  }
  auto state = fold.Settled();
  for (int offset = width / 2; offset > 0; offset /= 2) {
    const auto other = ShuffleDown(state, offset);
    Fold<T>::Merge(state, other);
    if constexpr (kLie != Lie::kNeighbours) ElementCount::Merge(count, ShuffleDown(count, offset));
  }
  if constexpr (kLie == Lie::kNeighbours) count.count = part.end - part.begin;
  if (!there || lane != 0) return;
  if (launch.parts != nullptr) {
    GroupPartState& out = launch.states[item];
    if constexpr (std::is_same_v<Fold<T>, SumFold<T>>) {
      out.sum = SumFold<T>::Split(state);
    } else {
      out.extrema = state;
    }
    out.count = count.count;
    return;
  }
  std::uint8_t left = kTooLong;
  if (!too_long) left = Answer<T>(state, count.count, item, launch.answers) ? kAnswered : kNotKnown;
  if (launch.answers.count != nullptr) launch.answers.count[item] = count.count;
  if (!after || left != kAnswered) launch.answers.left[item] = left;
}

template <class T, template <class> class Fold>
cudaError_t Launch(const QuickGroupsLaunch& launch, bool after) {
  const GroupArray& array = launch.array;
  const bool neighbours =
      array.rows == nullptr && (array.reduced.count == 0 || (array.reduced.count == 1 && array.reduced.stride[0] == 1));
  const auto blocks = static_cast<unsigned>((launch.count * launch.width + kThreads - 1) / kThreads);
  if (neighbours && array.mask == nullptr) {
    QuickGroupsKernel<T, Fold, Lie::kNeighbours><<<blocks, kThreads, 0, launch.stream>>>(launch, after);
  } else if (neighbours && !array.mask_bits) {
    QuickGroupsKernel<T, Fold, Lie::kMaskedNeighbours><<<blocks, kThreads, 0, launch.stream>>>(launch, after);
  } else {
    QuickGroupsKernel<T, Fold, Lie::kAny><<<blocks, kThreads, 0, launch.stream>>>(launch, after);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchLocate(const LocateLaunch& launch) {
  const auto blocks = static_cast<unsigned>((launch.count + kThreads - 1) / kThreads);
  LocateKernel<<<blocks, kThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t LaunchQuickGroups(const QuickGroupsLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if (launch.sums) {
      if (const cudaError_t error = Launch<T, SumFold>(launch, false); error != cudaSuccess) return error;
    }
    return launch.extrema ? Launch<T, ExtremaFold>(launch, launch.sums) : cudaSuccess;
  });
}

}  // namespace reduced
