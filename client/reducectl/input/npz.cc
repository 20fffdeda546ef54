#include "client/reducectl/input/npz.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/input/elements.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

// For a message.
std::string NamesOf(const std::vector<Archive::File>& files) {
  constexpr std::size_t kMost = 1000;
  return absl::StrJoin(files, ", ", [](std::string* out, const Archive::File& file) { *out += file.name; })
      .substr(0, kMost);
}

class NpzArrays final : public InputReader {
 public:
  NpzArrays(std::shared_ptr<Archive> archive, std::vector<Archive::File> files, const InputOptions& options)
      : archive_(std::move(archive)), files_(std::move(files)), options_(options) {
    several_ = files_.size() > 1;
  }

  absl::StatusOr<std::optional<Piece>> Next() override {
    if (next_ == files_.size()) return std::nullopt;
    const Archive::File& file = files_[next_];
    Piece piece{.array = next_++};
    absl::StatusOr<Input> input = ReadOne(file);
    if (input.ok()) {
      piece.input = *std::move(input);
    } else {
      piece.input.status = absl::Status(
          input.status().code(), absl::StrCat("array \"", file.name.substr(0, 60), "\": ", input.status().message()));
    }
    piece.input.array = file.name;
    return piece;
  }

  std::vector<std::string> notes() const override {
    if (archive_->others().empty()) return {};
    return {absl::StrCat("is read as a .npz file, without what isn't .npy in it: ", NamesOf(archive_->others()))};
  }

 private:
  absl::StatusOr<Input> ReadOne(const Archive::File& file) {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> member, Archive::Read(archive_, file));
    const auto bytes = std::make_shared<PeekedBytes>(std::move(member));
    ASSIGN_OR_RETURN(const absl::string_view head, bytes->Peek(kNpyHead));
    ASSIGN_OR_RETURN(Layout layout, ParseNpyHeader(head, options_.dtype));
    // Before there is memory for as many elements as the header says.
    RETURN_IF_ERROR(CheckNpySize(layout, file.bytes));
    std::string header(layout.offset, '\0');
    if (absl::Status status = ReadExactly(*bytes, header.data(), static_cast<std::int64_t>(header.size()));
        !status.ok())
      return status;
    const std::int64_t size = *ArrayBytes(layout.dtype, layout.shape);
    return Load({.source = bytes, .bytes = size}, std::move(layout), options_);
  }

  const std::shared_ptr<Archive> archive_;
  const std::vector<Archive::File> files_;
  const InputOptions options_;
  std::size_t next_ = 0;
};

// The arrays that are asked for.
absl::StatusOr<std::vector<Archive::File>> ArraysOf(const Archive& archive, const InputOptions& options) {
  const std::vector<Archive::File>& arrays = archive.arrays();
  if (options.arrays.empty() && options.part.has_value() && arrays.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", arrays.size(), " arrays (", NamesOf(arrays), "); choose one as FILE:NAME"));
  }
  if (options.arrays.empty()) return arrays;
  std::vector<Archive::File> chosen;
  for (const std::string& name : options.arrays) {
    const auto is_it = [&name](const Archive::File& file) { return file.name == name; };
    const auto found = std::find_if(arrays.begin(), arrays.end(), is_it);
    if (found == arrays.end()) {
      return absl::InvalidArgumentError(absl::StrCat("array: got \"", name, "\"; allowed: ", NamesOf(arrays)));
    }
    if (std::find_if(found + 1, arrays.end(), is_it) != arrays.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("array: got \"", name, "\", as several arrays are called; allowed: a name of one array"));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace

absl::StatusOr<std::unique_ptr<InputReader>> OpenNpz(std::shared_ptr<Archive> archive, const InputOptions& options) {
  if (archive->arrays().empty()) {
    return absl::InvalidArgumentError("is a zip archive without .npy files; allowed: what numpy.savez writes");
  }
  ASSIGN_OR_RETURN(std::vector<Archive::File> files, ArraysOf(*archive, options));
  return std::make_unique<NpzArrays>(std::move(archive), std::move(files), options);
}

}  // namespace reduced::client
