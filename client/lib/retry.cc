#include "client/lib/retry.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"
#include "reduced/errors.h"

namespace reduced::client {
namespace {

// Before the second attempt; doubled before each later one. ClientOptions.max_attempts documents these numbers.
constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kMaxDelay = absl::Seconds(1);

// Clients that were refused at the same time must not come back at the same time.
double Random(double from, double to) {
  thread_local std::minstd_rand engine{std::random_device{}()};
  return std::uniform_real_distribution<double>(from, to)(engine);
}

}  // namespace

absl::Duration RetryDelay(int attempts) {
  return std::min(kFirstDelay * (1 << (attempts - 1)), kMaxDelay) * Random(0.5, 1);
}

void Retries::Prepare(RpcState& attempt) const {
  if (attempts_ > 1 && connection_.reached.load(std::memory_order_relaxed)) attempt.context.set_wait_for_ready(true);
}

std::optional<absl::Duration> Retries::Next(const absl::Status& failure, std::optional<absl::Duration> hint) {
  const bool may_pass = absl::IsUnavailable(failure) || (absl::IsResourceExhausted(failure) && hint.has_value());
  if (!may_pass || attempts_ >= connection_.options.max_attempts) return std::nullopt;
  if (hint.has_value() && *hint < absl::ZeroDuration()) return std::nullopt;  // gRPC: the server wants no retries
  const absl::Duration delay = hint.has_value() ? *hint * Random(1, 1.5) : RetryDelay(attempts_);
  if (absl::Now() + delay >= deadline_) return std::nullopt;
  ++attempts_;
  // A server names the request that it refuses; a connection that was lost has no name.
  elsewhere_ = connection_.target.several && absl::IsUnavailable(failure) && !RequestIdOf(failure).empty();
  before_ = failure;
  connection_.retries.fetch_add(1, std::memory_order_relaxed);
  return delay;
}

bool Retries::Wait(absl::Duration delay, grpc::Channel& channel, const Interrupted& interrupted) {
  const absl::Time next = absl::Now() + delay;
  InterruptClock clock(interrupted);
  while (absl::Now() < next) {
    const absl::Time until = std::min(next, clock.due());
    channel.WaitForConnected(absl::ToChronoTime(until));
    absl::SleepFor(until - absl::Now());
    if (clock.Ask()) return false;
  }
  return true;
}

absl::Status Retries::Final(const absl::Status& error, grpc::Channel& channel) const {
  if (attempts_ == 1) return error;
  if (absl::IsDeadlineExceeded(error) && absl::IsUnavailable(before_) &&
      channel.GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY) {
    const std::string tried = attempts_ > 2 ? absl::StrCat("; tried ", attempts_ - 1, " times") : "";
    return WithMessage(before_, absl::StrCat(before_.message(), tried, "; waited for a server until the deadline"));
  }
  return WithMessage(error, absl::StrCat(error.message(), "; tried ", attempts_, " times"));
}

}  // namespace reduced::client
