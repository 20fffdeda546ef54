// Plain reads of every vector target that this machine can run.
#include "kernels/cpu/read_all.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/tiles.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced {
namespace {

using test::OnlyTarget;

TEST(ReadAll, LoadsEveryByte) {
  for (const std::int64_t target : VectorTargets()) {
    const OnlyTarget only(target);
    for (int way = 0; way < kReadWays; ++way) {
      for (const std::int64_t bytes : {1, 7, 8, 511, 512, 513, 1100}) {
        for (const std::int64_t offset : {0, 1}) {
          SCOPED_TRACE(testing::Message() << target << " way " << way << ": " << bytes << " at " << offset);
          std::vector<std::byte> memory(static_cast<std::size_t>(offset + bytes));
          EXPECT_EQ(ReadAll(memory.data() + offset, bytes, way), 0U);
          for (std::int64_t i = 0; i < bytes; ++i) {
            std::byte& one = memory[static_cast<std::size_t>(offset + i)];
            one = std::byte{0x80};
            EXPECT_EQ(ReadAll(memory.data() + offset, bytes, way), std::uint64_t{0x80} << (i % 8 * 8)) << i;
            one = std::byte{0};
          }
        }
      }
    }
  }
}

TEST(ReadAll, OfNothingIsNothing) { EXPECT_EQ(ReadAll(nullptr, 0, 0), 0U); }

}  // namespace
}  // namespace reduced
