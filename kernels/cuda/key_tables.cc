// Sums and means by key into few groups: from the sums of LaunchKeyTables, and the few elements that these leave out.
#include "kernels/cuda/key_tables.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/group_reduction.h"
#include "kernels/exact/answers.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {

bool CudaLane::GroupReduction::HasTables() const {
  const ReduceSpec& spec = job_.spec;
  // A KeySum counts elements, of which the op leaves NaNs out if they are omitted.
  const bool counts = !RowOf(spec.dtype).is_float || spec.nan_policy == NanPolicy::kPropagate;
  const bool answers_all = std::all_of(spec.ops.begin(), spec.ops.end(), [&](Op op) {
    return op == Op::kSum || op == Op::kMean || (op == Op::kCount && counts);
  });
  return answers_all && ids_ != nullptr && columns_ == 1 && HasKeyTables(spec.dtype) &&
         grouping_.groups <= KeyTablesLaunch::kMostGroups;
}

absl::Status CudaLane::GroupReduction::AnswerByTables(bool* answered) {
  const auto groups = static_cast<std::size_t>(grouping_.groups);
  const std::size_t sum_bytes = sizeof(KeyTablesHeader) + groups * sizeof(KeySum);
  const absl::StatusOr<std::byte*> memory = Allocate(
      static_cast<std::int64_t>(sum_bytes + KeyTablesLaunch::kMostListed * sizeof(ListedElement)), &device_memory_);
  if (!memory.ok()) return memory.status();
  const KeyTablesLaunch launch{.dtype = job_.spec.dtype,
                               .data = array_.data,
                               .ids = ids_,
                               .rows = groups_.rows,
                               .groups = grouping_.groups,
                               .multiprocessors = lane_.multiprocessors_,
                               .header = reinterpret_cast<KeyTablesHeader*>(*memory),
                               .sums = reinterpret_cast<KeySum*>(*memory + sizeof(KeyTablesHeader)),
                               .listed = reinterpret_cast<ListedElement*>(*memory + sum_bytes),
                               .stream = lane_.kernel_stream_};
  absl::Status status = Launch([&] { return LaunchKeyTables(launch); }, 0);
  std::vector<std::byte> fetched(sum_bytes);
  if (status.ok()) status = Fetch(*memory, static_cast<std::int64_t>(sum_bytes), fetched.data());
  if (!status.ok()) return status;
  KeyTablesHeader header;
  std::memcpy(&header, fetched.data(), sizeof(header));
  if (header.listed > KeyTablesLaunch::kMostListed) return absl::OkStatus();
  std::vector<KeySum> sums(groups);
  std::memcpy(sums.data(), fetched.data() + sizeof(header), groups * sizeof(KeySum));
  std::vector<ListedElement> listed(header.listed);
  if (!listed.empty()) {
    status = Fetch(*memory + sum_bytes, static_cast<std::int64_t>(listed.size() * sizeof(ListedElement)),
                   reinterpret_cast<std::byte*>(listed.data()));
    if (!status.ok()) return status;
  }
  const auto by_group = [](const ListedElement& a, const ListedElement& b) { return a.group < b.group; };
  std::sort(listed.begin(), listed.end(), by_group);
  const bool floats = RowOf(job_.spec.dtype).is_float;
  lane_.copiers_.execute([&] {
    tbb::parallel_for(std::size_t{0}, groups, [&](std::size_t group) {
      const KeySum& sum = sums[group];
      State state;
      state.partial.count = static_cast<std::int64_t>(sum.count);
      if (!floats) {
        state.partial.int_sum = static_cast<Int128>(sum.high) * (std::int64_t{1} << 32) + static_cast<Int128>(sum.low);
        return Store(static_cast<std::int64_t>(group), std::move(state));
      }
      state.exact = std::make_unique<ExactSums>();
      state.exact->sum.Add(static_cast<std::int64_t>(sum.low), header.unit);
      state.exact->sum.Add(sum.high, header.unit + 32);
      state.exact->not_only_negative_zeros = sum.count > 0;
      const auto [begin, end] = std::equal_range(listed.begin(), listed.end(), ListedElement{0, group}, by_group);
      for (auto element = begin; element != end; ++element) {
        Add(element->value, SetOf(Accumulator::kSum), /*elsewhere=*/false, state.exact.get());
        ++state.partial.count;
      }
      Store(static_cast<std::int64_t>(group), std::move(state));
    });
  });
  *answered = true;
  return absl::OkStatus();
}

}  // namespace reduced
