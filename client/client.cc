#include "reduced/client.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/convert.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

absl::Status CheckAddress(const std::string& address) {
  constexpr absl::string_view kUnix = "unix:";
  if (absl::StartsWith(address, kUnix)) {
    if (address.size() > kUnix.size()) return absl::OkStatus();
  } else if (const std::size_t colon = address.rfind(':'); colon != std::string::npos && colon > 0) {
    std::uint32_t port = 0;
    const bool bare_ipv6 = address.find(':') != colon && address[colon - 1] != ']';
    const bool has_port = absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 && port <= 65535;
    if (has_port && !bare_ipv6 && !absl::StrContains(address, '/')) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", address, "\" is not a server address; allowed: host:port, [ipv6]:port, unix:/path"));
}

absl::Status CheckTimeout(absl::Duration timeout) {
  if (timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("timeout ", absl::FormatDuration(timeout), " is not allowed; it must be positive"));
}

// UNAVAILABLE in words that help: no connection (why, without what gRPC puts before it), or the server's own words.
std::string WhyUnavailable(absl::string_view message, absl::string_view server) {
  absl::string_view why;
  if (absl::StrContains(message, "DNS resolution failed")) {
    why = "its name can't be resolved";
  } else if (absl::StrContains(message, "failed to connect to all addresses")) {
    why = message.substr(message.rfind(": ") + 2);  // what comes last is the system's word
  } else {
    return absl::StrCat(server, ": ", message);
  }
  return absl::StrCat("no reduced server answers at ", server, " (", absl::AsciiStrToLower(why), ")");
}

}  // namespace

// What one call needs until it is over. Held by its callback, and by Calls for Cancel().
struct Call::State {
  State(std::shared_ptr<v1::Reduction::Stub> to, const ClientOptions& options,
        std::optional<absl::Duration> own_timeout)
      : stub(std::move(to)), server(options.server), timeout(own_timeout.value_or(options.timeout)) {
    if (timeout != absl::InfiniteDuration()) context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }

  absl::Status Outcome(const grpc::Status& status) const;

  const std::shared_ptr<v1::Reduction::Stub> stub;
  const std::string server;
  const absl::Duration timeout;
  grpc::ClientContext context;
};

absl::Status Call::State::Outcome(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) message = WhyUnavailable(message, server);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    message = absl::StrCat("no answer from ", server, " within ", absl::FormatDuration(timeout));
  }
  if (absl::StrContains(message, "larger than max")) {  // gRPC's own: "... (bytes vs. limit)"
    message = absl::StrCat("the request is larger than ", server, " takes: ", message);
  }
  const auto& metadata = context.GetServerTrailingMetadata();
  if (const auto retry = metadata.find("grpc-retry-pushback-ms"); retry != metadata.end()) {
    absl::StrAppend(&message, "; try again in ", absl::string_view(retry->second.data(), retry->second.size()), " ms");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

namespace {

struct ReduceState : Call::State {
  using Call::State::State;
  v1::ReduceRequest request;
  v1::ReduceResponse response;
  Client::Done done;
};

}  // namespace

void Call::Cancel() {
  if (state_ != nullptr) state_->context.TryCancel();
}

struct Client::Channel {
  std::shared_ptr<v1::Reduction::Stub> stub;
};

Client::Client(ClientOptions options) : options_(std::move(options)), channel_(std::make_unique<Channel>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // arrays go to the server named, by no detour
  channel_->stub =
      v1::Reduction::NewStub(grpc::CreateCustomChannel(options_.server, grpc::InsecureChannelCredentials(), arguments));
}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  absl::Status status = CheckAddress(options.server);
  status.Update(CheckTimeout(options.timeout));
  if (!status.ok()) return status;
  // gRPC lets go of a call a moment after its answer is handed out. If the process ends in between, gRPC's clean-up
  // waits 10 seconds in vain for that call to go: so, in a process that made a client, there is no clean-up.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);
  return std::unique_ptr<Client>(new Client(std::move(options)));
}

Call Client::ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  Call call;
  auto state = std::make_shared<ReduceState>(channel_->stub, options_, options.timeout);
  absl::Status status = CheckTimeout(state->timeout);
  status.Update(ToProto(array, ops, options, &state->request));
  if (!status.ok()) {
    std::move(done)(std::move(status));
    return call;
  }
  state->done = std::move(done);
  call.state_ = state;
  state->stub->async()->Reduce(&state->context, &state->request, &state->response, [state](const grpc::Status& status) {
    // A Call that the caller keeps holds the state; the elements and the callback needn't stay for that.
    Done done = std::exchange(state->done, nullptr);
    v1::ReduceRequest().Swap(&state->request);
    if (status.ok()) {
      std::move(done)(FromProto(state->response));
    } else {
      std::move(done)(state->Outcome(status));
    }
  });
  return call;
}

absl::StatusOr<Reply> Client::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  Call::State state(channel_->stub, options_, options.timeout);
  v1::ReduceRequest request;
  v1::ReduceResponse response;
  absl::Status status = CheckTimeout(state.timeout);
  status.Update(ToProto(array, ops, options, &request));
  if (status.ok()) status = state.Outcome(state.stub->Reduce(&state.context, request, &response));
  if (!status.ok()) return status;
  return FromProto(response);
}

absl::StatusOr<LadderStart> Client::Ladder(const LadderOptions& options,
                                           absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step) {
  Call::State state(channel_->stub, options_, options.timeout);
  v1::LadderRequest request;
  absl::Status status = CheckTimeout(state.timeout);
  status.Update(ToProto(options, &request));
  if (!status.ok()) return status;
  LadderStart start;
  v1::LadderReply reply;
  const auto reader = state.stub->Ladder(&state.context, request);
  while (reader->Read(&reply)) {
    if (reply.has_start()) start = FromProto(reply.start());
    if (reply.has_step()) on_step(start, FromProto(reply.step()));
  }
  status = state.Outcome(reader->Finish());
  if (!status.ok()) return status;
  return start;
}

absl::StatusOr<ServerInfo> Client::GetServerInfo(std::optional<absl::Duration> timeout) {
  Call::State state(channel_->stub, options_, timeout);
  v1::GetServerInfoResponse response;
  absl::Status status = CheckTimeout(state.timeout);
  if (status.ok()) status = state.Outcome(state.stub->GetServerInfo(&state.context, {}, &response));
  if (!status.ok()) return status;
  return FromProto(response);
}

}  // namespace reduced::client
