// Brackets of quantiles, chosen by a sample: with high probability the elements of the wanted ranks lie between two
// keys that few other elements lie between. One read then counts what is below, at and above both keys, and collects
// what is between them. After R. W. Floyd and R. L. Rivest, "Expected time bounds for selection", Communications of the
// ACM 18 (3), 1975. What is found does not depend on the sample: whether a bracket has a rank is known from the counts.
#ifndef REDUCED_KERNELS_FOLDS_BRACKETS_H_
#define REDUCED_KERNELS_FOLDS_BRACKETS_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/quantile_answers.h"
#include "kernels/folds/scan_tiles.h"
#include "kernels/folds/select_keys.h"

namespace reduced {

template <class T>
class Brackets {
 public:
  using Key = SortKey<T>;
  using Word = typename Key::Type;

  // How many of `count` elements make a sample; 0: none is worth its time. Elements of 16 bits and fewer are counted by
  // all of their bits in one pass.
  static std::int64_t SampleElements(std::int64_t count) {
    constexpr std::int64_t kMany = std::int64_t{1} << 20, kLeast = 1 << 14, kMost = 1 << 22;
    return Key::kBits <= 16 || count < kMany ? 0 : std::clamp(count >> 8, kLeast, kMost);
  }

  // Chooses brackets of what the op asks for among `count` elements. None: it asks for too much, there is no memory, or
  // elements between keys would probably be more than `most`. Errors: those of SelectKeys.
  absl::Status Choose(const OpCall& call, const ReduceSpec& spec, const void* sample, std::int64_t sampled,
                      std::int64_t count, std::int64_t most, const FoldLimits& limits) {
    brackets_.clear();
    FoldArray<Word> keys(limits);
    if (!keys.Resize(sampled).ok()) return absl::OkStatus();
    std::int64_t size = 0;  // without NaNs
    for (std::int64_t i = 0; i < sampled; ++i) {
      const Word key = Key::Of(ElementAt<T>(sample, i));
      keys[static_cast<std::size_t>(size)] = key;
      size += kIsFloat<T> && key == Key::kNan ? 0 : 1;
    }
    std::vector<std::int64_t> bounds;  // ranks in the sample: the lower and the upper one of each bracket
    for (const std::int64_t rank : QuantileRanks(call, spec, size, size)) {
      // Four standard deviations of a rank, and a little for ranks near the ends.
      const auto below = static_cast<double>(rank), above = static_cast<double>(size - rank);
      const auto width = 16 + static_cast<std::int64_t>(4 * std::sqrt(below * above / static_cast<double>(size)));
      if (!bounds.empty() && rank - width <= bounds.back()) {
        bounds.back() = rank + width;
      } else {
        bounds.insert(bounds.end(), {rank - width, rank + width});
      }
    }
    std::int64_t within = 0;
    for (std::size_t i = 0; i < bounds.size(); i += 2) within += bounds[i + 1] - bounds[i];
    if (std::ssize(bounds) > 2 * kMostBrackets ||
        static_cast<double>(within) / static_cast<double>(sampled) * static_cast<double>(count) >
            static_cast<double>(most)) {
      return absl::OkStatus();
    }
    // Bounds beyond the sample are below all keys, or above those of all elements but NaNs.
    std::vector<std::int64_t> there;
    for (const std::int64_t bound : bounds) {
      if (bound >= 0 && bound < size && (there.empty() || there.back() < bound)) there.push_back(bound);
    }
    std::vector<Word> found(there.size());
    const std::span<Word> all(keys.data(), static_cast<std::size_t>(size));
    if (absl::Status status = SelectKeys(all, there, found.data(), limits); !status.ok()) return status;
    const auto key_at = [&](std::int64_t bound) {
      if (bound < 0) return Word{0};
      if (bound >= size) return Key::kMost;
      return found[static_cast<std::size_t>(std::lower_bound(there.begin(), there.end(), bound) - there.begin())];
    };
    for (std::size_t i = 0; i < bounds.size(); i += 2) {
      brackets_.push_back({OrderKeyOf(key_at(bounds[i])), OrderKeyOf(key_at(bounds[i + 1]))});
    }
    return absl::OkStatus();
  }
  void Clear() { brackets_.clear(); }
  std::size_t size() const { return brackets_.size(); }

  // Looks at elements, at most kBatch, at any address: counts them in counts[i], for bracket i, and calls add(keys,
  // count) with the sort keys of those between the keys of a bracket.
  static constexpr std::int64_t kBatch = 2048;
  template <class AddKeys>
  void Scan(const void* elements, std::int64_t count, BracketCounts* counts, const AddKeys& add) const {
    const ScanBracket scan = ScanTilesHere().bracket[static_cast<std::size_t>(kDTypeOf<T>) - 1];
    Word keys[kBatch + kScanBlock];
    for (std::size_t i = 0; i < brackets_.size(); ++i) {
      const std::int64_t has = scan(static_cast<const std::byte*>(elements), count, &brackets_[i], &counts[i], keys);
      for (std::int64_t k = 0; k < has; ++k) keys[k] ^= Key::kSign;
      if (has > 0) add(keys, static_cast<std::size_t>(has));
    }
  }

  // After all of `count` elements were looked at: puts the sort keys of `ranks` in `found`. `between`: the keys that
  // Scan has given, in any order. False: no bracket has some rank. Errors: those of SelectKeys.
  absl::StatusOr<bool> Find(std::int64_t count, std::span<const BracketCounts> counts,
                            std::span<const std::int64_t> ranks, std::span<Word> between, Word* found,
                            const FoldLimits& limits) const {
    std::size_t rank = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      const BracketCounts& has = counts[i];
      const std::int64_t to_lower = count - has.above_lower;
      const Word lower = SortKeyOf(brackets_[i].lower), upper = SortKeyOf(brackets_[i].upper);
      const auto others = std::partition(between.begin(), between.end(), [&](Word key) { return key < upper; });
      const auto own = between.first(static_cast<std::size_t>(others - between.begin()));
      between = between.subspan(own.size());
      for (; rank < ranks.size() && ranks[rank] < to_lower; ++rank) {
        if (ranks[rank] < has.below_lower) return false;
        found[rank] = lower;
      }
      const std::size_t first = rank;
      std::vector<std::int64_t> among;  // own keys
      for (; rank < ranks.size() && ranks[rank] < has.below_upper; ++rank) among.push_back(ranks[rank] - to_lower);
      if (!among.empty() && among.back() >= std::ssize(own)) return false;  // another process changes the elements
      if (absl::Status status = SelectKeys(own, std::move(among), found + first, limits); !status.ok()) return status;
      for (; rank < ranks.size() && ranks[rank] < count - has.above_upper; ++rank) found[rank] = upper;
    }
    return rank == ranks.size();
  }

 private:
  using Signed = typename Key::Signed;
  static constexpr std::ptrdiff_t kMostBrackets = 8;

  static Signed OrderKeyOf(Word key) { return static_cast<Signed>(key ^ Key::kSign); }
  static Word SortKeyOf(Signed key) { return static_cast<Word>(static_cast<Word>(key) ^ Key::kSign); }

  std::vector<KeyBracket<Signed>> brackets_;  // ascending
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_BRACKETS_H_
