// Waiting for the other side of a ring: spinning as long as it is likely to pay, then sleeping.
#ifndef REDUCED_PROTO_RING_WAIT_H_
#define REDUCED_PROTO_RING_WAIT_H_

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>

namespace reduced::ring {

// One wait that spins. What is waited for may need this very processor: after a moment it is offered.
class Spin {
 public:
  void Pause() {
    if (++turns_ > kTurns && turns_ % kTurnsOfYield == 0) {
      sched_yield();
      return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  static constexpr int kTurns = 50;         // 1 to 2 us
  static constexpr int kTurnsOfYield = 16;  // a yield takes as long as some of them, and notices as late
  int turns_ = 0;
};

// Sleeps while the word is `value`, at most for `timeout`. Returns early at times.
inline void FutexWait(std::uint32_t& word, std::uint32_t value, std::chrono::nanoseconds timeout) {
  const timespec at_most{static_cast<time_t>(timeout.count() / 1'000'000'000), timeout.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &at_most, nullptr, 0);
}

// Wakes everybody who sleeps on the word, in whatever process.
inline void FutexWake(std::uint32_t& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

// How many processors this process may use.
inline int Processors() {
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof(usable), &usable) == 0 ? CPU_COUNT(&usable) : 1;
}

// How long to spin before the next sleep: kMost if what is waited for took less than that on average, else only so long
// that it shows when it becomes faster. Not thread-safe.
class Patience {
 public:
  static constexpr std::chrono::nanoseconds kMost = std::chrono::microseconds(50);
  static constexpr std::chrono::nanoseconds kLeast = std::chrono::microseconds(5);

  // `spins`: false where nobody else can do anything meanwhile, as on one processor.
  explicit Patience(bool spins = Processors() > 1) : spins_(spins) {}

  std::chrono::nanoseconds now() const {
    if (!spins_) return std::chrono::nanoseconds::zero();
    return average_ <= kMost ? kMost : kLeast;
  }
  // Of a wait for somebody who sleeps, too: waking up takes about as long as it would spin.
  std::chrono::nanoseconds with_wake() const { return spins_ ? now() + kMost : now(); }
  // What was waited for has taken this long.
  void Took(std::chrono::nanoseconds time) { average_ += (std::min(time, 4 * kMost) - average_) / 8; }

 private:
  bool spins_;
  std::chrono::nanoseconds average_ = kMost / 2;
};

}  // namespace reduced::ring

#endif  // REDUCED_PROTO_RING_WAIT_H_
