#include "client/lib/stream.h"

#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/convert.h"
#include "client/lib/via.h"

namespace reduced::client {
namespace {

constexpr char kReduceStream[] = "/reduced.v1.Reduction/ReduceStream";
constexpr char kPutArray[] = "/reduced.v1.Reduction/PutArray";

// The bytes of one chunk. Larger chunks are no faster. The message with the chunk fits in 1 MiB.
constexpr std::int64_t kChunkBytes = (std::int64_t{1} << 20) - 1024;

// The error of the call, or the response.
template <class Response>
absl::StatusOr<Response> ResponseOf(const RpcState& state, const grpc::Status& status, grpc::ByteBuffer* encoded) {
  const absl::Status outcome = state.Outcome(status);
  if (!outcome.ok()) return outcome;
  Response response;
  if (encoded->Valid() && grpc::SerializationTraits<Response>::Deserialize(encoded, &response).ok()) return response;
  return absl::InternalError(absl::StrCat(state.server, " sent a response that this client can't decode"));
}

template <class Response>
absl::StatusOr<Response> StreamAndWait(RpcState& state, const char* method, StreamMessages messages,
                                       const OnProgress& on_progress) {
  const std::int64_t total = messages.left();
  grpc::CompletionQueue queue;
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = grpc::GenericStub(state.backend.channel).PrepareCall(&state.context, method, &queue);
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
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  step();
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  queue.Shutdown();
  step();
  return ResponseOf<Response>(state, status, &response);
}

// A ReduceStream with a callback. It owns itself until the call ends.
class StreamCall final : public RpcState, public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using RpcState::RpcState;

  void Start(std::shared_ptr<StreamCall> self, StreamMessages messages, Client::Done done) {
    self_ = std::move(self);
    messages_ = std::move(messages);
    done_ = std::move(done);
    grpc::GenericStub(backend.channel).PrepareBidiStreamingCall(&context, kReduceStream, {}, this);
    Write();
    StartRead(&response_);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (ok && !messages_->done()) Write();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<StreamCall> self = std::move(self_);
    Client::Done done = std::exchange(done_, nullptr);
    message_.Clear();
    std::move(done)(ToReply(ResponseOf<v1::ReduceResponse>(*this, status, &response_), kStream));
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

  std::shared_ptr<StreamCall> self_;
  std::optional<StreamMessages> messages_;
  Client::Done done_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer response_;
};

}  // namespace

StreamMessages::StreamMessages(const google::protobuf::MessageLite& first, const void* data, std::int64_t bytes)
    : next_(static_cast<const char*>(data)), left_(bytes) {
  const grpc::Slice slice(first.SerializeAsString());
  header_ = grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer StreamMessages::Next() {
  if (header_.Valid()) return std::exchange(header_, grpc::ByteBuffer());
  const std::int64_t bytes = std::min(left_, kChunkBytes);
  // Field 2 of both requests, length-delimited: the tag, the length and the elements.
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

absl::StatusOr<v1::ReduceResponse> ReduceStreamAndWait(RpcState& state, StreamMessages messages,
                                                       const OnProgress& on_progress) {
  return StreamAndWait<v1::ReduceResponse>(state, kReduceStream, std::move(messages), on_progress);
}

absl::StatusOr<v1::PutArrayResponse> PutArrayAndWait(RpcState& state, StreamMessages messages,
                                                     const OnProgress& on_progress) {
  return StreamAndWait<v1::PutArrayResponse>(state, kPutArray, std::move(messages), on_progress);
}

std::shared_ptr<Call::State> StartReduceStream(const Connection& connection, const ReduceOptions& options,
                                               StreamMessages messages, Client::Done done) {
  auto call = std::make_shared<StreamCall>(connection, connection.parts.front(), options.timeout);
  call->Start(call, std::move(messages), std::move(done));
  return call;
}

}  // namespace reduced::client
