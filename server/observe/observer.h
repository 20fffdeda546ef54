// Records every call when it ends: counts it, remembers recent errors and a short history for the status page, and
// writes the log's lines about calls.
#ifndef REDUCED_SERVER_OBSERVE_OBSERVER_H_
#define REDUCED_SERVER_OBSERVE_OBSERVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "server/config/options.h"
#include "server/observe/call_record.h"
#include "server/observe/call_tag.h"
#include "server/observe/metrics.h"
#include "server/observe/repeats.h"
#include "spdlog/logger.h"

namespace reduced::server {

// A call that failed, or several calls of a peer that were refused for the same reason. Texts are one line of ASCII
// each, of limited length.
struct CallError {
  absl::Time when;     // of the last
  std::string rpc{};   // its name or, of a refused call, its method
  std::string peer{};  // as Security::ExactPeerOf
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string message{};
  std::string request_id{};  // empty: refused before it had one
  std::int64_t count = 1;
};

// One second of the history.
struct HistorySample {
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;
  struct Times {  // of the reductions that ended in this second; 0: none did
    double p50_us = 0;
    double p99_us = 0;
  };
  std::array<Times, kStages> stages{};
};

// Thread-safe. One thread of its own.
class Observer {
 public:
  static constexpr std::size_t kMaxErrors = 50;
  static constexpr std::size_t kMaxRefusals = 20;  // of these, of refused calls; further peers are one entry
  static constexpr std::size_t kHistorySeconds = 120;

  // Returns the peer of a call in progress, as Security::ExactPeerOf. Thread-safe.
  using PeerOf = std::function<std::string(const grpc::ServerContextBase&)>;

  // Logs to the sinks of spdlog's current default logger, at its level. peer_of: called only for calls that failed, and
  // for lines that are written; null: peers are not known.
  explicit Observer(const ObserverOptions& options = {}, PeerOf peer_of = nullptr);
  ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // Begins a call: reads its id and traceparent from its metadata, and adds the id to its trailer. Call it before
  // anything else changes the trailer.
  CallTag Begin(grpc::CallbackServerContext* context);

  // Records a call that has ended, before its response is sent. Never waits for readers of the metrics.
  void End(const CallRecord& record);

  // Records a call that was refused for its token, before any service saw it: `method` is its path; `peer` is empty if
  // it is not known. Such calls have no CallRecord, and reduced_calls_total lacks them.
  void Refused(std::string_view method, const std::string& peer, const absl::Status& why);

  const CallMetrics& metrics() const { return metrics_; }
  std::vector<CallError> errors() const;       // the last kMaxErrors, newest first
  std::vector<HistorySample> history() const;  // oldest first

 private:
  std::string PeerIn(const CallRecord& record) const;
  void Log(const CallRecord& record);
  void LogText(const std::string& text);
  void Remember(CallError error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(errors_mutex_);
  void Run();
  void Tick(absl::Time now);

  const ObserverOptions options_;
  const PeerOf peer_of_;
  const std::shared_ptr<spdlog::logger> log_;
  RequestIds ids_;
  CallMetrics metrics_;
  Repeats repeats_{10, absl::Seconds(10)};
  Repeats refusals_{1, absl::Seconds(10)};  // by peer and reason

  mutable absl::Mutex errors_mutex_;
  std::deque<CallError> errors_ ABSL_GUARDED_BY(errors_mutex_);

  // Used by the thread only.
  std::uint64_t last_calls_ = 0;
  std::uint64_t last_errors_ = 0;
  std::array<StageCounts, kStages> last_stages_{};

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<HistorySample> history_ ABSL_GUARDED_BY(mutex_);
  std::thread ticking_;  // last: uses the rest
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_OBSERVER_H_
