// .npz files: zip archives of .npy files.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_NPZ_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_NPZ_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {

bool IsZip(absl::string_view head);

// The archive in a file or, if `path` is empty, in memory. Thread-compatible.
class NpzFile {
 public:
  // INVALID_ARGUMENT: it isn't a zip archive, or has no .npy files.
  static absl::StatusOr<std::shared_ptr<NpzFile>> Open(const std::string& path, Memory memory);
  ~NpzFile();
  NpzFile(const NpzFile&) = delete;
  NpzFile& operator=(const NpzFile&) = delete;

  // Of the arrays: those of the files without ".npy", in their order.
  const std::vector<std::string>& names() const { return names_; }
  // The .npy file of one. It keeps the archive open.
  static absl::StatusOr<std::unique_ptr<ByteSource>> OpenArray(const std::shared_ptr<NpzFile>& file,
                                                               const std::string& name);

 private:
  NpzFile() = default;

  Memory memory_;
  void* archive_ = nullptr;  // zip_t
  std::vector<std::string> names_;
};

// The arrays that are asked for, of such an archive.
absl::StatusOr<std::unique_ptr<InputReader>> OpenNpz(const std::string& path, Memory memory,
                                                     const InputOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_NPZ_H_
