#include "server/lifetime.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace reduced {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(250);  // of the engines' health
// Of the 5 seconds: for what runs on other engines to finish, and for all of the end.
constexpr absl::Duration kFailureDrain = absl::Seconds(2);
constexpr absl::Duration kFailureEnd = absl::Seconds(4);

// Nothing is destroyed: what belongs to a device that has failed may never return.
[[noreturn]] void EndFailed(Server& server, const absl::Status& why, absl::Duration drain_timeout) {
  spdlog::critical("a device failed, the process ends: {}", std::string(why.message()));
  std::thread([] {
    absl::SleepFor(kFailureEnd);
    _exit(kDeviceFailed);
  }).detach();
  server.Shutdown(std::min(drain_timeout, kFailureDrain));
  spdlog::default_logger()->flush();
  _exit(kDeviceFailed);
}

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
    if (!health.ok()) EndFailed(server, health, drain_timeout);
  }
  spdlog::info("{}: serving for another {}, then draining for at most {}", strsignal(signal),
               absl::FormatDuration(drain_delay), absl::FormatDuration(drain_timeout));
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);  // a second signal ends the process at once
  server.Withdraw();
  const absl::Time until = absl::Now() + drain_delay;
  for (absl::Duration left = drain_delay; left > absl::ZeroDuration(); left = until - absl::Now()) {
    absl::SleepFor(std::min(left, kPoll));
    const absl::Status health = server.CheckEngines();
    if (!health.ok()) EndFailed(server, health, drain_timeout);
  }
  server.Shutdown(drain_timeout);
  return EXIT_SUCCESS;
}

}  // namespace reduced
