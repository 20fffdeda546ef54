// The memory of control groups, and the budget of requests.
#include "kernels/system/memory.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/memory_budget.h"

namespace reduced {
namespace {

namespace fs = std::filesystem;

// A machine's files, of which only these are there.
class FakeRoot {
 public:
  explicit FakeRoot(const std::vector<std::pair<std::string, std::string>>& files) {
    path_ = absl::StrCat(testing::TempDir(), "reduced_memory_XXXXXX");
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    for (const auto& [name, text] : files) {
      const fs::path file = path_ + name;
      fs::create_directories(file.parent_path());
      std::ofstream(file) << text << '\n';
    }
  }
  ~FakeRoot() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(FillWithZerosTest, MakesZeroBytesOfAnySize) {
  for (const std::size_t size : {0, 1, 15, 16, 4096, (2 << 20) - 1, 2 << 20, (6 << 20) + 5}) {
    std::string bytes;
    FillWithZeros(size, &bytes);
    EXPECT_TRUE(bytes == std::string(size, '\0')) << size;
  }
}

TEST(ControlGroupMemoryTest, IsTheSmallestLimitOfTheGroupAndThoseAboveIt) {
  const struct {
    const char* name;
    std::vector<std::pair<std::string, std::string>> files;
    std::optional<std::int64_t> limit;
  } cases[] = {
      {"no groups", {}, std::nullopt},
      {"version 2, no limit", {{"/proc/self/cgroup", "0::/a"}, {"/sys/fs/cgroup/a/memory.max", "max"}}, std::nullopt},
      {"version 2, the group's own",
       {{"/proc/self/cgroup", "0::/a/b"},
        {"/sys/fs/cgroup/a/b/memory.max", "1000"},
        {"/sys/fs/cgroup/a/memory.max", "5000"}},
       1000},
      {"version 2, of the one above",
       {{"/proc/self/cgroup", "0::/a/b"},
        {"/sys/fs/cgroup/a/b/memory.max", "max"},
        {"/sys/fs/cgroup/a/memory.max", "5000"}},
       5000},
      {"a container, whose group is the top one",
       {{"/proc/self/cgroup", "0::/docker/123"}, {"/sys/fs/cgroup/memory.max", "7000"}},
       7000},
      {"version 1",
       {{"/proc/self/cgroup", "8:pids:/x\n4:cpu,memory:/a\n0::/"},
        {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"}},
       3000},
  };
  for (const auto& each : cases) {
    const FakeRoot root(each.files);
    EXPECT_EQ(ControlGroupMemory(root.path()), each.limit) << each.name;
  }
}

TEST(ControlGroupMemoryTest, TheMachineHasSome) { EXPECT_GT(UsableMemory(), std::int64_t{16} << 20); }

// With AddressSanitizer: a call leaves the gate, and so lets the server end, before its members are destroyed.
TEST(MemoryBudgetTest, ALeaseOfNothingMayOutliveIt) {
  auto budget = std::make_unique<MemoryBudget>(100);
  absl::StatusOr<MemoryLease> lease = MemoryLease::Take({budget.get(), 1}, 10, "a test");
  ASSERT_TRUE(lease.ok());
  lease->Return();
  EXPECT_EQ(budget->taken(), 0);
  budget.reset();
  lease->Return();
  EXPECT_EQ(lease->bytes(), 0);
}

TEST(MemoryBudgetTest, GivesNoMoreThanItHas) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.Take(0, 60, "a test").ok());
  {
    const absl::StatusOr<MemoryLease> lease = MemoryLease::Take({&budget}, 40, "a test");
    EXPECT_TRUE(lease.ok());
    EXPECT_EQ(budget.taken(), 100);
    const absl::Status status = budget.Take(0, 1, "one more byte");
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no memory for one more byte, 1 bytes"));
  }
  EXPECT_EQ(budget.taken(), 60);
  EXPECT_FALSE(budget.Take(0, std::numeric_limits<std::int64_t>::max(), "all there is").ok());
  budget.Give(0, 60);
  EXPECT_EQ(budget.taken(), 0);
}

TEST(MemoryBudgetTest, ALeaseThatMovesIsGivenBackOnce) {
  MemoryBudget budget(100);
  {
    absl::StatusOr<MemoryLease> lease = MemoryLease::Take({&budget}, 70, "a test");
    ASSERT_TRUE(lease.ok());
    MemoryLease moved = *std::move(lease);
    MemoryLease other;
    other = std::move(moved);
    EXPECT_EQ(budget.taken(), 70);
    other = {};
    EXPECT_EQ(budget.taken(), 0);
  }
  EXPECT_EQ(budget.taken(), 0);
}

TEST(MemoryBudgetTest, ALeaseChangesItsSize) {
  MemoryBudget budget(100);
  {
    MemoryLease lease;
    EXPECT_TRUE(lease.Resize({&budget}, 30, "a test").ok());
    EXPECT_TRUE(lease.Resize({&budget}, 100, "a test").ok());
    EXPECT_TRUE(lease.Resize({&budget}, 20, "a test").ok());
    EXPECT_EQ(budget.taken(), 20);
    const absl::Status status = lease.Resize({&budget}, 101, "a test");
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no memory for a test, 81 bytes"));
    EXPECT_EQ(budget.taken(), 20);
  }
  EXPECT_EQ(budget.taken(), 0);
}

TEST(MemoryBudgetTest, ACallerIsToldItsShare) {
  MemoryBudget budget(100, 0.5);
  MemoryLease lease;
  EXPECT_TRUE(lease.Grow({&budget, 7}, 40, "a test").ok());
  const absl::Status status = lease.Grow({&budget, 7}, 11, "a test");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), ::testing::AllOf(::testing::HasSubstr("no memory for a test, 11 bytes"),
                                                              ::testing::HasSubstr("takes 40 bytes and may take 50"),
                                                              ::testing::HasSubstr("--caller_share")));
  EXPECT_FALSE(lease.Grow({&budget, 7}, std::numeric_limits<std::int64_t>::max(), "a test").ok());
  EXPECT_FALSE(budget.IsOverShare(7));
  EXPECT_TRUE(budget.Take(8, 30, "a test").ok());
  EXPECT_TRUE(budget.IsOverShare(7)) << "others have come";
  EXPECT_FALSE(budget.IsOverShare(8));
}

TEST(MemoryBudgetTest, APartOfALeaseOutlivesTheRestAndKeepsTheBudget) {
  auto budget = std::make_shared<MemoryBudget>(100);
  const std::weak_ptr<MemoryBudget> kept = budget;
  std::shared_ptr<const MemoryLease> shared;
  {
    absl::StatusOr<MemoryLease> lease = MemoryLease::Take({budget.get()}, 70, "a test");
    ASSERT_TRUE(lease.ok());
    shared = MemoryLease::Share(lease->Split(30));
    EXPECT_EQ(lease->bytes(), 40);
  }
  EXPECT_EQ(budget->taken(), 30);
  budget.reset();
  EXPECT_FALSE(kept.expired());
  shared.reset();
  EXPECT_TRUE(kept.expired());
}

TEST(MemoryBudgetTest, ArraysCountTowardsIt) {
  const auto memory = std::make_shared<MemoryBudget>(100);
  ArrayBudget arrays("cpu", 80, memory);
  ASSERT_TRUE(memory->Take(0, 50, "a test").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(arrays.Take(60)));
  EXPECT_EQ(arrays.taken(), 0);
  EXPECT_TRUE(arrays.Take(50).ok());
  arrays.Give(50);
  EXPECT_EQ(memory->taken(), 50);
}

TEST(MemoryBudgetTest, ThreadsTogetherTakeNoMoreThanItHas) {
  MemoryBudget budget(1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const absl::StatusOr<MemoryLease> lease = MemoryLease::Take({&budget}, 300, "a test");
        EXPECT_LE(budget.taken(), 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.taken(), 0);
}

}  // namespace
}  // namespace reduced
