#include "kernels/engine/output_errors.h"

#include <algorithm>
#include <limits>

#include "kernels/algebra/finalize.h"

namespace reduced {
namespace {

constexpr std::int64_t kNoOutput = std::numeric_limits<std::int64_t>::max();

}  // namespace

OutputErrors::OutputErrors(std::size_t ops, std::vector<absl::Status>* each) : each_(each), first_(ops), errors_(ops) {
  Clear();
}

void OutputErrors::Store(const ReduceSpec& spec, const State& state, const std::vector<std::byte*>& arrays,
                         std::int64_t output) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (output >= first_[i].load(std::memory_order_relaxed)) continue;  // the op has no results
    const absl::StatusOr<Value> value = Finalize(spec, spec.ops[i], state);
    value.ok() ? StoreAnswer(*value, arrays[i], output) : Fail(i, output, value.status());
  }
}

void OutputErrors::Store(const std::vector<absl::StatusOr<Value>>& answers, const std::vector<std::byte*>& arrays,
                         std::int64_t output) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (output >= first_[i].load(std::memory_order_relaxed)) continue;
    answers[i].ok() ? StoreAnswer(*answers[i], arrays[i], output) : Fail(i, output, answers[i].status());
  }
}

void OutputErrors::Fail(std::size_t op, std::int64_t output, const absl::Status& status) {
  const absl::MutexLock lock(&mutex_);
  if (output >= first_[op].load(std::memory_order_relaxed)) return;
  first_[op].store(output, std::memory_order_relaxed);
  errors_[op] = status;
  const auto [least, most] = std::minmax_element(first_.begin(), first_.end());
  end_.store(each_ == nullptr ? least->load() : most->load(), std::memory_order_relaxed);
}

void OutputErrors::Clear() {
  const absl::MutexLock lock(&mutex_);
  for (std::atomic<std::int64_t>& first : first_) first.store(kNoOutput, std::memory_order_relaxed);
  end_.store(kNoOutput, std::memory_order_relaxed);
  errors_.assign(first_.size(), absl::OkStatus());
}

absl::Status OutputErrors::Finish(const Layout& names, std::int64_t first) {
  const absl::MutexLock lock(&mutex_);
  if (each_ == nullptr) {
    const auto least = std::min_element(first_.begin(), first_.end());
    if (least == first_.end() || least->load() == kNoOutput) return absl::OkStatus();
    return OutputError(names, first + *least, errors_[static_cast<std::size_t>(least - first_.begin())]);
  }
  each_->resize(first_.size());
  for (std::size_t op = 0; op < first_.size(); ++op) {
    if (!errors_[op].ok()) (*each_)[op].Update(OutputError(names, first + first_[op], errors_[op]));
  }
  return absl::OkStatus();
}

}  // namespace reduced
