#include "kernels/ladder/rung.cuh"

namespace reduced {
namespace {

constexpr int kThreads = 256;

template <class M>
__global__ void __launch_bounds__(kThreads)
    LiftKernel(const typename M::Element* data, std::int64_t count, typename M::V::Value* values) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += threads) {
    values[i] = M::Lift(data[i]);
  }
}

template <class V>
__global__ void ResetKernel(AtomicValue<V>* value) {
  *value = {V::Identity(), 0};
}

// Every thread takes values a block apart.
template <class M>
__global__ void __launch_bounds__(kMaxBlockSize)
    StoreKernel(const typename M::V::Value* values, std::int64_t count, std::int64_t elements, std::int64_t base_index,
                Partial* out) {
  using V = typename M::V;
  typename V::Value value = V::Identity();
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kMaxBlockSize) value = V::Combine(value, values[i]);
  value = BlockCombine<V>(value);
  if (threadIdx.x == 0) {
    M::Store(value, base_index, out);
    out->count = elements;
  }
}

}  // namespace

std::size_t ValueBytes(const Launch& launch) {
  return VisitMonoidOf(launch, []<class M>(std::type_identity<M>) { return sizeof(typename M::V::Value); });
}

cudaError_t LiftArray(const Launch& launch, void* values) {
  return VisitMonoidOf(launch, [&]<class M>(std::type_identity<M>) {
    LiftKernel<M><<<8 * launch.multiprocessors, kThreads, 0, launch.stream>>>(
        static_cast<const typename M::Element*>(launch.data), launch.count, static_cast<typename M::V::Value*>(values));
    return cudaGetLastError();
  });
}

cudaError_t ResetAtomic(const Launch& launch, void* atomic_value) {
  return VisitMonoidOf(launch, [&]<class M>(std::type_identity<M>) {
    using V = typename M::V;
    static_assert(sizeof(AtomicValue<V>) <= 2 * sizeof(typename V::Value));
    ResetKernel<V><<<1, 1, 0, launch.stream>>>(static_cast<AtomicValue<V>*>(atomic_value));
    return cudaGetLastError();
  });
}

cudaError_t StoreResult(const Launch& launch, const void* values, std::int64_t count) {
  return VisitMonoidOf(launch, [&]<class M>(std::type_identity<M>) {
    using Value = typename M::V::Value;
    StoreKernel<M><<<1, kMaxBlockSize, kMaxBlockSize / kWarpSize * sizeof(Value), launch.stream>>>(
        static_cast<const Value*>(values), count, launch.count, launch.base_index, launch.out);
    return cudaGetLastError();
  });
}

}  // namespace reduced
