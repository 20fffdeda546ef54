#include "server/wire/decoded_bytes.h"

#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "server/wire/encode.h"

namespace reduced::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Bounds of what protobuf allocates, with the allocator's own share. A test compares them with the generated messages.
constexpr std::int64_t kMessageBytes = 64;   // an object without fields
constexpr std::int64_t kFieldBytes = 16;     // a field's part of the object, of all fields on average
constexpr std::int64_t kStringBytes = 96;    // a string or bytes, without the contents
constexpr std::int64_t kUnknownBytes = 192;  // a field that is not known, without the contents
// An array that grows by doubling takes up to four times its elements, on an arena that keeps those it has outgrown.
constexpr std::int64_t kGrowth = 4;
constexpr std::int64_t kPlaceBytes = kGrowth * std::int64_t{sizeof(void*)};  // a pointer in one

// The size of an element of a repeated field of numbers.
std::int64_t ElementBytes(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return 1;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_ENUM:
      return 4;
    default:
      return 8;
  }
}

// The bytes of an encoded element, at least.
std::int64_t EncodedBytes(const FieldDescriptor& field) {
  switch (WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()))) {
    case WireFormatLite::WIRETYPE_FIXED32:
      return 4;
    case WireFormatLite::WIRETYPE_FIXED64:
      return 8;
    default:
      return 1;
  }
}

// One walk over a message.
class Walk {
 public:
  explicit Walk(google::protobuf::io::CodedInputStream& input) : input_(input) {}

  // Walks over the next `bytes`, a message of this type.
  absl::StatusOr<std::int64_t> Bytes(std::size_t bytes, const Descriptor& type) {
    if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
        !Message(static_cast<std::uint32_t>(bytes), type)) {
      if (unknown_ > kMaxUnknownFields) {
        return absl::InvalidArgumentError(absl::StrFormat("%s: got more than %d unknown fields; allowed: %d",
                                                          type.name(), kMaxUnknownFields, kMaxUnknownFields));
      }
      return MalformedMessage(type.name());
    }
    return bytes_;
  }

 private:
  // False: the message is malformed, or unknown_ exceeds its limit.
  bool Message(std::uint32_t bytes, const Descriptor& type) {
    bytes_ += kMessageBytes + kFieldBytes * type.field_count() + kPlaceBytes;
    const auto before = input_.IncrementRecursionDepthAndPushLimit(static_cast<int>(bytes));
    // A limit beyond that of the message around it is not taken.
    const bool good = before.second >= 0 && input_.BytesUntilLimit() == static_cast<int>(bytes) && Fields(type);
    return input_.DecrementRecursionDepthAndPopLimit(before.first) && good;
  }

  bool Fields(const Descriptor& type) {
    int groups = 0;  // that the field is in: nothing in them is known
    while (const std::uint32_t tag = input_.ReadTag()) {
      const WireFormatLite::WireType wire = WireFormatLite::GetTagWireType(tag);
      if (wire == WireFormatLite::WIRETYPE_END_GROUP) {
        if (--groups < 0) return false;
        continue;
      }
      const FieldDescriptor* field =
          groups > 0 ? nullptr : type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (!(wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED ? Delimited(field) : Number(field, wire))) return false;
      groups += wire == WireFormatLite::WIRETYPE_START_GROUP;
    }
    return groups == 0 && input_.ConsumedEntireMessage();
  }

  // A string, bytes, a message or a packed field, from its length on. `field`: null if it is not known.
  bool Delimited(const FieldDescriptor* field) {
    std::uint32_t length = 0;
    if (!input_.ReadVarint32(&length) || length > static_cast<std::uint32_t>(input_.BytesUntilLimit())) return false;
    const bool text = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return Message(length, *field->message_type());
    }
    if (text) {
      bytes_ += kStringBytes + kPlaceBytes + length;
    } else if (field != nullptr && field->is_packable()) {
      bytes_ += (length / EncodedBytes(*field)) * ElementBytes(*field) * kGrowth;
    } else if (!Unknown(length)) {
      return false;
    }
    return input_.Skip(static_cast<int>(length));
  }

  // A number, or the start of a group.
  bool Number(const FieldDescriptor* field, WireFormatLite::WireType wire) {
    const bool known = field != nullptr && wire == WireFormatLite::WireTypeForFieldType(
                                                       static_cast<WireFormatLite::FieldType>(field->type()));
    if (!known && !Unknown(0)) return false;
    if (known && field->is_repeated()) bytes_ += ElementBytes(*field) * kGrowth;
    std::uint64_t value = 0;
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT:
        return input_.ReadVarint64(&value);
      case WireFormatLite::WIRETYPE_FIXED32:
        return input_.Skip(4);
      case WireFormatLite::WIRETYPE_FIXED64:
        return input_.Skip(8);
      case WireFormatLite::WIRETYPE_START_GROUP:
        return true;
      default:
        return false;
    }
  }

  bool Unknown(std::int64_t length) {
    bytes_ += kUnknownBytes + length;
    return ++unknown_ <= kMaxUnknownFields;
  }

  google::protobuf::io::CodedInputStream& input_;
  std::int64_t bytes_ = 0;
  int unknown_ = 0;
};

}  // namespace

absl::StatusOr<std::int64_t> DecodedBytes(const grpc::ByteBuffer& encoded, const Descriptor& type) {
  if (!encoded.Valid()) return MalformedMessage(type.name());
  // The reader changes nothing of the buffer.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&encoded));
  google::protobuf::io::CodedInputStream input(&reader);
  return Walk(input).Bytes(encoded.Length(), type);
}

absl::StatusOr<std::int64_t> DecodedBytes(absl::string_view encoded, const Descriptor& type) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(encoded.data()),
                                               static_cast<int>(encoded.size()));
  return Walk(input).Bytes(encoded.size(), type);
}

}  // namespace reduced::server
