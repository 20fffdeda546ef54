// What a state has of an op of the distribution: a table of entries, each a key and a value. Entries of parts merge by
// a rule, in any order, so that the state of a histogram is as small as its bins are few, and that of distinct_exact
// has one entry for each different value.
//
//   op                     key                                     value                             rule
//   histogram              the number of a bin                     how many elements it has          kSum
//   mode, median,          the sort key of a value, or the least   how many elements have it         kSum
//   quantile               one with the same highest bits
//   distinct               the number of a register                its value                         kMax
//   distinct of 8 and 16   the sort key of a value                 -                                 kUnion
//   bits, distinct_exact
//   topk and its like      how far from the best the element is    its index                         kFirst
//   distance_max           0                                       the bits of the distance          kMax
//   other ops about pairs, IntegerKey(number, word)                a word of an integer              kIntegers
//   skew, kurtosis
//   cov_matrix,            likewise, the integers of each pair     a word of an integer              kIntegers
//   corr_matrix            of columns after those of the one before
//   compare                likewise, and RecordKey(number, word)   a word of a record                kIntegers
//   fingerprint            the number of a base                    a sum of powers, modulo p         kPolynomial
//   weighted_median,       none: they have no states
//   weighted_quantile
#ifndef REDUCED_KERNELS_ALGEBRA_ENTRIES_H_
#define REDUCED_KERNELS_ALGEBRA_ENTRIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op_call.h"

namespace reduced {

// What becomes of the entries of two parts.
enum class EntriesRule : std::uint8_t {
  kSum,    // of those with the same key the values are added
  kMax,    // the largest value stays
  kUnion,  // one stays; there are no values
  kFirst,  // the first ones stay, in the order of keys and then of values; keys may be equal
  // Integers in two's complement are added: each has `most` words, and an entry for each word that is not 0. Of records
  // with the same number the least one stays; each has all its words.
  kIntegers,
  kPolynomial,  // values are added modulo p (polynomial.h); of elements that come later they are multiplied before
};

// Keys of kIntegers.
constexpr std::uint64_t IntegerKey(std::size_t number, std::size_t word) { return number << 16 | word; }
constexpr std::size_t NumberOfInteger(std::uint64_t key) { return key >> 16; }
constexpr std::size_t WordOfInteger(std::uint64_t key) { return key & 0xffff; }
// Records are compared by their first two words; the second one is the index of an element.
inline constexpr std::uint64_t kFirstRecordKey = std::uint64_t{1} << 32;
inline constexpr std::size_t kRecordWords = 4;
inline constexpr std::size_t kRecordIndex = 1;
constexpr std::uint64_t RecordKey(std::size_t number, std::size_t word) {
  return kFirstRecordKey + number * kRecordWords + word;
}
constexpr bool IsRecordIndex(std::uint64_t key) { return key >= kFirstRecordKey && key % kRecordWords == kRecordIndex; }

// A value.
struct Entries {
  EntriesRule rule = EntriesRule::kSum;
  std::int64_t most = 0;  // of kFirst: how many stay; of kIntegers: how many words an integer has; of
                          // kPolynomial: how many an element has, 0 if its place in the whole array is known
  // In ascending order.
  std::vector<std::uint64_t> keys{};
  std::vector<std::uint64_t> values{};  // one for each key; of kUnion none

  std::int64_t bytes() const { return static_cast<std::int64_t>((keys.size() + values.size()) * sizeof(keys[0])); }
  void Add(std::uint64_t key, std::uint64_t value) {
    keys.push_back(key);
    values.push_back(value);
  }
};

// Those of no element. `call`: of the distribution.
Entries NoEntries(const OpCall& call, DType dtype);

// Adds those of another part of the same call.
void Merge(const Entries& more, Entries* into);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_ENTRIES_H_
