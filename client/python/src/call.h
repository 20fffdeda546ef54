// Calls from Python into the client library: without the GIL, interrupted by signals, their errors as exceptions.
#ifndef REDUCED_CLIENT_PYTHON_SRC_CALL_H_
#define REDUCED_CLIENT_PYTHON_SRC_CALL_H_

#include <nanobind/nanobind.h>

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/python/src/fork.h"
#include "reduced/types.h"

namespace reduced::python {

// Lets another thread end a call early. Thread-safe.
struct Interrupt {
  std::atomic<bool> set = false;
};

// Throws the exception of reduced._errors for a status that is not OK. Needs the GIL.
[[noreturn]] void Raise(const absl::Status& status);

// A call into the client library, without the GIL.
class Released {
  const nanobind::gil_scoped_release release_;
  const InCall call_;  // ends first: a fork that waits for it has the GIL
};

// Runs `call` without the GIL. `call` takes a client::Interrupted and returns a StatusOr, whose value this returns.
// Signals that arrive meanwhile are handled: if a handler raises (Ctrl-C), the call ends and this throws what it
// raised. `interrupt`: may be null.
template <class Call>
auto Run(const Interrupt* interrupt, Call call) {
  const client::Interrupted interrupted = [interrupt] {
    const OutOfCall pause;
    if (interrupt != nullptr && interrupt->set.load(std::memory_order_relaxed)) return true;
    const nanobind::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;  // on other threads than the main one: never
  };
  auto result = [&] {
    const Released released;
    return call(interrupted);
  }();
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_CALL_H_
