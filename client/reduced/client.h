// The C++ client of a `reduced` server.
//
//   auto client = reduced::client::Client::Create({.server = "unix:/run/reduced.sock"});
//   std::vector<float> samples = ...;
//   auto reply = (*client)->Reduce(ArrayView::Of(std::span<const float>(samples)), {"sum", "argmax"});
//   if (reply.ok()) std::cout << std::get<double>(reply->results[0].value.value);
//
// An array that is asked about more than once is better put than sent each time: it stays on the server, in the memory
// of a GPU if there is one, until the handle goes.
//
//   auto array = (*client)->Put(ArrayView::Of(std::span<const float>(samples)));
//   if (array.ok()) reply = (*client)->Reduce(*array, {"var"});
//
// Names (ops, dtypes, engines, policies) are those of `reducectl ops` and of the proto enums in lower case, without
// their prefix: OP_ARGMAX is "argmax". An unknown one is INVALID_ARGUMENT, quoting it and listing those allowed.
//
// Who reduces many small arrays one after the other opens a Session: a request takes less than a call. On the server's
// machine an array can be shared with it rather than sent: see shared.h.
//
// Errors: INVALID_ARGUMENT for what can be seen to be wrong before anything is sent; UNAVAILABLE if no server answers,
// with the address that was tried; otherwise the server's status, see reduced.proto.
#ifndef REDUCED_CLIENT_H_
#define REDUCED_CLIENT_H_

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
#include "reduced/shared.h"
#include "reduced/types.h"

namespace reduced::v1 {
class RegionRequest;
}

namespace reduced::client {

class Session;
class SessionState;  // the library's own

inline constexpr char kSystemCa[] = "system";  // of ClientOptions.tls_ca

struct ClientOptions {
  // "host:port", "[ipv6]:port" or "unix:/path".
  std::string server = "127.0.0.1:50051";
  // How long a call may take that doesn't say so itself. Connecting is part of the first call.
  absl::Duration timeout = absl::Seconds(5);
  // How many connections one Reduce of a large array may use, 1 to 64: from 32 MiB on it is cut into as many parts,
  // which are sent at once. Each takes one of the server's streams, and a thread while it is sent. Worth it where there
  // are cores for them on both sides. 0: 4 on a machine of 8 cores or more, else 1.
  int connections = 0;

  // TLS: file of the certificates, in PEM, that sign the server's, or kSystemCa for those that this machine trusts.
  // Empty: no TLS. A server's Unix sockets need none: for a "unix:" address this and the next three mean nothing.
  std::string tls_ca{};
  // Files, in PEM, of the certificate that tells the server who calls, and its private key. Empty: none.
  std::string tls_cert{};
  std::string tls_key{};
  // The name that the server's certificate is for, where the address has another.
  std::string tls_server_name{};
  // File of the token that goes with every call. Only over TLS, to a Unix socket or a loopback address. Empty: none.
  // Create reads all of these files. That of the token is read again by the first call after each token_refresh, so
  // that it may change; while it can't be, or isn't one, the token stays what it was. A session keeps the one it began
  // with.
  std::string token_file{};
  absl::Duration token_refresh = absl::Seconds(10);
};

struct SessionOptions {
  std::optional<absl::Duration> timeout{};          // of requests that don't say so; else ClientOptions.timeout
  absl::Duration close_timeout = absl::Seconds(1);  // how long its end may take until it is cancelled
};

// A call under way. Copies stand for the same call; letting go of it changes nothing.
class REDUCED_EXPORT Call {
 public:
  // Ends the call early: its callback gets CANCELLED, unless it is already on its way. Thread-safe, any number of
  // times.
  void Cancel();

  struct State;  // the library's own

 private:
  friend class Client;
  friend class SessionState;
  std::shared_ptr<State> state_;
};

struct Connection;  // the library's own

// An array that a server keeps for whoever has this. Moves only.
class REDUCED_EXPORT ResidentArray {
 public:
  ResidentArray(ResidentArray&& other) noexcept;
  ResidentArray& operator=(ResidentArray&& other) noexcept;
  // Deletes the array. Waits for that, at most 5 seconds or ClientOptions.timeout: whatever comes of it, it expires.
  ~ResidentArray();

  const ArrayInfo& info() const { return info_; }  // as it was when it was put
  const std::string& id() const { return info_.id; }
  const std::string& device() const { return info_.device; }
  // NOLINTNEXTLINE(google-explicit-constructor): it is one
  operator RemoteArray() const { return RemoteArray::Kept(info_.id); }

  // Leaves the array to the server, until it expires or someone deletes it by its id, which this gives.
  const std::string& Release();

 private:
  friend class Client;
  ResidentArray(std::shared_ptr<const Connection> connection, ArrayInfo info);
  void Delete();

  std::shared_ptr<const Connection> connection_;  // null: there is nothing to delete
  ArrayInfo info_;
};

// A connection to one server, or several (ClientOptions.connections), each made at the first call that uses it and
// again whenever it is lost. Thread-safe; no two Clients share one. Destroying it leaves calls under way to finish.
class REDUCED_EXPORT Client {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Reply>) &&>;

  // Doesn't connect yet. INVALID_ARGUMENT: not an address, a timeout that isn't positive, connections out of range, a
  // file of TLS or a token that can't be read, or a token that others could read on its way.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Reduces one array by one or more ops, which take one read of it between them, but for exact sums on a GPU. An
  // inline request (see ReduceOptions.via) holds a copy of the elements while it is sent, a stream a copy of a chunk.
  absl::StatusOr<Reply> Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});

  // As Reduce, without waiting, and over one connection. The array must stay, unchanged, until `done` runs. That
  // happens exactly once: on a thread of the library, which it must not block, or within this call if the request can't
  // be sent.
  Call ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Done done);

  // The same of an array that need not be sent, such as a ResidentArray.
  absl::StatusOr<Reply> Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});
  Call ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Done done);

  // From what is known of consecutive parts of an array (Reply.state of each, in order) to the answers about all of it.
  // Any server can say it, whichever have reduced the parts. INVALID_ARGUMENT: none, one that isn't a state, or states
  // of different questions.
  absl::StatusOr<MergeReply> Merge(const std::vector<std::string>& states, const MergeOptions& options = {});

  // Has the server keep a copy of an array, to be reduced any number of times. The handle may outlive this Client.
  absl::StatusOr<ResidentArray> Put(const ArrayView& array, const PutOptions& options = {});

  // Lets the server, on this machine, read host memory: the whole of a memfd or a POSIX shared memory object, of the
  // size that it has now, by a descriptor that can be read and stays the caller's. FAILED_PRECONDITION: the server
  // takes none, is on another machine, or can't pin it. INVALID_ARGUMENT: the descriptor is something else.
  // UNAVAILABLE: the server has closed the region socket, and with it its regions are gone: share again.
  absl::StatusOr<Region> Share(int file, const ShareOptions& options = {});
  absl::StatusOr<Region> Share(const SharedBuffer& buffer, const ShareOptions& options = {});
  // The same of a copy of the elements, which is made here and goes with the region: for an array that is in other
  // memory and is reduced several times. As Reduce and SharedBuffer::Allocate otherwise.
  absl::StatusOr<Region> Share(const ArrayView& array, const ShareOptions& options = {});
  // The same of memory of a GPU: see reduced/cuda.h.
  absl::StatusOr<Region> ShareDevice(const DeviceMemory& memory, const ShareOptions& options = {});

  // The arrays that the server keeps, in the order they were put: those of `owner`, or everyone's if that is empty.
  absl::StatusOr<std::vector<ArrayInfo>> ListArrays(const std::string& owner = {},
                                                    std::optional<absl::Duration> timeout = std::nullopt);

  // Has the server forget an array, and waits until nobody uses it any more and its memory is free. `owner` as when it
  // was put.
  absl::Status DeleteArray(const std::string& id, const std::string& owner = {},
                           std::optional<absl::Duration> timeout = std::nullopt);
  // Opens a session, on this client's connection. Asks the server first whether it has sessions, and what it takes:
  // UNIMPLEMENTED if it hasn't. The session stays though the Client goes.
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(const SessionOptions& options = {});

  // Times pipelines against each other on an array that the server makes, each checked against the CPU's answer: see
  // Ladder in reduced.proto. Calls `on_step` as each is measured, within this call. Many take minutes: mind the
  // timeout. Steps that came before an error stand.
  absl::StatusOr<LadderStart> Ladder(const LadderOptions& options,
                                     absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step);

  // What the server is, has, can do and allows.
  absl::StatusOr<ServerInfo> GetServerInfo(std::optional<absl::Duration> timeout = std::nullopt);

  // What the server says of itself by grpc.health.v1, of the service reduced.v1.Reduction.
  absl::StatusOr<Health> CheckHealth(std::optional<absl::Duration> timeout = std::nullopt);

  // Calls `on_change`, within this call, with what it says now and whenever that changes: until `on_change` gives false
  // (OK), `timeout` is over (DEADLINE_EXCEEDED; default: none) or the server is gone (UNAVAILABLE).
  absl::Status WatchHealth(absl::FunctionRef<bool(Health)> on_change,
                           absl::Duration timeout = absl::InfiniteDuration());

 private:
  explicit Client(std::shared_ptr<Connection> connection);
  absl::StatusOr<std::shared_ptr<Region::Connection>> Regions(absl::Time deadline);
  absl::StatusOr<Region> ShareAs(const v1::RegionRequest& request, int file, const ShareOptions& options);

  const std::shared_ptr<Connection> connection_;
};

// Many reductions over one call, any number of them at once. Thread-safe. Once it breaks (the server goes away or ends
// it), whatever is under way gets the reason, and so does every later request: open another.
class REDUCED_EXPORT Session {
 public:
  // Waits, as long as SessionOptions.close_timeout, for the answers under way; then cancels them. Not within a callback
  // of the session, nor while a thread is in Reduce.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // As Client's. Arrays go inline, whatever their size: one that makes a message larger than the server takes is
  // RESOURCE_EXHAUSTED. ReduceOptions.via is "auto" or "inline", Reply.via "session". A request's timeout and
  // Call::Cancel() end it at once, here and on the server, and leave the others alone. Callbacks run one at a time, on
  // one thread of the session. The array needn't stay once ReduceAsync has returned.
  absl::StatusOr<Reply> Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});
  Call ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Client::Done done);
  absl::StatusOr<Reply> Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {});
  Call ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Client::Done done);

 private:
  friend class Client;
  explicit Session(std::shared_ptr<SessionState> state) : state_(std::move(state)) {}

  const std::shared_ptr<SessionState> state_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_H_
