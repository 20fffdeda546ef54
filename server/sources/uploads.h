// Uploads: arrays that come in several parts, each a ReduceStream of its own.
#ifndef REDUCED_SERVER_SOURCES_UPLOADS_H_
#define REDUCED_SERVER_SOURCES_UPLOADS_H_

#include <cstddef>
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
#include "reduced/v1/reduced.pb.h"
#include "server/security/quotas.h"

namespace reduced::server {

inline constexpr int kMaxParts = 64;
inline constexpr std::size_t kMaxUploadId = 64;  // bytes that a client may choose; see UploadKey

// What an upload is known by here: nobody can join, or end, what isn't theirs, whatever id they choose.
std::string UploadKey(absl::string_view caller, absl::string_view upload);

// The uploads under way. A part joins, then finishes or fails. Nothing of an upload stays after the last part has
// finished or the first has failed, but that a part which comes too late for one that failed is told so. Thread-safe.
class Uploads {
 public:
  class Upload;

  // What became of an upload: the result of the whole array, or ABORTED, which part failed and why.
  using Over = absl::AnyInvocable<void(const absl::StatusOr<EngineResult>&) &&>;

  // Where a part is reduced, and what it belongs to.
  struct Joined {
    Placement place;
    std::shared_ptr<Upload> upload;
  };

  // A part begins, of the whole array that `spec` is about; CheckPart has found no fault with it. All parts of an
  // upload get the place that the first had, and are one request: `take` is called for the first, and what it took goes
  // back just before the upload is over. Once it has joined, `over` is called exactly once, within Finish or Fail of
  // any part. INVALID_ARGUMENT: it doesn't fit those that joined before, or the array. ABORTED: one of them failed. Or
  // what `take` says, which must not come back here.
  using TakeRequest = absl::FunctionRef<absl::StatusOr<Quotas::Lease>()>;
  absl::StatusOr<Joined> Join(const v1::StreamPart& part, const ReduceSpec& spec, Placement place, TakeRequest take,
                              Over over);

  // All of a part that joined has been reduced; its indexes count from the start of the array. The last one combines
  // them.
  void Finish(Upload& upload, int index, EngineResult result);

  // A part failed, whether or not it could join: so does its upload, unless it is over.
  void Fail(const v1::StreamPart& part, const absl::Status& why);

 private:
  absl::Status WhyFailed(const std::string& id) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Upload>> uploads_ ABSL_GUARDED_BY(mutex_);  // by id
  // The ids of the last that failed, and what their parts are told. Only so many: what is forgotten leaves a part that
  // comes late to its deadline.
  std::deque<std::pair<std::string, absl::Status>> failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_UPLOADS_H_
