// Groups on a CUDA device by the folds of quick_folds.h, without a state for each output.
//
// Outputs of up to some positions are answered by the device itself: their answers come back in batches of the lane's
// memory, with a byte for each that says whether it is known. Longer ones are cut into parts, whose folds the host
// merges. What is not known either way is left to the states of groups.cc.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/groups.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

// Bytes of an answer to the op of an output.
std::int64_t AnswerBytes(Op op, DType dtype) { return RowOf(ResultDType(op, dtype)).bytes; }

std::int64_t RoundedUp(std::int64_t count) { return (count + 7) / 8 * 8; }

constexpr int kWarpThreads = 32, kBlockThreads = 256;
constexpr std::int64_t kBlockPositions = 2048;  // of parts that have a block each, on average

// A launch for the ops of one kind, else as `any`.
QuickGroupsLaunch LaunchFor(const QuickOps& ops, const QuickGroupsLaunch& any) {
  QuickGroupsLaunch launch = any;
  launch.elements = ops.elements;
  launch.kind = ops.kind;
  launch.ops = static_cast<int>(ops.positions.size());
  std::copy(std::begin(ops.answers), std::end(ops.answers), launch.answers);
  return launch;
}

template <class Fold>
Fold MergedInTurn(const GroupPartFold* parts, std::int64_t count, std::int64_t* elements) {
  Fold all;
  for (std::int64_t i = 0; i < count; ++i) {
    Fold fold;
    std::memcpy(static_cast<void*>(&fold), parts[i].fold, sizeof(fold));
    all.Merge(fold);
    *elements += parts[i].count;
  }
  return all;
}

// The fold of some parts together, and how many elements they have. By several threads, if there are many.
template <class Fold>
Fold MergedFold(const GroupPartFold* parts, std::int64_t count, std::int64_t* elements) {
  constexpr std::int64_t kFewParts = 512;
  if (count <= kFewParts) return MergedInTurn<Fold>(parts, count, elements);
  struct Piece {
    Fold fold;
    std::int64_t elements = 0;
  };
  std::vector<Piece> pieces(static_cast<std::size_t>((count + kFewParts - 1) / kFewParts));
  tbb::parallel_for(std::size_t{0}, pieces.size(), [&](std::size_t i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * kFewParts;
    pieces[i].fold = MergedInTurn<Fold>(parts + first, std::min(kFewParts, count - first), &pieces[i].elements);
  });
  Fold all;
  for (const Piece& piece : pieces) {
    all.Merge(piece.fold);
    *elements += piece.elements;
  }
  return all;
}

}  // namespace

absl::Status CudaLane::GroupReduction::AnswerQuickly() {
  const Layout& layout = partition_.layout;
  std::int64_t positions = layout.elements;  // on average
  if (grouped_) positions = grouped_positions_ / grouping_.groups;
  // Neighbouring outputs that are neighbours in the array are read by neighbouring threads.
  constexpr std::int64_t kAdjacent = 32, kAdjacentPositions = 1024;
  // What a lane should have of an output, of neighbouring elements and of others, and positions that it takes.
  constexpr std::int64_t kLaneBytes = 128, kLaneElements = 8, kLanePositions = 256;
  const bool adjacent = (grouped_ ? columns_ : layout.adjacent()) >= kAdjacent;
  const bool neighbours = LieOf(array_) != Lie::kAny;
  const std::int64_t lanes = neighbours ? positions * width_ / kLaneBytes : positions / kLaneElements;
  const int width =
      adjacent
          ? 1
          : static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::clamp<std::int64_t>(lanes, 1, kWarpThreads))));
  const std::int64_t longest = adjacent ? kAdjacentPositions : kLanePositions * width;

  std::vector<std::int64_t> too_long;
  if (!grouped_ && positions > longest) return AnswerAllInParts(Method::kQuick);
  if (absl::Status status = HoldBounds(); !status.ok()) return status;
  QuickGroupsLaunch any;  // what all launches have
  any.array = array_;
  any.outputs = {.bounds = bounds_, .columns = columns_, .elements = layout.elements};
  if (!grouped_) any.outputs.kept = DimensionsFrom(layout.kept);
  any.width = width;
  any.longest = longest;
  any.longest_of_warp = adjacent ? longest : kLanePositions * kWarpThreads;
  any.stream = lane_.kernel_stream_;
  const auto launches = [&](const QuickBatch& batch) {
    for (const QuickOps& ops : quick_) {
      QuickGroupsLaunch launch = LaunchFor(ops, any);
      launch.first = batch.first;
      launch.count = batch.count;
      for (int i = 0; i < launch.ops; ++i) {
        launch.answers[i].results = batch.slot->device + batch.places[ops.positions[i]];
      }
      launch.after = &ops != quick_.data();
      launch.left = reinterpret_cast<std::uint8_t*>(batch.slot->device + batch.left);
      if (const cudaError_t error = LaunchQuickGroups(launch); error != cudaSuccess) return error;
    }
    return cudaSuccess;
  };
  const absl::Status status = AnswerInBatches(launches, &too_long);
  if (!status.ok()) return status;
  return AnswerInParts(too_long, Method::kQuick);
}

absl::Status CudaLane::GroupReduction::AnswerInBatches(BatchLaunches launches, std::vector<std::int64_t>* too_long) {
  std::int64_t bytes = 1;  // of an output
  for (const Op op : job_.spec.ops) bytes += AnswerBytes(op, job_.spec.dtype);
  const std::int64_t size = lane_.chunk_bytes_ / bytes / 8 * 8;  // outputs of a batch
  QuickBatch batches[2];  // the answers of one are copied while the device is at the next
  absl::Status status;
  int turn = 0;
  for (std::int64_t first = 0; first < outputs_ && status.ok(); first += size, ++turn) {
    QuickBatch& batch = batches[turn % 2];
    batch = {.slot = turn % 2 == 0 ? &part_slot() : &state_slot(),
             .first = first,
             .count = std::min(size, outputs_ - first)};
    status = Begin(batch, launches);
    if (status.ok() && turn > 0) status = End(batches[(turn + 1) % 2], too_long);
  }
  return status.ok() ? End(batches[(turn + 1) % 2], too_long) : status;
}

absl::Status CudaLane::GroupReduction::Begin(QuickBatch& batch, BatchLaunches launches) {
  // The answers to each op, then what is left.
  std::int64_t end = 0;
  for (const Op op : job_.spec.ops) {
    batch.places.push_back(end);
    end += RoundedUp(batch.count) * AnswerBytes(op, job_.spec.dtype);
  }
  batch.left = end;
  return Begin([&] { return launches(batch); }, end + batch.count, *batch.slot);
}

absl::Status CudaLane::GroupReduction::End(const QuickBatch& batch, std::vector<std::int64_t>* too_long) {
  if (absl::Status status = End(*batch.slot); !status.ok()) return status;
  const std::vector<OpCall>& ops = job_.spec.ops;
  const auto* const left = reinterpret_cast<const std::uint8_t*>(batch.slot->pinned + batch.left);
  constexpr std::int64_t kGrain = 1 << 15;
  struct Grain {
    std::vector<std::int64_t> too_long, not_known;
  };
  std::vector<Grain> grains(static_cast<std::size_t>((batch.count + kGrain - 1) / kGrain));
  lane_.copiers_.execute([&] {
    tbb::parallel_for(std::size_t{0}, grains.size(), [&](std::size_t grain) {
      const std::int64_t begin = static_cast<std::int64_t>(grain) * kGrain;
      const std::int64_t end = std::min(batch.count, begin + kGrain);
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const std::int64_t width = AnswerBytes(ops[i], job_.spec.dtype);
        std::memcpy(answers_[i] + (batch.first + begin) * width, batch.slot->pinned + batch.places[i] + begin * width,
                    static_cast<std::size_t>((end - begin) * width));
      }
      for (std::int64_t i = begin; i < end; ++i) {
        if (i % 8 == 0 && i + 8 <= end) {
          std::uint64_t eight;
          std::memcpy(&eight, left + i, sizeof(eight));
          if (eight == 0) i += 7;  // all of them are answered
        }
        if (left[i] == kTooLong) grains[grain].too_long.push_back(batch.first + i);
        if (left[i] == kNotKnown) grains[grain].not_known.push_back(batch.first + i);
      }
    });
  });
  const absl::MutexLock lock(&mutex_);
  for (const Grain& grain : grains) {
    too_long->insert(too_long->end(), grain.too_long.begin(), grain.too_long.end());
    left_.insert(left_.end(), grain.not_known.begin(), grain.not_known.end());
  }
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::FoldQuickly() {
  const auto count = std::ssize(parts_);
  auto* const folds = reinterpret_cast<GroupPartFold*>(state_slot().device);
  std::int64_t positions = 0;
  for (const GroupPart& part : parts_) positions += part.end - part.begin;
  QuickPartsLaunch launch{.array = array_,
                          .parts = reinterpret_cast<const GroupPart*>(part_slot().device),
                          .count = count,
                          .threads = positions / count < kBlockPositions ? kWarpThreads : kBlockThreads,
                          .stream = lane_.kernel_stream_};
  const auto launch_all = [&] {
    for (std::size_t i = 0; i < quick_.size(); ++i) {
      launch.elements = quick_[i].elements;
      launch.kind = quick_[i].kind;
      launch.folds = folds + static_cast<std::int64_t>(i) * count;
      if (const cudaError_t error = LaunchQuickParts(launch); error != cudaSuccess) return error;
    }
    return cudaSuccess;
  };
  return Launch(launch_all, std::ssize(quick_) * count * static_cast<std::int64_t>(sizeof(GroupPartFold)));
}

bool CudaLane::GroupReduction::AnswerFromFolds(const Pending& pending) const {
  const auto* folds = reinterpret_cast<const GroupPartFold*>(state_slot().pinned) + pending.first;
  for (const QuickOps& ops : quick_) {
    const bool known = VisitQuickFold(ops.kind, ops.elements.dtype, false, [&]<class Fold>(std::type_identity<Fold>) {
      QuickElements of = ops.elements;
      const Fold fold = MergedFold<Fold>(folds, pending.parts, &of.count);
      QuickAnswer answers[kMostQuickOps];
      const int count = static_cast<int>(ops.positions.size());
      for (int i = 0; i < count; ++i) answers[i] = {ops.answers[i].op, answers_[ops.positions[i]]};
      return of.count > 0 && fold.Finish(answers, count, pending.output, of);
    });
    if (!known) return false;
    folds += std::ssize(parts_);
  }
  return true;
}

}  // namespace reduced
