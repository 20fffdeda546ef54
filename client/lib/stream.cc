#include "client/lib/stream.h"

#include <grpc/slice.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"

namespace reduced::client {
namespace {

constexpr char kReduceStream[] = "/reduced.v1.Reduction/ReduceStream";
constexpr char kPutArray[] = "/reduced.v1.Reduction/PutArray";

// The bytes of one chunk. Larger chunks are no faster. The message with the chunk fits in 1 MiB.
constexpr std::int64_t kChunkBytes = (std::int64_t{1} << 20) - 1024;

template <class Response>
absl::StatusOr<Response> Decoded(const RpcState& state, grpc::ByteBuffer* encoded) {
  Response response;
  if (encoded->Valid() && grpc::SerializationTraits<Response>::Deserialize(encoded, &response).ok()) return response;
  return absl::InternalError(absl::StrCat(state.server, " sent a response that this client can't decode"));
}

template <class Response>
absl::StatusOr<Response> StreamAndWait(RpcState& state, const char* method, StreamMessages messages,
                                       const OnProgress& on_progress, const Interrupted& interrupted) {
  const std::int64_t total = messages.left();
  std::int64_t sent = 0;
  CallQueue events(state, interrupted);
  const auto call = grpc::GenericStub(state.backend.channel).PrepareCall(&state.context, method, &events.queue());
  call->StartCall(nullptr);
  state.watch.Started();
  bool open = events.Next();
  absl::Status unread;
  while (open && !messages.done()) {
    const absl::StatusOr<grpc::ByteBuffer> message = messages.Next();
    if (!message.ok()) {
      unread = message.status();
      state.Cancel();
      break;
    }
    if (messages.done()) {
      call->WriteLast(*message, grpc::WriteOptions(), nullptr);
    } else {
      call->Write(*message, nullptr);
    }
    open = events.Next();
    if (open) sent = total - messages.left();
    if (open && on_progress != nullptr) on_progress(sent, total);
  }
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  events.Next();
  grpc::Status status;
  call->Finish(&status, nullptr);
  events.Next();
  events.End();
  state.repeatable = unread.ok() && !messages.spent();
  if (!unread.ok()) return unread;
  if (events.interrupted() && !status.ok()) return InterruptedError();
  absl::Status outcome = AfterBytes(state.Outcome(state.Seen(status)), sent, total);
  if (absl::IsUnavailable(outcome) && messages.spent()) {
    outcome = WithMessage(outcome,
                          absl::StrCat(outcome.message(), "; they can be read only once, so they aren't sent again"));
  }
  if (!outcome.ok()) return outcome;
  return Decoded<Response>(state, &response);
}

// One attempt of a ReduceStream with a callback. It deletes itself when the attempt has ended.
class StreamAttempt final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Done = std::function<void(const grpc::Status&, std::int64_t)>;

  StreamAttempt(RpcState& state, StreamMessages messages, grpc::ByteBuffer* response, Done done)
      : total_(messages.left()), messages_(std::move(messages)), done_(std::move(done)) {
    grpc::GenericStub(state.backend.channel).PrepareBidiStreamingCall(&state.context, kReduceStream, {}, this);
    Write();
    StartRead(response);
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (ok) sent_ = total_ - messages_.left();
    if (ok && !messages_.done()) Write();
  }

  void OnDone(const grpc::Status& status) override {
    const Done done = std::move(done_);
    const std::int64_t sent = sent_;
    delete this;
    done(status, sent);
  }

 private:
  void Write() {
    message_ = *messages_.Next();  // no reader, no error
    if (messages_.done()) {
      StartWriteLast(&message_, grpc::WriteOptions());
    } else {
      StartWrite(&message_);
    }
  }

  const std::int64_t total_;            // bytes of the elements
  std::atomic<std::int64_t> sent_ = 0;  // of them
  StreamMessages messages_;
  Done done_;
  grpc::ByteBuffer message_;
};

}  // namespace

StreamMessages::StreamMessages(const google::protobuf::MessageLite& first, const ArrayView& array, std::int64_t from,
                               std::int64_t bytes)
    : arrays_{ArrayOf(v1::ReduceStreamRequest::kChunkFieldNumber, array, from, bytes)} {
  static_assert(+v1::ReduceStreamRequest::kChunkFieldNumber == +v1::PutArrayRequest::kChunkFieldNumber);
  const grpc::Slice slice(first.SerializeAsString());
  header_ = grpc::ByteBuffer(&slice, 1);
}

StreamMessages::Array StreamMessages::ArrayOf(int field, const ArrayView& array, std::int64_t from,
                                              std::int64_t bytes) {
  return {.field = field,
          .width = *DTypeBytes(array.dtype),
          .data = static_cast<const char*>(array.data),
          .read = array.reader.read,
          .in_order = array.reader.read != nullptr && array.reader.in_order,
          .from = from,
          .next = from,
          .left = bytes};
}

void StreamMessages::Add(int field, const ArrayView& array) {
  arrays_.push_back(ArrayOf(field, array, 0, *ArrayBytes(array.dtype, array.shape)));
}

bool StreamMessages::spent() const {
  return std::ranges::any_of(arrays_, [](const Array& array) { return array.in_order && array.next > array.from; });
}

std::int64_t StreamMessages::left() const {
  std::int64_t bytes = 0;
  for (const Array& array : arrays_) bytes += array.left;
  return bytes;
}

absl::StatusOr<grpc::ByteBuffer> StreamMessages::Next() {
  if (header_.Valid()) return std::exchange(header_, grpc::ByteBuffer());
  // The array of which the fewest elements are in messages. Chunks of several arrays have as many elements each.
  std::int64_t width = 1;
  Array* next = nullptr;
  for (Array& array : arrays_) {
    width = std::max(width, array.width);
    if (array.left == 0) continue;
    if (next == nullptr || array.next / array.width < next->next / next->width) next = &array;
  }
  Array& array = *next;
  const std::int64_t bytes =
      std::min(array.left, arrays_.size() == 1 ? kChunkBytes : kChunkBytes / width * array.width);
  // The field of a request, length-delimited: the tag, the length and the elements.
  std::string prefix(1, static_cast<char>(array.field << 3 | 2));
  for (std::int64_t size = bytes; size > 0; size >>= 7) {
    prefix.push_back(static_cast<char>((size & 0x7f) | (size >= 0x80 ? 0x80 : 0)));
  }
  const auto size = static_cast<std::size_t>(bytes);
  grpc_slice chunk = grpc_slice_malloc(size);
  auto* const to = reinterpret_cast<char*>(GRPC_SLICE_START_PTR(chunk));
  const std::int64_t at = array.next;
  array.next += bytes;
  array.left -= bytes;
  if (array.read == nullptr) {
    std::memcpy(to, array.data + at, size);
  } else if (const absl::Status status = array.read(at, to, bytes); !status.ok()) {
    grpc_slice_unref(chunk);
    return status;
  }
  // Only now: a small slice has its bytes in itself.
  const grpc::Slice slices[] = {grpc::Slice(prefix), grpc::Slice(chunk, grpc::Slice::STEAL_REF)};
  return grpc::ByteBuffer(slices, std::size(slices));
}

absl::StatusOr<v1::ReduceResponse> ReduceStreamAndWait(RpcState& state, StreamMessages messages,
                                                       const OnProgress& on_progress, const Interrupted& interrupted) {
  return StreamAndWait<v1::ReduceResponse>(state, kReduceStream, std::move(messages), on_progress, interrupted);
}

absl::StatusOr<v1::PutArrayResponse> PutArrayAndWait(RpcState& state, StreamMessages messages,
                                                     const OnProgress& on_progress, const Interrupted& interrupted) {
  return StreamAndWait<v1::PutArrayResponse>(state, kPutArray, std::move(messages), on_progress, interrupted);
}

absl::Status AfterBytes(const absl::Status& outcome, std::int64_t sent, std::int64_t total) {
  if (!absl::IsUnavailable(outcome) || sent == 0) return outcome;
  return WithMessage(outcome, absl::StrCat(outcome.message(), " after ", sent, " of ", total, " bytes were sent"));
}

void StartReduceStream(RpcState& state, StreamMessages messages, grpc::ByteBuffer* response,
                       std::function<void(const grpc::Status&, std::int64_t)> done) {
  new StreamAttempt(state, std::move(messages), response, std::move(done));
}

absl::StatusOr<v1::ReduceResponse> StreamResponse(const RpcState& state, grpc::ByteBuffer* encoded) {
  return Decoded<v1::ReduceResponse>(state, encoded);
}

}  // namespace reduced::client
