// The messages of the calls that handle them as bytes.
#ifndef REDUCED_SERVER_WIRE_ENCODE_H_
#define REDUCED_SERVER_WIRE_ENCODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "kernels/engine/memory_budget.h"
#include "server/wire/decoded_bytes.h"
#include "server/wire/status.h"

namespace reduced::server {

// Checks the size of a request message before anything else of it is looked at. gRPC itself has no limit: it would see
// the size only once the whole message is there, too, and its error would have no request id. RESOURCE_EXHAUSTED: the
// message is larger than `allowed`.
inline absl::Status CheckMessageSize(std::size_t bytes, std::int64_t allowed) {
  if (static_cast<std::int64_t>(bytes) <= allowed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("message: got %d bytes; allowed: %d (--max_message_bytes); send larger arrays in the chunks of "
                      "ReduceStream or PutArray",
                      bytes, allowed));
}

// That a request message cannot be decoded. `name`: of its type.
inline absl::Status MalformedMessage(absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrFormat("message: got bytes that are not a %s; allowed: an encoded one", name));
}

// Who pays for the memory of a call. What is small has a budget of its own: who holds much may still call.
struct CallPayers {
  static constexpr std::int64_t kSmallBytes = 64 << 10;

  const MemoryPayer& Of(std::int64_t bytes) const { return bytes <= kSmallBytes ? small : large; }

  MemoryPayer small, large;
};

// What a message may take without being counted: what is counted for the call itself has room for it.
inline constexpr std::int64_t kUncountedBytes = 1024;

// Makes `lease` one of what the encoded message takes decoded: before it is decoded, until it is gone.
// INVALID_ARGUMENT: see DecodedBytes. RESOURCE_EXHAUSTED, with a retry hint: there is no memory.
template <class Message, class Bytes>
absl::Status HoldDecoded(const Bytes& encoded, const CallPayers& payers, MemoryLease* lease) {
  const absl::StatusOr<std::int64_t> bytes = DecodedBytes(encoded, *Message::descriptor());
  if (!bytes.ok()) return bytes.status();
  if (*bytes <= kUncountedBytes) return absl::OkStatus();
  const absl::Status status = lease->Resize(payers.Of(*bytes), *bytes, "the message of a request");
  return status.ok() ? status : WithRetryHint(status, kMemoryRetryDelay);
}

// Decodes a message, whose bytes are freed; its memory is held by `lease`. Errors: as HoldDecoded, which leave the
// bytes as they are; INVALID_ARGUMENT: they are no such message.
template <class Message>
absl::Status Decode(grpc::ByteBuffer* bytes, const CallPayers& payers, MemoryLease* lease, Message* message) {
  if (absl::Status status = HoldDecoded<Message>(*bytes, payers, lease); !status.ok()) return status;
  if (grpc::SerializationTraits<Message>::Deserialize(bytes, message).ok()) return absl::OkStatus();
  return MalformedMessage(Message::descriptor()->name());
}

// Makes every piece of the encoded message hold the lease. The transport has references to the pieces until they are
// in the socket, or their connection has ended: longer than any call, which is done for gRPC once flow control has let
// the last byte pass, and longer than the server.
void HoldUntilSent(std::shared_ptr<const MemoryLease> lease, grpc::ByteBuffer* bytes);

// Encodes a message. INTERNAL: it cannot be, because it is larger than 2 GiB.
template <class Message>
absl::Status EncodeUncounted(const Message& message, grpc::ByteBuffer* bytes) {
  bool own_buffer = false;
  if (grpc::SerializationTraits<Message>::Serialize(message, bytes, &own_buffer).ok()) return absl::OkStatus();
  return absl::InternalError("the response cannot be encoded");
}

// Encodes a response, whose bytes are counted until they are sent. They are moved out of `lease`, which grows first if
// they are not in it yet. RESOURCE_EXHAUSTED, with a retry hint: there is no memory. INTERNAL: as EncodeUncounted.
template <class Message>
absl::Status Encode(const Message& message, const CallPayers& payers, MemoryLease* lease, grpc::ByteBuffer* bytes) {
  const auto size = static_cast<std::int64_t>(message.ByteSizeLong());
  if (size <= kUncountedBytes) {
    const grpc::Slice slice(static_cast<std::size_t>(size));  // whose bytes nobody else has yet
    message.SerializeWithCachedSizesToArray(const_cast<std::uint8_t*>(slice.begin()));
    grpc::ByteBuffer encoded(&slice, 1);
    bytes->Swap(&encoded);
    return absl::OkStatus();
  }
  if (size > lease->bytes()) {
    const absl::Status status = lease->Resize(payers.Of(size), size, "a response");
    if (!status.ok()) return WithRetryHint(status, kMemoryRetryDelay);
  }
  const absl::Status status = EncodeUncounted(message, bytes);
  if (status.ok()) HoldUntilSent(MemoryLease::Share(lease->Split(size)), bytes);
  return status;
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_ENCODE_H_
