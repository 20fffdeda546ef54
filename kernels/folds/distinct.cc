// The folds of distinct and distinct_exact. Values of 8 and 16 bits are marked in a table. Of wider ones distinct_exact
// has a set, and distinct a HyperLogLog sketch (sketch.h) with the estimator of O. Ertl, "New cardinality estimation
// algorithms for HyperLogLog sketches" (2017), algorithm 6, which needs no tables of corrections.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "kernels/algebra/sort_key.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/mode.h"
#include "kernels/folds/sketch.h"

namespace reduced {
namespace {

// Sorts keys that are equal but for their `bits` lowest bits, while nothing says to stop.
absl::Status SortWhile(const std::function<absl::Status()>& why_stop, std::span<std::uint64_t> keys, std::size_t bits) {
  constexpr std::size_t kFew = 1 << 18;
  if (absl::Status why = why_stop(); !why.ok()) return why;
  if (keys.size() <= kFew || bits == 0) return std::sort(keys.begin(), keys.end()), absl::OkStatus();
  const auto begins_with_0 = [bits](std::uint64_t key) { return (key >> (bits - 1) & 1) == 0; };
  const auto middle = std::partition(keys.begin(), keys.end(), begins_with_0);
  const auto lower = static_cast<std::size_t>(middle - keys.begin());
  if (absl::Status status = SortWhile(why_stop, keys.first(lower), bits - 1); !status.ok()) return status;
  return SortWhile(why_stop, keys.subspan(lower), bits - 1);
}

// Calls add(key) for each element that counts.
template <class T, class AddKey>
void ForKeys(const void* elements, std::int64_t count, bool omits_nans, const AddKey& add) {
  using Key = SortKey<T>;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto key = Key::OfValue(ElementAt<T>(elements, i));
    if (kIsFloat<T> && omits_nans && key == Key::kNan) continue;
    add(key);
  }
}

// A number of type Table::Cell for each of some keys, or hashes of keys: what elements do to it is the table's to say.
template <class Table>
class TableFold final : public FoldOf<TableFold<Table>> {
 public:
  TableFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf<TableFold>(call, spec, limits), cells_(limits) {}

  absl::Status Begin(std::int64_t /*count*/) override { return cells_.Zero(Table::kCells); }
  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t /*first*/, std::int64_t count) override {
    auto* const cells = cells_.data();
    ForKeys<typename Table::Element>(elements, count, !Table::kCountsNans && this->omits_nans(),
                                     [cells](auto key) { Table::Add(key, cells); });
    return absl::OkStatus();
  }
  absl::Status Merge(DistributionFold& part) override {
    const auto& more = static_cast<TableFold&>(part).cells_;
    for (std::size_t i = 0; i < Table::kCells; ++i) cells_[i] = Table::Merged(cells_[i], more[i]);
    return absl::OkStatus();
  }
  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    return Table::Finish(this->call_, this->spec_,
                         std::span<typename Table::Cell, Table::kCells>(cells_.data(), Table::kCells), answers);
  }
  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    for (std::size_t i = 0; i < Table::kCells; ++i) {
      if (cells_[i] == 0) continue;
      to->keys.push_back(i);
      if (to->rule != EntriesRule::kUnion) to->values.push_back(cells_[i]);
    }
    return absl::OkStatus();
  }
  absl::Status Load(const Entries& from) override {
    if (absl::Status status = Begin(0); !status.ok()) return status;
    for (std::size_t i = 0; i < from.keys.size(); ++i) {
      cells_[from.keys[i]] = static_cast<typename Table::Cell>(from.values.empty() ? 1 : from.values[i]);
    }
    return absl::OkStatus();
  }

 private:
  FoldArray<typename Table::Cell> cells_;
};

// Which values of 8 or 16 bits there are.
template <class T>
struct Marks {
  using Element = T;
  using Cell = std::uint8_t;
  static constexpr std::size_t kCells = std::size_t{1} << SortKey<T>::kBits;
  static constexpr bool kCountsNans = false;
  static void Add(std::size_t key, Cell* cells) { cells[key] = 1; }
  static Cell Merged(Cell a, Cell b) { return a | b; }
  static absl::Status Finish(const OpCall&, const ReduceSpec&, std::span<Cell> cells, std::byte* answers) {
    StoreAt(static_cast<std::uint64_t>(std::count(cells.begin(), cells.end(), 1)), 0, answers);
    return absl::OkStatus();
  }
};

// The registers of a sketch.
template <class T>
struct Registers {
  using Element = T;
  using Cell = std::uint8_t;
  static constexpr std::size_t kCells = kRegisters;
  static constexpr bool kCountsNans = false;
  static void Add(std::uint64_t key, Cell* cells) {
    const std::uint64_t hash = HashOf(key);
    Cell& most = cells[RegisterOf(hash)];
    most = std::max(most, static_cast<Cell>(ZerosOf(hash)));
  }
  static Cell Merged(Cell a, Cell b) { return std::max(a, b); }
  static absl::Status Finish(const OpCall&, const ReduceSpec&, std::span<Cell, kCells> cells, std::byte* answers) {
    StoreAt(EstimateDistinct(cells), 0, answers);
    return absl::OkStatus();
  }
};

// How many elements have each value of 8 or 16 bits.
template <class T>
struct Counts {
  using Element = T;
  using Cell = std::uint64_t;
  static constexpr std::size_t kCells = std::size_t{1} << SortKey<T>::kBits;
  static constexpr bool kCountsNans = true;
  static void Add(std::size_t key, Cell* cells) { ++cells[key]; }
  static Cell Merged(Cell a, Cell b) { return a + b; }
  static absl::Status Finish(const OpCall& call, const ReduceSpec& spec, std::span<Cell> cells, std::byte* answers) {
    return FinishMode<T>(call, spec, cells, answers);
  }
};

// A set of keys by open addressing, at most half full.
template <class T>
class ValueSet final : public FoldOf<ValueSet<T>> {
 public:
  using Word = typename SortKey<T>::Type;

  ValueSet(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf<ValueSet>(call, spec, limits), slots_(limits) {}

  absl::Status Begin(std::int64_t /*count*/) override {
    // Clearing a table that many outputs ago had to be large takes longer than to let it grow again.
    if (slots_.size() > kLeast && used_ < slots_.size() / 16) slots_.Clear();
    used_ = 0;
    has_zero_ = false;
    for (std::int64_t begin = 0; begin < slots_.size(); begin += kLook) {
      if (begin > 0) {
        if (absl::Status why = limits_.why_stop(); !why.ok()) return why;
      }
      std::fill_n(slots_.begin() + begin, std::min(kLook, slots_.size() - begin), Word{0});
    }
    return absl::OkStatus();
  }
  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t /*first*/, std::int64_t count) override {
    absl::Status status;
    std::array<Word, kBatch> keys;
    std::size_t has = 0;
    const auto flush = [&] {
      if (status.ok()) status = Insert(keys.data(), std::exchange(has, 0));
    };
    ForKeys<T>(elements, count, this->omits_nans(), [&](Word key) {
      if (key == last_ && key != 0) return;
      last_ = key;
      keys[has++] = key;
      if (has == kBatch) flush();
      has %= kBatch;
    });
    flush();
    last_ = Word{0};
    return status;
  }

  absl::Status Merge(DistributionFold& part) override {
    auto& other = static_cast<ValueSet&>(part);
    if (other.slots_.size() > slots_.size()) {
      std::swap(slots_, other.slots_);
      std::swap(used_, other.used_);
    }
    has_zero_ = has_zero_ || other.has_zero_;
    std::array<Word, kBatch> keys;
    std::size_t has = 0;
    const auto flush = [&] { return Insert(keys.data(), std::exchange(has, 0)); };
    absl::Status status = ForSlots(other.slots_, [&](Word key) {
      keys[has++] = key;
      return has == kBatch ? flush() : absl::OkStatus();
    });
    if (status.ok()) status = flush();
    other.slots_.Clear();
    return status;
  }

  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    StoreAt(static_cast<std::uint64_t>(used_ + (has_zero_ ? 1 : 0)), 0, answers);
    return absl::OkStatus();
  }
  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    FoldLease lease(limits_);  // until the caller counts what it gets
    absl::Status status = lease.Hold((used_ + 1) * std::int64_t{sizeof(std::uint64_t)});
    if (!status.ok()) return status;
    to->keys.reserve(static_cast<std::size_t>(used_) + 1);
    if (has_zero_) to->keys.push_back(0);
    status = ForSlots(slots_, [to](Word key) {
      to->keys.push_back(key);
      return absl::OkStatus();
    });
    if (status.ok()) status = SortWhile(limits_.why_stop, std::span(to->keys), 8 * sizeof(Word));
    return status;
  }
  absl::Status Load(const Entries& from) override {  // how many they are is all that is asked
    slots_.Clear();
    used_ = std::ssize(from.keys);
    has_zero_ = false;
    return absl::OkStatus();
  }

 private:
  static constexpr std::size_t kBatch = 64;           // keys whose slots are fetched ahead
  static constexpr std::int64_t kLeast = 1024;        // slots
  static constexpr std::int64_t kLook = 64 * kLeast;  // slots between two looks at the deadline

  // Calls each(key), which returns a status, for the keys in `slots`.
  template <class Each>
  absl::Status ForSlots(const FoldArray<Word>& slots, const Each& each) const {
    for (std::int64_t i = 0; i < slots.size(); ++i) {
      if (i % kLook == kLook - 1) {
        if (absl::Status why = limits_.why_stop(); !why.ok()) return why;
      }
      if (slots.data()[i] == 0) continue;
      if (absl::Status status = each(slots.data()[i]); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // A different one in each process, so that nobody can make keys that all have the same.
  static std::uint64_t PlaceOf(Word key) {
    static const std::uint64_t seed = std::random_device()() * std::uint64_t{0x9e3779b97f4a7c15};
    return HashOf(key ^ seed);
  }

  // Inserts at most kBatch keys.
  absl::Status Insert(const Word* keys, std::size_t count) {
    if (2 * (used_ + static_cast<std::int64_t>(count)) > slots_.size()) {
      if (absl::Status status = Grow(); !status.ok()) return status;
    }
    const auto mask = static_cast<std::size_t>(slots_.size() - 1);
    std::size_t at[kBatch];
    for (std::size_t i = 0; i < count; ++i) {
      at[i] = PlaceOf(keys[i]) & mask;
      __builtin_prefetch(&slots_[at[i]], 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (keys[i] == 0) {
        has_zero_ = true;
        continue;
      }
      std::size_t slot = at[i];
      while (slots_[slot] != 0 && slots_[slot] != keys[i]) slot = (slot + 1) & mask;
      used_ += slots_[slot] == 0 ? 1 : 0;
      slots_[slot] = keys[i];
    }
    return absl::OkStatus();
  }

  absl::Status Grow() {
    FoldArray<Word> slots(limits_);
    if (absl::Status status = slots.Zero(std::max(kLeast, 2 * slots_.size())); !status.ok()) return status;
    const auto mask = static_cast<std::size_t>(slots.size() - 1);
    absl::Status status = ForSlots(slots_, [&](Word key) {
      std::size_t slot = PlaceOf(key) & mask;
      while (slots[slot] != 0) slot = (slot + 1) & mask;
      slots[slot] = key;
      return absl::OkStatus();
    });
    if (status.ok()) slots_ = std::move(slots);
    return status;
  }

  using FoldOf<ValueSet>::limits_;
  FoldArray<Word> slots_;  // 0: free; the key 0 is told by has_zero_
  std::int64_t used_ = 0;
  bool has_zero_ = false;
  Word last_ = 0;  // the key before this one, or 0: runs of equal values are common
};

double Sigma(double x) {
  if (x == 1) return std::numeric_limits<double>::infinity();
  double y = 1, z = x, before = -1;
  while (z != before) {
    x *= x;
    before = z;
    z += x * y;
    y += y;
  }
  return z;
}
double Tau(double x) {
  if (x == 0 || x == 1) return 0;
  double y = 1, z = 1 - x, before = -1;
  while (z != before) {
    x = std::sqrt(x);
    before = z;
    y *= 0.5;
    z -= (1 - x) * (1 - x) * y;
  }
  return z / 3;
}

}  // namespace

std::uint64_t EstimateDistinct(std::span<const std::uint8_t, kRegisters> registers) {
  constexpr int kMost = 64 - kSketchBits;      // leading zeros
  std::array<std::int64_t, kMost + 2> with{};  // how many registers have each value
  for (const std::uint8_t value : registers) ++with[value];
  constexpr double m = kRegisters;
  double z = m * Tau(1 - static_cast<double>(with[kMost + 1]) / m);
  for (int value = kMost; value > 0; --value) z = 0.5 * (z + static_cast<double>(with[value]));
  z += m * Sigma(static_cast<double>(with[0]) / m);
  constexpr double kTwiceLog2 = 1.386294361119890618834464242916;
  const double estimate = m / kTwiceLog2 * m / z;
  return static_cast<std::uint64_t>(std::nearbyint(estimate));
}

std::unique_ptr<DistributionFold> MakeDistinctFold(const OpCall& call, const ReduceSpec& spec,
                                                   const FoldLimits& limits) {
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<DistributionFold> {
    if constexpr (sizeof(T) <= 2) {
      return std::make_unique<TableFold<Marks<T>>>(call, spec, limits);
    } else {
      if (call.op == Op::kDistinct) return std::make_unique<TableFold<Registers<T>>>(call, spec, limits);
      return std::make_unique<ValueSet<T>>(call, spec, limits);
    }
  });
}

std::unique_ptr<DistributionFold> MakeModeFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits) {
  return VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<DistributionFold> {
    if constexpr (sizeof(T) <= 2) return std::make_unique<TableFold<Counts<T>>>(call, spec, limits);
    return nullptr;  // not of these dtypes
  });
}

}  // namespace reduced
