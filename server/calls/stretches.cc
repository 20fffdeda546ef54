#include "server/calls/stretches.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/algebra/state.h"

namespace reduced::server {
Stretches::Stretches(Engine& engine, const ReduceSpec& spec, std::int64_t first, std::int64_t bytes,
                     absl::Time deadline, CancelFlag cancelled, std::uint64_t caller)
    : engine_(engine),
      spec_(spec),
      first_(first),
      bytes_(bytes),
      deadline_(deadline),
      cancelled_(std::move(cancelled)),
      caller_(caller) {}

std::int64_t Stretches::SizeOfNext() const { return std::min(engine_.staging_bytes(), bytes_ - sent_); }

absl::StatusOr<bool> Stretches::Fill(ChunkReader& chunk, bool ended) {
  const std::int64_t size = SizeOfNext();
  const absl::StatusOr<bool> full = filling_.Fill(chunk, size, engine_);
  if (!full.ok()) return full;
  return *full && (size > 0 || (ended && !reduced_any_));
}

void Stretches::Reduce(absl::AnyInvocable<void(const absl::Status&) &&> done) {
  std::swap(filling_, reducing_);
  filling_.Clear();
  const std::int64_t width = RowOf(spec_.dtype).bytes;
  const std::int64_t begin = first_ + sent_ / width;
  ReduceSpec stretch = spec_;
  stretch.count = reducing_.filled() / width;
  for (OpCall& call : stretch.ops) call = StartingAt(begin, call);
  sent_ += reducing_.filled();
  const bool admitted = std::exchange(reduced_any_, true);
  engine_.Reduce(Job{std::move(stretch), reducing_.array(), deadline_, cancelled_, admitted, caller_},
                 [this, begin, done = std::move(done)](absl::StatusOr<Answer> result) mutable {
                   if (result.ok()) {
                     Shift(begin, &result->state);
                     Combine(*result, &total_);
                   }
                   std::move(done)(result.status());
                 });
}

}  // namespace reduced::server
