// An engine that holds what it is given until a test lets go of it: makes "a reduction is running" and "the queue is
// full" a matter of calls, not of timing.
#ifndef REDUCED_TESTS_SERVICE_HELD_ENGINE_H_
#define REDUCED_TESTS_SERVICE_HELD_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/engine/engine.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {

// Thread-safe. What it lets go is done by CpuEngine().
class HeldEngine final : public SharedEngine {
 public:
  explicit HeldEngine(int limit) : limit_(limit) {}
  ~HeldEngine() override { Release(); }

  DeviceInfo info() const override {
    DeviceInfo device = CpuEngine().info();
    device.lanes = 1;
    device.queue_limit = limit_;
    return device;
  }
  Calibration calibration() const override { return {/*fixed_us=*/1000, /*host_gb_per_s=*/1}; }

  void Reduce(Job job, Done done) override {
    Take(std::move(job), std::move(done),
         [](Job given, Done answer) { CpuEngine().Reduce(std::move(given), std::move(answer)); });
  }
  void Measure(Job job, int repeats, Measured done) override {
    Take(std::move(job), std::move(done),
         [repeats](Job given, Measured answer) { CpuEngine().Measure(std::move(given), repeats, std::move(answer)); });
  }

  // Waits until `count` are held: false after the timeout.
  bool AwaitHeld(int count, absl::Duration timeout) {
    const absl::MutexLock lock(&mutex_);
    const auto there = [this, count]()
                           ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return static_cast<int>(held_.size()) >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), timeout);
  }
  int held() {
    const absl::MutexLock lock(&mutex_);
    return static_cast<int>(held_.size());
  }

  // The flag that says whether one that is held, in the order they came, is still wanted.
  CancelFlag cancelled(std::size_t which = 0) {
    const absl::MutexLock lock(&mutex_);
    return held_.at(which).cancelled;
  }

  // Does one that is held, in the order they came.
  void ReleaseOne(std::size_t which) {
    absl::AnyInvocable<void() &&> go;
    {
      const absl::MutexLock lock(&mutex_);
      go = std::move(held_.at(which).go);
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    std::move(go)();
  }
  void ReleaseFirst() { ReleaseOne(0); }

  // Does everything that is held, and from now on what comes.
  void Release() {
    std::deque<Held> held;
    {
      const absl::MutexLock lock(&mutex_);
      released_ = true;
      held.swap(held_);
    }
    for (Held& each : held) std::move(each.go)();
  }

 private:
  struct Held {
    CancelFlag cancelled;
    absl::AnyInvocable<void() &&> go;
  };

  // Holds go(job, done), calls it if everything is released, or refuses.
  template <class Ended, class Go>
  void Take(Job job, Ended done, Go go) {
    bool released = false;
    {
      const absl::MutexLock lock(&mutex_);
      released = released_;
      if (!released && static_cast<int>(held_.size()) < limit_) {
        CancelFlag cancelled = job.cancelled;
        held_.push_back({std::move(cancelled), [job = std::move(job), done = std::move(done), go]() mutable {
                           go(std::move(job), std::move(done));
                         }});
        return;
      }
    }
    if (released) return go(std::move(job), std::move(done));
    std::move(done)(absl::ResourceExhaustedError("the queue is full"));
  }

  const int limit_;
  absl::Mutex mutex_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Held> held_ ABSL_GUARDED_BY(mutex_);
};

// A server whose only engine holds what it gets.
class HeldServer {
 public:
  explicit HeldServer(int limit, const ServerOptions& options = {}) {
    auto engine = std::make_unique<HeldEngine>(limit);
    engine_ = engine.get();
    server_ = std::make_unique<TestServer>(options, OnlyEngine(std::move(engine)));
  }
  ~HeldServer() { engine_->Release(); }  // the server waits for what runs
  HeldEngine& engine() { return *engine_; }
  TestServer& operator*() { return *server_; }
  TestServer* operator->() { return server_.get(); }

 private:
  HeldEngine* engine_ = nullptr;  // the server's
  std::unique_ptr<TestServer> server_;
};

// Waits for a flag that only gRPC's threads set: false after kPatience.
inline bool AwaitTrue(const std::atomic<bool>& flag) {
  return Becomes(kPatience, [&flag] { return flag.load(); });
}

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_HELD_ENGINE_H_
