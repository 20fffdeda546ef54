// Responses of the calls whose messages are handled as bytes.
#ifndef REDUCED_SERVER_WIRE_ENCODE_H_
#define REDUCED_SERVER_WIRE_ENCODE_H_

#include "absl/status/status.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"

namespace reduced::server {

// Encodes a message. INTERNAL: it cannot be, because it is larger than 2 GiB.
template <class Message>
absl::Status Encode(const Message& message, grpc::ByteBuffer* bytes) {
  bool own_buffer = false;
  if (grpc::SerializationTraits<Message>::Serialize(message, bytes, &own_buffer).ok()) return absl::OkStatus();
  return absl::InternalError("the response cannot be encoded");
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_ENCODE_H_
