#include "reduced/client.h"

#include <grpc/grpc.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/credentials.h"
#include "client/lib/session.h"
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

// Parts that an array may have: StreamPart.parts.
constexpr int kMaxConnections = 64;
constexpr unsigned kManyCores = 8;  // from here on a large array goes over several connections

// Of one chunk. Larger ones are no faster; the message that it is in fits in 1 MiB.
constexpr std::int64_t kChunkBytes = (std::int64_t{1} << 20) - 1024;

// What is asked of an array, and how it is sent.
struct Question {
  v1::ReduceRequest request;  // without the elements
  std::int64_t bytes = 0;     // of them, if they are sent
  absl::string_view via;
};

absl::StatusOr<Question> Ask(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                             const ClientOptions& defaults) {
  Question question;
  absl::Status status = CheckTimeout(options.timeout.value_or(defaults.timeout));
  status.Update(ToProto(array, question.request.mutable_array()));
  status.Update(ToProto(ops, options, &question.request));
  if (!status.ok()) return status;
  question.bytes = *ArrayBytes(array.dtype, array.shape);
  const absl::StatusOr<absl::string_view> via = ChooseVia(options.via, question.bytes);
  if (!via.ok()) return via.status();
  question.via = *via;
  return question;
}

absl::StatusOr<Question> Ask(const RemoteArray& array, const std::vector<std::string>& ops,
                             const ReduceOptions& options, const ClientOptions& defaults) {
  Question question{.request = {}, .via = array.id().empty() ? kShm : kArray};
  absl::Status status = CheckTimeout(options.timeout.value_or(defaults.timeout));
  status.Update(ToProto(array, &question.request));
  status.Update(ToProto(ops, options, &question.request));
  if (!status.ok()) return status;
  return question;
}

// What a call sends whose messages are a header, then chunks.
template <class Request>
struct StreamMethod;
template <>
struct StreamMethod<v1::ReduceStreamRequest> {
  using Response = v1::ReduceResponse;
  static constexpr char kName[] = "/reduced.v1.Reduction/ReduceStream";
};
template <>
struct StreamMethod<v1::PutArrayRequest> {
  using Response = v1::PutArrayResponse;
  static constexpr char kName[] = "/reduced.v1.Reduction/PutArray";
};

// The messages of such a call, one after the other. Chunks are copied: gRPC may hold what it sends beyond the end of a
// call that fails.
class StreamMessages {
 public:
  // `first` has the header.
  StreamMessages(const google::protobuf::MessageLite& first, const void* data, std::int64_t bytes)
      : next_(static_cast<const char*>(data)), left_(bytes) {
    const grpc::Slice slice(first.SerializeAsString());
    header_ = grpc::ByteBuffer(&slice, 1);
  }

  bool done() const { return !header_.Valid() && left_ == 0; }
  std::int64_t left() const { return left_; }  // bytes of the elements

  grpc::ByteBuffer Next() {
    if (header_.Valid()) return std::exchange(header_, grpc::ByteBuffer());
    const std::int64_t bytes = std::min(left_, kChunkBytes);
    // Field 2 of either request, length-delimited: the tag, the length, and the elements.
    static_assert(+v1::ReduceStreamRequest::kChunkFieldNumber == +v1::PutArrayRequest::kChunkFieldNumber);
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

// 32 hexadecimal digits, at random.
std::string RandomName() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&name, absl::Hex(random(), absl::kZeroPad8));
  return name;
}

StreamMessages MessagesOf(const Question& question, const void* data) {
  v1::ReduceStreamRequest first;
  *first.mutable_header() = question.request;
  return {first, data, question.bytes};
}

// The same of each part of an array, cut at these bytes: see CutInParts.
std::vector<StreamMessages> MessagesOf(const Question& question, const ArrayView& array,
                                       const std::vector<std::int64_t>& cuts) {
  const std::int64_t width = *DTypeBytes(array.dtype);
  v1::ReduceStreamRequest first;
  *first.mutable_header() = question.request;
  v1::StreamPart& part = *first.mutable_stream_part();
  part.set_upload(RandomName());
  part.set_parts(static_cast<std::int32_t>(cuts.size() - 1));
  std::vector<StreamMessages> messages;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int64_t bytes = cuts[i + 1] - cuts[i];
    part.set_index(static_cast<std::int32_t>(i));
    part.set_first(cuts[i] / width);
    part.set_count(bytes / width);
    messages.emplace_back(first, static_cast<const char*>(array.data) + cuts[i], bytes);
  }
  return messages;
}

// The call's outcome, or what it was answered.
template <class Response>
absl::StatusOr<Response> StreamAnswer(const RpcState& state, const grpc::Status& status, grpc::ByteBuffer* answer) {
  const absl::Status outcome = state.Outcome(status);
  if (!outcome.ok()) return outcome;
  Response response;
  if (answer->Valid() && grpc::SerializationTraits<Response>::Deserialize(answer, &response).ok()) return response;
  return absl::InternalError(absl::StrCat(state.server, " sent no answer that this client can read"));
}

absl::StatusOr<Reply> StreamReplyOf(const absl::StatusOr<v1::ReduceResponse>& response) {
  if (!response.ok()) return response.status();
  return ReplyOf(*response, kStream);
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
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context, StreamMethod<v1::ReduceStreamRequest>::kName, {},
                                                        this);
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
    std::move(done)(StreamReplyOf(StreamAnswer<v1::ReduceResponse>(*this, status, &answer_)));
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
template <class Request>
absl::StatusOr<typename StreamMethod<Request>::Response> StreamAndWait(RpcState& state,
                                                                       const std::shared_ptr<grpc::Channel>& channel,
                                                                       StreamMessages messages,
                                                                       const OnProgress& on_progress) {
  const std::int64_t total = messages.left();
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = grpc::GenericStub(channel).PrepareCall(&state.context, StreamMethod<Request>::kName, &queue);
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
    if (open && on_progress != nullptr) on_progress(total - messages.left(), total);
  }
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  step();
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  queue.Shutdown();
  step();
  return StreamAnswer<typename StreamMethod<Request>::Response>(state, status, &answer);
}

// The streams of one array's parts, each on a thread and a connection of its own, and how they end: with the answer, or
// with the first error that is the cause of the others.
class PartStreams {
 public:
  PartStreams(const Connection& connection, const ReduceOptions& options, std::size_t parts)
      : connection_(connection), on_progress_(options.on_progress) {
    for (std::size_t i = 0; i < parts; ++i) states_.emplace_back(connection, options.timeout);
  }

  absl::StatusOr<Reply> Reduce(std::vector<StreamMessages> messages) {
    for (const StreamMessages& part : messages) total_ += part.left();
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < states_.size(); ++i) {
        threads.emplace_back([this, i, &part = messages[i]] { Send(i, std::move(part)); });
      }
      Send(0, std::move(messages[0]));
    }
    const absl::MutexLock lock(&mutex_);
    if (!cause_.ok()) return cause_;
    if (!aborted_.ok()) return aborted_;
    return StreamReplyOf(response_);
  }

 private:
  void Send(std::size_t part, StreamMessages messages) {
    const auto on_progress = [this, before = std::int64_t{0}](std::int64_t sent, std::int64_t /*of the part*/) mutable {
      const absl::MutexLock lock(&progress_mutex_);
      sent_ += sent - std::exchange(before, sent);
      on_progress_(sent_, total_);
    };
    absl::StatusOr<v1::ReduceResponse> response =
        StreamAndWait<v1::ReduceStreamRequest>(states_[part], connection_.parts[part], std::move(messages),
                                               on_progress_ == nullptr ? OnProgress() : OnProgress(on_progress));
    {
      const absl::MutexLock lock(&mutex_);
      if (response.ok()) {
        if (part == 0) response_ = *std::move(response);  // all have the same
        return;
      }
      // The server's word that another part failed: that part's own is the cause, and on its way.
      if (absl::IsAborted(response.status())) return aborted_.Update(response.status());
      if (!cause_.ok()) return;
      cause_ = response.status();
    }
    // The server may not know of this part: it can't tell the others.
    for (RpcState& state : states_) state.Cancel();
  }

  const Connection& connection_;
  const OnProgress on_progress_;
  std::int64_t total_ = 0;  // bytes of all parts
  absl::Mutex progress_mutex_;
  std::int64_t sent_ ABSL_GUARDED_BY(progress_mutex_) = 0;  // of them
  std::deque<RpcState> states_;
  absl::Mutex mutex_;
  v1::ReduceResponse response_ ABSL_GUARDED_BY(mutex_);
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

// One Reduce, its request complete.
absl::StatusOr<Reply> ReduceAndWait(RpcState& state, const Question& question) {
  v1::ReduceResponse response;
  const absl::Status status = state.Outcome(state.stub->Reduce(&state.context, question.request, &response));
  if (!status.ok()) return status;
  return ReplyOf(response, question.via);
}

// The same without waiting.
std::shared_ptr<Call::State> StartReduce(const Connection& connection, const ReduceOptions& options, Question question,
                                         Client::Done done) {
  auto state = std::make_shared<ReduceState>(connection, options.timeout);
  state->request = std::move(question.request);
  state->done = std::move(done);
  state->stub->async()->Reduce(&state->context, &state->request, &state->response,
                               [state, via = question.via](const grpc::Status& status) {
                                 // A Call that the caller keeps holds the state; the elements and the callback needn't
                                 // stay for that.
                                 Client::Done done = std::exchange(state->done, nullptr);
                                 v1::ReduceRequest().Swap(&state->request);
                                 if (status.ok()) {
                                   std::move(done)(ReplyOf(state->response, via));
                                 } else {
                                   std::move(done)(state->Outcome(status));
                                 }
                               });
  return state;
}

absl::Status DeleteAndWait(const Connection& connection, const std::string& id, const std::string& owner,
                           std::optional<absl::Duration> timeout) {
  RpcState state(connection, timeout);
  const absl::Status status = CheckTimeout(state.timeout);
  if (!status.ok()) return status;
  v1::DeleteArrayRequest request;
  request.set_id(id);
  request.set_owner(owner);
  v1::DeleteArrayResponse response;
  return state.Outcome(state.stub->DeleteArray(&state.context, request, &response));
}

// Where the region socket is for this process, by the server's word: where both share no more than the folder of their
// sockets (two containers, say), that folder has other names for the two.
std::string RegionPath(absl::string_view server, const std::string& path) {
  if (!absl::ConsumePrefix(&server, "unix:")) return path;
  const std::filesystem::path here = std::filesystem::path(std::string(server)).parent_path();
  const std::filesystem::path beside = here / std::filesystem::path(path).filename();
  std::error_code unused;
  return std::filesystem::exists(beside, unused) ? beside.string() : path;
}

std::shared_ptr<Connection> Connect(ClientOptions options, Secured secured) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // arrays go to the server named, by no detour
  if (!secured.server_name.empty()) arguments.SetSslTargetNameOverride(secured.server_name);
  auto connection = std::make_shared<Connection>();
  connection->token = std::move(secured.token);
  connection->options = std::move(options);
  for (int i = 0; i < connection->options.connections; ++i) {
    connection->parts.push_back(grpc::CreateCustomChannel(connection->options.server, secured.credentials, arguments));
  }
  connection->channel = connection->parts.front();
  connection->stub = v1::Reduction::NewStub(connection->channel);
  return connection;
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
  // Used: the compiler must not drop the pointer, by which a leak checker finds what is kept.
  [[gnu::used]] static const Kept* const kept = [] {
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

ResidentArray::ResidentArray(std::shared_ptr<const Connection> connection, ArrayInfo info)
    : connection_(std::move(connection)), info_(std::move(info)) {}
ResidentArray::ResidentArray(ResidentArray&& other) noexcept = default;  // a shared pointer moved from is null
ResidentArray::~ResidentArray() { Delete(); }

ResidentArray& ResidentArray::operator=(ResidentArray&& other) noexcept {
  if (this == &other) return *this;
  Delete();
  connection_ = std::move(other.connection_);
  info_ = std::move(other.info_);
  return *this;
}

const std::string& ResidentArray::Release() {
  connection_.reset();
  return info_.id;
}

// Whatever comes of it, there is nothing left to do: what isn't deleted expires.
void ResidentArray::Delete() {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  if (connection_ == nullptr) return;
  DeleteAndWait(*connection_, info_.id, info_.owner, std::min(kPatience, connection_->options.timeout)).IgnoreError();
  connection_.reset();
}

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  absl::Status status = CheckAddress(options.server);
  status.Update(CheckTimeout(options.timeout));
  if (options.connections < 0 || options.connections > kMaxConnections) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("connections ", options.connections, " is not allowed; it must be from 1 to ", kMaxConnections)));
  }
  if (!status.ok()) return status;
  absl::StatusOr<Secured> secured = Secure(options);
  if (!secured.ok()) return secured.status();
  if (options.connections == 0) options.connections = std::thread::hardware_concurrency() >= kManyCores ? 4 : 1;
  // gRPC lets go of a call a moment after its answer is handed out. If the process ends in between, gRPC's clean-up
  // waits 10 seconds in vain for that call to go: so, in a process that made a client, there is no clean-up.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);
  return std::unique_ptr<Client>(new Client(Connect(std::move(options), *std::move(secured))));
}

Call Client::ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Question> question = Ask(array, ops, options, connection_->options);
  if (!question.ok()) {
    std::move(done)(question.status());
  } else if (question->via == kStream) {
    auto state = std::make_shared<StreamState>(*connection_, options.timeout);
    call.state_ = state;
    state->Start(state, connection_->channel, MessagesOf(*question, array.data), std::move(done));
  } else {
    question->request.set_inline_data(array.data, static_cast<std::size_t>(question->bytes));
    call.state_ = StartReduce(*connection_, options, *std::move(question), std::move(done));
  }
  return call;
}

Call Client::ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                         Done done) {
  KeepCallbackThreads();
  Call call;
  absl::StatusOr<Question> question = Ask(array, ops, options, connection_->options);
  if (question.ok()) {
    call.state_ = StartReduce(*connection_, options, *std::move(question), std::move(done));
  } else {
    std::move(done)(question.status());
  }
  return call;
}

absl::StatusOr<Reply> Client::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  absl::StatusOr<Question> question = Ask(array, ops, options, connection_->options);
  if (!question.ok()) return question.status();
  const std::vector<std::int64_t> cuts = CutInParts(question->bytes, connection_->options.connections);
  if (question->via == kStream && cuts.size() > 2) {
    return PartStreams(*connection_, options, cuts.size() - 1).Reduce(MessagesOf(*question, array, cuts));
  }
  RpcState state(*connection_, options.timeout);
  if (question->via == kStream) {
    return StreamReplyOf(StreamAndWait<v1::ReduceStreamRequest>(
        state, connection_->channel, MessagesOf(*question, array.data), options.on_progress));
  }
  question->request.set_inline_data(array.data, static_cast<std::size_t>(question->bytes));
  return ReduceAndWait(state, *question);
}

absl::StatusOr<Reply> Client::Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                                     const ReduceOptions& options) {
  const absl::StatusOr<Question> question = Ask(array, ops, options, connection_->options);
  if (!question.ok()) return question.status();
  RpcState state(*connection_, options.timeout);
  return ReduceAndWait(state, *question);
}

absl::StatusOr<MergeReply> Client::Merge(const std::vector<std::string>& states, const MergeOptions& options) {
  RpcState state(*connection_, options.timeout);
  v1::MergeRequest request;
  absl::Status status = CheckTimeout(state.timeout);
  status.Update(ToProto(states, options, &request));
  if (!status.ok()) return status;
  v1::MergeResponse response;
  status = state.Outcome(state.stub->Merge(&state.context, request, &response));
  if (!status.ok()) return status;
  return FromProto(response);
}

absl::StatusOr<ResidentArray> Client::Put(const ArrayView& array, const PutOptions& options) {
  RpcState state(*connection_, options.timeout);
  v1::PutArrayRequest first;
  absl::Status status = CheckTimeout(state.timeout);
  status.Update(ToProto(array, options, first.mutable_header()));
  if (!status.ok()) return status;
  const absl::StatusOr<v1::PutArrayResponse> response = StreamAndWait<v1::PutArrayRequest>(
      state, connection_->channel, {first, array.data, *ArrayBytes(array.dtype, array.shape)}, options.on_progress);
  if (!response.ok()) return response.status();
  return ResidentArray(connection_, FromProto(response->array()));
}

absl::StatusOr<Region> Client::Share(int file, const ShareOptions& options) {
  v1::RegionRequest request;
  request.mutable_share_memory()->set_pin(options.pin);
  return ShareAs(request, file, options);
}

absl::StatusOr<Region> Client::Share(const SharedBuffer& buffer, const ShareOptions& options) {
  return Share(buffer.file(), options);
}

absl::StatusOr<Region> Client::Share(const ArrayView& array, const ShareOptions& options) {
  const absl::StatusOr<std::int64_t> bytes = ArrayBytes(array.dtype, array.shape);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(*bytes);
  if (!buffer.ok()) return buffer.status();
  if (*bytes > 0) std::memcpy(buffer->data(), array.data, static_cast<std::size_t>(*bytes));
  return Share(*buffer, options);
}

absl::StatusOr<Region> Client::ShareDevice(const DeviceMemory& memory, const ShareOptions& options) {
  v1::RegionRequest request;
  v1::ShareDevice& device = *request.mutable_share_device();
  device.set_handle(memory.handle);
  device.set_device_uuid(memory.device_uuid);
  device.set_offset(memory.offset);
  device.set_bytes(memory.bytes);
  device.set_event(memory.event);
  return ShareAs(request, -1, options);
}

absl::StatusOr<Region> Client::ShareAs(const v1::RegionRequest& request, int file, const ShareOptions& options) {
  const absl::Duration timeout = options.timeout.value_or(connection_->options.timeout);
  const absl::Status status = CheckTimeout(timeout);
  if (!status.ok()) return status;
  const absl::Time deadline = absl::Now() + timeout;
  absl::StatusOr<std::shared_ptr<Region::Connection>> regions = Regions(deadline);
  if (!regions.ok()) return regions.status();
  const absl::StatusOr<v1::RegionReply> reply = (*regions)->Ask(request, file, deadline);
  if (!reply.ok()) return reply.status();
  return Region(*std::move(regions), reply->token(), reply->bytes());
}

// The connection to the region socket, opened if there is none or it is over.
absl::StatusOr<std::shared_ptr<Region::Connection>> Client::Regions(absl::Time deadline) {
  const absl::MutexLock lock(&connection_->mutex);
  std::shared_ptr<Region::Connection>& regions = connection_->regions;
  if (regions != nullptr && !regions->over()) return regions;
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("the time was over before the region socket was asked for");
  }
  const absl::StatusOr<ServerInfo> info = GetServerInfo(left);
  if (!info.ok()) return info.status();
  if (info->region_socket.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(connection_->options.server, " takes no shared memory: it has no region socket"));
  }
  auto opened = Region::Connection::Open(RegionPath(connection_->options.server, info->region_socket), deadline);
  if (opened.ok()) regions = *opened;
  return opened;
}

absl::StatusOr<std::vector<ArrayInfo>> Client::ListArrays(const std::string& owner,
                                                          std::optional<absl::Duration> timeout) {
  RpcState state(*connection_, timeout);
  v1::ListArraysRequest request;
  request.set_owner(owner);
  v1::ListArraysResponse response;
  absl::Status status = CheckTimeout(state.timeout);
  if (status.ok()) status = state.Outcome(state.stub->ListArrays(&state.context, request, &response));
  if (!status.ok()) return status;
  std::vector<ArrayInfo> arrays;
  for (const v1::ArrayInfo& array : response.arrays()) arrays.push_back(FromProto(array));
  return arrays;
}

absl::Status Client::DeleteArray(const std::string& id, const std::string& owner,
                                 std::optional<absl::Duration> timeout) {
  return DeleteAndWait(*connection_, id, owner, timeout);
}

absl::StatusOr<std::unique_ptr<Session>> Client::OpenSession(const SessionOptions& options) {
  const absl::Duration timeout = options.timeout.value_or(connection_->options.timeout);
  const absl::StatusOr<ServerInfo> info = GetServerInfo(timeout);
  if (!info.ok()) return info.status();
  if (info->max_session_requests == 0) {
    return absl::UnimplementedError(
        absl::StrCat(connection_->options.server, " has no sessions: it is of version ", info->version));
  }
  return std::unique_ptr<Session>(
      new Session(SessionState::Open(connection_->stub, connection_->options.server, connection_->token.get(), timeout,
                                     options.close_timeout, info->max_message_bytes)));
}

absl::StatusOr<LadderStart> Client::Ladder(const LadderOptions& options,
                                           absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step) {
  RpcState state(*connection_, options.timeout);
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
  RpcState state(*connection_, timeout);
  v1::GetServerInfoResponse response;
  absl::Status status = CheckTimeout(state.timeout);
  if (status.ok()) status = state.Outcome(state.stub->GetServerInfo(&state.context, {}, &response));
  if (!status.ok()) return status;
  return FromProto(response);
}

}  // namespace reduced::client
