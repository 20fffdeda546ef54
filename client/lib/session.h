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
#include "client/lib/connection.h"
#include "reduced/client.h"
#include "reduced/result_array.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {

// Thread-safe.
class SessionState : public std::enable_shared_from_this<SessionState> {
 public:
  struct Options {
    absl::Duration timeout{};            // of requests without one
    absl::Duration close_timeout{};      // until Close cancels the requests in flight
    std::int64_t max_message_bytes = 0;  // of the server
    int max_operands = 0;                // likewise, of one ReduceMany; 0: it has none
    absl::Duration idle_timeout{};       // of the server; 0: none
  };

  // What a message has beside a request of many arrays, at most.
  static constexpr std::int64_t kFrameBytes = 64;

  static std::shared_ptr<SessionState> Open(std::shared_ptr<const Connection> connection, const Options& options);
  ~SessionState();

  struct Message {
    v1::SessionRequest request{};      // without an id
    std::vector<std::string> names{};  // of the ops, if they have parameters
  };
  // The message of a request. `partition`: null: it has none.
  absl::StatusOr<Message> Ask(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                              const PartitionOptions* partition = nullptr) const;
  absl::StatusOr<Message> Ask(const RemoteArray& array, const std::vector<std::string>& ops,
                              const ReduceOptions& options, const PartitionOptions* partition = nullptr) const;

  // Send the message. If `message` is an error, that is the outcome. `arrays`: takes the response to a partition, of
  // which the reply has all but the arrays.
  absl::StatusOr<Reply> Reduce(absl::StatusOr<Message> message, const ReduceOptions& options,
                               v1::ReduceResponse* arrays = nullptr);
  Call ReduceAsync(absl::StatusOr<Message> message, const ReduceOptions& options, Client::Done done);
  // Sends what is asked about many arrays, which this takes. The reply has `attempts` and `via`, and nothing else.
  // RESOURCE_EXHAUSTED: as of any message. The server has such requests: max_operands.
  absl::StatusOr<Reply> ReduceMany(v1::ReduceManyRequest& request, const ReduceOptions& options,
                                   v1::ReduceManyResponse* response);
  const Options& options() const { return options_; }
  // Ends one request, if it is in flight.
  void Cancel(std::uint64_t id);

  // A ring, and the number of the call that it belongs to, with which it ends.
  struct OpenedRing {
    v1::Ring ring{};
    std::uint64_t call = 0;
  };
  // Opens the ring of the call, which has none. Opens a new call first if the call was idle for too long.
  absl::StatusOr<OpenedRing> OpenRing(std::int64_t arena_bytes, absl::Time deadline);
  // The session was used at that time, without a message.
  void Touch(absl::Time used);
  // Touch(), and whether the next message opens a new call.
  bool IdleSince(absl::Time used);
  // Whether the call with this number goes on, as far as this process knows by now; 0: whether any does. Doesn't wait.
  bool IsOpen(std::uint64_t call);
  // Waits until that call has ended, and returns why. UNAVAILABLE: the next request opens another one. OK: it has not
  // ended until the deadline.
  absl::Status AwaitEnd(std::uint64_t call, absl::Time deadline);

  // Ends the call and the thread. Must be called once, as the last.
  void Close();

 private:
  struct Request;
  struct Cancellable;
  enum class Tag : std::uintptr_t { kWritten, kRead, kFinished, kWoken, kReopen };

  SessionState(std::shared_ptr<const Connection> connection, const Options& options);

  void StartCall();
  void CancelCall();
  void Reopen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ended(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendAgain(const absl::Status& why, std::optional<absl::Duration> hint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReopenAt(absl::Time when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndAll(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Move(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsCall(std::uint64_t call) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool IsIdle(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetPartition(const PartitionOptions* partition, v1::ReduceRequest* request) const;
  // Sets the timeout of a message that has all else but its id. RESOURCE_EXHAUSTED: it is larger than the server takes.
  absl::Status Prepare(absl::Duration timeout, v1::SessionRequest* message) const;
  absl::Status TooLarge(std::int64_t bytes) const;
  absl::StatusOr<Reply> Await(Message message, const std::shared_ptr<Request>& request, const Interrupted& interrupted);
  absl::Status Add(Message message, const std::shared_ptr<Request>& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ask(InterruptClock& clock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Complete(const std::shared_ptr<Request>& request, absl::StatusOr<Reply> reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw(const std::shared_ptr<Request>& request, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LateError(const Request& request) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
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

  const std::shared_ptr<const Connection> connection_;
  const std::string& server_;  // the address that the user gave
  const Options options_;
  const absl::Duration reopen_after_;  // the time without a request after which the next one opens a new call

  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientContext> context_;  // of call_
  std::optional<CallWatch> watch_;                // likewise
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  std::uint64_t number_ = 0;           // of call_, from 1 on
  grpc::Alarm alarm_;                  // wakes the thread that pumps
  grpc::Alarm reopen_alarm_;           // ends the delay before a new call
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
  std::deque<std::shared_ptr<const v1::SessionRequest>> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // initially: the start of the call
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;       // the call has ended, and there is no other one yet
  bool reopening_ ABSL_GUARDED_BY(mutex_) = false;  // reopen_alarm_ is set
  bool elsewhere_ ABSL_GUARDED_BY(mutex_) = false;  // calls go over Connection.parts, since the one at home refused
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;      // there will be no other call
  absl::Status status_ ABSL_GUARDED_BY(mutex_);     // why the last call ended
  absl::Status wrong_ ABSL_GUARDED_BY(mutex_);      // the answer for which the client ended it
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);    // likewise, to send what is in flight in another call

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
