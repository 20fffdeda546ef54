// The watchdog ends calls whose clients make no progress, so that what they hold returns to others.
//
//   1. A call has a Watch until OnDone. Await() says what the call waits for from its client, and starts the clock;
//      Wait::kNothing stops it: the server works, or flow control holds the client back.
//   2. One thread checks all watches several times per shortest limit. A call beyond its limit is told once, with
//      DEADLINE_EXCEEDED and a message that names the flag: it ends itself.
//   3. A client that does not read does not receive a status either: the watchdog then cancels the call in gRPC, which
//      resets its stream. While its caller holds more memory than its share, because others came since, the first such
//      calls end much earlier: after a tenth of the limit, one each time that the watches are checked.
#ifndef REDUCED_SERVER_CALLS_WATCHDOG_H_
#define REDUCED_SERVER_CALLS_WATCHDOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "kernels/engine/memory_budget.h"
#include "server/config/options.h"

namespace reduced::server {

// What a call waits for from its client. Each has a limit in Timeouts, except kNothing.
enum class Wait : std::uint8_t {
  kNothing,
  kHeader,    // the first message of a stream or upload
  kMessage,   // the next one
  kParts,     // the other parts of an upload
  kRequest,   // the next request of a session that has none in progress
  kResponse,  // that the client reads a response
};

class Watch;

// The status of a session that ends since the server drains.
absl::Status SessionDrained();

// Thread-safe. It must outlive its watches.
class Watchdog {
 public:
  // `memory`: of responses, which the clients have not read; set before the first watch.
  Watchdog(const Timeouts& timeouts, const std::shared_ptr<MemoryBudget>& memory);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on sessions that wait for a request are told, with UNAVAILABLE: the first ones at once.
  void Drain();

 private:
  friend class Watch;
  using Clock = std::chrono::steady_clock;

  void Run();
  void EndStalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the call, if its deadline is not after `before`: the present time or, of a response, a later one.
  void Tell(Watch& watch, Clock::rep now, Clock::rep before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool EndsForDrain(const Watch& watch) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Timeouts timeouts_;
  const std::shared_ptr<MemoryBudget>& memory_;
  absl::Mutex mutex_;
  absl::flat_hash_set<Watch*> watches_ ABSL_GUARDED_BY(mutex_);
  Watch* told_ ABSL_GUARDED_BY(mutex_) = nullptr;  // whose callback runs; null: none
  absl::CondVar untold_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::CondVar wake_;
  std::thread thread_;  // last: uses the rest
};

// The watch over one call, which owns it.
class Watch {
 public:
  using Stalled = absl::AnyInvocable<void(const absl::Status&)>;

  // `context`: of the call. `stalled`: called on the watchdog's thread, which it must not block, after each wait beyond
  // its limit; what the call waited for may have come by then. May be null.
  Watch(Watchdog& watchdog, grpc::CallbackServerContext* context, Stalled stalled = nullptr);
  ~Watch() { Stop(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Sets what the call waits for from now on. `caller`: who pays for a response, for Wait::kResponse. Thread-safe;
  // takes no lock.
  void Await(Wait wait, std::uint64_t caller = 0);

  // How long the call has waited for its client so far, in us: the time of a slow client, not of the server.
  // Thread-safe.
  double waited_us() const;

  // Why the call was ended; OK: it was not. Thread-safe.
  absl::Status why() const;

  // Ends the watch: `stalled` does not run any more, and the context is not used. Call it in OnDone, which gRPC calls
  // on threads of its own, or let the destructor.
  void Stop();

 private:
  friend class Watchdog;

  Watchdog& watchdog_;
  grpc::CallbackServerContext* const context_;
  Stalled stalled_;
  std::atomic<Wait> wait_ = Wait::kNothing;
  std::atomic<std::uint64_t> caller_ = 0;
  std::atomic<Watchdog::Clock::rep> deadline_;    // since the clock's epoch
  std::atomic<Watchdog::Clock::rep> since_ = 0;   // when wait_ was set, if it is a wait
  std::atomic<Watchdog::Clock::rep> waited_ = 0;  // in waits that are over
  absl::Status why_;                              // guarded by the mutex of the watchdog
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_WATCHDOG_H_
