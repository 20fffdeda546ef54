#include "server/wire/status.h"

#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/any.pb.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace reduced::server {
namespace {

constexpr char kRetryAfterMs[] = "reduced/retry-after-ms";  // the payload: a decimal number

// A field of protobuf's wire format that has a length: a string or a message.
std::string Field(int number, absl::string_view bytes) {
  std::string field;
  google::protobuf::io::StringOutputStream stream(&field);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(google::protobuf::internal::WireFormatLite::MakeTag(
      number, google::protobuf::internal::WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out.WriteVarint32(static_cast<std::uint32_t>(bytes.size()));
  out.WriteRaw(bytes.data(), static_cast<int>(bytes.size()));
  out.Trim();
  return field;
}

// A google.rpc.Status with a google.rpc.RetryInfo, encoded. Debian does not have their .proto files, and these few
// fields have been the same since there are any: code = 1, message = 2, details = 3; retry_delay = 1.
std::string WithRetryInfo(const absl::Status& status, absl::Duration delay) {
  google::protobuf::Duration wait;
  wait.set_seconds(absl::ToInt64Seconds(delay));
  wait.set_nanos(static_cast<int>(absl::ToInt64Nanoseconds(delay % absl::Seconds(1))));
  google::protobuf::Any info;
  info.set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  info.set_value(Field(1, wait.SerializeAsString()));
  const std::string code = {'\x08', static_cast<char>(status.raw_code())};  // a varint; all codes are below 128
  return absl::StrCat(code, Field(2, status.message()), Field(3, info.SerializeAsString()));
}

}  // namespace

absl::Status WithRetryHint(absl::Status status, absl::Duration delay) {
  status.SetPayload(kRetryAfterMs, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
  return status;
}

std::optional<absl::Duration> RetryHint(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterMs);
  std::int64_t ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

grpc::Status ToGrpc(const absl::Status& status, grpc::CallbackServerContext* context) {
  if (status.ok()) return grpc::Status::OK;
  if (const auto delay = RetryHint(status); delay.has_value()) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(absl::ToInt64Milliseconds(*delay)));
    // gRPC sends the last one as the trailer grpc-status-details-bin.
    return {static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message()),
            WithRetryInfo(status, *delay)};
  }
  return {static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message())};  // the codes are the same
}

}  // namespace reduced::server
