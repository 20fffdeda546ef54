#include "reduced/client.h"

#include <grpc/grpc.h>

#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/call.h"
#include "client/lib/connection.h"
#include "client/lib/credentials.h"
#include "client/lib/parts.h"
#include "client/lib/target.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr unsigned kManyCores = 8;  // from here on a large array is sent over several connections by default
constexpr int kMaxAttempts = 10;

}  // namespace

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

Client::~Client() = default;

std::int64_t Client::retries() const { return connection_->retries.load(std::memory_order_relaxed); }

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  absl::Status status = CheckTimeout(options.timeout);
  if (options.connections < 0 || options.connections > kMaxConnections) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("connections: got ", options.connections, "; allowed: 1 to ", kMaxConnections)));
  }
  if (options.max_attempts < 1 || options.max_attempts > kMaxAttempts) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("max_attempts: got ", options.max_attempts, "; allowed: 1 to ", kMaxAttempts)));
  }
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(Target target, ParseTarget(options.server));
  ASSIGN_OR_RETURN(Secured secured, Secure(options, target));
  if (options.connections == 0) options.connections = std::thread::hardware_concurrency() >= kManyCores ? 4 : 1;
  // gRPC releases a call a moment after it has returned the answer. If the process exits in between, gRPC's shutdown
  // waits 10 seconds in vain for that call. Holding a reference to gRPC prevents the shutdown.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);
  return std::unique_ptr<Client>(new Client(Connect(std::move(options), std::move(target), std::move(secured))));
}

}  // namespace reduced::client
