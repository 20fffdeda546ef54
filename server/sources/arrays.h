// Resident arrays: arrays that clients store in the memory of devices, under ids that nobody can guess. An array
// expires when it was unused for its time to live, or is deleted; its memory is freed when its last user is done.
#ifndef REDUCED_SERVER_SOURCES_ARRAYS_H_
#define REDUCED_SERVER_SOURCES_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/engine/engine.h"
#include "server/security/quotas.h"
#include "server/sources/sharded_array.h"

namespace reduced::server {

struct ResidentArray {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;  // elements
  std::int64_t bytes = 0;
  std::string device;    // kAllGpus, if the array is sharded
  std::string identity;  // of the caller that stored it; empty: anonymous
  std::string owner;     // the identity, or what an anonymous caller named
  absl::Duration ttl;
  std::unique_ptr<ArrayMemory> memory;
  const ShardedArray* sharded = nullptr;  // `memory`, if it is one
  Quotas::Lease quota;                    // of the array and its bytes; returned with the memory
};

// What its owner sees of a shard: see ArrayShard.
struct ShardDescription {
  std::string device;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t count = 0;
};

// A resident array as its owner sees it.
struct ArrayDescription {
  std::string id;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
  std::string device;
  std::string owner;
  absl::Duration age;
  absl::Duration expires_in;             // its time to live while it is in use
  int users = 0;                         // reductions that read it now
  std::uint64_t serial = 0;              // ascending in the order in which arrays were stored
  std::vector<ShardDescription> shards;  // none: the array is not sharded
};

// An array belongs to the identity that stored it, and no other caller can list, use or delete it. All anonymous
// callers can list and use each other's arrays, and delete them by the owner's name. `caller` below is an identity.
//
// Thread-safe. It must outlive the pointers that Find() returns, and the engines must outlive it.
class ResidentArrays {
 public:
  using Deleted = absl::AnyInvocable<void(const absl::Status&) &&>;

  explicit ResidentArrays(int max_arrays);
  ~ResidentArrays();  // frees the arrays
  ResidentArrays(const ResidentArrays&) = delete;
  ResidentArrays& operator=(const ResidentArrays&) = delete;

  // RESOURCE_EXHAUSTED: there are max_arrays arrays.
  absl::Status CheckRoom() const;
  // Stores an array under a new id. RESOURCE_EXHAUSTED as CheckRoom; then the memory of `array` is freed.
  absl::StatusOr<ArrayDescription> Add(ResidentArray array);

  // The array, for a user of it: it does not expire while the pointer exists. NOT_FOUND: no array has the id.
  // PERMISSION_DENIED: it is not the caller's.
  absl::StatusOr<std::shared_ptr<const ResidentArray>> Find(absl::string_view id, absl::string_view caller);

  // The same, and what its owner sees of it.
  absl::StatusOr<std::shared_ptr<const ResidentArray>> Find(absl::string_view id, absl::string_view caller,
                                                            ArrayDescription* description);

  // The caller's arrays that `owner` owns, or all of the caller's if `owner` is empty, oldest first: at most `limit`,
  // from the serial `first` on.
  std::vector<ArrayDescription> List(absl::string_view owner, absl::string_view caller, std::uint64_t first = 0,
                                     std::size_t limit = std::numeric_limits<std::size_t>::max()) const;

  // The arrays of all callers, oldest first: for the operator of the server, never for a caller.
  std::vector<ArrayDescription> ListAll() const;

  // Deletes an array: its id is invalid from now on. Calls `done` exactly once: with OK when the last user is done and
  // the memory is free, from that user's thread or before returning; with NOT_FOUND or, for an array of another owner
  // or identity, PERMISSION_DENIED, before returning. `done` must not block.
  void Delete(absl::string_view id, absl::string_view owner, Deleted done, absl::string_view caller);

  int count() const;

 private:
  struct Entry;

  std::vector<ArrayDescription> ListWhere(absl::FunctionRef<bool(const Entry&)> wanted, std::size_t limit) const;
  absl::Status CheckRoomLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Leave(const std::shared_ptr<Entry>& entry);
  void Expire();
  std::vector<std::shared_ptr<Entry>> TakeExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int max_arrays_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> entries_ ABSL_GUARDED_BY(mutex_);  // by id
  std::uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time next_expiry_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // the thread waits for it
  absl::CondVar wake_;                                                       // the thread should recompute it
  std::thread expiring_;                                                     // last: uses the rest
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_ARRAYS_H_
