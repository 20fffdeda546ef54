// Of a reduction to arrays: the answers of outputs, and which ops have no answer for one of them. Every engine stores
// the answers of states by this.
#ifndef REDUCED_KERNELS_ENGINE_OUTPUT_ERRORS_H_
#define REDUCED_KERNELS_ENGINE_OUTPUT_ERRORS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"

namespace reduced {

// Thread-safe.
class OutputErrors {
 public:
  // `each`: as Job::errors.
  OutputErrors(std::size_t ops, std::vector<absl::Status>* each);

  // Stores the answers to the ops of `spec`, of an output with that state, in the arrays of them. Keeps the errors of
  // ops that have no answer.
  void Store(const ReduceSpec& spec, const State& state, const std::vector<std::byte*>& arrays, std::int64_t output);
  // The same, if they are known. `answers`: to each op.
  void Store(const std::vector<absl::StatusOr<Value>>& answers, const std::vector<std::byte*>& arrays,
             std::int64_t output);

  // Keeps the error of an op for an output.
  void Fail(std::size_t op, std::int64_t output, const absl::Status& status);

  // Whether the answers of `output` make no difference any more: an output before it has an error that ends the
  // reduction. If ops have errors of their own, that is one of the last op without one.
  bool Ended(std::int64_t output) const { return output > end_.load(std::memory_order_relaxed); }

  // Forgets all errors.
  void Clear();
  // The error of the first output that has one; OK, if there is none or ops have errors of their own: then adds the
  // first one of each op to these. Messages name outputs by `names`, in which that of number 0 is number `first`.
  absl::Status Finish(const Layout& names, std::int64_t first = 0);

 private:
  std::vector<absl::Status>* const each_;
  std::vector<std::atomic<std::int64_t>> first_;  // of each op, the first output with an error
  std::atomic<std::int64_t> end_;
  absl::Mutex mutex_;
  std::vector<absl::Status> errors_ ABSL_GUARDED_BY(mutex_);  // of these outputs
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_OUTPUT_ERRORS_H_
