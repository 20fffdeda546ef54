// The groups of rows by their keys: those that are given, and those that are found.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/dtype.h"
#include "kernels/cpu/counting_sort.h"
#include "kernels/cpu/for_ranges.h"
#include "kernels/cpu/grouping.h"

namespace reduced {
namespace {

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

// Keys that were found, and nearly fill a range: a table has the group of each key of the range.
template <class T>
class TableKeys final : public KeysInPlace {
 public:
  TableKeys(const std::byte* elements, const std::uint32_t* groups, std::uint64_t least, std::uint64_t range)
      : elements_(elements), groups_(groups), least_(least), range_(range) {}

  void Ids(std::int64_t begin, std::int64_t end, std::uint32_t* ids) override {
    for (std::int64_t row = begin; row < end; ++row) ids[row - begin] = GroupOf(row);
  }
  // Another process may change the keys meanwhile: a key that was not found is in no group.
  std::uint32_t GroupOf(std::int64_t row) const {
    const std::uint64_t at = Order<T>::At(elements_, row) - least_;
    return at <= range_ ? groups_[at] : kNoGroup;
  }
  absl::Status Check() const override { return absl::OkStatus(); }

 private:
  const std::byte* const elements_;
  const std::uint32_t* const groups_;
  const std::uint64_t least_, range_;
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
    const absl::Status status = keys_.groups > 0 ? Given() : Found();
    if (!status.ok()) return status;
    return std::move(grouping_);
  }

 private:
  bool Kept(std::int64_t row) const { return kept_of_ == nullptr || (*kept_of_)(row); }

  // Calls `each` with every row that the mask keeps. Without a mask the loop has no branch for it.
  template <class Each>
  void ForKept(std::int64_t begin, std::int64_t end, const Each& each) const {
    if (kept_of_ == nullptr) {
      for (std::int64_t row = begin; row < end; ++row) each(row);
    } else {
      for (std::int64_t row = begin; row < end; ++row) {
        if ((*kept_of_)(row)) each(row);
      }
    }
  }

  absl::Status AllocateIds() {
    const absl::StatusOr<std::uint32_t*> ids =
        Allocate<std::uint32_t>(std::max<std::int64_t>(rows_, 1), context_.budget, &grouping_.memory);
    if (!ids.ok()) return ids.status();
    grouping_.ids = ids_ = *ids;
    return absl::OkStatus();
  }

  // Computes the ids where the groups are given: kNoGroup for rows that the mask leaves out.
  absl::Status Given() {
    grouping_.groups = keys_.groups;
    GivenKeys<T> given(keys_, elements_);
    if (absl::Status status = AllocateIds(); !status.ok()) return status;
    const absl::Status status =
        ForPieces(rows_, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
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

  // Finds the distinct keys. Keys in ascending order are found by comparing neighbours, keys that nearly fill a range
  // by a table of the range, and others by hashing or, if there are many, by sorting the rows.
  absl::Status Found() {
    const absl::StatusOr<bool> ascend = Ascend();
    if (!ascend.ok()) return ascend.status();
    if (*ascend) return ByOrder();
    absl::Mutex mutex;
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max(), largest = 0;
    absl::Status status =
        ForPieces(rows_, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
          T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::min();
          bool any = false;
          ForKept(begin, end, [&](std::int64_t row) {
            const T key = ElementAt<T>(elements_, row);
            low = std::min(low, key);
            high = std::max(high, key);
            any = true;
          });
          if (!any) return;
          const absl::MutexLock lock(&mutex);
          least = std::min(least, Order<T>::Of(low));
          largest = std::max(largest, Order<T>::Of(high));
        });
    const std::uint64_t range = largest - least;
    constexpr std::uint64_t kSmallTable = 1 << 16;
    const bool any = least <= largest, by_table = range < static_cast<std::uint64_t>(rows_) + kSmallTable;
    if (status.ok() && !(any && by_table && context_.lazily && kept_of_ == nullptr)) status = AllocateIds();
    if (!status.ok()) return status;
    if (!any) {  // no row at all
      std::fill_n(ids_, rows_, kNoGroup);
      return AllocateKeys(0);
    }
    if (by_table) return ByTable(least, static_cast<std::int64_t>(range));
    const absl::StatusOr<bool> few = ByHash();
    if (!few.ok() || *few) return few.status();
    return BySort(least, range);
  }

  // Whether no mask leaves rows out, and no key is less than the one before. Stops at the first key that is.
  absl::StatusOr<bool> Ascend() const {
    if (!context_.lazily || kept_of_ != nullptr || rows_ == 0) return false;
    std::atomic<bool> ascend = true;
    absl::Status status =
        ForPieces(rows_, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
          constexpr std::int64_t kBetweenLooks = 4096;
          T before = ElementAt<T>(elements_, std::max<std::int64_t>(begin - 1, 0));
          for (std::int64_t row = begin; row < end && ascend.load(std::memory_order_relaxed);) {
            bool descends = false;
            for (const std::int64_t stop = std::min(end, row + kBetweenLooks); row < stop; ++row) {
              const T key = ElementAt<T>(elements_, row);
              descends |= key < before;
              before = key;
            }
            if (descends) ascend.store(false, std::memory_order_relaxed);
          }
        });
    if (!status.ok()) return status;
    return ascend.load();
  }

  // Groups keys in ascending order: each group is a stretch of rows. Another process may change the keys meanwhile.
  absl::Status ByOrder() {
    std::int64_t groups = 0;
    for (std::int64_t row = 0; row < rows_; row = EndOfStretch(row)) {
      if (groups++ % kPieceRows != 0) continue;
      if (absl::Status why = context_.why_stop(); !why.ok()) return why;
    }
    if (absl::Status status = AllocateKeys(groups); !status.ok()) return status;
    const absl::StatusOr<std::int64_t*> bounds = Allocate<std::int64_t>(groups + 1, context_.budget, &grouping_.memory);
    if (!bounds.ok()) return bounds.status();
    std::int64_t row = 0;
    for (std::int64_t group = 0; group < groups && row < rows_; ++group) {
      if (group % kPieceRows == 0) {
        if (absl::Status why = context_.why_stop(); !why.ok()) return why;
      }
      StoreKey(group, Order<T>::At(elements_, row));
      row = EndOfStretch(row);
      (*bounds)[group + 1] = row;
    }
    for (std::int64_t group = groups; group > 0 && (*bounds)[group] < rows_; --group) (*bounds)[group] = rows_;
    grouping_.bounds = *bounds;
    grouping_.in_order = grouping_.all_sorted = true;
    return absl::OkStatus();
  }

  // The first row after `row` whose key is larger, by steps that double, and then by halves.
  std::int64_t EndOfStretch(std::int64_t row) const {
    const std::uint64_t key = Order<T>::At(elements_, row);
    std::int64_t step = 1;
    while (step < rows_ - row && Order<T>::At(elements_, row + step) <= key) {
      row += step;
      step *= 2;
    }
    std::int64_t end = std::min(rows_, row + step);
    while (row + 1 < end) {
      const std::int64_t middle = row + (end - row) / 2;
      (Order<T>::At(elements_, middle) <= key ? row : end) = middle;
    }
    return end;
  }

  absl::Status ByTable(std::uint64_t least, std::int64_t range) {
    std::vector<std::unique_ptr<ArrayMemory>> scratch;
    const bool lazily = ids_ == nullptr;
    const absl::StatusOr<std::uint32_t*> table =
        Allocate<std::uint32_t>(range + 1, context_.budget, lazily ? &grouping_.memory : &scratch);
    if (!table.ok()) return table.status();
    std::uint32_t* const ids = *table;
    const auto entry = [&](std::int64_t row) -> std::uint32_t* {
      const std::uint64_t at = Order<T>::At(elements_, row) - least;
      return at <= static_cast<std::uint64_t>(range) ? ids + at : nullptr;
    };
    absl::Status status =
        ForPieces(rows_, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
          ForKept(begin, end, [&](std::int64_t row) {
            std::uint32_t* const seen = entry(row);
            if (seen == nullptr || __atomic_load_n(seen, __ATOMIC_RELAXED) != 0) return;
            __atomic_store_n(seen, 1, __ATOMIC_RELAXED);
          });
        });
    if (!status.ok()) return status;
    std::atomic<std::int64_t> found = 0;
    status = ForPieces(range + 1, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
      found += end - begin - std::count(ids + begin, ids + end, std::uint32_t{0});
    });
    if (status.ok()) status = AllocateKeys(found);
    if (!status.ok()) return status;
    std::int64_t id = 0;
    for (std::int64_t i = 0; i <= range; ++i) {
      if (i % kPieceRows == 0) status = context_.why_stop();
      if (!status.ok()) return status;
      const bool seen = ids[i] != 0;
      ids[i] = seen ? static_cast<std::uint32_t>(id) : kNoGroup;
      if (seen) StoreKey(id++, least + static_cast<std::uint64_t>(i));
    }
    auto groups = std::make_unique<TableKeys<T>>(elements_, ids, least, static_cast<std::uint64_t>(range));
    if (lazily) {
      grouping_.in_place = std::move(groups);
      return absl::OkStatus();
    }
    return ForPieces(rows_, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) ids_[row] = Kept(row) ? groups->GroupOf(row) : kNoGroup;
    });
  }

  // False: there are more than kFewKeys, and nothing is found.
  absl::StatusOr<bool> ByHash() {
    constexpr std::int64_t kFewKeys = 1 << 18;
    constexpr std::int64_t kKeyBytes = 48;  // with the places in the map that are free, at most
    std::vector<std::unique_ptr<ArrayMemory>> scratch;
    const absl::StatusOr<std::byte*> room =  // which what is below takes elsewhere
        Allocate<std::byte>(kKeyBytes * std::min(rows_, kFewKeys), context_.budget, &scratch);
    if (!room.ok()) return room.status();
    absl::flat_hash_map<std::uint64_t, std::uint32_t> ids;
    std::vector<std::uint64_t> sorted;  // in the order in which they come, until they are sorted
    for (std::int64_t row = 0; row < rows_; ++row) {
      if (row % kPieceRows == 0) {
        absl::Status why = context_.why_stop();
        if (!why.ok()) return why;
      }
      if (!Kept(row)) {
        ids_[row] = kNoGroup;
        continue;
      }
      const std::uint64_t order = Order<T>::At(elements_, row);
      const auto [at, added] = ids.try_emplace(order, static_cast<std::uint32_t>(sorted.size()));
      if (added && std::ssize(sorted) == kFewKeys) return false;
      if (added) sorted.push_back(order);
      ids_[row] = at->second;
    }
    std::sort(sorted.begin(), sorted.end());
    absl::Status status = AllocateKeys(std::ssize(sorted));
    if (!status.ok()) return status;
    std::vector<std::uint32_t> place(sorted.size());  // of each, among the sorted
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      place[ids.at(sorted[i])] = static_cast<std::uint32_t>(i);
      StoreKey(static_cast<std::int64_t>(i), sorted[i]);
    }
    status = ForPieces(rows_, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        if (ids_[row] != kNoGroup) ids_[row] = place[ids_[row]];
      }
    });
    if (!status.ok()) return status;
    return true;
  }

  // Radix sort of the rows by their keys, which are at most `range` above the least.
  absl::Status BySort(std::uint64_t least, std::uint64_t range) {
    std::vector<std::unique_ptr<ArrayMemory>> scratch;
    struct Sorted {
      std::uint64_t* above;  // the least
      std::uint32_t* row;
    };
    Sorted from{}, to{};
    for (Sorted* const each : {&from, &to}) {
      const absl::StatusOr<std::uint64_t*> above = Allocate<std::uint64_t>(rows_, context_.budget, &scratch);
      if (!above.ok()) return above.status();
      const absl::StatusOr<std::uint32_t*> row = Allocate<std::uint32_t>(rows_, context_.budget, &scratch);
      if (!row.ok()) return row.status();
      *each = {*above, *row};
    }
    // Keys and mask may change while they are looked at: this is done once, and what was not seen before is in no
    // group.
    absl::Status status =
        ForPieces(rows_, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            from.above[row] = Order<T>::At(elements_, row) - least;
            from.row[row] = static_cast<std::uint32_t>(row);
            ids_[row] = Kept(row) && from.above[row] <= range ? 0 : kNoGroup;
          }
        });
    constexpr int kDigitBits = 11;
    constexpr std::uint64_t kDigits = std::uint64_t{1} << kDigitBits;
    const int bits = std::bit_width(range);
    std::int64_t rows = rows_;  // those in groups, after the first digit
    for (int shift = 0; status.ok() && shift < bits; shift += kDigitBits) {
      std::int64_t bounds[kDigits + 1];
      const auto digit_of = [&](std::int64_t i) -> std::uint32_t {
        if (shift == 0 && ids_[i] == kNoGroup) return kNoGroup;
        return static_cast<std::uint32_t>(from.above[i] >> shift) % kDigits;
      };
      const auto move = [&](std::int64_t i, std::uint32_t place) {
        to.above[place] = from.above[i];
        to.row[place] = from.row[i];
      };
      status = CountingSort(rows, kDigits, context_, digit_of, move, bounds);
      if (status.ok()) rows = bounds[kDigits];
      std::swap(from, to);
    }
    if (!status.ok()) return status;
    const auto is_new = [&](std::int64_t i) { return i == 0 || from.above[i] != from.above[i - 1]; };
    std::atomic<std::int64_t> found = 0;
    status = ForPieces(rows, context_.arena, context_.why_stop, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t some = 0;
      for (std::int64_t i = begin; i < end; ++i) some += is_new(i) ? 1 : 0;
      found += some;
    });
    if (status.ok()) status = AllocateKeys(found);
    std::int64_t id = -1;
    for (std::int64_t i = 0; status.ok() && i < rows; ++i) {
      if (i % kPieceRows == 0) status = context_.why_stop();
      if (is_new(i)) StoreKey(++id, least + from.above[i]);
      ids_[from.row[i]] = static_cast<std::uint32_t>(id);
    }
    return status;
  }

  absl::Status AllocateKeys(std::int64_t groups) {
    grouping_.groups = groups;
    // One more, so that there is memory to point to also if there is no key.
    const absl::StatusOr<T*> keys = Allocate<T>(groups + 1, context_.budget, &grouping_.memory);
    if (!keys.ok()) return keys.status();
    keys_found_ = *keys;
    grouping_.keys = reinterpret_cast<const std::byte*>(*keys);
    return absl::OkStatus();
  }
  void StoreKey(std::int64_t group, std::uint64_t order) { keys_found_[group] = Order<T>::Key(order); }

  const Keys& keys_;
  const std::int64_t rows_;
  const std::byte* const elements_;
  const absl::FunctionRef<bool(std::int64_t)>* const kept_of_;
  const GroupingContext& context_;
  std::uint32_t* ids_ = nullptr;
  T* keys_found_ = nullptr;
  Grouping grouping_;
};

}  // namespace

absl::Status BadKey(std::int64_t row, absl::string_view key, std::int64_t groups) {
  return absl::OutOfRangeError(
      absl::StrCat("keys[", row, "]: got ", key, "; allowed: 0 to ", groups - 1, ", or outside: DROP"));
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
