#include "client/lib/spread.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/parts.h"
#include "client/lib/retry.h"
#include "client/lib/stream.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"
#include "reduced/merge.h"

namespace reduced::client {
namespace {

constexpr int kServersOfDns = 4;  // as many are assumed: only gRPC sees the addresses of a DNS name
constexpr int kPartsEach = 4;     // of those that are sent at a time
constexpr std::int64_t kMaxPartBytes = std::int64_t{64} << 20;

// The parts of one array. Some threads each send the next part that none has sent; the first error ends them all.
class Spread {
 public:
  Spread(const Connection& connection, const v1::ReduceRequest& request, const ArrayView& array,
         const std::vector<std::int64_t>& cuts, const ReduceOptions& options, absl::Time deadline)
      : connection_(connection),
        request_(request),
        array_(array),
        cuts_(cuts),
        options_(options),
        timeout_(options.timeout.value_or(connection.options.timeout)),
        deadline_(deadline),
        threads_(std::min(PartsAtOnce(connection), static_cast<int>(cuts.size()) - 1)),
        running_(threads_),
        replies_(cuts.size() - 1) {}

  // The replies of all parts, in order. Asks `interrupted` on this thread.
  absl::StatusOr<std::vector<Reply>> Run() {
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < threads_; ++i) threads.emplace_back([this] { SendParts(); });
      InterruptClock clock(options_.interrupted);
      while (!WaitForEnd(clock.due())) {
        if (clock.Ask()) Stop(InterruptedError());
      }
    }
    const absl::MutexLock lock(&mutex_);
    if (!cause_.ok()) return cause_;
    return std::move(replies_);
  }

 private:
  // Whether the threads have ended by then.
  bool WaitForEnd(absl::Time until) {
    const absl::MutexLock lock(&mutex_);
    const auto ended = [](int* running) { return *running == 0; };
    return mutex_.AwaitWithDeadline(absl::Condition(+ended, &running_), until);
  }

  // The first call ends all parts, with this error.
  void Stop(const absl::Status& cause) {
    const absl::MutexLock lock(&mutex_);
    if (!cause_.ok()) return;
    cause_ = cause;
    for (RpcState* const each : under_way_) each->Cancel();
  }

  void SendParts() {
    while (const std::optional<std::size_t> part = Next()) {
      absl::StatusOr<Reply> reply = Send(*part);
      if (!reply.ok()) {
        Stop(reply.status());
        continue;
      }
      const absl::MutexLock lock(&mutex_);
      replies_[*part] = *std::move(reply);
    }
    const absl::MutexLock lock(&mutex_);
    --running_;
  }

  // The part to send next; nothing: there is none, or the parts are to end.
  std::optional<std::size_t> Next() {
    const absl::MutexLock lock(&mutex_);
    if (!cause_.ok() || next_ == replies_.size()) return std::nullopt;
    return next_++;
  }

  // Sends a part until it is answered, or cannot be.
  absl::StatusOr<Reply> Send(std::size_t part) {
    const std::int64_t bytes = cuts_[part + 1] - cuts_[part];
    v1::ReduceStreamRequest first;
    v1::ReduceRequest& request = *first.mutable_header();
    request = request_;
    request.set_return_state(true);
    request.set_omit_results(true);
    request.mutable_array()->clear_shape();
    request.mutable_array()->add_shape(bytes / *DTypeBytes(array_.dtype));
    const Backend& to = connection_.parts.front();
    Retries retries(connection_, deadline_);
    const auto stopped = [this] {
      const absl::MutexLock lock(&mutex_);
      return !cause_.ok();
    };
    for (;;) {
      RpcState state(connection_, to, timeout_, deadline_);
      retries.Prepare(state);
      if (!Begin(&state)) return absl::CancelledError("another part failed");
      std::int64_t sent = 0;
      const auto on_progress = [&](std::int64_t now, std::int64_t /*of the part*/) {
        const absl::MutexLock lock(&progress_mutex_);
        sent_ += now - std::exchange(sent, now);
        if (options_.on_progress != nullptr) options_.on_progress(sent_, cuts_.back());
      };
      absl::StatusOr<v1::ReduceResponse> response =
          ReduceStreamAndWait(state, {first, array_, cuts_[part], bytes}, on_progress, /*interrupted=*/nullptr);
      End(&state);
      if (response.ok()) {
        absl::StatusOr<Reply> reply = ToReply(connection_.options.server, Asked(request), *response, kStream);
        if (reply.ok()) reply->attempts = retries.attempts();
        return reply;
      }
      const std::optional<absl::Duration> delay = retries.Next(response.status(), state.RetryHint());
      if (!delay.has_value() || !Retries::Wait(*delay, *to.channel, stopped)) {
        return retries.Final(response.status(), *to.channel);
      }
      const absl::MutexLock lock(&progress_mutex_);
      sent_ -= sent;
    }
  }

  // False: the parts are to end.
  bool Begin(RpcState* state) {
    const absl::MutexLock lock(&mutex_);
    if (cause_.ok()) under_way_.insert(state);
    return cause_.ok();
  }
  void End(RpcState* state) {
    const absl::MutexLock lock(&mutex_);
    under_way_.erase(state);
  }

  const Connection& connection_;
  const v1::ReduceRequest& request_;
  const ArrayView& array_;
  const std::vector<std::int64_t>& cuts_;
  const ReduceOptions& options_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
  const int threads_;

  absl::Mutex progress_mutex_;
  std::int64_t sent_ ABSL_GUARDED_BY(progress_mutex_) = 0;  // bytes of all parts
  absl::Mutex mutex_;
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // the part that is sent next
  int running_ ABSL_GUARDED_BY(mutex_);           // threads
  std::set<RpcState*> under_way_ ABSL_GUARDED_BY(mutex_);
  std::vector<Reply> replies_ ABSL_GUARDED_BY(mutex_);
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
};

// The answer of the merged states: what ran is that of the first part, with the stages of all parts together.
absl::StatusOr<Reply> Merged(const std::vector<Reply>& parts, const ReduceOptions& options, double total_us) {
  std::vector<std::string> states;
  for (const Reply& part : parts) states.push_back(part.state);
  absl::StatusOr<MergeReply> merged =
      MergeStates(states, {.return_state = options.return_state, .results = options.results, .names = {}});
  if (!merged.ok()) return merged.status();
  Reply whole{.via = std::string(kStream),
              .results = std::move(merged->results),
              .count = merged->count,
              .execution = parts.front().execution,
              .state = std::move(merged->state)};
  absl::StrAppend(&whole.execution.reason, "; in ", parts.size(), " parts, over the servers of the address");
  for (const Reply& part : parts) {
    for (const TimingStage& stage : kTimingStages) {
      const std::optional<double>& us = part.timing.*stage.us;
      if (us.has_value()) (whole.timing.*stage.us) = (whole.timing.*stage.us).value_or(0) + *us;
    }
    whole.timing.bytes += part.timing.bytes;
    whole.attempts = std::max(whole.attempts, part.attempts);
  }
  whole.timing.total_us = total_us;
  return whole;
}

}  // namespace

int PartsAtOnce(const Connection& connection) {
  const int servers = connection.target.addresses == 0 ? kServersOfDns : connection.target.addresses;
  return std::min(std::max(servers, connection.options.connections), kMaxConnections);
}

std::vector<std::int64_t> CutForServers(std::int64_t bytes, int at_once) {
  std::vector<std::int64_t> cuts = {0};
  if (bytes >= kPartsFromBytes) {
    const std::int64_t blocks = bytes / (std::int64_t{at_once} * kPartsEach) / kPartBlockBytes;
    const std::int64_t part = std::clamp(blocks * kPartBlockBytes, kPartBlockBytes, kMaxPartBytes);
    for (std::int64_t at = part; at < bytes; at += part) cuts.push_back(at);
  }
  cuts.push_back(bytes);
  return cuts;
}

absl::StatusOr<Reply> ReduceSpread(const Connection& connection, const v1::ReduceRequest& request,
                                   const ArrayView& array, const std::vector<std::int64_t>& cuts,
                                   const ReduceOptions& options, absl::Time deadline) {
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(const std::vector<Reply> parts, Spread(connection, request, array, cuts, options, deadline).Run());
  return Merged(parts, options, absl::ToDoubleMicroseconds(absl::Now() - start));
}

}  // namespace reduced::client
