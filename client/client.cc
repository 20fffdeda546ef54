#include "reduced/client.h"

#include <grpc/grpc.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
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
    if (timeout != absl::InfiniteDuration()) context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }

  absl::Status Outcome(const grpc::Status& status) const;

  const std::shared_ptr<v1::Reduction::Stub> stub;
  const std::string server;
  const absl::Duration timeout;
  absl::Mutex mutex;  // for Cancel, which may come while the context goes
  std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
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
  const auto& metadata = context->GetServerTrailingMetadata();
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

// Protobuf holds messages of less than 2 GiB; a MiB is left for everything but the elements.
constexpr std::int64_t kMaxInlineBytes = std::numeric_limits<std::int32_t>::max() - (std::int64_t{1} << 20);
// From here on a stream is faster than one message: tests/bench/bench_stream.
constexpr std::int64_t kStreamFromBytes = std::int64_t{512} << 10;
// Of one chunk. Larger ones are no faster; the message that it is in fits in 1 MiB.
constexpr std::int64_t kChunkBytes = (std::int64_t{1} << 20) - 1024;

constexpr absl::string_view kInline = "inline";
constexpr absl::string_view kStream = "stream";

// How an array of that size is sent: kInline or kStream.
absl::StatusOr<absl::string_view> ChooseVia(const std::string& via, std::int64_t bytes) {
  if (via == "auto") return bytes < kStreamFromBytes ? kInline : kStream;
  if (via == kStream) return kStream;
  if (via != kInline) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown via \"", via, "\"; allowed: ", absl::StrJoin(ViaNames(), ", ")));
  }
  if (bytes <= kMaxInlineBytes) return kInline;
  return absl::InvalidArgumentError(absl::StrCat("the array has ", bytes, " bytes; an inline request can hold ",
                                                 kMaxInlineBytes, ", a stream any number"));
}

Reply ReplyOf(const v1::ReduceResponse& response, absl::string_view via) {
  Reply reply = FromProto(response);
  reply.via = std::string(via);
  return reply;
}

// An array on its way in chunks, which gRPC sends from where they lie: over when the server has answered and gRPC has
// let go of the last of them.
class StreamState final : public Call::State, public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Call::State::State;

  // `self`: this; holds itself until it is over.
  void Start(std::shared_ptr<StreamState> self, const std::shared_ptr<grpc::Channel>& channel,
             const v1::ReduceRequest& request, const void* data, std::int64_t bytes, Client::Done done) {
    self_ = std::move(self);
    next_ = static_cast<const char*>(data);
    left_ = bytes;
    done_ = std::move(done);
    v1::ReduceStreamRequest header;
    *header.mutable_header() = request;
    bool own_buffer = false;
    const grpc::Status encoded =
        grpc::SerializationTraits<v1::ReduceStreamRequest>::Serialize(header, &message_, &own_buffer);
    if (!encoded.ok()) {
      outcome_ = absl::InternalError("the header can't be encoded");
      return LetGo();
    }
    grpc::GenericStub(channel).PrepareBidiStreamingCall(context.get(), "/reduced.v1.Reduction/ReduceStream", {}, this);
    Write();
    StartRead(&response_);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    message_.Clear();               // else it would hold on to its chunk
    if (!ok || left_ == 0) return;  // the call is over, or all is written
    const std::int64_t bytes = std::min(left_, kChunkBytes);
    // Field 2 of ReduceStreamRequest, length-delimited: the tag, the length, and the elements themselves.
    std::string prefix(1, static_cast<char>(v1::ReduceStreamRequest::kChunkFieldNumber << 3 | 2));
    for (std::int64_t size = bytes; size > 0; size >>= 7) {
      prefix.push_back(static_cast<char>((size & 0x7f) | (size >= 0x80 ? 0x80 : 0)));
    }
    held_.fetch_add(1);
    const grpc::Slice slices[] = {grpc::Slice(prefix),
                                  grpc::Slice(
                                      const_cast<char*>(next_), static_cast<std::size_t>(bytes),
                                      [](void* state) { static_cast<StreamState*>(state)->LetGo(); }, this)};
    message_ = grpc::ByteBuffer(slices, std::size(slices));
    next_ += bytes;
    left_ -= bytes;
    Write();
  }
  void OnReadDone(bool ok) override { answered_ = ok; }
  void OnDone(const grpc::Status& status) override {
    outcome_ = Outcome(status);
    // gRPC keeps what a call failed to send for as long as it has the call, which the context holds.
    std::unique_ptr<grpc::ClientContext> gone;
    {
      const absl::MutexLock lock(&mutex);
      gone = std::move(context);
    }
    gone.reset();
    LetGo();
  }

 private:
  void Write() {
    if (left_ == 0) {
      StartWriteLast(&message_, grpc::WriteOptions());
    } else {
      StartWrite(&message_);
    }
  }

  // Counts out the call or one of its chunks: the last one ends it.
  void LetGo() {
    if (held_.fetch_sub(1) != 1) return;
    const std::shared_ptr<StreamState> self = std::move(self_);
    Client::Done done = std::exchange(done_, nullptr);
    v1::ReduceResponse response;
    absl::Status status = outcome_;
    if (status.ok() &&
        !(answered_ && grpc::SerializationTraits<v1::ReduceResponse>::Deserialize(&response_, &response).ok())) {
      status = absl::InternalError(absl::StrCat(server, " sent no answer that this client can read"));
    }
    if (!status.ok()) return std::move(done)(std::move(status));
    std::move(done)(ReplyOf(response, kStream));
  }

  std::shared_ptr<StreamState> self_;
  const char* next_ = nullptr;  // of the elements, the first that has not been written
  std::int64_t left_ = 0;       // bytes from there on
  Client::Done done_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer response_;
  bool answered_ = false;
  absl::Status outcome_;
  std::atomic<int> held_ = 1;  // chunks that gRPC holds, and the call
};

}  // namespace

void Call::Cancel() {
  if (state_ == nullptr) return;
  const absl::MutexLock lock(&state_->mutex);
  if (state_->context != nullptr) state_->context->TryCancel();
}

struct Client::Channel {
  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<v1::Reduction::Stub> stub;
};

Client::Client(ClientOptions options) : options_(std::move(options)), channel_(std::make_unique<Channel>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // arrays go to the server named, by no detour
  channel_->channel = grpc::CreateCustomChannel(options_.server, grpc::InsecureChannelCredentials(), arguments);
  channel_->stub = v1::Reduction::NewStub(channel_->channel);
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
  v1::ReduceRequest request;
  absl::Status status = CheckTimeout(options.timeout.value_or(options_.timeout));
  status.Update(ToProto(array, ops, options, &request));
  const std::int64_t bytes = status.ok() ? *ArrayBytes(array.dtype, array.shape) : 0;
  const absl::StatusOr<absl::string_view> via = ChooseVia(options.via, bytes);
  status.Update(via.status());
  if (!status.ok()) {
    std::move(done)(std::move(status));
    return call;
  }
  if (*via == kStream) {
    auto state = std::make_shared<StreamState>(channel_->stub, options_, options.timeout);
    call.state_ = state;
    state->Start(state, channel_->channel, request, array.data, bytes, std::move(done));
    return call;
  }
  auto state = std::make_shared<ReduceState>(channel_->stub, options_, options.timeout);
  call.state_ = state;
  state->request = std::move(request);
  state->request.set_inline_data(array.data, static_cast<std::size_t>(bytes));
  state->done = std::move(done);
  state->stub->async()->Reduce(state->context.get(), &state->request, &state->response,
                               [state](const grpc::Status& status) {
                                 // A Call that the caller keeps holds the state; the elements and the callback needn't
                                 // stay for that.
                                 Done done = std::exchange(state->done, nullptr);
                                 v1::ReduceRequest().Swap(&state->request);
                                 if (status.ok()) {
                                   std::move(done)(ReplyOf(state->response, kInline));
                                 } else {
                                   std::move(done)(state->Outcome(status));
                                 }
                               });
  return call;
}

absl::StatusOr<Reply> Client::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  absl::StatusOr<Reply> reply;
  absl::Notification over;
  ReduceAsync(array, ops, options, [&](absl::StatusOr<Reply> result) {
    reply = std::move(result);
    over.Notify();
  });
  over.WaitForNotification();
  return reply;
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
  const auto reader = state.stub->Ladder(state.context.get(), request);
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
  if (status.ok()) status = state.Outcome(state.stub->GetServerInfo(state.context.get(), {}, &response));
  if (!status.ok()) return status;
  return FromProto(response);
}

}  // namespace reduced::client
