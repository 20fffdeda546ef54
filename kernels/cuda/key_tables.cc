// Reductions by key from tables (key_tables.h): which tables a request takes, how they are filled, and the answers.
//
// Keys that are given are read by the kernels that add rows to the tables, which note the first one outside. What a
// table does not take is left: then no table answers, and the rows are sorted.
#include "kernels/cuda/key_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/algebra/finalize.h"
#include "kernels/algebra/order_key.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/key_entries.h"
#include "kernels/cuda/quick_kinds.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/exact/answers.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

bool Has(const QuickOps& ops, std::initializer_list<Op> any) {
  return std::any_of(ops.answers, ops.answers + ops.positions.size(), [&](const QuickAnswer& answer) {
    return std::find(any.begin(), any.end(), answer.op) != any.end();
  });
}

bool IsExtremum(const QuickOps& ops) { return ops.kind == QuickKind::kExtrema; }

bool HasTable(const QuickOps& ops) {
  const bool others = Has(ops, {Op::kAny, Op::kAll, Op::kCountNonzero});
  return ops.kind == QuickKind::kSums || IsExtremum(ops) || (ops.kind == QuickKind::kCounts && !others);
}

// Gives each array that the table has its place from *bytes on; the table is wanted where `at` is not null.
class Places {
 public:
  explicit Places(std::byte* memory) : memory_(memory) {}

  template <class Word>
  void Give(Word** array, std::int64_t count) {
    *array = reinterpret_cast<Word*>(memory_ + bytes_);
    bytes_ += (count * static_cast<std::int64_t>(sizeof(Word)) + 15) / 16 * 16;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* const memory_;
  std::int64_t bytes_ = 0;
};

// What is in a table's memory.
struct TablePlan {
  KeyTable table;  // of which arrays that are not null are wanted
  ListedElement* listed = nullptr;
  std::int64_t zeros = 0;  // so many bytes are to be zeros, the others kNowhere
  std::int64_t bytes = 0;
};

// The table for ops in memory from `memory` on, which may be null: then only the bytes are of use.
TablePlan PlanOf(const QuickOps& ops, const ReduceSpec& spec, std::int64_t groups, std::int64_t rows, bool shared,
                 std::byte* memory) {
  constexpr std::int64_t kEntries = 1 << 16, kMostCopies = 1 << 12;
  const DTypeRow& row = RowOf(spec.dtype);
  const bool extremum = IsExtremum(ops);
  TablePlan plan;
  KeyTable& table = plan.table;
  table.groups = groups;
  if (!shared && !extremum) {
    const auto copies = static_cast<std::uint64_t>(std::clamp<std::int64_t>(kEntries / groups, 1, kMostCopies));
    table.copies = static_cast<int>(std::bit_floor(copies));
  }
  const std::int64_t entries = groups * table.copies;
  Places places(memory);
  if (ops.kind == QuickKind::kSums) {
    const KeyBins bins =
        VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) { return KeyBinsFor<T>(rows, shared); });
    table.bins_used = bins.count;
    std::copy(std::begin(bins.place), std::end(bins.place), table.place);
    for (int b = 0; b < table.bins_used; ++b) places.Give(&table.bins[b], entries);
  }
  const bool wanted[] = {extremum && Has(ops, {Op::kMin, Op::kArgmin, Op::kRange}),
                         extremum && Has(ops, {Op::kMax, Op::kArgmax, Op::kRange})};
  for (int i = 0; i < 2; ++i) {
    if (wanted[i]) places.Give(&table.extrema[i], entries);
  }
  // An error about a group without elements says how many NaNs it has.
  const bool tells_nans = extremum && spec.nan_policy == NanPolicy::kOmit && spec.empty_policy == EmptyPolicy::kError;
  if (Has(ops, {Op::kCount, Op::kMean})) places.Give(&table.counts, entries);
  if (row.is_float && (tells_nans || Has(ops, {Op::kNanCount}))) places.Give(&table.nans, entries);
  places.Give(&table.flags, (groups + 3) / 4);
  plan.zeros = places.bytes();
  const Op positions[] = {Op::kArgmin, Op::kArgmax};
  for (int i = 0; i < 2; ++i) {
    if (extremum && row.bytes == 8 && Has(ops, {positions[i]})) places.Give(&table.at[i], entries);
  }
  if (table.bins_used > 0 && row.is_float) places.Give(&plan.listed, KeyTablesLaunch::kMostListed);
  plan.bytes = places.bytes();
  return plan;
}

// What an op answers where no element counts, as bits.
std::uint64_t EmptyBits(Op op, DType dtype) {
  std::byte bytes[sizeof(std::uint64_t)] = {};
  if (RowOf(op).error_if_empty) {
    StoreValue(EmptyValue(op, dtype), bytes);
  } else if (op == Op::kMean) {
    StoreValue(Value{DType::kF64, std::numeric_limits<double>::quiet_NaN()}, bytes);
  }
  std::uint64_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// The extrema of a group, as far as the table has them.
ExtremaState ExtremaIn(const KeyRecord& record, const KeyAnswersLaunch& launch) {
  return VisitDType(launch.elements.dtype, [&]<class T>(std::type_identity<T>) {
    using Fold = QuickExtremum<sizeof(T)>;
    const auto widened = [&](typename Fold::Key key) {
      return WidenKey(OrderKey<T>::Of(std::bit_cast<T>(Fold::WordOf(key, launch.elements))));
    };
    Fold fold;
    FoldOf(record, launch, &fold);
    ExtremaState state;
    if (fold.nan_at != kNowhere) state.nan_index = fold.nan_at;
    if (launch.table.extrema[0] != nullptr && fold.low_at != kNowhere) {
      state.min_key = widened(fold.low);
      state.min_index = fold.low_at;
    }
    if (launch.table.extrema[1] != nullptr && fold.high_at != kNowhere) {
      state.max_key = widened(fold.high);
      state.max_index = fold.high_at;
    }
    return state;
  });
}

}  // namespace

bool CudaLane::GroupReduction::HasTables() const {
  const std::int64_t groups = partition_.keys->groups > 0 ? partition_.keys->groups : grouping_.groups;
  // Each row would wait for memory twice, for its sum and for its count, which takes longer than sorting.
  constexpr std::int64_t kSumBytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);
  const auto waits_twice = [&](const QuickOps& ops) {
    return ops.kind == QuickKind::kSums && Has(ops, {Op::kMean, Op::kCount}) &&
           groups > 2 * lane_.cache_bytes_ / kSumBytes;
  };
  return columns_ == 1 && !quick_.empty() && std::all_of(quick_.begin(), quick_.end(), HasTable) &&
         std::none_of(quick_.begin(), quick_.end(), waits_twice) && groups > 0 &&
         groups < KeyTablesLaunch::kEndOfRows && partition_.rows < KeyTablesLaunch::kEndOfRows;
}

// There are up to 256 parts: one pass of the radix sort.
constexpr int kBitsOfParts = 8;

bool CudaLane::GroupReduction::HasRowsInParts() const {
  constexpr std::int64_t kEntryBytes = sizeof(std::uint64_t);  // of a group, that most of its rows need
  return MovesElements() && grouping_.groups > lane_.cache_bytes_ / 2 / kEntryBytes;
}

bool CudaLane::GroupReduction::CanSortGivenKeys() const {
  return ids_ == nullptr && array_.mask == nullptr && RowOf(partition_.keys->keys.dtype).bytes == sizeof(*ids_);
}

absl::Status CudaLane::GroupReduction::OrderRowsInParts(KeyTablesLaunch* any,
                                                        std::vector<std::unique_ptr<ArrayMemory>>* held) {
  // Keys outside are in any part: the tables take them for what they are.
  SortByGroupLaunch launch = SortOfElements(static_cast<const std::uint32_t*>(any->keys));
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(launch.groups)));
  launch.low_bit = std::max(0, bits - kBitsOfParts);
  REDUCED_RETURN_IF_CUDA_ERROR(SortByGroupScratch(launch, &launch.scratch_bytes));
  std::vector<std::unique_ptr<ArrayMemory>> memory;  // while they are sorted
  std::byte *ids, *elements, *scratch;
  const absl::Status allocated = Allocate({{launch.rows * static_cast<std::int64_t>(sizeof(std::uint32_t)), held, &ids},
                                           {launch.rows * launch.value_bytes, held, &elements},
                                           {static_cast<std::int64_t>(launch.scratch_bytes), &memory, &scratch}});
  if (absl::IsResourceExhausted(allocated)) {
    lacks_room_ = false;  // it is slower without
    return absl::OkStatus();
  }
  if (!allocated.ok()) return allocated;
  launch.sorted_ids = reinterpret_cast<std::uint32_t*>(ids);
  launch.sorted_values = elements;
  launch.scratch = scratch;
  const absl::Status status = Launch([&] { return LaunchSortByGroup(launch); }, 0);
  if (!status.ok()) {
    lane_.Abandon();  // memory goes that the launch may use
    return status;
  }
  any->keys = ids;
  any->array.data = elements;
  return absl::OkStatus();
}

KeyTablesLaunch CudaLane::GroupReduction::KeyedRows(DType dtype, const void* keys, bool drop) const {
  KeyTablesLaunch rows;
  rows.array = array_;
  if (ids_ != nullptr) rows.array.mask = nullptr;
  rows.key_dtype = dtype;
  rows.keys = keys;
  rows.drop = drop;
  rows.rows = partition_.rows;
  rows.multiprocessors = lane_.multiprocessors_;
  rows.most_shared_bytes = lane_.shared_bytes_;
  rows.header = reinterpret_cast<KeyTablesHeader*>(state_slot().device);
  rows.stream = lane_.kernel_stream_;
  return rows;
}

absl::Status CudaLane::GroupReduction::FillTables(DType dtype, const void* keys, bool drop) {
  const StageRange range("fill tables");
  KeyTablesLaunch any = KeyedRows(dtype, keys, drop);
  const std::int64_t spare_taken = spare_taken_;
  std::vector<std::unique_ptr<ArrayMemory>> in_parts;
  if (HasRowsInParts() && (ids_ != nullptr || CanSortGivenKeys())) {
    if (absl::Status status = OrderRowsInParts(&any, &in_parts); !status.ok()) return status;
  }
  for (const QuickOps& ops : quick_) {
    bool filled = false;
    const absl::Status status = FillTable(ops, any, &filled);
    if (!status.ok()) return status;
    if (filled) continue;
    tables_.clear();
    spare_taken_ = spare_taken;
    break;
  }
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::FillTable(const QuickOps& ops, const KeyTablesLaunch& any, bool* filled) {
  const DTypeRow& row = RowOf(job_.spec.dtype);
  const auto plan_of = [&](bool shared, std::byte* memory) {
    return PlanOf(ops, job_.spec, grouping_.groups, partition_.rows, shared, memory);
  };
  // The first that takes all elements, or nearly all. Only sums of floats have a second chance.
  struct Attempt {
    bool shared;
    bool sampled;
  };
  const bool has_shared = IsExtremum(ops) || row.bytes <= 4;
  std::byte unused{};
  const bool shared = has_shared && SharedBytesOf(plan_of(true, &unused).table) <= lane_.shared_bytes_;
  for (const Attempt attempt : {Attempt{shared, true}, Attempt{false, false}}) {
    const std::int64_t bytes = plan_of(attempt.shared, nullptr).bytes, spare_taken = spare_taken_;
    std::vector<std::unique_ptr<ArrayMemory>> held;
    const absl::StatusOr<std::byte*> memory = Allocate(bytes, &held);
    if (absl::IsResourceExhausted(memory.status())) {
      lacks_room_ = false;  // sorting the rows may take less
      return absl::OkStatus();
    }
    if (!memory.ok()) return memory.status();
    const TablePlan plan = plan_of(attempt.shared, *memory);
    KeyTablesLaunch launch = any;
    launch.elements = ops.elements;
    launch.table = plan.table;
    launch.listed = plan.listed;
    launch.shared = attempt.shared;
    launch.sampled = attempt.sampled;
    const auto launches = [&] {
      cudaError_t error = cudaMemsetAsync(*memory, 0, static_cast<std::size_t>(plan.zeros), launch.stream);
      if (error == cudaSuccess && plan.bytes > plan.zeros) {
        error = cudaMemsetAsync(*memory + plan.zeros, 0xff, static_cast<std::size_t>(plan.bytes - plan.zeros),
                                launch.stream);
      }
      if (error != cudaSuccess) return error;
      return IsExtremum(ops) ? LaunchKeyExtrema(launch) : LaunchKeySums(launch);
    };
    absl::Status status = Launch(launches, sizeof(KeyTablesHeader));
    FilledTable table{.ops = &ops};
    KeyTablesHeader header;
    if (status.ok()) {
      std::memcpy(&header, state_slot().pinned, sizeof(header));
      // Once too many are listed, no more rows are looked at: then another one may be the first.
      const bool looked_at_all = header.listed <= KeyTablesLaunch::kMostListed;
      if (header.bad != 0 && looked_at_all) {
        // In parts rows have other numbers: whoever checks all keys in their order finds the first.
        if (launch.array.data != array_.data) return absl::OkStatus();
        status = BadKeyIn(launch.keys, partition_.rows - static_cast<std::int64_t>(header.bad));
      }
    }
    if (status.ok() && header.listed > 0 && header.listed <= KeyTablesLaunch::kMostListed) {
      table.listed.resize(header.listed);
      status = Fetch(reinterpret_cast<const std::byte*>(plan.listed),
                     static_cast<std::int64_t>(header.listed * sizeof(ListedElement)),
                     reinterpret_cast<std::byte*>(table.listed.data()));
    }
    if (!status.ok()) {
      lane_.Abandon();  // memory goes that the launch may use
      return status;
    }
    const bool skewed = !attempt.shared && IsSkewed(header.pairs, plan.table);
    if (skewed || header.listed > KeyTablesLaunch::kMostListed) {
      spare_taken_ = spare_taken;
      if (skewed) return absl::OkStatus();
      continue;
    }
    table.answers.elements = ops.elements;
    if (!IsExtremum(ops)) table.answers.elements.flip = 0;  // sums are of the elements themselves
    table.answers.kind = IsExtremum(ops) ? QuickKind::kExtrema : QuickKind::kSums;
    table.answers.table = plan.table;
    table.answers.unit = header.unit;
    std::sort(table.listed.begin(), table.listed.end(),
              [](const ListedElement& a, const ListedElement& b) { return a.group < b.group; });
    table.memory = std::move(held);
    tables_.push_back(std::move(table));
    *filled = true;
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::AnswerFromTables() {
  for (FilledTable& table : tables_) {
    KeyAnswersLaunch& launch = table.answers;
    launch.ops = static_cast<int>(table.ops->positions.size());
    std::copy(std::begin(table.ops->answers), std::end(table.ops->answers), launch.answers);
    for (int i = 0; i < launch.ops; ++i) launch.empty[i] = EmptyBits(launch.answers[i].op, job_.spec.dtype);
    launch.fills = job_.spec.empty_policy == EmptyPolicy::kFill;
    launch.after = &table != tables_.data();
    launch.stream = lane_.kernel_stream_;
  }
  const auto launches = [&](const QuickBatch& batch) {
    for (const FilledTable& table : tables_) {
      KeyAnswersLaunch launch = table.answers;
      launch.first = batch.first;
      launch.count = batch.count;
      for (int i = 0; i < launch.ops; ++i) {
        launch.answers[i].results = batch.slot->device + batch.places[table.ops->positions[i]];
      }
      launch.left = reinterpret_cast<std::uint8_t*>(batch.slot->device + batch.left);
      if (const cudaError_t error = LaunchKeyAnswers(launch); error != cudaSuccess) return error;
    }
    return cudaSuccess;
  };
  std::vector<std::int64_t> none_too_long;
  absl::Status status = AnswerInBatches(launches, &none_too_long);
  std::vector<std::int64_t> left;
  {
    const absl::MutexLock lock(&mutex_);
    left.swap(left_);
  }
  const std::int64_t room =
      std::min<std::int64_t>(lane_.chunk_bytes_ / static_cast<std::int64_t>(sizeof(std::int64_t)),
                             lane_.chunk_bytes_ / (std::ssize(tables_) * static_cast<std::int64_t>(sizeof(KeyRecord))));
  for (std::int64_t first = 0; first < std::ssize(left) && status.ok() && !HasEnded(); first += room) {
    status = AnswerFromRecords(left.data() + first, std::min(room, std::ssize(left) - first));
  }
  return status;
}

absl::Status CudaLane::GroupReduction::AnswerFromRecords(const std::int64_t* outputs, std::int64_t count) {
  const Slot& up = part_slot();
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(std::int64_t);
  std::memcpy(up.pinned, outputs, bytes);
  REDUCED_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(up.device, up.pinned, bytes, cudaMemcpyHostToDevice, lane_.kernel_stream_));
  const auto launches = [&] {
    KeyRecordsLaunch launch{.groups = reinterpret_cast<const std::int64_t*>(up.device),
                            .count = count,
                            .records = reinterpret_cast<KeyRecord*>(state_slot().device),
                            .stream = lane_.kernel_stream_};
    for (const FilledTable& table : tables_) {
      launch.table = table.answers.table;
      if (const cudaError_t error = LaunchKeyRecords(launch); error != cudaSuccess) return error;
      launch.records += count;
    }
    return cudaSuccess;
  };
  const absl::Status status =
      Launch(launches, std::ssize(tables_) * count * static_cast<std::int64_t>(sizeof(KeyRecord)));
  if (!status.ok()) return status;
  const auto* const records = reinterpret_cast<const KeyRecord*>(state_slot().pinned);
  lane_.copiers_.execute([&] {
    tbb::parallel_for(std::int64_t{0}, count, [&](std::int64_t i) {
      const auto record = [&](std::size_t t) -> const KeyRecord& {
        return records[static_cast<std::int64_t>(t) * count + i];
      };
      State state;
      if (ExactAccumulatorsFor(job_.spec) != 0) state.exact = std::make_unique<ExactSums>();
      // Any of the tables may have the counts.
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        const KeyTable& table = tables_[t].answers.table;
        if (table.counts != nullptr) state.partial.count = record(t).count;
        if (table.nans != nullptr) state.partial.nan = record(t).nans;
      }
      if (job_.spec.nan_policy == NanPolicy::kOmit) state.partial.count += state.partial.nan;
      for (std::size_t t = 0; t < tables_.size(); ++t) AddTo(tables_[t], record(t), outputs[i], &state);
      Store(outputs[i], std::move(state));
    });
  });
  return absl::OkStatus();
}

void CudaLane::GroupReduction::AddTo(const FilledTable& from, const KeyRecord& record, std::int64_t group,
                                     State* state) const {
  const KeyTable& table = from.answers.table;
  Partial& partial = state->partial;
  if (from.answers.kind == QuickKind::kExtrema) {
    partial.extrema = ExtremaIn(record, from.answers);
    return;
  }
  if (state->exact == nullptr || table.bins_used == 0) {
    partial.int_sum = TotalOf(record, table);
    return;
  }
  ExactSums& exact = *state->exact;
  for (int b = 0; b < table.bins_used; ++b) {
    if (record.bins[b] != 0) {
      exact.sum.Add(static_cast<std::int64_t>(record.bins[b]), from.answers.unit + table.place[b]);
    }
  }
  exact.not_only_negative_zeros = TotalOf(record, table) != 0 || !IsNegativeZero(record);
  exact.nans = partial.nan;
  if (partial.nan == 0 && job_.spec.nan_policy == NanPolicy::kPropagate && (record.flags & kKeyNan) != 0) {
    exact.nans = 1;  // one or more
  }
  exact.positive_infinities = (record.flags & kKeyPositiveInfinity) != 0 ? 1 : 0;
  exact.negative_infinities = (record.flags & kKeyNegativeInfinity) != 0 ? 1 : 0;
  const auto by_group = [](const ListedElement& a, const ListedElement& b) { return a.group < b.group; };
  const ListedElement of_group{0, static_cast<std::uint64_t>(group)};
  const auto [begin, end] = std::equal_range(from.listed.begin(), from.listed.end(), of_group, by_group);
  for (auto element = begin; element != end; ++element) {
    Add(element->value, SetOf(Accumulator::kSum), /*elsewhere=*/false, &exact);
  }
}

}  // namespace reduced
