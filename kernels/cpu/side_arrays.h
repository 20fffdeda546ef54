// Arrays beside the one that is reduced, in host memory: bounds, keys and masks, and what the CPU and CUDA engines make
// of them there.
#ifndef REDUCED_KERNELS_CPU_SIDE_ARRAYS_H_
#define REDUCED_KERNELS_CPU_SIDE_ARRAYS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/grouping.h"
#include "kernels/engine/array.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/partition.h"

namespace reduced {

// A mask in memory. Others may change it meanwhile.
class MaskView {
 public:
  MaskView() = default;
  MaskView(const Mask& mask, const std::byte* data)
      : data_(reinterpret_cast<const std::uint8_t*>(data)), bits_(mask.bits), first_bit_(mask.first_bit) {}

  explicit operator bool() const { return data_ != nullptr; }

  bool Keeps(std::int64_t index) const {
    if (!bits_) return data_[index] != 0;
    const std::int64_t bit = first_bit_ + index;
    return (data_[bit / 8] >> (bit % 8) & 1) != 0;
  }

  // How many of the elements from `index` on are kept.
  std::int64_t Count(std::int64_t index, std::int64_t count) const {
    std::int64_t kept = 0;
    if (!bits_) {
      for (std::int64_t i = 0; i < count; ++i) kept += data_[index + i] != 0;
      return kept;
    }
    std::int64_t i = 0;
    for (; i < count && (first_bit_ + index + i) % 8 != 0; ++i) kept += Keeps(index + i);
    for (; i + 64 <= count; i += 64) {
      std::uint64_t word;
      std::memcpy(&word, data_ + (first_bit_ + index + i) / 8, sizeof(word));
      kept += std::popcount(word);
    }
    for (; i < count; ++i) kept += Keeps(index + i);
    return kept;
  }

  // The mask of at most kRun neighbouring elements, a byte each; in `room` if it isn't there already.
  const std::uint8_t* Bytes(std::int64_t index, std::int64_t count, std::uint8_t* room) const {
    if (!bits_) return data_ + index;
    std::int64_t i = 0;
    for (; i < count && (first_bit_ + index + i) % 8 != 0; ++i) room[i] = Keeps(index + i);
    for (; i + 8 <= count; i += 8) {
      // Bit j of the byte, in byte j of a word.
      const std::uint64_t spread =
          data_[(first_bit_ + index + i) / 8] * std::uint64_t{0x0101010101010101} & 0x8040201008040201;
      std::memcpy(room + i, &spread, sizeof(spread));
    }
    for (; i < count; ++i) room[i] = Keeps(index + i);
    return room;
  }

 private:
  const std::uint8_t* data_ = nullptr;
  bool bits_ = false;
  std::int64_t first_bit_ = 0;
};

// Where the elements of a side array are, which is not in device memory. One that IsCopied is copied into memory of the
// budget, which is added to `memory`. RESOURCE_EXHAUSTED: there is none. Else as CopyElements, or why the job stops.
absl::StatusOr<const std::byte*> SideInMemory(const SideArray& side, const Job& job, ArrayBudget& scratch,
                                              std::vector<std::unique_ptr<ArrayMemory>>* memory);

// The bounds or keys, one of which the partition has.
const SideArray& GroupingSide(const Partition& partition);

// Which rows belong to which group. `side`: the elements of GroupingSide. `mask`: with keys, rows of which it leaves
// nothing are in no group; it may be none. Errors: those of GroupBySegments and GroupByKeys.
absl::StatusOr<Grouping> GroupingOf(const Partition& partition, const std::byte* side, const MaskView& mask,
                                    const GroupingContext& context);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_SIDE_ARRAYS_H_
