// Reads arrays from files and standard input. Error messages don't name the source: the caller adds that.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_INPUT_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/reducectl/input/fields.h"
#include "client/reducectl/input/memory.h"
#include "reduced/types.h"

namespace reduced::client {

// Whether the first row of a text is a header. kAuto: it is if --column names one of its fields, or if each of its
// fields is text, of which the first may be empty. It is data if each is a number or missing, unless there are several
// and all numbers are whole, without a sign, and different, as labels are. Everything else can be either, and is an
// error: text beside numbers or missing values, what begins like a number but is none, and what has neither letters nor
// digits.
enum class Header { kAuto, kYes, kNo };

// What a comma within a number means. kDefault: thousands in texts whose fields commas delimit, as there it is quoted,
// which is a note; elsewhere, where it can be either, an error. With the others also an apostrophe or a space separates
// thousands; with kDecimal also a point.
enum class Comma { kDefault, kThousands, kDecimal };

// What happens to the missing elements of an array whose dtype has no NaN, which only texts have.
enum class Missing {
  kError,    // Input.status says where the first one is
  kDropped,  // they are not among the elements; Input.missing has their positions
  kZero,     // they are zero; Input.missing has their positions
};

struct InputOptions {
  // Of a source that is to have one array, for which there are no options: the name of it, in a .npz or .safetensors
  // file or as a column of a text; empty: there is no other. Absent: any source.
  std::optional<std::string> part{};
  std::string format{};     // one of kFormats; empty: by the other options, the name and the first bytes
  std::string dtype{};      // raw; of text: of all columns, instead of the one that each needs; npy: see IsVoidDType
  std::int64_t offset = 0;  // raw: bytes to skip
  std::optional<std::vector<std::int64_t>> shape{};  // raw; absent: one dimension, up to the end
  std::vector<std::string> columns{};                // text: names in the header, indexes from 0, or "all"
  bool all_columns = false;                          // text: if `columns` is empty, all that have numbers
  Header header = Header::kAuto;                     // text
  char delimiter = 0;                                // text; ' ': spaces and tabs; 0: found in the first lines
  Comma comma = Comma::kDefault;                     // text
  std::string comment{};                             // text: lines that begin so are skipped; empty: there are none
  std::vector<std::string> missing_words{};          // text: beside those that IsMissing() knows
  Missing missing = Missing::kError;                 // text
  // Text: columns whose fields are kept as they are, beside those that are read as elements: names and indexes, in any
  // order. See InputReader::fields().
  std::vector<std::string> fields{};
  // There are no elements but in files of other formats: of text, `fields` are the columns, or its only one.
  bool only_fields = false;
  bool texts = false;  // text: columns without numbers are not left out, and come as Input.words
  std::size_t most_word_bytes = std::size_t{256} << 20;  // of the different texts of all these columns together
  std::vector<std::string> arrays{};                     // npz, safetensors: names; empty: all
  // safetensors: elements whose dtype `reduced` lacks are read as unsigned integers of their size.
  bool raw_dtypes = false;
  Hold hold = Hold::kOwn;
  bool one_piece = false;                             // each array is one Piece
  bool in_memory = false;                             // elements are read at once, never as they are sent
  bool positions = false;                             // elements in C order, because the position of one is asked for
  absl::Duration timeout = absl::InfiniteDuration();  // of reading one that isn't a regular file
  OnProgress on_read{};                               // called as bytes are read into memory; total 0: unknown
};
inline constexpr absl::string_view kFormats[] = {"npy", "npz", "raw", "csv", "jsonl", "safetensors"};

// How bytes form an array.
struct Layout {
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::size_t offset = 0;   // of the first element; the elements extend to the end
  bool fortran = false;     // the first index changes fastest
  bool big_endian = false;  // of elements of more than one byte
};

// How the reading of an input goes whose elements are read as they are sent. Thread-safe.
struct Reading {
  void Add(absl::Duration time, const absl::Status& status) {
    const absl::MutexLock lock(&mutex);
    spent += time;
    error.Update(status);
  }

  absl::Mutex mutex;
  absl::Duration spent ABSL_GUARDED_BY(mutex);  // by all threads together
  absl::Status error ABSL_GUARDED_BY(mutex);
};

// What a column without numbers has.
struct Words {
  std::int64_t count = 0, missing = 0;  // fields
  // Whether the others are known: not, if they would take more than InputOptions.most_word_bytes.
  bool known = true;
  std::int64_t distinct = 0;
  std::string most_frequent{};  // of those that are as frequent the first in the order of bytes
  std::int64_t frequency = 0;   // of it
};

// One array of a source.
struct Input {
  Layout layout{};  // as it is now: row-major unless positions don't matter, little-endian
  Memory memory{};
  ElementReader reader{};              // used instead if reader.read isn't null
  std::shared_ptr<Reading> reading{};  // of the reader
  absl::Duration read_time{};          // of the memory
  std::string column{};                // a text's; empty: it isn't one, or has only one without a name
  std::string array{};                 // of a .npz file; of a .safetensors file the tensor
  std::string raw_dtype{};  // what the file calls the dtype, if elements come as InputOptions.raw_dtypes says
  // Why this one of several arrays can't be read. The others can.
  absl::Status status{};
  std::optional<Words> words{};  // instead of elements: see InputOptions.texts
  // The positions of missing elements, ascending: see InputOptions.missing.
  std::vector<std::uint64_t> missing{};
  // What was inferred or skipped and can change a number of this array, for people: full clauses without the source.
  std::vector<std::string> notes{};

  ArrayView View() const { return {memory.bytes().data() + layout.offset, layout.dtype, layout.shape, reader}; }
  absl::Duration ReadTime() const;
};

// A part of an array, or all of it.
struct Piece {
  Input input{};
  std::size_t array = 0;  // which of the source, from 0
  bool whole = true;      // the array is this piece
  bool last = true;       // of the array's pieces
  // Pieces of all arrays come anew, with other types: forget those that came before.
  bool restart = false;
};

// The arrays of a source, a file name or "-" for standard input, one after the other. Elements of large files are read
// as they are sent, and large texts come in pieces, so that the memory stays small. Thread-compatible.
class InputReader {
 public:
  // FIFOs, devices and standard input may have no end. DEADLINE_EXCEEDED: such a source hasn't ended within `timeout`,
  // or nobody has opened the FIFO.
  static absl::StatusOr<std::unique_ptr<InputReader>> Open(const std::string& source, const InputOptions& options);
  virtual ~InputReader() = default;
  // Returns nothing after the last piece. The piece before must have been used: it may be read while this goes on.
  virtual absl::StatusOr<std::optional<Piece>> Next() = 0;
  // The notes of all arrays so far, each once, and what was left out of the source.
  virtual std::vector<std::string> notes() const { return {}; }
  // The columns of InputOptions.fields, in their order, once the text has been read as a whole, which it is at the
  // first Next() if each array is one piece. Null: it is no text. Valid as long as this is.
  virtual std::vector<FieldColumn>* fields() { return nullptr; }
  // Whether several arrays were asked for, so that each needs its name beside its answer.
  bool several() const { return several_; }

 protected:
  bool several_ = false;
};

// The first array of a source, in memory.
absl::StatusOr<Input> ReadInput(const std::string& source, InputOptions options);

// All bytes of a source. RESOURCE_EXHAUSTED: it has no known size and more bytes than UnsizedLimit(), or a file is too
// large for the memory.
absl::StatusOr<Memory> ReadSource(const std::string& source, absl::Duration timeout = absl::InfiniteDuration());

// The header of a .npy file of format 1.0, 2.0 or 3.0, of which `head` has at least kNpyHead bytes, or all. `dtype`:
// empty, or one that IsVoidDType, which elements are then that NumPy saved as bytes without a type.
inline constexpr std::size_t kNpyHead = (std::size_t{1} << 16) + 12;
// bf16 and the floats of 8 bits.
bool IsVoidDType(absl::string_view dtype);
absl::StatusOr<Layout> ParseNpyHeader(absl::string_view head, absl::string_view dtype = "");
bool IsNpy(absl::string_view head);
// The header of a file, of format 1.0, whose elements follow in C order. `dtype`: one of DTypeNames(), or NumPy's name
// of text in UCS-4 without the byte order, such as U5.
std::string NpyHeader(const std::string& dtype, const std::vector<std::int64_t>& shape);
// The same of a whole file.
absl::StatusOr<Layout> ParseNpy(absl::string_view bytes);
// INVALID_ARGUMENT: the file is truncated, or goes on after the elements. `size`: of the whole file. `next`: the first
// kNextBytes after the elements, where they can be looked at.
inline constexpr std::size_t kNextBytes = 6;
absl::Status CheckNpySize(const Layout& layout, std::int64_t size, absl::string_view next = "");
// INVALID_ARGUMENT: a file goes on with `next` after its array. `got`: "14 bytes; allowed: 12".
absl::Status GoesOn(absl::string_view next, absl::string_view got);

// Raw elements in a file of `size` bytes.
absl::StatusOr<Layout> ParseRaw(std::int64_t size, const InputOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_INPUT_H_
