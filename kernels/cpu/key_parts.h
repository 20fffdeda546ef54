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

// Some blocks of rows. Blocks may be sorted, and then read, by several threads at once. Only the width of an element
// matters here: a class for each dtype would take long to compile.
class KeyParts {
 public:
  static constexpr int kRowBits = 14;
  static constexpr std::int64_t kBlockRows = std::int64_t{1} << kRowBits;
  // Of a part: as its number lies beside that of the row in 32 bits.
  static constexpr std::int64_t kMostGroups = std::int64_t{1} << (32 - kRowBits);

  // The memory that a row takes.
  static constexpr std::int64_t RowBytes(std::int64_t element_bytes) {
    return element_bytes + static_cast<std::int64_t>(sizeof(std::uint32_t));
  }

  // `element_bytes`: 1, 2, 4 or 8. RESOURCE_EXHAUSTED: there is no memory.
  static absl::StatusOr<KeyParts> Make(GroupParts by, std::int64_t element_bytes, std::int64_t blocks,
                                       ArrayBudget& budget) {
    const std::int64_t starts = blocks * (by.parts() + 1);
    const std::int64_t rows = blocks * kBlockRows;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = AllocateCpuArray(
        rows * RowBytes(element_bytes) + starts * static_cast<std::int64_t>(sizeof(std::uint32_t)), budget);
    if (!memory.ok()) return memory.status();
    return KeyParts(by, element_bytes, rows, *std::move(memory));
  }

  // Sorts the rows of a block, at most kBlockRows with neighbouring elements from `elements` on. `ids`: of each, or
  // kNoGroup.
  void Sort(std::int64_t block, const std::byte* elements, const std::uint32_t* ids, std::int64_t rows) {
    switch (element_bytes_) {
      case 1:
        return SortElements<std::uint8_t>(block, elements, ids, rows);
      case 2:
        return SortElements<std::uint16_t>(block, elements, ids, rows);
      case 4:
        return SortElements<std::uint32_t>(block, elements, ids, rows);
      default:
        return SortElements<std::uint64_t>(block, elements, ids, rows);
    }
  }

  // Calls `add(number of the group in the part, element, row)` for the rows of a part in a sorted block, whose first
  // row is `first`, in their order. Their elements are of type T.
  template <class T, class Add>
  void ForRows(std::int64_t block, std::int64_t part, std::uint32_t first, const Add& add) const {
    const std::uint32_t* const starts = Starts(block);
    const std::uint32_t* const places = places_ + block * kBlockRows;
    const T* const sorted = reinterpret_cast<const T*>(elements_) + block * kBlockRows;
    for (std::uint32_t i = starts[part], end = starts[part + 1]; i < end; ++i) {
      add(places[i] >> kRowBits, sorted[i], first + places[i] % kBlockRows);
    }
  }

 private:
  KeyParts(GroupParts by, std::int64_t element_bytes, std::int64_t rows, std::unique_ptr<ArrayMemory> memory)
      : by_(by),
        element_bytes_(element_bytes),
        memory_(std::move(memory)),
        elements_(static_cast<std::byte*>(const_cast<void*>(memory_->array().data))),
        places_(reinterpret_cast<std::uint32_t*>(elements_ + rows * element_bytes)),
        starts_(places_ + rows) {}

  // Of elements as wide as Word.
  template <class Word>
  void SortElements(std::int64_t block, const std::byte* elements, const std::uint32_t* ids, std::int64_t rows) {
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
      Word elements[kBlockRows];
      std::uint32_t places[kBlockRows];
    };
    thread_local const std::unique_ptr<Sorted> sorted = std::make_unique<Sorted>();
    Sorted& here = *sorted;
    const int bits = by_.bits;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::uint32_t to = at[part_of(ids[i])]++;
      here.places[to] = (ids[i] >> bits) << kRowBits | static_cast<std::uint32_t>(i);
      std::memcpy(here.elements + to, elements + i * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
    }
    std::memcpy(elements_ + block * kBlockRows * element_bytes_, here.elements,
                static_cast<std::size_t>(rows) * sizeof(Word));
    std::memcpy(places_ + block * kBlockRows, here.places, static_cast<std::size_t>(rows) * sizeof(std::uint32_t));
  }

  // Of each part, and where the last one ends.
  std::uint32_t* Starts(std::int64_t block) const { return starts_ + block * (by_.parts() + 1); }

  GroupParts by_;
  std::int64_t element_bytes_;
  std::unique_ptr<ArrayMemory> memory_;
  std::byte* elements_;
  std::uint32_t* places_;
  std::uint32_t* starts_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_KEY_PARTS_H_
