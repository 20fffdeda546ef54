// Sorts rows by parts of a table of groups. Then the rows of one part are added while that part is in the L2 cache; in
// the order in which they lie, each row would wait for an entry of a table that is larger than the cache.
//
// A block of rows, which stays in the L2 cache too, is sorted into the parts by counting. Part p has the groups p,
// p + parts, p + 2 parts, ...: groups with many rows are often neighbours. A row is moved with its element, since
// reading it again from where it was would take a cache line of its own.
//
// Source: S. Manegold, P. Boncz, M. Kersten, "Optimizing main-memory join on modern hardware" (2002), for radix
// partitioning.
#ifndef REDUCED_KERNELS_CPU_KEY_PARTS_H_
#define REDUCED_KERNELS_CPU_KEY_PARTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/grouping.h"

namespace reduced {

// The groups of each part: group g is number g >> bits of part g % (1 << bits).
struct GroupParts {
  static constexpr int kMostBits = 10;

  int bits = 0;

  std::int64_t parts() const { return std::int64_t{1} << bits; }
  // Room for so many groups in each part: an odd number, since entries a power of two apart, as neighbouring groups
  // would have, share a set of a cache.
  std::int64_t room(std::int64_t groups) const { return ((groups >> bits) + 1) | 1; }
};

// Some blocks of rows of elements of type T. Blocks may be sorted, and then read, by several threads at once.
template <class T>
class KeyParts {
 public:
  static constexpr int kRowBits = 14;
  static constexpr std::int64_t kBlockRows = std::int64_t{1} << kRowBits;
  // Of a part: as its number lies beside that of the row in 32 bits.
  static constexpr std::int64_t kMostGroups = std::int64_t{1} << (32 - kRowBits);
  static constexpr std::int64_t kRowBytes = sizeof(T) + sizeof(std::uint32_t);

  // RESOURCE_EXHAUSTED: there is no memory.
  static absl::StatusOr<KeyParts> Make(GroupParts by, std::int64_t blocks, ArrayBudget& budget) {
    const std::int64_t starts = blocks * (by.parts() + 1);
    const std::int64_t rows = blocks * kBlockRows;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory =
        AllocateCpuArray(rows * kRowBytes + starts * static_cast<std::int64_t>(sizeof(std::uint32_t)), budget);
    if (!memory.ok()) return memory.status();
    return KeyParts(by, rows, *std::move(memory));
  }

  // Sorts the rows of a block, at most kBlockRows with neighbouring elements from `elements` on. `ids`: of each, or
  // kNoGroup.
  void Sort(std::int64_t block, const std::byte* elements, const std::uint32_t* ids, std::int64_t rows) {
    const std::uint32_t parts = static_cast<std::uint32_t>(by_.parts());
    // Rows without a group are a part of their own, the last.
    const auto part_of = [parts](std::uint32_t id) { return id == kNoGroup ? parts : id & (parts - 1); };
    std::array<std::uint32_t, (1 << GroupParts::kMostBits) + 1> at{};
    for (std::int64_t i = 0; i < rows; ++i) ++at[part_of(ids[i])];
    std::uint32_t* const starts = Starts(block);
    std::uint32_t start = 0;
    for (std::uint32_t part = 0; part <= parts; ++part) {
      starts[part] = start;
      start += std::exchange(at[part], start);
    }
    // First to where it stays in the cache: writes all over memory that is not there would wait for it.
    struct Sorted {
      T elements[kBlockRows];
      std::uint32_t places[kBlockRows];
    };
    thread_local const std::unique_ptr<Sorted> sorted = std::make_unique<Sorted>();
    Sorted& here = *sorted;
    const int bits = by_.bits;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::uint32_t to = at[part_of(ids[i])]++;
      here.places[to] = (ids[i] >> bits) << kRowBits | static_cast<std::uint32_t>(i);
      std::memcpy(here.elements + to, elements + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    }
    std::memcpy(elements_ + block * kBlockRows, here.elements, static_cast<std::size_t>(rows) * sizeof(T));
    std::memcpy(places_ + block * kBlockRows, here.places, static_cast<std::size_t>(rows) * sizeof(std::uint32_t));
  }

  // Calls `add(number of the group in the part, element, row)` for the rows of a part in a sorted block, whose first
  // row is `first`, in their order.
  template <class Add>
  void ForRows(std::int64_t block, std::int64_t part, std::uint32_t first, const Add& add) const {
    const std::uint32_t* const starts = Starts(block);
    const std::uint32_t* const places = places_ + block * kBlockRows;
    const T* const sorted = elements_ + block * kBlockRows;
    for (std::uint32_t i = starts[part], end = starts[part + 1]; i < end; ++i) {
      add(places[i] >> kRowBits, sorted[i], first + places[i] % kBlockRows);
    }
  }

 private:
  KeyParts(GroupParts by, std::int64_t rows, std::unique_ptr<ArrayMemory> memory)
      : by_(by),
        memory_(std::move(memory)),
        elements_(static_cast<T*>(const_cast<void*>(memory_->array().data))),
        places_(reinterpret_cast<std::uint32_t*>(elements_ + rows)),
        starts_(places_ + rows) {}

  // Of each part, and where the last one ends.
  std::uint32_t* Starts(std::int64_t block) const { return starts_ + block * (by_.parts() + 1); }

  GroupParts by_;
  std::unique_ptr<ArrayMemory> memory_;
  T* elements_;
  std::uint32_t* places_;
  std::uint32_t* starts_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_KEY_PARTS_H_
