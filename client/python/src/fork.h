// What a process must know of being a fork of another: threads and connections are the parent's.
#ifndef REDUCED_CLIENT_PYTHON_SRC_FORK_H_
#define REDUCED_CLIENT_PYTHON_SRC_FORK_H_

#include <pthread.h>

#include <atomic>
#include <memory>
#include <utility>

namespace reduced::python {

// How many forks there are between the process that loaded this module and this one.
inline int ForkGeneration() {
  static std::atomic<int> generation = 0;
  [[maybe_unused]] static const int counted =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  return generation.load(std::memory_order_relaxed);
}

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
