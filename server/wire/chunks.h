// The raw messages of ReduceStream and PutArray: a header, then chunks. They are read raw, so that the bytes of a chunk
// are copied once, from the transport's memory to their destination.
//
// A ReduceStream may have the chunks of several arrays, each in a field of its own: those of the array that is reduced,
// and of y and the weights. Here arrays are numbered: 0 is the array, which PutArray has alone.
#ifndef REDUCED_SERVER_WIRE_CHUNKS_H_
#define REDUCED_SERVER_WIRE_CHUNKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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

// Limit of how many bytes of one array may have arrived that no other array has elements for: the server holds them.
inline constexpr std::int64_t kMaxSkewBytes = std::int64_t{4} << 20;

// The fields of the chunks of each array, and their names.
struct ChunkField {
  int number;
  const char* name;
  const char* array;
};
inline constexpr ChunkField kChunkFields[] = {
    {v1::ReduceStreamRequest::kChunkFieldNumber, "chunk", "the array"},
    {v1::ReduceStreamRequest::kYChunkFieldNumber, "y_chunk", "y"},
    {v1::ReduceStreamRequest::kWeightsChunkFieldNumber, "weights_chunk", "the weights"}};
inline constexpr std::size_t kStreamArrays = std::size(kChunkFields);
static_assert(+v1::PutArrayRequest::kChunkFieldNumber == +v1::ReduceStreamRequest::kChunkFieldNumber);

// How many arrays a call has at most.
template <class Request>
inline constexpr std::size_t kArraysOf = std::is_same_v<Request, v1::ReduceStreamRequest> ? kStreamArrays : 1;

// The chunk of a parsed message, and of which array it is; null: it has none.
inline const std::string* ChunkIn(const v1::PutArrayRequest& request, std::size_t* array) {
  *array = 0;
  return request.has_chunk() ? &request.chunk() : nullptr;
}
inline const std::string* ChunkIn(const v1::ReduceStreamRequest& request, std::size_t* array) {
  *array = request.has_y_chunk() ? 1 : request.has_weights_chunk() ? 2 : 0;
  const std::string* const chunks[] = {&request.chunk(), &request.y_chunk(), &request.weights_chunk()};
  return *array > 0 || request.has_chunk() ? chunks[*array] : nullptr;
}

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

  // If the message has one field, a chunk of one of the first `arrays` arrays, as every protobuf implementation encodes
  // it, skips to its first byte, and returns which array. Else nothing.
  std::optional<std::size_t> SkipToChunk(std::size_t arrays) {
    const ChunkReader start = *this;
    std::uint8_t byte = 0;
    if (left_ > 0) Read(reinterpret_cast<char*>(&byte), 1);
    const std::size_t array = static_cast<std::size_t>(
        std::find_if(std::begin(kChunkFields), std::begin(kChunkFields) + arrays,
                     [byte](const ChunkField& field) { return byte == (field.number << 3 | 2); }) -
        std::begin(kChunkFields));  // the tag, length-delimited
    if (array < arrays) {
      std::uint64_t size = 0;
      for (int shift = 0; shift < 35 && left_ > 0; shift += 7) {  // five bytes, as protobuf's parser takes
        Read(reinterpret_cast<char*>(&byte), 1);
        size |= std::uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) {
          if (size == left_) return array;
          break;
        }
      }
    }
    *this = start;
    return std::nullopt;
  }

 private:
  std::vector<grpc::Slice> slices_;
  std::size_t slice_ = 0;   // of the next byte
  std::size_t offset_ = 0;  // of the next byte in its slice
  std::size_t left_ = 0;
};

// Reads one message. Request: ReduceStreamRequest or PutArrayRequest. A header is parsed into `request`; of a chunk
// only the position goes into `chunk`, and which array it is of into `array`. INVALID_ARGUMENT: the message is neither,
// or the chunk is too large. For payers and lease see Decode, whose errors it has, too.
template <class Request>
absl::Status ReadMessage(grpc::ByteBuffer& message, const CallPayers& payers, MemoryLease* lease, Request* request,
                         ChunkReader* chunk, std::size_t* array) {
  *chunk = ChunkReader(message);
  if (const std::optional<std::size_t> found = chunk->SkipToChunk(kArraysOf<Request>); found.has_value()) {
    *array = *found;
  } else {
    *chunk = ChunkReader();
    const absl::Status parsed = Decode(&message, payers, lease, request);
    if (!parsed.ok()) return parsed;
    if (request->has_header()) return absl::OkStatus();
    const std::string* const bytes = ChunkIn(*request, array);
    if (bytes == nullptr) return absl::InvalidArgumentError("message: got neither; allowed: header, chunk");
    // A chunk with fields that this version does not know.
    grpc::Slice slice(*bytes);
    message = grpc::ByteBuffer(&slice, 1);
    *chunk = ChunkReader(message);
  }
  if (chunk->left() <= kMaxChunkBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: got %d bytes; allowed: %d", kChunkFields[*array].name, chunk->left(), kMaxChunkBytes));
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_CHUNKS_H_
