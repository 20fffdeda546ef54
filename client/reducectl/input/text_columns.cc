#include "client/reducectl/input/text_columns.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/reducectl/input/text.h"

namespace reduced::client {
namespace {

constexpr std::size_t kPieceElements = std::size_t{32} << 20;  // that the pieces of all columns have together
constexpr std::size_t kPieceRows = std::size_t{8} << 20;       // of one, at most

class TextColumns final : public InputReader {
 public:
  static absl::StatusOr<std::unique_ptr<InputReader>> Open(std::shared_ptr<ByteSource> source, ReopenText reopen,
                                                           const InputOptions& options) {
    absl::StatusOr<std::unique_ptr<TextReader>> text = TextReader::Open(std::move(source), options);
    if (!text.ok()) return text.status();
    std::unique_ptr<TextColumns> columns(new TextColumns(*std::move(text), std::move(reopen), options));
    const std::size_t wanted = columns->text_->columns().size();
    columns->rows_ = options.one_piece ? std::numeric_limits<std::size_t>::max()
                                       : std::clamp<std::size_t>(kPieceElements / wanted, 1, kPieceRows);
    return columns;
  }

  absl::StatusOr<std::optional<Piece>> Next() override {
    if (next_ == text_->columns().size() || !begun_) {
      if (!more_) return std::nullopt;
      if (const absl::Status status = ReadBlock(); !status.ok()) return status;
    }
    TextReader::Column& column = text_->columns()[next_];
    Piece piece{.array = next_++, .whole = only_ && !more_, .last = !more_, .restart = std::exchange(restart_, false)};
    piece.input.layout = {.dtype = column.numbers.dtype(),
                          .shape = {static_cast<std::int64_t>(column.numbers.count())}};
    piece.input.layout.dtype = column.numbers.dtype();
    absl::StatusOr<Memory> memory = Memory::Of(column.numbers.Take(), options_.hold);
    if (!memory.ok()) return memory.status();
    piece.input.memory = *std::move(memory);
    piece.input.read_time = std::exchange(read_time_, absl::ZeroDuration());
    piece.input.column = column.name;
    return piece;
  }

  std::vector<std::string> notes() const override { return text_->notes(); }

 private:
  TextColumns(std::unique_ptr<TextReader> text, ReopenText reopen, const InputOptions& options)
      : text_(std::move(text)), reopen_(std::move(reopen)), options_(options) {}

  absl::Status ReadBlock() {
    const absl::Time start = absl::Now();
    for (;;) {
      const absl::StatusOr<bool> more = text_->Read(rows_);
      if (!more.ok()) return more.status();
      more_ = *more;
      const auto changed = [](const TextReader::Column& column) { return column.numbers.changed(); };
      if (std::none_of(text_->columns().begin(), text_->columns().end(), changed)) break;
      if (const absl::Status status = Restart(); !status.ok()) return status;
    }
    only_ = !begun_ || restart_;
    begun_ = true;
    next_ = 0;
    read_time_ += absl::Now() - start;
    return absl::OkStatus();
  }

  // A column that began with whole numbers has others, too.
  absl::Status Restart() {
    if (reopen_ == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("a column began with whole numbers and has other ones by line ",
                                                     text_->line(),
                                                     ", and the input can't be read twice; add --dtype f64"));
    }
    absl::StatusOr<std::shared_ptr<ByteSource>> source = reopen_();
    if (!source.ok()) return source.status();
    absl::StatusOr<std::unique_ptr<TextReader>> text = TextReader::Open(*std::move(source), options_);
    if (!text.ok()) return text.status();
    for (TextReader::Column& column : (*text)->columns()) {
      for (TextReader::Column& before : text_->columns()) {
        if (before.index != column.index) continue;
        before.numbers.Start();
        column.numbers = before.numbers;
      }
    }
    text_ = *std::move(text);
    restart_ = true;
    return absl::OkStatus();
  }

  std::unique_ptr<TextReader> text_;
  const ReopenText reopen_;
  const InputOptions options_;
  std::size_t rows_ = 0;
  std::size_t next_ = 0;  // of the columns
  bool begun_ = false, more_ = true, only_ = true, restart_ = false;
  absl::Duration read_time_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InputReader>> OpenTextColumns(std::shared_ptr<ByteSource> source, ReopenText reopen,
                                                             const InputOptions& options) {
  return TextColumns::Open(std::move(source), std::move(reopen), options);
}

}  // namespace reduced::client
