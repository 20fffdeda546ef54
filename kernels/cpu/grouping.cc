#include "kernels/cpu/grouping.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cpu/arrays.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

constexpr std::int64_t kPiece = 1 << 16;  // rows between two looks at whether to stop

// Memory for `count` items, all bytes of which are 0.
template <class T>
absl::StatusOr<T*> Allocate(std::int64_t count, ArrayBudget& budget,
                            std::vector<std::unique_ptr<ArrayMemory>>* memory) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> room =
      AllocateCpuArray(count * static_cast<std::int64_t>(sizeof(T)), budget);
  if (!room.ok()) return room.status();
  memory->push_back(*std::move(room));
  return static_cast<T*>(const_cast<void*>(memory->back()->array().data));
}

template <class T>
T ElementAt(const std::byte* elements, std::int64_t i) {
  T element;
  std::memcpy(&element, elements + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return element;
}

// Runs `piece(begin, end)` over all rows on the threads of the arena, unless it is to stop.
template <class Piece>
absl::Status ForPieces(std::int64_t rows, const GroupingContext& context, const Piece& piece) {
  absl::Mutex mutex;
  absl::Status why;
  std::atomic<bool> stop = false;
  const auto run = [&](const tbb::blocked_range<std::int64_t>& range) {
    if (stop.load(std::memory_order_relaxed)) return;
    if (const absl::Status status = context.why_stop(); !status.ok()) {
      stop.store(true, std::memory_order_relaxed);
      const absl::MutexLock lock(&mutex);
      why.Update(status);
      return;
    }
    piece(range.begin(), range.end());
  };
  context.arena.execute([&] {
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, rows, static_cast<std::size_t>(kPiece)), run,
                      tbb::simple_partitioner());
  });
  return why;
}

template <class T>
absl::StatusOr<Grouping> SegmentsOf(const Segments& segments, const std::byte* elements, std::int64_t rows,
                                    const GroupingContext& context) {
  Grouping grouping{.groups = segments.count()};
  const absl::StatusOr<std::int64_t*> bounds =
      Allocate<std::int64_t>(grouping.groups + 1, context.budget, &grouping.memory);
  if (!bounds.ok()) return bounds.status();
  grouping.bounds = *bounds;
  if (segments.lengths) {
    for (std::int64_t i = 0; i < grouping.groups; ++i) {
      const std::int64_t length = ElementAt<T>(elements, i);
      const std::int64_t before = (*bounds)[i];
      if (length < 0 || length > rows - before) {
        return absl::InvalidArgumentError(
            absl::StrFormat("segments.lengths[%d]: got %d; allowed: 0 to %d, what is left "
                            "of dimension 0",
                            i, length, rows - before));
      }
      (*bounds)[i + 1] = before + length;
    }
    if (const std::int64_t sum = (*bounds)[grouping.groups]; sum != rows) {
      return absl::InvalidArgumentError(
          absl::StrFormat("segments.lengths: got a sum of %d; allowed: %d, the size of dimension 0", sum, rows));
    }
    return grouping;
  }
  std::int64_t before = 0;
  for (std::int64_t i = 0; i <= grouping.groups; ++i) {
    const std::int64_t offset = ElementAt<T>(elements, i);
    if (offset < before || offset > rows) {
      return BadOffset(i, offset, before, rows);
    }
    (*bounds)[i] = before = offset;
  }
  return grouping;
}

// Keys of type T, as integers that ascend as they do.
template <class T>
struct Order {
  static constexpr std::uint64_t kZero = std::is_signed_v<T> ? std::uint64_t{1} << 63 : 0;

  static std::uint64_t Of(T key) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(key)) + kZero; }
  static std::uint64_t At(const std::byte* elements, std::int64_t row) { return Of(ElementAt<T>(elements, row)); }
  static T Key(std::uint64_t order) { return static_cast<T>(order - kZero); }
};

template <class T>
class GivenKeys final : public KeysInPlace {
 public:
  GivenKeys(const Keys& keys, const std::byte* elements)
      : elements_(elements), groups_(keys.groups), drop_(keys.drop), rows_(keys.keys.count), outside_(rows_) {}

  void Ids(std::int64_t begin, std::int64_t end, std::uint32_t* ids) override {
    // 32 bits where they suffice: a vector holds more of them. As unsigned numbers, negative keys are larger than the
    // largest key of the dtype, which bounds the groups.
    using Id = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    const auto groups =
        static_cast<Id>(std::min(static_cast<std::uint64_t>(groups_), kMost < kNoGroup ? kMost + 1 : kMost));
    Id any_outside = 0;  // masks rather than a choice, of which compilers make a branch for each row
    for (std::int64_t row = begin; row < end; ++row) {
      const auto id = static_cast<Id>(ElementAt<T>(elements_, row));
      const Id outside = Id{0} - static_cast<Id>(id >= groups);
      ids[row - begin] = static_cast<std::uint32_t>(id | outside);
      any_outside |= outside;
    }
    if (any_outside == 0 || drop_) return;
    const auto first = begin + (std::find(ids, ids + (end - begin), kNoGroup) - ids);
    std::int64_t before = outside_.load(std::memory_order_relaxed);
    while (first < before && !outside_.compare_exchange_weak(before, first, std::memory_order_relaxed)) {
    }
  }
  absl::Status Check() const override {
    const std::int64_t first = outside_.load(std::memory_order_relaxed);
    if (first == rows_) return absl::OkStatus();
    return BadKey(first, absl::StrCat(ElementAt<T>(elements_, first)), groups_);
  }

 private:
  const std::byte* const elements_;
  const std::int64_t groups_;
  const bool drop_;
  const std::int64_t rows_;
  std::atomic<std::int64_t> outside_;  // the first row of such a key
};

template <class T>
class KeyGrouping {
 public:
  KeyGrouping(const Keys& keys, const std::byte* elements, const absl::FunctionRef<bool(std::int64_t)>* kept,
              const GroupingContext& context)
      : keys_(keys), rows_(keys.keys.count), elements_(elements), kept_of_(kept), context_(context) {}

  absl::StatusOr<Grouping> Run() {
    if (keys_.groups > 0 && kept_of_ == nullptr) {
      grouping_.groups = keys_.groups;
      grouping_.in_place = std::make_unique<GivenKeys<T>>(keys_, elements_);
      return std::move(grouping_);
    }
    const absl::StatusOr<std::uint32_t*> ids =
        Allocate<std::uint32_t>(std::max<std::int64_t>(rows_, 1), context_.budget, &grouping_.memory);
    if (!ids.ok()) return ids.status();
    grouping_.ids = ids_ = *ids;
    const absl::Status status = keys_.groups > 0 ? Given() : Found();
    if (!status.ok()) return status;
    return std::move(grouping_);
  }

 private:
  bool Kept(std::int64_t row) const { return kept_of_ == nullptr || (*kept_of_)(row); }

  // Computes the ids where the groups are given: kNoGroup for rows that the mask leaves out.
  absl::Status Given() {
    grouping_.groups = keys_.groups;
    GivenKeys<T> given(keys_, elements_);
    const absl::Status status = ForPieces(rows_, context_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        if (Kept(row)) {
          given.Ids(row, row + 1, ids_ + row);
        } else {
          ids_[row] = kNoGroup;
        }
      }
    });
    return status.ok() ? given.Check() : status;
  }

  // Finds the keys that there are. Those that nearly fill a range are looked up in a table, others by hashing.
  absl::Status Found() {
    absl::Mutex mutex;
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max(), largest = 0;
    absl::Status status = ForPieces(rows_, context_, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t low = std::numeric_limits<std::uint64_t>::max(), high = 0;
      for (std::int64_t row = begin; row < end; ++row) {
        if (!Kept(row)) continue;
        const std::uint64_t order = Order<T>::At(elements_, row);
        low = std::min(low, order);
        high = std::max(high, order);
      }
      const absl::MutexLock lock(&mutex);
      least = std::min(least, low);
      largest = std::max(largest, high);
    });
    if (!status.ok()) return status;
    if (least > largest) {  // no row at all
      std::fill_n(ids_, rows_, kNoGroup);
      return StoreKeys({});
    }
    const std::uint64_t range = largest - least;
    constexpr std::uint64_t kSmallTable = 1 << 16;
    return range < static_cast<std::uint64_t>(rows_) + kSmallTable ? ByTable(least, static_cast<std::int64_t>(range))
                                                                   : ByHash();
  }

  absl::Status ByTable(std::uint64_t least, std::int64_t range) {
    std::vector<std::unique_ptr<ArrayMemory>> scratch;
    const absl::StatusOr<std::uint32_t*> table = Allocate<std::uint32_t>(range + 1, context_.budget, &scratch);
    if (!table.ok()) return table.status();
    std::uint32_t* const ids = *table;
    // Keys may change while they are looked at: what was not seen before is in no group.
    const auto entry = [&](std::int64_t row) -> std::uint32_t* {
      const std::uint64_t at = Order<T>::At(elements_, row) - least;
      return at <= static_cast<std::uint64_t>(range) ? ids + at : nullptr;
    };
    absl::Status status = ForPieces(rows_, context_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        std::uint32_t* const seen = Kept(row) ? entry(row) : nullptr;
        if (seen == nullptr || __atomic_load_n(seen, __ATOMIC_RELAXED) != 0) continue;
        __atomic_store_n(seen, 1, __ATOMIC_RELAXED);
      }
    });
    if (!status.ok()) return status;
    std::vector<std::uint64_t> found;
    for (std::int64_t i = 0; i <= range; ++i) {
      const bool seen = ids[i] != 0;
      ids[i] = seen ? static_cast<std::uint32_t>(found.size()) : kNoGroup;
      if (seen) found.push_back(least + static_cast<std::uint64_t>(i));
    }
    status = StoreKeys(found);
    if (!status.ok()) return status;
    return ForPieces(rows_, context_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::uint32_t* const id = Kept(row) ? entry(row) : nullptr;
        ids_[row] = id == nullptr ? kNoGroup : *id;
      }
    });
  }

  absl::Status ByHash() {
    absl::flat_hash_map<std::uint64_t, std::uint32_t> ids;
    std::vector<std::uint64_t> found;  // in the order in which they come
    for (std::int64_t row = 0; row < rows_; ++row) {
      if (row % kPiece == 0) {
        const absl::Status why = context_.why_stop();
        if (!why.ok()) return why;
      }
      if (!Kept(row)) {
        ids_[row] = kNoGroup;
        continue;
      }
      const std::uint64_t order = Order<T>::At(elements_, row);
      const auto [at, added] = ids.try_emplace(order, static_cast<std::uint32_t>(found.size()));
      if (added) found.push_back(order);
      ids_[row] = at->second;
    }
    std::vector<std::uint64_t> sorted = found;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::uint32_t> place(found.size());  // of each, among the sorted
    for (std::size_t i = 0; i < sorted.size(); ++i) place[ids.at(sorted[i])] = static_cast<std::uint32_t>(i);
    const absl::Status status = StoreKeys(sorted);
    if (!status.ok()) return status;
    return ForPieces(rows_, context_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        if (ids_[row] != kNoGroup) ids_[row] = place[ids_[row]];
      }
    });
  }

  absl::Status StoreKeys(const std::vector<std::uint64_t>& ascending) {
    grouping_.groups = static_cast<std::int64_t>(ascending.size());
    // One more, so that there is memory to point to also if there is no key.
    const absl::StatusOr<std::byte*> keys = Allocate<std::byte>(
        (grouping_.groups + 1) * static_cast<std::int64_t>(sizeof(T)), context_.budget, &grouping_.memory);
    if (!keys.ok()) return keys.status();
    grouping_.keys = *keys;
    for (std::size_t i = 0; i < ascending.size(); ++i) {
      const T key = Order<T>::Key(ascending[i]);
      std::memcpy(*keys + i * sizeof(T), &key, sizeof(T));
    }
    return absl::OkStatus();
  }

  const Keys& keys_;
  const std::int64_t rows_;
  const std::byte* const elements_;
  const absl::FunctionRef<bool(std::int64_t)>* const kept_of_;
  const GroupingContext& context_;
  std::uint32_t* ids_ = nullptr;
  Grouping grouping_;
};

}  // namespace

absl::Status BadOffset(std::int64_t i, std::int64_t offset, std::int64_t before, std::int64_t rows) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "segments.offsets[%d]: got %d; allowed: %d to %d, ascending within dimension 0", i, offset, before, rows));
}

absl::Status BadKey(std::int64_t row, absl::string_view key, std::int64_t groups) {
  return absl::OutOfRangeError(
      absl::StrCat("keys[", row, "]: got ", key, "; allowed: 0 to ", groups - 1, ", or outside: DROP"));
}

absl::StatusOr<Grouping> GroupBySegments(const Segments& segments, const std::byte* bounds, std::int64_t rows,
                                         const GroupingContext& context) {
  return segments.bounds.dtype == DType::kI32 ? SegmentsOf<std::int32_t>(segments, bounds, rows, context)
                                              : SegmentsOf<std::int64_t>(segments, bounds, rows, context);
}

// Counting sort of the rows by their ids. Each stretch of rows has counts of its own, which then become the places of
// its rows: in the order of the groups, and among those of one group in the order of the stretches.
absl::Status SortRows(std::int64_t rows, const GroupingContext& context, Grouping* grouping,
                      const std::vector<std::int64_t>* only) {
  if (grouping->ids == nullptr) {  // those that are sorted by must not change
    const absl::StatusOr<std::uint32_t*> ids =
        Allocate<std::uint32_t>(std::max<std::int64_t>(rows, 1), context.budget, &grouping->memory);
    if (!ids.ok()) return ids.status();
    absl::Status status = ForPieces(rows, context, [&](std::int64_t begin, std::int64_t end) {
      grouping->in_place->Ids(begin, end, *ids + begin);
    });
    status.Update(grouping->in_place->Check());
    if (!status.ok()) return status;
    grouping->ids = *ids;
  }
  const std::int64_t groups = grouping->groups;
  std::vector<std::uint8_t> wanted;  // of each group; empty: all are
  if (only != nullptr) {
    wanted.resize(static_cast<std::size_t>(groups));
    for (const std::int64_t group : *only) wanted[static_cast<std::size_t>(group)] = 1;
  }
  const absl::StatusOr<std::int64_t*> bounds = Allocate<std::int64_t>(groups + 1, context.budget, &grouping->memory);
  if (!bounds.ok()) return bounds.status();
  const absl::StatusOr<std::uint32_t*> sorted =
      Allocate<std::uint32_t>(std::max<std::int64_t>(rows, 1), context.budget, &grouping->memory);
  if (!sorted.ok()) return sorted.status();
  grouping->bounds = *bounds;
  grouping->rows = *sorted;
  const std::int64_t threads = context.arena.max_concurrency();
  const std::int64_t stretches =
      std::max<std::int64_t>(1, std::min({2 * threads, rows / (4 * kPiece), rows / std::max<std::int64_t>(groups, 1)}));
  const std::int64_t stretch = (rows + stretches - 1) / stretches;
  std::vector<std::unique_ptr<ArrayMemory>> scratch;
  const absl::StatusOr<std::uint32_t*> counts =
      Allocate<std::uint32_t>(stretches * groups + 1, context.budget, &scratch);
  if (!counts.ok()) return counts.status();
  // Runs `each(count of the row's group in the stretch, row)` for all rows.
  const auto walk = [&](const auto& each) {
    absl::Mutex mutex;
    absl::Status why;
    context.arena.execute([&] {
      tbb::parallel_for(std::int64_t{0}, stretches, [&](std::int64_t s) {
        std::uint32_t* const own = *counts + s * groups;
        const std::int64_t end = std::min(rows, (s + 1) * stretch);
        for (std::int64_t row = s * stretch; row < end; ++row) {
          if (row % kPiece == 0) {
            const absl::Status status = context.why_stop();
            if (!status.ok()) {
              const absl::MutexLock lock(&mutex);
              why.Update(status);
              return;
            }
          }
          const std::uint32_t id = grouping->ids[row];
          if (id != kNoGroup && (wanted.empty() || wanted[id] != 0)) each(own + id, row);
        }
      });
    });
    return why;
  };
  absl::Status status = walk([](std::uint32_t* count, std::int64_t /*row*/) { ++*count; });
  if (!status.ok()) return status;
  std::int64_t place = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    (*bounds)[g] = place;
    for (std::int64_t s = 0; s < stretches; ++s) {
      std::uint32_t& count = (*counts)[s * groups + g];
      place += std::exchange(count, static_cast<std::uint32_t>(place));
    }
  }
  (*bounds)[groups] = place;
  return walk([&](std::uint32_t* at, std::int64_t row) { (*sorted)[(*at)++] = static_cast<std::uint32_t>(row); });
}

absl::StatusOr<Grouping> GroupByKeys(const Keys& keys, const std::byte* elements,
                                     const absl::FunctionRef<bool(std::int64_t)>* kept,
                                     const GroupingContext& context) {
  return VisitDType(keys.keys.dtype, [&]<class T>(std::type_identity<T>) -> absl::StatusOr<Grouping> {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return KeyGrouping<T>(keys, elements, kept, context).Run();
    } else {
      return absl::InternalError("keys of a dtype that is no integer");
    }
  });
}

}  // namespace reduced
