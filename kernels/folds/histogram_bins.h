// The bins of a histogram, by the smallest element of each: which elements a bin has is then told by comparing
// elements, whatever the dtype. Edges are doubles, to which integers of 64 bits are rounded before they are compared,
// as in NumPy; all other elements are doubles. Elements that C++ does not compare are compared by their sort keys.
#ifndef REDUCED_KERNELS_FOLDS_HISTOGRAM_BINS_H_
#define REDUCED_KERNELS_FOLDS_HISTOGRAM_BINS_H_

#include <algorithm>
#include <bit>
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
#include "kernels/algebra/portable.h"
#include "kernels/algebra/sort_key.h"

namespace reduced {

// Tells which bin an element is in, on the host and on a device: of a HistogramBins, or a copy of its smallest
// elements.
template <class T>
struct BinFinder {
  using Key = SortKey<T>;
  using Word = typename Key::Type;

  // What is compared. -0 and +0 are equal as elements; as keys they have the same bin, because an edge of 0 begins at
  // -0.
  using Value = std::conditional_t<std::is_arithmetic_v<T>, T, Word>;
  // What positions are computed in: f32 has the bits of elements that are no wider.
  using Real = std::conditional_t<sizeof(T) <= 2 || std::is_same_v<T, float>, float, double>;

  REDUCED_HD static Value ValueOf(T x) {
    if constexpr (std::is_arithmetic_v<T>) {
      return x;
    } else {
      return Key::Of(x);
    }
  }
  REDUCED_HD static double RealOf(T x) {
    if constexpr (kIsFloat<T>) {
      return ToDouble(x);
    } else {
      return static_cast<double>(ToInteger(x));
    }
  }

  // Whether any bin has it.
  REDUCED_HD bool Has(Value value) const { return value >= first && value <= last; }

  REDUCED_HD int Guess(T x) const {
    const int guess = static_cast<int>((RealOf(x) - from) * scale);
    return guess < used - 1 ? guess : used - 1;
  }
  REDUCED_HD int NearGuess(T x, Value value) const {
    const int guess = Guess(x);
    return guess + (value >= lowest[guess + 1] ? 1 : 0) - (value < lowest[guess] ? 1 : 0);
  }
  // The last bin that begins at the value or below.
  REDUCED_HD int Search(Value value) const {
    int at = 0;
    for (int left = used; left > 1;) {
      const int half = left / 2;
      at = lowest[at + half] <= value ? at + half : at;
      left -= half;
    }
    return at;
  }

  // The bins before the element, as a real number.
  REDUCED_HD Real Position(T x) const {
    return (static_cast<Real>(RealOf(x)) - static_cast<Real>(from)) * static_cast<Real>(scale);
  }
  // The bin of an element that some bin has, mostly without a look at where bins begin: positions ascend with elements,
  // and those of the bins' smallest elements are off by less than `margin`.
  REDUCED_HD int BinOf(T x, Value value) const {
    if (margin < Real{0.5}) {
      const Real position = Position(x);
      const int bin = static_cast<int>(position);
      const Real beyond = position - static_cast<Real>(bin);
      if (beyond >= margin && beyond <= Real{1} - margin) return bin;
    }
    return even ? NearGuess(x, value) : Search(value);
  }

  // Whether the element's position tells its bin, other than the first and the last one, whether or not some bin has
  // it: then *bin is it. For a GPU, which rounds and compares sooner than it converts numbers.
  REDUCED_HD bool PositionTells(T x, int* bin) const {
    using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
    // In whose binade neighbours are 1 apart, as far as there can be bins on either side.
    constexpr Real kWhole = Real{3} * static_cast<Real>(Bits{1} << (std::numeric_limits<Real>::digits - 2));
    const Real position = Position(x), rounded = position + kWhole;
    const Real beyond = position - (rounded - kWhole);
    const Bits number = std::bit_cast<Bits>(rounded) - std::bit_cast<Bits>(kWhole) - (beyond < 0 ? 1 : 0);
    *bin = static_cast<int>(number);
    return std::abs(beyond) >= margin && number - 1 < static_cast<Bits>(used > 2 ? used - 2 : 0);
  }

  const Value* lowest = nullptr;  // the smallest element of each bin before `used`; then what comes after the last one
  int used = 0;                   // bins before this one can have elements
  Value first = 0, last = 0;      // all bins have first to last
  double from = 0, scale = 0;
  bool even = false;  // (x - from) * scale is the number of the bin, or of a neighbour
  // 0: the whole part of a position is the bin. 0.5 and more: positions tell nothing.
  Real margin = 1;
};

template <class T>
class HistogramBins {
 public:
  using Key = SortKey<T>;
  using Word = typename Key::Type;
  using Finder = BinFinder<T>;
  using Value = typename Finder::Value;

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
    const int used = static_cast<int>(lowest.size());
    const std::optional<Word> most =
        used < bins_ ? std::optional<Word>(Last()) : AtMost(edges[static_cast<std::size_t>(bins_)]);
    if (used == 0 || !most.has_value() || *most < lowest.front()) return;
    finder_.used = used;
    // If the largest element is in the last bin, it goes to one more, which counts as the last.
    lowest.push_back(*most == Key::kMost ? *most : static_cast<Word>(*most + 1));
    for (const Word key : lowest) lowest_.push_back(Finder::ValueOf(Key::Element(key)));
    finder_.lowest = lowest_.data();
    finder_.first = lowest_.front();
    finder_.last = Finder::ValueOf(Key::Element(*most));
    const double range = edges[static_cast<std::size_t>(bins_)] - edges.front();
    finder_.from = edges.front();
    finder_.scale = static_cast<double>(bins_) / range;
    if (!std::isfinite(range) || !std::isfinite(finder_.scale) || !std::isfinite(finder_.scale * range)) return;
    finder_.even = GuessesAreNear(lowest, *most);
    if (PositionsAreNear())
      finder_.margin = static_cast<typename Finder::Real>(PositionsAreExact(lowest, *most) ? 0 : kMargin);
  }
  HistogramBins(const HistogramBins&) = delete;
  HistogramBins& operator=(const HistogramBins&) = delete;

  std::int64_t bins() const { return bins_; }
  // Whose `lowest` has finder().used + 1 elements.
  const Finder& finder() const { return finder_; }

  // Adds to `counts`, which has bins() + 1 entries, how many elements are in each bin. In() tells what they mean: the
  // last bin may have two entries.
  void Count(const void* elements, std::int64_t count, std::uint64_t* counts) const {
    if (finder_.used == 0) return;
    const Finder finder = finder_;
    if (finder.even) {
      CountEach(elements, count, counts, [&finder](T x, Value value) { return finder.NearGuess(x, value); });
    } else {
      CountEach(elements, count, counts, [&finder](T, Value value) { return finder.Search(value); });
    }
  }

  // Of `counts` after the last call of Count().
  std::uint64_t In(std::int64_t bin, const std::uint64_t* counts) const {
    if (bin >= finder_.used) return 0;
    return counts[bin] + (bin == finder_.used - 1 ? counts[finder_.used] : 0);
  }

 private:
  template <class BinOf>
  void CountEach(const void* elements, std::int64_t count, std::uint64_t* counts, const BinOf& bin_of) const {
    for (std::int64_t i = 0; i < count; ++i) {
      T x;
      std::memcpy(&x, static_cast<const std::byte*>(elements) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      const Value value = Finder::ValueOf(x);
      if (finder_.Has(value)) ++counts[bin_of(x, value)];
    }
  }

  // Whether guesses are off by one bin at most: they never fall as elements grow, so the ends of each bin tell. `most`:
  // the key of the largest element that is in a bin.
  bool GuessesAreNear(const std::vector<Word>& lowest, Word most) const {
    for (std::int64_t bin = 0; bin < finder_.used; ++bin) {
      const Word begin = lowest[static_cast<std::size_t>(bin)], next = lowest[static_cast<std::size_t>(bin + 1)];
      if (bin < finder_.used - 1 ? begin >= next : begin > most) continue;  // no element is in this bin
      for (const Word key : {begin, bin < finder_.used - 1 ? static_cast<Word>(next - 1) : most}) {
        if (std::abs(finder_.Guess(Key::Element(key)) - bin) > 1) return false;
      }
    }
    return true;
  }

  // Whether positions of the bins' smallest elements are near the bins' numbers.
  bool PositionsAreNear() const {
    for (int bin = 0; bin <= finder_.used; ++bin) {
      const T least = [&] {
        if constexpr (std::is_arithmetic_v<T>)
          return lowest_[static_cast<std::size_t>(bin)];
        else
          return Key::Element(lowest_[static_cast<std::size_t>(bin)]);
      }();
      if (!(std::abs(static_cast<double>(finder_.Position(least)) - bin) < kMargin)) return false;
    }
    return true;
  }
  // Whether no position has another whole part than that number. They are near it.
  bool PositionsAreExact(const std::vector<Word>& lowest, Word most) const {
    const auto whole = [this](Word key) {
      return std::floor(static_cast<double>(finder_.Position(Key::Element(key))));
    };
    if (whole(lowest.front()) != 0 || whole(most) > finder_.used) return false;
    for (int bin = 1; bin < finder_.used; ++bin) {
      const Word least = lowest[static_cast<std::size_t>(bin)];
      if (whole(least) != bin || whole(static_cast<Word>(least - 1)) != bin - 1) return false;
    }
    return true;
  }

  // The keys of the smallest and of the largest element, other than NaN.
  static Word First() {
    if constexpr (kIsFloat<T>) return Key::Lowest();
    return 0;
  }
  static Word Last() {
    if constexpr (kIsFloat<T>) return Key::Highest();
    return std::is_same_v<T, Bool> ? Word{1} : Key::kMost;
  }
  static double RealOf(Word key) { return Finder::RealOf(Key::Element(key)); }

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

  static constexpr double kMargin = 0x1p-9;

  const std::int64_t bins_;
  std::vector<Value> lowest_;
  Finder finder_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_HISTOGRAM_BINS_H_
