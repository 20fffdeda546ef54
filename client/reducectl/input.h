// Arrays from files and standard input.
//
// Errors say what is wrong with the input, what was got and what is expected; they don't name the source.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reduced/types.h"

namespace reduced::client {

struct InputOptions {
  std::string format{};     // one of kFormats; empty: told from the other options, the name, and the first bytes
  std::string dtype{};      // raw
  std::int64_t offset = 0;  // raw: bytes to skip
  std::optional<std::vector<std::int64_t>> shape{};  // raw: default one dimension, up to the end
  std::string column{};                              // csv: a name of the header, or an index from 0
};
inline constexpr absl::string_view kFormats[] = {"npy", "raw", "csv"};

struct Input {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
  std::size_t data_offset = 0;  // where the elements start in `bytes`; they go on to the end

  ArrayView View() const { return {bytes.data() + data_offset, dtype, shape}; }
};

// Everything that `source` has, and as an array. It is a file name, or "-" for standard input.
absl::StatusOr<std::string> ReadSource(const std::string& source);
absl::StatusOr<Input> ReadInput(const std::string& source, const InputOptions& options);

// A .npy file of format 1.0 or 2.0, little-endian, in C order.
absl::StatusOr<Input> ParseNpy(std::string bytes);
bool IsNpy(absl::string_view bytes);

// Elements as they lie in memory.
absl::StatusOr<Input> ParseRaw(std::string bytes, const InputOptions& options);

// One column of numbers, as f64. Empty fields and "NaN" are NaN. `column` may be empty if there is only one. The first
// row is a header if the column is named, or if what it has in that column is not a number. Blank lines are skipped.
absl::StatusOr<Input> ParseCsv(absl::string_view text, const std::string& column);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_H_
