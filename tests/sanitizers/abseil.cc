// Tells ThreadSanitizer what absl::Mutex, CondVar and Notification put in order. The distribution's Abseil isn't
// instrumented, so that without this nearly every use of a mutex is reported as a race. A ThreadSanitizer build links
// this into every program: the functions here take the place of the shared library's, also for the libraries that use
// it, and call those.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/base/options.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace {

// The shared library's function whose mangled name is `prefix`, Abseil's namespace and `rest`; R is what it returns,
// the arguments are those of the member function, after `this`.
template <class R, class... Args>
class Original {
 public:
  Original(const char* prefix, const char* rest) {
#define REDUCED_STRING(x) #x
#define REDUCED_EXPANDED_STRING(x) REDUCED_STRING(x)
    const std::string space = REDUCED_EXPANDED_STRING(ABSL_OPTION_INLINE_NAMESPACE_NAME);
    const std::string symbol = std::string(prefix) + "4absl" + std::to_string(space.size()) + space + rest;
    void* const address = dlsym(RTLD_NEXT, symbol.c_str());
    if (address == nullptr) {
      std::fprintf(stderr, "tests/sanitizers/abseil.cc: no symbol %s, so not the Abseil it knows\n", symbol.c_str());
      std::abort();
    }
    std::memcpy(&function_, &address, sizeof(function_));
  }
  R operator()(const void* self, Args... args) const { return function_(self, args...); }

 private:
  R (*function_)(const void*, Args...);
};

void Acquire(const void* address) { __tsan_acquire(const_cast<void*>(address)); }
void Release(const void* address) { __tsan_release(const_cast<void*>(address)); }

// The mutex that this thread is letting go of or waiting for. Meanwhile Abseil, holding the mutex, evaluates
// conditions: the thread's own and those of others that wait.
thread_local const void* current = nullptr;

// Around a call that lets go of a mutex, or takes it, or first the one and then the other.
class Letting {
 public:
  explicit Letting(const void* mutex) : outer_(current) {
    Release(mutex);
    current = mutex;
  }
  ~Letting() { current = outer_; }
  Letting(const Letting&) = delete;
  Letting& operator=(const Letting&) = delete;

 private:
  const void* const outer_;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

using synchronization_internal::KernelTimeout;

void Mutex::Lock() {
  static const Original<void> original("_ZN", "5Mutex4LockEv");
  original(this);
  Acquire(this);
}

void Mutex::Unlock() {
  static const Original<void> original("_ZN", "5Mutex6UnlockEv");
  const Letting letting(this);
  original(this);
}

bool Mutex::TryLock() {
  static const Original<bool> original("_ZN", "5Mutex7TryLockEv");
  const bool locked = original(this);
  if (locked) Acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  static const Original<void> original("_ZN", "5Mutex10ReaderLockEv");
  original(this);
  Acquire(this);
}

void Mutex::ReaderUnlock() {
  static const Original<void> original("_ZN", "5Mutex12ReaderUnlockEv");
  const Letting letting(this);
  original(this);
}

bool Mutex::ReaderTryLock() {
  static const Original<bool> original("_ZN", "5Mutex13ReaderTryLockEv");
  const bool locked = original(this);
  if (locked) Acquire(this);
  return locked;
}

// What every Await goes through.
bool Mutex::AwaitCommon(const Condition& condition, KernelTimeout timeout) {
  static const Original<bool, const Condition&, KernelTimeout> original(
      "_ZN", "5Mutex11AwaitCommonERKNS0_9ConditionENS0_24synchronization_internal13KernelTimeoutE");
  const Letting letting(this);
  const bool holds = original(this, condition, timeout);
  Acquire(this);
  return holds;
}

// What every LockWhen goes through, and every Lock that has to wait.
bool Mutex::LockSlowWithDeadline(MuHow how, const Condition* condition, KernelTimeout timeout, int flags) {
  static const Original<bool, MuHow, const Condition*, KernelTimeout, int> original(
      "_ZN",
      "5Mutex20LockSlowWithDeadlineEPKNS0_6MuHowSEPKNS0_9ConditionENS0_24synchronization_internal13KernelTimeoutEi");
  const Letting letting(this);
  const bool holds = original(this, how, condition, timeout, flags);
  Acquire(this);
  return holds;
}

bool Condition::Eval() const {
  static const Original<bool> original("_ZNK", "9Condition4EvalEv");
  if (current != nullptr) Acquire(current);
  const bool holds = original(this);
  if (current != nullptr) Release(current);
  return holds;
}

// What every wait for a CondVar goes through.
bool CondVar::WaitCommon(Mutex* mutex, KernelTimeout timeout) {
  static const Original<bool, Mutex*, KernelTimeout> original(
      "_ZN", "7CondVar10WaitCommonEPNS0_5MutexENS0_24synchronization_internal13KernelTimeoutE");
  const Letting letting(mutex);
  const bool timed_out = original(this, mutex, timeout);
  Acquire(mutex);
  return timed_out;
}

void Notification::Notify() {
  static const Original<void> original("_ZN", "12Notification6NotifyEv");
  Release(this);
  original(this);
}

void Notification::WaitForNotification() const {
  static const Original<void> original("_ZNK", "12Notification19WaitForNotificationEv");
  original(this);
  Acquire(this);
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const Original<bool, Duration> original("_ZNK",
                                                 "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool notified = original(this, timeout);
  if (notified) Acquire(this);
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  static const Original<bool, Time> original("_ZNK", "12Notification31WaitForNotificationWithDeadlineENS0_4TimeE");
  const bool notified = original(this, deadline);
  if (notified) Acquire(this);
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
