// The groups of keys: those that are given, where no array of a test is large enough to have them, and those that are
// found, by each of the ways to find them.
#include "kernels/cpu/grouping.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/array_budget.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

using testing::ElementsAre;

template <class Key>
std::vector<std::uint32_t> GroupsOf(DType dtype, const std::vector<Key>& keys, std::int64_t groups,
                                    absl::Status* check) {
  ArrayBudget budget("cpu", 1 << 20);
  tbb::task_arena arena(1);
  const auto why_stop = [] { return absl::OkStatus(); };
  const auto* const elements = reinterpret_cast<const std::byte*>(keys.data());
  const Keys asked{{.dtype = dtype, .count = std::ssize(keys)}, groups};
  const absl::StatusOr<Grouping> grouping = GroupByKeys(asked, elements, nullptr, {budget, arena, why_stop});
  EXPECT_TRUE(grouping.ok()) << grouping.status();
  std::vector<std::uint32_t> ids(keys.size());
  grouping->in_place->Ids(0, std::ssize(keys), ids.data());
  *check = grouping->in_place->Check();
  return ids;
}

TEST(Grouping, NegativeKeysAreInNoGroupHoweverManyThereAre) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 32) - 2;
  absl::Status check;
  EXPECT_THAT(GroupsOf<std::int32_t>(DType::kI32, {5, std::numeric_limits<std::int32_t>::min(), -1}, kMost, &check),
              ElementsAre(5, kNoGroup, kNoGroup));
  EXPECT_EQ(check, absl::OutOfRangeError("keys[1]: got -2147483648; allowed: 0 to 4294967293, or outside: DROP"));
  EXPECT_THAT(GroupsOf<std::int8_t>(DType::kI8, {127, -3}, kMost, &check), ElementsAre(127, kNoGroup));
  EXPECT_EQ(check.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(GroupsOf<std::int64_t>(DType::kI64, {-1, kMost, kMost - 1}, kMost, &check),
              ElementsAre(kNoGroup, kNoGroup, 4294967293));
}

TEST(Grouping, TheLargestKeysOfADTypeAreInTheirGroups) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 32) - 2;
  absl::Status check;
  EXPECT_THAT(GroupsOf<std::uint32_t>(DType::kU32, {4294967293, 4294967294, 4294967295}, kMost, &check),
              ElementsAre(4294967293, kNoGroup, kNoGroup));
  EXPECT_THAT(GroupsOf<std::uint8_t>(DType::kU8, {255, 0}, 256, &check), ElementsAre(255, 0));
  EXPECT_TRUE(check.ok());
  EXPECT_THAT(GroupsOf<std::uint8_t>(DType::kU8, {255, 0}, 255, &check), ElementsAre(kNoGroup, 0));
  EXPECT_THAT(GroupsOf<std::int32_t>(DType::kI32, {2147483647}, kMost, &check), ElementsAre(2147483647));
  EXPECT_TRUE(check.ok());
}

// Groups keys that are found, of two rows in three; the sorted keys of these rows are the right groups.
template <class Key>
class FoundKeys {
 public:
  FoundKeys(DType dtype, std::vector<Key> keys) : dtype_(dtype), keys_(std::move(keys)) {
    for (std::size_t row = 0; row < keys_.size(); ++row) {
      if (row % 3 != 0) groups_.push_back(keys_[row]);
    }
    std::sort(groups_.begin(), groups_.end());
    groups_.erase(std::unique(groups_.begin(), groups_.end()), groups_.end());
  }

  absl::StatusOr<Grouping> Find(std::int64_t budget_bytes, int threads, std::int64_t stop_after = -1) {
    budget_.emplace("cpu", budget_bytes);
    tbb::task_arena arena(threads);
    std::atomic<std::int64_t> asked = 0;
    const auto why_stop = [&] { return asked++ == stop_after ? absl::CancelledError("enough") : absl::OkStatus(); };
    const auto kept = [](std::int64_t row) { return row % 3 != 0; };
    const absl::FunctionRef<bool(std::int64_t)> some = kept;
    absl::StatusOr<Grouping> grouping =
        GroupByKeys({{.dtype = dtype_, .count = std::ssize(keys_)}}, reinterpret_cast<const std::byte*>(keys_.data()),
                    &some, {*budget_, arena, why_stop});
    asked_ = asked;
    return grouping;
  }
  void ExpectRight(const Grouping& grouping) const {
    ASSERT_EQ(grouping.groups, std::ssize(groups_));
    ASSERT_TRUE(groups_.empty() || std::memcmp(grouping.keys, groups_.data(), groups_.size() * sizeof(Key)) == 0);
    for (std::size_t row = 0; row < keys_.size(); ++row) {
      const std::uint32_t id = grouping.ids[row];
      const bool right = row % 3 == 0 ? id == kNoGroup : id < groups_.size() && groups_[id] == keys_[row];
      ASSERT_TRUE(right) << "row " << row << " is in group " << id;
    }
  }
  std::int64_t held() const { return budget_->taken(); }
  std::int64_t asked() const { return asked_; }  // whether to stop

 private:
  const DType dtype_;
  const std::vector<Key> keys_;
  std::vector<Key> groups_;
  std::optional<ArrayBudget> budget_;
  std::int64_t asked_ = 0;
};

// So many distinct keys from all over a dtype, some of them several times.
template <class Key>
std::vector<Key> Spread(std::size_t rows, std::uint64_t distinct) {
  std::mt19937_64 random(3);
  std::vector<Key> keys = {std::numeric_limits<Key>::min(), std::numeric_limits<Key>::max(), 0};
  while (keys.size() < rows) keys.push_back(static_cast<Key>((random() % distinct) * 0x9e3779b97f4a7c15U));
  return keys;
}

template <class Key>
void ExpectFound(DType dtype, const std::vector<Key>& keys) {
  FoundKeys<Key> found(dtype, keys);
  for (const int threads : {1, 3}) {
    const absl::StatusOr<Grouping> grouping = found.Find(std::int64_t{1} << 30, threads);
    ASSERT_TRUE(grouping.ok()) << grouping.status();
    found.ExpectRight(*grouping);
  }
  EXPECT_EQ(found.held(), 0);
}

TEST(Grouping, FindsFewKeysThatAreFarApart) {
  ExpectFound(DType::kI64, Spread<std::int64_t>(1000, 20));
  ExpectFound(DType::kU64, Spread<std::uint64_t>(100'000, 5000));
  ExpectFound(DType::kI32, Spread<std::int32_t>(100'000, 5000));
}

TEST(Grouping, FindsManyKeysThatAreFarApart) {
  ExpectFound(DType::kI64, Spread<std::int64_t>(500'000, std::uint64_t{1} << 60));
  ExpectFound(DType::kU64, Spread<std::uint64_t>(300'000, 90'000));
  ExpectFound(DType::kU64, Spread<std::uint64_t>(1'000'000, 400'000));
  ExpectFound(DType::kU32, Spread<std::uint32_t>(500'000, std::uint64_t{1} << 30));
  ExpectFound(DType::kI32, Spread<std::int32_t>(300'000, 80'000));
}

TEST(Grouping, FindsKeysThatAreNextToEachOther) {
  ExpectFound(DType::kI64, Spread<std::int64_t>(0, 1));
  std::vector<std::int16_t> keys;
  for (int i = 0; i < 200'000; ++i) keys.push_back(static_cast<std::int16_t>(i * 7));
  ExpectFound(DType::kI16, keys);
  std::vector<std::int64_t> wide;
  for (std::int64_t i = 0; i < 200'000; ++i) wide.push_back(i * i % 150'000 - (std::int64_t{1} << 40));
  ExpectFound(DType::kI64, wide);
}

TEST(Grouping, ManyKeysTakeMemoryOfTheBudgetAndGiveItBack) {
  constexpr std::int64_t kRows = 500'000;
  FoundKeys<std::int64_t> found(DType::kI64, Spread<std::int64_t>(kRows, std::uint64_t{1} << 60));
  // Of each row its group, twice its key and number, and of each group its key.
  EXPECT_TRUE(found.Find(kRows * (4 + 24 + 8) + (1 << 20), 1).ok());
  EXPECT_EQ(found.held(), 0);
  for (const std::int64_t bytes : {kRows * 2, kRows * 20, kRows * 27}) {
    EXPECT_EQ(found.Find(bytes, 1).status().code(), absl::StatusCode::kResourceExhausted) << bytes;
    EXPECT_EQ(found.held(), 0);
  }
}

// Each time a little later.
TEST(Grouping, StopsWheneverItIsToStop) {
  static const std::int64_t kRows = 500'000, kSteps = test::kSlowBuild ? 1 : 8;
  FoundKeys<std::int64_t> found(DType::kI64, Spread<std::int64_t>(kRows, std::uint64_t{1} << 60));
  ASSERT_TRUE(found.Find(std::int64_t{1} << 30, 1).ok());
  const std::int64_t looks = found.asked();
  EXPECT_GE(looks, kRows >> 16 << 4);  // all passes over the rows look, every 2^16 rows
  for (std::int64_t after = 0; after < looks; after += 1 + after / kSteps) {
    EXPECT_EQ(found.Find(std::int64_t{1} << 30, 1, after).status(), absl::CancelledError("enough"));
    EXPECT_EQ(found.held(), 0);
  }
}

}  // namespace
}  // namespace reduced
