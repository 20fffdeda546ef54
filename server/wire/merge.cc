#include "server/wire/merge.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "proto/codec/merge.h"
#include "server/wire/encode.h"

namespace reduced::server {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr std::uint32_t kStates =
    WireFormatLite::MakeTag(v1::MergeRequest::kStatesFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr std::uint32_t kReturnState =
    WireFormatLite::MakeTag(v1::MergeRequest::kReturnStateFieldNumber, WireFormatLite::WIRETYPE_VARINT);

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

}  // namespace

absl::Status MergeEncoded(grpc::ByteBuffer message, const StateLimits& limits,
                          absl::FunctionRef<absl::Status()> why_stop, v1::MergeResponse* response) {
  const absl::Status malformed = MalformedMessage(v1::MergeRequest::descriptor()->name());
  if (!message.Valid()) return malformed;
  grpc::ProtoBufferReader reader(&message);
  google::protobuf::io::CodedInputStream input(&reader);
  Merger merger(limits);
  v1::State state;
  bool return_state = false;
  std::int64_t states = 0;
  while (const std::uint32_t tag = input.ReadTag()) {
    if (tag == kStates) {
      if (!ReadState(input, &state)) return malformed;
      absl::Status status = merger.Append(state, absl::StrCat("states[", states, "]"));
      if (status.ok() && ++states % 1024 == 0) status = why_stop();
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
  return merger.Finish(return_state, response);
}

}  // namespace reduced::server
