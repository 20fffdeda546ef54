#include "client/reducectl/input/text_columns.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/reducectl/input/text.h"
#include "kernels/algebra/dtype.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr std::size_t kPieceElements = std::size_t{32} << 20;  // that the pieces of all columns have together
constexpr std::size_t kPieceRows = std::size_t{8} << 20;       // of one, at most

class TextColumns final : public InputReader {
 public:
  static absl::StatusOr<std::unique_ptr<InputReader>> Open(std::shared_ptr<ByteSource> source, ReopenText reopen,
                                                           const InputOptions& options, bool json) {
    ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(std::move(source), options, json));
    std::unique_ptr<TextColumns> columns(new TextColumns(std::move(text), std::move(reopen), options, json));
    const std::size_t wanted = columns->text_->columns().size();
    // The columns of JSON are known at its end only.
    columns->rows_ = options.one_piece || json
                         ? std::numeric_limits<std::size_t>::max()
                         : std::clamp<std::size_t>(kPieceElements / std::max<std::size_t>(wanted, 1), 1, kPieceRows);
    return columns;
  }

  absl::StatusOr<std::optional<Piece>> Next() override {
    for (;;) {
      if (next_ == text_->columns().size() || !begun_) {
        if (!more_) return std::nullopt;
        RETURN_IF_ERROR(ReadBlock());
        if (text_->columns().empty()) return std::nullopt;  // only fields
      }
      const std::size_t position = next_++;
      TextReader::Column& column = text_->columns()[position];
      if (column.text && !more_ && column.status.ok() && column.filled > 0) return WordsPiece(column, position);
      // Text may still turn out to have numbers, until it ends. What was bad in the block before has been said.
      if (column.text && (more_ || column.status.ok())) continue;
      if (!column.status.ok() && std::exchange(reported_[position], true)) continue;
      if (column.status.ok() && LacksNan(column)) {
        std::vector<std::uint64_t> missing;
        column.numbers.Take(/*zeros=*/false, &missing);
        if (more_) continue;  // there may be floats
        column.status = absl::FailedPreconditionError(
            absl::StrCat("line ", column.numbers.missing_line(), ": column \"", column.name.substr(0, 60),
                         "\": got a missing field; allowed: elements of ", column.numbers.dtype(),
                         ", which has no NaN; --dtype f64 has"));
      }
      return PieceOf(column, position);
    }
  }

  std::vector<FieldColumn>* fields() override { return &text_->fields(); }

  std::vector<std::string> notes() const override {
    if (more_) return {};  // there may be other ones
    std::vector<std::string> notes = text_->notes();
    for (const TextReader::Column& column : text_->columns()) {
      for (std::string& note : text_->notes(column)) notes.push_back(std::move(note));
    }
    return notes;
  }

 private:
  TextColumns(std::unique_ptr<TextReader> text, ReopenText reopen, const InputOptions& options, bool json)
      : text_(std::move(text)), reopen_(std::move(reopen)), options_(options), json_(json) {}

  // Whether it has missing fields that must be NaN but can't.
  bool LacksNan(const TextReader::Column& column) const {
    return options_.missing == Missing::kError && column.numbers.missing_line() > 0 &&
           !RowOf(*DTypeFromName(column.numbers.dtype())).is_float;
  }

  std::vector<std::string> NotesOf(const TextReader::Column& column) const {
    std::vector<std::string> notes = text_->notes();
    for (std::string& note : text_->notes(column)) notes.push_back(std::move(note));
    return notes;
  }

  absl::StatusOr<std::optional<Piece>> PieceOf(TextReader::Column& column, std::size_t position) {
    const std::size_t array = arrays_.try_emplace(position, arrays_.size()).first->second;
    Piece piece{.array = array, .whole = only_ && !more_, .last = !more_, .restart = std::exchange(restart_, false)};
    Input& input = piece.input;
    input.column = column.name;
    input.notes = NotesOf(column);
    input.read_time = std::exchange(read_time_, absl::ZeroDuration());
    input.status = column.status;
    if (!input.status.ok()) {
      piece.last = true;
      return piece;
    }
    std::size_t count = column.numbers.count();
    input.layout.dtype = column.numbers.dtype();
    Memory elements = column.numbers.Take(options_.missing == Missing::kZero, &input.missing);
    if (options_.missing == Missing::kDropped) count -= input.missing.size();
    input.layout.shape = {static_cast<std::int64_t>(count)};
    ASSIGN_OR_RETURN(input.memory, Memory::Of(std::move(elements), options_.hold));
    return piece;
  }

  Piece WordsPiece(const TextReader::Column& column, std::size_t position) {
    Piece piece{.array = arrays_.try_emplace(position, arrays_.size()).first->second};
    piece.input.column = column.name;
    piece.input.notes = NotesOf(column);
    piece.input.words = text_->WordsOf(column);
    return piece;
  }

  absl::Status ReadBlock() {
    const absl::Time start = absl::Now();
    for (;;) {
      const absl::StatusOr<bool> more = text_->Read(rows_);
      more_ = more.ok() && *more;
      if (!more.ok()) return more.status();
      const auto changed = [](const TextReader::Column& column) {
        return column.numbers.changed() && column.status.ok();
      };
      if (std::none_of(text_->columns().begin(), text_->columns().end(), changed)) break;
      RETURN_IF_ERROR(Restart());
    }
    only_ = !begun_ || restart_;
    begun_ = true;
    next_ = 0;
    read_time_ += absl::Now() - start;
    return absl::OkStatus();
  }

  // A column that began with whole numbers has others, too, or with missing fields has whole numbers.
  absl::Status Restart() {
    if (reopen_ == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("a column has numbers of another type by line ", text_->line(),
                                                     " than before, and the input can't be read twice; add --dtype"));
    }
    ASSIGN_OR_RETURN(std::shared_ptr<ByteSource> source, reopen_());
    ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, TextReader::Open(std::move(source), options_, json_));
    for (TextReader::Column& column : text->columns()) {
      for (TextReader::Column& before : text_->columns()) {
        if (before.index != column.index) continue;
        before.numbers.Start();
        column.numbers = before.numbers;
      }
    }
    text_ = std::move(text);
    restart_ = true;
    return absl::OkStatus();
  }

  std::unique_ptr<TextReader> text_;
  const ReopenText reopen_;
  const InputOptions options_;
  const bool json_;
  std::size_t rows_ = 0;
  std::map<std::size_t, std::size_t> arrays_;  // of the columns that have elements, in the order in which they came
  std::map<std::size_t, bool> reported_;       // columns of which a bad field was said
  std::size_t next_ = 0;                       // of the columns
  bool begun_ = false, more_ = true, only_ = true, restart_ = false;
  absl::Duration read_time_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InputReader>> OpenTextColumns(std::shared_ptr<ByteSource> source, ReopenText reopen,
                                                             const InputOptions& options, bool json) {
  return TextColumns::Open(std::move(source), std::move(reopen), options, json);
}

}  // namespace reduced::client
