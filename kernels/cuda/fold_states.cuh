// How a block folds some elements, one by one, to a state of any accumulators: right for any walk through an array.
//
// Exact sums are added to digits in shared memory one element at a time, which is slow beside a reduction of a whole
// array.
#ifndef REDUCED_KERNELS_CUDA_FOLD_STATES_CUH_
#define REDUCED_KERNELS_CUDA_FOLD_STATES_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/partial.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/exact_terms.cuh"
#include "kernels/exact/digits.h"

namespace reduced {

// Threads of a block that folds states.
inline constexpr int kStateThreads = 128;

// A state for each accumulator of a list.
template <class... As>
struct Locals {};
template <class A, class... Rest>
struct Locals<A, Rest...> {
  typename A::Local local;
  Locals<Rest...> rest;
};

// Calls f with each accumulator of the set.
template <class Function, class A, class... Rest>
__device__ inline void ForEachLocal(AccumulatorSet set, Locals<A, Rest...>& locals, Function f) {
  if ((set & SetOf(A::kAccumulator)) != 0) f(std::type_identity<A>{}, locals.local);
  if constexpr (sizeof...(Rest) > 0) ForEachLocal(set, locals.rest, f);
}

template <class T>
__device__ inline void AddToDigits(T x, AccumulatorSet set, ExactDigits* digits) {
  const double value = ToDouble(x);
  if (!IsFinite(x)) return AddAlone<true, Accumulator::kSum>(value, digits);  // counts it
  if ((set & SetOf(Accumulator::kSum)) != 0) AddAlone<false, Accumulator::kSum>(value, digits);
  if ((set & SetOf(Accumulator::kAbsSum)) != 0) AddAlone<false, Accumulator::kAbsSum>(value, digits);
  if ((set & SetOf(Accumulator::kSumSquares)) != 0) AddAlone<false, Accumulator::kSumSquares>(value, digits);
}

struct StatesWanted {
  AccumulatorSet accumulators = 0;
  AccumulatorSet exact_accumulators = 0;
  bool omit_nan = false;
};

// Folds positions [begin, end) to *out and, unless it is null, *digits, which are in device memory. All threads of a
// block of kStateThreads call it, once. `element(position, &x, &index)`: loads an element, and what answers call its
// index, which ascend with the positions; false if the position has none.
template <class T, class Element, class... As>
__device__ inline void FoldStates(const StatesWanted& wanted, std::int64_t begin, std::int64_t end, Element element,
                                  Partial* out, ExactDigits* digits_out, AccumulatorList<As...>) {
  __shared__ unsigned long long words[kExactDigitWords];
  constexpr std::size_t kStateBytes = std::max({sizeof(typename As::State)..., sizeof(ElementCount::State)});
  __shared__ alignas(16) unsigned char shared[kStateThreads / kWarpSize * kStateBytes];
  const bool exact = digits_out != nullptr;
  auto* const digits = reinterpret_cast<ExactDigits*>(words);
  if (exact) {
    for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kStateThreads) words[i] = 0;
    __syncthreads();
  }
  Locals<As...> locals;
  ElementCount::State count;
  bool not_only_negative_zeros = false;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kStateThreads) {
    T x;
    std::int64_t index = 0;
    if (!element(i, &x, &index)) continue;
    ++count.count;
    const bool left_out = wanted.omit_nan && IsNan(x);
    ForEachLocal(wanted.accumulators, locals, [&]<class A>(std::type_identity<A>, typename A::Local& local) {
      if (A::kAccumulator == Accumulator::kCounts || !left_out) A::Add(local, x, index);
    });
    if constexpr (kIsFloat<T>) {
      if (exact) {
        AddToDigits(x, wanted.exact_accumulators, digits);
        if (!ExactElement<T>::IsNegativeZero(x) && !IsNan(x)) not_only_negative_zeros = true;
      }
    }
  }
  count = BlockReduce<ElementCount, kStateThreads>(count, shared);
  if (threadIdx.x == 0) {
    *out = Partial{};
    out->count = count.count;
  }
  ForEachLocal(wanted.accumulators, locals, [&]<class A>(std::type_identity<A>, typename A::Local& local) {
    __syncthreads();  // `shared` may be in use
    const typename A::State state = BlockReduce<A, kStateThreads>(A::Settle(local), shared);
    if (threadIdx.x == 0) A::Store(state, out);
  });
  if (!exact) return;
  const bool any = __syncthreads_or(not_only_negative_zeros) != 0;
  if (threadIdx.x == 0) digits->not_only_negative_zeros = any ? 1 : 0;
  __syncthreads();
  auto* const to = reinterpret_cast<unsigned long long*>(digits_out);
  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kStateThreads) to[i] = words[i];
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_FOLD_STATES_CUH_
