// Statuses on their way to a client, and the time after which a refused client should try again.
#ifndef REDUCED_SERVER_WIRE_STATUS_H_
#define REDUCED_SERVER_WIRE_STATUS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

namespace reduced::server {

// `status`, not OK, with the hint that its client should try again after `delay`. The hint is a payload of the status.
absl::Status WithRetryHint(absl::Status status, absl::Duration delay);
// The hint of what had no memory: until a typical message's is free again.
inline constexpr absl::Duration kMemoryRetryDelay = absl::Milliseconds(100);
// The hint of a status; nullopt if it has none.
std::optional<absl::Duration> RetryHint(const absl::Status& status);

// The status for gRPC; its retry hint, if there is one, goes into the call's trailer as grpc-retry-pushback-ms.
grpc::Status ToGrpc(const absl::Status& status, grpc::CallbackServerContext* context);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_STATUS_H_
