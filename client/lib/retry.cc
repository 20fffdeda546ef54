#include "client/lib/retry.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"

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

std::optional<absl::Duration> Retries::Next(grpc::StatusCode failure, std::optional<absl::Duration> hint) {
  const bool may_pass =
      failure == grpc::StatusCode::UNAVAILABLE || (failure == grpc::StatusCode::RESOURCE_EXHAUSTED && hint.has_value());
  if (!may_pass || attempts_ >= connection_.options.max_attempts) return std::nullopt;
  if (hint.has_value() && *hint < absl::ZeroDuration()) return std::nullopt;  // gRPC: the server wants no retries
  const absl::Duration delay = hint.has_value()
                                   ? *hint * Random(1, 1.5)
                                   : std::min(kFirstDelay * (1 << (attempts_ - 1)), kMaxDelay) * Random(0.5, 1);
  if (absl::Now() + delay >= deadline_) return std::nullopt;
  ++attempts_;
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

absl::Status Retries::Final(const absl::Status& error) const {
  if (attempts_ == 1) return error;
  return WithMessage(error, absl::StrCat(error.message(), "; tried ", attempts_, " times"));
}

}  // namespace reduced::client
