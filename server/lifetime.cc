#include "server/lifetime.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/heap_trim.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(250);  // of the engines' health
// After a device failure: for requests on other engines, and for the whole end, of which at most 5 seconds are
// promised.
constexpr absl::Duration kFailureDrain = absl::Seconds(2);
constexpr absl::Duration kFailureEnd = absl::Seconds(4);
// After drain_timeout: for cancelled requests to end, and for the clean-up.
constexpr absl::Duration kStopEnd = absl::Seconds(5);

sigset_t AndHangup(sigset_t signals) {
  sigaddset(&signals, SIGHUP);
  return signals;
}

// Ends the process after `limit`, even if it hangs; first logs `why` unless it is empty.
void EndAfter(absl::Duration limit, int code, std::string why) {
  std::thread([limit, code, why = std::move(why)] {
    absl::SleepFor(limit);
    if (!why.empty()) {
      spdlog::critical("{}", why);
      spdlog::default_logger()->flush();
    }
    _exit(code);
  }).detach();
}

// Logs that a device failed, and lets the process end soon, even if it hangs.
void BeginFailedEnd(absl::string_view why) {
  spdlog::critical("a device failed, the process ends: {}", std::string(why));
  EndAfter(kFailureEnd, kDeviceFailed, "");
}

// Ends the process without destructors: those of a failed device may never return.
[[noreturn]] void EndFailed() {
  spdlog::default_logger()->flush();
  _exit(kDeviceFailed);
}

// While the main thread stops the server, a second thread checks the engines, and nothing else of the server, and waits
// for a second signal. The signals stay blocked: the first process of a container does not receive signals that it
// neither blocks nor handles. It must not outlive the engines.
class StopWatch {
 public:
  StopWatch(const Engines& engines, const sigset_t& stop) : thread_([this, &engines, stop] { Run(engines, stop); }) {}
  ~StopWatch() { End(); }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  // Notified when a device failed; the process then ends soon.
  const absl::Notification& failed() const { return failed_; }
  void End() {
    if (!thread_.joinable()) return;
    ended_.Notify();
    pthread_kill(thread_.native_handle(), SIGINT);  // wakes it
    thread_.join();
  }

 private:
  void Run(const Engines& engines, const sigset_t& stop) {
    const timespec pause = absl::ToTimespec(kPoll);
    for (;;) {
      const int signal = sigtimedwait(&stop, nullptr, &pause);
      if (ended_.HasBeenNotified()) return;
      if (signal > 0) {
        spdlog::warn("second signal, {}: the process ends at once", strsignal(signal));
        spdlog::default_logger()->flush();
        _exit(128 + signal);
      }
      if (failed_.HasBeenNotified()) continue;
      for (const auto& engine : engines.all()) {
        const absl::Status health = engine->Health();
        if (health.ok()) continue;
        BeginFailedEnd(absl::StrCat(engine->info().name, ": ", health.message()));
        failed_.Notify();
        break;
      }
    }
  }

  absl::Notification failed_;
  absl::Notification ended_;
  std::thread thread_;  // last: uses the rest
};

}  // namespace

sigset_t BlockStopSignals() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  const sigset_t all = AndHangup(stop);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  return stop;
}

void EndHung(const absl::Status& why) {
  spdlog::critical("a device failed while the server started, the process ends: {}", std::string(why.message()));
  EndFailed();
}

int ServeUntilStopped(Server& server, const sigset_t& stop, absl::Duration drain_delay, absl::Duration drain_timeout) {
  const timespec pause = absl::ToTimespec(kPoll);
  HeapTrim heap;
  int signal = -1;
  const sigset_t awaited = AndHangup(stop);
  while ((signal = sigtimedwait(&awaited, nullptr, &pause)) < 0 || signal == SIGHUP) {
    if (signal == SIGHUP) {
      spdlog::info("{}: certificates and tokens are read again", strsignal(signal));
      server.Reload();
    }
    server.CheckListeners();
    const absl::Status health = server.CheckEngines();
    if (health.ok()) {
      heap.Trim(absl::Now(), server.IsIdle());
      continue;
    }
    BeginFailedEnd(health.message());
    server.Shutdown(std::min(drain_timeout, kFailureDrain));
    EndFailed();
  }
  const std::string delay = drain_delay > absl::ZeroDuration()
                                ? absl::StrCat("serving for ", absl::FormatDuration(drain_delay), " more, then ")
                                : "";
  spdlog::info("{}: {}draining for up to {}", strsignal(signal), delay, absl::FormatDuration(drain_timeout));
  server.Withdraw();
  StopWatch watch(server.engines(), stop);
  const bool failed = watch.failed().WaitForNotificationWithTimeout(drain_delay);
  const absl::Duration timeout = failed ? std::min(drain_timeout, kFailureDrain) : drain_timeout;
  EndAfter(timeout + kStopEnd, EXIT_FAILURE, "cancelled requests have not ended: the process ends anyway");
  server.Shutdown(timeout);
  watch.End();
  if (watch.failed().HasBeenNotified()) EndFailed();
  return EXIT_SUCCESS;
}

}  // namespace reduced::server
