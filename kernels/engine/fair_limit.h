// A limit on what all callers hold together, of which no caller can take what others need: a caller may have a certain
// share of what the others leave. With a share of 3/4 a caller alone may have 3/4 of all, and two callers that take as
// much as they can get have 3/7 each. Whoever comes next finds a part that is free.
//
// Switches share the memory of their queues like this: dynamic thresholds (Choudhury and Hahne, 1998).
#ifndef REDUCED_KERNELS_ENGINE_FAIR_LIMIT_H_
#define REDUCED_KERNELS_ENGINE_FAIR_LIMIT_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace reduced {

// Thread-safe, without a lock. Callers are numbers, such as hashes of their names; those that are equal modulo kBins
// count as one. No share applies to caller 0.
class FairLimit {
 public:
  enum class Outcome : std::uint8_t { kTaken, kFull, kOverShare };

  // limit >= 0; 0 < share <= 1.
  explicit FairLimit(std::int64_t limit, double share = 1) : limit_(limit), share_(share) {}
  FairLimit(const FairLimit&) = delete;
  FairLimit& operator=(const FairLimit&) = delete;

  // Takes `amount` >= 0 until Give() gets it back. kFull: it does not fit beside what is taken. kOverShare: the caller
  // would have more than ShareOf(). Then nothing is taken.
  Outcome Take(std::uint64_t caller, std::int64_t amount) {
    // What the caller takes at the same time on other threads counts as well: it comes first.
    const std::int64_t before = BinOf(caller).fetch_add(amount, std::memory_order_relaxed);
    std::int64_t taken = taken_.load(std::memory_order_relaxed);
    Outcome outcome = Outcome::kTaken;
    do {
      if (amount > limit_ - taken) {
        outcome = Outcome::kFull;
      } else if (caller != 0 && amount > Share(taken - before) - before) {
        outcome = Outcome::kOverShare;
      }
      if (outcome != Outcome::kTaken) {
        BinOf(caller).fetch_sub(amount, std::memory_order_relaxed);
        return outcome;
      }
    } while (!taken_.compare_exchange_weak(taken, taken + amount, std::memory_order_relaxed));
    return outcome;
  }
  void Give(std::uint64_t caller, std::int64_t amount) {
    taken_.fetch_sub(amount, std::memory_order_relaxed);
    BinOf(caller).fetch_sub(amount, std::memory_order_relaxed);
  }

  std::int64_t limit() const { return limit_; }
  std::int64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  std::int64_t TakenBy(std::uint64_t caller) const { return BinOf(caller).load(std::memory_order_relaxed); }
  // What the caller may have while others have what they have, rounded up: at least 1 if anything is left.
  std::int64_t ShareOf(std::uint64_t caller) const { return Share(taken() - TakenBy(caller)); }

 private:
  static constexpr std::size_t kBins = 4096;

  std::atomic<std::int64_t>& BinOf(std::uint64_t caller) { return by_caller_[caller % kBins]; }
  const std::atomic<std::int64_t>& BinOf(std::uint64_t caller) const { return by_caller_[caller % kBins]; }

  std::int64_t Share(std::int64_t of_others) const {
    const std::int64_t left = std::clamp<std::int64_t>(limit_ - std::max<std::int64_t>(of_others, 0), 0, limit_);
    return share_ >= 1 ? left : static_cast<std::int64_t>(std::ceil(share_ * static_cast<double>(left)));
  }

  const std::int64_t limit_;
  const double share_;
  std::atomic<std::int64_t> taken_ = 0;
  std::array<std::atomic<std::int64_t>, kBins> by_caller_{};
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_FAIR_LIMIT_H_
