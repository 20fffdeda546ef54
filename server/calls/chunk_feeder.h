// The messages of a ReduceStream or a PutArray, checked against the protocol: a header, then chunks with as many bytes
// as the header declares. The chunks of several arrays keep within kMaxSkewBytes of each other.
#ifndef REDUCED_SERVER_CALLS_CHUNK_FEEDER_H_
#define REDUCED_SERVER_CALLS_CHUNK_FEEDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/support/byte_buffer.h"
#include "kernels/engine/engine.h"
#include "server/wire/chunks.h"

namespace reduced::server {

// Feeds the bytes of one message at a time. Not thread-safe.
template <class Request>
class ChunkFeeder {
 public:
  enum class Got : std::uint8_t { kHeader, kChunk };

  // Reads `message`: a header into *request, of a chunk only the position of its bytes, which chunk() then reads.
  // Clears `message`. INVALID_ARGUMENT: a message that breaks the protocol. For payers and lease see Decode, whose
  // errors it has, too.
  absl::StatusOr<Got> Take(grpc::ByteBuffer& message, const CallPayers& payers, MemoryLease* lease, Request* request) {
    const absl::Status status = ReadMessage(message, payers, lease, request, &chunk_, &array_);
    message.Clear();
    if (!status.ok()) return status;
    if (request->has_header()) {
      if (has_header_) return absl::InvalidArgumentError("header: got a second one; allowed: one, first");
      has_header_ = true;
      return Got::kHeader;
    }
    if (!has_header_) return absl::InvalidArgumentError("header: got none before the first chunk; allowed: one, first");
    Array& array = arrays_[array_];
    array.received += static_cast<std::int64_t>(chunk_.left());
    if (!array.declared.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(kChunkFields[array_].name, ": got one; allowed: none, since the header has no such array"));
    }
    if (array.received > *array.declared) return WrongBytes(array_);
    const absl::Status skew = CheckSkew(array);
    return skew.ok() ? absl::StatusOr<Got>(Got::kChunk) : skew;
  }

  // Sets how many bytes of an array the header declares, and how many an element has. All arrays have as many elements.
  void Declare(std::int64_t bytes, std::size_t array = 0, std::int64_t width = 1) {
    arrays_[array] = {.declared = bytes, .width = width};
  }

  // Checks, after the last message, that everything has arrived. INVALID_ARGUMENT: it has not.
  absl::Status CheckComplete() const {
    if (!has_header_) return absl::InvalidArgumentError("header: got none before the end of the stream; allowed: one");
    for (std::size_t i = 0; i < std::size(arrays_); ++i) {
      if (arrays_[i].received != arrays_[i].declared.value_or(0)) return WrongBytes(i);
    }
    return absl::OkStatus();
  }

  bool has_header() const { return has_header_; }
  // Bytes of all chunks.
  std::int64_t received() const {
    std::int64_t bytes = 0;
    for (const Array& array : arrays_) bytes += array.received;
    return bytes;
  }
  ChunkReader& chunk() { return chunk_; }       // the rest of the current chunk,
  std::size_t array() const { return array_; }  // which is of this array
  void DropChunk() { chunk_ = ChunkReader(); }

 private:
  struct Array {
    std::optional<std::int64_t> declared{};  // absent: the call has no such array
    std::int64_t width = 1;
    std::int64_t received = 0;
  };

  absl::Status WrongBytes(std::size_t array) const {
    return absl::InvalidArgumentError(absl::StrFormat("%s: got %d bytes in all; allowed: %d, as the header declares",
                                                      kChunkFields[array].name, arrays_[array].received,
                                                      arrays_[array].declared.value_or(0)));
  }

  // `array`: that of the last chunk.
  absl::Status CheckSkew(const Array& array) const {
    const Array* last = &array;
    for (const Array& each : arrays_) {
      if (each.declared.has_value() && each.received / each.width < last->received / last->width) last = &each;
    }
    const std::int64_t ahead = array.received - last->received / last->width * array.width;
    if (last == &array || ahead <= kMaxSkewBytes) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: got %d bytes ahead of %s; allowed: %d, so that the arrays come interleaved", kChunkFields[array_].name,
        ahead, kChunkFields[last - std::begin(arrays_)].array, kMaxSkewBytes));
  }

  ChunkReader chunk_;
  std::size_t array_ = 0;
  bool has_header_ = false;
  Array arrays_[kArraysOf<Request>];
};

// Bytes of an array that are ahead of those of another one, in order: at most kMaxSkewBytes. Not thread-safe.
class AheadBytes {
 public:
  // Takes all bytes of `chunk`, for which there is room. RESOURCE_EXHAUSTED: the server has no memory.
  absl::Status Append(ChunkReader& chunk) {
    if (chunk.left() == 0) return absl::OkStatus();
    if (memory_ == nullptr) memory_.reset(new (std::nothrow) char[kMaxSkewBytes]);
    if (memory_ == nullptr) return absl::ResourceExhaustedError("the server has no memory for an array that is ahead");
    const std::size_t bytes = chunk.left();
    ForParts(begin_ + size_, bytes, [&chunk](char* at, std::size_t part) { chunk.Read(at, part); });
    size_ += bytes;
    return absl::OkStatus();
  }

  std::size_t left() const { return size_; }
  // Copies the next `bytes`, at most left().
  void Read(char* to, std::size_t bytes) {
    ForParts(begin_, bytes, [&to](const char* at, std::size_t part) {
      std::memcpy(to, at, part);
      to += part;
    });
    begin_ = (begin_ + bytes) % kSize;
    size_ -= bytes;
  }

 private:
  static constexpr std::size_t kSize = kMaxSkewBytes;

  // Of a stretch of the ring, which may go on at its start.
  template <class Part>
  void ForParts(std::size_t begin, std::size_t bytes, const Part& part) {
    begin %= kSize;
    const std::size_t first = std::min(bytes, kSize - begin);
    part(memory_.get() + begin, first);
    if (first < bytes) part(memory_.get(), bytes - first);
  }

  std::unique_ptr<char[]> memory_;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

// A buffer that collects the bytes of chunks, in memory that is staged for an engine. Not thread-safe.
class ChunkBuffer {
 public:
  // Copies bytes of `chunk` until the buffer has `size` bytes: true; or until the chunk is empty: false. Between two
  // calls of Clear(), `size` is the same. The first byte takes the memory from `engine`, which must outlive the buffer.
  // RESOURCE_EXHAUSTED: there is none. Chunk: ChunkReader or AheadBytes.
  template <class Chunk>
  absl::StatusOr<bool> Fill(Chunk& chunk, std::int64_t size, Engine& engine) {
    const std::int64_t take = std::min(size - filled_, static_cast<std::int64_t>(chunk.left()));
    if (take > 0) {
      if (memory_.data() == nullptr) memory_ = engine.Stage(size);
      if (memory_.data() == nullptr) {
        return absl::ResourceExhaustedError(
            absl::StrFormat("the server has no memory to collect %d bytes of the array in", size));
      }
      chunk.Read(reinterpret_cast<char*>(memory_.data()) + filled_, static_cast<std::size_t>(take));
      filled_ += take;
    }
    return filled_ == size;
  }

  ArrayRef array() const { return memory_.array(); }
  const char* data() const { return reinterpret_cast<const char*>(memory_.data()); }
  std::int64_t filled() const { return filled_; }
  void Clear() { filled_ = 0; }  // keeps the memory, which has room for the largest size so far

 private:
  StagingBuffer memory_;
  std::int64_t filled_ = 0;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_CHUNK_FEEDER_H_
