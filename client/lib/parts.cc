#include "client/lib/parts.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/retry.h"
#include "client/lib/stream.h"
#include "client/lib/via.h"
#include "reduced/errors.h"

namespace reduced::client {
namespace {

// 32 random hexadecimal digits.
std::string RandomName() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&name, absl::Hex(random(), absl::kZeroPad8));
  return name;
}

// The messages of each part, all parts of one upload.
std::vector<StreamMessages> UploadMessages(const v1::ReduceRequest& request, const ArrayView& array,
                                           const std::vector<std::int64_t>& cuts) {
  const std::int64_t width = *DTypeBytes(array.dtype);
  v1::ReduceStreamRequest first;
  *first.mutable_header() = request;
  v1::StreamPart& part = *first.mutable_stream_part();
  part.set_upload(RandomName());
  part.set_parts(static_cast<std::int32_t>(cuts.size() - 1));
  std::vector<StreamMessages> messages;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int64_t bytes = cuts[i + 1] - cuts[i];
    part.set_index(static_cast<std::int32_t>(i));
    part.set_first(cuts[i] / width);
    part.set_count(bytes / width);
    messages.emplace_back(first, array, cuts[i], bytes);
  }
  return messages;
}

// The streams of the parts. Each runs on its own thread; the first error ends them all.
class PartStreams {
 public:
  PartStreams(const Connection& connection, const ReduceOptions& options, const Retries& retries,
              absl::Duration timeout, absl::Time deadline, std::size_t parts)
      : on_progress_(options.on_progress), interrupted_(options.interrupted) {
    for (std::size_t i = 0; i < parts; ++i) {
      retries.Prepare(states_.emplace_back(connection, connection.parts[i], timeout, deadline));
    }
  }

  absl::StatusOr<v1::ReduceResponse> Run(std::vector<StreamMessages> messages) {
    for (const StreamMessages& part : messages) total_ += part.left();
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < states_.size(); ++i) {
        threads.emplace_back([this, i, &part = messages[i]] { Send(i, std::move(part)); });
      }
      Send(0, std::move(messages[0]));
    }
    const absl::MutexLock lock(&mutex_);
    if (!cause_.ok()) return cause_;
    if (!aborted_.ok()) return aborted_;
    return std::move(response_);
  }

 private:
  void Send(std::size_t part, StreamMessages messages) {
    const auto on_progress = [this, before = std::int64_t{0}](std::int64_t sent, std::int64_t /*of the part*/) mutable {
      const absl::MutexLock lock(&progress_mutex_);
      sent_ += sent - std::exchange(before, sent);
      on_progress_(sent_, total_);
    };
    absl::StatusOr<v1::ReduceResponse> response = ReduceStreamAndWait(
        states_[part], std::move(messages), on_progress_ == nullptr ? OnProgress() : OnProgress(on_progress),
        part == 0 ? interrupted_ : Interrupted());
    {
      const absl::MutexLock lock(&mutex_);
      if (response.ok()) {
        if (part == 0) response_ = *std::move(response);  // all parts get the same one
        return;
      }
      // ABORTED means that another part failed. The error of that part is the cause, and arrives separately.
      if (absl::IsAborted(response.status())) return aborted_.Update(response.status());
      if (!cause_.ok()) return;
      cause_ = response.status();
    }
    // The server may not know this part, so that it can't end the others.
    for (RpcState& state : states_) state.Cancel();
  }

  const OnProgress on_progress_;
  const Interrupted interrupted_;  // asked by the first part, on the calling thread: no part ends before the others
  std::int64_t total_ = 0;         // bytes of all parts
  absl::Mutex progress_mutex_;
  std::int64_t sent_ ABSL_GUARDED_BY(progress_mutex_) = 0;  // bytes of all parts
  std::deque<RpcState> states_;
  absl::Mutex mutex_;
  v1::ReduceResponse response_ ABSL_GUARDED_BY(mutex_);
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::vector<std::int64_t> CutInParts(std::int64_t bytes, int connections) {
  const std::int64_t blocks = (bytes + kPartBlockBytes - 1) / kPartBlockBytes;
  const std::int64_t parts = bytes < kPartsFromBytes ? 1 : std::min<std::int64_t>(connections, blocks);
  std::vector<std::int64_t> cuts;
  for (std::int64_t i = 0; i < parts; ++i) cuts.push_back(blocks * i / parts * kPartBlockBytes);
  cuts.push_back(bytes);
  return cuts;
}

absl::StatusOr<Reply> ReduceInParts(const Connection& connection, const v1::ReduceRequest& request,
                                    const std::vector<std::string>& names, const ArrayView& array,
                                    const std::vector<std::int64_t>& cuts, const ReduceOptions& options) {
  const absl::Duration timeout = options.timeout.value_or(connection.options.timeout);
  const absl::Time deadline = absl::Now() + timeout;
  Retries retries(connection, deadline);
  for (;;) {
    // Each attempt is another upload: the parts of one go to one server.
    absl::StatusOr<v1::ReduceResponse> response =
        PartStreams(connection, options, retries, timeout, deadline, cuts.size() - 1)
            .Run(UploadMessages(request, array, cuts));
    grpc::Channel& channel = *connection.parts.front().channel;
    if (response.ok()) {
      absl::StatusOr<Reply> reply = ToReply(connection.options.server, Asked(request), *response, kStream, names);
      if (reply.ok()) reply->attempts = retries.attempts();
      return reply;
    }
    const auto delay = retries.Next(response.status(), RetryAfterOf(response.status()));
    if (!delay.has_value()) return retries.Final(response.status(), channel);
    if (!Retries::Wait(*delay, channel, options.interrupted)) return InterruptedError();
  }
}

}  // namespace reduced::client
