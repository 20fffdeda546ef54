// CudaLane::GroupReduction::RunInPieces: a reduction of an array for which the device has no room.
//
// Its pieces are stretches of the array. Pieces of whole outputs are reductions of their own, whose answers go where
// those of the array do. An output that has no room by itself is answered from the states of its parts, which are
// merged here. So are all outputs by key, since any row may be of any group. How much room there is shows when a piece
// has none: then pieces of half as much follow.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/side_arrays.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/slice_pieces.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/engine/array_budget.h"
#include "kernels/exact/answers.h"

namespace reduced {
namespace {

// Counts states in host memory.
class StatesBudget {
 public:
  explicit StatesBudget(ArrayBudget& budget) : budget_(budget) {}
  ~StatesBudget() { budget_.Give(bytes_); }
  StatesBudget(const StatesBudget&) = delete;
  StatesBudget& operator=(const StatesBudget&) = delete;

  absl::Status Take(const ReduceSpec& spec, std::int64_t outputs) {
    const std::size_t each = sizeof(State) + (ExactAccumulatorsFor(spec) != 0 ? sizeof(ExactSums) : 0);
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(outputs, static_cast<std::int64_t>(each), &bytes)) {
      bytes = std::numeric_limits<std::int64_t>::max();
    }
    const absl::Status taken = budget_.Take(bytes);
    if (!taken.ok()) {
      return absl::Status(taken.code(), absl::StrCat("in pieces, for which the device has room, the states of ",
                                                     outputs, " outputs must be in host memory: ", taken.message()));
    }
    bytes_ = bytes;
    return absl::OkStatus();
  }

 private:
  ArrayBudget& budget_;
  std::int64_t bytes_ = 0;
};

// Of that stretch of the array's elements.
Mask StretchOf(const Mask& mask, std::int64_t begin, std::int64_t count) {
  Mask stretch = mask;
  const std::int64_t bit = mask.first_bit + begin;
  stretch.array.array = From(mask.array.array, mask.bits ? bit / 8 : begin);
  stretch.first_bit = mask.bits ? bit % 8 : 0;
  stretch.array.count = mask.bits ? (stretch.first_bit + count + 7) / 8 : count;
  return stretch;
}

// A dimension, and what one index of it has.
struct CutDimension {
  std::int64_t size = 1;
  std::int64_t stride = 1;     // elements of one index
  std::int64_t outputs = 1;    // likewise
  std::int64_t positions = 1;  // likewise, of each output
  bool reduced = false;
};

// From the outermost.
std::vector<CutDimension> CutDimensionsOf(const Layout& layout) {
  std::vector<CutDimension> dimensions;
  for (const Dimension& kept : layout.kept) dimensions.push_back({.size = kept.size, .stride = kept.stride});
  for (const Dimension& reduced : layout.reduced) {
    dimensions.push_back({.size = reduced.size, .stride = reduced.stride, .reduced = true});
  }
  std::sort(dimensions.begin(), dimensions.end(),
            [](const CutDimension& a, const CutDimension& b) { return a.stride > b.stride; });
  for (std::size_t i = dimensions.size(); i-- > 1;) {
    CutDimension& outer = dimensions[i - 1];
    const CutDimension& inner = dimensions[i];
    outer.outputs = inner.outputs * (inner.reduced ? 1 : inner.size);
    outer.positions = inner.positions * (inner.reduced ? inner.size : 1);
  }
  return dimensions;
}

}  // namespace

class CudaLane::GroupReduction::Pieces {
 public:
  // `why`: the array as a whole has no room.
  Pieces(GroupReduction& whole, const absl::Status& why)
      : whole_(whole),
        why_(why),
        element_bytes_(whole.width_ + (whole.partition_.mask.has_value() ? 1 : 0)),
        room_(kPieceChunks * whole.lane_.chunk_bytes_) {}

  absl::Status Run() {
    if (whole_.keyed_) return AnswerKeys();
    if (whole_.grouped_) return AnswerSegments();
    const std::vector<CutDimension> dimensions = CutDimensionsOf(whole_.partition_.layout);
    return AnswerBox(dimensions, BoxFrom(dimensions, 0), nullptr);
  }

 private:
  static constexpr std::int64_t kOutputs = 1 << 10;  // between two looks at whether to stop

  // Of outputs from `first` on: what the pieces that were there have of them.
  struct States {
    std::int64_t first = 0;
    std::vector<State> states{};
  };

  // A stretch of the array.
  struct Piece {
    Partition partition{};  // but for the mask
    std::int64_t begin = 0;
    std::int64_t elements = 0;
    std::int64_t output = 0;    // its first one
    std::int64_t outputs = 0;   // how many it has
    std::int64_t position = 0;  // where its outputs begin in those of the array; with keys: its first row
  };

  // Answers the piece's outputs, or adds their states to `into`. *no_room: there is none for the piece.
  absl::Status Reduce(Piece piece, States* into, bool* no_room) {
    *no_room = false;
    if (absl::Status why = WhyStop(whole_.job_); !why.ok()) return why;
    Job job = whole_.JobOf(From(whole_.job_.array, piece.begin * whole_.width_), piece.elements);
    Partition& partition = job.partition.emplace(std::move(piece.partition));
    if (const std::optional<Mask>& mask = whole_.partition_.mask; mask.has_value()) {
      partition.mask = StretchOf(*mask, piece.begin, piece.elements);
    }
    job.errors = whole_.job_.errors;
    job.place = [&](std::int64_t, std::int64_t, const std::byte*) {
      std::vector<std::byte*> answers;
      if (into == nullptr) answers = whole_.answers_;
      for (std::size_t i = 0; i < answers.size(); ++i) {
        answers[i] += piece.output * RowOf(ResultDType(whole_.job_.spec.ops[i], whole_.job_.spec.dtype)).bytes;
      }
      return answers;
    };
    StatesBudget budget(whole_.scratch_);
    std::vector<State> states;
    if (into != nullptr || whole_.job_.states != nullptr) {
      if (absl::Status taken = budget.Take(job.spec, piece.outputs); !taken.ok()) return taken;
      job.states = &states;
    }
    GroupReduction reduction(whole_.lane_, job, whole_.arrays_, whole_.scratch_, whole_.timing_,
                             {&whole_, piece.output, piece.position});
    absl::Status status = reduction.Run();
    if (!status.ok()) {
      whole_.lane_.Abandon();  // what is in flight uses memory of the piece
      *no_room = reduction.LacksRoom(status);
      return status;
    }
    for (std::int64_t i = 0; i < std::ssize(states); ++i) {
      if (absl::Status why = i % kOutputs == 0 ? WhyStop(whole_.job_) : absl::OkStatus(); !why.ok()) return why;
      State& state = states[static_cast<std::size_t>(i)];
      const std::int64_t output = piece.output + i;
      if (into == nullptr) {
        (*whole_.job_.states)[static_cast<std::size_t>(output)] = std::move(state);
      } else {
        Shift(piece.position, &state);
        Combine(state, &into->states[static_cast<std::size_t>(output - into->first)]);
      }
    }
    return absl::OkStatus();
  }

  // Answers `outputs` from `first` on from the states that fold(&states) finds.
  template <class Fold>
  absl::Status AnswerFromStates(std::int64_t first, std::int64_t outputs, const Fold& fold) {
    StatesBudget budget(whole_.scratch_);
    if (absl::Status taken = budget.Take(whole_.job_.spec, outputs); !taken.ok()) return taken;
    States states{first, std::vector<State>(static_cast<std::size_t>(outputs))};
    if (absl::Status status = fold(&states); !status.ok()) return status;
    for (std::int64_t i = 0; i < outputs && !whole_.HasEnded(); ++i) {
      if (absl::Status why = i % kOutputs == 0 ? WhyStop(whole_.job_) : absl::OkStatus(); !why.ok()) return why;
      whole_.Store(first + i, std::move(states.states[static_cast<std::size_t>(i)]));
    }
    return whole_.error();
  }

  // The next pieces have at most half of those bytes.
  void Halve(std::int64_t bytes) { room_ = bytes / 2; }

  // A range of a dimension; those outside of it have one index each, those inside all of theirs.
  struct Box {
    std::size_t dimension = 0;
    std::int64_t size = 1;
    std::int64_t begin = 0;     // its first element
    std::int64_t output = 0;    // its first output
    std::int64_t position = 0;  // of its first element in its outputs
  };

  // All of that dimension; beyond the last one: an element.
  static Box BoxFrom(const std::vector<CutDimension>& dimensions, std::size_t dimension) {
    return {.dimension = dimension, .size = dimension < dimensions.size() ? dimensions[dimension].size : 1};
  }

  // `count` indexes of a box, from its `first` on.
  static Box PartOf(const std::vector<CutDimension>& dimensions, const Box& box, std::int64_t first,
                    std::int64_t count) {
    const CutDimension& cut = dimensions[box.dimension];
    Box part = count == 1 ? BoxFrom(dimensions, box.dimension + 1) : Box{.dimension = box.dimension, .size = count};
    part.begin = box.begin + first * cut.stride;
    part.output = box.output + (cut.reduced ? 0 : first * cut.outputs);
    part.position = box.position + (cut.reduced ? first * cut.positions : 0);
    return part;
  }

  static Piece AsPiece(const std::vector<CutDimension>& dimensions, const Box& box) {
    std::vector<std::int64_t> shape;
    std::vector<bool> axes;
    for (std::size_t i = box.dimension; i < dimensions.size(); ++i) {
      shape.push_back(i == box.dimension ? box.size : dimensions[i].size);
      axes.push_back(dimensions[i].reduced);
    }
    Piece piece{.partition = {.layout = LayoutOf(shape, axes)},
                .begin = box.begin,
                .output = box.output,
                .position = box.position};
    piece.outputs = piece.partition.layout.outputs;
    piece.elements = piece.outputs * piece.partition.layout.elements;
    return piece;
  }

  // Answers the outputs of a box or, if `into` is not null, adds their states to it.
  absl::Status AnswerBox(const std::vector<CutDimension>& dimensions, const Box& box, States* into) {
    const Piece piece = AsPiece(dimensions, box);
    absl::Status status = why_;
    if (const std::int64_t bytes = piece.elements * element_bytes_; bytes <= room_) {
      bool no_room = false;
      status = Reduce(piece, into, &no_room);
      if (!no_room) return status;
      Halve(bytes);
    }
    if (piece.elements <= 1) return status;
    const CutDimension& cut = dimensions[box.dimension];
    if (cut.reduced && into == nullptr) {
      return AnswerFromStates(piece.output, piece.outputs,
                              [&](States* states) { return AnswerBox(dimensions, box, states); });
    }
    for (std::int64_t i = 0, count = 0; i < box.size; i += count) {
      count = std::clamp<std::int64_t>(room_ / element_bytes_ / cut.stride, 1, box.size - i);
      status = AnswerBox(dimensions, PartOf(dimensions, box, i, count), into);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status AnswerSegments() {
    const std::int64_t* const bounds = whole_.grouping_.bounds;
    const std::int64_t groups = whole_.grouping_.groups;
    const std::int64_t row_bytes = whole_.columns_ * element_bytes_;
    constexpr std::int64_t kBoundBytes = 2 * sizeof(std::int64_t);  // as they come, and checked
    for (std::int64_t first = 0; first < groups;) {
      const auto bytes = [&](std::int64_t count) {
        return (bounds[first + count] - bounds[first]) * row_bytes + (count + 1) * kBoundBytes;
      };
      std::int64_t count = 0;
      while (first + count < groups && bytes(count + 1) <= room_) ++count;
      absl::Status status = why_;
      bool no_room = true;
      if (count > 0) status = ReduceSegments(first, count, &no_room);
      if (!no_room && !status.ok()) return status;
      if (no_room && count > 0) Halve(bytes(count));
      if (no_room && count > 1) continue;
      if (no_room) {
        status = AnswerSegment(first, status);
        if (!status.ok()) return status;
      }
      first += std::max<std::int64_t>(count, 1);
    }
    return absl::OkStatus();
  }

  // Whole segments.
  absl::Status ReduceSegments(std::int64_t first, std::int64_t count, bool* no_room) {
    *no_room = false;
    const std::int64_t* const bounds = whole_.grouping_.bounds + first;
    const absl::StatusOr<std::unique_ptr<ArrayMemory>> memory =
        AllocateCpuArray((count + 1) * static_cast<std::int64_t>(sizeof(*bounds)), whole_.scratch_);
    if (!memory.ok()) return memory.status();
    auto* const offsets = static_cast<std::int64_t*>(const_cast<void*>((*memory)->array().data));
    for (std::int64_t i = 0; i <= count; ++i) offsets[i] = bounds[i] - bounds[0];
    const std::int64_t rows = bounds[count] - bounds[0];
    const Segments segments{.bounds = {DType::kI64, count + 1, {.data = offsets}}};
    return Reduce({.partition = {.layout = whole_.partition_.layout, .rows = rows, .segments = segments},
                   .begin = bounds[0] * whole_.columns_,
                   .elements = rows * whole_.columns_,
                   .output = first * whole_.columns_,
                   .outputs = count * whole_.columns_},
                  nullptr, no_room);
  }

  // One that may have no room by itself. `why`: what it answers if it has no rows, so that its bounds alone had none.
  absl::Status AnswerSegment(std::int64_t segment, const absl::Status& why) {
    const std::int64_t begin = whole_.grouping_.bounds[segment];
    const std::int64_t rows = whole_.grouping_.bounds[segment + 1] - begin;
    if (rows == 0) return why;
    const std::vector<CutDimension> dimensions =
        CutDimensionsOf(LayoutOf(std::vector<std::int64_t>{rows, whole_.columns_}, {true, false}));
    Box box = BoxFrom(dimensions, 0);
    box.begin = begin * whole_.columns_;
    box.output = segment * whole_.columns_;
    return AnswerBox(dimensions, box, nullptr);
  }

  absl::Status AnswerKeys() {
    constexpr std::int64_t kSortBytes = 20;  // of a row, beside its key
    const SideArray& keys = whole_.partition_.keys->keys;
    const std::int64_t row_bytes = whole_.columns_ * element_bytes_ + RowOf(keys.dtype).bytes + kSortBytes;
    return AnswerFromStates(0, whole_.outputs_, [&](States* states) {
      for (std::int64_t row = 0; row < whole_.partition_.rows;) {
        const std::int64_t rows = std::clamp<std::int64_t>(room_ / row_bytes, 1, whole_.partition_.rows - row);
        bool no_room = false;
        const absl::Status status = Reduce({.partition = KeysOf(row, rows),
                                            .begin = row * whole_.columns_,
                                            .elements = rows * whole_.columns_,
                                            .outputs = whole_.outputs_,
                                            .position = row},
                                           states, &no_room);
        if (!no_room || rows == 1) {
          if (!status.ok()) return status;
          row += rows;
        } else {
          Halve(rows * row_bytes);
        }
      }
      return absl::OkStatus();
    });
  }

  // Of rows from `row` on. The groups that were found stand for their keys.
  Partition KeysOf(std::int64_t row, std::int64_t rows) const {
    Partition partition{.layout = whole_.partition_.layout, .rows = rows, .keys = whole_.partition_.keys};
    SideArray& keys = partition.keys->keys;
    if (partition.keys->groups == 0) {
      keys = {DType::kU32, whole_.partition_.rows, {.data = whole_.grouping_.ids}};
      partition.keys->groups = whole_.grouping_.groups;
      partition.keys->drop = true;  // rows that are in none
    }
    keys.count = rows;
    keys.array = From(keys.array, row * RowOf(keys.dtype).bytes);
    return partition;
  }

  GroupReduction& whole_;
  const absl::Status why_;
  const std::int64_t element_bytes_;  // with its mask
  std::int64_t room_;                 // for a piece, as far as is known
};

bool CudaLane::GroupReduction::LacksRoom(const absl::Status& status) const {
  return lacks_room_ && absl::IsResourceExhausted(status);
}

absl::Status CudaLane::GroupReduction::FindGroupsForPieces() {
  if (!keyed_ || partition_.keys->groups == 0) return FindGroupsOnHost();
  grouping_ = {.groups = partition_.keys->groups};
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::RunInPieces(const absl::Status& why) {
  const StageRange range("reduce groups in pieces");
  device_memory_.clear();
  spare_taken_ = 0;
  errors_.Clear();
  if (grouped_) {
    if (absl::Status status = FindGroupsForPieces(); !status.ok()) return status;
  }
  if (!placed_) {
    if (absl::Status status = PlaceAnswers(); !status.ok()) return status;
  } else if (grouping_.groups * columns_ != outputs_) {
    return why;  // the keys have changed since
  }
  return outputs_ == 0 ? absl::OkStatus() : Pieces(*this, why).Run();
}

}  // namespace reduced
