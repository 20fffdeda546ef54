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
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(250);  // of the engines' health
// Of the 5 seconds: for what runs on other engines to finish, and for all of the end.
constexpr absl::Duration kFailureDrain = absl::Seconds(2);
constexpr absl::Duration kFailureEnd = absl::Seconds(4);
// After drain_timeout: for what is cancelled to end, and for all to be let go of.
constexpr absl::Duration kStopEnd = absl::Seconds(5);

// Ends the process after `limit`, whatever hangs in it; first says `why`, if there is something to say.
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

// What a failed device makes of the process: it ends soon, whatever hangs. Said before.
void BeginFailedEnd(absl::string_view why) {
  spdlog::critical("a device failed, the process ends: {}", std::string(why));
  EndAfter(kFailureEnd, kDeviceFailed, "");
}

// Nothing is destroyed: what belongs to a device that has failed may never return.
[[noreturn]] void EndFailed() {
  spdlog::default_logger()->flush();
  _exit(kDeviceFailed);
}

// Looks at the engines, and at nothing else of the server, while its thread stops it, and waits for a second signal:
// they stay blocked, since to the first process of a container one that is neither blocked nor handled doesn't exist.
// Must not outlive the engines.
class StopWatch {
 public:
  StopWatch(const Engines& engines, const sigset_t& stop) : thread_([this, &engines, stop] { Run(engines, stop); }) {}
  ~StopWatch() { End(); }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  // Of a device; the process ends soon.
  const absl::Notification& failed() const { return failed_; }
  void End() {
    if (!thread_.joinable()) return;
    ended_.Notify();
    pthread_kill(thread_.native_handle(), SIGINT);  // one of what it waits for
    thread_.join();
  }

 private:
  void Run(const Engines& engines, const sigset_t& stop) {
    const timespec pause = absl::ToTimespec(kPoll);
    for (;;) {
      const int signal = sigtimedwait(&stop, nullptr, &pause);
      if (ended_.HasBeenNotified()) return;
      if (signal > 0) {
        spdlog::warn("{} again: the process ends at once", strsignal(signal));
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
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  return stop;
}

int ServeUntilStopped(Server& server, const sigset_t& stop, absl::Duration drain_delay, absl::Duration drain_timeout) {
  const timespec pause = absl::ToTimespec(kPoll);
  int signal = -1;
  while ((signal = sigtimedwait(&stop, nullptr, &pause)) < 0) {
    const absl::Status health = server.CheckEngines();
    if (health.ok()) continue;
    BeginFailedEnd(health.message());
    server.Shutdown(std::min(drain_timeout, kFailureDrain));
    EndFailed();
  }
  spdlog::info("{}: serving for another {}, then draining for at most {}", strsignal(signal),
               absl::FormatDuration(drain_delay), absl::FormatDuration(drain_timeout));
  server.Withdraw();
  StopWatch watch(server.engines(), stop);
  const bool failed = watch.failed().WaitForNotificationWithTimeout(drain_delay);
  const absl::Duration timeout = failed ? std::min(drain_timeout, kFailureDrain) : drain_timeout;
  EndAfter(timeout + kStopEnd, EXIT_FAILURE, "what was cancelled has not ended: the process ends all the same");
  server.Shutdown(timeout);
  watch.End();
  if (watch.failed().HasBeenNotified()) EndFailed();
  return EXIT_SUCCESS;
}

}  // namespace reduced::server
