// The bins of a histogram, by the smallest element of each: which elements a bin has is then told by comparing
// elements, whatever the dtype. Edges are doubles, to which integers of 64 bits are rounded before they are compared,
// as in NumPy; all other elements are doubles. Elements that C++ does not compare are compared by their sort keys.
#ifndef REDUCED_KERNELS_FOLDS_HISTOGRAM_BINS_H_
#define REDUCED_KERNELS_FOLDS_HISTOGRAM_BINS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/sort_key.h"

namespace reduced {

template <class T>
class HistogramBins {
 public:
  using Key = SortKey<T>;
  using Word = typename Key::Type;

  // What is compared. -0 and +0 are equal as elements; as keys they have the same bin, because an edge of 0 begins at
  // -0.
  using Value = std::conditional_t<std::is_arithmetic_v<T>, T, Word>;

  // How much memory it takes at most, while it is made.
  static std::int64_t BytesFor(std::int64_t edges) { return edges * static_cast<std::int64_t>(2 * sizeof(Word)); }

  // `edges`: at least 2, finite and ascending.
  explicit HistogramBins(const std::vector<double>& edges) : bins_(std::ssize(edges) - 1) {
    std::vector<Word> lowest;
    lowest.reserve(edges.size());
    lowest_.reserve(edges.size());
    for (std::int64_t i = 0; i < bins_; ++i) {
      const std::optional<Word> least = AtLeast(edges[static_cast<std::size_t>(i)]);
      if (!least.has_value()) break;
      lowest.push_back(*least);
    }
    // The last bin that can have an element has its upper edge, or is open: no element is as large as the next edge.
    used_ = std::ssize(lowest);
    const std::optional<Word> most =
        used_ < bins_ ? std::optional<Word>(Last()) : AtMost(edges[static_cast<std::size_t>(bins_)]);
    if (used_ == 0 || !most.has_value() || *most < lowest.front()) {
      used_ = 0;
      return;
    }
    // If the largest element is in the last bin, it goes to one more, which counts as the last.
    lowest.push_back(*most == Key::kMost ? *most : static_cast<Word>(*most + 1));
    for (const Word key : lowest) lowest_.push_back(ValueOf(Key::Element(key)));
    first_ = lowest_.front();
    last_ = ValueOf(Key::Element(*most));
    const double range = edges[static_cast<std::size_t>(bins_)] - edges.front();
    from_ = edges.front();
    scale_ = static_cast<double>(bins_) / range;
    even_ =
        std::isfinite(range) && std::isfinite(scale_) && std::isfinite(scale_ * range) && GuessesAreNear(lowest, *most);
  }

  std::int64_t bins() const { return bins_; }

  // Adds to `counts`, which has bins() + 1 entries, how many elements are in each bin. In() tells what they mean: the
  // last bin may have two entries.
  void Count(const void* elements, std::int64_t count, std::uint64_t* counts) const {
    if (used_ == 0) return;
    if (even_) {
      CountEach(elements, count, counts, [this](T x, Value value) { return NearGuess(x, value); });
    } else {
      CountEach(elements, count, counts, [this](T, Value value) { return Search(value); });
    }
  }

  // Of `counts` after the last call of Count().
  std::uint64_t In(std::int64_t bin, const std::uint64_t* counts) const {
    if (bin >= used_) return 0;
    return counts[bin] + (bin == used_ - 1 ? counts[used_] : 0);
  }

 private:
  template <class BinOf>
  void CountEach(const void* elements, std::int64_t count, std::uint64_t* counts, const BinOf& bin_of) const {
    for (std::int64_t i = 0; i < count; ++i) {
      T x;
      std::memcpy(&x, static_cast<const std::byte*>(elements) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      const Value value = ValueOf(x);
      if (value >= first_ && value <= last_) ++counts[bin_of(x, value)];
    }
  }

  std::int64_t Guess(T x) const { return std::min(static_cast<std::int64_t>((Real(x) - from_) * scale_), used_ - 1); }
  std::int64_t NearGuess(T x, Value value) const {
    const std::int64_t guess = Guess(x);
    return guess + (value >= lowest_[static_cast<std::size_t>(guess + 1)] ? 1 : 0) -
           (value < lowest_[static_cast<std::size_t>(guess)] ? 1 : 0);
  }
  // The last bin that begins at the value or below.
  std::int64_t Search(Value value) const {
    const Value* at = lowest_.data();
    for (std::int64_t left = used_; left > 1;) {
      const std::int64_t half = left / 2;
      at = at[half] <= value ? at + half : at;
      left -= half;
    }
    return at - lowest_.data();
  }

  // Whether guesses are off by one bin at most: they never fall as elements grow, so the ends of each bin tell. `most`:
  // the key of the largest element that is in a bin.
  bool GuessesAreNear(const std::vector<Word>& lowest, Word most) const {
    for (std::int64_t bin = 0; bin < used_; ++bin) {
      const Word begin = lowest[static_cast<std::size_t>(bin)], next = lowest[static_cast<std::size_t>(bin + 1)];
      if (bin < used_ - 1 ? begin >= next : begin > most) continue;  // no element is in this bin
      for (const Word key : {begin, bin < used_ - 1 ? static_cast<Word>(next - 1) : most}) {
        if (std::abs(Guess(Key::Element(key)) - bin) > 1) return false;
      }
    }
    return true;
  }

  static Value ValueOf(T x) {
    if constexpr (std::is_arithmetic_v<T>) {
      return x;
    } else {
      return Key::Of(x);
    }
  }
  static double Real(T x) {
    if constexpr (kIsFloat<T>) {
      return ToDouble(x);
    } else {
      return static_cast<double>(ToInteger(x));
    }
  }

  // The keys of the smallest and of the largest element, other than NaN.
  static Word First() { return kIsFloat<T> ? Key::Of(FromReal(-std::numeric_limits<double>::infinity())) : Word{0}; }
  static Word Last() {
    if constexpr (kIsFloat<T>) return Key::Of(FromReal(std::numeric_limits<double>::infinity()));
    return std::is_same_v<T, Bool> ? Word{1} : Key::kMost;
  }
  static T FromReal(double x) {
    if constexpr (kIsFloat<T>) return FromDouble<T>(x);
    return T{};
  }
  static double RealOf(Word key) { return Real(Key::Element(key)); }

  // The key of the smallest element that is at least `edge`.
  static std::optional<Word> AtLeast(double edge) {
    Word low = First(), high = Last();
    if (RealOf(high) < edge) return std::nullopt;
    while (low < high) {
      const auto middle = static_cast<Word>(low + (high - low) / 2);
      RealOf(middle) >= edge ? high = middle : low = static_cast<Word>(middle + 1);
    }
    return low;
  }
  // The key of the largest element that is at most `edge`.
  static std::optional<Word> AtMost(double edge) {
    Word low = First(), high = Last();
    if (RealOf(low) > edge) return std::nullopt;
    while (low < high) {
      const auto middle = static_cast<Word>(high - (high - low) / 2);
      RealOf(middle) <= edge ? low = middle : high = static_cast<Word>(middle - 1);
    }
    return low;
  }

  const std::int64_t bins_;
  std::int64_t used_ = 0;       // bins before this one can have elements
  std::vector<Value> lowest_;   // the smallest of each of these; then what comes after the last one
  Value first_ = 0, last_ = 0;  // all bins have first_ to last_
  double from_ = 0, scale_ = 0;
  bool even_ = false;  // (x - from_) * scale_ is the number of the bin, or of a neighbour
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_HISTOGRAM_BINS_H_
