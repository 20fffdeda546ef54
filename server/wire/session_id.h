// The id of a request in a session, for the answer to one that is not decoded.
#ifndef REDUCED_SERVER_WIRE_SESSION_ID_H_
#define REDUCED_SERVER_WIRE_SESSION_ID_H_

#include <cstdint>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::server {

// The id of a SessionRequest whose other fields are passed over; 0 if it has none, or isn't one.
inline std::uint64_t IdOf(grpc::ByteBuffer& message) {
  using google::protobuf::internal::WireFormatLite;
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream in(&reader);
  std::uint64_t id = 0;
  while (const std::uint32_t tag = in.ReadTag()) {
    const bool is_id =
        tag == WireFormatLite::MakeTag(v1::SessionRequest::kIdFieldNumber, WireFormatLite::WIRETYPE_VARINT);
    if (!(is_id ? in.ReadVarint64(&id) : WireFormatLite::SkipField(&in, tag))) break;
  }
  return id;
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_SESSION_ID_H_
