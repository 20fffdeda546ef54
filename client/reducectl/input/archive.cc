#include "client/reducectl/input/archive.h"

#include <zip.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace reduced::client {
namespace {

absl::Status BadZip(zip_error_t* error) {
  return absl::InvalidArgumentError(absl::StrCat("bad zip archive: ", zip_error_strerror(error)));
}

class ArchivedFile final : public ByteSource {
 public:
  ArchivedFile(std::shared_ptr<Archive> archive, zip_file_t* file) : archive_(std::move(archive)), file_(file) {}
  ~ArchivedFile() override { zip_fclose(file_); }

  absl::StatusOr<std::size_t> Read(char* to, std::size_t size) override {
    std::size_t filled = 0;
    while (filled < size) {
      const zip_int64_t got = zip_fread(file_, to + filled, size - filled);
      if (got < 0) return BadZip(zip_file_get_error(file_));  // also if the checksum at the end is wrong
      if (got == 0) break;
      filled += static_cast<std::size_t>(got);
    }
    return filled;
  }

 private:
  const std::shared_ptr<Archive> archive_;
  zip_file_t* const file_;
};

// Folders, and what macOS adds to archives.
bool IsNoFile(absl::string_view name) {
  return absl::EndsWith(name, "/") || absl::StartsWith(name, "__MACOSX/") || name == ".DS_Store" ||
         absl::EndsWith(name, "/.DS_Store");
}

}  // namespace

bool IsZip(absl::string_view head) {
  return absl::StartsWith(head, "PK\x03\x04") || absl::StartsWith(head, "PK\x05\x06");
}

absl::StatusOr<std::shared_ptr<Archive>> Archive::Open(const std::string& path, Memory memory) {
  std::shared_ptr<Archive> opened(new Archive);
  opened->memory_ = std::move(memory);
  const absl::string_view bytes = opened->memory_.bytes();
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = path.empty() ? zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error)
                                            : zip_source_file_create(path.c_str(), 0, -1, &error);
  zip_t* const archive = source == nullptr ? nullptr : zip_open_from_source(source, ZIP_RDONLY, &error);
  if (archive == nullptr) {
    const absl::Status status = absl::InvalidArgumentError(zip_error_strerror(&error));
    if (source != nullptr) zip_source_free(source);
    zip_error_fini(&error);
    return status;
  }
  opened->archive_ = archive;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
    zip_stat_t about;
    const auto index = static_cast<zip_uint64_t>(i);
    if (zip_stat_index(archive, index, 0, &about) != 0) return BadZip(zip_get_error(archive));
    absl::string_view name = (about.valid & ZIP_STAT_NAME) != 0 ? about.name : "";
    if (IsNoFile(name)) continue;
    const bool array = absl::ConsumeSuffix(&name, ".npy");
    (array ? opened->arrays_ : opened->others_)
        .push_back({std::string(name), index, static_cast<std::int64_t>(about.size)});
  }
  return opened;
}

Archive::~Archive() {
  if (archive_ != nullptr) zip_discard(static_cast<zip_t*>(archive_));
}

absl::StatusOr<std::unique_ptr<ByteSource>> Archive::Read(const std::shared_ptr<Archive>& archive, const File& file) {
  auto* const zip = static_cast<zip_t*>(archive->archive_);
  zip_file_t* const opened = zip_fopen_index(zip, file.index, 0);
  if (opened == nullptr) return BadZip(zip_get_error(zip));
  return std::make_unique<ArchivedFile>(archive, opened);
}

}  // namespace reduced::client
