// How an engine reduces a whole array to a state whose ops are about the distribution: as a partition into one output.
#ifndef REDUCED_KERNELS_ENGINE_ONE_OUTPUT_H_
#define REDUCED_KERNELS_ENGINE_ONE_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"

namespace reduced {

// Calls `reduce` for a copy of the job, which has no partition, with one; the answer gets the state of its output.
inline absl::StatusOr<Answer> ReduceAsOneOutput(const Job& job,
                                                absl::FunctionRef<absl::StatusOr<Answer>(Job&)> reduce) {
  std::vector<State> states;
  Job one = job;
  const std::int64_t shape[] = {job.spec.count};
  one.partition.emplace(Partition{.layout = LayoutOf(shape, {true}), .rows = job.spec.count});
  one.place = [](std::int64_t, std::int64_t, const std::byte*) { return std::vector<std::byte*>(); };
  one.states = &states;
  absl::StatusOr<Answer> answer = reduce(one);
  if (answer.ok()) answer->state = std::move(states.front());
  return answer;
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_ONE_OUTPUT_H_
