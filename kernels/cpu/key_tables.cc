#include "kernels/cpu/key_tables.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/order_key.h"
#include "kernels/cpu/arrays.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

constexpr std::int64_t kRowsBetweenLooks = 1 << 16;  // at whether to stop
constexpr std::int64_t kFewGroups = 64;  // then a thread has several tables, to wait less for the entry before
constexpr std::int64_t kWays = 4;
constexpr std::int64_t kIdsAtOnce = 2048;  // which stay in the L1 cache
// An entry is fetched so many rows ahead (measured), if the table is larger than half of a common L2 cache.
constexpr std::int64_t kFetchAhead = 16;
constexpr std::int64_t kCacheBytes = 512 << 10;
constexpr std::int64_t kSmallTables = 8 << 20;  // bytes: however few rows there are

template <class T>
struct FloatSum {
  double sum, rest, lost;

  void Begin(T x) {
    const double value = ToDouble(x);
    *this = {value, 0, value - value};  // lost: NaN of what isn't finite
  }
  void Add(T x) { AddExactly(ToDouble(x), &sum, &rest, &lost); }
  void Merge(const FloatSum& other) {
    AddExactly(other.sum, &sum, &rest, &lost);
    AddExactly(other.rest == 0 ? -0.0 : other.rest, &sum, &rest, &lost);  // -0 changes nothing
    lost += other.lost;
  }
  void Store(std::int64_t i, QuickSums* sums) const {
    sums->sum[i] = sum;
    sums->rest[i] = rest;
    sums->lost[i] = lost;
  }
};

// Of up to 32 bits, and fewer than 2^32 of them.
template <class T>
struct IntegerSum {
  std::uint64_t sum;  // modulo 2^64

  void Begin(T x) { sum = static_cast<std::uint64_t>(ToInteger(x)); }
  void Add(T x) { sum += static_cast<std::uint64_t>(ToInteger(x)); }
  void Merge(const IntegerSum& other) { sum += other.sum; }
  void Store(std::int64_t i, QuickSums* sums) const {
    constexpr double kMost = 0x1p53;  // of what a double holds
    const double value = kIsSigned<T> ? static_cast<double>(static_cast<std::int64_t>(sum)) : static_cast<double>(sum);
    sums->sum[i] = value;
    sums->rest[i] = 0;
    sums->lost[i] = -kMost < value && value < kMost ? 0 : 1;
  }
};

// Of floats: up to 32 bits have squares that a double holds.
template <class T>
struct FloatSquares : FloatSum<T> {
  void Begin(T x) {
    this->sum = this->rest = this->lost = 0;
    Add(x);
  }
  void Add(T x) {
    const double value = ToDouble(x);
    if constexpr (sizeof(T) == 8) {
      AddSquareExactly(value, &this->sum, &this->rest, &this->lost);
    } else {
      AddExactly(value * value, &this->sum, &this->rest, &this->lost);
    }
  }
};

// Of integers of up to 32 bits: halves of their squares, which fit.
template <class T>
struct IntegerSquares {
  std::uint64_t low, high;

  void Begin(T x) {
    low = high = 0;
    Add(x);
  }
  void Add(T x) {
    const auto value = static_cast<std::int64_t>(ToInteger(x));
    const auto square = static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(value);
    low += square & 0xffffffff;
    high += square >> 32;
  }
  void Merge(const IntegerSquares& other) {
    low += other.low;
    high += other.high;
  }
  void Store(std::int64_t i, QuickSums* sums) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 53;  // of what a double holds
    const std::uint64_t above = high + (low >> 32);
    const auto below = static_cast<double>(low & 0xffffffff);
    const TwoDoubles all = Normalized({static_cast<double>(above) * 0x1p32, below, 0});
    sums->sum[i] = all.value;
    sums->rest[i] = all.rest;
    sums->lost[i] = above <= kMost ? 0 : std::numeric_limits<double>::infinity();
  }
};

template <class T>
using SquaresEntry = std::conditional_t<kIsFloat<T>, FloatSquares<T>, IntegerSquares<T>>;

template <class T>
using SumEntry = std::conditional_t<kIsFloat<T>, FloatSum<T>, IntegerSum<T>>;

template <class T>
struct ExtremaEntry {
  using Key = typename OrderKey<T>::Type;
  Key low, high;
  std::uint32_t low_at, high_at;

  void Begin(T x, std::uint32_t row) {
    low = high = OrderKey<T>::Of(x);
    low_at = high_at = row;
  }
  void Add(T x, std::uint32_t row) {
    const Key key = OrderKey<T>::Of(x);
    const bool lower = key<low, higher = key> high;  // neither can be foreseen: without branches
    low_at = lower ? row : low_at;
    high_at = higher ? row : high_at;
    low = lower ? key : low;
    high = higher ? key : high;
  }
  // `other` may have rows before these.
  void Merge(const ExtremaEntry& other) {
    if (other.low < low || (other.low == low && other.low_at < low_at)) {
      low = other.low;
      low_at = other.low_at;
    }
    if (other.high > high || (other.high == high && other.high_at < high_at)) {
      high = other.high;
      high_at = other.high_at;
    }
  }
  void Store(std::int64_t i, QuickExtrema* extrema) const {
    std::memcpy(extrema->lowest + i * sizeof(Key), &low, sizeof(Key));
    std::memcpy(extrema->highest + i * sizeof(Key), &high, sizeof(Key));
    extrema->lowest_at[i] = low_at;
    extrema->highest_at[i] = high_at;
    extrema->has_nan[i] = false;
    if constexpr (kIsFloat<T>) extrema->has_nan[i] = high > kInfinityKey<T> || low < static_cast<Key>(~kInfinityKey<T>);
  }
};

// In place of what is not wanted: types of their own, so that they share an address.
template <int kOf>
struct Nothing {};

// All of its bytes 0: no element.
template <class T, bool kSums, bool kSquares, bool kExtrema>
struct Entry {
  std::uint32_t count;
  [[no_unique_address]] std::conditional_t<kIsFloat<T>, std::uint32_t, Nothing<3>>
      nans;  // omitted ones are not in count
  [[no_unique_address]] std::conditional_t<kSums, SumEntry<T>, Nothing<0>> sum;
  [[no_unique_address]] std::conditional_t<kSquares, SquaresEntry<T>, Nothing<1>> squares;
  [[no_unique_address]] std::conditional_t<kExtrema, ExtremaEntry<T>, Nothing<2>> extrema;

  void Add(T x, std::uint32_t row) {
    if (count++ == 0) {
      if constexpr (kSums) sum.Begin(x);
      if constexpr (kSquares) squares.Begin(x);
      if constexpr (kExtrema) extrema.Begin(x, row);
    } else {
      if constexpr (kSums) sum.Add(x);
      if constexpr (kSquares) squares.Add(x);
      if constexpr (kExtrema) extrema.Add(x, row);
    }
  }
};

template <class T, bool kSums, bool kSquares, bool kExtrema>
class Tables final : public KeyTables {
 public:
  // Null: they would be too large for most threads to have one.
  static absl::StatusOr<std::unique_ptr<KeyTables>> Make(const std::byte* data, std::int64_t rows,
                                                         const Grouping& grouping, bool omit_nans,
                                                         const GroupingContext& context) {
    const std::int64_t groups = grouping.groups;
    const std::int64_t ways = groups <= kFewGroups ? kWays : 1;
    const std::int64_t most =
        std::max<std::int64_t>(kSmallTables, rows * static_cast<std::int64_t>(sizeof(std::uint32_t)));
    const std::int64_t one = std::max<std::int64_t>(groups * ways, 1) * static_cast<std::int64_t>(sizeof(Each));
    const std::int64_t wanted = std::min<std::int64_t>(context.arena.max_concurrency(), rows / kRowsBetweenLooks + 1);
    const std::int64_t stretches = std::min(wanted, most / one);
    if (2 * stretches <= wanted && stretches < wanted) return nullptr;  // all threads fold sorted rows
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = AllocateCpuArray(stretches * one, context.budget);
    if (!memory.ok()) return memory.status();
    auto tables = std::make_unique<Tables>(groups, stretches * ways, omit_nans, *std::move(memory));
    const std::int64_t stretch = (rows + stretches - 1) / stretches;
    absl::Mutex mutex;
    absl::Status why;
    context.arena.execute([&] {
      tbb::parallel_for(std::int64_t{0}, stretches, [&](std::int64_t s) {
        const std::int64_t end = std::min(rows, (s + 1) * stretch);
        for (std::int64_t row = s * stretch; row < end; row += kRowsBetweenLooks) {
          const absl::Status status = context.why_stop();
          if (!status.ok()) {
            const absl::MutexLock lock(&mutex);
            why.Update(status);
            return;
          }
          Each* const table = tables->entries_ + s * ways * groups;
          const std::int64_t stop = std::min(end, row + kRowsBetweenLooks);
          std::uint32_t room[kIdsAtOnce];
          for (std::int64_t first = row; first < stop; first += kIdsAtOnce) {
            const std::int64_t last = std::min(stop, first + kIdsAtOnce);
            if (grouping.ids == nullptr) grouping.in_place->Ids(first, last, room);
            const std::uint32_t* const ids = grouping.ids == nullptr ? room : grouping.ids + first;
            if (ways == 1) {
              Add<1>(data, ids, first, last, groups, omit_nans, table);
            } else {
              Add<kWays>(data, ids, first, last, groups, omit_nans, table);
            }
          }
        }
      });
    });
    if (why.ok() && grouping.in_place != nullptr) why = grouping.in_place->Check();
    if (!why.ok()) return why;
    return tables;
  }

  Tables(std::int64_t groups, std::int64_t tables, bool omit_nans, std::unique_ptr<ArrayMemory> memory)
      : groups_(groups),
        tables_(tables),
        omit_nans_(omit_nans),
        memory_(std::move(memory)),
        entries_(static_cast<Each*>(const_cast<void*>(memory_->array().data))) {}

  void Load(std::int64_t first, std::int64_t count, QuickFound* found, std::int64_t* counts) const override {
    QuickExtrema* const extrema = &found->extrema;
    extrema->any_nan = false;
    for (std::int64_t i = 0; i < count; ++i) {
      Each entry{};
      std::int64_t elements = 0, nans = 0;
      for (std::int64_t t = 0; t < tables_; ++t) {
        const Each& other = entries_[t * groups_ + first + i];
        if constexpr (kIsFloat<T>) nans += other.nans;
        if (other.count == 0) continue;
        if (elements == 0) {
          entry = other;
        } else {
          if constexpr (kSums) entry.sum.Merge(other.sum);
          if constexpr (kSquares) entry.squares.Merge(other.squares);
          if constexpr (kExtrema) entry.extrema.Merge(other.extrema);
        }
        elements += other.count;
      }
      counts[i] = elements + (omit_nans_ ? nans : 0);
      if constexpr (kIsFloat<T>) found->of(Term::kNan).sum[i] = static_cast<double>(nans);
      if constexpr (kSums) entry.sum.Store(i, &found->of(Term::kElement));
      if constexpr (kSquares) entry.squares.Store(i, &found->of(Term::kSquare));
      if constexpr (kExtrema) {
        entry.extrema.Store(i, extrema);
        extrema->has_nan[i] = extrema->has_nan[i] || elements == 0;
        extrema->any_nan = extrema->any_nan || extrema->has_nan[i];
      }
    }
  }

 private:
  using Each = Entry<T, kSums, kSquares, kExtrema>;

  // `ids`: of rows [begin, end).
  template <std::int64_t kTables>
  static void Add(const std::byte* data, const std::uint32_t* ids, std::int64_t begin, std::int64_t end,
                  std::int64_t groups, bool omit_nans, Each* tables) {
    const bool fetch = groups * static_cast<std::int64_t>(sizeof(Each)) > kCacheBytes;
    for (std::int64_t row = begin; row < end; ++row) {
      if (fetch && row + kFetchAhead < end && ids[row - begin + kFetchAhead] != kNoGroup) {
        __builtin_prefetch(tables + ids[row - begin + kFetchAhead], /*rw=*/1);
      }
      const std::uint32_t id = ids[row - begin];
      if (id == kNoGroup) continue;
      T x;
      std::memcpy(&x, data + row * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      Each& entry = tables[row % kTables * groups + id];
      if constexpr (kIsFloat<T>) {
        const bool nan = IsNan(x);
        entry.nans += nan ? 1 : 0;
        if (nan && omit_nans) continue;
      }
      entry.Add(x, static_cast<std::uint32_t>(row));
    }
  }

  const std::int64_t groups_;
  const std::int64_t tables_;
  const bool omit_nans_;
  const std::unique_ptr<ArrayMemory> memory_;
  Each* const entries_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeyTables>> MakeKeyTables(DType dtype, const std::byte* data, std::int64_t rows,
                                                         const Grouping& grouping, KeyTablesWanted wanted,
                                                         const GroupingContext& context) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) -> absl::StatusOr<std::unique_ptr<KeyTables>> {
    const auto make = [&]<bool... kWanted>(std::integer_sequence<bool, kWanted...>) {
      return Tables<T, kWanted...>::Make(data, rows, grouping, wanted.omit_nans, context);
    };
    if (!wanted.sums && !wanted.squares) return make(std::integer_sequence<bool, false, false, true>());
    if constexpr (kIsFloat<T> || sizeof(T) <= 4) {
      if (wanted.squares) {
        return wanted.extrema ? make(std::integer_sequence<bool, true, true, true>())
                              : make(std::integer_sequence<bool, true, true, false>());
      }
      return wanted.extrema ? make(std::integer_sequence<bool, true, false, true>())
                            : make(std::integer_sequence<bool, true, false, false>());
    } else {
      return nullptr;  // sums of 64-bit integers may need more than 64 bits
    }
  });
}

}  // namespace reduced
