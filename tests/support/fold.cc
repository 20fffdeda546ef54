#include "tests/support/fold.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/algebra/accumulator.h"

namespace reduced::test {
namespace {

template <class A, class T>
void FoldOne(const ReduceSpec& spec, const void* data, std::int64_t begin, std::int64_t end, Partial* partial) {
  if ((AccumulatorsFor(spec) & SetOf(A::kAccumulator)) == 0) return;
  typename A::Local local;
  for (std::int64_t i = begin; i < end; ++i) {
    T x;
    std::memcpy(&x, static_cast<const std::byte*>(data) + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    const bool omitted = spec.nan_policy == NanPolicy::kOmit && IsNan(x) && A::kAccumulator != Accumulator::kCounts;
    if (!omitted) A::Add(local, x, i);
  }
  A::Store(A::Settle(local), partial);
}

}  // namespace

Partial Fold(const ReduceSpec& spec, const void* data, std::int64_t begin, std::int64_t end) {
  Partial partial;
  partial.count = end - begin;
  VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) {
    AllAccumulators<T>::ForEach(
        [&]<class A>(std::type_identity<A>) { FoldOne<A, T>(spec, data, begin, end, &partial); });
  });
  return partial;
}

}  // namespace reduced::test
