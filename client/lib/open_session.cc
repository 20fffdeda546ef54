// Client::OpenSession and the methods of Session, which go through a ring if there is one.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "client/lib/connection.h"
#include "client/lib/region_connection.h"
#include "client/lib/ring_session.h"
#include "client/lib/session.h"
#include "client/lib/via.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr absl::string_view kVias[] = {"auto", kSession, kRing};

absl::Status Check(const SessionOptions& options) {
  if (std::find(std::begin(kVias), std::end(kVias), options.via) == std::end(kVias)) {
    return absl::InvalidArgumentError(
        absl::StrCat("via: got \"", options.via, "\"; allowed: ", absl::StrJoin(kVias, ", ")));
  }
  if (options.ring_bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ring_bytes: got ", options.ring_bytes, "; allowed: 1 and more"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Client::OpenSession(const SessionOptions& options) {
  absl::Status status = Check(options);
  if (!status.ok()) return status;
  const absl::Duration timeout = options.timeout.value_or(connection_->options.timeout);
  const absl::StatusOr<ServerInfo> info = GetServerInfo(timeout);
  if (!info.ok()) return info.status();
  const std::string& server = connection_->options.server;
  if (info->max_session_requests == 0) {
    return absl::UnimplementedError(absl::StrCat(server, " has no sessions: its version is ", info->version));
  }
  const auto open = [&] {
    return SessionState::Open(connection_->home.stub, server, connection_->peers, connection_->token, timeout,
                              options.close_timeout, info->max_message_bytes, info->session_idle_timeout);
  };
  std::shared_ptr<SessionState> state = open();
  if (options.via == kSession) return std::unique_ptr<Session>(new Session(std::move(state), nullptr, ""));
  if (info->region_socket.empty()) {
    status = absl::FailedPreconditionError(absl::StrCat(server, " has no region socket for the memory of a ring"));
  } else {
    absl::StatusOr<std::shared_ptr<RingSession>> ring =
        RingSession::Open(state, {.server = server,
                                  .regions = RegionPath(server, info->region_socket),
                                  .arena_bytes = options.ring_bytes,
                                  .timeout = timeout,
                                  .close_timeout = options.close_timeout,
                                  .idle_timeout = info->session_idle_timeout});
    if (ring.ok()) return std::unique_ptr<Session>(new Session(std::move(state), *std::move(ring), ""));
    status = ring.status();
  }
  state->Close();  // an older server ends a session that asks for a ring
  if (options.via == kRing) return status;
  return std::unique_ptr<Session>(new Session(open(), nullptr, std::string(status.message())));
}

Session::Session(std::shared_ptr<SessionState> state, std::shared_ptr<RingSession> ring, std::string why_not_ring)
    : state_(std::move(state)), ring_(std::move(ring)), why_not_ring_(std::move(why_not_ring)) {}

Session::~Session() {
  if (ring_ != nullptr) {
    ring_->Close();
  } else {
    state_->Close();
  }
}

std::string Session::via() const { return std::string(ring_ != nullptr ? kRing : kSession); }

absl::StatusOr<Reply> Session::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options) {
  if (ring_ != nullptr) return ring_->Reduce(array, ops, options);
  return state_->Reduce(state_->Ask(array, ops, options), options);
}

Call Session::ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                          Client::Done done) {
  if (ring_ != nullptr) return ring_->ReduceAsync(array, ops, options, std::move(done));
  return state_->ReduceAsync(state_->Ask(array, ops, options), options, std::move(done));
}

absl::StatusOr<Reply> Session::Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options) {
  if (ring_ != nullptr) return ring_->Reduce(array, ops, options);
  return state_->Reduce(state_->Ask(array, ops, options), options);
}

Call Session::ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                          Client::Done done) {
  if (ring_ != nullptr) return ring_->ReduceAsync(array, ops, options, std::move(done));
  return state_->ReduceAsync(state_->Ask(array, ops, options), options, std::move(done));
}

}  // namespace reduced::client
