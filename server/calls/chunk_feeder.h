// The messages of a ReduceStream or a PutArray, checked against the protocol: a header, then chunks with as many bytes
// as the header declares.
#ifndef REDUCED_SERVER_CALLS_CHUNK_FEEDER_H_
#define REDUCED_SERVER_CALLS_CHUNK_FEEDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
    const absl::Status status = ReadMessage(message, payers, lease, request, &chunk_);
    message.Clear();
    if (!status.ok()) return status;
    if (request->has_header()) {
      if (has_header_) return absl::InvalidArgumentError("header: got a second one; allowed: one, first");
      has_header_ = true;
      return Got::kHeader;
    }
    if (!has_header_) return absl::InvalidArgumentError("header: got none before the first chunk; allowed: one, first");
    received_ += static_cast<std::int64_t>(chunk_.left());
    if (received_ <= declared_) return Got::kChunk;
    return absl::InvalidArgumentError(
        absl::StrFormat("chunk: got %d bytes in all; allowed: %d, as the header declares", received_, declared_));
  }

  // Sets how many bytes the header declares.
  void Declare(std::int64_t bytes) { declared_ = bytes; }

  // Checks, after the last message, that everything has arrived. INVALID_ARGUMENT: it has not.
  absl::Status CheckComplete() const {
    if (!has_header_) return absl::InvalidArgumentError("header: got none before the end of the stream; allowed: one");
    if (received_ == declared_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("chunk: got %d bytes in all; allowed: %d, as the header declares", received_, declared_));
  }

  bool has_header() const { return has_header_; }
  std::int64_t received() const { return received_; }  // bytes of all chunks
  ChunkReader& chunk() { return chunk_; }              // the rest of the current chunk
  void DropChunk() { chunk_ = ChunkReader(); }

 private:
  ChunkReader chunk_;
  bool has_header_ = false;
  std::int64_t declared_ = 0;
  std::int64_t received_ = 0;
};

// A buffer that collects the bytes of chunks, in memory that is staged for an engine. Not thread-safe.
class ChunkBuffer {
 public:
  // Copies bytes of `chunk` until the buffer has `size` bytes: true; or until the chunk is empty: false. Between two
  // calls of Clear(), `size` is the same. The first byte takes the memory from `engine`, which must outlive the buffer.
  // RESOURCE_EXHAUSTED: there is none.
  absl::StatusOr<bool> Fill(ChunkReader& chunk, std::int64_t size, Engine& engine) {
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
