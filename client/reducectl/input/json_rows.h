// JSON lines as a table: an object on each line, whose keys are the columns.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_JSON_ROWS_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_JSON_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/number.h"
#include "client/reducectl/input/rows.h"

namespace reduced::client {

// Whether these bytes, the first of a text, begin a JSON object.
bool LooksLikeJson(absl::string_view head);

// A row has a field for each key so far; those that its object lacks, and null, are empty. Numbers are as they are
// written, strings with their quotes unless they say that there is no value, objects and arrays "{...}" and "[...]".
// Also NaN, Infinity and -Infinity are numbers, as Python writes them. Thread-compatible.
class JsonRows final : public RowSource {
 public:
  JsonRows(std::shared_ptr<ByteSource> source, std::vector<std::string> missing_words)
      : source_(std::move(source)), words_(std::move(missing_words), {}) {}

  absl::StatusOr<bool> Next() override;
  // The keys so far, in the order in which they came.
  const std::vector<std::string>& names() const { return names_; }
  // The index of a key, which it gets if it has none.
  std::size_t IndexOf(absl::string_view name);
  // Whether any object has had it.
  bool Seen(std::size_t index) const { return lines_[index] > 0; }

 private:
  absl::StatusOr<bool> TakeLine(absl::string_view* line);
  absl::Status Parse(absl::string_view object);
  absl::Status Bad(absl::string_view at, absl::string_view what) const;

  const std::shared_ptr<ByteSource> source_;
  const MissingWords words_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what has not been taken of it
  bool last_ = false;      // nothing follows it
  std::int64_t next_line_ = 1;
  std::vector<std::string> names_;
  std::vector<std::int64_t> lines_;  // on which each key was last
  absl::flat_hash_map<std::string, std::size_t> indexes_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_JSON_ROWS_H_
