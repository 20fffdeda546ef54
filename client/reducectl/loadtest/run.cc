// A step, start to end:
//
//   1. RunStep takes all memory that the senders will need, starts their threads, and when all are there, the clock.
//   2. Each sender asks the Plan for its next turn. In a closed loop that is now; in an open loop it is the next
//      planned time that nobody has yet, which may have passed long ago if all senders were busy: the time since then
//      is part of the latency that counts (coordinated omission, as G. Tene calls it, is leaving it out).
//   3. A sender with one request under way at a time makes a blocking call, which the library serves on this very
//      thread. One with several makes them without waiting; callbacks take the time and hand the answer back to it.
//   4. What it measured goes into its own Tally, under a lock that nobody else wants but for a moment, when
//   5. RunStep, at the end of each window, takes the full Tally away and leaves an empty one.
//   6. At the end no sender gets another turn. What was due and not sent is counted as unsent; what is under way is
//      waited for, and counts.
#include "client/reducectl/loadtest/run.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/reducectl/loadtest/sender.h"

namespace reduced::client {
namespace {

constexpr Ns kMs = 1'000'000;
constexpr Ns kStartMargin = 5 * kMs;  // in which all threads wake up: the first request isn't to be late
constexpr Ns kProgressPeriod = 250 * kMs;
constexpr Ns kCountWindow = 500 * kMs;  // if the end isn't known beforehand
constexpr int kWindows = 10;            // if it is
constexpr int kDefaultThreads = 64;

// What this process has taken of the machine.
struct Spent {
  Ns cpu = 0;
  Ns waited = 0;  // for a processor, all threads together; 0 where the kernel doesn't say

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
      Ns ran = 0, waited = 0;
      if (file >> ran >> waited) spent.waited += waited;
    }
    return spent;
  }
};

int Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Runs the senders, and takes what they measure: this thread's part.
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
      const absl::Status status = senders_[static_cast<std::size_t>(i % threads)].AddSlot(work_, i);
      if (!status.ok()) return status;
    }
    std::vector<std::jthread> running;
    running.reserve(senders_.size());
    for (Sender& sender : senders_) {
      running.emplace_back([this, &sender] {
        AwaitStart();
        sender.Run();
        const absl::MutexLock lock(&mutex_);
        ++finished_;
        mutex_.Await(absl::Condition(&released_));  // what it spent is read while it is there
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

  // Until all senders have finished, or a time.
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
      // What comes after the end belongs to no window; the last may be cut short.
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
    if (const double sum = result_.tally.corrected.SumNs(); sum > 0) {
      result_.wait_share = std::max(0.0, static_cast<double>(after.waited - before.waited) / sum);
    }
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
  Tally piece_;   // on its way
  Tally window_;  // that isn't closed
  Tally lately_;  // since progress was shown
  Ns shown_at_ = 0;

  absl::Mutex mutex_;
  std::size_t ready_ ABSL_GUARDED_BY(mutex_) = 0;  // wait for the start
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<StepResult> RunStep(Work& work, const StepOptions& options) {
  return std::make_unique<Step>(work, options)->Run();
}

}  // namespace reduced::client
