// Hears of every call once, when it ends, and has what others ask for: counts, the errors of late, a short history; and
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
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "server/observe/call_record.h"
#include "server/observe/call_tag.h"
#include "server/observe/metrics.h"
#include "server/observe/repeats.h"
#include "spdlog/logger.h"

namespace reduced::server {

struct ObserverOptions {
  bool metrics = true;      // count calls, and keep the errors of late
  bool request_ids = true;  // give every call an id, and say it in the trailer
  bool json_log = false;    // lines about calls are the members of JSON objects: see SetUpLog
  absl::Duration slow_request = absl::ZeroDuration();  // a reduction that takes as long is warned of; 0: none is
};

// A call that did not end well. Texts are one line of ASCII each, of limited length.
struct CallError {
  absl::Time when;
  Rpc rpc = Rpc::kReduce;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string message{};
  std::string request_id{};
};

// One second.
struct HistorySample {
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;
  struct Times {  // of the reductions that ended in it, us; 0: none did
    double p50_us = 0;
    double p99_us = 0;
  };
  std::array<Times, kStages> stages{};
};

// Thread-safe. One thread of its own.
class Observer {
 public:
  static constexpr std::size_t kMaxErrors = 50;
  static constexpr std::size_t kHistorySeconds = 120;

  // Whose call it is, of a call that is not over; "": nobody in particular, or nobody who is known any more.
  // Thread-safe.
  using CallerOf = std::function<std::string(const grpc::ServerContextBase&)>;

  // Lines go to where spdlog's default logger of now writes, at its level. caller_of: asked only for lines that are
  // written; null: callers have no names.
  explicit Observer(const ObserverOptions& options = {}, CallerOf caller_of = nullptr);
  ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // A call begins: takes its id and traceparent from its metadata, and puts the id into its trailer. Before anything
  // else of the call has an effect on the trailer.
  CallTag Begin(grpc::CallbackServerContext* context);

  // A call is over, but for its answer. Never waits for a reader of what it is counted in.
  void End(const CallRecord& record);

  const CallMetrics& metrics() const { return metrics_; }
  std::vector<CallError> errors() const;       // the last ones, newest first
  std::vector<HistorySample> history() const;  // oldest first

 private:
  void Log(const CallRecord& record);
  void Remember(const CallRecord& record);
  void Run();
  void Tick(absl::Time now);

  const ObserverOptions options_;
  const CallerOf caller_of_;
  const std::shared_ptr<spdlog::logger> log_;
  RequestIds ids_;
  CallMetrics metrics_;
  Repeats repeats_{10, absl::Seconds(10)};

  mutable absl::Mutex errors_mutex_;
  std::deque<CallError> errors_ ABSL_GUARDED_BY(errors_mutex_);

  // Of the thread.
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
