// The keys of some ranks, on the host.
#ifndef REDUCED_KERNELS_FOLDS_SELECT_KEYS_H_
#define REDUCED_KERNELS_FOLDS_SELECT_KEYS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/folds/fold.h"

namespace reduced {

// Keeps of `keys` those that may have one of the ascending `ranks`, from which it subtracts how many lesser keys there
// are no more: counts by the highest bits in which the keys differ tell which these are.
template <class Word>
std::span<Word> KeysNearRanks(std::span<Word> keys, std::vector<std::int64_t>* ranks) {
  constexpr int kBinBits = 11;
  const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
  const Word first = *least;
  const int shift = std::max(0, static_cast<int>(std::bit_width(static_cast<Word>(*most - first))) - kBinBits);
  const auto bin_of = [&](Word key) { return static_cast<std::size_t>(static_cast<Word>(key - first) >> shift); };
  std::array<std::int64_t, std::size_t{1} << kBinBits> counts{};
  for (const Word key : keys) ++counts[bin_of(key)];
  std::array<bool, counts.size()> wanted{};
  std::int64_t below = 0, dropped = 0;
  std::size_t at = 0;
  for (std::size_t bin = 0; bin < counts.size() && at < ranks->size(); ++bin) {
    below += counts[bin];
    for (; at < ranks->size() && (*ranks)[at] < below; ++at) {
      wanted[bin] = true;
      (*ranks)[at] -= dropped;
    }
    if (!wanted[bin]) dropped += counts[bin];
  }
  const auto end = std::remove_if(keys.begin(), keys.end(), [&](Word key) { return !wanted[bin_of(key)]; });
  return keys.first(static_cast<std::size_t>(end - keys.begin()));
}

// Puts the keys of ascending `ranks`, each once, in `found`. The keys change their order. Errors: those of
// FoldLimits::why_stop.
template <class Word>
absl::Status SelectKeys(std::span<Word> keys, std::vector<std::int64_t> ranks, Word* found, const FoldLimits& limits) {
  constexpr std::size_t kMany = std::size_t{1} << 14, kLook = std::size_t{1} << 16;  // so many take about a millisecond
  if (ranks.empty()) return absl::OkStatus();
  if (keys.size() > kLook) {
    if (absl::Status why = limits.why_stop(); !why.ok()) return why;
  }
  if (keys.size() > kMany) keys = KeysNearRanks(keys, &ranks);
  const std::size_t middle = ranks.size() / 2;
  const auto at = static_cast<std::size_t>(ranks[middle]);
  std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(at), keys.end());
  found[middle] = keys[at];
  std::vector<std::int64_t> above(ranks.begin() + static_cast<std::ptrdiff_t>(middle) + 1, ranks.end());
  for (std::int64_t& rank : above) rank -= ranks[middle] + 1;
  ranks.resize(middle);
  absl::Status status = SelectKeys(keys.first(at), std::move(ranks), found, limits);
  if (!status.ok()) return status;
  return SelectKeys(keys.subspan(at + 1), std::move(above), found + middle + 1, limits);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_SELECT_KEYS_H_
