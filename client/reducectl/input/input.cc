#include "client/reducectl/input/input.h"

#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/elements.h"
#include "client/reducectl/input/npz.h"
#include "client/reducectl/input/text.h"
#include "client/reducectl/input/text_columns.h"

namespace reduced::client {
namespace {

constexpr std::size_t kHeadBytes = std::size_t{4} << 10;  // enough to tell the format

// A source that is one array.
class OneArray final : public InputReader {
 public:
  OneArray(Input input, std::shared_ptr<ByteSource> source) : source_(std::move(source)), input_(std::move(input)) {}

  absl::StatusOr<std::optional<Piece>> Next() override {
    if (std::exchange(done_, true)) return std::nullopt;
    return Piece{.input = std::move(input_)};
  }

 private:
  const std::shared_ptr<ByteSource> source_;
  Input input_;
  bool done_ = false;
};

constexpr char kWhatElse[] = "allowed: .npy, .npz, text with numbers, each also as .gz or .zst";

// The format: one of kFormats. `name`: of the file, without what says that it is compressed.
absl::StatusOr<absl::string_view> FormatOf(absl::string_view name, absl::string_view head,
                                           const InputOptions& options) {
  if (!options.format.empty()) return options.format;
  const auto ends = [&](absl::string_view suffix) { return absl::EndsWithIgnoreCase(name, suffix); };
  const bool table_option = options.header != Header::kAuto || options.delimiter != '\0' ||
                            options.comma != Comma::kDefault || !options.comment.empty();
  const bool text_option = table_option || !options.columns.empty() || !options.missing_words.empty();
  if (IsNpy(head) || IsZip(head)) {
    const absl::string_view format = IsNpy(head) ? "npy" : "npz";
    if (!options.dtype.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "is a .", format, " file, which has its own dtype; to read it as raw elements, add --format raw"));
    }
    if (text_option) {
      return absl::InvalidArgumentError(
          absl::StrCat("is a .", format,
                       " file; allowed: text with --column, --header, --delimiter, --decimal, --comment or --missing"));
    }
    return format;
  }
  const bool json_name = ends(".jsonl") || ends(".ndjson") || ends(".json");
  if (!table_option && LooksLikeJson(head) && (options.dtype.empty() || json_name)) return "jsonl";
  const bool text_name = ends(".csv") || ends(".tsv");
  if (text_option || text_name) return "csv";
  if (!options.dtype.empty()) {
    // Lines with digits can be numbers in digits, or elements that happen to be their bytes.
    const bool raw_option = options.offset != 0 || options.shape.has_value();
    if (!raw_option && LooksLikeText(head) && head.find_first_of("0123456789") != absl::string_view::npos &&
        head.find_first_of("\r\n") != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("dtype: got ", options.dtype,
                       " for what looks like text; add --format csv or jsonl if it is, or --format raw"));
    }
    return "raw";
  }
  if (ends(".npy")) return "npy";  // which it isn't: the reader says so
  if (ends(".npz")) return "npz";
  if (head.empty()) return absl::InvalidArgumentError("is empty");
  if (LooksLikeText(head)) return "csv";
  return absl::InvalidArgumentError(absl::StrCat(
      "has an unknown format: it begins with \"", absl::CHexEscape(head.substr(0, 8)), "\", which isn't text; ",
      kWhatElse, options.part.has_value() ? "" : "; for raw elements add --dtype"));
}

// A file, decompressed if it has to be.
struct Opened {
  FileBytes* file = nullptr;  // of `bytes`
  std::shared_ptr<PeekedBytes> bytes{};
  const char* compression = nullptr;  // null: none
  std::string name{};                 // without what says that it is compressed
};

absl::StatusOr<Opened> OpenSource(const std::string& source, const InputOptions& options) {
  absl::StatusOr<std::unique_ptr<FileBytes>> file = FileBytes::Open(source, options.timeout);
  if (!file.ok()) return file.status();
  Opened opened{.file = file->get(), .name = source};
  auto bytes = std::make_unique<PeekedBytes>(*std::move(file));
  const absl::StatusOr<absl::string_view> head = bytes->Peek(kHeadBytes);
  if (!head.ok()) return head.status();
  const bool named = absl::EndsWithIgnoreCase(source, ".gz") || absl::EndsWithIgnoreCase(source, ".zst");
  const bool raw = options.format == "raw" || !options.dtype.empty();
  if (const char* const compression = CompressionOf(*head); compression != nullptr && (named || !raw)) {
    opened.compression = compression;
    bytes = std::make_unique<PeekedBytes>(Decompress(compression, std::move(bytes)));
    if (named) opened.name = source.substr(0, source.rfind('.'));
  }
  opened.bytes = std::move(bytes);
  return opened;
}

absl::StatusOr<std::unique_ptr<InputReader>> OpenArchive(const std::string& source, const Opened& opened,
                                                         const InputOptions& options) {
  const bool in_place = opened.file->regular() && opened.compression == nullptr && source != "-";
  Memory memory;
  if (!in_place) {
    absl::StatusOr<std::string> all = ReadAll(*opened.bytes, 0, static_cast<std::size_t>(UnsizedLimit()));
    if (!all.ok()) return all.status();
    memory = Memory(*std::move(all));
  }
  return OpenNpz(in_place ? source : "", std::move(memory), options);
}

absl::StatusOr<std::unique_ptr<InputReader>> OpenText(const std::string& source, const Opened& opened, bool json,
                                                      const InputOptions& options) {
  opened.file->set_on_read(options.on_read);
  // Once more from the beginning, of a file that can be read twice.
  ReopenText reopen;
  if (opened.file->regular() && source != "-") {
    reopen = [source, options]() -> absl::StatusOr<std::shared_ptr<ByteSource>> {
      absl::StatusOr<Opened> again = OpenSource(source, options);
      if (!again.ok()) return again.status();
      return std::shared_ptr<ByteSource>(again->bytes);
    };
  }
  return OpenTextColumns(opened.bytes, std::move(reopen), options, json);
}

// The one array of a .npy file or of raw elements.
absl::StatusOr<std::unique_ptr<InputReader>> OpenOne(const Opened& opened, bool npy, const InputOptions& options) {
  const bool in_place = opened.file->regular() && opened.file->size() > 0 && opened.compression == nullptr;
  const auto one = [&](absl::StatusOr<Input> input) -> absl::StatusOr<std::unique_ptr<InputReader>> {
    if (!input.ok()) return input.status();
    return std::make_unique<OneArray>(*std::move(input), opened.bytes);
  };
  if (!npy && !in_place) {  // the size says how many elements there are
    const absl::Time start = absl::Now();
    opened.file->set_on_read(options.on_read);
    absl::StatusOr<std::string> all = ReadAll(*opened.bytes, 0, static_cast<std::size_t>(UnsizedLimit()));
    if (!all.ok()) return all.status();
    absl::StatusOr<Layout> layout = ParseRaw(static_cast<std::int64_t>(all->size()), options);
    if (!layout.ok()) return layout.status();
    absl::StatusOr<Memory> memory = Memory::Of(Memory(*std::move(all)), options.hold);
    if (!memory.ok()) return memory.status();
    Input input;
    input.layout = *std::move(layout);
    input.memory = *std::move(memory);
    input.read_time = absl::Now() - start;
    return one(std::move(input));
  }
  absl::StatusOr<Layout> layout;
  if (npy) {
    const absl::StatusOr<absl::string_view> head = opened.bytes->Peek(kNpyHead);
    if (!head.ok()) return head.status();
    layout = ParseNpyHeader(*head);
    if (layout.ok() && in_place) {
      if (absl::Status status = CheckNpySize(*layout, opened.file->size()); !status.ok()) return status;
    }
  } else {
    layout = ParseRaw(opened.file->size(), options);
  }
  if (!layout.ok()) return layout.status();
  const std::int64_t bytes = *ArrayBytes(layout->dtype, layout->shape);
  if (!in_place) {  // what follows the header is read in order
    std::string header(layout->offset, '\0');
    const absl::Status status = ReadExactly(*opened.bytes, header.data(), static_cast<std::int64_t>(header.size()));
    if (!status.ok()) return status;
  }
  return one(Load({.source = opened.bytes, .file = in_place ? opened.file : nullptr, .bytes = bytes},
                  *std::move(layout), options));
}

}  // namespace

absl::Duration Input::ReadTime() const {
  if (reading == nullptr) return read_time;
  const absl::MutexLock lock(&reading->mutex);
  return reading->spent;
}

absl::StatusOr<Memory> ReadSource(const std::string& source, absl::Duration timeout) {
  const absl::StatusOr<std::unique_ptr<FileBytes>> file = FileBytes::Open(source, timeout);
  if (!file.ok()) return file.status();
  const bool known = (*file)->regular();
  const auto limit = static_cast<std::size_t>(known ? std::numeric_limits<std::int64_t>::max() : UnsizedLimit());
  absl::StatusOr<std::string> bytes = ReadAll(**file, static_cast<std::size_t>((*file)->size()), limit);
  if (!bytes.ok()) return bytes.status();
  return Memory(*std::move(bytes));
}

absl::StatusOr<std::unique_ptr<InputReader>> InputReader::Open(const std::string& source, const InputOptions& options) {
  try {
    absl::StatusOr<Opened> opened = OpenSource(source, options);
    if (!opened.ok()) return opened.status();
    const absl::StatusOr<absl::string_view> head = opened->bytes->Peek(kHeadBytes);
    if (!head.ok()) return head.status();
    const absl::StatusOr<absl::string_view> format = FormatOf(opened->name, *head, options);
    if (!format.ok()) return format.status();
    if (!options.arrays.empty() && *format != "npz") {
      return absl::InvalidArgumentError("array: got a name; allowed: of an array in a .npz file, which this isn't");
    }
    InputOptions chosen = options;
    if (options.part.has_value() && !options.part->empty()) {
      if (*format != "npz" && *format != "csv" && *format != "jsonl") {
        return absl::InvalidArgumentError(
            absl::StrCat("got the name ", *options.part, " in a .", *format,
                         " file; allowed: of an array in a .npz file, of a column of a text"));
      }
      (*format == "npz" ? chosen.arrays : chosen.columns) = {*options.part};
    }
    if (*format == "npz") return OpenArchive(source, *opened, chosen);
    if (*format == "csv" || *format == "jsonl") return OpenText(source, *opened, *format == "jsonl", chosen);
    return OpenOne(*opened, *format == "npy", options);
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return absl::ResourceExhaustedError("is too large for the memory of this process");
  }
}

absl::StatusOr<Input> ReadInput(const std::string& source, InputOptions options) {
  options.one_piece = options.in_memory = true;
  const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, options);
  if (!reader.ok()) return reader.status();
  absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
  if (!piece.ok()) return piece.status();
  if (!piece->has_value()) return absl::InvalidArgumentError("has no array");
  if (!(*piece)->input.status.ok()) return (*piece)->input.status;
  return std::move((*piece)->input);
}

absl::StatusOr<Layout> ParseRaw(std::int64_t size, const InputOptions& options) {
  const absl::StatusOr<std::int64_t> width = DTypeBytes(options.dtype);
  if (!width.ok()) return width.status();
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
  return Layout{.dtype = options.dtype, .shape = shape, .offset = static_cast<std::size_t>(options.offset)};
}

}  // namespace reduced::client
