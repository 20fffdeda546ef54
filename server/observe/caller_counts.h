// Counts of calls and bytes by caller, for a limited number of callers.
#ifndef REDUCED_SERVER_OBSERVE_CALLER_COUNTS_H_
#define REDUCED_SERVER_OBSERVE_CALLER_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/security/identity.h"

namespace reduced::server {

// Each of the first kMost callers has a place of its own; a new one takes that of a caller that was idle for kIdle, or
// is counted with all others that have none. So a count never falls while its caller has its place, and that of the
// others never does. Thread-safe; adding takes no lock, but for a caller without a place.
class CallerCounts {
 public:
  static constexpr std::size_t kMost = 128;
  static constexpr int kIdle = 600;  // ticks

  enum Count : std::uint8_t { kCalls, kFailures, kUnauthenticated, kBytes };
  static constexpr std::size_t kCounts = 4;
  using Counts = std::array<std::uint64_t, kCounts>;

  // A call of a caller with an account.
  void AddCall(const Caller& caller, bool ok, std::int64_t bytes);
  // One that was refused for its token. Caller(): nobody knows whose.
  void AddUnauthenticated(const Caller& caller);

  // To be called once a second.
  void Tick();

  struct Row {
    std::string_view kind{};  // "identity", "peer" or "other"
    std::string name{};       // printable; of all others together: "other"
    Counts counts{};
  };
  std::vector<Row> Read() const;  // the others last, even if there are none

 private:
  struct alignas(64) Place {
    std::array<std::atomic<std::uint64_t>, kCounts> counts{};
  };
  struct Tenant {
    bool identified = false;
    std::string name{};
    std::uint64_t seen = 0;  // the sum of its counts at the last tick
    int idle = 0;            // ticks
  };

  Place& PlaceOf(const Caller& caller);
  Place* Find(std::uint64_t key);
  Place* Settle(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::array<std::atomic<std::uint64_t>, kMost> keys_{};  // Caller::key of each place's tenant; 0: none
  std::array<Place, kMost + 1> places_;                   // the last one is the others'
  std::atomic<bool> full_ = false;                        // until the next tick
  mutable absl::Mutex mutex_;
  std::array<Tenant, kMost> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_CALLER_COUNTS_H_
