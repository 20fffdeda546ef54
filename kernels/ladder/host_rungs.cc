#include "kernels/ladder/host_rungs.h"

#include <cstdint>
#include <cstring>

#include "kernels/algebra/monoid.h"

namespace reduced {
namespace {

template <class T>
T ElementAt(const void* data, std::int64_t index) {
  T element;
  std::memcpy(&element, static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return element;
}

template <class Visitor>
decltype(auto) VisitMonoidOf(const ReduceSpec& spec, Visitor&& visit) {
  return VisitMonoid(spec.ops.front(), spec.dtype, visit);
}

template <class M>
Partial PartialOf(const typename M::V::Value& value, std::int64_t count) {
  Partial partial;
  partial.count = count;
  if (count > 0) M::Store(value, 0, &partial);
  return partial;
}

Partial Sequential(const ReduceSpec& spec, const void* data, void*) {
  return VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    auto value = M::V::Identity();
    for (std::int64_t i = 0; i < spec.count; ++i) {
      value = M::V::Combine(value, M::Lift(ElementAt<typename M::Element>(data, i)));
    }
    return PartialOf<M>(value, spec.count);
  });
}

std::size_t ValuesBytes(const ReduceSpec& spec) {
  return VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    return static_cast<std::size_t>(spec.count) * sizeof(typename M::V::Value);
  });
}

void LiftAll(const ReduceSpec& spec, const void* data, void* scratch) {
  VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    auto* const values = static_cast<typename M::V::Value*>(scratch);
    for (std::int64_t i = 0; i < spec.count; ++i) values[i] = M::Lift(ElementAt<typename M::Element>(data, i));
  });
}

// The interleaved halving of the kernels on one thread: the array's upper half is combined into its lower, again and
// again. An odd element in the middle stays for the next time.
Partial RecursivePairs(const ReduceSpec& spec, const void*, void* scratch) {
  return VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    using V = typename M::V;
    auto* const values = static_cast<typename V::Value*>(scratch);
    for (std::int64_t size = spec.count; size > 1;) {
      const std::int64_t kept = (size + 1) / 2;
      for (std::int64_t i = 0; i + kept < size; ++i) values[i] = V::Combine(values[i], values[i + kept]);
      size = kept;
    }
    return PartialOf<M>(spec.count > 0 ? values[0] : V::Identity(), spec.count);
  });
}

}  // namespace

const HostRung kSequential = {.scratch_bytes = nullptr, .prepare = nullptr, .reduce = &Sequential};
const HostRung kRecursivePairs = {.scratch_bytes = &ValuesBytes, .prepare = &LiftAll, .reduce = &RecursivePairs};

}  // namespace reduced
