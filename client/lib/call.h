// What the calls of the library have in common.
#ifndef REDUCED_CLIENT_LIB_CALL_H_
#define REDUCED_CLIENT_LIB_CALL_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/lib/region_connection.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {

class Token;  // secure.h

// What a Call stands for.
struct Call::State {
  virtual ~State() = default;
  virtual void Cancel() = 0;  // thread-safe, any number of times
};

// What the calls to one server have in common.
struct Connection {
  ClientOptions options;
  std::shared_ptr<Token> token;                       // of every call; null: none
  std::vector<std::shared_ptr<grpc::Channel>> parts;  // for one array cut into parts, the first for everything else too
  std::shared_ptr<grpc::Channel> channel;             // the first of them
  std::shared_ptr<v1::Reduction::Stub> stub;
  absl::Mutex mutex{};
  std::shared_ptr<Region::Connection> regions ABSL_GUARDED_BY(mutex){};  // null: not yet
};

inline constexpr absl::string_view kInline = "inline";
inline constexpr absl::string_view kStream = "stream";
inline constexpr absl::string_view kSession = "session";
inline constexpr absl::string_view kArray = "array";
inline constexpr absl::string_view kShm = "shm";

absl::Status CheckTimeout(absl::Duration timeout);

// How an array of that size is sent: kInline or kStream.
absl::StatusOr<absl::string_view> ChooseVia(absl::string_view via, std::int64_t bytes);

// How an array that is streamed is cut into parts, one for each connection at most: the byte that each begins with, and
// where the last ends. No element is cut in two.
std::vector<std::int64_t> CutInParts(std::int64_t bytes, int connections);

// An error of the server, in words that help. `retry_after_ms`: empty if it doesn't say when to try again.
absl::Status ErrorOf(int code, const std::string& message, const std::string& server, absl::Duration timeout,
                     absl::string_view retry_after_ms);

Reply ReplyOf(const v1::ReduceResponse& response, absl::string_view via);

// What one gRPC call needs until it is over. Held by its callback, and by Calls for Cancel().
struct RpcState : Call::State {
  RpcState(const Connection& to, std::optional<absl::Duration> own_timeout);

  void Cancel() override { context.TryCancel(); }
  absl::Status Outcome(const grpc::Status& status) const;

  const std::shared_ptr<v1::Reduction::Stub> stub;
  const std::string server;
  const absl::Duration timeout;
  grpc::ClientContext context;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CALL_H_
