// The raw messages of ReduceStream and PutArray, in slices, against protobuf's own parser.
//
// The input: how many bytes the header declares (2 bytes), then for each message: how many cuts, the cuts, the length
// (2 bytes), the bytes.
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "kernels/engine/memory_budget.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/chunk_feeder.h"
#include "server/wire/decoded_bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/slices.h"

namespace reduced::fuzz {
namespace {

using Feeder = server::ChunkFeeder<v1::ReduceStreamRequest>;

// Takes at most 7 bytes at a time, and then all the others.
std::string ReadAll(server::ChunkReader& chunk) {
  std::string bytes(chunk.Next(7));
  const std::size_t left = chunk.left();
  bytes.resize(bytes.size() + left);
  chunk.Read(bytes.data() + bytes.size() - left, left);
  Require(chunk.left() == 0 && chunk.Next(1).empty(), "a chunk that is read is empty");
  return bytes;
}

template <class Request>
void CheckMessage(grpc::ByteBuffer buffer, absl::string_view message) {
  Request parsed, read;
  const bool good = parsed.ParseFromArray(message.data(), static_cast<int>(message.size())) &&
                    server::DecodedBytes(message, *Request::descriptor()).ok();
  server::ChunkReader chunk;
  MemoryBudget memory;
  const server::CallPayers payers{.small = {&memory}, .large = {&memory}};
  MemoryLease lease;
  std::size_t array = 0, right = 0;
  const absl::Status status = server::ReadMessage(buffer, payers, &lease, &read, &chunk, &array);
  const std::string* const bytes = server::ChunkIn(parsed, &right);
  RequirePrintableError(status);
  Require(status.ok() == (good && (parsed.has_header() || bytes != nullptr)),
          "what protobuf accepts is accepted, but for unknown fields");
  if (!status.ok()) return;
  Require(read.has_header() == parsed.has_header(), "a header is a header");
  if (read.has_header()) {
    Require(read.SerializeAsString() == parsed.SerializeAsString(), "a header is as protobuf reads it");
    Require(chunk.left() == 0, "a header has no elements");
  } else {
    Require(ReadAll(chunk) == *bytes && array == right, "a chunk is as protobuf reads it");
  }
}

}  // namespace

FUZZ_TARGET(chunks) {
  google::protobuf::SetLogHandler(nullptr);  // it prints what is not UTF-8
  Feeder feeder;
  feeder.Declare(input.Number<std::uint16_t>());
  std::int64_t received = 0;
  bool failed = false;
  for (int messages = 0; !input.empty() && messages < 64; ++messages) {
    const absl::string_view cuts = input.Take(input.Choice(32));
    const absl::string_view message = input.TakePiece();
    CheckMessage<v1::ReduceStreamRequest>(Sliced(message, cuts), message);
    CheckMessage<v1::PutArrayRequest>(Sliced(message, cuts), message);
    if (failed) continue;
    grpc::ByteBuffer buffer = Sliced(message, cuts);
    v1::ReduceStreamRequest request;
    MemoryBudget memory;
    const server::CallPayers payers{.small = {&memory}, .large = {&memory}};
    MemoryLease lease;
    const auto got = feeder.Take(buffer, payers, &lease, &request);
    failed = !got.ok();
    if (got.ok() && *got == Feeder::Got::kChunk) received += static_cast<std::int64_t>(ReadAll(feeder.chunk()).size());
  }
  if (!failed) Require(feeder.received() == received, "every byte of the chunks arrives");
  RequirePrintableError(feeder.CheckComplete());
}

}  // namespace reduced::fuzz
