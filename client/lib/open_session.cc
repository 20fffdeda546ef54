// Client::OpenSession and the methods of Session, which go through a ring if there is one.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
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
#include "client/lib/convert.h"
#include "client/lib/region_connection.h"
#include "client/lib/ring_session.h"
#include "client/lib/session.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"
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

// The path of the region socket on this machine of the server at home.
absl::StatusOr<std::string> FindRegions(const Connection& connection, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const ServerInfo info, AskServerInfo(connection, timeout));
  return RegionPath(connection.options.server, info.region_socket);
}

// Why there can be no ring, as far as this can be told without asking for one: that costs round trips, and with an
// older server the session. `regions`: the path of the region socket on this machine.
absl::Status CheckRing(const std::string& server, const ServerInfo& info, const std::string& regions) {
  if (info.max_ring_bytes == 0) {
    return absl::FailedPreconditionError(absl::StrCat(server, " has no rings (--max_ring_bytes=0)"));
  }
  if (info.region_socket.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(server, " has no region socket for the memory of a ring"));
  }
  std::error_code error;
  if (std::filesystem::is_socket(regions, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this machine has no socket ", regions, ", the region socket of ", server));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Client::OpenSession(const SessionOptions& options) {
  absl::Status status = Check(options);
  if (!status.ok()) return status;
  const absl::Duration timeout = options.timeout.value_or(connection_->options.timeout);
  ASSIGN_OR_RETURN(const ServerInfo info, GetServerInfo(timeout));
  const std::string& server = connection_->options.server;
  if (info.max_session_requests == 0) {
    return absl::UnimplementedError(absl::StrCat(server, " has no sessions: its version is ", info.version));
  }
  const auto open = [&] {
    return SessionState::Open(connection_, {.timeout = timeout,
                                            .close_timeout = options.close_timeout,
                                            .max_message_bytes = info.max_message_bytes,
                                            .max_operands = info.max_operands,
                                            .idle_timeout = info.session_idle_timeout});
  };
  if (options.via == kSession) return std::unique_ptr<Session>(new Session(connection_, open(), nullptr, ""));
  const std::string regions = RegionPath(server, info.region_socket);
  status = CheckRing(server, info, regions);
  if (status.ok()) {
    // A session that takes what it gets takes a smaller arena, too.
    const std::int64_t bytes =
        options.via == kRing ? options.ring_bytes : std::min(options.ring_bytes, info.max_ring_bytes);
    std::shared_ptr<SessionState> state = open();
    absl::StatusOr<std::shared_ptr<RingSession>> ring = RingSession::Open(
        state,
        {.server = server,
         .regions = regions,
         .find_regions = [connection = connection_](absl::Duration left) { return FindRegions(*connection, left); },
         .arena_bytes = bytes,
         .timeout = timeout,
         .close_timeout = options.close_timeout,
         .idle_timeout = info.session_idle_timeout});
    if (ring.ok()) return std::unique_ptr<Session>(new Session(connection_, std::move(state), *std::move(ring), ""));
    status = ring.status();
    state->Close();  // the server may have ended it
  }
  if (options.via == kRing) return status;
  return std::unique_ptr<Session>(new Session(connection_, open(), nullptr, std::string(status.message())));
}

Session::Session(std::shared_ptr<Connection> connection, std::shared_ptr<SessionState> state,
                 std::shared_ptr<RingSession> ring, std::string why_not_ring)
    : connection_(std::move(connection)),
      state_(std::move(state)),
      ring_(std::move(ring)),
      why_not_ring_(std::move(why_not_ring)) {}

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

template <class Array>
absl::StatusOr<ArrayReply> Session::ReduceToArrays(const Array& array, const std::vector<std::string>& ops,
                                                   const PartitionOptions& partition, const ReduceOptions& options) {
  v1::ReduceResponse response;
  ASSIGN_OR_RETURN(Reply reply, ring_ != nullptr
                                    ? ring_->Reduce(array, ops, options, &partition, &response)
                                    : state_->Reduce(state_->Ask(array, ops, options, &partition), options, &response));
  return ToArrayReply(std::move(reply), ops, response);
}

absl::StatusOr<ArrayReply> Session::ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                                const PartitionOptions& partition, const ReduceOptions& options) {
  return ReduceToArrays(array, ops, partition, options);
}

absl::StatusOr<ArrayReply> Session::ReduceArray(const RemoteArray& array, const std::vector<std::string>& ops,
                                                const PartitionOptions& partition, const ReduceOptions& options) {
  return ReduceToArrays(array, ops, partition, options);
}

}  // namespace reduced::client
