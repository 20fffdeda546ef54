// The connections of a Client.
#ifndef REDUCED_CLIENT_LIB_CONNECTION_H_
#define REDUCED_CLIENT_LIB_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/lib/call_watch.h"
#include "client/lib/credentials.h"
#include "client/lib/region_connection.h"
#include "client/lib/target.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {

// A server can't make the client take more memory than this for one answer. The largest honest ones are lists of
// thousands of arrays, of less than 10 MiB. It isn't a power of two so that ErrorOf can tell it from a server's limit.
inline constexpr int kMaxAnswerBytes = 100'000'000;

// One channel. Copies share it.
struct Backend {
  std::shared_ptr<grpc::Channel> channel{};
  std::shared_ptr<v1::Reduction::Stub> stub{};
};

// What the calls of one Client have in common. If the target may stand for several servers, `home` stays at one of
// them, as long as it answers, and the one of `parts` balances its calls over all of them; else they are the same.
struct Connection {
  ClientOptions options{};
  Target target{};
  std::shared_ptr<const Peers> peers{};           // of target
  std::shared_ptr<Token> token{};                 // sent with every call; null: none
  Backend home{};                                 // for calls that depend on what one server stores
  std::vector<Backend> parts{};                   // for the parts of one array; the first also for all other calls
  mutable std::atomic<std::int64_t> retries = 0;  // attempts after the first, of all calls
  // A call has reached a server. If none answers from then on, it restarts: it is worth waiting for.
  mutable std::atomic<bool> reached = false;

  absl::Mutex mutex{};
  std::shared_ptr<Region::Connection> regions ABSL_GUARDED_BY(mutex){};  // null until it is needed
};

// Creates the channels: of one server options.connections in `parts`, of several one. Doesn't connect yet.
std::shared_ptr<Connection> Connect(ClientOptions options, Target target, Secured secured);

// Client::GetServerInfo.
absl::StatusOr<ServerInfo> AskServerInfo(const Connection& connection, std::optional<absl::Duration> timeout);

// Must be called before the first call with a callback: see connection.cc.
void KeepCallbackThreads();

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CONNECTION_H_
