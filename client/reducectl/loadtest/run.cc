// The flow of a step:
//
//   1. RunStep allocates all memory of the senders, starts their threads and, when all of them run, the clock.
//   2. Each sender asks the Plan for its next turn. In a closed loop that is now. In an open loop it is the next
//   planned
//      time that no sender has taken, which may be long past if all senders were busy. The time since then is part of
//      the latency: leaving it out is what G. Tene calls coordinated omission.
//   3. A sender with one request in flight makes a blocking call, which the library handles on the same thread. A
//   sender
//      with several uses callbacks, which take the time and hand the reply back to the sender.
//   4. The sender records the measurement in its own Tally, under a lock that is hardly ever contended.
//   5. At the end of each window RunStep takes the Tally and leaves an empty one.
//   6. After the end no sender gets a turn. Requests that were due but not sent are counted as unsent. RunStep waits
//   for
//      the requests in flight, which count.
#include "client/reducectl/loadtest/run.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/reducectl/loadtest/sender.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr Ns kMs = 1'000'000;
constexpr Ns kStartMargin = 5 * kMs;  // for all threads to wake up, so that the first request isn't late
constexpr Ns kProgressPeriod = 250 * kMs;
constexpr Ns kCountWindow = 500 * kMs;  // if the end isn't known in advance
constexpr int kWindows = 10;            // if it is
constexpr int kDefaultThreads = 64;

// The processor time of this process.
struct Spent {
  Ns cpu = 0;
  std::map<std::string, Ns> threads{};  // by task id; empty if the kernel doesn't report it

  static Spent Now() {
    Spent spent;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      spent.cpu += Ns{time.tv_sec} * 1'000'000'000 + Ns{time.tv_usec} * 1'000;
    }
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
      std::ifstream file(task.path() / "schedstat");
      Ns ran = 0;
      if (file >> ran) spent.threads[task.path().filename()] = ran;
    }
    return spent;
  }

  // How long the busiest thread has run since `before`.
  Ns BusiestSince(const Spent& before) const {
    Ns most = 0;
    for (const auto& [task, ran] : threads) {
      const auto earlier = before.threads.find(task);
      most = std::max(most, ran - (earlier == before.threads.end() ? 0 : earlier->second));
    }
    return most;
  }
};

int Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Runs the senders and collects what they measure, on this thread.
class Step {
 public:
  Step(Work& work, const StepOptions& options)
      : work_(work), options_(options), plan_(options), window_ns_(WindowNs(options)) {}

  absl::StatusOr<StepResult> Run() {
    result_.concurrency = options_.concurrency;
    result_.rate = options_.rate;
    const int wanted = options_.threads > 0 ? options_.threads : kDefaultThreads;
    const int threads = std::min(wanted, options_.concurrency);
    for (int i = 0; i < threads; ++i) senders_.emplace_back(work_, plan_, options_);
    for (int i = 0; i < options_.concurrency; ++i) {
      RETURN_IF_ERROR(senders_[static_cast<std::size_t>(i % threads)].AddSlot(work_, i));
    }
    std::vector<std::jthread> running;
    running.reserve(senders_.size());
    for (Sender& sender : senders_) {
      running.emplace_back([this, &sender] {
        AwaitStart();
        sender.Run();
        const absl::MutexLock lock(&mutex_);
        ++finished_;
        mutex_.Await(absl::Condition(&released_));  // its times can be read as long as it exists
      });
    }
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Step::AllReady));
      plan_.Start(NowNs() + kStartMargin);
      started_ = true;
    }
    Watch();
    return std::move(result_);
  }

 private:
  static Ns WindowNs(const StepOptions& options) {
    if (options.count > 0) return kCountWindow;
    return std::max<Ns>(absl::ToInt64Nanoseconds(options.duration) / kWindows, kMs);
  }

  void AwaitStart() {
    const absl::MutexLock lock(&mutex_);
    ++ready_;
    mutex_.Await(absl::Condition(&started_));
  }

  bool AllReady() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ready_ == senders_.size(); }
  bool AllFinished() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return finished_ == senders_.size(); }

  // Waits until all senders have finished (returns true) or `until`.
  bool FinishedBy(Ns until) {
    const absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(this, &Step::AllFinished), absl::Nanoseconds(until - NowNs()));
  }

  void Watch() {
    Spent before = Spent::Now();
    bool measuring = false;
    const bool shows = options_.on_progress != nullptr;
    Ns window_from = plan_.measure_from();
    Ns next_progress = NowNs() + kProgressPeriod;
    for (bool finished = false; !finished;) {
      const Ns boundary = measuring ? window_from + window_ns_ : plan_.measure_from();
      const Ns until = std::min({boundary, shows ? next_progress : kNever, NowNs() + kPatience});
      finished = FinishedBy(until);
      const Ns now = NowNs();
      if (options_.interrupt != nullptr && *options_.interrupt && !result_.interrupted) {
        result_.interrupted = true;
        plan_.EndNow();
      }
      if (!measuring && now >= plan_.measure_from()) {
        measuring = true;
        before = Spent::Now();
      }
      if (shows && now >= next_progress && !finished) {
        next_progress = now + kProgressPeriod;
        ShowProgress(now);
      }
      // Requests after the end belong to no window. The last window may be shorter.
      const Ns window_end = std::min(now, plan_.end());
      const bool full = window_end >= window_from + window_ns_;
      if (measuring && (full || (finished && window_end - window_from > window_ns_ / 2))) {
        CloseWindow(static_cast<double>(window_end - window_from) / 1e9);
        window_from = full && window_end < plan_.end() ? window_end : kNever / 2;
      }
    }
    Collect();
    result_.tally.Merge(window_);
    const Ns end = plan_.end() == kNever ? NowNs() : plan_.end();
    result_.seconds = std::max(0.0, static_cast<double>(end - plan_.measure_from()) / 1e9);
    const Spent after = Spent::Now();
    const auto wall = static_cast<double>(std::max<Ns>(NowNs() - plan_.measure_from(), 1));
    result_.cpu_share = static_cast<double>(after.cpu - before.cpu) / wall / Processors();
    result_.thread_share = static_cast<double>(after.BusiestSince(before)) / wall;
    const absl::MutexLock lock(&mutex_);
    released_ = true;
  }

  void Collect() {
    for (Sender& sender : senders_) sender.Take(&piece_);
    window_.Merge(piece_);
    if (options_.on_progress != nullptr) lately_.Merge(piece_);
    piece_.Clear();
  }

  void CloseWindow(double seconds) {
    Collect();
    result_.windows.push_back({seconds, window_.answered, window_.corrected.PercentileNs(50) / 1e3,
                               window_.corrected.PercentileNs(99) / 1e3});
    result_.tally.Merge(window_);
    window_.Clear();
  }

  void ShowProgress(Ns now) {
    Collect();
    const auto seconds = static_cast<double>(now - std::max(shown_at_, plan_.measure_from())) / 1e9;
    shown_at_ = now;
    options_.on_progress({seconds > 0 ? static_cast<double>(lately_.answered) / seconds : 0,
                          lately_.corrected.PercentileNs(50) / 1e3, lately_.corrected.PercentileNs(99) / 1e3,
                          result_.tally.failed() + window_.failed(), absl::Nanoseconds(now - plan_.measure_from())});
    lately_.Clear();
  }

  Work& work_;
  const StepOptions& options_;
  Plan plan_;
  const Ns window_ns_;
  std::deque<Sender> senders_;
  StepResult result_;
  Tally piece_;   // scratch
  Tally window_;  // the current window
  Tally lately_;  // since the last progress
  Ns shown_at_ = 0;

  absl::Mutex mutex_;
  std::size_t ready_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that wait for the start
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<StepResult> RunStep(Work& work, const StepOptions& options) {
  return std::make_unique<Step>(work, options)->Run();
}

}  // namespace reduced::client
