#include "kernels/engine/staging.h"

#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace reduced {
namespace {

TEST(StagingBuffer, OfOrdinaryMemory) {
  EXPECT_EQ(StagingBuffer().data(), nullptr);
  EXPECT_FALSE(StagingBuffer().pinned());
  StagingBuffer buffer(100);
  ASSERT_NE(buffer.data(), nullptr);
  std::memset(buffer.data(), 1, 100);
  EXPECT_EQ(buffer.array().data, buffer.data());
  EXPECT_EQ(buffer.array().space, MemorySpace::kHost);
}

TEST(StagingPool, LendsItsPiecesAndThenOrdinaryMemory) {
  std::vector<std::byte> slab(3 * 64);
  StagingPool pool(slab.data(), 64, 3);
  std::vector<StagingBuffer> pieces;
  for (int i = 0; i < 3; ++i) {
    pieces.push_back(pool.Take(64));
    EXPECT_EQ(pieces.back().data(), slab.data() + i * 64);
    EXPECT_EQ(pieces.back().array().space, MemorySpace::kPinnedHost);
  }
  EXPECT_FALSE(pool.Take(1).pinned());
  StagingBuffer moved = std::move(pieces[1]);
  EXPECT_FALSE(pool.Take(1).pinned());
  moved = {};
  const StagingBuffer again = pool.Take(1);
  EXPECT_EQ(again.data(), slab.data() + 64);
}

TEST(StagingPool, LargerBuffersAreOrdinaryMemory) {
  std::vector<std::byte> slab(64);
  StagingPool pool(slab.data(), 64, 1);
  const StagingBuffer larger = pool.Take(65);
  EXPECT_FALSE(larger.pinned());
  std::memset(larger.data(), 1, 65);
  EXPECT_TRUE(pool.Take(64).pinned());
}

TEST(StagingPool, WithoutASlabLendsOrdinaryMemory) {
  StagingPool pool(nullptr, 64, 0);
  EXPECT_FALSE(pool.Take(64).pinned());
}

TEST(StagingPool, ThreadsNeverShareAPiece) {
  std::vector<std::byte> slab(4 * 64);
  StagingPool pool(slab.data(), 64, 4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 1000; ++i) {
        const StagingBuffer buffer = pool.Take(64);
        std::memset(buffer.data(), t, 64);
        for (int at = 0; at < 64; ++at) ASSERT_EQ(buffer.data()[at], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reduced
