// What a Session is made of: one Session call, its own completion queue, and what is under way. The flow of a request
// is written down in session.cc.
#ifndef REDUCED_CLIENT_LIB_SESSION_H_
#define REDUCED_CLIENT_LIB_SESSION_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {

// Thread-safe.
class SessionState : public std::enable_shared_from_this<SessionState> {
 public:
  // `max_message_bytes`: that the server takes. `token`: null: none.
  static std::shared_ptr<SessionState> Open(std::shared_ptr<v1::Reduction::Stub> stub, std::string server, Token* token,
                                            absl::Duration timeout, absl::Duration close_timeout,
                                            std::int64_t max_message_bytes);
  ~SessionState();

  // The message that asks; without an id.
  absl::StatusOr<v1::SessionRequest> Ask(const ArrayView& array, const std::vector<std::string>& ops,
                                         const ReduceOptions& options) const;
  absl::StatusOr<v1::SessionRequest> Ask(const RemoteArray& array, const std::vector<std::string>& ops,
                                         const ReduceOptions& options) const;

  // Sends it, or passes its error on.
  absl::StatusOr<Reply> Reduce(absl::StatusOr<v1::SessionRequest> message, const ReduceOptions& options);
  Call ReduceAsync(absl::StatusOr<v1::SessionRequest> message, const ReduceOptions& options, Client::Done done);
  // Ends one request, if it is under way.
  void Cancel(std::uint64_t id);
  // Once, as the last: ends the call and the thread.
  void Close();

 private:
  struct Request;
  struct Cancellable;
  enum class Tag : std::uintptr_t { kWritten, kRead, kFinished, kWoken };

  SessionState(std::shared_ptr<v1::Reduction::Stub> stub, std::string server, Token* token, absl::Duration timeout,
               absl::Duration close_timeout, std::int64_t max_message_bytes);

  absl::Status Add(v1::SessionRequest message, const std::shared_ptr<Request>& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Complete(const std::shared_ptr<Request>& request, absl::StatusOr<Reply> reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw(const std::shared_ptr<Request>& request, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LateError(const Request& request) const;
  void WithdrawLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool Drive(absl::Time until, absl::FunctionRef<bool()> over, absl::CondVar* wake)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump(absl::Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(Tag tag, bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeAnswer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  static void* ToVoid(Tag tag) { return reinterpret_cast<void*>(tag); }

  const std::shared_ptr<v1::Reduction::Stub> stub_;
  const std::string server_;
  const absl::Duration timeout_;
  const absl::Duration close_timeout_;
  const std::int64_t max_message_bytes_;

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  grpc::Alarm alarm_;                  // wakes who pumps
  v1::SessionResponse incoming_;       // of who pumps
  grpc::Status finished_with_;         // likewise
  std::optional<std::thread> worker_;  // of the callbacks, once there is one to call

  absl::Mutex mutex_;
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<Request>> under_way_ ABSL_GUARDED_BY(mutex_);  // by id
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int asynchronous_ ABSL_GUARDED_BY(mutex_) = 0;  // of those under way
  // Of the asynchronous ones, none is late before.
  absl::Time next_late_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::deque<v1::SessionRequest> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // at first, the start of the call
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // why it is over

  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time pumping_until_ ABSL_GUARDED_BY(mutex_);
  bool waking_ ABSL_GUARDED_BY(mutex_) = false;                        // the alarm is on its way
  std::vector<absl::CondVar*> followers_ ABSL_GUARDED_BY(mutex_);      // wait while another thread pumps
  std::deque<std::shared_ptr<Request>> done_ ABSL_GUARDED_BY(mutex_);  // their callbacks wait for the worker
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;                      // the worker
  absl::CondVar work_;                                                 // for the worker
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_SESSION_H_
