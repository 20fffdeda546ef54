#include "kernels/algebra/entries.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/algebra/polynomial.h"
#include "kernels/exact/fixed_point.h"
#include "kernels/exact/terms.h"

namespace reduced {
namespace {

// By kIntegers.
Entries AddedIntegers(const Entries& a, const Entries& b) {
  Entries both{.rule = a.rule, .most = a.most};
  both.keys.reserve(a.keys.size() + b.keys.size());
  both.values.reserve(a.keys.size() + b.keys.size());
  const auto key = [](const Entries& entries, std::size_t at) {
    return at < entries.keys.size() ? entries.keys[at] : std::numeric_limits<std::uint64_t>::max();
  };
  std::vector<std::uint64_t> sum, other;
  std::size_t i = 0, j = 0;
  while (i < a.keys.size() || j < b.keys.size()) {
    const std::uint64_t first = std::min(key(a, i), key(b, j));
    if (first >= kFirstRecordKey) {
      const bool equal = key(a, i) == key(b, j);
      const auto rank = [](const Entries& entries, std::size_t at) {
        return std::pair(entries.values[at], entries.values[at + kRecordIndex]);
      };
      const bool of_a = equal ? rank(a, i) <= rank(b, j) : key(a, i) == first;
      for (std::size_t word = 0; word < kRecordWords; ++word) {
        both.Add(first + word, of_a ? a.values[i + word] : b.values[j + word]);
      }
      if (equal || of_a) i += kRecordWords;
      if (equal || !of_a) j += kRecordWords;
      continue;
    }
    const std::size_t number = NumberOfInteger(first);
    const auto take = [&](const Entries& entries, std::size_t* at, std::vector<std::uint64_t>* words) {
      words->assign(static_cast<std::size_t>(both.most), 0);
      for (; NumberOfInteger(key(entries, *at)) == number; ++*at) {
        (*words)[WordOfInteger(entries.keys[*at])] = entries.values[*at];
      }
    };
    take(a, &i, &sum);
    take(b, &j, &other);
    AddWords(other, sum);
    for (std::size_t word = 0; word < sum.size(); ++word) {
      if (sum[word] != 0) both.Add(IntegerKey(number, word), sum[word]);
    }
  }
  return both;
}

}  // namespace

Entries NoEntries(const OpCall& call, DType dtype) {
  switch (call.op) {
    case Op::kTopK:
    case Op::kBottomK:
    case Op::kArgTopK:
    case Op::kArgBottomK:
      return {.rule = EntriesRule::kFirst, .most = call.given().k};
    case Op::kDistinct:
      return {.rule = RowOf(dtype).bytes <= 2 ? EntriesRule::kUnion : EntriesRule::kMax};
    case Op::kDistinctExact:
      return {.rule = EntriesRule::kUnion};
    case Op::kDistanceMax:
      return {.rule = EntriesRule::kMax};
    case Op::kFingerprint:
      return {.rule = EntriesRule::kPolynomial, .most = call.given().shard.has_value() ? 0 : WordsOfElement(dtype)};
    default:
      if (const auto terms = TermsOf(call.op); !terms.empty()) {
        return {.rule = EntriesRule::kIntegers,
                .most = TermWords(terms, dtype, call.given().other.value_or(dtype)).words};
      }
      return {.rule = EntriesRule::kSum};
  }
}

void Merge(const Entries& more, Entries* into) {
  if (more.keys.empty()) return;
  if (into->rule == EntriesRule::kIntegers) {
    *into = AddedIntegers(*into, more);
    return;
  }
  const bool valued = into->rule != EntriesRule::kUnion;
  const std::size_t most = into->rule == EntriesRule::kFirst ? static_cast<std::size_t>(into->most)
                                                             : std::numeric_limits<std::size_t>::max();
  const auto at = [valued](const Entries& entries, std::size_t i) {
    return std::pair(entries.keys[i], valued ? entries.values[i] : 0);
  };
  Entries both{.rule = into->rule, .most = into->most};
  const std::size_t room = std::min(most, into->keys.size() + more.keys.size());
  both.keys.reserve(room);
  if (valued) both.values.reserve(room);
  for (std::size_t a = 0, b = 0; both.keys.size() < most && (a < into->keys.size() || b < more.keys.size());) {
    const bool mine = b == more.keys.size() || (a < into->keys.size() && at(*into, a) <= at(more, b));
    const auto [key, value] = mine ? at(*into, a++) : at(more, b++);
    if (into->rule != EntriesRule::kFirst && !both.keys.empty() && both.keys.back() == key) {
      if (into->rule == EntriesRule::kSum) both.values.back() += value;
      if (into->rule == EntriesRule::kPolynomial) both.values.back() = Residue(both.values.back() + value);
      if (into->rule == EntriesRule::kMax) both.values.back() = std::max(both.values.back(), value);
      continue;
    }
    both.keys.push_back(key);
    if (valued) both.values.push_back(value);
  }
  *into = std::move(both);
}

}  // namespace reduced
