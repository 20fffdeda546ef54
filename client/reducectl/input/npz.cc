#include "client/reducectl/input/npz.h"

#include <zip.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/reducectl/input/elements.h"

namespace reduced::client {
namespace {

constexpr absl::string_view kNpy = ".npy";

absl::Status BadZip(zip_error_t* error) {
  return absl::InvalidArgumentError(absl::StrCat("bad .npz file: ", zip_error_strerror(error)));
}

class ZipMember final : public ByteSource {
 public:
  ZipMember(std::shared_ptr<NpzFile> archive, zip_file_t* file) : archive_(std::move(archive)), file_(file) {}
  ~ZipMember() override { zip_fclose(file_); }

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
  const std::shared_ptr<NpzFile> archive_;
  zip_file_t* const file_;
};

class NpzArrays final : public InputReader {
 public:
  NpzArrays(std::shared_ptr<NpzFile> file, std::vector<std::string> names, const InputOptions& options)
      : file_(std::move(file)), names_(std::move(names)), options_(options) {}

  absl::StatusOr<std::optional<Piece>> Next() override {
    if (next_ == names_.size()) return std::nullopt;
    const std::string& name = names_[next_];
    absl::StatusOr<Input> input = ReadOne(name);
    if (!input.ok()) {
      return absl::Status(input.status().code(), absl::StrCat("array \"", absl::CHexEscape(name.substr(0, 60)),
                                                              "\": ", input.status().message()));
    }
    input->array = name;
    return Piece{.input = *std::move(input), .array = next_++};
  }

 private:
  absl::StatusOr<Input> ReadOne(const std::string& name) {
    absl::StatusOr<std::unique_ptr<ByteSource>> member = NpzFile::OpenArray(file_, name);
    if (!member.ok()) return member.status();
    const auto bytes = std::make_shared<PeekedBytes>(*std::move(member));
    const absl::StatusOr<absl::string_view> head = bytes->Peek(kNpyHead);
    if (!head.ok()) return head.status();
    absl::StatusOr<Layout> layout = ParseNpyHeader(*head);
    if (!layout.ok()) return layout.status();
    std::string header(layout->offset, '\0');
    if (absl::Status status = ReadExactly(*bytes, header.data(), static_cast<std::int64_t>(header.size()));
        !status.ok())
      return status;
    const std::int64_t size = *ArrayBytes(layout->dtype, layout->shape);
    return Load({.source = bytes, .bytes = size}, *std::move(layout), options_);
  }

  const std::shared_ptr<NpzFile> file_;
  const std::vector<std::string> names_;
  const InputOptions options_;
  std::size_t next_ = 0;
};

// Which arrays of a .npz file are asked for.
absl::StatusOr<std::vector<std::string>> ArraysOf(const NpzFile& file, const InputOptions& options) {
  const std::vector<std::string>& wanted = options.arrays;
  if (wanted.empty() && options.part.has_value() && file.names().size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("got ", file.names().size(), " arrays (",
                                                   absl::StrJoin(file.names(), ", ").substr(0, 1000),
                                                   "); choose one as FILE:NAME"));
  }
  if (wanted.empty()) return file.names();
  for (const std::string& name : wanted) {
    if (std::find(file.names().begin(), file.names().end(), name) != file.names().end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("array: got \"", name, "\"; allowed: ", absl::StrJoin(file.names(), ", ").substr(0, 1000)));
  }
  return wanted;
}

}  // namespace

bool IsZip(absl::string_view head) {
  return absl::StartsWith(head, "PK\x03\x04") || absl::StartsWith(head, "PK\x05\x06");
}

absl::StatusOr<std::shared_ptr<NpzFile>> NpzFile::Open(const std::string& path, Memory memory) {
  std::shared_ptr<NpzFile> file(new NpzFile);
  file->memory_ = std::move(memory);
  const absl::string_view bytes = file->memory_.bytes();
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = path.empty() ? zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error)
                                            : zip_source_file_create(path.c_str(), 0, -1, &error);
  zip_t* const archive = source == nullptr ? nullptr : zip_open_from_source(source, ZIP_RDONLY, &error);
  if (archive == nullptr) {
    const absl::Status status = BadZip(&error);
    if (source != nullptr) zip_source_free(source);
    zip_error_fini(&error);
    return status;
  }
  file->archive_ = archive;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
    const char* const member = zip_get_name(archive, static_cast<zip_uint64_t>(i), 0);
    absl::string_view name = member == nullptr ? "" : member;
    if (absl::ConsumeSuffix(&name, kNpy)) file->names_.emplace_back(name);
  }
  if (file->names_.empty()) {
    return absl::InvalidArgumentError("is a zip archive without .npy files; allowed: what numpy.savez writes");
  }
  return file;
}

NpzFile::~NpzFile() {
  if (archive_ != nullptr) zip_discard(static_cast<zip_t*>(archive_));
}

absl::StatusOr<std::unique_ptr<ByteSource>> NpzFile::OpenArray(const std::shared_ptr<NpzFile>& file,
                                                               const std::string& name) {
  auto* const archive = static_cast<zip_t*>(file->archive_);
  zip_file_t* const member = zip_fopen(archive, absl::StrCat(name, kNpy).c_str(), 0);
  if (member == nullptr) return BadZip(zip_get_error(archive));
  return std::make_unique<ZipMember>(file, member);
}

absl::StatusOr<std::unique_ptr<InputReader>> OpenNpz(const std::string& path, Memory memory,
                                                     const InputOptions& options) {
  absl::StatusOr<std::shared_ptr<NpzFile>> file = NpzFile::Open(path, std::move(memory));
  if (!file.ok()) return file.status();
  absl::StatusOr<std::vector<std::string>> names = ArraysOf(**file, options);
  if (!names.ok()) return names.status();
  return std::make_unique<NpzArrays>(*std::move(file), *std::move(names), options);
}

}  // namespace reduced::client
