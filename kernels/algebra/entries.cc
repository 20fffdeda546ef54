#include "kernels/algebra/entries.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace reduced {

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
    default:
      return {.rule = EntriesRule::kSum};
  }
}

void Merge(const Entries& more, Entries* into) {
  if (more.keys.empty()) return;
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
      if (into->rule == EntriesRule::kMax) both.values.back() = std::max(both.values.back(), value);
      continue;
    }
    both.keys.push_back(key);
    if (valued) both.values.push_back(value);
  }
  *into = std::move(both);
}

}  // namespace reduced
