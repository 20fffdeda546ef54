// Sums, means and extrema of groups on a CUDA device, without a state for each output.
//
// Outputs of up to some positions are answered by the device itself: their answers come back in batches of the lane's
// memory, with a byte for each that says whether it is known. Longer ones are cut into parts, whose sums and extrema
// the host merges. What is not known either way is left to the states of groups.cc.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/algebra/arithmetic.h"
#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/groups.h"
#include "kernels/exact/answers.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

// Bytes of an answer to the op of an output.
std::int64_t AnswerBytes(Op op, DType dtype) { return RowOf(ResultDType(op, dtype)).bytes; }

// Where the launch puts the answers to the op.
void SetAnswers(Op op, std::byte* to, GroupAnswers* answers) {
  switch (op) {
    case Op::kSum:
      answers->sum = to;
      return;
    case Op::kMean:
      answers->mean = reinterpret_cast<double*>(to);
      return;
    case Op::kMin:
      answers->min = to;
      return;
    case Op::kMax:
      answers->max = to;
      return;
    case Op::kArgmin:
      answers->argmin = reinterpret_cast<std::int64_t*>(to);
      return;
    case Op::kArgmax:
      answers->argmax = reinterpret_cast<std::int64_t*>(to);
      return;
    default:
      answers->count = reinterpret_cast<std::int64_t*>(to);
  }
}

std::int64_t RoundedUp(std::int64_t count) { return (count + 7) / 8 * 8; }

}  // namespace

CudaLane::GroupReduction::Quick CudaLane::GroupReduction::QuickOf(const ReduceSpec& spec) {
  constexpr std::int64_t kMostIntegers = std::int64_t{1} << 30;  // of up to 32 bits, which are added up in 64
  const DTypeRow& row = RowOf(spec.dtype);
  Quick quick;
  for (const Op op : spec.ops) {
    if (op == Op::kSum || op == Op::kMean) {
      if (!row.is_float && row.bytes < 8 && spec.count > kMostIntegers) return {};
      quick.sums = true;
    } else if (op == Op::kMin || op == Op::kMax || op == Op::kArgmin || op == Op::kArgmax) {
      quick.extrema = true;
    } else if (op != Op::kCount || (row.is_float && spec.nan_policy == NanPolicy::kOmit)) {
      return {};
    }
  }
  if (!quick.sums) quick.extrema = true;  // counts elements
  quick.any = true;
  return quick;
}

absl::Status CudaLane::GroupReduction::AnswerQuickly() {
  const Layout& layout = groups_.layout;
  QuickGroupsLaunch launch{.dtype = job_.spec.dtype,
                           .sums = quick_.sums,
                           .extrema = quick_.extrema,
                           .array = array_,
                           .outputs = {.columns = columns_, .elements = layout.elements},
                           .stream = lane_.kernel_stream_};
  std::int64_t positions = layout.elements;  // on average
  if (grouped_) positions = grouped_positions_ / grouping_.groups;
  // Neighbouring outputs that are neighbours in the array are read by neighbouring threads.
  constexpr std::int64_t kAdjacent = 32;
  const bool adjacent = (grouped_ ? columns_ : layout.adjacent()) >= kAdjacent;
  launch.width = adjacent ? 1 : std::bit_ceil(static_cast<unsigned>(std::clamp<std::int64_t>(positions / 8, 1, 32)));
  launch.longest = adjacent ? 1024 : 128 * launch.width;

  std::vector<std::int64_t> too_long;
  if (!grouped_ && positions > launch.longest) {
    return AnswerAllInParts(Method::kQuick);
  }
  if (grouped_ && bounds_ == nullptr) {
    if (absl::Status status = FetchBounds(); !status.ok()) return status;
    const absl::StatusOr<const std::byte*> bounds =
        Hold({.data = grouping_.bounds}, grouping_.groups + 1, sizeof(std::int64_t));
    if (!bounds.ok()) return bounds.status();
    bounds_ = reinterpret_cast<const std::int64_t*>(*bounds);
  }
  if (grouped_) {
    launch.outputs.bounds = bounds_;
  } else {
    launch.outputs.kept = DimensionsFrom(layout.kept);
  }
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
    status = Begin(batch, launch);
    if (status.ok() && turn > 0) status = End(batches[(turn + 1) % 2], &too_long);
  }
  if (status.ok()) status = End(batches[(turn + 1) % 2], &too_long);
  if (!status.ok()) return status;
  return AnswerInParts(too_long, Method::kQuick);
}

absl::Status CudaLane::GroupReduction::Begin(QuickBatch& batch, QuickGroupsLaunch launch) {
  launch.first = batch.first;
  launch.count = batch.count;
  // The answers to each op, then what is left. An op that is asked for twice is answered in the last place.
  std::int64_t end = 0;
  for (const Op op : job_.spec.ops) {
    SetAnswers(op, batch.slot->device + end, &launch.answers);
    batch.places.push_back(end);
    end += RoundedUp(batch.count) * AnswerBytes(op, job_.spec.dtype);
  }
  batch.left = end;
  launch.answers.left = reinterpret_cast<std::uint8_t*>(batch.slot->device + end);
  return Begin([&] { return LaunchQuickGroups(launch); }, end + batch.count, *batch.slot);
}

absl::Status CudaLane::GroupReduction::End(const QuickBatch& batch, std::vector<std::int64_t>* too_long) {
  if (absl::Status status = End(*batch.slot); !status.ok()) return status;
  const std::vector<Op>& ops = job_.spec.ops;
  lane_.copiers_.execute([&] {
    constexpr std::int64_t kGrain = 1 << 15;
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, batch.count, kGrain), [&](const auto& range) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const auto last = std::find(ops.rbegin(), ops.rend(), ops[i]);
        const std::int64_t place = batch.places[static_cast<std::size_t>(ops.rend() - last - 1)];
        const std::int64_t width = AnswerBytes(ops[i], job_.spec.dtype);
        std::memcpy(answers_[i] + (batch.first + range.begin()) * width,
                    batch.slot->pinned + place + range.begin() * width,
                    static_cast<std::size_t>((range.end() - range.begin()) * width));
      }
    });
  });
  const auto* const left = reinterpret_cast<const std::uint8_t*>(batch.slot->pinned + batch.left);
  const absl::MutexLock lock(&mutex_);
  for (std::int64_t i = 0; i < batch.count;) {
    std::uint64_t eight = 1;
    if (i + 8 <= batch.count) std::memcpy(&eight, left + i, sizeof(eight));
    const std::int64_t stop = std::min(batch.count, i + 8);
    for (std::int64_t at = i; eight != 0 && at < stop; ++at) {
      if (left[at] == kTooLong) too_long->push_back(batch.first + at);
      if (left[at] == kNotKnown) left_.push_back(batch.first + at);
    }
    i = stop;
  }
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::FoldQuickly() {
  const auto count = static_cast<std::int64_t>(parts_.size());
  const QuickGroupsLaunch launch{.dtype = job_.spec.dtype,
                                 .sums = quick_.sums,
                                 .extrema = quick_.extrema,
                                 .array = array_,
                                 .width = 32,
                                 .count = count,
                                 .parts = reinterpret_cast<const GroupPart*>(part_slot().device),
                                 .states = reinterpret_cast<GroupPartState*>(state_slot().device),
                                 .stream = lane_.kernel_stream_};
  return Launch([&] { return LaunchQuickGroups(launch); }, count * static_cast<std::int64_t>(sizeof(GroupPartState)));
}

// By several threads, if there are many parts.
bool CudaLane::GroupReduction::MergedQuickStateOf(const Pending& pending, State* state) const {
  constexpr std::int64_t kFewParts = 512;
  if (pending.parts <= kFewParts) return QuickStateOf(pending, state) && state->partial.count > 0;
  const std::int64_t pieces = (pending.parts + kFewParts - 1) / kFewParts;
  std::vector<State> states(static_cast<std::size_t>(pieces));
  std::atomic<bool> known = true;
  tbb::parallel_for(std::int64_t{0}, pieces, [&](std::int64_t i) {
    const std::int64_t first = i * kFewParts;
    const Pending piece{pending.output, pending.first + first, std::min(kFewParts, pending.parts - first)};
    if (!QuickStateOf(piece, &states[static_cast<std::size_t>(i)])) known = false;
  });
  *state = std::move(states.front());
  for (std::size_t i = 1; i < states.size() && known; ++i) {
    Combine(states[i].partial, &state->partial);
    if (state->exact != nullptr) Merge(*states[i].exact, state->exact.get());
  }
  return known && state->partial.count > 0;
}

// From those of its parts in the pinned memory of state_slot(); false if something of it is not known.
bool CudaLane::GroupReduction::QuickStateOf(const Pending& pending, State* state) const {
  const auto* const parts = reinterpret_cast<const GroupPartState*>(state_slot().pinned) + pending.first;
  const bool floats = RowOf(job_.spec.dtype).is_float;
  if (quick_.sums && floats) state->exact = std::make_unique<ExactSums>();
  Partial& partial = state->partial;
  for (std::int64_t i = 0; i < pending.parts; ++i) {
    const GroupPartState& part = parts[i];
    partial.count += part.count;
    if (quick_.extrema) {
      if (part.extrema.nan_index != kNoIndex) return false;
      MergeExtrema(partial.extrema, part.extrema);
    }
    if (!quick_.sums) continue;
    if (!(part.sum.lost == 0)) return false;
    if (floats) {
      constexpr AccumulatorSet kSum = SetOf(Accumulator::kSum);
      Add(part.sum.sum, kSum, /*elsewhere=*/false, state->exact.get());
      if (part.sum.rest != 0) Add(part.sum.rest, kSum, /*elsewhere=*/false, state->exact.get());
    } else {
      partial.int_sum += static_cast<std::int64_t>(part.sum.sum) + static_cast<std::int64_t>(part.sum.rest);
    }
  }
  return true;
}

}  // namespace reduced
