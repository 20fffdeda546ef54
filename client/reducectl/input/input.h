// Reads arrays from files and standard input. Error messages don't name the source: the caller adds that.
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

// Where the bytes of an input are stored.
enum class Hold {
  kOwn,         // in memory of this process
  kShare,       // in a SharedBuffer, which a server can read; an error if that is impossible
  kShareLarge,  // large files in a SharedBuffer if that is possible, other inputs in memory of this process
};

struct InputOptions {
  std::string format{};     // one of kFormats; empty: by the other options, the name and the first bytes
  std::string dtype{};      // raw
  std::int64_t offset = 0;  // raw: bytes to skip
  std::optional<std::vector<std::int64_t>> shape{};  // raw; absent: one dimension, up to the end
  std::string column{};                              // csv: a name in the header, or an index from 0
  Hold hold = Hold::kOwn;
};
inline constexpr absl::string_view kFormats[] = {"npy", "raw", "csv"};

// The bytes of an input, which it owns.
class Memory {
 public:
  Memory() = default;
  Memory(SharedBuffer buffer, std::size_t size) : owner_(std::move(buffer)), size_(size) {}
  // Copies the bytes if `hold` is kShare.
  static absl::StatusOr<Memory> Of(std::string bytes, Hold hold);

  absl::string_view bytes() const;
  const SharedBuffer* shared() const {
    return std::get_if<SharedBuffer>(&owner_);
  }  // null: they are in memory of this process

 private:
  std::variant<std::string, SharedBuffer> owner_;
  std::size_t size_ = 0;
};

// How bytes form an array.
struct Layout {
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::size_t offset = 0;  // of the first element; the elements extend to the end
};

struct Input {
  Layout layout;
  Memory memory;

  ArrayView View() const { return {memory.bytes().data() + layout.offset, layout.dtype, layout.shape}; }
};

// Reads all bytes of `source`, a file name or "-" for standard input, directly into the memory that holds them.
// ReadInput also determines their layout.
absl::StatusOr<Memory> ReadSource(const std::string& source, Hold hold = Hold::kOwn);
absl::StatusOr<Input> ReadInput(const std::string& source, const InputOptions& options);

// A .npy file of format 1.0 or 2.0, little-endian, in C order.
absl::StatusOr<Layout> ParseNpy(absl::string_view bytes);
bool IsNpy(absl::string_view bytes);

// Raw elements.
absl::StatusOr<Layout> ParseRaw(absl::string_view bytes, const InputOptions& options);

// One column of numbers. Empty fields and "NaN" are NaN. `column` may be empty if there is only one. The first row is a
// header if `column` is a name, or if the first field of the column isn't a number. Blank lines are skipped.
absl::StatusOr<std::vector<double>> ParseCsv(absl::string_view text, const std::string& column);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_INPUT_H_
