// The bound of what decoding takes, against what protobuf allocates.
#include "server/wire/decoded_bytes.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::server {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::testing::HasSubstr;

constexpr int kDeep = 4;  // levels of messages that are filled

const Descriptor& ReduceRequest() { return *v1::ReduceRequest::descriptor(); }

std::string Repeat(const std::string& bytes, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += bytes;
  return all;
}

std::int64_t Bound(absl::string_view encoded, const Descriptor& type) {
  const absl::StatusOr<std::int64_t> bytes = DecodedBytes(encoded, type);
  EXPECT_TRUE(bytes.ok()) << bytes.status() << " " << absl::CHexEscape(encoded.substr(0, 100));
  return bytes.value_or(0);
}

// In a slice for each piece.
grpc::ByteBuffer InSlices(const std::vector<std::string>& pieces) {
  std::vector<grpc::Slice> slices(pieces.begin(), pieces.end());
  return {slices.data(), slices.size()};
}

// Sets every field, repeated ones to so many elements.
void Fill(int elements, int levels, Message* message) {
  const auto* const reflection = message->GetReflection();
  const Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    for (int n = 0; n < (field->is_repeated() ? elements : 1); ++n) {
      const auto set = [&](auto add, auto set, auto value) {
        field->is_repeated() ? (reflection->*add)(message, field, value) : (reflection->*set)(message, field, value);
      };
      using R = google::protobuf::Reflection;
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_BOOL:
          set(&R::AddBool, &R::SetBool, true);
          break;
        case FieldDescriptor::CPPTYPE_INT32:
          set(&R::AddInt32, &R::SetInt32, 1);
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          set(&R::AddUInt32, &R::SetUInt32, 1);
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          set(&R::AddInt64, &R::SetInt64, 1);
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          set(&R::AddUInt64, &R::SetUInt64, 1);
          break;
        case FieldDescriptor::CPPTYPE_FLOAT:
          set(&R::AddFloat, &R::SetFloat, 1);
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          set(&R::AddDouble, &R::SetDouble, 1);
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          set(&R::AddEnumValue, &R::SetEnumValue, 1);
          break;
        case FieldDescriptor::CPPTYPE_STRING:
          field->is_repeated() ? reflection->AddString(message, field, std::string(20, 'x'))
                               : reflection->SetString(message, field, std::string(20, 'x'));
          break;
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (levels > 0) {
            Fill(elements, levels - 1,
                 field->is_repeated() ? reflection->AddMessage(message, field)
                                      : reflection->MutableMessage(message, field));
          }
          break;
      }
    }
  }
}

// Every message of the API, empty and full, on the heap and on an arena.
TEST(DecodedBytesTest, IsABoundOfWhatMessagesTake) {
  const auto& file = *v1::ReduceRequest::descriptor()->file();
  for (int i = 0; i < file.message_type_count(); ++i) {
    const Descriptor& type = *file.message_type(i);
    const Message& empty = *google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
    for (const int elements : {0, 1, 5}) {
      SCOPED_TRACE(absl::StrCat(type.name(), ", ", elements));
      const std::unique_ptr<Message> message(empty.New());
      if (elements > 0) Fill(elements, kDeep, message.get());
      const std::string encoded = message->SerializeAsString();
      const std::unique_ptr<Message> decoded(empty.New());
      ASSERT_TRUE(decoded->ParseFromString(encoded));
      const std::int64_t bound = Bound(encoded, type);
      EXPECT_GE(bound, static_cast<std::int64_t>(decoded->SpaceUsedLong()));
      EXPECT_LE(bound, 256 + 8 * static_cast<std::int64_t>(decoded->SpaceUsedLong()));
      google::protobuf::Arena arena;
      ASSERT_TRUE(empty.New(&arena)->ParseFromString(encoded));
      EXPECT_GE(bound, static_cast<std::int64_t>(arena.SpaceUsed()));
    }
  }
}

// Many elements of a repeated field, in each of the ways to encode them.
TEST(DecodedBytesTest, RepeatedNumbers) {
  const Descriptor& type = *v1::ArraySpec::descriptor();
  const std::string unpacked = Repeat(std::string("\x10\x01", 2), 1000);
  const std::string packed = absl::StrCat("\x12\xe8\x07", std::string(1000, '\x01'));
  for (const std::string& encoded : {unpacked, packed}) {
    google::protobuf::Arena arena;
    auto* const decoded = google::protobuf::Arena::CreateMessage<v1::ArraySpec>(&arena);
    ASSERT_TRUE(decoded->ParseFromString(encoded));
    ASSERT_EQ(decoded->shape_size(), 1000);
    EXPECT_GE(Bound(encoded, type), static_cast<std::int64_t>(arena.SpaceUsed()));
    EXPECT_GE(Bound(encoded, type), 8000);
    EXPECT_LE(Bound(encoded, type), 33'000);
  }
}

// Elements are counted once, and not looked at.
TEST(DecodedBytesTest, Contents) {
  constexpr std::size_t kSize = 1 << 20;
  v1::ReduceRequest request;
  request.set_inline_data(std::string(kSize, '\xff'));
  const std::int64_t bound = Bound(request.SerializeAsString(), ReduceRequest());
  EXPECT_GE(bound, kSize);
  EXPECT_LE(bound, kSize + 1024);
}

// Fields that this version does not know, or that have another type.
TEST(DecodedBytesTest, UnknownFields) {
  const std::string unknown("\xfa\x3e\x00", 3);  // field 1007
  const auto array_of = [](const std::string& encoded) {
    v1::ReduceRequest request;
    std::string array;
    array.push_back('\x0a');
    for (std::size_t size = encoded.size(); true; size >>= 7) {
      array.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
      if (size <= 0x7f) return array + encoded;
    }
  };
  const struct {
    const char* what;
    std::string field;
    int times = kMaxUnknownFields;  // that are allowed
  } cases[] = {
      {"bytes", unknown},
      {"a number", std::string("\xf8\x3e\x01", 3)},
      {"32 bits", std::string("\xfd\x3e\x01\x02\x03\x04", 6)},
      {"64 bits", std::string("\xf9\x3e\x01\x02\x03\x04\x05\x06\x07\x08", 10)},
      {"a known field of another type", std::string("\x0d\x01\x02\x03\x04", 5)},
      {"a group", std::string("\xfb\x3e\xfc\x3e", 4)},
      {"a known field in a group", std::string("\xfb\x3e\x08\x01\xfc\x3e", 6), kMaxUnknownFields / 2},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.what);
    const std::string most = Repeat(each.field, each.times);
    for (const std::string& encoded : {most, array_of(most)}) {
      v1::ReduceRequest decoded;
      ASSERT_TRUE(decoded.ParseFromString(encoded));
      EXPECT_GE(Bound(encoded, ReduceRequest()), static_cast<std::int64_t>(decoded.SpaceUsedLong()));
    }
    // Those of all messages count together.
    const std::string more = most + each.field;
    for (const std::string& encoded : {more, array_of(more), array_of(most) + each.field}) {
      const absl::Status status = DecodedBytes(encoded, ReduceRequest()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("ReduceRequest: got more than 1000 unknown fields; allowed: 1000"));
    }
  }
  // Their contents count.
  EXPECT_GE(Bound(absl::StrCat("\xfa\x3e\xe8\x07", std::string(1000, 'x')), ReduceRequest()), 1000);
}

TEST(DecodedBytesTest, Malformed) {
  for (const std::string& bytes : {
           std::string("\xff"),                                // half a tag
           std::string("\x00", 1),                             // field 0
           std::string("\x0a"),                                // without its length
           std::string("\x0a\x05\x08"),                        // less than its length
           std::string("\x0a\x02\x12\x05zzzzz"),               // longer than what it is in
           std::string("\x0a\xff\xff\xff\xff\x07"),            // 2 GiB
           std::string("\x0a\xff\xff\xff\xff\x0f"),            // 4 GiB
           std::string("\xfa\x3e\xff\xff\xff\xff\x0f"),        // of a field that is not known
           std::string("\xf8\x3e") + std::string(11, '\xff'),  // a number without end
           std::string("\xf9\x3e\x01\x02"),                    // half a number
           std::string("\xfc\x3e"),                            // the end of no group
           std::string("\xfb\x3e"),                            // a group without end
           std::string("\x0e"),                                // a wire type that there is not
       }) {
    SCOPED_TRACE(absl::CHexEscape(bytes));
    const absl::Status status = DecodedBytes(bytes, ReduceRequest()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("message: got bytes that are not a ReduceRequest"));
    EXPECT_FALSE(DecodedBytes(InSlices({bytes}), ReduceRequest()).ok());
    EXPECT_FALSE(v1::ReduceRequest().ParseFromString(bytes));
  }
  EXPECT_FALSE(DecodedBytes(grpc::ByteBuffer(), ReduceRequest()).ok());
  // Groups in groups take no stack.
  EXPECT_FALSE(DecodedBytes(Repeat("\xfb\x3e", 1 << 20), ReduceRequest()).ok());
}

// Wherever a message is cut: into slices, it has the same bound; cut off, it is refused wherever the parser does.
TEST(DecodedBytesTest, Cut) {
  v1::ReduceRequest request;
  Fill(2, kDeep, &request);
  const std::string whole = request.SerializeAsString();
  const std::int64_t bound = Bound(whole, ReduceRequest());
  std::vector<std::string> single;
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    const std::string head = whole.substr(0, cut);
    EXPECT_EQ(DecodedBytes(InSlices({head, "", whole.substr(cut)}), ReduceRequest()).value_or(0), bound) << cut;
    EXPECT_EQ(DecodedBytes(head, ReduceRequest()).ok(), v1::ReduceRequest().ParseFromString(head)) << cut;
    EXPECT_EQ(DecodedBytes(InSlices({head}), ReduceRequest()).ok(), v1::ReduceRequest().ParseFromString(head)) << cut;
    if (cut > 0) single.push_back(whole.substr(cut - 1, 1));
  }
  EXPECT_EQ(DecodedBytes(InSlices(single), ReduceRequest()).value_or(0), bound);
}

}  // namespace
}  // namespace reduced::server
