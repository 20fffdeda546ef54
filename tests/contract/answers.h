// Memory for the arrays of answers of an engine.
#ifndef REDUCED_TESTS_CONTRACT_ANSWERS_H_
#define REDUCED_TESTS_CONTRACT_ANSWERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/algebra/spec.h"
#include "tests/support/data.h"

namespace reduced::test {

// The answers of an engine, with bytes around them that nobody may write.
struct Answers {
  Answers(const ReduceSpec& spec, std::int64_t outputs) {
    for (const Op op : spec.ops) {
      const std::int64_t bytes = outputs * RowOf(ResultDType(op, spec.dtype)).bytes;
      memory.emplace_back(static_cast<std::size_t>(bytes) + 2 * kGuard, kCanary);
      data.push_back(memory.back().data() + kGuard);
    }
  }
  bool GuardsStand() const {
    const auto stands = [](std::byte each) { return each == kCanary; };
    return std::all_of(memory.begin(), memory.end(), [&](const Bytes& each) {
      return std::all_of(each.begin(), each.begin() + kGuard, stands) &&
             std::all_of(each.end() - kGuard, each.end(), stands);
    });
  }

  static constexpr std::size_t kGuard = 67;  // so that answers stand at odd addresses
  static constexpr std::byte kCanary{0xa5};
  std::vector<Bytes> memory;
  std::vector<std::byte*> data;
};

}  // namespace reduced::test

#endif  // REDUCED_TESTS_CONTRACT_ANSWERS_H_
