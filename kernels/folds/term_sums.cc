#include "kernels/folds/term_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "kernels/algebra/portable.h"
#include "kernels/exact/fixed_point.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/term_tiles.h"

namespace reduced {
namespace {

// A number, as an integer times a power of two. The mantissa of a double is odd, so that no unit is below its dtype's.
struct Parts {
  bool negative;
  std::uint64_t mantissa;
  int exponent;
};

Parts PartsOf(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto field = static_cast<int>(bits >> 52 & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (field != 0) mantissa |= std::uint64_t{1} << 52;
  if (mantissa == 0) return {false, 0, 0};
  const int zeros = std::countr_zero(mantissa);
  return {bits >> 63 != 0, mantissa >> zeros, (field == 0 ? 1 : field) - 1075 + zeros};
}

Parts PartsOf(Int128 x) { return {x < 0, static_cast<std::uint64_t>(x < 0 ? -x : x), 0}; }

// Adds a to the power `of_a` times b to the power `of_b`, at most four factors, with the sign changed if `negated`,
// times 2^shift, to an integer of units 2^low.
void AddProduct(const Parts& a, int of_a, const Parts& b, int of_b, bool negated, int shift, int low,
                std::span<std::uint64_t> words) {
  std::uint64_t product[5] = {1};
  std::size_t size = 1;
  for (int k = 0; k < of_a + of_b; ++k) {
    const Parts& factor = k < of_a ? a : b;
    UInt128 carry = 0;
    for (std::size_t i = 0; i < size; ++i) {
      carry += static_cast<UInt128>(product[i]) * factor.mantissa;
      product[i] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    if (carry != 0) product[size++] = static_cast<std::uint64_t>(carry);
    if (factor.mantissa == 0) return;
    negated = negated != factor.negative;
    shift += factor.exponent;
  }
  const auto position = static_cast<std::size_t>(shift - low);
  const std::size_t by = position % 64;
  std::size_t at = position / 64;
  std::uint64_t before = 0;
  std::uint64_t carry = 0;
  for (std::size_t i = 0; at < words.size() && (i <= size || carry != 0); ++i, ++at) {
    const std::uint64_t word = i < size ? product[i] : 0;
    const std::uint64_t shifted = by == 0 ? word : word << by | before >> (64 - by);
    before = word;
    const UInt128 both =
        negated ? static_cast<UInt128>(words[at]) - shifted - carry : static_cast<UInt128>(words[at]) + shifted + carry;
    words[at] = static_cast<std::uint64_t>(both);
    carry = static_cast<std::uint64_t>(both >> 64) & 1;
  }
}

// Adds a term of each pair, whatever it is.
template <class Value>
void AddEach(SumTerm term, const Value* x, const Value* y, std::int64_t count, int low,
             std::span<std::uint64_t> words) {
  const TermPowers powers = PowersIn(term);
  for (std::int64_t i = 0; i < count; ++i) {
    const Parts a = PartsOf(x[i]), b = PartsOf(y[i]);
    if (powers.distance == 1) {
      AddProduct(a, 1, b, 0, x[i] < y[i], 0, low, words);
      AddProduct(a, 0, b, 1, !(x[i] < y[i]), 0, low, words);
    } else if (powers.distance == 2) {
      AddProduct(a, 2, b, 0, false, 0, low, words);
      AddProduct(a, 0, b, 2, false, 0, low, words);
      AddProduct(a, 1, b, 1, true, 1, low, words);
    } else {
      AddProduct(a, powers.x, b, powers.y, false, 0, low, words);
    }
  }
}

// Integers as the sums of two doubles: less than 2^34 in magnitude, times 2^32, and less than 2^32.
class Halves {
 public:
  Halves(const Int128* integers, std::int64_t count) : count_(count) {
    for (std::int64_t i = 0; i < count; ++i) {
      half_[0][i] = static_cast<double>(static_cast<std::uint32_t>(integers[i]));
      half_[1][i] = static_cast<double>(static_cast<std::int64_t>(integers[i] >> kBits));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      LoadTermTileOf(DType::kF64, half_[i], count, {kBits + 2, 0, kBits + 2, true}, half_[i], &of_[i]);
    }
  }

  // Adds the sum of the integers, and of their products with others.
  void AddTo(std::span<std::uint64_t> words) const {
    for (int i = 0; i < 2; ++i) Add(SumTerm::kX, Tile(i, *this, i), i * kBits, words);
  }
  void AddProductsTo(const Halves& other, std::span<std::uint64_t> words) const {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) Add(SumTerm::kXY, Tile(i, other, j), (i + j) * kBits, words);
    }
  }

 private:
  static constexpr int kBits = 32;

  TermTile Tile(int i, const Halves& other, int j) const {
    return {.x = half_[i], .y = other.half_[j], .count = count_, .of_x = of_[i], .of_y = other.of_[j]};
  }
  static void Add(SumTerm term, const TermTile& tile, int shift, std::span<std::uint64_t> words) {
    if (TermTileFoldsHere().of[static_cast<std::size_t>(term)](tile, -shift, words)) return;
    AddEach(term, tile.x, tile.y, tile.count, -shift, words);
  }

  std::int64_t count_;
  alignas(64) double half_[2][kTermTileElements];
  Magnitudes of_[2];
};

}  // namespace

TermSums::TermSums(const OpCall& call, const ReduceSpec& spec)
    : dtype_(spec.dtype),
      other_(call.given().other.value_or(spec.dtype)),
      layout_(TermsOf(call.op), dtype_, other_),
      infinite_(call.op == Op::kDot || call.op == Op::kWeightedSum ? Infinite::kProduct
                : call.op == Op::kWeightedMean                     ? Infinite::kWeights
                : layout_.terms.front() == SumTerm::kDistance || layout_.terms.front() == SumTerm::kSquaredDistance
                    ? Infinite::kDistance
                    : Infinite::kUndefined),
      omits_nans_(spec.nan_policy == NanPolicy::kOmit),
      equal_infinities_(call.op == Op::kCompare),
      equal_nans_(call.given().equal_nan),
      words_(layout_.terms.size() * static_cast<std::size_t>(layout_.words)) {}

void TermSums::Clear() {
  counts_.fill(0);
  std::fill(words_.begin(), words_.end(), 0);
}

void TermSums::Add(const void* elements, const void* others, std::int64_t count) {
  const auto at = [](const void* array, std::int64_t i, DType dtype) -> const void* {
    return array == nullptr ? nullptr : static_cast<const std::byte*>(array) + i * RowOf(dtype).bytes;
  };
  for (std::int64_t i = 0; i < count; i += kTermTileElements) {
    AddTile(at(elements, i, dtype_), at(others, i, other_), std::min(kTermTileElements, count - i));
  }
}

void TermSums::AddTile(const void* elements, const void* others, std::int64_t count) {
  alignas(64) double x[kTermTileElements];
  alignas(64) double y[kTermTileElements];
  TermTile tile{.x = x, .y = others == nullptr ? x : y, .count = count};
  bool loaded = LoadTermTileOf(dtype_, elements, count, layout_.x, x, &tile.of_x);
  if (others != nullptr) loaded = LoadTermTileOf(other_, others, count, layout_.y, y, &tile.of_y) && loaded;
  if (!loaded && !RowOf(dtype_).is_float) return AddIntegers(elements, others, count);
  if (!loaded) {
    SetSpecialsAside(x, others == nullptr ? nullptr : y, count);
    LoadTermTileOf(DType::kF64, x, count, layout_.x, x, &tile.of_x);
    if (others != nullptr) LoadTermTileOf(DType::kF64, y, count, layout_.y, y, &tile.of_y);
  }
  tile.x_bytes = RowOf(dtype_).bytes;
  tile.x_ahead = static_cast<const std::byte*>(elements) + kTermTileElements * tile.x_bytes;
  if (others != nullptr) {
    tile.y_bytes = RowOf(other_).bytes;
    tile.y_ahead = static_cast<const std::byte*>(others) + kTermTileElements * tile.y_bytes;
  }
  Add(tile);
}

void TermSums::Add(const TermTile& tile) {
  AddCount(TermCount::kElements, tile.count);
  for (std::size_t i = 0; i < layout_.terms.size(); ++i) {
    const SumTerm term = layout_.terms[i];
    const int low = layout_.low(term);
    if (TermTileFoldsHere().of[static_cast<std::size_t>(term)](tile, low, words(i))) continue;
    AddEach(term, tile.x, tile.y, tile.count, low, words(i));
  }
}

// Integers beyond doubles are added by their halves, each of which is one: x = high 2^32 + low.
void TermSums::AddIntegers(const void* elements, const void* others, std::int64_t count) {
  AddCount(TermCount::kElements, count);
  Int128 x[kTermTileElements], y[kTermTileElements] = {};
  LoadIntegers(dtype_, elements, count, x);
  if (others != nullptr) LoadIntegers(other_, others, count, y);
  const Halves of_x(x, count), of_y(y, count);
  for (std::size_t i = 0; i < layout_.terms.size(); ++i) {
    const SumTerm term = layout_.terms[i];
    const TermPowers powers = PowersIn(term);
    if (powers.distance > 0) {
      Int128 distances[kTermTileElements];
      for (std::int64_t k = 0; k < count; ++k) distances[k] = x[k] < y[k] ? y[k] - x[k] : x[k] - y[k];
      const Halves of_distance(distances, count);
      powers.distance == 1 ? of_distance.AddTo(words(i)) : of_distance.AddProductsTo(of_distance, words(i));
    } else if (powers.x + powers.y == 1) {
      (powers.x == 1 ? of_x : of_y).AddTo(words(i));
    } else if (powers.x + powers.y == 2) {
      (powers.x > 0 ? of_x : of_y).AddProductsTo(powers.y > 0 ? of_y : of_x, words(i));
    } else {
      AddEach(term, x, y, count, 0, words(i));
    }
  }
}

void TermSums::SetSpecialsAside(double* x, double* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double a = x[i], b = y == nullptr ? 0 : y[i];
    if (std::isfinite(a) && std::isfinite(b)) continue;
    x[i] = 0;
    // The weight of an infinite element counts.
    if (y != nullptr && (infinite_ != Infinite::kWeights || std::isnan(a) || !std::isfinite(b))) y[i] = 0;
    if (std::isnan(a) || std::isnan(b)) {
      if (omits_nans_) {
        AddCount(TermCount::kElements, -1);
      } else if (!equal_nans_ || !std::isnan(a) || !std::isnan(b)) {
        AddCount(TermCount::kUndefined, 1);
      }
      continue;
    }
    if (equal_infinities_ && a == b) continue;
    double term = std::numeric_limits<double>::quiet_NaN();
    if (infinite_ == Infinite::kProduct || (infinite_ == Infinite::kWeights && std::isfinite(b))) term = a * b;
    if (infinite_ == Infinite::kDistance) term = std::fabs(a - b);
    AddCount(std::isnan(term) ? TermCount::kUndefined : term > 0 ? TermCount::kPositive : TermCount::kNegative, 1);
  }
}

void TermSums::Merge(const TermSums& other) {
  for (std::size_t i = 0; i < kTermCounts; ++i) counts_[i] += other.counts_[i];
  for (std::size_t i = 0; i < layout_.terms.size(); ++i) {
    const auto size = static_cast<std::size_t>(layout_.words);
    AddWords(std::span(other.words_).subspan(i * size, size), words(i));
  }
}

void TermSums::AddDigits(SumTerm term, int factor, std::span<const unsigned long long> digits, int unit) {
  const auto number = static_cast<std::size_t>(std::ranges::find(layout_.terms, term) - layout_.terms.begin());
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] == 0) continue;
    // All of them are multiples of the unit of the sum, which may lie within a digit.
    const int position = unit + 32 * static_cast<int>(i) - layout_.low(term);
    const std::int64_t digit = static_cast<std::int64_t>(digits[i]) >> std::max(0, -position);
    const auto at = static_cast<unsigned>(std::max(0, position));
    const std::int64_t high = digit >> 32, low = digit & 0xffffffff;  // whose products with the factor fit
    AddAt(factor * low, at, words(number));
    AddAt(factor * high, at + 32, words(number));
  }
}

void TermSums::Save(Entries* to) const {
  const auto add = [to](std::size_t number, std::size_t word, std::uint64_t value) {
    if (value != 0) to->Add(IntegerKey(number, word), value);
  };
  for (std::size_t i = 0; i < kTermCounts; ++i) add(i, 0, static_cast<std::uint64_t>(counts_[i]));
  const auto size = static_cast<std::size_t>(layout_.words);
  for (std::size_t i = 0; i < words_.size(); ++i) add(kTermCounts + i / size, i % size, words_[i]);
}

absl::Status TermSums::Load(const Entries& from) {
  Clear();
  const auto size = static_cast<std::size_t>(layout_.words);
  for (std::size_t i = 0; i < from.keys.size(); ++i) {
    const std::uint64_t key = from.keys[i];
    if (key >= kFirstRecordKey) break;
    const std::size_t number = NumberOfInteger(key), word = WordOfInteger(key);
    if (number >= layout_.integers() || word >= (number < kTermCounts ? 1 : size)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("keys: got %d; allowed: words of %d integers", key, layout_.integers()));
    }
    if (number < kTermCounts) {
      counts_[number] = static_cast<std::int64_t>(from.values[i]);
    } else {
      words_[(number - kTermCounts) * size + word] = from.values[i];
    }
  }
  return absl::OkStatus();
}

std::optional<double> TermSums::special() const {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool positive = count(TermCount::kPositive) != 0, negative = count(TermCount::kNegative) != 0;
  if (count(TermCount::kUndefined) != 0 || (positive && negative)) return std::numeric_limits<double>::quiet_NaN();
  if (positive || negative) return positive ? infinity : -infinity;
  return std::nullopt;
}

Scaled TermSums::sum(SumTerm term) const {
  const auto number = static_cast<std::size_t>(std::ranges::find(layout_.terms, term) - layout_.terms.begin());
  const auto size = static_cast<std::size_t>(layout_.words);
  return Scaled::Of(std::span(words_).subspan(number * size, size), layout_.low(term));
}

}  // namespace reduced
