// LocalEngine::ReduceMany.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "client/lib/errors.h"
#include "client/local/local.h"
#include "kernels/engine/why_stop.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

// Arrays of up to this size are reduced on one lane, where several of them follow each other.
constexpr std::int64_t kSmallBytes = std::int64_t{512} << 10;

}  // namespace

absl::StatusOr<std::vector<Reply>> LocalEngine::ReduceMany(const std::vector<ArrayView>& arrays,
                                                           const std::vector<std::string>& ops,
                                                           const ReduceOptions& options) const {
  if (arrays.empty()) return absl::InvalidArgumentError("operands: got none; allowed: 1 or more");
  const absl::Duration timeout = options.timeout.value_or(absl::InfiniteDuration());
  RETURN_IF_ERROR(CheckTimeout(timeout));
  const absl::Time deadline = absl::Now() + timeout;
  InterruptClock clock(options.interrupted);
  std::vector<Reply> replies(arrays.size());
  ReduceOptions own = options;
  const auto reduce = [&](std::size_t i) -> absl::Status {
    if (timeout != absl::InfiniteDuration()) own.timeout = TimeLeft(deadline);
    absl::StatusOr<Reply> reply = Reduce(arrays[i], ops, own);
    if (!reply.ok()) return OfOperand(i, reply.status());
    replies[i] = *std::move(reply);
    return absl::OkStatus();
  };
  const auto is_small = [&](std::size_t i) {
    const absl::StatusOr<std::int64_t> bytes = ArrayBytes(arrays[i].dtype, arrays[i].shape);
    return bytes.value_or(0) <= kSmallBytes && (arrays[i].reader.read == nullptr || arrays[i].reader.in_memory);
  };
  absl::Status status;
  for (std::size_t i = 0; status.ok() && i < arrays.size();) {
    if (!is_small(i)) {
      own.interrupted = options.interrupted;
      status = reduce(i++);
      continue;
    }
    // All that follow until a large one, on one lane. This thread waits, and is asked whether it is interrupted.
    own.interrupted = nullptr;
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    absl::Notification done;
    engine_->OnLane({.spec = {.dtype = DType::kU8}, .deadline = deadline, .cancelled = cancelled},
                    [&](const absl::Status& lane) {
                      for (status = lane; status.ok() && i < arrays.size() && is_small(i);) {
                        status = WhyStop(cancelled, deadline);
                        if (status.ok()) status = reduce(i++);
                      }
                      done.Notify();
                    });
    while (!done.WaitForNotificationWithDeadline(clock.due())) {
      if (clock.Ask()) cancelled->store(true, std::memory_order_relaxed);
    }
    if (clock.interrupted() && absl::IsCancelled(status)) status = InterruptedError();
  }
  if (!status.ok()) return status;
  return replies;
}

}  // namespace reduced::client
