#include "kernels/ladder/host_rungs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/algebra/monoid.h"
#include "kernels/folds/elements.h"

namespace reduced {
namespace {

// Calls step(i) for i from first to end - 1, or until it is time to stop, which is asked every few hundred us.
template <class Step>
void ForEach(std::int64_t first, std::int64_t end, Stop stop, Step step) {
  constexpr std::int64_t kBlock = 1 << 18;
  for (std::int64_t begin = first; begin < end && !stop(); begin += kBlock) {
    const std::int64_t block_end = std::min(begin + kBlock, end);
    for (std::int64_t i = begin; i < block_end; ++i) step(i);
  }
}

template <class Visitor>
decltype(auto) VisitMonoidOf(const ReduceSpec& spec, Visitor&& visit) {
  return VisitMonoid(spec.ops.front(), spec.dtype, visit);
}

// Folds the array by stretches of `longest` elements: fold(first, count) is the value of one.
template <class M, class FoldStretch>
Partial FoldStretches(std::int64_t count, std::int64_t longest, FoldStretch fold) {
  Partial whole;
  for (std::int64_t first = 0; first < count; first += longest) {
    Partial stretch;
    stretch.count = std::min(longest, count - first);
    M::Store(fold(first, stretch.count), first, &stretch);
    if (first == 0) {
      whole = stretch;
    } else {
      Combine(stretch, &whole);
    }
  }
  return whole;
}

Partial Sequential(const ReduceSpec& spec, const void* data, void*, std::int64_t longest, Stop stop) {
  return VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    return FoldStretches<M>(spec.count, longest, [&](std::int64_t first, std::int64_t count) {
      auto value = M::V::Identity();
      ForEach(first, first + count, stop,
              [&](std::int64_t i) { value = M::V::Combine(value, M::Lift(ElementAt<typename M::Element>(data, i))); });
      return value;
    });
  });
}

std::size_t ValuesBytes(const ReduceSpec& spec) {
  return VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    return static_cast<std::size_t>(spec.count) * sizeof(typename M::V::Value);
  });
}

void LiftAll(const ReduceSpec& spec, const void* data, void* scratch, Stop stop) {
  VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    auto* const values = static_cast<typename M::V::Value*>(scratch);
    ForEach(0, spec.count, stop, [&](std::int64_t i) { values[i] = M::Lift(ElementAt<typename M::Element>(data, i)); });
  });
}

// The interleaved halving of the kernels on one thread: the array's upper half is combined into its lower, again and
// again. An odd element in the middle stays for the next time.
Partial RecursivePairs(const ReduceSpec& spec, const void*, void* scratch, std::int64_t longest, Stop stop) {
  return VisitMonoidOf(spec, [&]<class M>(std::type_identity<M>) {
    using V = typename M::V;
    return FoldStretches<M>(spec.count, longest, [&](std::int64_t first, std::int64_t count) {
      auto* const values = static_cast<typename V::Value*>(scratch) + first;
      for (std::int64_t size = count; size > 1;) {
        const std::int64_t kept = (size + 1) / 2;
        ForEach(0, size - kept, stop, [&](std::int64_t i) { values[i] = V::Combine(values[i], values[i + kept]); });
        size = kept;
      }
      return values[0];
    });
  });
}

}  // namespace

const HostRung kSequential = {.scratch_bytes = nullptr, .prepare = nullptr, .reduce = &Sequential};
const HostRung kRecursivePairs = {.scratch_bytes = &ValuesBytes, .prepare = &LiftAll, .reduce = &RecursivePairs};

}  // namespace reduced
