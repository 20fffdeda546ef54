// gRPC has handlers for forks, which stop its threads before one and start others in both processes. They do so only if
// no thread is in a call of gRPC, and otherwise leave a child that hangs. They leave the parent's connections open in
// the child, where its timers and what was queued go on with them.
#include "client/python/src/fork.h"

#include <grpc/fork.h>
#include <grpcpp/grpcpp.h>
#include <nanobind/nanobind.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "client/lib/call_watch.h"

namespace reduced::python {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kLook = std::chrono::microseconds(100);  // between two looks at the calls

// Locks would not do: a thread that holds one is not there in the child.
std::atomic<int> generation = 0;
std::atomic<int> calls = 0;  // threads in calls
std::atomic<bool> forking = false;
std::atomic<bool> quiet = true;  // no thread was in a call at the last fork
std::atomic<bool> works = true;  // gRPC, in this process

void Enter() {
  for (;;) {
    calls.fetch_add(1);
    if (!forking) return;
    calls.fetch_sub(1);
    forking.wait(true);
  }
}

void Leave() { calls.fetch_sub(1); }

void BeforeFork() {
  forking = true;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (calls > 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kLook);
  quiet = calls == 0 && works;
  if (quiet) grpc_prefork();
}

void End() {
  forking = false;
  forking.notify_all();
}

void InParent() {
  if (quiet) grpc_postfork_parent();
  End();
}

void InChild() {
  works = quiet.load();
  if (quiet) {
    client::DisconnectFork();
    grpc_postfork_child();
  }
  calls = 0;
  End();
}

// A variable of the environment that has another value while this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name); before != nullptr) before_ = before;
    setenv(name, value, 1);
  }
  ~Variable() { before_.has_value() ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace

int ForkGeneration() {
  [[maybe_unused]] static const int counted = pthread_atfork(nullptr, nullptr, [] {
    generation.fetch_add(1);
    nanobind::set_leak_warnings(false);  // what other threads of the parent had is never released here
  });
  return generation;
}

void PrepareGrpcForForks() {
  [[maybe_unused]] static const int prepared = [] {
    // gRPC reads both when it starts, and with the first of its channels: its threads live as long as there is one.
    // After a fork gRPC 1.51 resets the epoll set of its event engine only, and parent and child get each other's
    // events of the other one; with poll() they share none.
    const Variable support("GRPC_ENABLE_FORK_SUPPORT", "1"), strategy("GRPC_POLL_STRATEGY", "poll");
    new auto(grpc::CreateChannel("unix:/dev/null", grpc::InsecureChannelCredentials()));  // never deleted
    return pthread_atfork(BeforeFork, InParent, InChild);
  }();
}

absl::Status CheckGrpcWorks() {
  if (works) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "fork: got a process that was forked while another thread was in a call for a second; allowed: forks between "
      "calls, or the start method spawn or forkserver");
}

InCall::InCall() { Enter(); }
InCall::~InCall() { Leave(); }
OutOfCall::OutOfCall() { Leave(); }
OutOfCall::~OutOfCall() { Enter(); }

}  // namespace reduced::python
