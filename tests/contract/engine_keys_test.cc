// Keys that are to be found: whatever they are, and however far apart.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/shapes.h"

namespace reduced::test {
namespace {

class EngineKeys : public EngineTest<EngineKind> {
 protected:
  // Sums 1, 2, 3... by key, and counts them. `mask`: of rows; empty: none.
  template <class T>
  void Check(DType dtype, const std::vector<T>& keys, const std::vector<std::uint8_t>& mask = {}) {
    SCOPED_TRACE(::testing::Message() << RowOf(dtype).name << ", " << keys.size() << " rows");
    const std::int64_t rows = std::ssize(keys);
    std::vector<std::int64_t> array;
    std::map<T, std::pair<std::int64_t, std::uint64_t>> expected;
    for (std::int64_t row = 0; row < rows; ++row) {
      array.push_back(row + 1);
      if (!mask.empty() && mask[static_cast<std::size_t>(row)] == 0) continue;
      auto& [sum, count] = expected[keys[static_cast<std::size_t>(row)]];
      sum += row + 1;
      ++count;
    }
    ReduceSpec spec = Spec(DType::kI64, rows);
    spec.ops = {Op::kSum, Op::kCount};
    Partition partition{.layout = LayoutAlong({rows}, {0}),
                        .rows = rows,
                        .keys = Keys{.keys = {.dtype = dtype, .count = rows, .array = {keys.data()}}}};
    if (!mask.empty()) {
      partition.mask = Mask{.array = {.dtype = DType::kBool, .count = rows, .array = {mask.data()}}};
    }
    std::vector<T> found;
    std::vector<std::int64_t> sums;
    std::vector<std::uint64_t> counts;
    Job job{.spec = spec, .array = {array.data()}, .partition = partition};
    job.place = [&](std::int64_t outputs, std::int64_t number,
                    const std::byte* from) -> absl::StatusOr<std::vector<std::byte*>> {
      found.resize(static_cast<std::size_t>(number));
      EXPECT_NE(from, nullptr);
      if (number > 0) std::memcpy(found.data(), from, found.size() * sizeof(T));
      sums.assign(static_cast<std::size_t>(outputs), -1);
      counts.assign(static_cast<std::size_t>(outputs), 0);
      return std::vector<std::byte*>{reinterpret_cast<std::byte*>(sums.data()),
                                     reinterpret_cast<std::byte*>(counts.data())};
    };
    const absl::Status status = ReduceAndWait(engine(), std::move(job)).status();
    ASSERT_TRUE(status.ok()) << status;
    std::vector<T> right_keys;
    std::vector<std::int64_t> right_sums;
    std::vector<std::uint64_t> right_counts;
    for (const auto& [key, of] : expected) {
      right_keys.push_back(key);
      right_sums.push_back(of.first);
      right_counts.push_back(of.second);
    }
    EXPECT_EQ(found, right_keys);
    EXPECT_EQ(sums, right_sums);
    EXPECT_EQ(counts, right_counts);
  }

  template <class T>
  void CheckExtremes(DType dtype) {
    constexpr T kLeast = std::numeric_limits<T>::min();
    constexpr T kGreatest = std::numeric_limits<T>::max();
    Check<T>(dtype, {kGreatest, kLeast, 0, 1, kGreatest, kLeast, static_cast<T>(kGreatest - 1)});
    Check<T>(dtype, {kGreatest, kGreatest});
    Check<T>(dtype, {kLeast});
    Check<T>(dtype, {kGreatest, 5, kLeast, 5, 7}, {0, 1, 0, 1, 1});  // those of rows that are not there
    Check<T>(dtype, {1, 2, 3}, {0, 0, 0});
    Check<T>(dtype, {});
  }
};

TEST_P(EngineKeys, Extremes) {
  CheckExtremes<std::int8_t>(DType::kI8);
  CheckExtremes<std::int16_t>(DType::kI16);
  CheckExtremes<std::int32_t>(DType::kI32);
  CheckExtremes<std::int64_t>(DType::kI64);
  CheckExtremes<std::uint8_t>(DType::kU8);
  CheckExtremes<std::uint16_t>(DType::kU16);
  CheckExtremes<std::uint32_t>(DType::kU32);
  CheckExtremes<std::uint64_t>(DType::kU64);
}

TEST_P(EngineKeys, OfAllSizesOfRange) {
  std::mt19937_64 random(3);
  constexpr std::size_t kRows = 5000;
  for (int bits = 0; bits <= 64; bits += bits < 8 ? 1 : 4) {
    const std::uint64_t range = bits == 0 ? 0 : ~std::uint64_t{0} >> (64 - bits);
    std::vector<std::int64_t> keys;
    std::vector<std::uint8_t> mask;
    for (std::size_t i = 0; i < kRows; ++i) {
      // Half of them are there already.
      keys.push_back(i % 2 == 1 ? keys[random() % i] : static_cast<std::int64_t>((random() & range) - range / 2));
      mask.push_back(random() % 3 == 0 ? 0 : 1);
    }
    Check(DType::kI64, keys);
    Check(DType::kI64, keys, mask);
    Check(DType::kU32, std::vector<std::uint32_t>(keys.begin(), keys.end()), mask);
  }
}

// As far apart as a table on a GPU has places, and one more.
TEST_P(EngineKeys, AroundTheSizeOfATable) {
  constexpr std::int64_t kRows = 1000;
  for (std::int64_t span = 4 * kRows + (1 << 16) - 2; span <= 4 * kRows + (1 << 16) + 1; ++span) {
    std::vector<std::int32_t> keys;
    for (std::int64_t row = 0; row < kRows; ++row) keys.push_back(static_cast<std::int32_t>(row * row % span) - 40'000);
    keys[17] = -40'000;
    keys[900] = static_cast<std::int32_t>(span) - 40'000;
    Check(DType::kI32, keys);
  }
}

TEST_P(EngineKeys, AroundTheSpanOf32Bits) {
  constexpr std::int64_t kSpan = std::int64_t{1} << 32;
  for (std::int64_t span = kSpan - 2; span <= kSpan + 1; ++span) {
    std::vector<std::int64_t> keys;
    for (std::int64_t row = 0; row < 1000; ++row) keys.push_back(row * row * 4093 % span - 77);
    keys[500] = -77;
    keys[501] = span - 77;
    Check(DType::kI64, keys);
  }
}

TEST_P(EngineKeys, AsManyAsRows) {
  const std::int64_t rows = kSlowBuild ? 20'000 : 300'000;
  std::vector<std::int64_t> keys;
  for (std::int64_t row = 0; row < rows; ++row) keys.push_back((row * 7919 % rows) << 40);
  Check(DType::kI64, keys);
  for (std::int64_t& key : keys) key >>= 40;
  Check(DType::kI64, keys);
}

REDUCED_INSTANTIATE_BY_KIND(EngineKeys);

}  // namespace
}  // namespace reduced::test
