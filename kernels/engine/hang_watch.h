// Watches a device while its engine starts: the thread that would ask Engine::Health() later is the one that may hang.
#ifndef REDUCED_KERNELS_ENGINE_HANG_WATCH_H_
#define REDUCED_KERNELS_ENGINE_HANG_WATCH_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace reduced {

// What to do about a device that hangs; called from a thread of its own. Nothing ends the wait but the process.
using OnHang = std::function<void(const absl::Status& why)>;

// From its construction to its destruction, on a thread of its own.
class HangWatch {
 public:
  // Asks `check` every kPeriod; calls `on_hang`, once, with what is not OK. `on_hang` may be null: then nothing is
  // asked.
  HangWatch(std::function<absl::Status()> check, OnHang on_hang) {
    if (on_hang == nullptr) return;
    thread_ = std::thread([this, check = std::move(check), on_hang = std::move(on_hang)] {
      while (!ended_.WaitForNotificationWithTimeout(kPeriod)) {
        if (const absl::Status why = check(); !why.ok()) return on_hang(why);
      }
    });
  }
  ~HangWatch() {
    ended_.Notify();
    if (thread_.joinable()) thread_.join();
  }
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(50);

  absl::Notification ended_;
  std::thread thread_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_HANG_WATCH_H_
