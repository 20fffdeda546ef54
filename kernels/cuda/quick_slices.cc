#include "kernels/cuda/quick_slices.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace reduced {
namespace {

constexpr std::int64_t kWarp = 32;

std::int64_t DivideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
int PowerOfTwoFrom(std::int64_t n, std::int64_t most) {
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(n, 1, most))));
}

// Whether the first elements of all rows of the inner dimension are at a multiple of so many elements.
bool StartsAreMultiples(const SliceArray& array, int element_bytes, std::int64_t elements) {
  if (reinterpret_cast<std::uintptr_t>(array.data) % static_cast<std::uintptr_t>(elements * element_bytes) != 0) {
    return false;
  }
  for (const SliceDimensions* dimensions : {&array.kept, &array.reduced}) {
    for (int i = 0; i < dimensions->count; ++i) {
      if (dimensions->stride[i] != 1 && dimensions->stride[i] % elements != 0) return false;
    }
  }
  return true;
}

// Of short rows end to end, in tiles of whole rows. False: they are not short, or not end to end.
bool PlanStagedRows(const SliceArray& array, int element_bytes, int multiprocessors, QuickPlan* plan) {
  constexpr std::int64_t kChunk = 16, kPack = 4;  // bytes of a copy, and of a load where rows are no multiple of that
  constexpr std::int64_t kLaneChunks = 8, kLaneLoads = 40;  // of a row, that a lane has at most if there are others
  const std::int64_t run_bytes = plan->run * element_bytes;
  const bool end_to_end = plan->run == array.elements && array.kept.count == 1 && array.kept.stride[0] == plan->run;
  const bool chunks = run_bytes % kChunk == 0;
  // Room for what lies before a tile in its first chunk, and for what is read after its last elements.
  const std::int64_t around = chunks ? 0 : kChunk - 1 + 2 * kPack - 1;
  // Rows of small elements as long as fit: elsewhere they would be read element by element.
  const std::int64_t most_run_bytes = chunks || element_bytes >= kPack ? 1024 : kStagedRowBytes - around;
  if (!end_to_end || run_bytes > most_run_bytes || reinterpret_cast<std::uintptr_t>(array.data) % kChunk != 0) {
    return false;
  }
  plan->vector_elements = static_cast<int>(std::max<std::int64_t>((chunks ? kChunk : kPack) / element_bytes, 1));
  const std::int64_t loads = DivideUp(plan->run, plan->vector_elements);
  std::int64_t lanes = PowerOfTwoFrom(DivideUp(loads, chunks ? kLaneChunks : kLaneLoads), kWarp);
  for (; lanes <= kWarp; lanes *= 2) {
    // Rows that lanes read at once begin `lanes` chunks apart, by the banks of shared memory.
    plan->padding = static_cast<int>(chunks && lanes < 8 ? (3 * lanes - loads % (2 * lanes)) % (2 * lanes) : 0);
    const std::int64_t pitch = run_bytes + plan->padding * kChunk;
    const std::int64_t unit = kWarp / lanes;  // rows
    if (unit * pitch + around > kStagedRowBytes) continue;
    constexpr std::int64_t kWarps = 16;  // of each multiprocessor, that there should be
    const std::int64_t units = std::clamp<std::int64_t>(DivideUp(array.outputs, kWarps * multiprocessors * unit), 1,
                                                        (kStagedRowBytes - around) / (unit * pitch));
    plan->tile_rows = static_cast<int>(units * unit);
    plan->tile_bytes = static_cast<int>(DivideUp(units * unit * pitch + around, kChunk) * kChunk);
    plan->lanes = static_cast<int>(lanes);
    if (plan->padding > 0) {
      plan->row_reciprocal = static_cast<std::uint32_t>(((std::int64_t{1} << 32) - 1) / loads + 1);
    }
    return true;
  }
  plan->padding = 0;
  return false;
}

// Of rows: warps times lanes enough to fill the device, each of which has a few tiles.
void PlanRows(const SliceArray& array, int element_bytes, int multiprocessors, std::int64_t most_folds,
              QuickPlan* plan) {
  constexpr std::int64_t kVectorsAtOnce = 4, kElementsAtOnce = 8;  // of a lane
  const SliceDimensions& reduced = array.reduced;
  plan->run = reduced.count > 0 && reduced.stride[reduced.count - 1] == 1 ? reduced.size[reduced.count - 1] : 1;
  if (PlanStagedRows(array, element_bytes, multiprocessors, plan)) return;
  const std::int64_t vector = 16 / element_bytes;
  const bool vectors = plan->run % vector == 0 && StartsAreMultiples(array, element_bytes, vector);
  plan->vector_elements = vectors ? static_cast<int>(vector) : 1;
  const std::int64_t loads = plan->run / plan->vector_elements;
  const std::int64_t at_once = vectors ? kVectorsAtOnce : kElementsAtOnce;
  plan->lanes = PowerOfTwoFrom(DivideUp(loads, at_once), kWarp);
  const std::int64_t tiles = array.elements / plan->run * DivideUp(loads, at_once * plan->lanes);
  const std::int64_t warps = DivideUp(array.outputs * plan->lanes, kWarp);
  constexpr std::int64_t kWarps = 48;      // of each multiprocessor, that there should be
  constexpr std::int64_t kLeastTiles = 4;  // of a part
  plan->parts = std::clamp<std::int64_t>(
      std::min({DivideUp(kWarps * multiprocessors, warps), tiles / kLeastTiles, most_folds / array.outputs}), 1, 65535);
  // Not so many that warps of the device have none.
  const std::int64_t rounds = warps * plan->parts / (2 * kWarps * multiprocessors);
  plan->together = static_cast<int>(std::bit_floor(
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(rounds, 1, std::min<std::int64_t>(plan->lanes, 4)))));
}

void PlanColumns(const SliceArray& array, int element_bytes, int multiprocessors, std::int64_t most_folds,
                 QuickPlan* plan) {
  const std::int64_t rows_at_once = QuickRowsAtOnce(element_bytes);  // of a thread
  const SliceDimensions& reduced = array.reduced;
  const std::int64_t rows = array.elements;
  plan->columns = true;
  plan->width = array.kept.size[array.kept.count - 1];
  const std::int64_t vector = std::min<std::int64_t>(16 / element_bytes, kMostColumnsAtOnce);
  const std::int64_t outer = array.outputs / plan->width;
  const bool dense = reduced.count == 1 && reduced.stride[0] == plan->width;
  std::int64_t elements = 1;
  if (dense) {
    // The rows themselves may start anywhere; what they are taken as may not.
    SliceArray folded = array;
    folded.reduced.count = 0;
    const bool multiples = StartsAreMultiples(folded, element_bytes, vector);
    const std::int64_t least = multiples ? vector / std::gcd(plan->width, vector) : 1;
    constexpr std::int64_t kThreads = 1024;  // that columns should be for
    const std::int64_t wanted = DivideUp(kThreads * (multiples ? vector : 1), outer * plan->width * least);
    const std::int64_t most = std::min(rows / rows_at_once, most_folds / array.outputs);
    if (least <= most) {
      plan->fold = least * std::clamp<std::int64_t>(wanted, 1, most / least);
      elements = multiples ? vector : 1;
    }
  }
  if (plan->fold == 1) {
    const bool multiples = plan->width % vector == 0 && StartsAreMultiples(array, element_bytes, vector);
    elements = multiples ? vector : 1;
  }
  plan->vector_elements = static_cast<int>(elements);
  const std::int64_t folded_rows = DivideUp(rows, plan->fold);
  const std::int64_t warps = DivideUp(outer * (plan->width * plan->fold / elements), kWarp);
  // Of each multiprocessor, that there should be at most if columns are cut: so many that all have a turn three times.
  constexpr std::int64_t kWarps = 48;
  const std::int64_t wanted = std::max<std::int64_t>(kWarps * multiprocessors / warps, 1);
  plan->row_warps = static_cast<int>(std::bit_floor(
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(std::min(wanted, folded_rows / rows_at_once), 1, 8))));
  plan->parts =
      std::clamp<std::int64_t>(std::min({wanted / plan->row_warps, folded_rows / (rows_at_once * plan->row_warps),
                                         most_folds / (array.outputs * plan->fold)}),
                               1, 65535);
  // Blocks whose warps all have the same columns, more of them than the array has.
  const std::int64_t block_columns = kWarp * elements;
  if (plan->fold > 1 && outer == 1 && plan->row_warps == 8 && plan->width <= block_columns / 2) {
    plan->block_folds = plan->parts * DivideUp(plan->width * plan->fold, block_columns);
  }
}

}  // namespace

cudaError_t LaunchQuick(const QuickLaunch& launch) {
  switch (launch.kind) {
    case QuickKind::kSums:
    case QuickKind::kMagnitudes:
      return LaunchQuickSums(launch);
    case QuickKind::kMoments:
      return LaunchQuickMoments(launch);
    case QuickKind::kExtrema:
      return LaunchQuickExtrema(launch);
    case QuickKind::kCounts:
      return LaunchQuickCounts(launch);
    case QuickKind::kBits:
      return LaunchQuickBits(launch);
    case QuickKind::kProducts:
      return LaunchQuickProducts(launch);
  }
  __builtin_unreachable();
}

std::optional<QuickPlan> PlanQuickSlices(const SliceArray& array, int element_bytes, int multiprocessors,
                                         std::int64_t most_folds) {
  if (array.elements >= std::int64_t{1} << 31) return std::nullopt;
  QuickPlan plan;
  if (array.kept.count > 0 && array.kept.stride[array.kept.count - 1] == 1) {
    PlanColumns(array, element_bytes, multiprocessors, most_folds, &plan);
  } else {
    PlanRows(array, element_bytes, multiprocessors, most_folds, &plan);
  }
  return plan;
}

}  // namespace reduced
