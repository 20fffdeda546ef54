// The client's side of a ring's memory: which parts of an arena are in use.
#include "client/lib/ring_memory.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>

#include "gtest/gtest.h"

namespace reduced::client {
namespace {

TEST(ArenaPartsTest, TakesTheLowestAndJoinsWhatIsGivenBack) {
  ArenaParts arena(1024);
  EXPECT_EQ(arena.Take(100), 0);
  EXPECT_EQ(arena.Take(1), 128) << "aligned";
  EXPECT_EQ(arena.Take(832), 192);
  EXPECT_EQ(arena.Take(1), std::nullopt);
  EXPECT_EQ(arena.Take(0), 0) << "nothing has always room";
  arena.Give(0, 0);
  arena.Give(0, 100);
  EXPECT_EQ(arena.Take(129), std::nullopt);
  arena.Give(192, 832);
  EXPECT_EQ(arena.Take(200), 192);
  arena.Give(128, 1);
  EXPECT_EQ(arena.Take(192), 0) << "both neighbours are one part";
  arena.Give(192, 200);
  arena.Give(0, 192);
  EXPECT_EQ(arena.Take(1024), 0);
  EXPECT_EQ(arena.Take(1025), std::nullopt);
}

TEST(ArenaPartsTest, PartsNeverOverlap) {
  constexpr std::uint64_t kBytes = 1 << 16;
  ArenaParts arena(kBytes);
  std::map<std::uint64_t, std::uint64_t> taken;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const std::uint64_t bytes = 1 + random() % 5000;
      const auto offset = arena.Take(bytes);
      if (!offset.has_value()) continue;
      ASSERT_EQ(*offset % ArenaParts::kAlignment, 0);
      ASSERT_LE(*offset + bytes, kBytes);
      const auto next = taken.lower_bound(*offset);
      if (next != taken.end()) {
        ASSERT_LE(*offset + bytes, next->first);
      }
      if (next != taken.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *offset);
      }
      taken.emplace(*offset, bytes);
    } else if (!taken.empty()) {
      const auto which = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      arena.Give(which->first, which->second);
      taken.erase(which);
    }
  }
  for (const auto& [offset, bytes] : taken) arena.Give(offset, bytes);
  EXPECT_EQ(arena.Take(kBytes), 0);
}

}  // namespace
}  // namespace reduced::client
