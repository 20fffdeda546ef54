// The elements of each output of a partition, wherever they are in the array. The rank of an element is the number of
// elements before it that the mask keeps. The rank of the first element of every run of positions is counted
// beforehand, so that tasks can begin at any run, and pass over runs without elements.
#ifndef REDUCED_KERNELS_CPU_OUTPUT_ELEMENTS_H_
#define REDUCED_KERNELS_CPU_OUTPUT_ELEMENTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/layout.h"
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

// The array, or another one whose elements go with its elements, in memory.
struct ElementSource {
  const std::byte* data = nullptr;
  std::int64_t width = 1;              // bytes of an element
  std::vector<Dimension> broadcast{};  // as OtherArray has it
};

// The side arrays of a partition in memory, and which rows belong to which group.
struct LoadedPartition {
  std::vector<std::unique_ptr<ArrayMemory>> memory{};
  MaskView mask{};
  // The array, and then y and weights, if the job has them.
  std::vector<ElementSource> sources{};
  Grouping grouping{.groups = 1};
  std::int64_t outputs = 0;  // the largest number there is, if there are more than 64 bits count
};
// `data`: the array. Errors: those of SideInMemory and GroupingOf.
absl::StatusOr<LoadedPartition> LoadPartition(const Job& job, const std::byte* data, const GroupingContext& context);

class OutputElements {
 public:
  // Positions that are looked at in one go, and between two ranks that are known.
  static constexpr std::int64_t kRun = 4096;
  static constexpr std::int64_t kRunsBetweenLooks = 64;  // at the deadline
  // The number of the source that has the positions of elements as indexes count them, i64: null, if they are the
  // ranks.
  static constexpr std::size_t kPositions = 3;

  // `sources`: the first ones that the partition has. `positions`: whether these are wanted. Bounds and rows of keys
  // may come later, before Find. All of it outlives this.
  OutputElements(const Partition& partition, const LoadedPartition& loaded, std::size_t sources,
                 bool positions = false);

  bool keyed() const { return keyed_; }
  bool grouped() const { return grouped_; }    // by segments or keys
  bool adjacent() const { return adjacent_; }  // an output's positions are neighbours in the array
  bool in_place() const { return in_place_; }  // an output's elements are neighbours in each source
  // Of keys in order: what answers call the index of a position is its row.
  bool counts_rows() const { return grouping_.in_order; }
  const MaskView& mask() const { return mask_; }
  // The outputs' names, for messages.
  Layout Names() const;

  // How many outputs from `number` on lie side by side: the element at a position of one is followed in memory by the
  // element at the same position of the next. At least 1.
  std::int64_t Beside(std::int64_t number) const {
    if (adjacent_ || layout_.outputs == 0) return 1;
    const std::int64_t together = layout_.adjacent();
    return together - number % layout_.outputs % together;
  }

  // The output of that number, with as many elements as positions, whatever the mask leaves.
  Output At(std::int64_t number) const;
  // The same. Counts what a mask leaves, on the threads of the caller's arena, until `stopped`.
  Output Find(std::int64_t number, absl::FunctionRef<bool()> stopped) const;

  // Appends the elements of the array at some positions, at most kRun, of so many outputs that are side by side, at
  // most kMostBeside: those of output i, which has has[i] elements before, to out + i * room bytes. `output`: the first
  // one.
  static constexpr std::int64_t kMostBeside = 512;
  void GatherBeside(const Output& output, std::int64_t outputs, std::int64_t first, std::int64_t positions,
                    std::byte* out, std::int64_t room, std::int64_t* has) const;

  // The rank of the first element from `position` on, which is a multiple of kRun, or the last position or more.
  std::int64_t RankFrom(const Output& output, std::int64_t position) const {
    if (!mask_) return position;
    if (position >= output.positions) return output.count;
    return output.ranks.empty() ? 0 : output.ranks[static_cast<std::size_t>(position / kRun)];
  }

  // Calls `fold(data, rank, count)` for elements [first, first + count), in pieces of a tile or, where they are
  // neighbours, as they lie, until `stopped`: a mask may leave few elements, far from each other. `data`: where these
  // elements of each source are.
  template <class Fold>
  void ForTiles(const Output& output, std::int64_t first, std::int64_t count, absl::FunctionRef<bool()> stopped,
                const Fold& fold) const {
    if (count == 0) return;
    const std::byte* elements[kMostSources] = {};
    if (in_place_) {
      for (std::size_t i = 0; i < sources_.size(); ++i) {
        elements[i] = sources_[i].data + (output.start + first) * sources_[i].width;
      }
      return fold(elements, first, count);
    }
    thread_local Buffers buffers;
    std::int64_t widest = 1;
    for (std::size_t i = 0; i < kMostSources; ++i) {
      if (widths_[i] == 0) continue;
      widest = std::max(widest, widths_[i]);
      if (buffers[i] == nullptr) buffers[i] = std::make_unique<std::byte[]>(kBufferBytes);
      elements[i] = buffers[i].get();
    }
    const std::int64_t tile = kTileBytes / widest;
    std::int64_t position = first;
    std::int64_t skip = 0;  // of the first run
    if (mask_) {
      const auto after = std::upper_bound(output.ranks.begin(), output.ranks.end(), first);
      const std::int64_t run = output.ranks.empty() ? 0 : after - output.ranks.begin() - 1;
      position = run * kRun;
      skip = first - RankFrom(output, position);
    }
    std::int64_t has = 0;  // elements in a buffer
    std::int64_t runs = 0;
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t wanted = std::min(tile, count - done);
      while (has < wanted && position < output.positions) {
        const std::int64_t run = std::min(kRun, output.positions - position);
        const std::int64_t begin = std::exchange(position, position + run);
        if (RankFrom(output, begin) == RankFrom(output, position)) continue;
        if (++runs % kRunsBetweenLooks == 0 && stopped()) return;
        const std::int64_t came = Gather(output, begin, run, has, buffers);
        const std::int64_t left_out = std::min(std::exchange(skip, 0), came);
        if (left_out > 0) Move(buffers, has + left_out, has, came - left_out);
        has += came - left_out;
      }
      // A mask that has changed since its ranks were counted may leave less.
      if (has < wanted) Clear(buffers, has, wanted - has);
      fold(elements, first + done, wanted);
      done += wanted;
      has = std::max<std::int64_t>(0, has - wanted);
      Move(buffers, wanted, 0, has);
    }
  }

  // What answers call the index of the element of that rank.
  std::int64_t IndexOf(const Output& output, std::int64_t rank) const;

 private:
  static constexpr std::size_t kMostSources = kPositions + 1;
  // A tile of each source, and what comes with the run in which it ends.
  static constexpr std::int64_t kBufferBytes = kTileBytes + kRun * static_cast<std::int64_t>(sizeof(std::uint64_t));
  using Buffers = std::unique_ptr<std::byte[]>[kMostSources];

  // The indexes in the array of some positions.
  void Indices(const Output& output, std::int64_t first, std::int64_t count, std::int64_t* indices) const;
  // The number of elements from position `first` on, of at most kRun positions.
  std::int64_t CountKept(const Output& output, std::int64_t first, std::int64_t positions) const;
  void CountRanks(absl::FunctionRef<bool()> stopped, Output* output) const;
  // The positions, as indexes count them, of what is at positions from `first` on.
  void Positions(const Output& output, std::int64_t first, std::int64_t count, std::int64_t* positions) const;
  // Copies the elements of at most kRun positions to the buffers, behind the `has` elements that these have; returns
  // how many there are.
  std::int64_t Gather(const Output& output, std::int64_t first, std::int64_t positions, std::int64_t has,
                      Buffers& buffers) const;
  // Moves elements within the buffers, and sets elements to zero.
  void Move(Buffers& buffers, std::int64_t from, std::int64_t to, std::int64_t count) const;
  void Clear(Buffers& buffers, std::int64_t from, std::int64_t count) const;

  const Layout& layout_;
  const std::span<const ElementSource> sources_;
  const Grouping& grouping_;
  const bool keyed_;
  const bool grouped_;
  const MaskView mask_;
  const bool adjacent_;
  const bool in_place_;                              // an output's elements are neighbours in each source
  std::array<std::int64_t, kMostSources> widths_{};  // bytes of an element of each source; 0: there is no such source
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_OUTPUT_ELEMENTS_H_
