// The threads that serve the rings. Each ring belongs to one of them.
//
//   1. A ring is awake or asleep. In each round the thread looks at all that are awake, and serves those that have
//      submissions, a few of each. Those that have used least of its time come first, and a round is short: what has
//      not had its turn by then is served in the next round, before those that had theirs. So a ring with little to do
//      waits some milliseconds, whatever the others do.
//   2. A ring in which nothing was found for as long as its Patience says goes to sleep: it tells its client, who then
//      writes to the ring's doorbell, an eventfd, with the next submission.
//   3. Between rounds the thread looks at the doorbells. While every ring is asleep, it sleeps, too, in epoll_wait. A
//      doorbell wakes it, and its ring.
#ifndef REDUCED_SERVER_CALLS_POLLER_H_
#define REDUCED_SERVER_CALLS_POLLER_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/ring/wait.h"

namespace reduced::server {

// A ring, as the poller sees it. The poller's thread calls these.
class PolledRing {
 public:
  virtual ~PolledRing() = default;
  virtual int doorbell() const = 0;
  // Whether there is a submission.
  virtual bool HasWork() const = 0;
  // Handles one submission, if there is one.
  virtual void Serve() = 0;
  // Tells the client that it has to ring. False: there is a submission already, and the ring stays awake.
  virtual bool Doze() = 0;
  virtual void WakeUp() = 0;
  virtual ring::Patience& patience() = 0;
  // The poller doesn't use the ring any more.
  virtual void LetGo() = 0;
};

// Thread-safe.
class Poller {
 public:
  Poller() = default;
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Serves a ring until Remove. The first one starts the thread. RESOURCE_EXHAUSTED: there is no descriptor for that.
  absl::Status Add(std::shared_ptr<PolledRing> ring);
  // Once for each ring that was added. The thread then lets go of it.
  void Remove(PolledRing* ring);

  int count() const { return count_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Polled {
    std::shared_ptr<PolledRing> ring;
    bool awake = false;
    bool busy = false;  // it had a submission when it was last looked at
    // The processor time that it has used, at least the least of those that had submissions in the round before, so
    // that nobody saves time up, and not much more, so that nobody pays later for what no other ring wanted.
    Clock::duration used{};
    Clock::time_point last_served{};
    Clock::time_point idle_since{};  // if it is awake: when it was last served or woken
  };

  absl::Status Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  bool TakeNews();
  bool ServeRound();
  void FindWork();
  void TakeTurn(Polled& polled, Clock::duration most);
  Clock::duration TakeTimeAway();
  void AwaitDoorbells(int timeout_ms);
  void WakeUp(Polled& polled);

  std::atomic<int> count_ = 0;
  int epoll_ = -1;
  int wake_ = -1;  // an eventfd: there are news

  // Used by the thread only.
  absl::node_hash_map<PolledRing*, Polled> rings_;
  std::vector<Polled*> awake_;
  std::vector<Polled*> ready_;    // in this round: those that have submissions
  Clock::time_point now_{};       // when the clock was last read
  Clock::time_point looked_{};    // at the doorbells
  Clock::time_point ran_at_{};    // when the thread's processor time was last read
  Clock::duration ran_{};         // and that time
  Clock::duration least_used_{};  // the least Polled::used of those in ready_

  std::atomic<bool> news_ = false;
  absl::Mutex mutex_;
  std::vector<std::shared_ptr<PolledRing>> added_ ABSL_GUARDED_BY(mutex_);
  std::vector<PolledRing*> removed_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

// All pollers of a server: CountFor the processors that the process may use. A thread starts with its first ring.
// Thread-safe.
class Pollers {
 public:
  // `gpu_lanes`: of all GPUs together.
  explicit Pollers(int gpu_lanes = 0);
  // One for every four processors, and at most as many as GPUs have lanes, but 4 at least and 16 at most.
  static int CountFor(int processors, int gpu_lanes);

  // For a new ring: the one with the fewest.
  Poller& Next();
  // Of the rings.
  int count() const;

 private:
  std::vector<std::unique_ptr<Poller>> pollers_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_POLLER_H_
