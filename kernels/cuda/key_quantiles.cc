// Quantiles by key from brackets (key_quantiles.h): when they are used, and how they are filled.
#include "kernels/cuda/key_quantiles.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/find_groups.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/folds/quantile_answers.h"

namespace reduced {
namespace {

// With fewer rows, or fewer of a group in the sample, sorting them takes no longer.
constexpr std::int64_t kLeastRows = std::int64_t{1} << 22;
constexpr std::int64_t kLeastSamplesOfGroup = 1 << 10;
// There is room to collect one row of so many.
constexpr std::int64_t kRowsOfCollected = 3;

// The quantiles of all ops, ascending.
std::vector<double> DifferentQuantiles(const ReduceSpec& spec) {
  std::vector<double> all;
  for (const OpCall& call : spec.ops) {
    const std::vector<double> some = QuantilesOf(call);
    all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

bool CudaLane::GroupReduction::HasBrackets() const {
  if (!is_quantiles_ || columns_ != 1 || grouping_.groups == 0 || partition_.rows < kLeastRows ||
      partition_.rows >= KeyTablesLaunch::kEndOfRows) {
    return false;
  }
  const std::int64_t of_group = partition_.rows / KeyBracketsLaunch::kRowsOfSample / grouping_.groups;
  const auto quantiles = std::ssize(DifferentQuantiles(job_.spec));
  const KeyBrackets brackets{.groups = grouping_.groups, .quantiles = static_cast<int>(quantiles)};
  return of_group >= kLeastSamplesOfGroup && quantiles <= KeyBrackets::kMostQuantiles &&
         SharedBytesOf(brackets, width_) <= lane_.shared_bytes_;
}

absl::Status CudaLane::GroupReduction::FillBrackets(DType dtype, const void* keys, bool drop) {
  const StageRange range("fill brackets");
  const std::vector<double> quantiles = DifferentQuantiles(job_.spec);
  const absl::StatusOr<const std::byte*> listed =
      Hold({.data = quantiles.data()}, std::ssize(quantiles), sizeof(double));
  if (!listed.ok()) return listed.status();
  KeyBracketsLaunch launch{.rows = KeyedRows(dtype, keys, drop),
                           .omit_nan = job_.spec.nan_policy == NanPolicy::kOmit,
                           .quantiles = reinterpret_cast<const double*>(*listed)};
  launch.rows.elements.dtype = job_.spec.dtype;
  launch.rows.table.groups = grouping_.groups;
  KeyBrackets& brackets = launch.brackets;
  brackets.groups = grouping_.groups;
  brackets.quantiles = static_cast<int>(quantiles.size());
  launch.room = static_cast<std::uint32_t>(partition_.rows / kRowsOfCollected);
  SortByGroupLaunch sort{.rows = launch.samples(),
                         .groups = grouping_.groups,
                         .value_bytes = static_cast<int>(width_),
                         .stream = lane_.kernel_stream_};
  REDUCED_RETURN_IF_CUDA_ERROR(SortByGroupScratch(sort, &sort.scratch_bytes));
  constexpr std::int64_t kId = sizeof(std::uint32_t), kBound = sizeof(std::int64_t);
  const std::int64_t samples = launch.samples(), groups = brackets.groups, intervals = groups * brackets.intervals();
  const std::int64_t count_bytes = groups * brackets.slots() * kId;
  const std::int64_t spare_taken = spare_taken_;
  std::vector<std::unique_ptr<ArrayMemory>> held;    // of the brackets
  std::vector<std::unique_ptr<ArrayMemory>> memory;  // until the elements are collected
  std::byte *ends, *masks, *counts, *collected, *first, *unordered, *of_unordered, *placed;
  std::byte *ids, *values, *sorted_ids, *sorted, *scratch, *bounds;
  const absl::Status allocated = Allocate({{groups * brackets.ends_of_each() * width_, &held, &ends},
                                           {groups, &held, &masks},
                                           {count_bytes, &held, &counts},
                                           {launch.room * width_, &held, &collected},
                                           {intervals * kId, &held, &first},
                                           {launch.room * width_, &memory, &unordered},
                                           {launch.room * kId, &memory, &of_unordered},
                                           {samples * kId, &memory, &ids},
                                           {samples * width_, &memory, &values},
                                           {samples * kId, &memory, &sorted_ids},
                                           {samples * width_, &memory, &sorted},
                                           {static_cast<std::int64_t>(sort.scratch_bytes), &memory, &scratch},
                                           {(groups + 1) * kBound, &memory, &bounds},
                                           {intervals * kId, &memory, &placed}});
  if (absl::IsResourceExhausted(allocated)) {
    lacks_room_ = false;  // sorting the rows in pieces takes less
    spare_taken_ = spare_taken;
    return absl::OkStatus();
  }
  if (!allocated.ok()) return allocated;
  brackets.ends = ends;
  brackets.collected = reinterpret_cast<std::uint8_t*>(masks);
  brackets.counts = reinterpret_cast<std::uint32_t*>(counts);
  brackets.keys = collected;
  brackets.first = reinterpret_cast<std::uint32_t*>(first);
  launch.keys = unordered;
  launch.intervals = reinterpret_cast<std::uint32_t*>(of_unordered);
  launch.placed = reinterpret_cast<std::uint32_t*>(placed);
  sort.ids = launch.sample_ids = reinterpret_cast<std::uint32_t*>(ids);
  sort.values = launch.sample_keys = values;
  sort.sorted_ids = reinterpret_cast<std::uint32_t*>(sorted_ids);
  launch.sorted_sample = sort.sorted_values = sorted;
  sort.scratch = scratch;
  const FindBoundsLaunch find{.sorted_ids = sort.sorted_ids,
                              .rows = samples,
                              .groups = groups,
                              .bounds = reinterpret_cast<std::int64_t*>(bounds),
                              .stream = sort.stream};
  launch.sample_bounds = find.bounds;
  const auto launches = [&] {
    cudaError_t error = cudaMemsetAsync(counts, 0, static_cast<std::size_t>(count_bytes), sort.stream);
    if (error == cudaSuccess) {
      error = cudaMemsetAsync(placed, 0, static_cast<std::size_t>(intervals * kId), sort.stream);
    }
    if (error == cudaSuccess) error = LaunchSampleKeys(launch);
    if (error == cudaSuccess) error = LaunchSortByGroup(sort);
    if (error == cudaSuccess) error = LaunchFindBounds(find);
    return error == cudaSuccess ? LaunchKeyBrackets(launch) : error;
  };
  absl::Status status = Launch(launches, sizeof(KeyTablesHeader));
  if (status.ok()) {
    KeyTablesHeader header;
    std::memcpy(&header, state_slot().pinned, sizeof(header));
    const bool has_room = header.listed <= launch.room;
    if (has_room && header.bad != 0) {
      status = BadKeyIn(keys, partition_.rows - static_cast<std::int64_t>(header.bad));
    }
    if (has_room && status.ok() && header.unsure == 0) {
      brackets_ = brackets;
      std::move(held.begin(), held.end(), std::back_inserter(device_memory_));
    } else {
      spare_taken_ = spare_taken;  // the rows are sorted: that takes the memory of the brackets
    }
  }
  if (!status.ok()) lane_.Abandon();  // memory goes that the launch may use
  return status;
}

}  // namespace reduced
