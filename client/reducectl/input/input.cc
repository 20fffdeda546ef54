#include "client/reducectl/input/input.h"

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

// Reads `size` bytes, or fewer if the file ends before.
absl::StatusOr<std::size_t> ReadFull(int fd, void* data, std::size_t size) {
  std::size_t filled = 0;
  while (filled < size) {
    const ssize_t got = read(fd, static_cast<char*>(data) + filled, size - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "can't be read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

// Reads up to the end of the file. `size`: the expected number of bytes; 0: unknown.
absl::StatusOr<std::string> ReadOwn(int fd, std::size_t size) {
  std::string bytes;
  bytes.resize(size == 0 ? std::size_t{1} << 16 : size + 1);
  for (std::size_t filled = 0;;) {
    const absl::StatusOr<std::size_t> got = ReadFull(fd, bytes.data() + filled, bytes.size() - filled);
    if (!got.ok()) return got.status();
    filled += *got;
    if (filled < bytes.size()) {
      bytes.resize(filled);
      return bytes;
    }
    bytes.resize(2 * filled);
  }
}

// Fills the buffer from the file. Ignores bytes that are appended to the file meanwhile.
absl::StatusOr<Memory> ReadInto(SharedBuffer buffer, int fd) {
  const absl::StatusOr<std::size_t> filled = ReadFull(fd, buffer.data(), static_cast<std::size_t>(buffer.bytes()));
  if (!filled.ok()) return filled.status();
  return Memory(std::move(buffer), *filled);
}

// From this size on sharing a file is faster than sending it: tests/bench/bench_via.py. Up to 3 MiB there was no
// difference. 4 MiB took 4.2 ms instead of 5.1 ms as a stream, 256 MiB 76 ms instead of 145 ms.
constexpr std::size_t kShareFromBytes = std::size_t{4} << 20;

absl::StatusOr<absl::string_view> FormatOf(const std::string& source, absl::string_view bytes,
                                           const InputOptions& options) {
  if (!options.format.empty()) return options.format;
  if (IsNpy(bytes)) {
    if (options.dtype.empty()) return "npy";
    return absl::InvalidArgumentError(
        "is a .npy file, which has its own dtype; to read it as raw elements, add --format raw");
  }
  if (!options.dtype.empty()) return "raw";
  if (!options.column.empty() || absl::EndsWithIgnoreCase(source, ".csv")) return "csv";
  if (absl::EndsWithIgnoreCase(source, ".npy")) return "npy";  // ParseNpy returns the error
  return absl::InvalidArgumentError(
      "has an unknown format: it isn't a .npy file; add --dtype for raw elements, or --format csv");
}

}  // namespace

absl::string_view Memory::bytes() const {
  if (const SharedBuffer* const buffer = shared()) return {static_cast<const char*>(buffer->data()), size_};
  return std::get<std::string>(owner_);
}

absl::StatusOr<Memory> Memory::Of(std::string bytes, Hold hold) {
  if (hold == Hold::kShare) {
    absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(static_cast<std::int64_t>(bytes.size()));
    if (!buffer.ok()) return buffer.status();
    std::copy(bytes.begin(), bytes.end(), static_cast<char*>(buffer->data()));
    return Memory(*std::move(buffer), bytes.size());
  }
  Memory memory;
  memory.owner_ = std::move(bytes);
  return memory;
}

absl::StatusOr<Memory> ReadSource(const std::string& source, Hold hold) {
  const int fd = source == "-" ? STDIN_FILENO : open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "can't be opened");
  const absl::Cleanup close_it = [fd] {
    if (fd != STDIN_FILENO) close(fd);
  };
  struct stat about = {};
  const bool regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const std::size_t size = regular ? static_cast<std::size_t>(about.st_size) : 0;  // files in /proc have 0, too
  if (size > 0 && (hold == Hold::kShare || (hold == Hold::kShareLarge && size >= kShareFromBytes))) {
    absl::StatusOr<SharedBuffer> buffer = SharedBuffer::Allocate(about.st_size);
    if (buffer.ok()) return ReadInto(*std::move(buffer), fd);
    if (hold == Hold::kShare) return buffer.status();
  }
  try {
    absl::StatusOr<std::string> bytes = ReadOwn(fd, size);
    if (!bytes.ok()) return bytes.status();
    return Memory::Of(*std::move(bytes), hold);
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return absl::ResourceExhaustedError("is too large for the memory of this process");
  }
}

absl::StatusOr<Input> ReadInput(const std::string& source, const InputOptions& options) {
  absl::StatusOr<Memory> memory = ReadSource(source, options.hold);
  if (!memory.ok()) return memory.status();
  const absl::StatusOr<absl::string_view> format = FormatOf(source, memory->bytes(), options);
  if (!format.ok()) return format.status();
  absl::StatusOr<Layout> layout;
  if (*format == "csv") {
    const absl::StatusOr<std::vector<double>> numbers = ParseCsv(memory->bytes(), options.column);
    if (!numbers.ok()) return numbers.status();
    layout = Layout{.dtype = "f64", .shape = {static_cast<std::int64_t>(numbers->size())}};
    memory = Memory::Of(std::string(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(double)),
                        options.hold);
    if (!memory.ok()) return memory.status();
  } else {
    layout = *format == "raw" ? ParseRaw(memory->bytes(), options) : ParseNpy(memory->bytes());
    if (!layout.ok()) return layout.status();
  }
  return Input{*std::move(layout), *std::move(memory)};
}

absl::StatusOr<Layout> ParseRaw(absl::string_view bytes, const InputOptions& options) {
  const absl::StatusOr<std::int64_t> width = DTypeBytes(options.dtype);
  if (!width.ok()) return width.status();
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (options.offset < 0 || options.offset > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset: got ", options.offset, "; allowed: 0 to ", size, ", the bytes of the file"));
  }
  const std::int64_t left = size - options.offset;
  if (left % *width != 0 && !options.shape.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", left, " bytes after offset ", options.offset,
                                                   "; allowed: multiples of the ", *width, " bytes of ",
                                                   options.dtype));
  }
  const std::vector<std::int64_t> shape = options.shape.value_or(std::vector<std::int64_t>{left / *width});
  const absl::StatusOr<std::int64_t> expected = ArrayBytes(options.dtype, shape);
  if (!expected.ok()) return expected.status();
  if (*expected != left) {
    return absl::InvalidArgumentError(absl::StrCat("got ", left, " bytes after offset ", options.offset,
                                                   "; allowed: ", *expected, ", the bytes of shape (",
                                                   absl::StrJoin(shape, ", "), ") of ", options.dtype));
  }
  return Layout{options.dtype, shape, static_cast<std::size_t>(options.offset)};
}

}  // namespace reduced::client
