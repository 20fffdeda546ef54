// Reductions along axes on a CUDA device, of any accumulators and any layout: a block folds one part of one output,
// element by element, to a state that the host finalizes.
//
// Exact sums are added to digits in shared memory one element at a time, which is slow beside a reduction of a whole
// array.
#include <algorithm>
#include <type_traits>

#include "kernels/algebra/accumulator.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/exact_terms.cuh"
#include "kernels/cuda/slice_layout.cuh"
#include "kernels/cuda/slices.h"

namespace reduced {
namespace {

constexpr int kThreads = 128;

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
__device__ inline void ForEach(AccumulatorSet set, Locals<A, Rest...>& locals, Function f) {
  if ((set & SetOf(A::kAccumulator)) != 0) f(std::type_identity<A>{}, locals.local);
  if constexpr (sizeof...(Rest) > 0) ForEach(set, locals.rest, f);
}

template <class T>
__device__ inline void AddExactly(T x, AccumulatorSet set, ExactDigits* digits) {
  const double value = ToDouble(x);
  if (!IsFinite(x)) return AddAlone<true, Accumulator::kSum>(value, digits);  // counts it
  if ((set & SetOf(Accumulator::kSum)) != 0) AddAlone<false, Accumulator::kSum>(value, digits);
  if ((set & SetOf(Accumulator::kAbsSum)) != 0) AddAlone<false, Accumulator::kAbsSum>(value, digits);
  if ((set & SetOf(Accumulator::kSumSquares)) != 0) AddAlone<false, Accumulator::kSumSquares>(value, digits);
}

template <class T, class... As>
__global__ void __launch_bounds__(kThreads) SliceStatesKernel(SliceStatesLaunch launch, AccumulatorList<As...>) {
  __shared__ unsigned long long words[kExactDigitWords];
  constexpr std::size_t kStateBytes = std::max({sizeof(typename As::State)...});
  __shared__ alignas(16) unsigned char shared[kThreads / kWarpSize * kStateBytes];
  const bool exact = launch.digits != nullptr;
  auto* const digits = reinterpret_cast<ExactDigits*>(words);
  if (exact) {
    for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) words[i] = 0;
    __syncthreads();
  }
  const SliceArray& array = launch.array;
  const std::int64_t output = launch.which != nullptr ? launch.which[blockIdx.x] : launch.first + blockIdx.x;
  const auto* const data = static_cast<const T*>(array.data) + OffsetOf(array.kept, output);
  const PartOfSlice part(array.elements, static_cast<int>(blockIdx.y), launch.parts);

  Locals<As...> locals;
  bool not_only_negative_zeros = false;
  for (std::int64_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    const T x = data[OffsetOf(array.reduced, i)];
    const bool left_out = launch.omit_nan && IsNan(x);
    ForEach(launch.accumulators, locals, [&]<class A>(std::type_identity<A>, typename A::Local& local) {
      if (A::kAccumulator == Accumulator::kCounts || !left_out) A::Add(local, x, i);
    });
    if constexpr (kIsFloat<T>) {
      if (exact) {
        AddExactly(x, launch.exact_accumulators, digits);
        if (!ExactElement<T>::IsNegativeZero(x) && !IsNan(x)) not_only_negative_zeros = true;
      }
    }
  }
  const std::int64_t at = std::int64_t{blockIdx.x} * launch.parts + blockIdx.y;
  Partial* const out = launch.partials + at;
  if (threadIdx.x == 0) *out = Partial{};
  ForEach(launch.accumulators, locals, [&]<class A>(std::type_identity<A>, typename A::Local& local) {
    __syncthreads();  // `shared` may be in use
    const typename A::State state = BlockReduce<A, kThreads>(A::Settle(local), shared);
    if (threadIdx.x == 0) A::Store(state, out);
  });
  if (!exact) return;
  const bool any = __syncthreads_or(not_only_negative_zeros) != 0;
  if (threadIdx.x == 0) digits->not_only_negative_zeros = any ? 1 : 0;
  __syncthreads();
  auto* const to = reinterpret_cast<unsigned long long*>(launch.digits + at);
  for (int i = static_cast<int>(threadIdx.x); i < kExactDigitWords; i += kThreads) to[i] = words[i];
}

template <class T, class... As>
cudaError_t Launch(const SliceStatesLaunch& launch, AccumulatorList<As...> list) {
  const dim3 grid(static_cast<unsigned>(launch.count), static_cast<unsigned>(launch.parts));
  SliceStatesKernel<T><<<grid, kThreads, 0, launch.stream>>>(launch, list);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchSliceStates(const SliceStatesLaunch& launch) {
  return VisitDType(launch.dtype,
                    [&]<class T>(std::type_identity<T>) { return Launch<T>(launch, AllAccumulators<T>()); });
}

}  // namespace reduced
