#include "client/reducectl/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace reduced::client {
namespace {

// Reads up to the end. Asks the file for its size only to read it in one piece: pipes have none.
absl::StatusOr<std::string> ReadAll(int fd) {
  struct stat about = {};
  std::string bytes;
  std::size_t filled = 0;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
    bytes.resize(static_cast<std::size_t>(about.st_size) + 1);
  }
  for (;;) {
    if (filled == bytes.size()) bytes.resize(std::max(2 * filled, std::size_t{1} << 16));
    const ssize_t got = read(fd, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "can't be read");
    if (got == 0) {
      bytes.resize(filled);
      return bytes;
    }
    filled += static_cast<std::size_t>(got);
  }
}

absl::StatusOr<absl::string_view> FormatOf(const std::string& source, absl::string_view bytes,
                                           const InputOptions& options) {
  if (!options.format.empty()) return options.format;
  if (IsNpy(bytes)) {
    if (options.dtype.empty()) return "npy";
    return absl::InvalidArgumentError(
        "is a .npy file, which says its dtype itself; to read it as raw, add --format raw");
  }
  if (!options.dtype.empty()) return "raw";
  if (!options.column.empty() || absl::EndsWithIgnoreCase(source, ".csv")) return "csv";
  if (absl::EndsWithIgnoreCase(source, ".npy")) return "npy";  // ParseNpy says what is wrong with it
  return absl::InvalidArgumentError(
      "is of no known format: not a .npy file; add --dtype for raw elements, or --format csv");
}

}  // namespace

absl::StatusOr<std::string> ReadSource(const std::string& source) {
  const int fd = source == "-" ? STDIN_FILENO : open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "can't be opened");
  const absl::Cleanup close_it = [fd] {
    if (fd != STDIN_FILENO) close(fd);
  };
  try {
    return ReadAll(fd);
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return absl::ResourceExhaustedError("is too large to be held in memory");
  }
}

absl::StatusOr<Input> ReadInput(const std::string& source, const InputOptions& options) {
  absl::StatusOr<std::string> bytes = ReadSource(source);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<absl::string_view> format = FormatOf(source, *bytes, options);
  if (!format.ok()) return format.status();
  if (*format == "csv") return ParseCsv(*bytes, options.column);
  if (*format == "raw") return ParseRaw(*std::move(bytes), options);
  return ParseNpy(*std::move(bytes));
}

absl::StatusOr<Input> ParseRaw(std::string bytes, const InputOptions& options) {
  const absl::StatusOr<std::int64_t> width = DTypeBytes(options.dtype);
  if (!width.ok()) return width.status();
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (options.offset < 0 || options.offset > size) {
    return absl::InvalidArgumentError(absl::StrCat("offset ", options.offset, " is not within its ", size, " bytes"));
  }
  const std::int64_t left = size - options.offset;
  if (left % *width != 0 && !options.shape.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("has ", left, " bytes after offset ", options.offset,
                                                   ", not a multiple of the ", *width, " of ", options.dtype));
  }
  const std::vector<std::int64_t> shape = options.shape.value_or(std::vector<std::int64_t>{left / *width});
  const absl::StatusOr<std::int64_t> expected = ArrayBytes(options.dtype, shape);
  if (!expected.ok()) return expected.status();
  if (*expected != left) {
    return absl::InvalidArgumentError(absl::StrCat("has ", left, " bytes after offset ", options.offset,
                                                   ", but shape (", absl::StrJoin(shape, ", "), ") of ", options.dtype,
                                                   " is ", *expected));
  }
  return Input{options.dtype, shape, std::move(bytes), static_cast<std::size_t>(options.offset)};
}

}  // namespace reduced::client
