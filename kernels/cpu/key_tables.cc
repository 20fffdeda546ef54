#include "kernels/cpu/key_tables.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/cpu/arrays.h"
#include "kernels/cpu/for_ranges.h"
#include "kernels/cpu/key_entries.h"
#include "kernels/cpu/key_parts.h"

namespace reduced {
namespace {

constexpr std::int64_t kRowsBetweenLooks = 1 << 16;  // at whether to stop
constexpr std::int64_t kFewGroups = 64;  // then a thread has several tables, to wait less for the entry before
constexpr std::int64_t kWays = 4;
constexpr std::int64_t kIdsAtOnce = 2048;  // which stay in the L1 cache
// The most that a table, or a part of one, may have to stay in a common L2 cache while rows are added to it.
constexpr std::int64_t kCacheBytes = 512 << 10;
constexpr std::int64_t kLine = 64;  // bytes of it
// An entry of a table that is larger is fetched so many rows ahead (measured).
constexpr std::int64_t kFetchAhead = 16;
// A table that is larger than its share of a common L3 cache has its rows added part by part.
constexpr std::int64_t kLargeTable = 4 << 20;
// The most memory that tables take: bytes for each row, about what sorting the rows takes where groups are many, or, if
// that is more, bytes in all.
constexpr std::int64_t kMostBytesOfRow = 16;
constexpr std::int64_t kSmallTables = 8 << 20;
// Parts of a table that there are for each thread, so that all have some until the end.
constexpr std::int64_t kThreadParts = 4;

// Brings memory into the cache in order, which is faster than as rows ask for it.
void Fetch(const void* from, std::int64_t bytes) {
  const auto* const at = static_cast<const volatile std::byte*>(from);
  for (std::int64_t i = 0; i < bytes; i += kLine) static_cast<void>(at[i]);
}

// The rows of a call, and the groups that they belong to.
struct Rows {
  const std::byte* data;
  std::int64_t element_bytes;
  std::int64_t count;
  const Grouping& grouping;

  const std::byte* At(std::int64_t row) const { return data + row * element_bytes; }
  // The groups of rows [begin, end); those that are computed are written to `room`.
  const std::uint32_t* Ids(std::int64_t begin, std::int64_t end, std::uint32_t* room) const {
    if (grouping.ids != nullptr) return grouping.ids + begin;
    grouping.in_place->Ids(begin, end, room);
    return room;
  }
  // Whether most rows have groups of which, or next to which, others nearby have been: sorted keys, or few that most
  // rows have. Then their entries are in the cache. Of some rows.
  bool StayNear(std::int64_t entry_bytes) const {
    constexpr std::int64_t kStretches = 8, kLines = kCacheBytes / kLine;
    std::array<std::uint32_t, kLines> seen;  // the line that was last in its place
    seen.fill(kNoGroup);
    std::int64_t near = 0, looks = 0;
    for (std::int64_t s = 0; s < kStretches; ++s) {
      const std::int64_t begin = s * (count / kStretches), end = std::min(count, begin + kIdsAtOnce);
      std::uint32_t room[kIdsAtOnce];
      const std::uint32_t* const ids = Ids(begin, end, room);
      for (std::int64_t i = 0; i < end - begin; ++i) {
        const auto line = static_cast<std::uint32_t>(ids[i] * entry_bytes / kLine);
        near += std::exchange(seen[line % kLines], line) == line;
      }
      looks += end - begin;
    }
    return 2 * near > looks;
  }
};

// Allocates the tables and chooses which thread adds which rows to which of them. That does not depend on the dtype or
// on the kind of entry, so it is compiled once; TablesOf has the loops over rows.
class Tables : public KeyTables {
 public:
  Tables(std::int64_t element_bytes, std::int64_t entry_bytes)
      : element_bytes_(element_bytes), entry_bytes_(entry_bytes) {}

  // Adds all rows. False: a table would be too large.
  absl::StatusOr<bool> Fill(const std::byte* data, std::int64_t count, const Grouping& grouping,
                            const GroupingContext& context) {
    const std::int64_t groups = grouping.groups;
    const Rows rows{data, element_bytes_, count, grouping};
    const std::int64_t table = groups * entry_bytes_;
    const std::int64_t most = std::max(kSmallTables, count * kMostBytesOfRow);
    const std::int64_t threads = context.arena.max_concurrency();
    const std::int64_t ways = groups <= kFewGroups ? kWays : 1;
    tables_ = std::min(threads, count / kRowsBetweenLooks + 1) * ways;
    const bool direct = tables_ * table <= most && (table <= kLargeTable || rows.StayNear(entry_bytes_));
    if (!direct) {
      const auto enough = [&] {
        return by_.room(groups) * entry_bytes_ <= kCacheBytes && by_.parts() >= kThreadParts * threads;
      };
      while (by_.bits < GroupParts::kMostBits && !enough()) ++by_.bits;
      tables_ = 1;
      const std::int64_t rows_bytes = table;  // of those that are in parts at a time
      if (table + rows_bytes > most || by_.room(groups) > KeyParts::kMostGroups) return false;
    }
    room_ = by_.room(groups);
    const std::int64_t bytes = tables_ * by_.parts() * room_ * entry_bytes_;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = AllocateCpuArray(bytes, context.budget);
    if (!memory.ok()) return memory.status();
    memory_ = *std::move(memory);
    absl::Status status = direct ? AddDirectly(rows, ways, context) : AddInParts(rows, context);
    if (status.ok() && grouping.in_place != nullptr) status = grouping.in_place->Check();
    if (!status.ok()) return status;
    return true;
  }

 protected:
  // Adds rows [begin, end), whose groups are `ids`, to one table, or in turn to the kWays tables that lie from
  // `entries` on.
  virtual void Add(const std::byte* data, const std::uint32_t* ids, std::int64_t begin, std::int64_t end,
                   std::byte* entries, std::int64_t ways) const = 0;
  // Adds the rows of a part of a sorted block, whose first row is `first`, to the entries of that part.
  virtual void AddPart(const KeyParts& rows, std::int64_t block, std::int64_t part, std::uint32_t first,
                       std::byte* entries) const = 0;

  // The entries of a part of a table.
  std::byte* Part(std::int64_t table, std::int64_t part) const {
    return static_cast<std::byte*>(const_cast<void*>(memory_->array().data)) +
           (table * by_.parts() + part) * room_ * entry_bytes_;
  }
  const GroupParts& by() const { return by_; }
  std::int64_t room() const { return room_; }
  std::int64_t tables() const { return tables_; }

 private:
  // Each thread adds a stretch of rows to tables of its own.
  absl::Status AddDirectly(const Rows& rows, std::int64_t ways, const GroupingContext& context) {
    const std::int64_t stretches = tables_ / ways;
    const std::int64_t stretch = (rows.count + stretches - 1) / stretches;
    return ForAll(stretches, context.arena, [&](std::int64_t s) -> absl::Status {
      const std::int64_t end = std::min(rows.count, (s + 1) * stretch);
      for (std::int64_t row = s * stretch; row < end; row += kRowsBetweenLooks) {
        if (const absl::Status status = context.why_stop(); !status.ok()) return status;
        const std::int64_t stop = std::min(end, row + kRowsBetweenLooks);
        std::uint32_t room[kIdsAtOnce];
        for (std::int64_t first = row; first < stop; first += kIdsAtOnce) {
          const std::int64_t last = std::min(stop, first + kIdsAtOnce);
          Add(rows.data, rows.Ids(first, last, room), first, last, Part(s * ways, 0), ways);
        }
      }
      return absl::OkStatus();
    });
  }

  // All threads add to one table, each to a part of it.
  absl::Status AddInParts(const Rows& rows, const GroupingContext& context) {
    constexpr std::int64_t kBlockRows = KeyParts::kBlockRows;
    const auto blocks_of = [](std::int64_t count) { return (count + kBlockRows - 1) / kBlockRows; };
    // As many rows at a time as take the memory of the table, each part of which is fetched for them.
    const std::int64_t at_once = by_.parts() * room_ * entry_bytes_ / KeyParts::RowBytes(element_bytes_);
    const std::int64_t most = blocks_of(std::min(rows.count, at_once));
    absl::StatusOr<KeyParts> parts = KeyParts::Make(by_, element_bytes_, most, context.budget);
    if (!parts.ok()) return parts.status();
    for (std::int64_t begin = 0; begin < rows.count; begin += most * kBlockRows) {
      const std::int64_t blocks = std::min(most, blocks_of(rows.count - begin));
      absl::Status status = ForAll(blocks, context.arena, [&](std::int64_t block) {
        absl::Status why = context.why_stop();
        if (!why.ok()) return why;
        const std::int64_t first = begin + block * kBlockRows, last = std::min(rows.count, first + kBlockRows);
        std::uint32_t room[kBlockRows];
        parts->Sort(block, rows.At(first), rows.Ids(first, last, room), last - first);
        return why;
      });
      if (!status.ok()) return status;
      status = ForAll(by_.parts(), context.arena, [&](std::int64_t part) {
        absl::Status why = context.why_stop();
        if (!why.ok()) return why;
        std::byte* const entries = Part(0, part);
        if (begin > 0) Fetch(entries, room_ * entry_bytes_);
        for (std::int64_t block = 0; block < blocks; ++block) {
          AddPart(*parts, block, part, static_cast<std::uint32_t>(begin + block * kBlockRows), entries);
        }
        return why;
      });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const std::int64_t element_bytes_;
  const std::int64_t entry_bytes_;
  // These are set by Fill.
  GroupParts by_;
  std::int64_t room_ = 0;  // for groups, in each part
  std::int64_t tables_ = 0;
  std::unique_ptr<ArrayMemory> memory_;  // the entries of each table, each part
};

template <class T, EntryKind kKind>
class TablesOf final : public Tables {
 public:
  explicit TablesOf(const KeyTablesWanted& wanted)
      : Tables(sizeof(T), kEach),
        omit_nans_(wanted.omit_nans),
        rules_{.flip = wanted.lowest ? kAllBits : 0, .nan = wanted.omit_nans ? 0 : kAllBits} {}

  void Load(std::int64_t first, std::int64_t count, QuickFound* found, std::int64_t* counts) const override {
    QuickExtrema* const extrema = &found->extrema;
    extrema->any_nan = false;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t part = (first + i) & (by().parts() - 1), number = (first + i) >> by().bits;
      Each entry = Entries(Part(0, part))[number];
      for (std::int64_t t = 1; t < tables(); ++t) entry.Merge(Entries(Part(t, part))[number]);
      if constexpr (kKind.sums) entry.sum.Store(i, &found->of(Term::kElement));
      if constexpr (kKind.squares) entry.squares.Store(i, &found->of(Term::kSquare));
      if constexpr (kKind.sides > 0) {
        entry.extrema.Store(i, rules_, extrema);
        counts[i] = entry.extrema.empty() ? 0 : 1;
        extrema->has_nan[i] = extrema->has_nan[i] || counts[i] == 0;
        extrema->any_nan = extrema->any_nan || extrema->has_nan[i];
      }
      if constexpr (kKind.counts) {
        counts[i] = entry.count;
        if constexpr (kIsFloat<T>) {
          found->of(Term::kNan).sum[i] = static_cast<double>(entry.nans);
          if (omit_nans_) counts[i] += entry.nans;
        }
      }
    }
  }

 private:
  using Each = Entry<T, kKind>;
  static constexpr std::int64_t kEach = sizeof(Each);
  static constexpr auto kAllBits = static_cast<typename ExtremaRules<T>::Word>(~typename ExtremaRules<T>::Word{0});

  static Each* Entries(std::byte* part) { return reinterpret_cast<Each*>(part); }

  void Add(const std::byte* data, const std::uint32_t* ids, std::int64_t begin, std::int64_t end, std::byte* entries,
           std::int64_t ways) const override {
    if (ways == 1) {
      AddRows<1>(data, ids, begin, end, Entries(entries));
    } else {
      AddRows<kWays>(data, ids, begin, end, Entries(entries));
    }
  }

  template <std::int64_t kTables>
  void AddRows(const std::byte* data, const std::uint32_t* ids, std::int64_t begin, std::int64_t end,
               Each* tables) const {
    const bool fetch = room() * kEach > kCacheBytes;
    for (std::int64_t row = begin; row < end; ++row) {
      if (fetch && row + kFetchAhead < end && ids[row - begin + kFetchAhead] != kNoGroup) {
        __builtin_prefetch(tables + ids[row - begin + kFetchAhead], /*rw=*/1);
      }
      const std::uint32_t id = ids[row - begin];
      if (id == kNoGroup) continue;
      T x;
      std::memcpy(&x, data + row * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      tables[row % kTables * room() + id].Add(x, static_cast<std::uint32_t>(row), omit_nans_, rules_);
    }
  }

  void AddPart(const KeyParts& rows, std::int64_t block, std::int64_t part, std::uint32_t first,
               std::byte* entries) const override {
    Each* const table = Entries(entries);
    rows.ForRows<T>(block, part, first,
                    [&](std::uint32_t group, T x, std::uint32_t row) { table[group].Add(x, row, omit_nans_, rules_); });
  }

  const bool omit_nans_;
  const ExtremaRules<T> rules_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeyTables>> MakeKeyTables(DType dtype, const std::byte* data, std::int64_t rows,
                                                         const Grouping& grouping, KeyTablesWanted wanted,
                                                         const GroupingContext& context) {
  std::unique_ptr<Tables> tables = VisitDType(dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Tables> {
    if constexpr (kIsF8<T>) {
      return nullptr;  // QuickAnswers finds what is widened
    } else {
      const auto make = [&]<EntryKind kKind>() -> std::unique_ptr<Tables> {
        return std::make_unique<TablesOf<T, kKind>>(wanted);
      };
      const bool extrema = wanted.lowest || wanted.highest;
      if (!wanted.sums && !wanted.squares) {
        if (!extrema) return make.template operator()<EntryKind{.counts = true}>();
        if (wanted.counts) return make.template operator()<EntryKind{.counts = true, .sides = 2}>();
        return wanted.lowest && wanted.highest ? make.template operator()<EntryKind{.sides = 2}>()
                                               : make.template operator()<EntryKind{.sides = 1}>();
      }
      if constexpr (kIsFloat<T> || sizeof(T) <= 4) {
        constexpr EntryKind kSums{.counts = true, .sums = true},
            kMoments{.counts = true, .sums = true, .squares = true};
        constexpr EntryKind kSumsAnd{.counts = true, .sums = true, .sides = 2};
        constexpr EntryKind kAll{.counts = true, .sums = true, .squares = true, .sides = 2};
        if (wanted.squares) return extrema ? make.template operator()<kAll>() : make.template operator()<kMoments>();
        return extrema ? make.template operator()<kSumsAnd>() : make.template operator()<kSums>();
      } else {
        return nullptr;  // sums of 64-bit integers may need more than 64 bits
      }
    }
  });
  if (tables == nullptr) return nullptr;
  const absl::StatusOr<bool> filled = tables->Fill(data, rows, grouping, context);
  if (!filled.ok()) return filled.status();
  if (!*filled) return nullptr;
  return tables;
}

}  // namespace reduced
