// How the CPU engine cuts arrays, and what it folds elements into: common to reductions of whole arrays and of slices.
#ifndef REDUCED_KERNELS_CPU_FOLDING_H_
#define REDUCED_KERNELS_CPU_FOLDING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/algebra/partial.h"
#include "kernels/algebra/spec.h"
#include "kernels/cpu/exact_tiles.h"
#include "kernels/cpu/tiles.h"
#include "kernels/exact/answers.h"
#include "oneapi/tbb/blocked_range.h"

namespace reduced {

// How much is folded between two looks at the deadline; tasks are one or several of these. Sizes depend on the array's
// alone, so that the answer doesn't depend on how many threads there are.
inline constexpr std::int64_t kBlockBytes = 256 << 10;

// What an answer of many costs besides its elements, as so many bytes of elements: one that is found side by side with
// others (quick_answers.h), or by itself.
inline std::int64_t AnswerBytes(bool quick) { return quick ? 64 : 4096; }

// What a reduction folds its array by: immutable, so shared by its threads.
struct Plan {
  explicit Plan(const ReduceSpec& spec)
      : accumulators(AccumulatorsFor(spec)),
        exact_accumulators(ExactAccumulatorsFor(spec)),
        element_bytes(RowOf(spec.dtype).bytes),
        tiles(spec.dtype, accumulators, spec.nan_policy) {}

  const AccumulatorSet accumulators;
  const AccumulatorSet exact_accumulators;
  const std::int64_t element_bytes;
  const TilePlan tiles;
};

// What one task folds elements into.
struct Folded {
  Folded(const ReduceSpec& spec, const Plan& plan, Partial* into) : partial(into) {
    if (plan.exact_accumulators != 0) exact.emplace(spec.dtype, plan.exact_accumulators);
  }

  Partial* const partial;
  std::optional<ExactFolder> exact;
};

inline void FoldElements(const Plan& plan, const void* elements, std::int64_t first, std::int64_t count, Folded* into) {
  if (!into->exact.has_value()) return plan.tiles.Fold(elements, first, count, into->partial);
  if (plan.accumulators == 0) return into->exact->Fold(elements, count);
  // In turns, so that the second finds in the L1 cache what the first had from memory.
  const auto* at = static_cast<const std::byte*>(elements);
  const std::int64_t turn = plan.tiles.tile_elements();
  for (std::int64_t done = 0; done < count; done += turn, at += turn * plan.element_bytes) {
    const std::int64_t number = std::min(turn, count - done);
    std::optional<Extent> extent;
    plan.tiles.Fold(at, first + done, number, into->partial, &extent);
    into->exact->Fold(at, number, extent);
  }
}

// The blocks of an array, and how many of them make a task.
inline tbb::blocked_range<std::int64_t> BlocksOf(const ReduceSpec& spec) {
  const std::int64_t blocks = (spec.count * RowOf(spec.dtype).bytes + kBlockBytes - 1) / kBlockBytes;
  const std::size_t task_blocks = std::clamp<std::int64_t>(blocks / 64, 1, 4);  // fewer partials to combine
  return {0, blocks, task_blocks};
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_FOLDING_H_
