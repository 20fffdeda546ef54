#include "server/wire/merge.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/merge.h"
#include "server/wire/encode.h"

namespace reduced::server {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr std::uint32_t kStates =
    WireFormatLite::MakeTag(v1::MergeRequest::kStatesFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr std::uint32_t kReturnState =
    WireFormatLite::MakeTag(v1::MergeRequest::kReturnStateFieldNumber, WireFormatLite::WIRETYPE_VARINT);

constexpr std::uint32_t kArrays =
    WireFormatLite::MakeTag(v1::MergeRequest::kArraysFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr std::uint32_t kOutputs =
    WireFormatLite::MakeTag(v1::ArraysState::kOutputsFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// Reads one State with its length.
bool ReadState(google::protobuf::io::CodedInputStream& input, v1::State* state) {
  std::uint32_t bytes = 0;
  if (!input.ReadVarint32(&bytes)) return false;
  const auto before = input.PushLimit(static_cast<int>(bytes));
  state->Clear();
  const bool ok = state->MergeFromCodedStream(&input) && input.BytesUntilLimit() == 0;
  input.PopLimit(before);
  return ok;
}

// How many outputs an encoded ArraysState has, without decoding them. False: it is malformed.
bool CountOutputs(const std::string& encoded, std::int64_t* outputs) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(encoded.data()),
                                               static_cast<int>(encoded.size()));
  while (const std::uint32_t tag = input.ReadTag()) {
    *outputs += tag == kOutputs;
    if (!WireFormatLite::SkipField(&input, tag)) return false;
  }
  return input.ConsumedEntireMessage();
}

// Reads one ArraysState with its length.
absl::Status ReadArrays(google::protobuf::io::CodedInputStream& input,
                        absl::FunctionRef<absl::Status(std::int64_t bytes)> take, v1::ArraysState* state) {
  // An output as a message and as a state with exact sums, twice while two states are merged. Other fields have at most
  // eight bytes for each that encodes them.
  constexpr std::int64_t kOutputBytes = 6144;
  const absl::Status malformed = MalformedMessage(v1::MergeRequest::descriptor()->name());
  std::uint32_t bytes = 0;
  if (!input.ReadVarint32(&bytes)) return malformed;
  if (const absl::Status status = take(bytes); !status.ok()) return status;
  std::string encoded;
  std::int64_t outputs = 0;
  if (!input.ReadString(&encoded, static_cast<int>(bytes)) || !CountOutputs(encoded, &outputs)) return malformed;
  if (const absl::Status status = take(8 * std::int64_t{bytes} + outputs * kOutputBytes); !status.ok()) return status;
  return state->ParseFromString(encoded) ? absl::OkStatus() : malformed;
}

}  // namespace

absl::Status MergeEncoded(grpc::ByteBuffer message, const StateLimits& limits,
                          absl::FunctionRef<absl::Status()> why_stop,
                          absl::FunctionRef<absl::Status(std::int64_t bytes)> take, v1::MergeResponse* response) {
  const absl::Status malformed = MalformedMessage(v1::MergeRequest::descriptor()->name());
  if (!message.Valid()) return malformed;
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream input(&reader);
  Merger merger(limits);
  ArraysMerger arrays_merger(limits);
  v1::State state;
  bool return_state = false;
  std::int64_t states = 0;
  std::int64_t arrays = 0;
  while (const std::uint32_t tag = input.ReadTag()) {
    if (tag == kStates) {
      if (!ReadState(input, &state)) return malformed;
      absl::Status status = merger.Append(state, absl::StrCat("states[", states, "]"));
      if (status.ok() && ++states % 1024 == 0) status = why_stop();
      if (!status.ok()) return status;
    } else if (tag == kArrays) {
      v1::ArraysState part;
      absl::Status status = ReadArrays(input, take, &part);
      if (status.ok()) status = arrays_merger.Append(part, absl::StrCat("arrays[", arrays++, "]"));
      if (status.ok()) status = why_stop();
      if (!status.ok()) return status;
    } else if (tag == kReturnState) {
      std::uint64_t value = 0;
      if (!input.ReadVarint64(&value)) return malformed;
      return_state = value != 0;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return malformed;
    }
  }
  if (!input.ConsumedEntireMessage()) return malformed;
  if (states > 0 && arrays > 0) return absl::InvalidArgumentError("arrays: got some beside states; allowed: either");
  if (arrays > 0) return arrays_merger.Finish(return_state, response);
  return merger.Finish(return_state, response);
}

}  // namespace reduced::server
