// The fold of compare: counts, an exact sum of squared distances, and records: the first mismatch, and the greatest
// differences with the ranks of their elements.
#include "kernels/folds/compare.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "kernels/exact/scaled.h"
#include "kernels/folds/compare_tiles.h"
#include "kernels/folds/distances.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/term_sums.h"
#include "kernels/folds/term_tiles.h"

namespace reduced {
namespace {

constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();

// x, but of all NaNs the same one: conversions differ in what they leave of the bits.
double Number(double x) { return std::isnan(x) ? kNoFigure : x; }

// The element that is the first in some respect: the less its rank is, and then its index, the better.
struct Record {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  std::uint64_t rank = kNone;
  std::uint64_t index = kNone;  // a rank of the output, until it is saved
  double x = 0, y = 0;

  bool any() const { return index != kNone; }
  friend bool operator<(const Record& a, const Record& b) {
    return std::tie(a.rank, a.index) < std::tie(b.rank, b.index);
  }
};

// Of greater figures the rank is less.
std::uint64_t RankOfFigure(double figure) { return ~BitsOfDistance(figure); }
double FigureOfRank(std::uint64_t rank) { return std::bit_cast<double>(~rank); }

class CompareFold final : public FoldOf<CompareFold> {
 public:
  CompareFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf(call, spec, limits),
        other_(call.given().other.value_or(spec.dtype)),
        is_float_(RowOf(spec.dtype).is_float),
        steps_(ValueSteps::Of(spec.dtype, other_)),
        sums_(call, spec) {}

  absl::Status Begin(std::int64_t /*count*/) override {
    sums_.Clear();
    mismatches_ = different_bits_ = 0;
    records_.fill({});
    return absl::OkStatus();
  }
  absl::Status Add(const void* elements, const void* others, std::int64_t first, std::int64_t count) override {
    const auto at = [](const void* array, std::int64_t i, DType dtype) {
      return static_cast<const std::byte*>(array) + i * RowOf(dtype).bytes;
    };
    for (std::int64_t i = 0; i < count; i += kTermTileElements) {
      AddTile(at(elements, i, spec_.dtype), at(others, i, other_), first + i, std::min(kTermTileElements, count - i));
    }
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    const auto& other = static_cast<CompareFold&>(part);
    sums_.Merge(other.sums_);
    mismatches_ += other.mismatches_;
    different_bits_ += other.different_bits_;
    for (std::size_t i = 0; i < records_.size(); ++i) records_[i] = std::min(records_[i], other.records_[i]);
    return absl::OkStatus();
  }

  absl::Status Finish(IndexOf index_of, std::byte* answers) override {
    std::int64_t at = 0;
    const auto store = [&](double figure) { StoreAt(figure, at++, answers); };
    const auto index = [&](const Record& record) {
      return record.any() ? static_cast<double>(index_of(static_cast<std::int64_t>(record.index))) : kNoFigure;
    };
    store(static_cast<double>(mismatches_));
    const Record& first = records_.front();
    store(index(first));
    store(first.any() ? Number(first.x) : kNoFigure);
    store(first.any() ? Number(first.y) : kNoFigure);
    for (std::size_t i = 1; i < records_.size(); ++i) {
      store(records_[i].any() ? FigureOfRank(records_[i].rank) : kNoFigure);
      store(index(records_[i]));
    }
    store(static_cast<double>(different_bits_));
    const std::int64_t pairs = sums_.count(TermCount::kElements);
    store(pairs == 0 ? kNoFigure
                     : sums_.special().value_or(
                           RoundedRootOfQuotient(sums_.sum(SumTerm::kSquaredDistance), Scaled::Of(pairs))));
    return absl::OkStatus();
  }

  absl::Status Save(IndexOf index_of, Entries* to) override {
    sums_.Save(to);
    if (mismatches_ != 0) to->Add(IntegerKey(kMismatches, 0), mismatches_);
    if (different_bits_ != 0) to->Add(IntegerKey(kDifferentBits, 0), different_bits_);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const Record& record = records_[i];
      if (!record.any()) continue;
      const auto at = static_cast<std::uint64_t>(index_of(static_cast<std::int64_t>(record.index)));
      const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(Number(x)); };
      const std::uint64_t words[kRecordWords] = {record.rank, at, bits(record.x), bits(record.y)};
      for (std::size_t word = 0; word < kRecordWords; ++word) to->Add(RecordKey(i, word), words[word]);
    }
    return absl::OkStatus();
  }

  absl::Status Load(const Entries& from) override {
    if (absl::Status status = Begin(0); !status.ok()) return status;
    Entries of_sums{.rule = from.rule, .most = from.most};
    for (std::size_t i = 0; i < from.keys.size(); ++i) {
      const std::uint64_t key = from.keys[i], value = from.values[i];
      const std::uint64_t record = (key - kFirstRecordKey) / kRecordWords;
      if (key < IntegerKey(kMismatches, 0)) {
        of_sums.Add(key, value);
      } else if (key == IntegerKey(kMismatches, 0)) {
        mismatches_ = value;
      } else if (key == IntegerKey(kDifferentBits, 0)) {
        different_bits_ = value;
      } else if (key >= kFirstRecordKey && record < records_.size()) {
        Record& to = records_[record];
        const std::uint64_t word = key % kRecordWords;
        if (word == 0) to.rank = value;
        if (word == kRecordIndex) to.index = value;
        if (word == 2) to.x = std::bit_cast<double>(value);
        if (word == 3) to.y = std::bit_cast<double>(value);
      } else {
        return absl::InvalidArgumentError(absl::StrFormat("keys: got %d; allowed: keys of op compare", key));
      }
    }
    return sums_.Load(of_sums);
  }

 private:
  void AddTile(const void* elements, const void* others, std::int64_t first, std::int64_t count) {
    alignas(64) double x[kTermTileElements];
    alignas(64) double y[kTermTileElements];
    TermTile tile{.x = x, .y = y, .count = count};
    const Magnitudes of_x = MagnitudesOf(spec_.dtype), of_y = MagnitudesOf(other_);
    bool loaded = LoadTermTileOf(spec_.dtype, elements, count, of_x, x, &tile.of_x);
    loaded = LoadTermTileOf(other_, others, count, of_y, y, &tile.of_y) && loaded;
    if (loaded && AddWhole(tile, of_x, of_y, first)) return;
    sums_.Add(elements, others, count);
    if (loaded || is_float_) {
      bool differ[kTermTileElements];
      FindDifferent(elements, others, x, y, count, differ);
      AddValues(x, y, differ, first, count);
    } else {
      AddIntegers(elements, others, first, count);
    }
  }

  // The greatest figure so far; -1: none.
  double Best(ComparisonRecord which) const {
    const Record& record = records_[static_cast<std::size_t>(which)];
    return record.any() ? FigureOfRank(record.rank) : -1;
  }

  // Adds a tile of finite doubles. It is looked at one by one only if it may have a record.
  bool AddWhole(const TermTile& tile, const Magnitudes& of_x, const Magnitudes& of_y, std::int64_t first) {
    ComparedTile found;
    const CompareRules rules{.rtol = call_.given().rtol,
                             .atol = call_.given().atol,
                             .steps = steps_,
                             .counts_steps = is_float_,
                             .best_rel = std::max(0.0, Best(ComparisonRecord::kRel))};
    if (!CompareWholeTile(tile, of_x, of_y, rules, &found)) return false;
    if (found.greatest == 0) {
      sums_.AddCount(TermCount::kElements, tile.count);
    } else {
      sums_.Add(tile);
    }
    mismatches_ += static_cast<std::uint64_t>(found.mismatches);
    different_bits_ += static_cast<std::uint64_t>(found.different_bits);
    const bool record = found.greatest > Best(ComparisonRecord::kAbs) || found.more_rel ||
                        static_cast<double>(found.greatest_steps) > Best(ComparisonRecord::kUlp) ||
                        (found.mismatches > 0 && !records_.front().any());
    if (record) AddRecords(tile.x, tile.y, first, tile.count);
    return true;
  }

  // Indexes ascend.
  void Offer(ComparisonRecord which, std::uint64_t rank, std::int64_t index, double x, double y) {
    Record& best = records_[static_cast<std::size_t>(which)];
    if (rank < best.rank || !best.any()) best = {rank, static_cast<std::uint64_t>(index), x, y};
  }
  static double Relative(double distance, double y) {
    if (distance == 0) return 0;
    return y == 0 || std::isinf(distance) ? std::numeric_limits<double>::infinity() : distance / std::fabs(y);
  }

  // Conversions differ in whether they make NaNs quiet.
  static std::uint64_t BitsOf(double x) {
    return std::bit_cast<std::uint64_t>(x) | (std::isnan(x) ? std::uint64_t{1} << 51 : 0);
  }

  // Whether two elements differ in a bit.
  void FindDifferent(const void* elements, const void* others, const double* x, const double* y, std::int64_t count,
                     bool* differ) const {
    const auto find = [&]<class Word>(const void* a, const void* b, Word) {
      for (std::int64_t i = 0; i < count; ++i) differ[i] = ElementAt<Word>(a, i) != ElementAt<Word>(b, i);
    };
    if (spec_.dtype != other_ || !is_float_) {
      for (std::int64_t i = 0; i < count; ++i) differ[i] = BitsOf(x[i]) != BitsOf(y[i]);
      return;
    }
    if (RowOf(spec_.dtype).bytes == 1) return find(elements, others, std::uint8_t{});
    if (RowOf(spec_.dtype).bytes == 2) return find(elements, others, std::uint16_t{});
    if (RowOf(spec_.dtype).bytes == 4) return find(elements, others, std::uint32_t{});
    find(elements, others, std::uint64_t{});
  }

  void AddIntegers(const void* elements, const void* others, std::int64_t first, std::int64_t count) {
    Int128 x[kTermTileElements], y[kTermTileElements];
    bool differ[kTermTileElements];
    LoadIntegers(spec_.dtype, elements, count, x);
    LoadIntegers(other_, others, count, y);
    for (std::int64_t i = 0; i < count; ++i) differ[i] = x[i] != y[i];
    AddValues(x, y, differ, first, count);
  }

  // Adds pairs one by one.
  template <class Value>
  void AddValues(const Value* x, const Value* y, const bool* differ, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (omits_nans() && (std::isnan(static_cast<double>(x[i])) || std::isnan(static_cast<double>(y[i])))) continue;
      different_bits_ += differ[i] ? 1 : 0;
      mismatches_ += Match(x[i], y[i]) ? 0 : 1;
    }
    AddRecords(x, y, first, count);
  }

  template <class Value>
  bool Match(Value x, Value y) const {
    if (x == y) return true;
    const auto a = static_cast<double>(x), b = static_cast<double>(y);
    if (std::isnan(a) || std::isnan(b)) return call_.given().equal_nan && std::isnan(a) && std::isnan(b);
    return std::isfinite(a) && std::isfinite(b) &&
           DistanceOfValues(x, y) <= call_.given().atol + call_.given().rtol * std::fabs(b);
  }

  template <class Value>
  void AddRecords(const Value* x, const Value* y, std::int64_t first, std::int64_t count) {
    double abs = Best(ComparisonRecord::kAbs), rel = Best(ComparisonRecord::kRel), ulp = Best(ComparisonRecord::kUlp);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto a = static_cast<double>(x[i]), b = static_cast<double>(y[i]);
      const bool nan = std::isnan(a) || std::isnan(b);
      if (nan && omits_nans()) continue;
      if (!records_.front().any() && !Match(x[i], y[i])) Offer(ComparisonRecord::kFirst, 0, first + i, a, b);
      if (nan) continue;
      const double distance = x[i] == y[i] ? 0 : DistanceOfValues(x[i], y[i]);
      const auto offer = [&](ComparisonRecord which, double figure, double* best) {
        if (figure <= *best) return;
        *best = figure;
        Offer(which, RankOfFigure(figure), first + i, a, b);
      };
      offer(ComparisonRecord::kAbs, distance, &abs);
      // A quotient that is greater than another number has a dividend of at least their product, rounded.
      if (!(distance < rel * std::fabs(b))) offer(ComparisonRecord::kRel, Relative(distance, b), &rel);
      offer(ComparisonRecord::kUlp, is_float_ ? static_cast<double>(steps_.Between(a, b)) : distance, &ulp);
    }
  }

  const DType other_;
  const bool is_float_;
  const ValueSteps steps_;
  TermSums sums_;
  std::uint64_t mismatches_ = 0, different_bits_ = 0;
  std::array<Record, kComparisonRecords> records_;
};

}  // namespace

std::unique_ptr<DistributionFold> MakeCompareFold(const OpCall& call, const ReduceSpec& spec,
                                                  const FoldLimits& limits) {
  return std::make_unique<CompareFold>(call, spec, limits);
}

}  // namespace reduced
