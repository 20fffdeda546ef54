// An engine that holds what it is given until a test lets go of it: makes "a reduction is running" and "the queue is
// full" a matter of calls, not of timing.
#ifndef REDUCED_TESTS_SERVICE_HELD_ENGINE_H_
#define REDUCED_TESTS_SERVICE_HELD_ENGINE_H_

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/engine.h"
#include "tests/service/test_server.h"

namespace reduced {

// Thread-safe. What it lets go is reduced by CpuEngine().
class HeldEngine final : public Engine {
 public:
  explicit HeldEngine(int limit) : limit_(limit) {}
  ~HeldEngine() override { Release(); }

  EngineKind kind() const override { return EngineKind::kCpu; }
  DeviceInfo info() const override {
    DeviceInfo device = CpuEngine().info();
    device.lanes = 1;
    device.queue_limit = limit_;
    return device;
  }
  Calibration calibration() const override { return {/*fixed_us=*/1000, /*host_gb_per_s=*/1}; }

  void Reduce(Job job, Done done) override {
    bool released = false;
    {
      const absl::MutexLock lock(&mutex_);
      released = released_;
      if (!released && static_cast<int>(held_.size()) < limit_) {
        held_.emplace_back(std::move(job), std::move(done));
        return;
      }
    }
    if (released) return CpuEngine().Reduce(std::move(job), std::move(done));
    std::move(done)(absl::ResourceExhaustedError("the queue is full"));
  }

  // Waits until `count` are held: false after the timeout.
  bool AwaitHeld(int count, absl::Duration timeout) {
    const absl::MutexLock lock(&mutex_);
    const auto there = [this, count]()
                           ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return static_cast<int>(held_.size()) >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), timeout);
  }

  // The flag that says whether the first one held is still wanted.
  CancelFlag cancelled() {
    const absl::MutexLock lock(&mutex_);
    return held_.at(0).first.cancelled;
  }

  // Reduces everything that is held, and from now on what comes.
  void Release() {
    std::vector<std::pair<Job, Done>> held;
    {
      const absl::MutexLock lock(&mutex_);
      released_ = true;
      held.swap(held_);
    }
    for (auto& [job, done] : held) CpuEngine().Reduce(std::move(job), std::move(done));
  }

 private:
  const int limit_;
  absl::Mutex mutex_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<Job, Done>> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reduced

#endif  // REDUCED_TESTS_SERVICE_HELD_ENGINE_H_
