// Quantiles of all outputs of a partition, whatever their number, on a CUDA device. Outputs of moderate length are
// answered by launches for many of them (quantiles.h), longer ones one after the other, as arrays (whole_array.h).
//
// A few quantiles by key of groups with many elements are answered from brackets (key_quantiles.h). For others the
// elements are sorted by their groups first. Of 1 GiB of f32 by 1,000 keys that would be most of what is to be
// expected: the keys are checked (2 plain reads), CUB sorts by 10 bits in two passes (9), and the groups, which do not
// fit in registers, are counted and read once more for the keys of one bin (2).
#include "kernels/cuda/quantiles.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/group_reduction.h"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/whole_array.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/quantile_answers.h"

namespace reduced {
namespace {

// Of a launch: memory for what it finds, and positions that it looks at. It takes some milliseconds.
constexpr std::int64_t kBatchBytes = std::int64_t{64} << 20;
constexpr std::int64_t kBatchPositions = std::int64_t{1} << 28;

}  // namespace

std::int64_t CudaLane::LongestOfMany(std::int64_t positions, int multiprocessors) {
  // A block takes as long for so many as the launches for an array.
  constexpr std::int64_t kShort = std::int64_t{1} << 18;
  return std::clamp(positions / multiprocessors, kShort, QuantilesLaunch::kMostPositions);
}

absl::Status CudaLane::GroupReduction::AnswerQuantiles() {
  if (absl::Status status = brackets_.has_value() ? absl::OkStatus() : HoldBounds(); !status.ok()) return status;
  for (std::size_t op = 0; op < job_.spec.ops.size(); ++op) {
    if (absl::Status status = AnswerQuantiles(op); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaLane::GroupReduction::AnswerQuantiles(std::size_t op) {
  const OpCall& call = job_.spec.ops[op];
  const DType result = ResultDType(call, job_.spec.dtype);
  const std::vector<double> quantiles = QuantilesOf(call);
  const std::int64_t of_each = std::ssize(quantiles);
  const absl::StatusOr<const std::byte*> listed = Hold({.data = quantiles.data()}, of_each, sizeof(double));
  if (!listed.ok()) return listed.status();
  const std::int64_t positions = grouped_ ? grouped_positions_ / grouping_.groups : partition_.layout.elements;
  QuantilesLaunch launch{.dtype = job_.spec.dtype,
                         .omit_nan = job_.spec.nan_policy == NanPolicy::kOmit,
                         .is_median = call.op == Op::kMedian,
                         .method = call.given().method,
                         .quantiles = reinterpret_cast<const double*>(*listed),
                         .of_each = static_cast<int>(of_each),
                         .array = array_,
                         .outputs = {.bounds = bounds_, .columns = columns_, .elements = partition_.layout.elements},
                         .positions = positions,
                         .longest = LongestOfMany(positions * outputs_, lane_.multiprocessors_),
                         .most_shared_bytes = lane_.shared_bytes_,
                         .stream = lane_.kernel_stream_};
  if (!grouped_) launch.outputs.kept = DimensionsFrom(partition_.layout.kept);

  // Of each output: two keys and an answer for each quantile, and a byte.
  const std::int64_t answer_bytes = of_each * RowOf(result).bytes, key_bytes = 2 * of_each * width_;
  const std::int64_t bytes = key_bytes + answer_bytes + 1;
  const std::int64_t size = std::clamp<std::int64_t>(
      std::min(kBatchBytes / bytes, kBatchPositions / std::max<std::int64_t>(1, positions)), 1, outputs_);
  std::vector<std::unique_ptr<ArrayMemory>> memory;
  constexpr std::int64_t kAlignment = 8;  // of answers, whose keys may be narrow
  const std::int64_t keys_bytes = (size * key_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const absl::StatusOr<std::byte*> room = Allocate(size * bytes + kAlignment, &memory);
  if (!room.ok()) return room.status();
  launch.keys = *room;
  launch.answers = static_cast<std::byte*>(launch.keys) + keys_bytes;
  std::vector<std::uint8_t> left(static_cast<std::size_t>(size));
  std::vector<std::int64_t> too_long;
  absl::Status status;
  for (std::int64_t first = 0; first < outputs_ && status.ok() && !errors_.Ended(first); first += size) {
    launch.first = first;
    launch.count = std::min(size, outputs_ - first);
    launch.left = reinterpret_cast<std::uint8_t*>(launch.answers) + launch.count * answer_bytes;
    status = Launch(
        [&] { return brackets_.has_value() ? LaunchBracketAnswers(launch, *brackets_) : LaunchQuantiles(launch); }, 0);
    if (status.ok()) {
      status =
          lane_.CopyToHost(job_, launch.answers, launch.count * (answer_bytes + 1),
                           {{0, launch.count * answer_bytes, answers_[op] + first * answer_bytes},
                            {launch.count * answer_bytes, launch.count, reinterpret_cast<std::byte*>(left.data())}},
                           timing_);
    }
    const bool may_be_empty = RowOf(result).is_float || job_.spec.empty_policy != EmptyPolicy::kError;
    for (std::int64_t i = 0; i < launch.count && status.ok(); ++i) {
      const std::uint8_t is_left = left[static_cast<std::size_t>(i)];
      if (is_left == kTooLong) too_long.push_back(first + i);
      if (is_left == kNotKnown && !may_be_empty) errors_.Fail(op, first + i, TooFew(job_.spec, call, 0));
    }
  }
  if (!status.ok()) lane_.Abandon();  // memory goes that a launch may use
  return status.ok() ? AnswerAsArrays(op, too_long) : status;
}

absl::Status CudaLane::GroupReduction::AnswerAsArrays(std::size_t op, const std::vector<std::int64_t>& outputs) {
  if (outputs.empty()) return absl::OkStatus();
  if (LieOf(array_) != Lie::kNeighbours) {
    return absl::UnimplementedError("quantiles of a long output whose elements are no neighbours");
  }
  const OpCall& call = job_.spec.ops[op];
  const std::int64_t answer_bytes = AnswerElements(call) * RowOf(ResultDType(call, job_.spec.dtype)).bytes;
  WholeArray array(lane_, job_, arrays_, timing_);
  for (const std::int64_t output : outputs) {
    if (errors_.Ended(output)) break;
    std::vector<GroupPart> whole(1);
    if (grouped_) {
      if (absl::Status status = Locate(&output, &whole); !status.ok()) return status;
    } else {
      whole[0] = WholeOf(output);
    }
    absl::Status op_error;
    const auto* const data = static_cast<const std::byte*>(array_.data) + whole[0].start * width_;
    const absl::Status status =
        array.Answer(call, data, /*other=*/nullptr, whole[0].end, answers_[op] + output * answer_bytes,
                     /*state=*/nullptr, &op_error);
    if (!status.ok()) lane_.Abandon();  // what is in flight uses memory of the answer
    if (!status.ok()) return status;
    if (!op_error.ok()) errors_.Fail(op, output, op_error);
  }
  return absl::OkStatus();
}

}  // namespace reduced
