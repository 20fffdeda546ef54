// Tells callers whose jobs have waited too long for a while from those with a burst that is being worked off.
//
// The measure of CoDel (RFC 8289): a queue is behind once everything that has left it for an interval had waited longer
// than a target. Here each caller has a queue, as in a FairQueue. It stays behind until everything for an interval has
// waited less than half of the target: under load what is admitted waits about as long as the target, and a lull is no
// sign of the end of the load.
#ifndef REDUCED_KERNELS_ENGINE_STANDING_DELAY_H_
#define REDUCED_KERNELS_ENGINE_STANDING_DELAY_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "absl/time/time.h"

namespace reduced {

// Remembers only callers whose jobs wait too long, or did a while ago. Not thread-safe.
class StandingDelay {
 public:
  static constexpr absl::Duration kInterval = absl::Milliseconds(100);

  explicit StandingDelay(absl::Duration target) : target_(target) {}

  // That a job of the caller has left the queue for a lane.
  void Left(std::uint64_t caller, absl::Duration waited, absl::Time now) {
    const auto found = states_.find(caller);
    if (found == states_.end()) {
      if (waited > target_) states_[caller] = {.since = now};
      return;
    }
    const bool is_long = found->second.behind ? waited >= target_ / 2 : waited > target_;
    if (Update(found->second, is_long, now)) states_.erase(found);
  }
  bool IsBehind(std::uint64_t caller) const {
    const auto found = states_.find(caller);
    return found != states_.end() && found->second.behind;
  }
  // Callers that `waits` is false for have nothing in the queue: their jobs would not wait now.
  template <class Waits>
  void Look(Waits waits, absl::Time now) {
    for (auto each = states_.begin(); each != states_.end();) {
      const bool over = !waits(each->first) && Update(each->second, false, now);
      each = over ? states_.erase(each) : std::next(each);
    }
  }

  // How long another job of the caller may be predicted to wait: as long as the target, and twice as long in a burst.
  absl::Duration Allowed(std::uint64_t caller) const { return IsBehind(caller) ? target_ : 2 * target_; }
  absl::Duration target() const { return target_; }

 private:
  struct State {
    bool behind = false;
    absl::Time since{};  // of what would change that: long waits, or short ones; infinite: the last wait was not such
  };

  // Whether the state can be forgotten.
  static bool Update(State& state, bool is_long, absl::Time now) {
    if (is_long == state.behind) {
      state.since = absl::InfiniteFuture();
      return !state.behind;
    }
    state.since = std::min(state.since, now);
    if (now - state.since < kInterval) return false;
    state = {.behind = is_long, .since = absl::InfiniteFuture()};
    return !is_long;
  }

  const absl::Duration target_;
  std::map<std::uint64_t, State> states_;  // by caller
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_STANDING_DELAY_H_
