// The elements of each output of a partition, wherever they are in the array. The rank of an element is the number of
// elements before it that the mask keeps. The rank of the first element of every run of positions is counted
// beforehand, so that tasks can begin at any run, and pass over runs without elements.
#ifndef REDUCED_KERNELS_CPU_OUTPUT_ELEMENTS_H_
#define REDUCED_KERNELS_CPU_OUTPUT_ELEMENTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/grouping.h"
#include "kernels/cpu/side_arrays.h"
#include "kernels/cpu/tiles.h"
#include "kernels/engine/engine.h"

namespace reduced {

// One output. Its positions are those of its elements before the mask, its ranks those of its elements.
struct Output {
  std::int64_t number = 0;
  std::int64_t start = 0;      // index of position 0 in the array; with keys: in the sorted rows
  std::int64_t column = 0;     // with keys
  std::int64_t positions = 0;  // how many
  std::int64_t count = 0;      // of elements
  // With a mask, and more than kRun positions: the rank of the first element from each kRun-th position on. No budget
  // counts it: it is a byte for 512 positions.
  std::vector<std::int64_t> ranks{};
};

// The side arrays of a partition in memory, and which rows belong to which group.
struct LoadedPartition {
  std::vector<std::unique_ptr<ArrayMemory>> memory{};
  MaskView mask{};
  Grouping grouping{.groups = 1};
  std::int64_t outputs = 0;  // the largest number there is, if there are more than 64 bits count
};
// Errors: those of SideInMemory and GroupingOf.
absl::StatusOr<LoadedPartition> LoadPartition(const Job& job, const GroupingContext& context);

class OutputElements {
 public:
  // Positions that are looked at in one go, and between two ranks that are known.
  static constexpr std::int64_t kRun = 4096;
  static constexpr std::int64_t kRunsBetweenLooks = 64;  // at the deadline

  // `grouping`: of segments or keys; the bounds and rows of keys may come later, before Find. All of it outlives this.
  OutputElements(const Partition& partition, DType dtype, const std::byte* data, const Grouping& grouping,
                 MaskView mask);

  bool keyed() const { return keyed_; }
  bool grouped() const { return grouped_; }    // by segments or keys
  bool adjacent() const { return adjacent_; }  // an output's positions are neighbours in the array
  const MaskView& mask() const { return mask_; }
  // The outputs' names, for messages.
  Layout Names() const;

  // The output of that number. Counts what a mask leaves, on the threads of the caller's arena, until `stopped`.
  Output Find(std::int64_t number, absl::FunctionRef<bool()> stopped) const;

  // The rank of the first element from `position` on, which is a multiple of kRun, or the last position or more.
  std::int64_t RankFrom(const Output& output, std::int64_t position) const {
    if (!mask_) return position;
    if (position >= output.positions) return output.count;
    return output.ranks.empty() ? 0 : output.ranks[static_cast<std::size_t>(position / kRun)];
  }

  // Calls `fold(data, rank, count)` for elements [first, first + count), in pieces of a tile or, where they are
  // neighbours, as they lie, until `stopped`: a mask may leave few elements, far from each other.
  template <class Fold>
  void ForTiles(const Output& output, std::int64_t first, std::int64_t count, absl::FunctionRef<bool()> stopped,
                const Fold& fold) const {
    if (count == 0) return;
    if (adjacent_ && !mask_) return fold(data_ + (output.start + first) * width_, first, count);
    const std::int64_t tile = kTileBytes / width_;
    thread_local std::unique_ptr<std::byte[]> buffer;  // a tile, and what comes with the run in which it ends
    if (buffer == nullptr) buffer = std::make_unique<std::byte[]>(kTileBytes + kRun * sizeof(std::uint64_t));
    std::int64_t position = first;
    std::int64_t skip = 0;  // of the first run
    if (mask_) {
      const auto after = std::upper_bound(output.ranks.begin(), output.ranks.end(), first);
      const std::int64_t run = output.ranks.empty() ? 0 : after - output.ranks.begin() - 1;
      position = run * kRun;
      skip = first - RankFrom(output, position);
    }
    std::int64_t has = 0;  // elements in the buffer
    std::int64_t runs = 0;
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t wanted = std::min(tile, count - done);
      while (has < wanted && position < output.positions) {
        const std::int64_t run = std::min(kRun, output.positions - position);
        const std::int64_t begin = std::exchange(position, position + run);
        if (RankFrom(output, begin) == RankFrom(output, position)) continue;
        if (++runs % kRunsBetweenLooks == 0 && stopped()) return;
        std::byte* const end = buffer.get() + has * width_;
        std::int64_t came = Gather(output, begin, run, end);
        const std::int64_t left_out = std::min(std::exchange(skip, 0), came);
        came -= left_out;
        if (left_out > 0) std::memmove(end, end + left_out * width_, static_cast<std::size_t>(came * width_));
        has += came;
      }
      // A mask that has changed since its ranks were counted may leave less.
      if (has < wanted) std::memset(buffer.get() + has * width_, 0, static_cast<std::size_t>((wanted - has) * width_));
      fold(buffer.get(), first + done, wanted);
      done += wanted;
      has = std::max<std::int64_t>(0, has - wanted);
      std::memmove(buffer.get(), buffer.get() + wanted * width_, static_cast<std::size_t>(has * width_));
    }
  }

  // What answers call the index of the element of that rank.
  std::int64_t IndexOf(const Output& output, std::int64_t rank) const;

 private:
  // By the size of an element.
  struct Moves {
    void (*pick)(const std::byte* data, const std::int64_t* indices, std::int64_t count, std::byte* out);
    std::int64_t (*keep)(const std::byte* data, const std::uint8_t* kept, std::int64_t count, std::byte* out);
  };
  static Moves MovesOf(std::int64_t width);

  // The indexes in the array of some positions.
  void Indices(const Output& output, std::int64_t first, std::int64_t count, std::int64_t* indices) const;
  // The number of elements from position `first` on, of at most kRun positions.
  std::int64_t CountKept(const Output& output, std::int64_t first, std::int64_t positions) const;
  void CountRanks(absl::FunctionRef<bool()> stopped, Output* output) const;
  // Copies the elements of at most kRun positions to `out`, which has room for as many; returns how many there are.
  std::int64_t Gather(const Output& output, std::int64_t first, std::int64_t positions, std::byte* out) const;

  const Layout& layout_;
  const std::byte* const data_;
  const Grouping& grouping_;
  const bool keyed_;
  const bool grouped_;
  const MaskView mask_;
  const std::int64_t width_;  // bytes of an element
  const Moves moves_;
  const bool adjacent_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_OUTPUT_ELEMENTS_H_
