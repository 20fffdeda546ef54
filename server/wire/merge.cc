#include "server/wire/merge.h"

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/merge.h"
#include "server/wire/decoded_bytes.h"
#include "server/wire/encode.h"

namespace reduced::server {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr std::uint32_t kStates =
    WireFormatLite::MakeTag(v1::MergeRequest::kStatesFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr std::uint32_t kReturnState =
    WireFormatLite::MakeTag(v1::MergeRequest::kReturnStateFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr std::uint32_t kOmitResults =
    WireFormatLite::MakeTag(v1::MergeRequest::kOmitResultsFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr std::uint32_t kOpErrors =
    WireFormatLite::MakeTag(v1::MergeRequest::kOpErrorsFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr std::uint32_t kArrays =
    WireFormatLite::MakeTag(v1::MergeRequest::kArraysFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

constexpr int kFieldsBetweenStops = 1024;

// What an output takes at most: as a state with exact sums, then in the response and in its encoding.
constexpr std::int64_t kOutputBytes = 6144;
// What a key takes at most. No key is encoded in less than a byte, and none of those that are many in less than four.
constexpr std::int64_t kKeyBytes = 128;
constexpr std::int64_t kBytesOfKeyByte = kKeyBytes / 4;

using Hold = absl::FunctionRef<absl::Status(std::int64_t bytes)>;

// Reads one State or ArraysState with its length. `bytes`: what it holds.
template <class Part>
absl::Status ReadPart(google::protobuf::io::CodedInputStream& input, Hold hold, Part* part, std::int64_t* bytes) {
  const absl::Status malformed = MalformedMessage(v1::MergeRequest::descriptor()->name());
  std::uint32_t length = 0;
  if (!input.ReadVarint32(&length) || length > static_cast<std::uint32_t>(input.BytesUntilLimit())) return malformed;
  RETURN_IF_ERROR(hold(length));
  std::string encoded;
  if (!input.ReadString(&encoded, static_cast<int>(length))) return malformed;
  ASSIGN_OR_RETURN(const std::int64_t decoded, DecodedBytes(encoded, *Part::descriptor()));
  *bytes = length + decoded;
  RETURN_IF_ERROR(hold(*bytes));
  return part->ParseFromString(encoded) ? absl::OkStatus() : malformed;
}

}  // namespace

absl::Status MergeEncoded(grpc::ByteBuffer message, const StateLimits& limits,
                          absl::FunctionRef<absl::Status()> why_stop, Hold hold, v1::MergeResponse* response) {
  const absl::Status malformed = MalformedMessage(v1::MergeRequest::descriptor()->name());
  if (!message.Valid()) return malformed;
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream input(&reader);
  input.PushLimit(static_cast<int>(message.Length()));
  Merger merger(limits);
  ArraysMerger arrays_merger(limits, why_stop);
  WantedOfMerge wanted;
  std::int64_t states = 0;
  std::int64_t arrays = 0;
  // Beside the states of arrays that are merged.
  const auto hold_part = [&](std::int64_t bytes) {
    return hold(arrays_merger.outputs() * kOutputBytes + arrays_merger.keys() * kKeyBytes +
                arrays_merger.distribution_bytes() + bytes);
  };
  for (int fields = 1; const std::uint32_t tag = input.ReadTag(); ++fields) {
    absl::Status status = fields % kFieldsBetweenStops == 0 ? why_stop() : absl::OkStatus();
    if (!status.ok()) return status;
    std::int64_t bytes = 0;
    if (tag == kStates) {
      v1::State state;
      status = ReadPart(input, hold_part, &state, &bytes);
      if (status.ok()) status = merger.Append(state, absl::StrCat("states[", states++, "]"));
    } else if (tag == kArrays) {
      v1::ArraysState part;
      status = ReadPart(input, hold_part, &part, &bytes);
      if (status.ok()) {
        // Entries are decoded twice.
        const std::int64_t entries = part.question().calls().empty() ? 0 : bytes;
        status = hold_part(bytes + entries + part.outputs_size() * kOutputBytes +
                           static_cast<std::int64_t>(part.keys().data().size()) * kBytesOfKeyByte);
      }
      if (status.ok()) status = arrays_merger.Append(part, absl::StrCat("arrays[", arrays++, "]"));
    } else if (tag == kReturnState || tag == kOmitResults || tag == kOpErrors) {
      std::uint64_t value = 0;
      if (!input.ReadVarint64(&value)) return malformed;
      if (tag == kReturnState) wanted.state = value != 0;
      if (tag == kOmitResults) wanted.results = value == 0;
      if (tag == kOpErrors) wanted.op_errors = value != 0;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return malformed;
    }
    if (!status.ok()) return status;
  }
  if (!input.ConsumedEntireMessage()) return malformed;
  RETURN_IF_ERROR(hold_part(0));
  if (states > 0 && arrays > 0) return absl::InvalidArgumentError("arrays: got some beside states; allowed: either");
  if (arrays > 0) return arrays_merger.Finish(wanted, response);
  return merger.Finish(wanted, response);
}

}  // namespace reduced::server
