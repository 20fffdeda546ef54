// What a process must know of being a fork of another: threads, connections and sessions are the parent's.
#ifndef REDUCED_CLIENT_PYTHON_SRC_FORK_H_
#define REDUCED_CLIENT_PYTHON_SRC_FORK_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace reduced::python {

// How many forks there are between the process that loaded this module and this one.
int ForkGeneration();

// Lets processes fork after the first call: both use gRPC, each its own threads and connections. Must be called before
// gRPC is used; later calls do nothing.
void PrepareGrpcForForks();

// FAILED_PRECONDITION: this process is a fork that was made while another thread was in a call, and waited for that in
// vain. gRPC does not work in it.
absl::Status CheckGrpcWorks();

// A call into the client library by this thread, without the GIL. A fork waits for a second until there is none; calls
// that begin meanwhile wait for the fork.
class InCall {
 public:
  InCall();
  ~InCall();
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
};

// A pause of such a call, in which the thread uses neither gRPC nor what forks may not find locked.
class OutOfCall {
 public:
  OutOfCall();
  ~OutOfCall();
  OutOfCall(const OutOfCall&) = delete;
  OutOfCall& operator=(const OutOfCall&) = delete;
};

// Deletes in the process that made the object only: in a fork of it the object is left alone, because its threads and
// connections are the parent's.
template <class T>
class DeleteInOwner {
 public:
  void operator()(T* object) const {
    if (!forked()) delete object;
  }
  bool forked() const { return generation_ != ForkGeneration(); }

 private:
  int generation_ = ForkGeneration();
};

template <class T>
using Owned = std::unique_ptr<T, DeleteInOwner<T>>;

template <class T>
Owned<T> MakeOwned(T object) {
  return Owned<T>(new T(std::move(object)));
}

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_FORK_H_
