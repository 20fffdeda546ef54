// Zip archives: of .npy files, which a .npz file is, or of one other file.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_ARCHIVE_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_ARCHIVE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/memory.h"

namespace reduced::client {

bool IsZip(absl::string_view head);

// The archive in a file or, if `path` is empty, in memory. Thread-compatible.
class Archive {
 public:
  struct File {
    std::string name;
    std::uint64_t index;
    std::int64_t bytes;  // that the archive says it has
  };

  // INVALID_ARGUMENT: it isn't a zip archive; the message doesn't say of what.
  static absl::StatusOr<std::shared_ptr<Archive>> Open(const std::string& path, Memory memory);
  ~Archive();
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  // Those that end in ".npy", without that, and the others; in their order. Without folders and what macOS adds.
  const std::vector<File>& arrays() const { return arrays_; }
  const std::vector<File>& others() const { return others_; }
  // The bytes of one. They keep the archive open.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Read(const std::shared_ptr<Archive>& archive, const File& file);

 private:
  Archive() = default;

  Memory memory_;
  void* archive_ = nullptr;  // zip_t
  std::vector<File> arrays_, others_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_ARCHIVE_H_
