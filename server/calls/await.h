// Waiting for callbacks, on threads that may block.
#ifndef REDUCED_SERVER_CALLS_AWAIT_H_
#define REDUCED_SERVER_CALLS_AWAIT_H_

#include <utility>

#include "absl/synchronization/notification.h"

namespace reduced::server {

// Calls start(callback) and waits until the callback is called, once, with a T.
template <class T, class Start>
T Await(Start start) {
  T result{};
  absl::Notification done;
  start([&](T value) {
    result = std::move(value);
    done.Notify();
  });
  done.WaitForNotification();
  return result;
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_AWAIT_H_
