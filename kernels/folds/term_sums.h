// Exact sums of terms (exact/terms.h) of the elements of an output: what the folds of ops about pairs of elements, and
// of higher moments, know. Integers of any width, so that neither cuts nor order matter.
#ifndef REDUCED_KERNELS_FOLDS_TERM_SUMS_H_
#define REDUCED_KERNELS_FOLDS_TERM_SUMS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/algebra/entries.h"
#include "kernels/algebra/op_call.h"
#include "kernels/algebra/spec.h"
#include "kernels/exact/scaled.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/term_tiles.h"

namespace reduced {

// Of no element until any is added. Not thread-safe. Takes up to 5 KiB.
class TermSums {
 public:
  // `call`: an op that has terms, with the dtype of its other operand.
  TermSums(const OpCall& call, const ReduceSpec& spec);

  void Clear();
  // Adds elements at any address, and as many of the other operand; null: the op has none.
  void Add(const void* elements, const void* others, std::int64_t count);
  // Adds a tile of finite elements of these dtypes.
  void Add(const TermTile& tile);
  void Merge(const TermSums& other);
  // Adds so many pairs or elements, and `factor` times the sum of a term as a device has added it up: digits of 32 bits
  // and a sign, the first of which are of units 2^unit.
  void AddCount(TermCount which, std::int64_t count) { counts_[static_cast<std::size_t>(which)] += count; }
  void AddDigits(SumTerm term, int factor, std::span<const unsigned long long> digits, int unit);

  // The entries of a state, by EntriesRule::kIntegers. INVALID_ARGUMENT: there are no such integers.
  void Save(Entries* to) const;
  absl::Status Load(const Entries& from);

  std::int64_t count(TermCount which) const { return counts_[static_cast<std::size_t>(which)]; }
  // What infinities and NaNs make of a sum of such terms; absent, if there are none.
  std::optional<double> special() const;
  // The sum of one of the op's terms.
  Scaled sum(SumTerm term) const;

 private:
  // What a pair with an infinite element does to the answer.
  enum class Infinite : std::uint8_t { kUndefined, kProduct, kWeights, kDistance };

  void AddTile(const void* elements, const void* others, std::int64_t count);
  void AddIntegers(const void* elements, const void* others, std::int64_t count);
  // Counts the pairs with an element that is not finite, and leaves zeros in their places.
  void SetSpecialsAside(double* x, double* y, std::int64_t count);
  std::span<std::uint64_t> words(std::size_t number) {
    const auto size = static_cast<std::size_t>(layout_.words);
    return std::span(words_).subspan(number * size, size);
  }

  const DType dtype_, other_;
  const TermWords layout_;
  const Infinite infinite_;
  const bool omits_nans_;
  const bool equal_infinities_, equal_nans_;  // are no distance
  std::array<std::int64_t, kTermCounts> counts_{};
  std::vector<std::uint64_t> words_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_TERM_SUMS_H_
