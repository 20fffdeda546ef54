#include "server/calls/stretches.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/algebra/state.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {

Stretches::Stretches(Engine& engine, const ReduceSpec& spec, const StreamDTypes& others, std::int64_t first,
                     std::int64_t count, absl::Time deadline, CancelFlag cancelled, std::uint64_t caller)
    : engine_(engine),
      spec_(spec),
      first_(first),
      count_(count),
      deadline_(deadline),
      cancelled_(std::move(cancelled)),
      caller_(caller) {
  const std::optional<DType> dtypes[kStreamArrays] = {spec.dtype, others.y, others.weights};
  for (std::size_t i = 0; i < kStreamArrays; ++i) {
    if (dtypes[i].has_value()) arrays_[i].emplace(Array{.dtype = *dtypes[i]});
  }
}

std::int64_t Stretches::SizeOfNext() const {
  std::int64_t width = 1;  // of the widest element
  for (const auto& array : arrays_) {
    if (array.has_value()) width = std::max<std::int64_t>(width, RowOf(array->dtype).bytes);
  }
  return std::min(engine_.staging_bytes() / width, count_ - sent_);
}

absl::StatusOr<bool> Stretches::Fill(ChunkReader& chunk, std::size_t array, bool ended) {
  const std::int64_t size = SizeOfNext();
  bool all_full = true;
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (!arrays_[i].has_value()) continue;
    Array& each = *arrays_[i];
    const std::int64_t bytes = size * RowOf(each.dtype).bytes;
    absl::StatusOr<bool> full = each.filling.Fill(each.ahead, bytes, engine_);
    if (full.ok() && i == array && each.ahead.left() == 0) full = each.filling.Fill(chunk, bytes, engine_);
    if (!full.ok()) return full.status();
    all_full = all_full && *full;
  }
  if (all_full && (size > 0 || (ended && !reduced_any_))) return true;
  // Another array has not come so far.
  RETURN_IF_ERROR(arrays_[array]->ahead.Append(chunk));
  return false;
}

void Stretches::Reduce(absl::AnyInvocable<void(const absl::Status&) &&> done) {
  for (auto& array : arrays_) {
    if (!array.has_value()) continue;
    std::swap(array->filling, array->reducing);
    array->filling.Clear();
  }
  const SideArray elements = arrays_[0]->side();
  const std::int64_t begin = first_ + sent_;
  ReduceSpec stretch = spec_;
  stretch.count = elements.count;
  for (OpCall& call : stretch.ops) call = StartingAt(begin, call);
  sent_ += elements.count;
  const bool admitted = std::exchange(reduced_any_, true);
  Job job{std::move(stretch), elements.array, deadline_, cancelled_, admitted, caller_};
  if (arrays_[1].has_value()) job.y = OtherArray{arrays_[1]->side()};
  if (arrays_[2].has_value()) job.weights = OtherArray{arrays_[2]->side()};
  engine_.Reduce(std::move(job), [this, begin, done = std::move(done)](absl::StatusOr<Answer> result) mutable {
    if (result.ok()) {
      Shift(begin, &result->state);
      Combine(*result, &total_);
    }
    std::move(done)(result.status());
  });
}

}  // namespace reduced::server
