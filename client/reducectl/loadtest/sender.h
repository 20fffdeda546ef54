// The threads of a load test that send requests, and the plan that they share. run.cc describes the flow.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_SENDER_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_SENDER_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/reducectl/loadtest/result.h"
#include "client/reducectl/loadtest/run.h"
#include "client/reducectl/loadtest/schedule.h"
#include "client/reducectl/loadtest/work.h"

namespace reduced::client {

using Ns = std::int64_t;  // on a steady clock
inline constexpr Ns kNever = std::numeric_limits<Ns>::max();
inline constexpr Ns kPatience = 50'000'000;  // how often a waiting thread checks whether the step has ended

Ns NowNs();

struct Turn {
  std::uint64_t index = 0;
  Ns due = 0;
  bool measured = false;  // after the warm-up
};

// Hands out the turns. Thread-safe.
class Plan {
 public:
  explicit Plan(const StepOptions& options)
      : open_(options.rate > 0),
        warmup_(absl::ToInt64Nanoseconds(options.warmup)),
        duration_(absl::ToInt64Nanoseconds(options.duration)),
        counted_(options.count > 0),
        left_(options.count),
        arrivals_(options.arrivals, open_ ? options.rate : 1, options.seed) {}

  // Must be called first.
  void Start(Ns at) {
    start_ = at;
    measure_from_ = at + warmup_;
    if (!counted_) end_ = measure_from_ + duration_;
  }

  bool open() const { return open_; }
  Ns measure_from() const { return measure_from_; }
  Ns end() const { return end_.load(std::memory_order_relaxed); }
  void EndNow() { end_.store(std::min(end(), NowNs()), std::memory_order_relaxed); }

  // Returns false after the last turn.
  bool Next(Turn* turn) {
    turn->index = next_.fetch_add(1, std::memory_order_relaxed);
    turn->due = open_ ? NextArrival() : NowNs();
    turn->measured = turn->due >= measure_from_;
    if (turn->due >= end()) return false;
    return !counted_ || !turn->measured || left_.fetch_sub(1, std::memory_order_relaxed) > 0;
  }

 private:
  Ns NextArrival() {
    const absl::MutexLock lock(&mutex_);
    return start_ + arrivals_.Next();
  }

  const bool open_;
  const Ns warmup_, duration_;
  const bool counted_;
  Ns start_ = 0, measure_from_ = 0;
  std::atomic<Ns> end_ = kNever;
  std::atomic<std::int64_t> left_;
  std::atomic<std::uint64_t> next_ = 0;
  absl::Mutex mutex_;
  Arrivals arrivals_ ABSL_GUARDED_BY(mutex_);
};

// A request in flight.
struct Slot {
  std::unique_ptr<Caller> caller;
  Turn turn;
  std::size_t item = 0;
  Ns begun = 0, sent = 0, answered = 0;
  std::optional<absl::StatusOr<Reply>> reply;
};

// One thread's requests.
class Sender {
 public:
  Sender(const Work& work, Plan& plan, const StepOptions& options)
      : work_(work), plan_(plan), include_fill_(work.options().include_fill), verify_(options.verify) {}

  // Allows one more request in flight. Must be called before Run.
  absl::Status AddSlot(Work& work, std::size_t number);
  // Returns after the last turn, when all requests have been answered.
  void Run();
  // Adds what was measured since the last call to `into`. Called while Run runs, by one thread at a time.
  void Take(Tally* into);

 private:
  void RunOne(Slot& slot);
  void RunMany();
  bool Begin(Slot& slot, bool slept);
  void Count(Slot& slot);
  void CountStages(const Slot& slot, const Timing& timing, Tally* tally) const;

  const Work& work_;
  Plan& plan_;
  const bool include_fill_;
  const double verify_;
  double verify_due_ = 1;  // a result is verified when this reaches 1
  std::deque<Slot> slots_;

  absl::Mutex tally_mutex_;
  std::unique_ptr<Tally> tally_ ABSL_GUARDED_BY(tally_mutex_) = std::make_unique<Tally>();
  std::unique_ptr<Tally> spare_ = std::make_unique<Tally>();  // for Take

  absl::Mutex answers_mutex_;
  absl::CondVar some_answered_;
  std::vector<Slot*> answers_ ABSL_GUARDED_BY(answers_mutex_);
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_SENDER_H_
