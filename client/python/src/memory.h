// Memory that Python fills and servers on this machine read where it is: `reduced.empty`.
#ifndef REDUCED_CLIENT_PYTHON_SRC_MEMORY_H_
#define REDUCED_CLIENT_PYTHON_SRC_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/python/src/elements.h"
#include "client/python/src/fork.h"
#include "reduced/client.h"
#include "reduced/shared.h"

namespace reduced::python {

// One buffer, and its region at each client that has shared it. Thread-safe.
class Memory {
 public:
  explicit Memory(client::SharedBuffer buffer) : buffer_(std::move(buffer)) {}

  void* data() const { return buffer_.data(); }
  std::int64_t bytes() const { return buffer_.bytes(); }

  // The elements of the array, which lie in this memory, as the client's server reads them. Shares the memory the first
  // time. Errors: those of Client::Share.
  absl::StatusOr<client::RemoteArray> Share(client::Client& client, const HostArray& array);
  // Ends the region at this client, if there is one. Blocks for the server's answer.
  void Forget(const client::Client& client);

 private:
  const client::SharedBuffer buffer_;
  absl::Mutex mutex_;
  std::map<const client::Client*, Owned<client::Region>> regions_ ABSL_GUARDED_BY(mutex_);
};

// Memory for `bytes` bytes, which Find knows from now on. RESOURCE_EXHAUSTED: there is none.
absl::StatusOr<std::shared_ptr<Memory>> Allocate(std::int64_t bytes);

// The memory that holds all of these bytes. Null: they are in memory of others.
std::shared_ptr<Memory> Find(const void* data, std::int64_t bytes);

// Ends all regions at a client.
void ForgetAll(const client::Client& client);

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_MEMORY_H_
