// The bytes of files, standard input, FIFOs and devices, in order.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_BYTES_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "reduced/types.h"

namespace reduced::client {

// Thread-compatible.
class ByteSource {
 public:
  ByteSource() = default;
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Reads `size` bytes, or fewer at the end.
  virtual absl::StatusOr<std::size_t> Read(char* to, std::size_t size) = 0;
};

// A file, or "-" for standard input.
class FileBytes final : public ByteSource {
 public:
  // `timeout`: of reading what isn't a regular file, and of waiting until somebody opens a FIFO for writing: reading
  // then fails with DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<FileBytes>> Open(const std::string& source, absl::Duration timeout);
  ~FileBytes() override;

  absl::StatusOr<std::size_t> Read(char* to, std::size_t size) override;
  // Reads at byte `offset` of a regular file. Thread-safe.
  absl::StatusOr<std::size_t> ReadAt(std::int64_t offset, char* to, std::size_t size) const;
  bool regular() const { return regular_; }
  std::int64_t size() const { return size_; }  // of a regular file; 0: unknown, as that of files in /proc
  // Called by Read() with the bytes that have been read and size().
  void set_on_read(OnProgress on_read) { on_read_ = std::move(on_read); }
  const OnProgress& on_read() const { return on_read_; }

 private:
  FileBytes() = default;

  int fd_ = -1;
  bool regular_ = false;
  bool fifo_ = false;  // whose writer may still be missing
  std::int64_t size_ = 0;
  std::int64_t done_ = 0;
  absl::Duration timeout_;
  absl::Time deadline_;
  OnProgress on_read_;
};

// Another source, whose first bytes can be looked at before they are read.
class PeekedBytes final : public ByteSource {
 public:
  explicit PeekedBytes(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

  // The first `size` bytes that have not been read, or fewer if there are no more. Valid until the next call.
  absl::StatusOr<absl::string_view> Peek(std::size_t size);
  absl::StatusOr<std::size_t> Read(char* to, std::size_t size) override;

 private:
  const std::unique_ptr<ByteSource> source_;
  std::string head_;
  std::size_t taken_ = 0;  // of it
};

// All that is left. RESOURCE_EXHAUSTED: there are more than `limit` bytes, or more than the memory has. `expected`: how
// many there probably are; 0: unknown.
absl::StatusOr<std::string> ReadAll(ByteSource& source, std::size_t expected, std::size_t limit);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_BYTES_H_
