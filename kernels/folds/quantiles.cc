// The fold of median and quantile: radix selection over sort keys, all quantiles at once.
//
// A pass counts the elements by the next digit of their keys; where the counts say that a quantile's neighbours are, is
// a node: the keys with that prefix. Later passes look at elements of nodes only. Once the nodes have few enough
// elements together, a pass collects these, and the rest is done in memory. Whatever the elements are, each pass leaves
// fewer bits of the keys unknown: of up to 8 quantiles f32 takes at most 3 passes and f64 5, of 1024 quantiles 3 and 6.
//
// Memory: a table of counts of at most 16 MiB in each part; and collected keys, at most kMostCollected of all parts
// together, which are counted. If there is no memory for them, passes count to the last bit.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/algebra/float_format.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/quantile_points.h"

namespace reduced {
namespace {

constexpr std::int64_t kFewElements = 4096;                     // are collected at once
constexpr std::int64_t kShortCount = std::int64_t{1} << 20;     // fewer elements have smaller tables of counts
constexpr std::int64_t kMostCollected = std::int64_t{1} << 22;  // keys
constexpr int kFirstDigit = 16, kShortDigit = 13;  // the table's last entry has no key but NaN's: 13 bits at least
constexpr int kMostTableBits = 21;

// Puts the keys of ascending `ranks` among `keys` in `found`. The keys are equal but for their `bits` lowest bits. They
// change their order.
template <class Word>
void SelectKeys(std::span<Word> keys, int bits, std::span<const std::int64_t> ranks, Word* found) {
  constexpr std::size_t kFewKeys = 1024, kFewRanks = 8;
  constexpr int kDigit = 8;
  if (ranks.empty()) return;
  if (bits == 0) return std::fill_n(found, ranks.size(), keys[0]), void();
  if (keys.size() <= kFewKeys || ranks.size() > kFewRanks) {
    if (ranks.size() > kFewRanks) {
      std::sort(keys.begin(), keys.end());
      for (std::size_t i = 0; i < ranks.size(); ++i) found[i] = keys[static_cast<std::size_t>(ranks[i])];
      return;
    }
    auto begin = keys.begin();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto at = keys.begin() + ranks[i];
      if (at >= begin) std::nth_element(begin, at, keys.end());
      begin = at + 1;
      found[i] = *at;
    }
    return;
  }
  const int digit = std::min(bits, kDigit);
  const int shift = bits - digit;
  const auto digit_of = [&](Word key) {
    return static_cast<std::size_t>(key >> shift) & ((std::size_t{1} << digit) - 1);
  };
  std::array<std::int64_t, std::size_t{1} << kDigit> counts{};
  for (const Word key : keys) ++counts[digit_of(key)];
  std::int64_t below = 0;
  std::size_t done = 0;
  std::vector<Word> some;
  std::vector<std::int64_t> within;
  for (std::size_t value = 0; value < counts.size() && done < ranks.size(); below += counts[value++]) {
    within.clear();
    while (done + within.size() < ranks.size() && ranks[done + within.size()] < below + counts[value]) {
      within.push_back(ranks[done + within.size()] - below);
    }
    if (within.empty()) continue;
    some.resize(static_cast<std::size_t>(counts[value]) + 1);  // one more is written
    std::size_t has = 0;
    for (const Word key : keys) {
      some[has] = key;
      has += digit_of(key) == value ? 1 : 0;
      if (has == some.size() - 1) break;
    }
    SelectKeys(std::span<Word>(some).first(has), shift, std::span<const std::int64_t>(within), found + done);
    done += within.size();
  }
}

template <class T>
class QuantileFold final : public DistributionFold {
 public:
  using Key = SortKey<T>;
  using Word = typename Key::Type;

  QuantileFold(const OpCall& call, const ReduceSpec& spec, FoldMemory memory)
      : call_(call),
        spec_(spec),
        quantiles_(call.op == Op::kMedian ? std::vector<double>{0.5} : call.given().quantiles),
        method_(call.given().method),
        memory_(std::move(memory)) {}
  ~QuantileFold() override { Release(); }

  void Begin(std::int64_t count) override {
    Release();
    count_ = count;
    counted_ = -1;
    nans_ = 0;
    ranks_.clear();
    nodes_.assign(1, {.size = count});
    unknown_ = Key::kBits;
    if (count <= kFewElements) {
      StartCollecting();
    } else {
      StartCounting(std::min(Key::kBits, count < kShortCount ? kShortDigit : kFirstDigit));
    }
  }

  std::unique_ptr<DistributionFold> Part() const override {
    auto part = std::make_unique<QuantileFold>(call_, spec_, memory_);
    part->nodes_ = nodes_;
    part->unknown_ = unknown_;
    part->digit_ = digit_;
    part->counts_.assign(counts_.size(), 0);
    part->keys_.resize(keys_.size());
    part->prefixes_ = prefixes_;
    return part;
  }

  absl::Status Add(const void* elements, std::int64_t /*first*/, std::int64_t count) override {
    if (digit_ == 0) {
      Collect(elements, count);
    } else if (unknown_ == Key::kBits) {
      CountFirst(elements, count);
    } else {
      Count(elements, count);
    }
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    auto& other = static_cast<QuantileFold&>(part);
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    nans_ += other.nans_;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      keys_[i].insert(keys_[i].end(), other.keys_[i].begin(), other.keys_[i].end());
      other.keys_[i] = {};
    }
    return absl::OkStatus();
  }

  bool NextPass() override {
    if (digit_ == 0) {
      if (counted_ < 0) SetCounted(std::count(keys_[0].begin(), keys_[0].end(), Key::kNan));
      return false;
    }
    if (counted_ < 0) {
      CountsOfKeys();
      SetCounted(static_cast<std::int64_t>(counts_.back()));
      if (ranks_.empty()) return false;  // all answers are known
    }
    Descend();
    if (unknown_ == 0) return false;
    std::int64_t size = 0;
    for (const Node& node : nodes_) size += node.size;
    // Keys are in a part and, while parts are merged, once more; vectors grow by doubling.
    const std::int64_t bytes = 3 * size * static_cast<std::int64_t>(sizeof(Word));
    if (size <= kMostCollected && memory_.take(bytes).ok()) {
      taken_ = bytes;
      StartCollecting();
      return true;
    }
    const int node_bits = std::bit_width(nodes_.size() - 1);
    StartCounting(std::min({unknown_, kFirstDigit, kMostTableBits - node_bits}));
    return true;
  }

  absl::Status Finish(absl::FunctionRef<std::int64_t(std::int64_t)> /*index_of*/, std::byte* answers) override {
    const bool nan = counted_ < count_ && spec_.nan_policy == NanPolicy::kPropagate;
    const DType result = ResultDType(call_, spec_.dtype);
    const bool in_f64 = method_ == QuantileMethod::kLinear || method_ == QuantileMethod::kMidpoint;
    if (counted_ == 0 && !nan && !RowOf(result).is_float && spec_.empty_policy == EmptyPolicy::kError) {
      return TooFew(spec_, call_, 0);
    }
    const std::vector<Word> found = nan || counted_ == 0 ? std::vector<Word>() : Select();
    const auto key_of = [&](std::int64_t rank) {
      return found[static_cast<std::size_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin())];
    };
    for (std::size_t i = 0; i < quantiles_.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (found.empty()) {
        in_f64 ? StoreAt(std::numeric_limits<double>::quiet_NaN(), at, answers)
               : StoreAt(kIsFloat<T> ? Key::Element(Key::kNan) : T{}, at, answers);
        continue;
      }
      const QuantilePoint point = PointOf(quantiles_[i], counted_, method_);
      const T lower = Key::Element(key_of(point.lower)), higher = Key::Element(key_of(point.higher));
      if (!in_f64) {
        StoreAt(lower, at, answers);
      } else if (call_.op == Op::kMedian) {  // whose formula rounds once, as numpy.median's does
        StoreAt(Halfway(lower, higher), at, answers);
      } else {
        StoreAt(Between(Real(lower), Real(higher), point.weight), at, answers);
      }
    }
    return absl::OkStatus();
  }

 private:
  // The keys whose bits above the unknown_ lowest are `prefix`.
  struct Node {
    Word prefix = 0;
    std::int64_t below = 0;  // elements with a lesser prefix
    std::int64_t size = 0;
  };

  static Word KeyAt(const void* elements, std::int64_t i) { return Key::Of(ElementAt<T>(elements, i)); }
  static double Real(T x) {
    if constexpr (kIsFloat<T>) {
      return ToDouble(x);
    } else {
      return static_cast<double>(ToInteger(x));
    }
  }

  // The bits of an element, from which its key is made: without bits that bools differ by, and with NaNs of any kind.
  static Word BitsAt(const void* elements, std::int64_t i) { return ElementAt<Word>(elements, i); }
  // The highest bits of the key of an element with these bits, of which there are `bits`; and back. Not of bools.
  static Word KeyBits(Word highest, int bits) {
    const auto sign = static_cast<Word>(Word{1} << (bits - 1));
    const auto all = static_cast<Word>(sign | (sign - 1));
    if (kIsFloat<T> && (highest & sign) != 0) return static_cast<Word>(~highest & all);
    return kIsSigned<T> ? static_cast<Word>(highest ^ sign) : highest;
  }
  static Word ElementBits(Word key, int bits) {
    const auto sign = static_cast<Word>(Word{1} << (bits - 1));
    const auto all = static_cast<Word>(sign | (sign - 1));
    if (kIsFloat<T> && (key & sign) == 0) return static_cast<Word>(~key & all);
    return kIsSigned<T> ? static_cast<Word>(key ^ sign) : key;
  }

  static std::size_t InfinityBits() {
    if constexpr (kIsFloat<T>) {
      return FloatFormat<T>::kInfinity;
    } else {
      return 0;  // none
    }
  }

  // Counts all elements by the highest bits that they have, not yet those of their keys.
  void CountFirst(const void* elements, std::int64_t count) {
    const int shift = Key::kBits - digit_;
    std::uint64_t* const counts = counts_.data();
    const auto infinities = [&] {
      const std::size_t infinity = InfinityBits() >> shift;
      return counts[infinity] + counts[infinity | std::size_t{1} << (digit_ - 1)];
    };
    const std::uint64_t before = infinities();
    for (std::int64_t i = 0; i < count; ++i) ++counts[BitsAt(elements, i) >> shift];
    // NaNs may have the highest bits of an infinity.
    if (!kIsFloat<T> || shift == 0 || infinities() == before) return;
    for (std::int64_t i = 0; i < count; ++i) {
      const T x = ElementAt<T>(elements, i);
      std::uint64_t& counted = counts[BitsAt(elements, i) >> shift];
      if (!IsNan(x) || counted == 0) continue;  // 0: another process changes the elements
      --counted;
      ++nans_;
    }
  }

  // Turns the counts of the highest bits into those of keys: all NaNs have the last one.
  void CountsOfKeys() {
    std::vector<std::uint64_t> counts(counts_.size());
    const int shift = Key::kBits - digit_;
    for (std::size_t bits = 0; bits < counts_.size(); ++bits) {
      std::size_t key = 0;
      if constexpr (std::is_same_v<T, Bool>) {
        key = bits != 0 ? 1 : 0;
      } else {
        key = KeyBits(static_cast<Word>(bits), digit_);
      }
      if constexpr (kIsFloat<T>) {
        const std::size_t magnitude = bits & ((std::size_t{1} << (digit_ - 1)) - 1);
        if (magnitude > InfinityBits() >> shift) key = counts.size() - 1;
      }
      counts[key] += counts_[bits];
    }
    counts.back() += static_cast<std::uint64_t>(nans_);
    counts_ = std::move(counts);
  }

  void Release() {
    keys_.clear();
    if (taken_ > 0) memory_.give(std::exchange(taken_, 0));
  }
  void StartCounting(int digit) {
    digit_ = digit;
    keys_.clear();
    counts_.assign(nodes_.size() << digit, 0);
    FindPrefixes();
  }
  void StartCollecting() {
    digit_ = 0;
    counts_.clear();
    keys_.assign(nodes_.size(), {});
    FindPrefixes();
  }

  // Marks the highest bits of elements that are in nodes. All NaNs have the key of one.
  void FindPrefixes() {
    if (nodes_.size() == 1) return;
    prefixes_.assign(std::size_t{1} << kTop, 0);
    for (const Node& node : nodes_) {
      const auto least = static_cast<Word>(node.prefix << unknown_);
      const auto most = static_cast<Word>(least | ((Word{1} << unknown_) - 1));
      for (std::size_t top = TopOf(least); top <= TopOf(most); ++top) {
        if constexpr (std::is_same_v<T, Bool>) {
          if (top > 0) std::fill(prefixes_.begin() + 1, prefixes_.end(), 1);
          if (top == 0) prefixes_[0] = 1;
        } else {
          prefixes_[ElementBits(static_cast<Word>(top), kTop)] = 1;
        }
      }
    }
  }
  static constexpr int kTop = std::min(16, Key::kBits);
  static Word TopOf(Word key) { return static_cast<Word>(key >> (Key::kBits - kTop)); }

  // Calls add(node, key) for elements of nodes; there are several.
  template <class AddKey>
  void ForNodes(const void* elements, std::int64_t count, const AddKey& add) const {
    for (std::int64_t i = 0; i < count; ++i) {
      if (prefixes_[TopOf(BitsAt(elements, i))] == 0) continue;
      const Word key = KeyAt(elements, i);
      const Word prefix = static_cast<Word>(key >> unknown_);
      const auto node = std::lower_bound(nodes_.begin(), nodes_.end(), prefix,
                                         [](const Node& each, Word value) { return each.prefix < value; });
      if (node != nodes_.end() && node->prefix == prefix) add(static_cast<std::size_t>(node - nodes_.begin()), key);
    }
  }

  void Collect(const void* elements, std::int64_t count) {
    if (nodes_.size() > 1) {
      return ForNodes(elements, count, [&](std::size_t node, Word key) {
        // There are no more, unless another process changes the elements.
        if (std::ssize(keys_[node]) < nodes_[node].size) keys_[node].push_back(key);
      });
    }
    std::vector<Word>& keys = keys_[0];
    if (unknown_ == Key::kBits) {
      const std::size_t has = keys.size();
      keys.resize(has + static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) keys[has + static_cast<std::size_t>(i)] = KeyAt(elements, i);
      return;
    }
    const Word prefix = ElementBits(nodes_[0].prefix, Key::kBits - unknown_);
    std::array<T, kBatch> some;
    for (std::int64_t begin = 0; begin < count && std::ssize(keys) < nodes_[0].size; begin += kBatch) {
      const std::int64_t end = std::min(count, begin + kBatch);
      std::size_t has = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        some[has] = ElementAt<T>(elements, i);
        has += static_cast<Word>(BitsAt(elements, i) >> unknown_) == prefix ? 1 : 0;
      }
      for (std::size_t i = 0; i < has; ++i) {
        if (!IsNan(some[i])) keys.push_back(Key::Of(some[i]));  // it may have the highest bits of an infinity
      }
    }
  }
  static constexpr std::int64_t kBatch = 512;

  void Count(const void* elements, std::int64_t count) {
    const int shift = unknown_ - digit_;
    const std::size_t mask = (std::size_t{1} << digit_) - 1;
    const auto add = [&](std::size_t node, Word key) {
      ++counts_[node << digit_ | (static_cast<std::size_t>(key >> shift) & mask)];
    };
    if (nodes_.size() > 1) return ForNodes(elements, count, add);
    const Word prefix = ElementBits(nodes_[0].prefix, Key::kBits - unknown_);
    for (std::int64_t i = 0; i < count; ++i) {
      if (static_cast<Word>(BitsAt(elements, i) >> unknown_) == prefix) add(0, KeyAt(elements, i));
    }
  }

  // Of all elements, `last` have the largest key, which is that of NaNs.
  void SetCounted(std::int64_t last) {
    counted_ = count_ - (kIsFloat<T> ? last : 0);
    if (counted_ == 0 || (counted_ < count_ && spec_.nan_policy == NanPolicy::kPropagate)) return;
    for (const double q : quantiles_) {
      const QuantilePoint point = PointOf(q, counted_, method_);
      ranks_.push_back(point.lower);
      ranks_.push_back(point.higher);
    }
    std::sort(ranks_.begin(), ranks_.end());
    ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
  }

  // From the counts of the nodes' next digit to the nodes that have the ranks.
  void Descend() {
    std::vector<Node> next;
    auto rank = ranks_.begin();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      std::int64_t below = nodes_[i].below;
      const std::uint64_t* const counts = counts_.data() + (i << digit_);
      for (std::size_t value = 0; value < std::size_t{1} << digit_; ++value) {
        const auto size = static_cast<std::int64_t>(counts[value]);
        const bool last = i + 1 == nodes_.size() && value + 1 == std::size_t{1} << digit_;
        const auto after = last ? ranks_.end() : std::lower_bound(rank, ranks_.end(), below + size);
        if (after != rank) {
          const auto prefix = digit_ == Key::kBits ? Word{0} : static_cast<Word>(nodes_[i].prefix << digit_);
          next.push_back({static_cast<Word>(prefix | value), below, size});
        }
        rank = after;
        below += size;
        if (rank == ranks_.end()) break;
      }
    }
    nodes_ = std::move(next);
    unknown_ -= digit_;
  }

  // The keys of ranks_.
  std::vector<Word> Select() {
    std::vector<Word> found(ranks_.size());
    std::size_t done = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      std::vector<std::int64_t> within;
      while (done + within.size() < ranks_.size() && ranks_[done + within.size()] < node.below + node.size) {
        within.push_back(ranks_[done + within.size()] - node.below);
      }
      if (unknown_ == 0 || keys_[i].empty()) {
        std::fill_n(found.begin() + static_cast<std::ptrdiff_t>(done), within.size(),
                    static_cast<Word>(unknown_ == 0 ? node.prefix : node.prefix << unknown_));
      } else {
        // Another process may have changed the elements since they were counted: they need not have the ranks.
        for (std::int64_t& rank : within) rank = std::clamp<std::int64_t>(rank, 0, std::ssize(keys_[i]) - 1);
        SelectKeys(std::span<Word>(keys_[i]), unknown_, std::span<const std::int64_t>(within), found.data() + done);
      }
      done += within.size();
    }
    return found;
  }

  const OpCall call_;
  const ReduceSpec spec_;
  const std::vector<double> quantiles_;
  const QuantileMethod method_;
  const FoldMemory memory_;

  std::int64_t count_ = 0;               // elements
  std::int64_t counted_ = -1;            // without NaNs; -1: not known yet
  std::vector<std::int64_t> ranks_;      // to find, ascending
  std::vector<Node> nodes_;              // ascending
  std::int64_t nans_ = 0;                // of the first pass: those with the highest bits of an infinity
  int unknown_ = 0;                      // bits of the keys
  int digit_ = 0;                        // bits that this pass counts by; 0: it collects
  std::vector<std::uint64_t> counts_;    // by node and digit
  std::vector<std::vector<Word>> keys_;  // by node
  std::vector<std::uint8_t> prefixes_;   // of several nodes: 1 for those kTop bits that some node has
  std::int64_t taken_ = 0;               // bytes of the memory
};

}  // namespace

std::unique_ptr<DistributionFold> MakeQuantileFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldMemory& memory) {
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<DistributionFold> {
    return std::make_unique<QuantileFold<T>>(call, spec, memory);
  });
}

}  // namespace reduced
