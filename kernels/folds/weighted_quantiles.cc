// The fold of weighted_median and weighted_quantile: radix selection over sort keys, all quantiles at once, as that of
// quantile (quantiles.cc), with exact sums of weights beside the counts of elements.
//
// Quantile q is the least element x for which the weights of all elements up to x add up to q times the sum of all
// weights or more: the method "inverted_cdf" of R. Hyndman, Y. Fan, "Sample quantiles in statistical packages" (1996).
// Weights, and so their sums, are integers in units of the smallest number of their dtype. The target of a quantile is
// such an integer, too: q times the sum of all weights, rounded up. Sums reach it exactly if they reach the product, so
// that nothing is rounded, and neither order nor cuts matter. Elements of weight 0 are not there.
//
// A pass adds up the weights of elements by the next digit of their keys. Where the sums reach the target of a quantile
// is a node: the keys with that prefix. Later passes look at elements of nodes only. Once the nodes have few enough
// elements together, a pass collects these with their weights, and the rest is done in memory.
//
// Memory: a table of sums of at most 16 MiB in each part, up to 24 MiB of collected pairs, which all parts share, and
// lists of a few sums for each quantile. If there is not so much, tables are smaller and passes more.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/exact/fixed_point.h"
#include "kernels/exact/natural.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/quantile_answers.h"

namespace reduced {
namespace {

constexpr std::int64_t kFewPairs = 4096;                       // are collected at once
constexpr std::int64_t kMostPairs = std::int64_t{1} << 20;     // that are collected
constexpr std::uint64_t kTableWords = std::uint64_t{1} << 21;  // at most
constexpr int kMostSumDigit = 16;
constexpr int kElementsOfSum = 5;  // in the first table at least 2^5 elements for each sum

enum class WeightKind : std::uint8_t { kNumber, kNan, kNegative, kInfinite };
constexpr std::size_t kWeightKinds = 4;

// A weight of mantissa 2^position units, if it is a number of 0 or more.
struct Weight {
  std::uint64_t mantissa = 0;
  std::uint16_t position = 0;
  WeightKind kind = WeightKind::kNumber;
};

template <class W>
Weight WeightAt(const void* weights, std::int64_t i) {
  const W weight = ElementAt<W>(weights, i);
  if constexpr (kIsFloat<W>) {
    constexpr int kFraction = FloatFormat<double>::kFraction;
    constexpr int kUnit = FloatFormat<W>::kUnit;
    const double value = ToDouble(weight);
    if (std::isnan(value)) return {.kind = WeightKind::kNan};
    if (value == 0) return {};
    if (value < 0) return {.kind = WeightKind::kNegative};
    if (std::isinf(value)) return {.kind = WeightKind::kInfinite};
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const auto field = static_cast<int>(bits >> kFraction);
    std::uint64_t mantissa = bits & ((std::uint64_t{1} << kFraction) - 1);
    if (field != 0) mantissa |= std::uint64_t{1} << kFraction;
    const int zeros = std::countr_zero(mantissa);  // an odd mantissa has no position below 0
    const int exponent = std::max(field, 1) - FloatFormat<double>::kBias - kFraction;
    return {mantissa >> zeros, static_cast<std::uint16_t>(exponent + zeros - kUnit)};
  } else {
    const auto value = ToInteger(weight);
    if constexpr (kIsSigned<W>) {
      if (value < 0) return {.kind = WeightKind::kNegative};
    }
    return {.mantissa = static_cast<std::uint64_t>(value)};
  }
}

// The words of an integer that has the sum of as many weights as an array has elements, and 64 bits more.
int WordsOfSum(DType weights) {
  constexpr int kCount = 64, kWord = 64;
  const Magnitudes each = MagnitudesOf(weights);
  return (each.top - each.unit + kCount + kWord - 1) / kWord;
}

// How elements of a dtype are sorted, by keys of a width that several dtypes share.
template <class Word>
struct SortedDType {
  bool is_float;  // the key of NaNs is the greatest one
  Word (*key_at)(const void* elements, std::int64_t i);
  void (*store_at)(Word key, std::int64_t i, std::byte* answers);
  void (*store_none_at)(std::int64_t i, std::byte* answers);  // where there is no answer
};
template <class T, class Key = SortKey<T>, class Word = typename Key::Type>
constexpr SortedDType<Word> kSortedDType = {
    .is_float = kIsFloat<T>,
    .key_at = [](const void* elements, std::int64_t i) { return Key::Of(ElementAt<T>(elements, i)); },
    .store_at = [](Word key, std::int64_t i, std::byte* answers) { StoreAt(Key::Element(key), i, answers); },
    .store_none_at = [](std::int64_t i,
                        std::byte* answers) { StoreAt(kIsFloat<T> ? Key::Element(Key::kNan) : T{}, i, answers); }};

void AddWeight(const Weight& weight, std::span<std::uint64_t> words) {
  const UInt128 shifted = static_cast<UInt128>(weight.mantissa) << (weight.position % 64);
  std::size_t i = weight.position / 64;
  UInt128 sum = static_cast<UInt128>(words[i]) + static_cast<std::uint64_t>(shifted);
  words[i] = static_cast<std::uint64_t>(sum);
  sum = (sum >> 64) + words[i + 1] + static_cast<std::uint64_t>(shifted >> 64);  // the sum has 64 bits more
  words[++i] = static_cast<std::uint64_t>(sum);
  for (bool carry = (sum >> 64) != 0; carry && ++i < words.size();) carry = ++words[i] == 0;
}

// Whether a sum is a target or more; they have as many words.
bool Reaches(std::span<const std::uint64_t> sum, std::span<const std::uint64_t> target) {
  for (std::size_t i = sum.size(); i-- > 0;) {
    if (sum[i] != target[i]) return sum[i] > target[i];
  }
  return true;
}

// The least integer that is q times `total` or more, and 1 at least, since the first element has a weight. q: 0 to 1.
void FindTarget(double q, const Natural& total, std::span<std::uint64_t> target) {
  constexpr int kDigits = FloatFormat<double>::kSignificant;
  int exponent = 0;
  const double fraction = std::frexp(q, &exponent);
  const int below = kDigits - exponent;  // bits after the point
  const Natural product = total.Times(Natural(static_cast<std::uint64_t>(std::ldexp(fraction, kDigits))));
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = product.Bits(below + 64 * static_cast<int>(i), 64);
  if (product.zero() || product.AnyBitBelow(below)) AddAt(1, 0, target);
}

template <class Word>
struct WeightedKey {
  Word key;
  Weight weight;
};

// Errors: those of FoldLimits::why_stop.
template <class Word>
absl::Status SortByKey(std::span<WeightedKey<Word>> pairs, const FoldLimits& limits) {
  constexpr std::size_t kLook = std::size_t{1} << 15;  // so many pairs take a few milliseconds
  const auto before = [](const auto& a, const auto& b) { return a.key < b.key; };
  if (pairs.size() <= kLook) {
    std::sort(pairs.begin(), pairs.end(), before);
    return absl::OkStatus();
  }
  if (absl::Status why = limits.why_stop(); !why.ok()) return why;
  const std::size_t middle = pairs.size() / 2;
  std::nth_element(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(middle), pairs.end(), before);
  if (absl::Status status = SortByKey(pairs.first(middle), limits); !status.ok()) return status;
  return SortByKey(pairs.subspan(middle), limits);
}

template <class Word>
class WeightedQuantileFold final : public DistributionFold {
 public:
  using Pair = WeightedKey<Word>;

  WeightedQuantileFold(const OpCall& call, const ReduceSpec& spec, const SortedDType<Word>& dtype,
                       const FoldLimits& limits)
      : WeightedQuantileFold(call, spec, dtype, limits, this) {
    const std::vector<double> quantiles = QuantilesOf(call);
    order_.resize(quantiles.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return quantiles[a] < quantiles[b]; });
    for (const std::size_t number : order_) quantiles_.push_back(quantiles[number]);
  }

  absl::Status Begin(std::int64_t count) override {
    kinds_.fill(0);
    targets_.clear();
    nodes_.assign(1, {.size = count, .end = quantiles_.size()});
    below_.assign(words_, 0);
    unknown_ = kBits;
    if (absl::Status status = lists_.Hold(ListBytes()); !status.ok()) return status;
    if (count <= kFewPairs) return StartCollecting(count);
    return StartAdding(std::bit_width(static_cast<std::uint64_t>(count)) - kElementsOfSum);
  }

  absl::StatusOr<std::unique_ptr<DistributionFold>> Part() override {
    auto part = std::unique_ptr<WeightedQuantileFold>(new WeightedQuantileFold(call_, spec_, dtype_, limits_, this));
    if (digit_ > 0) {
      if (absl::Status status = part->sums_.Zero(sums_.size()); !status.ok()) return status;
    }
    return part;
  }

  absl::Status Add(const void* elements, const void* others, std::int64_t /*first*/, std::int64_t count) override {
    const int digit = whole_.digit_, unknown = whole_.unknown_;
    const bool all = unknown == kBits;
    std::array<Pair, kBatch> pairs;
    std::size_t has = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Word key = dtype_.key_at(elements, i);
      std::size_t node = 0;
      if (!all && !whole_.FindNode(static_cast<Word>(key >> unknown), &node)) continue;
      Weight weight = weight_at_(others, i);
      if (dtype_.is_float && key == std::numeric_limits<Word>::max()) weight.kind = WeightKind::kNan;
      if (weight.kind != WeightKind::kNumber) {
        ++kinds_[static_cast<std::size_t>(weight.kind)];
      } else if (weight.mantissa == 0) {
        continue;
      } else if (digit > 0) {
        const std::size_t value = static_cast<std::size_t>(key >> (unknown - digit)) & ((std::size_t{1} << digit) - 1);
        const std::span<std::uint64_t> entry = Entry(node << digit | value);
        ++entry[0];
        AddWeight(weight, entry.subspan(1));
      } else {
        pairs[has++] = {key, weight};
        if (has == pairs.size()) Store({pairs.data(), std::exchange(has, 0)});
      }
    }
    Store({pairs.data(), has});
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    auto& other = static_cast<WeightedQuantileFold&>(part);
    for (std::size_t kind = 0; kind < kWeightKinds; ++kind) kinds_[kind] += other.kinds_[kind];
    for (std::size_t i = 0; digit_ > 0 && i < nodes_.size() << digit_; ++i) {
      const std::span<std::uint64_t> from = other.Entry(i), to = Entry(i);
      to[0] += from[0];
      if (from[0] != 0) AddWords(from.subspan(1), to.subspan(1));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> NextPass() override {
    if (digit_ == 0 || IsKnown()) return false;
    if (unknown_ == kBits) {
      std::vector<std::uint64_t> total(words_);
      for (std::size_t i = 0; i < std::size_t{1} << digit_; ++i) AddWords(Entry(i).subspan(1), total);
      if (!FindTargets(total)) return false;
    }
    Descend();
    if (unknown_ == 0) return false;
    std::int64_t size = 0;
    for (const Node& node : nodes_) size += node.size;
    if (size <= kMostPairs && StartCollecting(size).ok()) return true;
    if (absl::Status status = StartAdding(kMostSumDigit); !status.ok()) return status;
    return true;
  }

  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    if (const std::int64_t negative = CountOf(WeightKind::kNegative); negative > 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("weights: got %d below 0 with op %s; allowed: 0 or more", negative, RowOf(call_.op).name));
    }
    std::vector<Word> found(IsKnown() ? 0 : quantiles_.size());
    if (!found.empty()) {
      if (absl::Status status = Select(&found); !status.ok()) return status;
      if (targets_.empty()) found.clear();
      if (found.empty() && !dtype_.is_float && spec_.empty_policy == EmptyPolicy::kError) {
        return absl::InvalidArgumentError(
            absl::StrFormat("op %s: got no element with a weight above 0; allowed: at least 1", RowOf(call_.op).name));
      }
    }
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const auto at = static_cast<std::int64_t>(order_[i]);
      found.empty() ? dtype_.store_none_at(at, answers) : dtype_.store_at(found[i], at, answers);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr std::size_t kBatch = 256;
  static constexpr int kBits = std::numeric_limits<Word>::digits;

  // The keys whose bits above the unknown_ lowest are `prefix`.
  struct Node {
    Word prefix = 0;
    std::int64_t size = 0;  // elements
    std::size_t end = 0;    // of the targets that the sums reach there, from that of the node before on
  };

  // `whole`: the fold of which this is a part, or itself.
  WeightedQuantileFold(const OpCall& call, const ReduceSpec& spec, const SortedDType<Word>& dtype,
                       const FoldLimits& limits, WeightedQuantileFold* whole)
      : call_(call),
        spec_(spec),
        dtype_(dtype),
        limits_(limits),
        whole_(*whole),
        weight_at_(VisitDType(call.given().other.value_or(spec.dtype),
                              []<class W>(std::type_identity<W>) { return &WeightAt<W>; })),
        words_(static_cast<std::size_t>(WordsOfSum(call.given().other.value_or(spec.dtype)))),
        lists_(limits),
        collected_(limits),
        sums_(limits) {}

  // At most, of the lists that are not arrays.
  std::int64_t ListBytes() const {
    const std::size_t of_quantile = 3 * words_ * sizeof(std::uint64_t) + 2 * sizeof(Node) + sizeof(Word);
    return static_cast<std::int64_t>((of_quantile + 2 * sizeof(std::uint64_t)) * quantiles_.size());
  }

  std::int64_t CountOf(WeightKind kind) const { return kinds_[static_cast<std::size_t>(kind)]; }
  // Whether NaNs and infinities, or weights below 0, decide the answer.
  bool IsKnown() const {
    return CountOf(WeightKind::kNegative) > 0 || CountOf(WeightKind::kInfinite) > 0 ||
           (CountOf(WeightKind::kNan) > 0 && spec_.nan_policy == NanPolicy::kPropagate);
  }

  // How many elements the entry of a node and a digit has, and then their sum.
  std::span<std::uint64_t> Entry(std::size_t number) { return {sums_.data() + number * (words_ + 1), words_ + 1}; }
  std::span<const std::uint64_t> Target(std::size_t number) const {
    return std::span(targets_).subspan(number * words_, words_);
  }
  std::span<const std::uint64_t> Below(std::size_t node) const {  // the sum of elements with a lesser prefix
    return std::span(below_).subspan(node * words_, words_);
  }

  bool FindNode(Word prefix, std::size_t* number) const {
    const auto node = std::lower_bound(nodes_.begin(), nodes_.end(), prefix,
                                       [](const Node& each, Word value) { return each.prefix < value; });
    *number = static_cast<std::size_t>(node - nodes_.begin());
    return node != nodes_.end() && node->prefix == prefix;
  }

  // False: there is no weight, and so no quantile.
  bool FindTargets(const std::vector<std::uint64_t>& sum) {
    const Natural total = Natural::MagnitudeOf(sum);
    if (total.zero()) return false;
    targets_.resize(quantiles_.size() * words_);
    for (std::size_t i = 0; i < quantiles_.size(); ++i) {
      FindTarget(quantiles_[i], total, std::span(targets_).subspan(i * words_, words_));
    }
    return true;
  }

  // Adds up by at most `digit` bits or, where there is no memory for such a table, by fewer.
  absl::Status StartAdding(int digit) {
    collected_.Clear();
    const std::uint64_t entries = kTableWords / (words_ + 1) / nodes_.size();
    digit_ = std::min({unknown_, kMostSumDigit, digit, static_cast<int>(std::bit_width(entries)) - 1});
    const auto table = [this] {
      return sums_.Zero(static_cast<std::int64_t>((nodes_.size() << digit_) * (words_ + 1)));
    };
    absl::Status status = table();
    for (; !status.ok() && digit_ > 1; status = table()) --digit_;
    return status;
  }
  absl::Status StartCollecting(std::int64_t size) {
    if (absl::Status status = collected_.Resize(size); !status.ok()) return status;
    digit_ = 0;
    has_ = 0;
    return absl::OkStatus();
  }
  // All parts collect to the array of the whole.
  void Store(std::span<const Pair> pairs) {
    if (pairs.empty()) return;
    const std::int64_t at = whole_.has_.fetch_add(std::ssize(pairs), std::memory_order_relaxed);
    // There is room, unless another process changes the elements.
    const std::int64_t room = std::max<std::int64_t>(0, whole_.collected_.size() - at);
    std::copy_n(pairs.data(), std::min(std::ssize(pairs), room),
                whole_.collected_.data() + std::min(at, whole_.collected_.size()));
  }
  std::span<Pair> Collected() {
    const std::int64_t has = std::min(has_.load(std::memory_order_relaxed), collected_.size());
    return {collected_.data(), static_cast<std::size_t>(digit_ == 0 ? has : 0)};
  }

  // From the sums of the nodes' next digit to the nodes where sums reach targets.
  void Descend() {
    std::vector<Node> next;
    std::vector<std::uint64_t> below, before, sum;
    std::size_t target = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto prefix = digit_ == kBits ? Word{0} : static_cast<Word>(nodes_[i].prefix << digit_);
      const auto append = [&](std::size_t value, std::uint64_t size) {
        next.push_back({static_cast<Word>(prefix | value), static_cast<std::int64_t>(size), target});
        below.insert(below.end(), before.begin(), before.end());
      };
      sum.assign(Below(i).begin(), Below(i).end());
      for (std::size_t value = 0; value < std::size_t{1} << digit_ && target < nodes_[i].end; ++value) {
        const std::span<const std::uint64_t> entry = Entry(i << digit_ | value);
        if (entry[0] == 0) continue;
        before = sum;
        AddWords(entry.subspan(1), sum);
        const std::size_t first = target;
        while (target < nodes_[i].end && Reaches(sum, Target(target))) ++target;
        if (target > first) append(value, entry[0]);
      }
      if (target == nodes_[i].end) continue;
      target = nodes_[i].end;  // another process has changed the elements
      before = sum;
      append((std::size_t{1} << digit_) - 1, 0);
    }
    nodes_ = std::move(next);
    below_ = std::move(below);
    unknown_ -= digit_;
  }

  // Finds the keys of the quantiles, in ascending order, unless there is no weight.
  absl::Status Select(std::vector<Word>* found) {
    const std::span<Pair> pairs = Collected();
    if (absl::Status status = SortByKey(pairs, limits_); !status.ok()) return status;
    std::vector<std::uint64_t> sum(words_);
    if (targets_.empty()) {
      for (const Pair& pair : pairs) AddWeight(pair.weight, sum);
      if (!FindTargets(sum)) return absl::OkStatus();
    }
    const auto prefix_of = [this](Word key) {
      return unknown_ == kBits ? Word{0} : static_cast<Word>(key >> unknown_);
    };
    auto pair = pairs.begin();
    std::size_t target = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      std::ranges::copy(Below(i), sum.begin());
      Word key = unknown_ == kBits ? Word{0} : static_cast<Word>(node.prefix << unknown_);
      for (; pair != pairs.end() && prefix_of(pair->key) <= node.prefix; ++pair) {
        key = pair->key;
        AddWeight(pair->weight, sum);
        while (target < node.end && Reaches(sum, Target(target))) (*found)[target++] = key;
      }
      // All bits are known; or another process has changed the elements.
      while (target < node.end) (*found)[target++] = key;
    }
    return absl::OkStatus();
  }

  const OpCall call_;
  const ReduceSpec spec_;
  const SortedDType<Word>& dtype_;
  const FoldLimits& limits_;
  WeightedQuantileFold& whole_;
  Weight (*const weight_at_)(const void* weights, std::int64_t i);
  const std::size_t words_;  // of a sum

  // Of the whole.
  std::vector<double> quantiles_;       // ascending
  std::vector<std::size_t> order_;      // of each of these: its place in the answer
  FoldLease lists_;                     // of the lists that follow, and of those that Descend and Select make
  std::vector<std::uint64_t> targets_;  // of the quantiles; none: not known yet
  std::vector<Node> nodes_;             // ascending
  std::vector<std::uint64_t> below_;    // of the nodes
  int unknown_ = 0;                     // bits of the keys
  int digit_ = 0;                       // bits that this pass adds up by; 0: it collects
  FoldArray<Pair> collected_;           // of all nodes
  std::atomic<std::int64_t> has_ = 0;   // of collected_; too many, if elements have changed

  // Of this part.
  FoldArray<std::uint64_t> sums_;                      // by node and digit
  std::array<std::int64_t, kWeightKinds> kinds_ = {};  // how many weights there are that are no numbers
};

}  // namespace

std::unique_ptr<DistributionFold> MakeWeightedQuantileFold(const OpCall& call, const ReduceSpec& spec,
                                                           const FoldLimits& limits) {
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<DistributionFold> {
    return std::make_unique<WeightedQuantileFold<typename SortKey<T>::Type>>(call, spec, kSortedDType<T>, limits);
  });
}

}  // namespace reduced
