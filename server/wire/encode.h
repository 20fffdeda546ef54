// The messages of the calls that handle them as bytes.
#ifndef REDUCED_SERVER_WIRE_ENCODE_H_
#define REDUCED_SERVER_WIRE_ENCODE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"

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

// Decodes a message, whose bytes are freed. INVALID_ARGUMENT: they are not one.
template <class Message>
absl::Status Decode(grpc::ByteBuffer* bytes, Message* message) {
  if (grpc::SerializationTraits<Message>::Deserialize(bytes, message).ok()) return absl::OkStatus();
  return MalformedMessage(Message::descriptor()->name());
}

// Encodes a message. INTERNAL: it cannot be, because it is larger than 2 GiB.
template <class Message>
absl::Status Encode(const Message& message, grpc::ByteBuffer* bytes) {
  bool own_buffer = false;
  if (grpc::SerializationTraits<Message>::Serialize(message, bytes, &own_buffer).ok()) return absl::OkStatus();
  return absl::InternalError("the response cannot be encoded");
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_ENCODE_H_
