// The fold of median and quantile, all quantiles at once. Many elements of 32 or 64 bits are selected by brackets
// (brackets.h) in one pass, if a sample of them is at hand. All others, and those that the brackets missed, are
// selected by radix, over sort keys.
//
// A pass counts the elements by the next digit of their keys; where the counts say that a quantile's neighbours are, is
// a node: the keys with that prefix. Later passes look at elements of nodes only. Once the nodes have few enough
// elements together, a pass collects these, and the rest is done in memory. Whatever the elements are, each pass leaves
// fewer bits of the keys unknown: of up to 8 quantiles f32 takes at most 3 passes and f64 5, of 1024 quantiles 3 and 6.
// So it is after a pass whose brackets missed.
//
// Memory: a table of counts of at most 16 MiB in each part, collected keys, which all parts share, and lists of a few
// entries for each quantile. If there is not so much, tables are smaller and passes more.
#include <algorithm>
#include <array>
#include <atomic>
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
#include "kernels/folds/brackets.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/quantile_answers.h"

namespace reduced {
namespace {

constexpr std::int64_t kFewElements = 4096;                     // are collected at once
constexpr std::int64_t kShortCount = std::int64_t{1} << 20;     // fewer elements have smaller tables of counts
constexpr std::int64_t kMostCollected = std::int64_t{1} << 21;  // keys
constexpr int kFirstDigit = 16, kShortDigit = 13;  // the table's last entry has no key but NaN's: 13 bits at least
constexpr int kMostTableBits = 21;

template <class T>
class QuantileFold final : public DistributionFold {
 public:
  using Key = SortKey<T>;
  using Word = typename Key::Type;

  QuantileFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : QuantileFold(call, spec, limits, this) {}

  absl::Status Begin(std::int64_t count) override {
    count_ = count;
    counted_ = -1;
    nans_ = 0;
    ranks_.clear();
    found_.clear();
    nodes_.assign(1, {.size = count});
    unknown_ = Key::kBits;
    brackets_.Clear();
    if (absl::Status status = lists_.Hold(ListBytes()); !status.ok()) return status;
    if (count <= kFewElements) return StartCollecting(count);
    return StartFirst(count);
  }

  std::int64_t SampleElements() const override { return Brackets<T>::SampleElements(count_); }
  absl::Status Sample(const void* elements, std::int64_t count) override {
    absl::Status status = brackets_.Choose(call_, spec_, elements, count, count_, kMostCollected / 4 * 3, limits_);
    if (!status.ok() || brackets_.size() == 0) return status;
    bracket_counts_.assign(brackets_.size(), {});
    if (!StartCollecting(kMostCollected).ok()) {  // there is no memory for brackets
      brackets_.Clear();
      return StartFirst(count_);
    }
    counts_.Clear();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DistributionFold>> Part() override {
    auto part = std::unique_ptr<QuantileFold>(new QuantileFold(call_, spec_, limits_, this));
    part->bracket_counts_.resize(brackets_.size());
    if (digit_ > 0) {
      if (absl::Status status = part->counts_.Zero(counts_.size()); !status.ok()) return status;
    }
    return part;
  }

  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t /*first*/, std::int64_t count) override {
    if (whole_.brackets_.size() > 0) {
      Scan(elements, count);
    } else if (whole_.digit_ == 0) {
      Collect(elements, count);
    } else if (whole_.unknown_ == Key::kBits) {
      CountFirst(elements, count);
    } else {
      Count(elements, count);
    }
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    auto& other = static_cast<QuantileFold&>(part);
    for (std::size_t i = 0; digit_ > 0 && i < static_cast<std::size_t>(counts_.size()); ++i) {
      counts_[i] += other.counts_[i];
    }
    nans_ += other.nans_;
    for (std::size_t i = 0; i < brackets_.size(); ++i) bracket_counts_[i] += other.bracket_counts_[i];
    return absl::OkStatus();
  }

  absl::StatusOr<bool> NextPass() override {
    if (brackets_.size() > 0) {
      SetCounted(bracket_counts_[0].nans);
      found_.resize(ranks_.size());
      const bool all = has_.load(std::memory_order_relaxed) <= collected_.size();
      const absl::StatusOr<bool> found =
          all ? brackets_.Find(count_, bracket_counts_, ranks_, Collected(), found_.data(), limits_) : false;
      if (!found.ok() || *found) return found.ok() ? absl::StatusOr<bool>(false) : found.status();
      found_.clear();
      brackets_.Clear();
      if (absl::Status status = StartFirst(count_); !status.ok()) return status;
      counted_ = -1;
      return true;
    }
    if (digit_ == 0) {
      const std::span<Word> keys = Collected();
      if (counted_ < 0) SetCounted(std::count(keys.begin(), keys.end(), Key::kNan));
      return false;
    }
    if (counted_ < 0) {
      CountsOfKeys();
      SetCounted(static_cast<std::int64_t>(counts_.end()[-1]));
      if (ranks_.empty()) return false;  // all answers are known
    }
    Descend();
    if (unknown_ == 0) return false;
    std::int64_t size = 0;
    for (const Node& node : nodes_) size += node.size;
    if (size <= kMostCollected && StartCollecting(size).ok()) return true;
    const int node_bits = std::bit_width(nodes_.size() - 1);
    const absl::Status status = StartCounting(std::min({unknown_, kFirstDigit, kMostTableBits - node_bits}), 1);
    if (!status.ok()) return status;
    return true;
  }

  // Each value becomes a node whose keys are known.
  absl::Status Load(const Entries& from) override {
    absl::Status status = Begin(0);
    if (status.ok()) status = lists_.Hold(ListBytes() + static_cast<std::int64_t>(from.keys.size() * sizeof(Node)));
    if (!status.ok()) return status;
    nodes_.clear();
    nodes_.reserve(from.keys.size());
    unknown_ = 0;
    std::int64_t nans = 0;
    for (std::size_t i = 0; i < from.keys.size(); ++i) {
      const auto size = static_cast<std::int64_t>(from.values[i]);
      if (kIsFloat<T> && from.keys[i] == Key::kNan) {
        nans = size;
      } else {
        nodes_.push_back({static_cast<Word>(from.keys[i]), count_, size});
      }
      count_ += size;
    }
    lacks_bits_ = !HasWholeKeys(call_, spec_.dtype);
    SetCounted(nans);
    return absl::OkStatus();
  }

  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    const bool known = !ranks_.empty();
    if (known && lacks_bits_) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "op %s: got a state with the highest %d of %d bits of the elements; allowed: rounds, each of which asks for "
          "more bits of fewer elements (reduced.dask and reduced.mpi have them), or the elements themselves",
          RowOf(call_.op).name, CountedBits(call_, spec_.dtype), Key::kBits));
    }
    std::vector<Word> found = found_;
    if (known && found.empty()) {
      if (absl::Status status = Select(&found); !status.ok()) return status;
    }
    return FinishQuantiles<T>(call_, spec_, count_, counted_, ranks_, found, answers);
  }

 private:
  // The keys whose bits above the unknown_ lowest are `prefix`.
  struct Node {
    Word prefix = 0;
    std::int64_t below = 0;  // elements with a lesser prefix
    std::int64_t size = 0;
  };

  // `whole`: the fold of which this is a part, or itself.
  QuantileFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits, QuantileFold* whole)
      : call_(call),
        spec_(spec),
        limits_(limits),
        whole_(*whole),
        lists_(limits),
        collected_(limits),
        prefixes_(limits),
        counts_(limits) {}

  // At most, of the lists that are not arrays.
  std::int64_t ListBytes() const {
    constexpr std::size_t kOfRank = 2 * sizeof(std::int64_t) + 2 * sizeof(Node) + sizeof(Word);
    return static_cast<std::int64_t>(2 * kOfRank) * AnswerElements(call_);
  }

  static Word KeyAt(const void* elements, std::int64_t i) { return Key::Of(ElementAt<T>(elements, i)); }

  // The bits of an element, from which its key is made: without bits that bools differ by, and with NaNs of any kind.
  static Word BitsAt(const void* elements, std::int64_t i) { return ElementAt<Word>(elements, i); }
  // The highest bits, of which there are `bits`, of the elements whose keys begin with these. Not of bools.
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
    const int digit = whole_.digit_, shift = Key::kBits - digit;
    std::uint64_t* const counts = counts_.data();
    const auto infinities = [&] {
      const std::size_t infinity = InfinityBits() >> shift;
      return counts[infinity] + counts[infinity | std::size_t{1} << (digit - 1)];
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
    if constexpr (kIsF8<T>) {  // the counts are of whole elements
      std::array<std::uint64_t, 256> of_keys{};
      for (std::size_t bits = 0; bits < of_keys.size(); ++bits) {
        of_keys[Key::Of(T{static_cast<std::uint8_t>(bits)})] += counts_[bits];
      }
      std::copy(of_keys.begin(), of_keys.end(), counts_.begin());
      return;
    }
    std::uint64_t* const middle = counts_.begin() + counts_.size() / 2;
    const auto move_to = [](std::uint64_t* begin, std::uint64_t* end, std::uint64_t* entry) {
      for (; begin < end; ++begin) *entry += std::exchange(*begin, 0);
    };
    if constexpr (std::is_same_v<T, Bool>) {
      move_to(counts_.begin() + 2, counts_.end(), counts_.begin() + 1);
    } else if constexpr (kIsSigned<T>) {
      std::rotate(counts_.begin(), middle, counts_.end());  // the negative ones are first
    }
    if constexpr (kIsFloat<T>) {
      std::reverse(counts_.begin(), middle);
      std::uint64_t* const last = counts_.end() - 1;
      const auto infinity = static_cast<std::ptrdiff_t>(InfinityBits() >> (Key::kBits - digit_));
      move_to(counts_.begin(), middle - 1 - infinity, last);
      move_to(middle + infinity + 1, last, last);
      *last += static_cast<std::uint64_t>(nans_);
    }
  }

  // Counts by `digit` bits or, where there is no memory for such a table, by fewer, down to `least`.
  absl::Status StartCounting(int digit, int least) {
    digit_ = digit;
    collected_.Clear();
    absl::Status status = FindPrefixes();
    if (!status.ok()) return status;
    const auto table = [this] { return counts_.Zero(std::ssize(nodes_) << digit_); };
    for (status = table(); !status.ok() && digit_ > least; status = table()) --digit_;
    return status;
  }
  absl::Status StartFirst(std::int64_t count) {
    // Of a table whose last entry has no key but NaN's.
    const int least = std::min(Key::kBits, kShortDigit);
    return StartCounting(count < kShortCount ? least : std::min(Key::kBits, kFirstDigit), least);
  }
  absl::Status StartCollecting(std::int64_t size) {
    if (absl::Status status = collected_.Resize(size); !status.ok()) return status;
    digit_ = 0;
    has_ = 0;
    return FindPrefixes();
  }
  void Store(const Word* keys, std::size_t count) {
    const auto size = static_cast<std::int64_t>(count);
    const std::int64_t at = whole_.has_.fetch_add(size, std::memory_order_relaxed);
    // There is room, unless another process changes the elements.
    const std::int64_t room = std::max<std::int64_t>(0, whole_.collected_.size() - at);
    std::copy_n(keys, std::min(size, room), whole_.collected_.data() + std::min(at, whole_.collected_.size()));
  }
  std::span<Word> Collected() {
    const std::int64_t has = std::min(has_.load(std::memory_order_relaxed), collected_.size());
    return {collected_.data(), static_cast<std::size_t>(digit_ == 0 ? has : 0)};
  }

  // Marks the highest bits of elements that are in nodes. All NaNs have the key of one.
  absl::Status FindPrefixes() {
    if (nodes_.size() == 1) return absl::OkStatus();
    if (absl::Status status = prefixes_.Zero(std::int64_t{1} << kTop); !status.ok()) return status;
    for (const Node& node : nodes_) {
      const auto least = static_cast<Word>(node.prefix << unknown_);
      const auto most = static_cast<Word>(least | ((Word{1} << unknown_) - 1));
      for (std::size_t top = TopOf(least); top <= TopOf(most); ++top) {
        if constexpr (std::is_same_v<T, Bool>) {
          if (top > 0) std::fill(prefixes_.begin() + 1, prefixes_.end(), std::uint8_t{1});
          if (top == 0) prefixes_[0] = 1;
        } else {
          prefixes_[ElementBits(static_cast<Word>(top), kTop)] = 1;
        }
      }
    }
    return absl::OkStatus();
  }
  static constexpr int kTop = std::min(16, Key::kBits);
  static Word TopOf(Word key) { return static_cast<Word>(key >> (Key::kBits - kTop)); }

  // Calls add(node, key) for elements of nodes; there are several.
  template <class AddKey>
  void ForNodes(const void* elements, std::int64_t count, const AddKey& add) const {
    const std::span<const Node> nodes = whole_.nodes_;
    const std::uint8_t* const prefixes = whole_.prefixes_.data();
    const int unknown = whole_.unknown_;
    for (std::int64_t i = 0; i < count; ++i) {
      if (prefixes[TopOf(BitsAt(elements, i))] == 0) continue;
      const Word key = KeyAt(elements, i);
      const Word prefix = static_cast<Word>(key >> unknown);
      const auto node = std::lower_bound(nodes.begin(), nodes.end(), prefix,
                                         [](const Node& each, Word value) { return each.prefix < value; });
      if (node != nodes.end() && node->prefix == prefix) add(static_cast<std::size_t>(node - nodes.begin()), key);
    }
  }

  // All parts collect to the array of the whole, in batches.
  void Collect(const void* elements, std::int64_t count) {
    const int unknown = whole_.unknown_;
    const bool all = unknown == Key::kBits, several = whole_.nodes_.size() > 1;
    const Word prefix = all || several ? Word{0} : ElementBits(whole_.nodes_[0].prefix, Key::kBits - unknown);
    std::array<Word, kBatch> keys;
    std::array<T, kBatch> some;
    for (std::int64_t begin = 0; begin < count; begin += kBatch) {
      const std::int64_t size = std::min(count - begin, kBatch);
      const auto* const batch = static_cast<const std::byte*>(elements) + begin * static_cast<std::int64_t>(sizeof(T));
      std::size_t has = 0, maybe = 0;
      if (several) {
        ForNodes(batch, size, [&](std::size_t /*node*/, Word key) { keys[has++] = key; });
      } else if (all) {
        for (std::int64_t i = 0; i < size; ++i) keys[has++] = KeyAt(batch, i);
      } else {
        for (std::int64_t i = 0; i < size; ++i) {
          some[maybe] = ElementAt<T>(batch, i);
          maybe += static_cast<Word>(BitsAt(batch, i) >> unknown) == prefix ? 1 : 0;
        }
        for (std::size_t i = 0; i < maybe; ++i) {
          if (!IsNan(some[i])) keys[has++] = Key::Of(some[i]);  // it may have the highest bits of an infinity
        }
      }
      if (has > 0) Store(keys.data(), has);
    }
  }
  static constexpr std::int64_t kBatch = 512;

  void Scan(const void* elements, std::int64_t count) {
    for (std::int64_t begin = 0; begin < count; begin += Brackets<T>::kBatch) {
      const auto* const batch = static_cast<const std::byte*>(elements) + begin * static_cast<std::int64_t>(sizeof(T));
      whole_.brackets_.Scan(batch, std::min(count - begin, Brackets<T>::kBatch), bracket_counts_.data(),
                            [this](const Word* keys, std::size_t has) { Store(keys, has); });
    }
  }

  void Count(const void* elements, std::int64_t count) {
    const int digit = whole_.digit_, unknown = whole_.unknown_, shift = unknown - digit;
    const std::size_t mask = (std::size_t{1} << digit) - 1;
    std::uint64_t* const counts = counts_.data();
    const auto add = [&](std::size_t node, Word key) {
      ++counts[node << digit | (static_cast<std::size_t>(key >> shift) & mask)];
    };
    if (whole_.nodes_.size() > 1) return ForNodes(elements, count, add);
    const Word prefix = ElementBits(whole_.nodes_[0].prefix, Key::kBits - unknown);
    for (std::int64_t i = 0; i < count; ++i) {
      if (static_cast<Word>(BitsAt(elements, i) >> unknown) == prefix) add(0, KeyAt(elements, i));
    }
  }

  // Of all elements, `last` have the largest key, which is that of NaNs.
  void SetCounted(std::int64_t last) {
    counted_ = count_ - (kIsFloat<T> ? last : 0);
    ranks_ = QuantileRanks(call_, spec_, count_, counted_);
  }

  // From the counts of the nodes' next digit to the nodes that have the ranks.
  void Descend() {
    std::vector<Node> next;
    next.reserve(ranks_.size());
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

  // Finds the keys of ranks_.
  absl::Status Select(std::vector<Word>* found) {
    found->resize(ranks_.size());
    const std::span<Word> keys = Collected();
    std::vector<std::int64_t> among;  // the ranks among the collected keys, which are those of the nodes
    among.reserve(ranks_.size());
    std::int64_t before = 0;  // collected keys of the nodes before this one
    for (const Node& node : nodes_) {
      while (among.size() < ranks_.size() &&
             (&node == &nodes_.back() || ranks_[among.size()] < node.below + node.size)) {
        // Another process may have changed the elements since they were counted: ranks ascend nevertheless.
        const std::int64_t least = among.empty() ? 0 : among.back() + 1;
        (*found)[among.size()] = unknown_ == Key::kBits ? Word{0} : static_cast<Word>(node.prefix << unknown_);
        among.push_back(std::max(least, ranks_[among.size()] - node.below + before));
      }
      before += node.size;
    }
    const auto are = std::lower_bound(among.begin(), among.end(), std::ssize(keys)) - among.begin();
    among.resize(static_cast<std::size_t>(are));
    return SelectKeys(keys, std::move(among), found->data(), limits_);
  }

  const OpCall call_;
  const ReduceSpec spec_;
  const FoldLimits& limits_;
  QuantileFold& whole_;

  // Of the whole.
  bool lacks_bits_ = false;            // loaded from a state that does not have whole keys
  std::int64_t count_ = 0;             // elements
  std::int64_t counted_ = -1;          // without NaNs; -1: not known yet
  FoldLease lists_;                    // of the two lists that follow, and of those that Descend and Select make
  std::vector<std::int64_t> ranks_;    // to find, ascending
  std::vector<Word> found_;            // the keys of ranks_, if brackets have them
  Brackets<T> brackets_;               // of this pass; none: it goes by radix
  std::vector<Node> nodes_;            // ascending
  int unknown_ = 0;                    // bits of the keys
  int digit_ = 0;                      // bits that this pass counts by; 0: it collects
  FoldArray<Word> collected_;          // keys of all nodes
  std::atomic<std::int64_t> has_ = 0;  // of collected_; too many, if elements have changed
  FoldArray<std::uint8_t> prefixes_;   // of several nodes: 1 for those kTop bits that some node has

  // Of this part.
  FoldArray<std::uint64_t> counts_;  // by node and digit
  std::vector<BracketCounts> bracket_counts_;
  std::int64_t nans_ = 0;  // of the first pass: those with the highest bits of an infinity
};

}  // namespace

std::unique_ptr<DistributionFold> MakeQuantileFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldLimits& limits) {
  return MakeFoldOf<QuantileFold>(call, spec, limits);
}

}  // namespace reduced
