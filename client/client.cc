#include "reduced/client.h"

#include <grpc/grpc.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/call.h"
#include "client/convert.h"
#include "client/session.h"
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

struct ReduceState : RpcState {
  using RpcState::RpcState;
  v1::ReduceRequest request;
  v1::ReduceResponse response;
  Client::Done done;
};

// Of one chunk. Larger ones are no faster; the message that it is in fits in 1 MiB.
constexpr std::int64_t kChunkBytes = (std::int64_t{1} << 20) - 1024;

// What is asked of an array of `bytes`, and how it is sent.
struct Question {
  v1::ReduceRequest request;  // without a source
  std::int64_t bytes = 0;
  absl::string_view via;
};

absl::StatusOr<Question> Ask(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                             const ClientOptions& defaults) {
  Question question;
  absl::Status status = CheckTimeout(options.timeout.value_or(defaults.timeout));
  status.Update(ToProto(array, ops, options, &question.request));
  if (!status.ok()) return status;
  question.bytes = *ArrayBytes(array.dtype, array.shape);
  const absl::StatusOr<absl::string_view> via = ChooseVia(options.via, question.bytes);
  if (!via.ok()) return via.status();
  question.via = *via;
  return question;
}

constexpr char kStreamMethod[] = "/reduced.v1.Reduction/ReduceStream";

// The messages of a ReduceStream, one after the other. Chunks are copied: gRPC may hold what it sends beyond the end of
// a call that fails.
class StreamMessages {
 public:
  StreamMessages(const v1::ReduceRequest& request, const void* data, std::int64_t bytes)
      : next_(static_cast<const char*>(data)), left_(bytes) {
    v1::ReduceStreamRequest header;
    *header.mutable_header() = request;
    const grpc::Slice slice(header.SerializeAsString());
    header_ = grpc::ByteBuffer(&slice, 1);
  }

  bool done() const { return !header_.Valid() && left_ == 0; }

  grpc::ByteBuffer Next() {
    if (header_.Valid()) return std::exchange(header_, grpc::ByteBuffer());
    const std::int64_t bytes = std::min(left_, kChunkBytes);
    // Field 2 of ReduceStreamRequest, length-delimited: the tag, the length, and the elements.
    std::string prefix(1, static_cast<char>(v1::ReduceStreamRequest::kChunkFieldNumber << 3 | 2));
    for (std::int64_t size = bytes; size > 0; size >>= 7) {
      prefix.push_back(static_cast<char>((size & 0x7f) | (size >= 0x80 ? 0x80 : 0)));
    }
    const grpc::Slice slices[] = {grpc::Slice(prefix), grpc::Slice(next_, static_cast<std::size_t>(bytes))};
    next_ += bytes;
    left_ -= bytes;
    return {slices, std::size(slices)};
  }

 private:
  grpc::ByteBuffer header_;     // until it is sent
  const char* next_ = nullptr;  // of the elements, the first that is not sent
  std::int64_t left_ = 0;       // bytes from there on
};

absl::StatusOr<Reply> StreamReply(const RpcState& state, const absl::Status& status, grpc::ByteBuffer* answer) {
  if (!status.ok()) return status;
  v1::ReduceResponse response;
  if (answer->Valid() && grpc::SerializationTraits<v1::ReduceResponse>::Deserialize(answer, &response).ok()) {
    return ReplyOf(response, kStream);
  }
  return absl::InternalError(absl::StrCat(state.server, " sent no answer that this client can read"));
}

// A ReduceStream without waiting. Holds itself until it is over.
class StreamState final : public RpcState, public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using RpcState::RpcState;

  void Start(std::shared_ptr<StreamState> self, const std::shared_ptr<grpc::Channel>& channel, StreamMessages messages,
             Client::Done done) {
    self_ = std::move(self);
    messages_ = std::move(messages);
    done_ = std::move(done);
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context, kStreamMethod, {}, this);
    Write();
    StartRead(&answer_);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (ok && !messages_->done()) Write();
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<StreamState> self = std::move(self_);
    Client::Done done = std::exchange(done_, nullptr);
    message_.Clear();
    std::move(done)(StreamReply(*this, Outcome(status), &answer_));
  }

 private:
  void Write() {
    message_ = messages_->Next();
    if (messages_->done()) {
      StartWriteLast(&message_, grpc::WriteOptions());
    } else {
      StartWrite(&message_);
    }
  }

  std::shared_ptr<StreamState> self_;
  std::optional<StreamMessages> messages_;
  Client::Done done_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
};

// The same on this thread alone: when it returns, gRPC has nothing more to do for it.
absl::StatusOr<Reply> StreamAndWait(RpcState& state, const std::shared_ptr<grpc::Channel>& channel,
                                    StreamMessages messages) {
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = grpc::GenericStub(channel).PrepareCall(&state.context, kStreamMethod, &queue);
  call->StartCall(nullptr);
  bool open = step();
  while (open && !messages.done()) {
    const grpc::ByteBuffer message = messages.Next();
    if (messages.done()) {
      call->WriteLast(message, grpc::WriteOptions(), nullptr);
    } else {
      call->Write(message, nullptr);
    }
    open = step();
  }
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  step();
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  queue.Shutdown();
  step();
  return StreamReply(state, state.Outcome(status), &answer);
}

// gRPC's callbacks run on threads that go with the last channel that has used them. If that goes in one of those
// callbacks, they are still at work on what is freed: so one channel stays for good, whose only call fails at once.
void KeepCallbackThreads() {
  struct Kept {
    const std::shared_ptr<grpc::Channel> channel =
        grpc::CreateChannel("unix:/dev/null", grpc::InsecureChannelCredentials());
    grpc::ClientContext context;
    const grpc::Slice nothing{};
    const grpc::ByteBuffer request{&nothing, 1};
    grpc::ByteBuffer answer{};
    absl::Notification over{};
  };
  [[maybe_unused]] static const Kept* const kept = [] {
    auto* const first = new Kept;
    first->context.set_deadline(absl::ToChronoTime(absl::Now()));
    grpc::GenericStub(first->channel)
        .UnaryCall(&first->context, "/", {}, &first->request, &first->answer,
                   [first](const grpc::Status&) { first->over.Notify(); });
    first->over.WaitForNotificationWithTimeout(absl::Seconds(1));
    return first;
  }();
}

}  // namespace

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
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Question> question = Ask(array, ops, options, options_);
  if (!question.ok()) {
    std::move(done)(question.status());
    return call;
  }
  if (question->via == kStream) {
    auto state = std::make_shared<StreamState>(channel_->stub, options_, options.timeout);
    call.state_ = state;
    state->Start(state, channel_->channel, {question->request, array.data, question->bytes}, std::move(done));
    return call;
  }
  auto state = std::make_shared<ReduceState>(channel_->stub, options_, options.timeout);
  call.state_ = state;
  state->request = std::move(question->request);
  state->request.set_inline_data(array.data, static_cast<std::size_t>(question->bytes));
  state->done = std::move(done);
  state->stub->async()->Reduce(&state->context, &state->request, &state->response, [state](const grpc::Status& status) {
    // A Call that the caller keeps holds the state; the elements and the callback needn't stay for that.
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
  absl::StatusOr<Question> question = Ask(array, ops, options, options_);
  if (!question.ok()) return question.status();
  RpcState state(channel_->stub, options_, options.timeout);
  if (question->via == kStream) {
    return StreamAndWait(state, channel_->channel, {question->request, array.data, question->bytes});
  }
  question->request.set_inline_data(array.data, static_cast<std::size_t>(question->bytes));
  v1::ReduceResponse response;
  const absl::Status status = state.Outcome(state.stub->Reduce(&state.context, question->request, &response));
  if (!status.ok()) return status;
  return ReplyOf(response, kInline);
}

absl::StatusOr<std::unique_ptr<Session>> Client::OpenSession(const SessionOptions& options) {
  const absl::Duration timeout = options.timeout.value_or(options_.timeout);
  const absl::StatusOr<ServerInfo> info = GetServerInfo(timeout);
  if (!info.ok()) return info.status();
  if (info->max_session_requests == 0) {
    return absl::UnimplementedError(
        absl::StrCat(options_.server, " has no sessions: it is of version ", info->version));
  }
  return std::unique_ptr<Session>(new Session(
      SessionState::Open(channel_->stub, options_.server, timeout, options.close_timeout, info->max_message_bytes)));
}

absl::StatusOr<LadderStart> Client::Ladder(const LadderOptions& options,
                                           absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step) {
  RpcState state(channel_->stub, options_, options.timeout);
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
  RpcState state(channel_->stub, options_, timeout);
  v1::GetServerInfoResponse response;
  absl::Status status = CheckTimeout(state.timeout);
  if (status.ok()) status = state.Outcome(state.stub->GetServerInfo(&state.context, {}, &response));
  if (!status.ok()) return status;
  return FromProto(response);
}

}  // namespace reduced::client
