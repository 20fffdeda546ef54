// Tables by key of more groups than a cache has room for, which no array of the contract's tests has.
#include "kernels/cpu/key_tables.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/quick_answers.h"
#include "kernels/engine/array_budget.h"

namespace reduced {
namespace {

constexpr std::int64_t kRows = 700'000;
constexpr std::int64_t kGroups = 600'000;

// What is to be found of a group.
struct Expected {
  std::int64_t count = 0, nans = 0;
  double sum = 0, squares = 0;
  std::int64_t lowest_at = -1, highest_at = -1;  // of elements that aren't NaN
};

class KeyTablesTest : public testing::Test {
 protected:
  // Of small integers, so that sums are exact; NaN here and there.
  template <class T>
  std::vector<T> Elements() {
    std::vector<T> elements(kRows);
    for (T& x : elements) {
      x = static_cast<T>(static_cast<int>(random_() % 200) - (std::is_signed_v<T> ? 100 : 0));
      if constexpr (std::is_floating_point_v<T>) {
        if (random_() % 500 == 0) x = std::copysign(std::numeric_limits<T>::quiet_NaN(), random_() % 2 == 0 ? 1 : -1);
      }
    }
    return elements;
  }

  template <class T>
  void Check(DType dtype, const std::vector<std::int32_t>& keys, std::int64_t groups, const KeyTablesWanted& wanted) {
    const std::vector<T> elements = Elements<T>();
    ArrayBudget budget("cpu", std::int64_t{1} << 30);
    tbb::task_arena arena(2);
    const auto why_stop = [] { return absl::OkStatus(); };
    const GroupingContext context{budget, arena, why_stop};
    const Keys asked{{.dtype = DType::kI32, .count = kRows}, groups, /*drop=*/true};
    const absl::StatusOr<Grouping> grouping =
        GroupByKeys(asked, reinterpret_cast<const std::byte*>(keys.data()), nullptr, context);
    ASSERT_TRUE(grouping.ok()) << grouping.status();
    const absl::StatusOr<std::unique_ptr<KeyTables>> tables =
        MakeKeyTables(dtype, reinterpret_cast<const std::byte*>(elements.data()), kRows, *grouping, wanted, context);
    ASSERT_TRUE(tables.ok()) << tables.status();
    ASSERT_NE(*tables, nullptr);

    std::vector<Expected> expected(static_cast<std::size_t>(groups));
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::int64_t key = keys[static_cast<std::size_t>(row)];
      if (key < 0 || key >= groups) continue;
      Expected& group = expected[static_cast<std::size_t>(key)];
      const T x = elements[static_cast<std::size_t>(row)];
      ++group.count;
      if (std::isnan(static_cast<double>(x))) {
        ++group.nans;
        continue;
      }
      group.sum += static_cast<double>(x);
      group.squares += static_cast<double>(x) * static_cast<double>(x);
      const auto at = [&](std::int64_t other) { return elements[static_cast<std::size_t>(other)]; };
      if (group.lowest_at < 0 || x < at(group.lowest_at)) group.lowest_at = row;
      if (group.highest_at < 0 || x > at(group.highest_at)) group.highest_at = row;
    }
    const auto found = std::make_unique<QuickFound>();
    std::int64_t counts[kQuickOutputs];
    for (std::int64_t first = 0; first < groups; first += kQuickOutputs) {
      const std::int64_t size = std::min(kQuickOutputs, groups - first);
      (*tables)->Load(first, size, found.get(), counts);
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t number = first + i;
        const Expected& group = expected[static_cast<std::size_t>(number)];
        const bool known = group.nans == 0 || wanted.omit_nans;
        ASSERT_EQ(wanted.counts ? counts[i] : counts[i] > 0, wanted.counts ? group.count : group.count > 0)
            << "group " << number;
        if (wanted.sums && known) {
          ASSERT_EQ(found->of(Term::kElement).sum[i], group.sum) << "group " << number;
        }
        if (wanted.squares && known) {
          ASSERT_EQ(found->of(Term::kSquare).sum[i], group.squares) << "group " << number;
        }
        if (wanted.sums && !known) {
          ASSERT_FALSE(found->of(Term::kElement).lost[i] == 0) << "group " << number;
        }
        if (!wanted.lowest && !wanted.highest) continue;
        ASSERT_EQ(found->extrema.has_nan[i], !known || group.lowest_at < 0) << "group " << number;
        if (found->extrema.has_nan[i]) continue;
        if (wanted.lowest) {
          ASSERT_EQ(found->extrema.lowest_at[i], group.lowest_at) << "group " << number;
        }
        if (wanted.highest) {
          ASSERT_EQ(found->extrema.highest_at[i], group.highest_at) << "group " << number;
        }
      }
    }
  }

  // Of all groups; some keys are outside.
  std::vector<std::int32_t> KeysOf(std::int64_t groups) {
    std::vector<std::int32_t> keys(kRows);
    for (std::int32_t& key : keys) {
      key = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(groups + groups / 50)) - 3;
    }
    return keys;
  }

  std::mt19937_64 random_{5};
};

TEST_F(KeyTablesTest, ExtremaOfManyGroups) {
  const std::vector<std::int32_t> keys = KeysOf(kGroups);
  for (const bool omit : {false, true}) {
    Check<float>(DType::kF32, keys, kGroups, {.highest = true, .omit_nans = omit});
    Check<float>(DType::kF32, keys, kGroups, {.lowest = true, .omit_nans = omit});
    Check<float>(DType::kF32, keys, kGroups / 2, {.lowest = true, .highest = true, .omit_nans = omit});
    Check<double>(DType::kF64, keys, kGroups / 2, {.lowest = true, .omit_nans = omit});
    Check<double>(DType::kF64, keys, kGroups / 6, {.counts = true, .highest = true, .omit_nans = omit});
  }
  Check<std::int8_t>(DType::kI8, keys, kGroups, {.highest = true});
  Check<std::uint8_t>(DType::kU8, keys, kGroups, {.lowest = true});
  Check<std::int64_t>(DType::kI64, keys, kGroups / 2, {.highest = true});
  Check<std::uint64_t>(DType::kU64, keys, kGroups / 2, {.lowest = true});
}

TEST_F(KeyTablesTest, SumsOfManyGroups) {
  const std::int64_t groups = kGroups / 4;
  const std::vector<std::int32_t> keys = KeysOf(groups);
  for (const bool omit : {false, true}) {
    Check<double>(DType::kF64, keys, groups, {.counts = true, .sums = true, .omit_nans = omit});
    Check<float>(DType::kF32, keys, groups / 2,
                 {.counts = true, .sums = true, .squares = true, .lowest = true, .omit_nans = omit});
  }
  Check<std::int32_t>(DType::kI32, keys, groups, {.counts = true, .sums = true, .highest = true});
  Check<std::int16_t>(DType::kI16, keys, kGroups, {.counts = true});
}

// The tables are large, but neighbouring rows have the same groups or neighbouring ones, whose entries are in the
// cache.
TEST_F(KeyTablesTest, SortedKeysAndFewOfMany) {
  std::vector<std::int32_t> sorted = KeysOf(kGroups / 4), few = sorted;
  std::sort(sorted.begin(), sorted.end());
  for (std::int32_t& key : few) {
    if (random_() % 16 != 0) key %= 100;
  }
  for (const std::vector<std::int32_t>& keys : {sorted, few}) {
    Check<double>(DType::kF64, keys, kGroups / 4, {.counts = true, .sums = true});
    Check<double>(DType::kF64, keys, kGroups / 4, {.lowest = true, .highest = true});
  }
}

}  // namespace
}  // namespace reduced
