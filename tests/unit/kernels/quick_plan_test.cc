// How outputs along axes are given to the threads of a GPU: whatever the shape, no element is left out and no memory is
// overrun.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gtest/gtest.h"
#include "kernels/cuda/quick_slices.h"

namespace reduced {
namespace {

constexpr int kMultiprocessors = 132;
constexpr std::int64_t kChunk = 16;  // bytes of a copy

// Rows that lie end to end.
SliceArray RowsOf(const void* data, std::int64_t outputs, std::int64_t elements) {
  SliceArray array{.data = data, .outputs = outputs, .elements = elements, .kept = {}, .reduced = {}};
  array.kept.count = array.reduced.count = 1;
  array.kept.size[0] = outputs;
  array.kept.stride[0] = elements;
  array.reduced.size[0] = elements;
  array.reduced.stride[0] = 1;
  return array;
}

TEST(QuickPlanTest, TilesOfShortRowsAreWholeAndFit) {
  alignas(16) constexpr std::byte kData[2 * kChunk] = {};
  int staged = 0;
  for (const int bytes : {1, 2, 4, 8}) {
    for (std::int64_t elements = 2; elements <= 5200; ++elements) {
      for (const std::int64_t outputs : {2, 300, 100'000'000}) {
        const std::optional<QuickPlan> plan =
            PlanQuickSlices(RowsOf(kData, outputs, elements), bytes, kMultiprocessors, 1 << 20);
        ASSERT_TRUE(plan.has_value());
        if (plan->tile_rows == 0) continue;
        SCOPED_TRACE(testing::Message() << outputs << " rows of " << elements << " times " << bytes << " bytes");
        ++staged;
        const std::int64_t run_bytes = elements * bytes, pitch = run_bytes + plan->padding * kChunk;
        EXPECT_EQ(plan->run, elements);
        EXPECT_EQ(plan->folds(), 1);
        EXPECT_EQ(plan->tile_rows * plan->lanes % 32, 0);
        EXPECT_EQ(plan->tile_bytes % kChunk, 0);
        EXPECT_LE(plan->tile_bytes, kStagedRowBytes);
        if (run_bytes % kChunk == 0) {
          EXPECT_EQ(plan->vector_elements * bytes, kChunk);
          EXPECT_EQ(pitch % kChunk, 0);
          EXPECT_LE(plan->tile_rows * pitch, plan->tile_bytes);
        } else {  // tiles begin anywhere, and loads of 4 bytes end up to 7 bytes after them
          EXPECT_EQ(plan->vector_elements * bytes, std::max(bytes, 4));
          EXPECT_EQ(plan->padding, 0);
          EXPECT_LE(kChunk - 1 + plan->tile_rows * run_bytes + 7, plan->tile_bytes);
        }
        if (plan->padding == 0) continue;
        // Each copy goes to its row.
        for (std::int64_t chunk = 0; chunk < plan->tile_rows * run_bytes / kChunk; ++chunk) {
          ASSERT_EQ(chunk * plan->row_reciprocal >> 32, chunk / (run_bytes / kChunk));
        }
      }
    }
  }
  EXPECT_GT(staged, 20000);
}

TEST(QuickPlanTest, RowsThatAreNotEndToEndAreNotStaged) {
  alignas(16) constexpr std::byte kData[2 * kChunk] = {};
  SliceArray apart = RowsOf(kData, 300, 31);
  apart.kept.stride[0] = 62;
  EXPECT_EQ(PlanQuickSlices(apart, 4, kMultiprocessors, 1 << 20)->tile_rows, 0);
  EXPECT_EQ(PlanQuickSlices(RowsOf(kData + 4, 300, 31), 4, kMultiprocessors, 1 << 20)->tile_rows, 0);
  EXPECT_GT(PlanQuickSlices(RowsOf(kData, 300, 31), 4, kMultiprocessors, 1 << 20)->tile_rows, 0);
}

// Columns that are cut into parts take the device a whole number of times, at most three.
TEST(QuickPlanTest, PartsOfColumnsFillTheDeviceEvenly) {
  alignas(16) constexpr std::byte kData[kChunk] = {};
  for (const std::int64_t width : {2, 16, 31, 64, 100, 128, 1000, 1024, 4096}) {
    SliceArray array{
        .data = kData, .outputs = width, .elements = (std::int64_t{1} << 28) / width, .kept = {}, .reduced = {}};
    array.kept.count = array.reduced.count = 1;
    array.kept.size[0] = width;
    array.kept.stride[0] = 1;
    array.reduced.size[0] = array.elements;
    array.reduced.stride[0] = width;
    const std::optional<QuickPlan> plan = PlanQuickSlices(array, 4, kMultiprocessors, 1 << 20);
    ASSERT_TRUE(plan.has_value());
    ASSERT_TRUE(plan->columns);
    const std::int64_t column_warps = (width * plan->fold / plan->vector_elements + 31) / 32;
    const std::int64_t warps = column_warps * plan->row_warps * plan->parts;
    EXPECT_LE(warps, 48 * kMultiprocessors) << width;
    EXPECT_GE(warps, 36 * kMultiprocessors) << width;
  }
}

}  // namespace
}  // namespace reduced
