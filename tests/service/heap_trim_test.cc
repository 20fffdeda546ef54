// Memory that was in use at a peak returns to the system.
#include "server/heap_trim.h"

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

// Frees 256 MiB that lie between blocks in use. free() returns memory to the system only at the end of the heap.
std::vector<std::unique_ptr<char[]>> Peak() {
  constexpr std::size_t kBlock = 64 << 10;
  std::vector<std::unique_ptr<char[]>> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(std::make_unique<char[]>(kBlock));  // zeroed, so that it is resident
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 32 != 31) blocks[i].reset();
  }
  return blocks;
}

TEST(HeapTrimTest, ReturnsMemoryWhenIdle) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers replace malloc";
#endif
  const absl::Time start = absl::Now();
  HeapTrim trim;
  trim.Trim(start, true);  // what other tests left
  const std::int64_t before = FreeHeapBytes();
  const auto blocks = Peak();
  ASSERT_GT(FreeHeapBytes(), before + (std::int64_t{200} << 20));
  EXPECT_FALSE(trim.Trim(start + absl::Seconds(20), /*idle=*/false));
  EXPECT_FALSE(trim.Trim(start + absl::Seconds(9), true));  // too soon
  EXPECT_TRUE(trim.Trim(start + absl::Seconds(20), true));
  EXPECT_LT(FreeHeapBytes(), before + (std::int64_t{48} << 20));
  EXPECT_FALSE(trim.Trim(start + absl::Seconds(40), true));  // nothing has come free since
  const auto again = Peak();
  EXPECT_FALSE(trim.Trim(start + absl::Seconds(45), true));
  EXPECT_TRUE(trim.Trim(start + absl::Seconds(50), true));
}

}  // namespace
}  // namespace reduced::server
