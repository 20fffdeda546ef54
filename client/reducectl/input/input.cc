#include "client/reducectl/input/input.h"

#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/reducectl/input/archive.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/compressed.h"
#include "client/reducectl/input/elements.h"
#include "client/reducectl/input/foreign.h"
#include "client/reducectl/input/npz.h"
#include "client/reducectl/input/safetensors.h"
#include "client/reducectl/input/text.h"
#include "client/reducectl/input/text_columns.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr std::size_t kHeadBytes = std::size_t{4} << 10;  // enough to tell the format
constexpr char kZip[] = ".zip";

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

constexpr char kWhatElse[] =
    "allowed: .npy, .npz, .safetensors, text with numbers, each also as .gz, .zst, .xz or .bz2, or alone in a .zip";

// The format: one of kFormats. `name`: of the file, without what says that it is compressed. `npz`: it is an archive of
// .npy files.
absl::StatusOr<absl::string_view> FormatOf(absl::string_view name, absl::string_view head, bool npz,
                                           const InputOptions& options) {
  if (!options.format.empty()) return options.format;
  const auto ends = [&](absl::string_view suffix) { return absl::EndsWithIgnoreCase(name, suffix); };
  const bool table_option = options.header != Header::kAuto || options.delimiter != '\0' ||
                            options.comma != Comma::kDefault || !options.comment.empty();
  const bool text_option = table_option || !options.columns.empty() || !options.missing_words.empty() ||
                           (!options.fields.empty() && !options.only_fields);
  const bool safetensors = !npz && IsSafetensors(name, head);
  if (IsNpy(head) || npz || safetensors) {
    const absl::string_view format = npz ? "npz" : safetensors ? "safetensors" : "npy";
    if (!options.dtype.empty() && (!IsVoidDType(options.dtype) || safetensors)) {
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
  const bool text = text_option || ends(".csv") || ends(".tsv");
  const char* const foreign = LooksLikeText(head) ? nullptr : ForeignFormat(head);
  if (foreign != nullptr && (text || options.dtype.empty())) {
    return absl::InvalidArgumentError(absl::StrCat("is ", foreign, "; ", kWhatElse));
  }
  if (text) return "csv";
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
  FileBytes* file = nullptr;  // of `source`
  std::shared_ptr<PeekedBytes> source{};
  std::shared_ptr<PeekedBytes> bytes{};
  bool decompressed = false;           // the bytes are not those of the file
  std::shared_ptr<Archive> archive{};  // of .npy files, in place of the bytes
  std::string name{};                  // without what says that it is compressed
};

// Opens the zip archive that the bytes are. One that has a single file, which is no .npy file, is a way to compress it.
absl::Status OpenZip(const std::string& path, Opened* opened) {
  const bool in_place = opened->file->regular() && !opened->decompressed && path != "-";
  Memory memory;
  if (!in_place) {
    ASSIGN_OR_RETURN(std::string all, ReadAll(*opened->bytes, 0, static_cast<std::size_t>(UnsizedLimit())));
    memory = Memory(std::move(all));
  }
  const char* const kind = absl::EndsWithIgnoreCase(opened->name, kZip) ? "zip archive" : ".npz file";
  absl::StatusOr<std::shared_ptr<Archive>> archive = Archive::Open(in_place ? path : "", std::move(memory));
  if (!archive.ok()) {
    return absl::Status(archive.status().code(), absl::StrCat("bad ", kind, ": ", archive.status().message()));
  }
  const std::vector<Archive::File>& others = (*archive)->others();
  if (!(*archive)->arrays().empty() || others.empty()) {
    opened->archive = *std::move(archive);
    return absl::OkStatus();
  }
  if (others.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is a zip archive of ", others.size(), " files (", others[0].name.substr(0, 60), ", ",
        others[1].name.substr(0, 60), others.size() > 2 ? ", ..." : "", "); allowed: one file, or .npy files"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> file, Archive::Read(*archive, others[0]));
  opened->bytes = std::make_shared<PeekedBytes>(std::move(file));
  opened->decompressed = true;
  opened->name = others[0].name;
  return absl::OkStatus();
}

absl::StatusOr<Opened> OpenSource(const std::string& source, const InputOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<FileBytes> file, FileBytes::Open(source, options.timeout));
  Opened opened{.file = file.get(), .name = source};
  auto bytes = std::make_unique<PeekedBytes>(std::move(file));
  absl::StatusOr<absl::string_view> head = bytes->Peek(kHeadBytes);
  if (!head.ok()) return head.status();
  const bool raw = options.format == "raw" || !options.dtype.empty();
  const bool named = IsCompressedName(source);
  const char* const compression = CompressionOf(*head);
  if (compression != nullptr && (named || !raw)) {
    opened.decompressed = true;
    bytes = std::make_unique<PeekedBytes>(Decompress(compression, std::move(bytes)));
    if (named) opened.name = source.substr(0, source.rfind('.'));
    head = bytes->Peek(kHeadBytes);
    if (!head.ok()) return head.status();
    if (CompressionOf(*head) != nullptr && !raw) {
      return absl::InvalidArgumentError(
          absl::StrCat("is ", CompressionOf(*head), " data within ", compression, " data; allowed: compressed once"));
    }
  } else if (named && compression == nullptr && raw && options.format.empty()) {
    return absl::InvalidArgumentError(
        "isn't compressed, as its name says; to read its bytes as they are, add --format raw");
  }
  opened.bytes = opened.source = std::move(bytes);
  if (IsZip(*head) && (options.format != "raw" || absl::EndsWithIgnoreCase(opened.name, kZip))) {
    RETURN_IF_ERROR(OpenZip(source, &opened));
  }
  return opened;
}

absl::StatusOr<std::unique_ptr<InputReader>> OpenText(const std::string& source, const Opened& opened, bool json,
                                                      const InputOptions& options) {
  opened.file->set_on_read(options.on_read);
  // Once more from the beginning, of a file that can be read twice.
  ReopenText reopen;
  if (opened.file->regular() && source != "-") {
    reopen = [source, options]() -> absl::StatusOr<std::shared_ptr<ByteSource>> {
      ASSIGN_OR_RETURN(Opened again, OpenSource(source, options));
      return std::shared_ptr<ByteSource>(again.bytes);
    };
  }
  return OpenTextColumns(opened.bytes, std::move(reopen), options, json);
}

// Whether the elements of a .npy file are the rest of it.
absl::Status CheckEnd(const FileBytes& file, const Layout& layout) {
  std::string next(kNextBytes, '\0');
  const std::int64_t end = static_cast<std::int64_t>(layout.offset) + *ArrayBytes(layout.dtype, layout.shape);
  ASSIGN_OR_RETURN(const std::size_t got, file.ReadAt(end, next.data(), next.size()));
  return CheckNpySize(layout, file.size(), next.substr(0, got));
}

// The one array of a .npy file or of raw elements.
absl::StatusOr<std::unique_ptr<InputReader>> OpenOne(const Opened& opened, bool npy, const InputOptions& options) {
  const bool in_place = opened.file->regular() && opened.file->size() > 0 && !opened.decompressed;
  const auto one = [&](absl::StatusOr<Input> input) -> absl::StatusOr<std::unique_ptr<InputReader>> {
    if (!input.ok()) return input.status();
    return std::make_unique<OneArray>(*std::move(input), opened.bytes);
  };
  if (!npy && !in_place) {  // the size says how many elements there are
    const absl::Time start = absl::Now();
    opened.file->set_on_read(options.on_read);
    ASSIGN_OR_RETURN(std::string all, ReadAll(*opened.bytes, 0, static_cast<std::size_t>(UnsizedLimit())));
    ASSIGN_OR_RETURN(Layout layout, ParseRaw(static_cast<std::int64_t>(all.size()), options));
    ASSIGN_OR_RETURN(Memory memory, Memory::Of(Memory(std::move(all)), options.hold));
    Input input;
    input.layout = std::move(layout);
    input.memory = std::move(memory);
    input.read_time = absl::Now() - start;
    return one(std::move(input));
  }
  absl::StatusOr<Layout> layout;
  if (npy) {
    ASSIGN_OR_RETURN(const absl::string_view head, opened.bytes->Peek(kNpyHead));
    layout = ParseNpyHeader(head, options.dtype);
    if (layout.ok() && in_place) {
      RETURN_IF_ERROR(CheckEnd(*opened.file, *layout));
    }
  } else {
    layout = ParseRaw(opened.file->size(), options);
  }
  if (!layout.ok()) return layout.status();
  const std::int64_t bytes = *ArrayBytes(layout->dtype, layout->shape);
  if (!in_place) {  // what follows the header is read in order
    std::string header(layout->offset, '\0');
    RETURN_IF_ERROR(ReadExactly(*opened.bytes, header.data(), static_cast<std::int64_t>(header.size())));
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
  ASSIGN_OR_RETURN(const std::unique_ptr<FileBytes> file, FileBytes::Open(source, timeout));
  const bool known = file->regular();
  const auto limit = static_cast<std::size_t>(known ? std::numeric_limits<std::int64_t>::max() : UnsizedLimit());
  ASSIGN_OR_RETURN(std::string bytes, ReadAll(*file, static_cast<std::size_t>(file->size()), limit));
  return Memory(std::move(bytes));
}

absl::StatusOr<std::unique_ptr<InputReader>> InputReader::Open(const std::string& source, const InputOptions& options) {
  try {
    ASSIGN_OR_RETURN(Opened opened, OpenSource(source, options));
    ASSIGN_OR_RETURN(const absl::string_view head, opened.bytes->Peek(kHeadBytes));
    ASSIGN_OR_RETURN(const absl::string_view format, FormatOf(opened.name, head, opened.archive != nullptr, options));
    const bool named_arrays = format == "npz" || format == "safetensors";
    if (!options.arrays.empty() && !named_arrays) {
      return absl::InvalidArgumentError(
          "array: got a name; allowed: of an array in a .npz or .safetensors file, which this isn't");
    }
    InputOptions chosen = options;
    if (options.part.has_value() && !options.part->empty()) {
      if (!named_arrays && format != "csv" && format != "jsonl") {
        return absl::InvalidArgumentError(
            absl::StrCat("got the name ", *options.part, " in a .", format,
                         " file; allowed: of an array in a .npz or .safetensors file, of a column of a text"));
      }
      if (named_arrays) {
        chosen.arrays = {*options.part};
      } else if (!options.only_fields) {
        chosen.columns = {*options.part};
      }
    }
    if (opened.archive != nullptr && format != "npz") {
      return absl::InvalidArgumentError(absl::StrCat("format: got ", format, " for a .npz file; allowed: npz, raw"));
    }
    if (format == "npz" && opened.archive == nullptr) {
      return absl::InvalidArgumentError("bad .npz file: Not a zip archive of .npy files");
    }
    if (format == "npz") return OpenNpz(opened.archive, chosen);
    if (format == "safetensors") {
      const bool in_place = opened.file->regular() && opened.file->size() > 0 && !opened.decompressed;
      if (in_place && source != "-") return OpenSafetensors(source, Memory::Map(source), chosen);
      ASSIGN_OR_RETURN(std::string all, ReadAll(*opened.bytes, 0, static_cast<std::size_t>(UnsizedLimit())));
      const auto owner = std::make_shared<const std::string>(std::move(all));
      return OpenSafetensors(source, Memory(owner, *owner), chosen);
    }
    if (format == "csv" || format == "jsonl") {
      absl::StatusOr<std::unique_ptr<InputReader>> reader = OpenText(source, opened, format == "jsonl", chosen);
      if (reader.ok()) {
        (*reader)->several_ = chosen.columns.empty() ? chosen.all_columns && !chosen.only_fields
                                                     : chosen.columns.size() > 1 || chosen.columns[0] == "all";
      }
      return reader;
    }
    return OpenOne(opened, format == "npy", options);
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return absl::ResourceExhaustedError("is too large for the memory of this process");
  }
}

absl::StatusOr<Input> ReadInput(const std::string& source, InputOptions options) {
  options.one_piece = options.in_memory = true;
  ASSIGN_OR_RETURN(const std::unique_ptr<InputReader> reader, InputReader::Open(source, options));
  ASSIGN_OR_RETURN(std::optional<Piece> piece, reader->Next());
  if (!piece.has_value()) return absl::InvalidArgumentError("has no array");
  Input& input = piece->input;
  if (!input.status.ok()) return input.status;
  input.notes = reader->notes();
  return std::move(input);
}

absl::StatusOr<Layout> ParseRaw(std::int64_t size, const InputOptions& options) {
  ASSIGN_OR_RETURN(const std::int64_t width, DTypeBytes(options.dtype));
  if (options.offset < 0 || options.offset > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset: got ", options.offset, "; allowed: 0 to ", size, ", the bytes of the file"));
  }
  const std::int64_t left = size - options.offset;
  if (left % width != 0 && !options.shape.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", left, " bytes after offset ", options.offset,
                                                   "; allowed: multiples of the ", width, " bytes of ", options.dtype));
  }
  const std::vector<std::int64_t> shape = options.shape.value_or(std::vector<std::int64_t>{left / width});
  ASSIGN_OR_RETURN(const std::int64_t expected, ArrayBytes(options.dtype, shape));
  if (expected != left) {
    return absl::InvalidArgumentError(absl::StrCat("got ", left, " bytes after offset ", options.offset,
                                                   "; allowed: ", expected, ", the bytes of shape (",
                                                   absl::StrJoin(shape, ", "), ") of ", options.dtype));
  }
  return Layout{.dtype = options.dtype, .shape = shape, .offset = static_cast<std::size_t>(options.offset)};
}

}  // namespace reduced::client
