#include "kernels/algebra/partial.h"

#include <type_traits>

#include "kernels/algebra/accumulator.h"

namespace reduced {

void Combine(const Partial& later, Partial* into) {
  into->count += later.count;
  AllAccumulators<double>::ForEach([&]<class A>(std::type_identity<A>) { A::Combine(later, into); });
  AllAccumulators<std::int64_t>::ForEach([&]<class A>(std::type_identity<A>) {
    if constexpr ((AllAccumulators<double>::kSet & SetOf(A::kAccumulator)) == 0) A::Combine(later, into);
  });
}

}  // namespace reduced
