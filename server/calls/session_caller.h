// The caller of a call that may outlive its token, such as a session.
#ifndef REDUCED_SERVER_CALLS_SESSION_CALLER_H_
#define REDUCED_SERVER_CALLS_SESSION_CALLER_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "server/calls/backend.h"
#include "server/security/identity.h"

namespace reduced::server {

// Used by one thread at a time. Both arguments must outlive it.
class SessionCaller {
 public:
  SessionCaller(const Backend& backend, const grpc::ServerContextBase& context)
      : backend_(backend), context_(context) {}

  // As Backend::CallerOf, cached until the tokens change.
  const absl::StatusOr<Caller>& Now() {
    const std::uint64_t now = backend_.security == nullptr ? 0 : backend_.security->generation();
    if (!generation_.has_value() || *generation_ != now) caller_ = backend_.CallerOf(context_);
    generation_ = now;
    return caller_;
  }

 private:
  const Backend& backend_;
  const grpc::ServerContextBase& context_;
  absl::StatusOr<Caller> caller_ = absl::UnknownError("not asked yet");
  std::optional<std::uint64_t> generation_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SESSION_CALLER_H_
