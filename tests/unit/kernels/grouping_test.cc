// The groups of keys that are given, where no array of a test is large enough to have them.
#include "kernels/cpu/grouping.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/array_budget.h"

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

}  // namespace
}  // namespace reduced
