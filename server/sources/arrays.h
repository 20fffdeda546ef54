// The arrays that clients keep in the memory of devices: found by an id that can't be guessed, gone when they are
// deleted or have not been used for their time to live. The memory of one goes with its last user.
#ifndef REDUCED_SERVER_SOURCES_ARRAYS_H_
#define REDUCED_SERVER_SOURCES_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "reduced/v1/reduced.pb.h"
#include "server/security/quotas.h"

namespace reduced::server {

// Of PutArrayHeader.owner.
inline constexpr std::size_t kMaxOwnerBytes = 64;

// Whose an array is of which a request says that it is `owner`'s: `caller`'s if that is an identity, which no request
// may deny: PERMISSION_DENIED.
absl::StatusOr<std::string> OwnerFor(absl::string_view owner, absl::string_view caller);

// One array, complete, that is to be kept.
struct KeptArray {
  v1::ArraySpec spec;  // valid
  DType dtype = DType::kF32;
  std::int64_t count = 0;  // elements
  std::int64_t bytes = 0;
  std::string device;
  std::string identity;  // of who put it; empty: nobody in particular
  std::string owner;     // the identity if there is one; else what its client says
  absl::Duration ttl;
  std::unique_ptr<ArrayMemory> memory;
  Quotas::Lease quota;  // of its bytes; goes with the memory
};

// An array belongs to the identity that put it, and nobody else can list, use or delete it. Those of callers without an
// identity are any such caller's to list and use, and to delete by its owner's name. `caller` below is an identity.
//
// Thread-safe. Outlives what Find() gives; the engines outlive it.
class ResidentArrays {
 public:
  using Deleted = absl::AnyInvocable<void(const absl::Status&) &&>;

  explicit ResidentArrays(int max_arrays);
  ~ResidentArrays();  // frees them
  ResidentArrays(const ResidentArrays&) = delete;
  ResidentArrays& operator=(const ResidentArrays&) = delete;

  // RESOURCE_EXHAUSTED: there are max_arrays already.
  absl::Status CheckRoom() const;
  // Keeps an array, under a new id. As CheckRoom; then its memory is freed.
  absl::StatusOr<v1::ArrayInfo> Add(KeptArray array);

  // The array, for a user of it: it stays as long as the pointer does, and doesn't expire. NOT_FOUND;
  // PERMISSION_DENIED: not the caller's.
  absl::StatusOr<std::shared_ptr<const KeptArray>> Find(absl::string_view id, absl::string_view caller);

  // Of those that are the caller's, `owner`'s, or all if that is empty, in the order they were added.
  std::vector<v1::ArrayInfo> List(absl::string_view owner, absl::string_view caller) const;

  // Everybody's, in the order they were added: for who runs the server, never for a caller.
  std::vector<v1::ArrayInfo> ListAll() const;

  // Forgets an array at once. Calls `done` exactly once: with OK when its last user is gone and its memory is free,
  // from the thread that saw to that, or before returning; with NOT_FOUND or, if it is another owner's or identity's,
  // PERMISSION_DENIED before returning. `done` must not block.
  void Delete(absl::string_view id, absl::string_view owner, Deleted done, absl::string_view caller);

  int count() const;

 private:
  struct Entry;

  std::vector<v1::ArrayInfo> ListWhere(absl::FunctionRef<bool(const KeptArray&)> wanted) const;
  absl::Status CheckRoomLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Leave(const std::shared_ptr<Entry>& entry);
  void Expire();
  std::vector<std::shared_ptr<Entry>> TakeExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int max_arrays_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> entries_ ABSL_GUARDED_BY(mutex_);  // by id
  std::uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time next_expiry_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // that the thread waits for
  absl::CondVar wake_;                                                       // when it should look again
  std::thread expiring_;                                                     // last: uses the rest
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_ARRAYS_H_
