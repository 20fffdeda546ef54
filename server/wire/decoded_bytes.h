// What decoding a message takes, found out without decoding it: by protobuf's parser, fields of two bytes become
// objects of a hundred.
#ifndef REDUCED_SERVER_WIRE_DECODED_BYTES_H_
#define REDUCED_SERVER_WIRE_DECODED_BYTES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/support/byte_buffer.h"

namespace reduced::server {

// Fields of one message, those within it included, that this version does not know. Newer clients send a few.
inline constexpr int kMaxUnknownFields = 1000;

// A bound of the memory that an encoded message of this type takes decoded, on an arena or not. The contents of strings
// and bytes are skipped. INVALID_ARGUMENT: the message has more unknown fields than the limit, or is malformed. Of what
// passes, the parser may still find that it is malformed.
absl::StatusOr<std::int64_t> DecodedBytes(const grpc::ByteBuffer& encoded, const google::protobuf::Descriptor& type);
absl::StatusOr<std::int64_t> DecodedBytes(absl::string_view encoded, const google::protobuf::Descriptor& type);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_DECODED_BYTES_H_
