// Arrays from files and standard input.
//
// Errors say what is wrong with the input, what was got and what is expected; they don't name the source.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_INPUT_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reduced/shared.h"
#include "reduced/types.h"

namespace reduced::client {

// Where the bytes of an input are.
enum class Hold {
  kOwn,         // in this process alone
  kShare,       // in a SharedBuffer, where a server can read them, or it is an error
  kShareLarge,  // there, if it is worth it: large files, which take no copy, if there is room
};

struct InputOptions {
  std::string format{};     // one of kFormats; empty: told from the other options, the name, and the first bytes
  std::string dtype{};      // raw
  std::int64_t offset = 0;  // raw: bytes to skip
  std::optional<std::vector<std::int64_t>> shape{};  // raw: default one dimension, up to the end
  std::string column{};                              // csv: a name of the header, or an index from 0
  Hold hold = Hold::kOwn;
};
inline constexpr absl::string_view kFormats[] = {"npy", "raw", "csv"};

// The bytes of an input, and who has them.
class Memory {
 public:
  Memory() = default;
  Memory(SharedBuffer buffer, std::size_t size) : owner_(std::move(buffer)), size_(size) {}
  // With kShare, a copy of them.
  static absl::StatusOr<Memory> Of(std::string bytes, Hold hold);

  absl::string_view bytes() const;
  const SharedBuffer* shared() const { return std::get_if<SharedBuffer>(&owner_); }  // null: this process alone

 private:
  std::variant<std::string, SharedBuffer> owner_;
  std::size_t size_ = 0;
};

// What bytes are, as an array.
struct Layout {
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::size_t offset = 0;  // where the elements start; they go on to the end
};

struct Input {
  Layout layout;
  Memory memory;

  ArrayView View() const { return {memory.bytes().data() + layout.offset, layout.dtype, layout.shape}; }
};

// Everything that `source` has, and as an array. It is a file name, or "-" for standard input. A file is read right
// into the memory that holds it.
absl::StatusOr<Memory> ReadSource(const std::string& source, Hold hold = Hold::kOwn);
absl::StatusOr<Input> ReadInput(const std::string& source, const InputOptions& options);

// A .npy file of format 1.0 or 2.0, little-endian, in C order.
absl::StatusOr<Layout> ParseNpy(absl::string_view bytes);
bool IsNpy(absl::string_view bytes);

// Elements as they lie in memory.
absl::StatusOr<Layout> ParseRaw(absl::string_view bytes, const InputOptions& options);

// One column of numbers. Empty fields and "NaN" are NaN. `column` may be empty if there is only one. The first row is a
// header if the column is named, or if what it has in that column is not a number. Blank lines are skipped.
absl::StatusOr<std::vector<double>> ParseCsv(absl::string_view text, const std::string& column);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_INPUT_H_
