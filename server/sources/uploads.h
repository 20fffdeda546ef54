// Uploads: arrays that arrive in several parts, each in its own ReduceStream.
#ifndef REDUCED_SERVER_SOURCES_UPLOADS_H_
#define REDUCED_SERVER_SOURCES_UPLOADS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"
#include "server/security/quotas.h"

namespace reduced::server {

inline constexpr int kMaxParts = 64;
inline constexpr std::size_t kMaxUploadId = 64;  // bytes

// One part: `count` elements from `first` on, the part `index` of `parts` in array order.
struct UploadPart {
  std::string upload{};  // the id that the client chose, or its UploadKey
  int parts = 0;
  int index = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Whether a client may choose this id.
inline bool IsUploadId(absl::string_view upload) { return !upload.empty() && upload.size() <= kMaxUploadId; }

// INVALID_ARGUMENT: errors that show without the array and the other parts; Uploads::Join finds the others.
absl::Status CheckPart(const UploadPart& part);

// The key of an upload in the registry. Callers with different identities have different keys, so that no caller can
// join or fail the upload of another.
std::string UploadKey(absl::string_view caller, absl::string_view upload);

// The uploads in progress. A part joins, then finishes or fails. An upload is removed when its last part has finished
// or any part has failed; ids of failed uploads are remembered, for parts that arrive later. Thread-safe.
class Uploads {
 public:
  class Upload;

  // Receives the outcome of an upload: the result of the whole array, or ABORTED with the part that failed and why.
  using Over = absl::AnyInvocable<void(const absl::StatusOr<Answer>&) &&>;

  // The upload of a part, and where its parts are reduced.
  struct Joined {
    Placement place;
    std::shared_ptr<Upload> upload;
  };

  // Adds a part that CheckPart accepted, whose `upload` is an UploadKey, to its upload. `spec`: about the whole array.
  // All parts are reduced at the place of the first, and are one request: `take` is called for the first part, and its
  // lease is returned just before the upload is over. After a part has joined, its `over` is called exactly once,
  // within Finish or Fail of any part. INVALID_ARGUMENT: the part does not fit the array or the parts before. ABORTED:
  // another part failed. Or the error of `take`, which must not call this registry.
  using TakeRequest = absl::FunctionRef<absl::StatusOr<Quotas::Lease>()>;
  absl::StatusOr<Joined> Join(const UploadPart& part, const ReduceSpec& spec, Placement place, TakeRequest take,
                              Over over);

  // Adds the result of a part that joined; its indexes count from the start of the array. The last part combines the
  // results.
  void Finish(Upload& upload, int index, Answer result);

  // Whether every part has joined, or the upload is over.
  bool HaveAllJoined(const Upload& upload) const;

  // Fails every upload that lacks parts, and each part of another one that comes later, with UNAVAILABLE.
  void Drain();

  // Fails the upload of a part, whether or not the part has joined, unless the upload is over.
  void Fail(const UploadPart& part, const absl::Status& why);

 private:
  absl::Status WhyFailed(const std::string& id) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, std::shared_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mutex_);  // by id
  // The ids of the last uploads that failed, and the error for their late parts. A late part of an older upload waits
  // for --progress_timeout.
  std::deque<std::pair<std::string, absl::Status>> failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_UPLOADS_H_
