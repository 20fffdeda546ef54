#include "client/reducectl/output/array_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reduced/ops.h"

namespace reduced::client {
namespace {

constexpr std::int64_t kMaxElements = 1000;  // that are all printed
constexpr std::int64_t kEdge = 3;            // of others, at each end of a dimension
constexpr std::size_t kLine = 75;

// An array as it is shown.
class Shown {
 public:
  Shown(const HostArray& array, bool fingerprints)
      : shape(array.shape.begin(), array.shape.end() - (fingerprints ? 1 : 0)),
        array_(array),
        fingerprints_(fingerprints) {}

  Json At(std::int64_t index) const { return fingerprints_ ? Json(Text(index)) : ToJson(array_.At(index)); }
  std::string Text(std::int64_t index) const {
    if (!fingerprints_) return array_.At(index).Text();
    const std::span<const std::uint64_t> words =
        array_.As<std::uint64_t>().subspan(2 * static_cast<std::size_t>(index));
    return ops::FingerprintText(words[0], words[1]);
  }

  const std::vector<std::int64_t> shape;

 private:
  const HostArray& array_;
  const bool fingerprints_;
};

class Printer {
 public:
  explicit Printer(const Shown& array) : array_(array) {
    std::int64_t count = 1;
    for (const std::int64_t extent : array.shape) count *= extent;
    abbreviated_ = count > kMaxElements;
  }

  std::string Print() {
    Walk(0, 0, [this](std::int64_t index) { width_ = std::max(width_, array_.Text(index).size()); });
    Rows(0, 0);
    return text_ + "\n";
  }

 private:
  std::int64_t extent(std::size_t dimension) const { return array_.shape[dimension]; }
  bool Skips(std::size_t dimension, std::int64_t i) const {
    return abbreviated_ && extent(dimension) > 2 * kEdge && i >= kEdge && i < extent(dimension) - kEdge;
  }

  // Calls `visit` for the index of each element that is printed.
  void Walk(std::size_t dimension, std::int64_t start, const std::function<void(std::int64_t)>& visit) const {
    if (dimension == array_.shape.size()) return visit(start);
    for (std::int64_t i = 0; i < extent(dimension); ++i) {
      if (Skips(dimension, i)) i = extent(dimension) - kEdge;
      Walk(dimension + 1, start * extent(dimension) + i, visit);
    }
  }

  void Rows(std::size_t dimension, std::int64_t start) {
    if (dimension == array_.shape.size()) return Item(dimension, array_.Text(start));
    const bool innermost = dimension + 1 == array_.shape.size();
    text_ += "[";
    ++column_;
    for (std::int64_t i = 0; i < extent(dimension); ++i) {
      if (i > 0) Between(dimension, innermost);
      if (Skips(dimension, i)) {
        innermost ? Item(dimension + 1, "...") : Add("...");
        i = extent(dimension) - kEdge;
        Between(dimension, innermost);
      }
      Rows(dimension + 1, start * extent(dimension) + i);
    }
    Add("]");
  }

  void Add(const std::string& text) {
    text_ += text;
    column_ += text.size();
  }

  // A new line, indented by the brackets that are open.
  void Line(std::size_t lines, std::size_t open) {
    text_.append(lines, '\n').append(open, ' ');
    column_ = open;
  }

  // What separates the items of a dimension: rows have lines of their own, and larger parts empty ones between them.
  void Between(std::size_t dimension, bool innermost) {
    if (innermost) return Add(" ");
    Line(array_.shape.size() - dimension - 1, dimension + 1);
  }

  void Item(std::size_t open, const std::string& text) {
    const bool dots = text == "...";
    const std::size_t wide = dots ? text.size() : std::max(width_, text.size());
    if (open > 0 && column_ > open && column_ + wide > kLine) {
      text_.pop_back();  // the blank before it
      Line(1, open);
    }
    Add(std::string(wide - text.size(), ' ') + text);
  }

  const Shown& array_;
  bool abbreviated_ = false;
  std::size_t width_ = 0;   // of the widest element
  std::size_t column_ = 0;  // of the current line
  std::string text_;
};

Json Nested(const Shown& array, std::size_t dimension, std::int64_t start) {
  if (dimension == array.shape.size()) return array.At(start);
  Json list = Json::array();
  for (std::int64_t i = 0; i < array.shape[dimension]; ++i) {
    list.push_back(Nested(array, dimension + 1, start * array.shape[dimension] + i));
  }
  return list;
}

// An array without elements may have any number of rows.
bool IsEmpty(const HostArray& array) {
  return std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
}

}  // namespace

bool IsFingerprint(absl::string_view op) { return op.substr(0, op.find('(')) == "fingerprint"; }

std::string ArrayText(const HostArray& array, bool fingerprints) {
  return IsEmpty(array) ? "[]\n" : Printer(Shown(array, fingerprints)).Print();
}

Json ToJson(const HostArray& array, bool fingerprints) {
  return IsEmpty(array) ? Json::array() : Nested(Shown(array, fingerprints), 0, 0);
}

}  // namespace reduced::client
