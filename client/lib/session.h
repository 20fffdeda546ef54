// The implementation of Session: one Session call, its own completion queue, and the requests in flight. session.cc
// describes the flow of a request.
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
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {

// Thread-safe.
class SessionState : public std::enable_shared_from_this<SessionState> {
 public:
  // `max_message_bytes` and `idle_timeout`: the limits of the server; an idle_timeout of 0: none. `token`: may be null.
  static std::shared_ptr<SessionState> Open(std::shared_ptr<v1::Reduction::Stub> stub, std::string server,
                                            std::shared_ptr<const Peers> peers, std::shared_ptr<Token> token,
                                            absl::Duration timeout, absl::Duration close_timeout,
                                            std::int64_t max_message_bytes, absl::Duration idle_timeout);
  ~SessionState();

  // The message of a request, without an id.
  absl::StatusOr<v1::SessionRequest> Ask(const ArrayView& array, const std::vector<std::string>& ops,
                                         const ReduceOptions& options) const;
  absl::StatusOr<v1::SessionRequest> Ask(const RemoteArray& array, const std::vector<std::string>& ops,
                                         const ReduceOptions& options) const;

  // Send the message. If `message` is an error, that is the outcome.
  absl::StatusOr<Reply> Reduce(absl::StatusOr<v1::SessionRequest> message, const ReduceOptions& options);
  Call ReduceAsync(absl::StatusOr<v1::SessionRequest> message, const ReduceOptions& options, Client::Done done);
  // Ends one request, if it is in flight.
  void Cancel(std::uint64_t id);

  // Opens the ring of the call, which has none. Opens a new call first if the call was idle for too long.
  absl::StatusOr<v1::Ring> OpenRing(std::int64_t arena_bytes, absl::Time deadline);
  // The session was used at that time, without a message.
  void Touch(absl::Time used);
  // Touch(), and whether the next message opens a new call.
  bool IdleSince(absl::Time used);
  // Whether the call goes on, as far as this process knows by now. Doesn't wait.
  bool IsOpen();
  // Waits until the call has ended, and returns why; OK: it has not until the deadline.
  absl::Status AwaitEnd(absl::Time deadline);

  // Ends the call and the thread. Must be called once, as the last.
  void Close();

 private:
  struct Request;
  struct Cancellable;
  enum class Tag : std::uintptr_t { kWritten, kRead, kFinished, kWoken };

  SessionState(std::shared_ptr<v1::Reduction::Stub> stub, std::string server, std::shared_ptr<const Peers> peers,
               std::shared_ptr<Token> token, absl::Duration timeout, absl::Duration close_timeout,
               std::int64_t max_message_bytes, absl::Duration idle_timeout);

  void StartCall();
  void CancelCall();
  void Reopen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Reply> Await(v1::SessionRequest message, const std::shared_ptr<Request>& request,
                              const Interrupted& interrupted);
  absl::Status Add(v1::SessionRequest message, const std::shared_ptr<Request>& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ask(InterruptClock& clock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Complete(const std::shared_ptr<Request>& request, absl::StatusOr<Reply> reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw(const std::shared_ptr<Request>& request, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LateError(const Request& request) const;
  void WithdrawLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool Drive(absl::Time until, absl::FunctionRef<bool()> over, absl::CondVar* wake)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump(absl::Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Handle(Tag tag, bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeAnswer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  static void* ToVoid(Tag tag) { return reinterpret_cast<void*>(tag); }

  const std::shared_ptr<v1::Reduction::Stub> stub_;
  const std::string server_;
  const std::shared_ptr<const Peers> peers_;
  const absl::Duration timeout_;
  const absl::Duration close_timeout_;
  const std::int64_t max_message_bytes_;
  const absl::Duration reopen_after_;   // the time without a request after which the next one opens a new call
  const std::shared_ptr<Token> token_;  // may be null

  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientContext> context_;  // of call_
  std::optional<CallWatch> watch_;                // likewise
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  grpc::Alarm alarm_;                  // wakes the thread that pumps
  v1::SessionResponse incoming_;       // used by the thread that pumps
  grpc::Status finished_with_;         // likewise
  std::optional<std::thread> worker_;  // runs the callbacks; started for the first one

  absl::Mutex mutex_;
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<Request>> in_flight_ ABSL_GUARDED_BY(mutex_);  // by id
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_used_ ABSL_GUARDED_BY(mutex_) = absl::Now();  // when a request was added or completed
  int asynchronous_ ABSL_GUARDED_BY(mutex_) = 0;                // requests in flight that have a callback
  // None of them misses its deadline before this.
  absl::Time next_late_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::deque<v1::SessionRequest> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // initially: the start of the call
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // why the call ended
  absl::Status wrong_ ABSL_GUARDED_BY(mutex_);   // the answer for which the client ended it

  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time pumping_until_ ABSL_GUARDED_BY(mutex_);
  bool waking_ ABSL_GUARDED_BY(mutex_) = false;                        // the alarm is set
  std::vector<absl::CondVar*> followers_ ABSL_GUARDED_BY(mutex_);      // threads that wait while another pumps
  std::deque<std::shared_ptr<Request>> done_ ABSL_GUARDED_BY(mutex_);  // whose callbacks the worker has to run
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;                      // tells the worker to end
  absl::CondVar work_;                                                 // wakes the worker
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_SESSION_H_
