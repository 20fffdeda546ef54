#include "proto/codec/entries_codec.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/algebra/polynomial.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/compare.h"
#include "kernels/folds/distances.h"
#include "kernels/folds/sketch.h"

namespace reduced {
namespace {

absl::Status Bad(const char* field, const std::string& got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: got %s; allowed: %s", field, got, allowed));
}

bool IsLowest(Op op) { return op == Op::kBottomK || op == Op::kArgBottomK; }

// Of entries by kIntegers: how many integers a pair of arrays or columns has, and how many pairs there are.
std::size_t IntegersOf(const OpCall& call) {
  return call.op == Op::kCompare ? kComparisonIntegers : kTermCounts + TermsOf(call.op).size();
}
std::size_t PairsIn(const OpCall& call) {
  return IsMatrix(call.op) ? static_cast<std::size_t>(PairsOfColumns(call.given().columns)) : 1;
}

// The same of entries by kIntegers, of so many words.
bool IsKeyOfIntegers(const OpCall& call, std::size_t words, std::uint64_t number) {
  const bool compares = call.op == Op::kCompare;
  if (number >= kFirstRecordKey) return compares && number < RecordKey(kComparisonRecords, 0);
  const std::size_t integer = NumberOfInteger(number), own = IntegersOf(call), in_pair = integer % own;
  const bool is_sum = in_pair >= kTermCounts && in_pair < kTermCounts + TermsOf(call.op).size();
  return integer < own * PairsIn(call) && WordOfInteger(number) < (is_sum ? words : 1);
}

// Checks counts, signs of sums and records.
absl::Status CheckIntegers(const Entries& entries, const ReduceSpec& spec, const OpCall& call, std::int64_t positions) {
  const bool is_float = RowOf(spec.dtype).is_float;
  const std::size_t own = IntegersOf(call);
  std::vector<std::uint64_t> counts(own * PairsIn(call));  // the first words of integers
  bool first = false;                                      // there is a record of the first mismatch
  const std::span<const SumTerm> terms = TermsOf(call.op);
  for (std::size_t i = 0; i < entries.keys.size(); ++i) {
    const std::uint64_t key = entries.keys[i], value = entries.values[i];
    if (key >= kFirstRecordKey) {
      const bool whole = key % kRecordWords == 0 && entries.keys.size() - i >= kRecordWords &&
                         entries.keys[i + kRecordWords - 1] == key + kRecordWords - 1;
      if (!whole) return Bad("keys", absl::StrFormat("%d", key), absl::StrFormat("records of %d words", kRecordWords));
      const bool is_first = key == RecordKey(static_cast<std::size_t>(ComparisonRecord::kFirst), 0);
      first = first || is_first;
      const auto infinity = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
      if (is_first ? value != 0 : ~value > infinity) {
        return Bad("values", absl::StrFormat("rank %d", value), "0, or that of a difference");
      }
      const std::uint64_t index = entries.values[i + kRecordIndex];
      if (index >= static_cast<std::uint64_t>(positions)) {
        return Bad("values", absl::StrFormat("index %d", index), absl::StrFormat("0 to %d", positions - 1));
      }
      i += kRecordWords - 1;
      continue;
    }
    if (value == 0) return Bad("values", "0", "words that are not 0");
    const std::size_t integer = NumberOfInteger(key), in_pair = integer % own;
    const bool is_sum = in_pair >= kTermCounts && in_pair < kTermCounts + terms.size();
    if (!is_sum) {
      counts[integer] = value;
    } else if (WordOfInteger(key) + 1 == static_cast<std::size_t>(entries.most) && value >> 63 != 0 &&
               !MayBeNegative(terms[in_pair - kTermCounts])) {
      return Bad("values", "a negative sum", "0 or more, of squares and distances");
    }
  }
  const std::int64_t columns = std::max<std::int64_t>(call.given().columns, 1);
  if (spec.count % columns != 0) {
    return Bad("count", absl::StrFormat("%d", spec.count), absl::StrFormat("whole rows of %d elements", columns));
  }
  const auto count = static_cast<std::uint64_t>(spec.count / columns);
  const bool omits = is_float && spec.nan_policy == NanPolicy::kOmit;
  for (std::size_t pair = 0; pair < counts.size(); pair += own) {
    const std::uint64_t elements = counts[pair];
    if (elements > count || (elements < count && !omits)) {
      return Bad("values", absl::StrFormat("%d elements", elements),
                 absl::StrFormat("%d%s", count, omits ? " or less" : ""));
    }
    std::uint64_t specials = is_float ? elements : 0;  // that there may be, of each kind less
    for (std::size_t i = pair + 1; i < pair + kTermCounts; specials -= counts[i++]) {
      if (counts[i] > specials) {
        return Bad("values", absl::StrFormat("%d elements that are not finite", counts[i]),
                   absl::StrFormat("0 to %d", specials));
      }
    }
  }
  if (call.op != Op::kCompare) return absl::OkStatus();
  const std::uint64_t elements = counts[0];
  for (const std::size_t i : {kMismatches, kDifferentBits}) {
    if (counts[i] > elements) {
      return Bad("values", absl::StrFormat("%d different pairs", counts[i]), absl::StrFormat("0 to %d", elements));
    }
  }
  if (first != (counts[kMismatches] > 0)) {
    return Bad("keys", absl::StrFormat("%d mismatches and %s first one", counts[kMismatches], first ? "a" : "no"),
               "one if there are any");
  }
  return absl::OkStatus();
}

// Whether a number is the key of entries of the op, of elements of the dtype.
bool IsKey(const OpCall& call, const ReduceSpec& spec, std::uint64_t number) {
  if (call.op == Op::kHistogram) return number < call.given().edges.size() - 1;
  if (call.op == Op::kDistanceMax) return number == 0;
  if (call.op == Op::kFingerprint) return number < kPolynomialBases.size();
  if (const Entries none = NoEntries(call, spec.dtype); none.rule == EntriesRule::kIntegers) {
    return IsKeyOfIntegers(call, static_cast<std::size_t>(none.most), number);
  }
  const bool counted = spec.nan_policy == NanPolicy::kPropagate;  // NaNs are
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) {
    using Key = SortKey<T>;
    using Word = typename Key::Type;
    if (call.op == Op::kDistinct && sizeof(T) > 2) return number < std::uint64_t{1} << kSketchBits;
    auto key = static_cast<Word>(number);
    if (key != number) return false;
    const bool top = NoEntries(call, spec.dtype).rule == EntriesRule::kFirst;
    if (top && IsLowest(call.op)) key = kIsFloat<T> ? static_cast<Word>(key - 1) : key;
    // Descending keys begin with that of NaN.
    if (top && !IsLowest(call.op)) key = static_cast<Word>(~key);
    if (kIsFloat<T> && key == Key::kNan) {
      return counted || call.op == Op::kMode || (IsQuantile(call.op) && call.given().counts.within.empty());
    }
    if (top) return Key::Of(Key::Element(key)) == key;
    if (!IsQuantile(call.op)) return Key::OfValue(Key::Element(key)) == key;
    const KeyCounts& counts = call.given().counts;
    if (Key::Of(Key::Element(key)) != key) return false;
    const int unknown = Key::kBits - CountedBits(call, spec.dtype);
    bool least = (key & static_cast<Word>((std::uint64_t{1} << unknown) - 1)) == 0;
    if constexpr (kIsFloat<T>) {
      least = least || key == Key::Lowest();
    }
    return least && (counts.within.empty() ||
                     std::binary_search(counts.within.begin(), counts.within.end(),
                                        static_cast<std::uint64_t>(key) >> (Key::kBits - counts.within_bits)));
  });
}

// Checks the values, and the number of entries.
absl::Status CheckValues(const Entries& entries, const ReduceSpec& spec, const OpCall& call, std::int64_t positions) {
  if (entries.rule == EntriesRule::kIntegers) return CheckIntegers(entries, spec, call, positions);
  const auto count = static_cast<std::uint64_t>(spec.count);
  const std::size_t size = entries.keys.size();
  if (call.op == Op::kDistanceMax) {
    const std::uint64_t most = BitsOfDistance(std::numeric_limits<double>::quiet_NaN());
    const std::uint64_t infinity = BitsOfDistance(std::numeric_limits<double>::infinity());
    const std::uint64_t bits = size == 0 ? 1 : entries.values.front();
    if (bits != 0 && (bits <= infinity || bits == most) && size <= count) return absl::OkStatus();
    return Bad("values", absl::StrFormat("%d", bits), "the bits of a distance above 0, of an element at least");
  }
  if (call.op == Op::kFingerprint) {
    const std::size_t wanted = count == 0 ? 0 : kPolynomialBases.size();
    if (size != wanted) return Bad("keys", absl::StrFormat("%d of them", size), absl::StrFormat("%d", wanted));
    for (const std::uint64_t value : entries.values) {
      if (value >= kPrime) return Bad("values", absl::StrFormat("%d", value), absl::StrFormat("0 to %d", kPrime - 1));
    }
    return absl::OkStatus();
  }
  const bool counted = spec.nan_policy == NanPolicy::kPropagate || !RowOf(spec.dtype).is_float;
  if (entries.rule == EntriesRule::kSum) {
    std::uint64_t rest = count;
    for (const std::uint64_t value : entries.values) {
      if (value == 0 || value > rest) {
        return Bad("values", absl::StrFormat("%d with %d elements not counted yet", value, rest), "1 to these");
      }
      rest -= value;
    }
    const bool all = call.op != Op::kHistogram && call.given().counts.within.empty();
    if (all && rest > 0) return Bad("values", absl::StrFormat("%d elements fewer than count", rest), "all of them");
    return absl::OkStatus();
  }
  const std::uint64_t most =
      entries.rule == EntriesRule::kFirst ? std::min(count, static_cast<std::uint64_t>(entries.most)) : count;
  if (size > most) return Bad("keys", absl::StrFormat("%d of them", size), absl::StrFormat("at most %d", most));
  const std::uint64_t least = !counted                              ? 0
                              : entries.rule == EntriesRule::kFirst ? most
                                                                    : std::min<std::uint64_t>(count, 1);
  if (size < least) return Bad("keys", absl::StrFormat("%d of them", size), absl::StrFormat("at least %d", least));
  const std::uint64_t end = entries.rule == EntriesRule::kMax ? kMostOfRegister + 1 : positions;
  for (const std::uint64_t value : entries.values) {
    if (value < end && (value > 0 || entries.rule != EntriesRule::kMax)) continue;
    return Bad("values", absl::StrFormat("%d", value),
               absl::StrFormat("%d to %d", entries.rule == EntriesRule::kMax ? 1 : 0, end - 1));
  }
  if (entries.rule != EntriesRule::kFirst) return absl::OkStatus();
  std::vector<std::uint64_t> indexes = entries.values;
  std::sort(indexes.begin(), indexes.end());
  const auto twice = std::adjacent_find(indexes.begin(), indexes.end());
  if (twice == indexes.end()) return absl::OkStatus();
  return Bad("values", absl::StrFormat("index %d twice", *twice), "each once");
}

}  // namespace

void ToProto(const Entries& from, v1::StateEntries* to) {
  to->mutable_keys()->Reserve(static_cast<int>(from.keys.size()));
  std::uint64_t before = 0;
  for (const std::uint64_t key : from.keys) {
    to->add_keys(key - before);
    before = key;
  }
  to->mutable_values()->Assign(from.values.begin(), from.values.end());
}

absl::Status ParseEntries(const v1::StateEntries& from, const ReduceSpec& spec, const OpCall& call,
                          std::int64_t positions, Entries* to) {
  *to = NoEntries(call, spec.dtype);
  const int values = to->rule == EntriesRule::kUnion ? 0 : from.keys_size();
  if (from.values_size() != values) {
    return Bad("values", absl::StrFormat("%d of them for %d keys", from.values_size(), from.keys_size()),
               absl::StrFormat("%d", values));
  }
  to->keys.reserve(static_cast<std::size_t>(from.keys_size()));
  to->values.assign(from.values().begin(), from.values().end());
  std::uint64_t key = 0;
  for (int i = 0; i < from.keys_size(); ++i) {
    const std::uint64_t before = key;
    if (__builtin_add_overflow(before, from.keys(i), &key) || !IsKey(call, spec, key)) {
      return Bad("keys", absl::StrFormat("%d after %d", from.keys(i), before),
                 absl::StrFormat("keys of op %s", RowOf(call.op).name));
    }
    const auto at = static_cast<std::size_t>(i);
    const bool after =
        i == 0 || key > before || (to->rule == EntriesRule::kFirst && to->values[at] > to->values[at - 1]);
    if (!after) return Bad("keys", absl::StrFormat("key %d twice", key), "each once, in ascending order");
    to->keys.push_back(key);
  }
  return CheckValues(*to, spec, call, positions);
}

}  // namespace reduced
