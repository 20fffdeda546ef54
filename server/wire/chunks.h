// The raw messages of ReduceStream and PutArray: a header, then chunks. They are read raw, so that the bytes of a chunk
// are copied once, from the transport's memory to their destination.
#ifndef REDUCED_SERVER_WIRE_CHUNKS_H_
#define REDUCED_SERVER_WIRE_CHUNKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "reduced/v1/reduced.pb.h"
#include "server/wire/encode.h"

namespace reduced::server {

// Limit of one chunk: copying it occupies a thread of gRPC.
inline constexpr std::size_t kMaxChunkBytes = std::size_t{4} << 20;

// The tag of field 2 of both messages, length-delimited.
inline constexpr std::uint8_t kChunkTag = v1::ReduceStreamRequest::kChunkFieldNumber << 3 | 2;
static_assert(+v1::PutArrayRequest::kChunkFieldNumber == +v1::ReduceStreamRequest::kChunkFieldNumber);

// The bytes of one message, in the slices of memory that the transport read them into.
class ChunkReader {
 public:
  ChunkReader() = default;
  explicit ChunkReader(grpc::ByteBuffer& message) {
    left_ = message.Length();
    if (!message.Dump(&slices_).ok()) left_ = 0;
  }

  std::size_t left() const { return left_; }

  // The next bytes in place: at most `bytes`, at least one if any is left.
  std::string_view Next(std::size_t bytes) {
    while (left_ > 0) {
      const grpc::Slice& slice = slices_[slice_];
      const std::string_view next(reinterpret_cast<const char*>(slice.begin()) + offset_,
                                  std::min(bytes, slice.size() - offset_));
      offset_ += next.size();
      left_ -= next.size();
      if (offset_ < slice.size()) return next;
      offset_ = 0;
      ++slice_;
      if (!next.empty()) return next;
    }
    return {};
  }

  // Copies the next `bytes`, at most left().
  void Read(char* to, std::size_t bytes) {
    while (bytes > 0) {
      const std::string_view next = Next(bytes);
      std::memcpy(to, next.data(), next.size());
      to += next.size();
      bytes -= next.size();
    }
  }

  // If the message has one field, the chunk, as every protobuf implementation encodes it, skips to its first byte:
  // true.
  bool SkipToChunk() {
    const ChunkReader start = *this;
    std::uint8_t byte = 0;
    if (left_ > 0) Read(reinterpret_cast<char*>(&byte), 1);
    if (byte == kChunkTag) {
      std::uint64_t size = 0;
      for (int shift = 0; shift < 35 && left_ > 0; shift += 7) {  // five bytes, as protobuf's parser takes
        Read(reinterpret_cast<char*>(&byte), 1);
        size |= std::uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) {
          if (size == left_) return true;
          break;
        }
      }
    }
    *this = start;
    return false;
  }

 private:
  std::vector<grpc::Slice> slices_;
  std::size_t slice_ = 0;   // of the next byte
  std::size_t offset_ = 0;  // of the next byte in its slice
  std::size_t left_ = 0;
};

// Reads one message. Request: ReduceStreamRequest or PutArrayRequest. A header is parsed into `request`; of a chunk
// only the position goes into `chunk`. INVALID_ARGUMENT: the message is neither, or the chunk is too large. For payers
// and lease see Decode, whose errors it has, too.
template <class Request>
absl::Status ReadMessage(grpc::ByteBuffer& message, const CallPayers& payers, MemoryLease* lease, Request* request,
                         ChunkReader* chunk) {
  *chunk = ChunkReader(message);
  if (!chunk->SkipToChunk()) {
    *chunk = ChunkReader();
    const absl::Status parsed = Decode(&message, payers, lease, request);
    if (!parsed.ok()) return parsed;
    if (request->has_header()) return absl::OkStatus();
    if (!request->has_chunk()) return absl::InvalidArgumentError("message: got neither; allowed: header, chunk");
    // A chunk with fields that this version does not know.
    grpc::Slice slice(request->chunk());
    message = grpc::ByteBuffer(&slice, 1);
    *chunk = ChunkReader(message);
  }
  if (chunk->left() <= kMaxChunkBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("chunk: got %d bytes; allowed: %d", chunk->left(), kMaxChunkBytes));
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_CHUNKS_H_
