// The C++ client of a `reduced` server.
//
//   auto client = reduced::client::Client::Create({.server = "unix:/run/reduced/socket"});
//   std::vector<float> samples = ...;
//   auto reply = (*client)->Reduce(ArrayView::Of(samples), {"sum", "argmax"});
//   if (reply.ok()) std::cout << reply->Find("sum")->AsDouble();
//
// Put an array that is reduced more than once instead of sending it each time. The server then stores it, in the memory
// of a GPU if there is one, until the handle is destroyed:
//
//   auto array = (*client)->Put(ArrayView::Of(samples));
//   if (array.ok()) reply = (*client)->Reduce(*array, {"var"});
//
// To reduce many small arrays one after the other, open a Session: a request takes less time than a call. A process on
// the server's machine can share memory with the server instead of sending arrays: see shared.h.
//
// The names of ops, dtypes, engines and policies are those of `reducectl ops`, and of the enums in reduced.proto in
// lower case without their prefix: OP_ARGMAX is "argmax".
//
// Errors: INVALID_ARGUMENT for what the client can check before it sends anything, such as an unknown name; the message
// has the field, the value and what is allowed. UNAVAILABLE if no server answers, with the address, or if the
// connection is lost on the way, in a stream with how many bytes were sent. INTERNAL if the answer isn't one to what
// was asked, for instance because a result is missing or has another type: the library checks every answer, and returns
// none that is wrong in what can be seen without the elements. The message has the field, what the server sent and what
// is allowed. Otherwise the status that the server returned: reduced.proto lists them.
//
// RequestIdOf and RetryAfterOf (errors.h) say more of an error.
//
// Calls are sent again if they fail for a reason that may pass: see ClientOptions.max_attempts.
#ifndef REDUCED_CLIENT_H_
#define REDUCED_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reduced/errors.h"
#include "reduced/handles.h"
#include "reduced/merge.h"
#include "reduced/ops.h"
#include "reduced/options.h"
#include "reduced/result_array.h"
#include "reduced/shared.h"
#include "reduced/types.h"
#include "reduced/version.h"

namespace reduced::v1 {
class RegionRequest;
}

namespace reduced::client {

class Session;  // below

// A client of one server, or of several equal ones (ClientOptions.server). It connects when a call needs a connection,
// and again whenever one is lost. Thread-safe. Two Clients never share a connection. Calls in flight finish normally if
// the Client is destroyed.
class REDUCED_EXPORT Client {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Reply>) &&>;

  // Doesn't connect yet. INVALID_ARGUMENT: an option isn't valid, a file of TLS or the token can't be read, or the
  // token would be sent where others can read it.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Reduces one array by one or more ops. All ops together need one read of the array; on a GPU exact sums
  // need more, and so do ops of the distribution.
  // An inline request (ReduceOptions.via) holds a copy of the elements until it is sent, a stream a copy of one chunk.
  // With an op of the distribution (ops.h) an array that would be a stream is stored on the server until the call ends,
  // which takes part of the call's timeout.
  absl::StatusOr<Reply> Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});

  // The same without waiting, over one connection. The array must stay unchanged until `done` runs. `done` runs exactly
  // once: on a thread of the library, which it must not block, or within this call if the request can't be sent.
  // With an op of the distribution an array that would be a stream is sent inline. INVALID_ARGUMENT: it has 2 GiB.
  // RESOURCE_EXHAUSTED: the message is larger than the server takes (--max_message_bytes, 64 MiB by default).
  Call ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Done done);

  // The same for an array that the server reads where it is, such as a ResidentArray.
  absl::StatusOr<Reply> Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});
  Call ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Done done);

  // Reduces many arrays by the same ops: the replies are those of Reduce of each, in the order of `operands`, which may
  // differ in dtype and shape. Arrays of less than 512 KiB, resident arrays and regions go together, up to 1,024 and
  // 4 MiB in a call; others by a Reduce each, as their size asks for. One timeout is for all of them. The first
  // error ends it, and names the operand: "operands[3].dtype: got ...". INVALID_ARGUMENT: there is no operand.
  // UNIMPLEMENTED: the server has no such calls.
  absl::StatusOr<std::vector<Reply>> ReduceMany(const std::vector<Operand>& operands,
                                                const std::vector<std::string>& ops, const ReduceOptions& options = {});

  // Reduces an array along axes, of segments, by keys or under a mask: the results of each op are an array. Sent in a
  // message or, if it has more than 32 MiB (an array beside it: 8 MiB), stored in the memory of the server's CPU until
  // the call ends; ReduceOptions.via is "auto" or "inline", or "stream": in chunks, with those of y and the weights in
  // turns, of which the server holds some megabytes. UNIMPLEMENTED: the server has no such requests; or a stream is not
  // of the whole array, or has other operands that are remote or of another shape, or an op that streams lack.
  absl::StatusOr<ArrayReply> ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                         const PartitionOptions& partition, const ReduceOptions& options = {});
  absl::StatusOr<ArrayReply> ReduceArray(const RemoteArray& array, const std::vector<std::string>& ops,
                                         const PartitionOptions& partition, const ReduceOptions& options = {});

  // Combines the states of consecutive parts of an array (Reply.state of each, in order) into the results for the whole
  // array. Any server can do that, whichever servers reduced the parts. INVALID_ARGUMENT: there is no state, one can't
  // be decoded, or they belong to different requests.
  absl::StatusOr<MergeReply> Merge(const std::vector<std::string>& states, const MergeOptions& options = {});

  // The same for states of arrays of results (ArrayReply.state): as MergeArrayStates of merge.h.
  absl::StatusOr<MergeArraysReply> MergeArrays(const std::vector<std::string>& states,
                                               const MergeOptions& options = {});

  // Stores a copy of an array on the server, to be reduced any number of times. The handle may outlive this Client.
  absl::StatusOr<ResidentArray> Put(const ArrayView& array, const PutOptions& options = {});

  // Lets the server, on this machine, read host memory: a whole memfd or POSIX shared memory object, of the size that
  // it has now. `file` must be readable; the caller keeps it. FAILED_PRECONDITION: the server has no region socket, is
  // on another machine, or can't pin the memory. INVALID_ARGUMENT: the descriptor is something else. UNAVAILABLE: the
  // server has closed the region socket, so that its regions are gone: share the memory again.
  absl::StatusOr<Region> Share(int file, const ShareOptions& options = {});
  absl::StatusOr<Region> Share(const SharedBuffer& buffer, const ShareOptions& options = {});
  // Copies an array from other memory into a SharedBuffer, which lives as long as the region, and shares that. For an
  // array that is reduced several times. Errors: also those of SharedBuffer::Allocate.
  absl::StatusOr<Region> Share(const ArrayView& array, const ShareOptions& options = {});
  // Shares memory of a GPU: see reduced/cuda.h.
  absl::StatusOr<Region> ShareDevice(const DeviceMemory& memory, const ShareOptions& options = {});

  // user@host, of this process: the owner that reducectl and the Python package give where nobody names one, so that
  // each deletes what the other has put. Empty if the client has a token or a certificate: arrays then belong to the
  // identity that the server knows.
  std::string DefaultOwner() const;

  // The resident arrays of an owner, or of all owners if `owner` is empty, in the order in which they were put.
  absl::StatusOr<std::vector<ArrayInfo>> ListArrays(const std::string& owner = {},
                                                    std::optional<absl::Duration> timeout = std::nullopt);

  // A copy of a resident array, wherever it is, such as results that were kept.
  absl::StatusOr<HostArray> GetArray(const std::string& id, std::optional<absl::Duration> timeout = std::nullopt);

  // Takes ownership of results that were kept on this client's server: the handle deletes them when it is destroyed.
  // Makes no call. `owner`: that of KeepOptions. INVALID_ARGUMENT: the results were not kept.
  absl::StatusOr<ResidentArray> Own(const ResultArray& kept, const std::string& owner = {}) const;

  // Deletes a resident array, and waits until nobody uses it any more and its memory is free. `owner` is that of
  // PutOptions.
  absl::Status DeleteArray(const std::string& id, const std::string& owner = {},
                           std::optional<absl::Duration> timeout = std::nullopt);

  // Opens a session, through a ring if the server is on this machine: see SessionOptions.via. Asks the server for its
  // limits first. The session may outlive this Client. UNIMPLEMENTED: the server has no sessions. With
  // SessionOptions.via "ring" also: why there is no ring.
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(const SessionOptions& options = {});

  // Times pipelines against each other on an array that the server generates, and checks each against the CPU: see
  // Ladder in reduced.proto. Calls `on_step` after each measurement, within this call. A long ladder takes minutes:
  // choose the timeout accordingly. Steps that were reported before an error are valid.
  absl::StatusOr<LadderStart> Ladder(const LadderOptions& options,
                                     absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step);

  // Describes the server: its version, devices, ops, pipelines, limits and flags.
  absl::StatusOr<ServerInfo> GetServerInfo(std::optional<absl::Duration> timeout = std::nullopt);

  // The health of the service reduced.v1.Reduction, by grpc.health.v1.
  absl::StatusOr<Health> CheckHealth(std::optional<absl::Duration> timeout = std::nullopt);

  // Calls `on_change`, within this call, with the health now and after each change, until `on_change` returns false
  // (OK), `timeout` has passed (DEADLINE_EXCEEDED; default: none) or the server ends the call (UNAVAILABLE).
  absl::Status WatchHealth(absl::FunctionRef<bool(Health)> on_change,
                           absl::Duration timeout = absl::InfiniteDuration());

  // How often this client has sent a call again: see ClientOptions.max_attempts.
  std::int64_t retries() const;

 private:
  friend class Session;
  explicit Client(std::shared_ptr<Connection> connection);
  absl::StatusOr<std::shared_ptr<Region::Connection>> Regions(absl::Time deadline);
  absl::StatusOr<Region> ShareAs(const v1::RegionRequest& request, int file, const ShareOptions&, const DeviceMemory*);

  const std::shared_ptr<Connection> connection_;
};

// Many reductions over one call, any number of them in flight. Thread-safe. If the call ends (the server exits or
// closes it), all requests in flight and all later ones fail with the reason: open another session. The server's limit
// on idle sessions is no such end: a request after a long pause opens a new call, which is admitted anew.
class REDUCED_EXPORT Session {
 public:
  // Waits up to SessionOptions.close_timeout for the requests in flight, then cancels them. Must not be called from a
  // callback of the session, nor while a thread is in Reduce.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // "ring" or "session": how this session sends its requests. See SessionOptions.via.
  std::string via() const;
  // Why a session of SessionOptions.via "auto" has no ring; empty: it has one, or none was wanted.
  const std::string& why_not_ring() const { return why_not_ring_; }

  // As those of Client. Arrays are sent inline, whatever their size: RESOURCE_EXHAUSTED if the message is larger than
  // the server accepts. ReduceOptions.via is "auto" or "inline". Reply.via is "ring" or "session": an array for which
  // the ring has no room goes in a message of the session, and so does a request with a callback while the ring is
  // full. A timeout or Call::Cancel() ends its own request at once, here and on the server, and no other. Callbacks run
  // one at a time, on one thread of the session. The array need not live longer than the call of ReduceAsync. Requests
  // that a server does not answer since it stops, or the connection is lost, are sent again in another call: see
  // ClientOptions.max_attempts. Without a ring for that call they go in messages.
  absl::StatusOr<Reply> Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});
  Call ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Client::Done done);
  absl::StatusOr<Reply> Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});
  Call ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Client::Done done);

  // As Client::ReduceMany, with its errors, in a request of the session for as many arrays. Through a ring go requests
  // of up to 64 KiB, and arrays of more than 16 KiB by themselves. Arrays that are streams there are calls of their own
  // here, too, unless the ring's arena has room for them. Reply.via is "ring" or "session", or of those calls theirs.
  // ReduceOptions.via may also be "stream".
  absl::StatusOr<std::vector<Reply>> ReduceMany(const std::vector<Operand>& operands,
                                                const std::vector<std::string>& ops, const ReduceOptions& options = {});

  // As those of Client. The arrays of the partition are sent inline, too. Through a ring goes what fits into its arena
  // with its answer, if the size of that follows from the request, and has arrays beside it of less than 64 KiB; all
  // else goes in a message of the session.
  absl::StatusOr<ArrayReply> ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                         const PartitionOptions& partition, const ReduceOptions& options = {});
  absl::StatusOr<ArrayReply> ReduceArray(const RemoteArray& array, const std::vector<std::string>& ops,
                                         const PartitionOptions& partition, const ReduceOptions& options = {});

 private:
  friend class Client;
  template <class Array>
  absl::StatusOr<ArrayReply> ReduceToArrays(const Array& array, const std::vector<std::string>& ops,
                                            const PartitionOptions& partition, const ReduceOptions& options);
  Session(std::shared_ptr<Connection> connection, std::shared_ptr<SessionState> state,
          std::shared_ptr<RingSession> ring, std::string why_not_ring);

  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<SessionState> state_;
  const std::shared_ptr<RingSession> ring_;  // null: there is none
  const std::string why_not_ring_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_H_
