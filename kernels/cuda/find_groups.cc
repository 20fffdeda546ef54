// How CudaLane::ReduceGroups finds groups: offsets and given keys are checked on the device, where other keys are
// looked up and rows are sorted by key. Lengths go through the CPU engine's routines on the host.
#include "kernels/cuda/find_groups.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/grouping.h"
#include "kernels/cpu/side_arrays.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {

absl::Status CudaLane::GroupReduction::FindGroups() {
  const StageRange range("find groups");
  if (partition_.segments.has_value() && !partition_.segments->lengths) return CheckOffsets();
  if (!keyed_ || partition_.rows == 0) return FindGroupsOnHost();
  const Keys& keys = *partition_.keys;
  if (keys.groups == 0) {
    const absl::Status status = FindKeys();
    if (status.ok() && HasBrackets()) return FillBrackets(DType::kU32, ids_, /*drop=*/true);
    return status.ok() && HasTables() ? FillTables(DType::kU32, ids_, /*drop=*/true) : status;
  }
  const absl::StatusOr<const std::byte*> held = Hold(keys.keys.array, keys.keys.count, RowOf(keys.keys.dtype).bytes);
  if (!held.ok()) return held.status();
  grouping_.groups = keys.groups;
  if (HasBrackets()) {
    const absl::Status status = FillBrackets(keys.keys.dtype, *held, keys.drop);
    if (!status.ok() || brackets_.has_value()) return status;
  }
  if (!HasTables()) return CheckKeys(*held);
  if (HasRowsInParts() && !CanSortGivenKeys()) {
    const absl::Status status = CheckKeys(*held);
    return status.ok() ? FillTables(DType::kU32, ids_, /*drop=*/true) : status;
  }
  const absl::Status status = FillTables(keys.keys.dtype, *held, keys.drop);
  return status.ok() && tables_.empty() ? CheckKeys(*held) : status;
}

absl::Status CudaLane::GroupReduction::CheckOffsets() {
  const SideArray& side = partition_.segments->bounds;
  const absl::StatusOr<const std::byte*> offsets = Hold(side.array, side.count, RowOf(side.dtype).bytes);
  if (!offsets.ok()) return offsets.status();
  const absl::StatusOr<std::byte*> bounds =
      Allocate(side.count * static_cast<std::int64_t>(sizeof(std::int64_t)), &device_memory_);
  if (!bounds.ok()) return bounds.status();
  auto* const to = reinterpret_cast<std::int64_t*>(*bounds);
  const CheckOffsetsLaunch launch{.dtype = side.dtype,
                                  .offsets = *offsets,
                                  .count = side.count,
                                  .rows = partition_.rows,
                                  .bounds = to,
                                  .checks = reinterpret_cast<GroupChecks*>(state_slot().device),
                                  .stream = lane_.kernel_stream_};
  absl::Status status = Launch([&] { return LaunchCheckOffsets(launch); }, sizeof(GroupChecks));
  if (!status.ok()) return status;
  GroupChecks checks;
  std::memcpy(&checks, state_slot().pinned, sizeof(checks));
  if (checks.bad != kNoneBad) {
    std::int64_t offset = 0, before = 0;
    status =
        Fetch(reinterpret_cast<std::byte*>(to + checks.bad), sizeof(offset), reinterpret_cast<std::byte*>(&offset));
    if (status.ok() && checks.bad > 0) {
      status = Fetch(reinterpret_cast<std::byte*>(to + checks.bad - 1), sizeof(before),
                     reinterpret_cast<std::byte*>(&before));
    }
    return status.ok() ? BadOffset(checks.bad, offset, before, partition_.rows) : status;
  }
  bounds_ = to;
  grouping_.groups = side.count - 1;
  grouped_positions_ = checks.last - checks.first;
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::CheckKeys(const std::byte* keys) {
  const absl::StatusOr<std::byte*> ids =
      Allocate(partition_.rows * static_cast<std::int64_t>(sizeof(std::uint32_t)), &device_memory_);
  if (!ids.ok()) return ids.status();
  const CheckKeysLaunch launch{.dtype = partition_.keys->keys.dtype,
                               .keys = keys,
                               .rows = partition_.rows,
                               .groups = partition_.keys->groups,
                               .drop = partition_.keys->drop,
                               .array = array_,
                               .ids = reinterpret_cast<std::uint32_t*>(*ids),
                               .checks = reinterpret_cast<GroupChecks*>(state_slot().device),
                               .stream = lane_.kernel_stream_};
  if (absl::Status status = Launch([&] { return LaunchCheckKeys(launch); }, sizeof(GroupChecks)); !status.ok()) {
    return status;
  }
  GroupChecks checks;
  std::memcpy(&checks, state_slot().pinned, sizeof(checks));
  if (checks.bad != kNoneBad) return BadKeyIn(keys, checks.bad);
  ids_ = launch.ids;
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::BadKeyIn(const void* keys, std::int64_t row) {
  const DType dtype = partition_.keys->keys.dtype;
  const std::int64_t width = RowOf(dtype).bytes;
  std::byte key[sizeof(std::uint64_t)];
  if (absl::Status status = Fetch(static_cast<const std::byte*>(keys) + row * width, width, key); !status.ok()) {
    return status;
  }
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) -> absl::Status {
    if constexpr (std::is_integral_v<T>) {
      T value;
      std::memcpy(&value, key, sizeof(value));
      return BadKey(within_.row + row, absl::StrCat(value), partition_.keys->groups);
    } else {
      return absl::InternalError("keys of a dtype that is no integer");
    }
  });
}

// Finds the distinct keys and the group of each row.
absl::Status CudaLane::GroupReduction::FindKeys() {
  const SideArray& side = partition_.keys->keys;
  const std::int64_t width = RowOf(side.dtype).bytes;
  const absl::StatusOr<const std::byte*> held = Hold(side.array, side.count, width);
  if (!held.ok()) return held.status();
  const KeysToFind keys{.dtype = side.dtype, .keys = *held, .rows = partition_.rows, .array = array_};
  const KeyRangeLaunch range{
      .keys = keys, .range = reinterpret_cast<KeyRange*>(state_slot().device), .stream = lane_.kernel_stream_};
  absl::Status status = Launch([&] { return LaunchKeyRange(range); }, sizeof(KeyRange));
  if (!status.ok()) return status;
  FindKeysLaunch launch{
      .keys = keys, .groups = reinterpret_cast<std::int64_t*>(state_slot().device), .stream = lane_.kernel_stream_};
  std::memcpy(&launch.range, state_slot().pinned, sizeof(launch.range));
  if (launch.range.least > launch.range.greatest) return FetchKeys(nullptr, 0);
  if (!CanFindKeys(launch)) {
    return absl::UnimplementedError(absl::StrCat("keys: got ", partition_.rows,
                                                 " keys without groups; allowed: 2147483647 where the server was built "
                                                 "with this version of CUDA, or any number with groups"));
  }

  std::vector<std::unique_ptr<ArrayMemory>> memory;  // until the launch is done
  const absl::StatusOr<std::byte*> ids =
      Allocate(partition_.rows * static_cast<std::int64_t>(sizeof(std::uint32_t)), &device_memory_);
  if (!ids.ok()) return ids.status();
  const absl::StatusOr<std::byte*> found = Allocate(launch.most_groups() * width, &memory);
  if (!found.ok()) return found.status();
  REDUCED_RETURN_IF_CUDA_ERROR(FindKeysScratch(launch, &launch.scratch_bytes));
  const absl::StatusOr<std::byte*> scratch = Allocate(static_cast<std::int64_t>(launch.scratch_bytes), &memory);
  if (!scratch.ok()) return scratch.status();
  launch.ids = reinterpret_cast<std::uint32_t*>(*ids);
  launch.found = *found;
  launch.scratch = *scratch;
  status = Launch([&] { return LaunchFindKeys(launch); }, sizeof(*launch.groups));
  std::int64_t groups = 0;
  if (status.ok()) {
    std::memcpy(&groups, state_slot().pinned, sizeof(groups));
    status = groups >= 0 && groups <= launch.most_groups()
                 ? FetchKeys(*found, groups)
                 : absl::InternalError(absl::StrCat("the device found ", groups, " keys"));
  }
  if (!status.ok()) {
    lane_.Abandon();  // memory goes that the launch may use
    return status;
  }
  ids_ = launch.ids;
  return absl::OkStatus();
}

// Copies the keys to the host, for the answer. `found`: device memory.
absl::Status CudaLane::GroupReduction::FetchKeys(const std::byte* found, std::int64_t groups) {
  const std::int64_t bytes = groups * RowOf(partition_.keys->keys.dtype).bytes;
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = AllocateCpuArray(std::max<std::int64_t>(bytes, 1), scratch_);
  if (!memory.ok()) return memory.status();
  auto* const to = static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
  host_memory_.push_back(*std::move(memory));
  grouping_.groups = groups;
  grouping_.keys = to;
  return Fetch(found, bytes, to);
}

// Finds the groups of lengths, of keys where there are no rows, and for pieces.
absl::Status CudaLane::GroupReduction::FindGroupsOnHost() {
  const absl::StatusOr<const std::byte*> side = OnHost(GroupingSide(partition_));
  if (!side.ok()) return side.status();
  MaskView mask;
  if (keyed_ && partition_.mask.has_value() && job_.spec.count > 0) {
    const absl::StatusOr<const std::byte*> bytes = OnHost(partition_.mask->array);
    if (!bytes.ok()) return bytes.status();
    mask = MaskView(*partition_.mask, *bytes);
  }
  const auto why_stop = [this] { return WhyStop(job_); };
  absl::StatusOr<Grouping> found = GroupingOf(partition_, *side, mask, {scratch_, lane_.copiers_, why_stop});
  if (!found.ok()) return found.status();
  grouping_ = *std::move(found);
  if (grouping_.bounds != nullptr) {
    grouped_positions_ = grouping_.bounds[grouping_.groups] - grouping_.bounds[0];
  }
  return absl::OkStatus();
}

bool CudaLane::GroupReduction::MovesElements() const {
  const std::vector<OpCall>& ops = job_.spec.ops;
  const auto tells_where = [](Op op) { return op == Op::kArgmin || op == Op::kArgmax; };
  const bool in_states = job_.states != nullptr && (AccumulatorsFor(job_.spec) & SetOf(Accumulator::kExtrema)) != 0;
  return columns_ == 1 && !in_states && std::none_of(ops.begin(), ops.end(), tells_where);
}

SortByGroupLaunch CudaLane::GroupReduction::SortOfElements(const std::uint32_t* ids) const {
  return {.rows = partition_.rows,
          .groups = grouping_.groups,
          .ids = ids,
          .value_bytes = static_cast<int>(width_),
          .values = array_.data,
          .stream = lane_.kernel_stream_};
}

absl::Status CudaLane::GroupReduction::SortRows() {
  const StageRange range("sort rows");
  const bool moves = MovesElements();
  SortByGroupLaunch launch = SortOfElements(ids_);
  if (!moves) launch.value_bytes = sizeof(std::uint32_t);
  REDUCED_RETURN_IF_CUDA_ERROR(SortByGroupScratch(launch, &launch.scratch_bytes));
  const std::int64_t id_bytes = partition_.rows * static_cast<std::int64_t>(sizeof(std::uint32_t));
  std::vector<std::unique_ptr<ArrayMemory>> memory;  // while they are sorted
  std::byte *sorted, *bounds, *sorted_ids, *scratch, *numbers = nullptr;
  std::vector<Room> rooms = {
      {partition_.rows * launch.value_bytes, &device_memory_, &sorted},
      {(grouping_.groups + 1) * static_cast<std::int64_t>(sizeof(std::int64_t)), &device_memory_, &bounds},
      {id_bytes, &memory, &sorted_ids},
      {static_cast<std::int64_t>(launch.scratch_bytes), &memory, &scratch}};
  if (!moves) rooms.push_back({id_bytes, &memory, &numbers});
  if (absl::Status status = Allocate(rooms); !status.ok()) return status;
  if (!moves) launch.values = numbers;
  launch.sorted_ids = reinterpret_cast<std::uint32_t*>(sorted_ids);
  launch.sorted_values = sorted;
  launch.scratch = scratch;
  const FindBoundsLaunch find{.sorted_ids = launch.sorted_ids,
                              .rows = launch.rows,
                              .groups = launch.groups,
                              .bounds = reinterpret_cast<std::int64_t*>(bounds),
                              .stream = launch.stream};
  const auto launches = [&] {
    cudaError_t error = cudaSuccess;
    if (!moves) error = LaunchNumberRows(reinterpret_cast<std::uint32_t*>(numbers), launch.rows, launch.stream);
    if (error == cudaSuccess) error = LaunchSortByGroup(launch);
    return error == cudaSuccess ? LaunchFindBounds(find) : error;
  };
  const absl::Status status = Launch(launches, 0);
  if (!status.ok()) {
    lane_.Abandon();  // memory goes that the launch may use
    return status;
  }
  if (moves) {
    array_.data = sorted;
  } else {
    array_.rows = reinterpret_cast<const std::uint32_t*>(sorted);
  }
  bounds_ = find.bounds;
  grouped_positions_ = partition_.rows;
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::FetchBounds() {
  if (!grouped_ || grouping_.bounds != nullptr) return absl::OkStatus();
  const std::int64_t bytes = (grouping_.groups + 1) * static_cast<std::int64_t>(sizeof(std::int64_t));
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = AllocateCpuArray(bytes, scratch_);
  if (!memory.ok()) return memory.status();
  auto* const to = static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
  host_memory_.push_back(*std::move(memory));
  grouping_.bounds = reinterpret_cast<const std::int64_t*>(to);  // zeros, if there are none
  return bounds_ == nullptr ? absl::OkStatus() : Fetch(reinterpret_cast<const std::byte*>(bounds_), bytes, to);
}

absl::Status CudaLane::GroupReduction::HoldBounds() {
  if (!grouped_ || bounds_ != nullptr) return absl::OkStatus();
  if (absl::Status status = FetchBounds(); !status.ok()) return status;
  const absl::StatusOr<const std::byte*> bounds =
      Hold({.data = grouping_.bounds}, grouping_.groups + 1, sizeof(std::int64_t));
  if (!bounds.ok()) return bounds.status();
  bounds_ = reinterpret_cast<const std::int64_t*>(*bounds);
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> CudaLane::GroupReduction::OnHost(const SideArray& side) {
  if (side.array.space != MemorySpace::kDevice) return SideInMemory(side, job_, scratch_, &host_memory_);
  const std::int64_t bytes = side.bytes();
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = AllocateCpuArray(bytes, scratch_);
  if (!memory.ok()) return memory.status();
  if (absl::Status status = AwaitReady(JobOf(side.array, side.count)); !status.ok()) return status;
  auto* const to = static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
  if (absl::Status status = Fetch(static_cast<const std::byte*>(side.array.data), bytes, to); !status.ok())
    return status;
  host_memory_.push_back(*std::move(memory));
  return to;
}

absl::Status CudaLane::GroupReduction::Fetch(const std::byte* from, std::int64_t bytes, std::byte* to) {
  for (std::int64_t done = 0; done < bytes; done += lane_.chunk_bytes_) {
    if (absl::Status why = WhyStop(job_); !why.ok()) return why;
    const std::int64_t size = std::min(lane_.chunk_bytes_, bytes - done);
    if (absl::Status status = CopyBack(from + done, size); !status.ok()) return status;
    const std::byte* const pinned = state_slot().pinned;
    lane_.copiers_.execute([&] {
      tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, size, 1 << 18), [&](const auto& range) {
        std::memcpy(to + done + range.begin(), pinned + range.begin(),
                    static_cast<std::size_t>(range.end() - range.begin()));
      });
    });
  }
  return absl::OkStatus();
}

}  // namespace reduced
