#include "server/calls/shard_jobs.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace reduced::server {
namespace {

absl::Status Unimplemented(const ShardedArray& array, absl::string_view field, absl::string_view got,
                           absl::string_view allowed) {
  return absl::UnimplementedError(
      absl::StrFormat("%s: got %s with an array that is cut over %s; allowed: %s, or a copy "
                      "of the array on one device",
                      field, got, array.DeviceNames(), allowed));
}

// Whether dimension 0, of at least 2, is the outermost of these, which have it and what was joined with it.
bool HasRows(const std::vector<Dimension>& dimensions, std::int64_t count) {
  return !dimensions.empty() && dimensions.front().size * dimensions.front().stride == count;
}

// Makes dimension 0, the outermost of these, one of `part` of its `rows`.
void CutDimension(std::int64_t rows, std::int64_t part, std::vector<Dimension>* dimensions) {
  std::int64_t& size = dimensions->front().size;
  size = size / rows * part;
  if (size == 1) dimensions->erase(dimensions->begin());
}

Layout CutLayout(Layout layout, std::int64_t count, std::int64_t rows, std::int64_t part) {
  if (HasRows(layout.kept, count)) {
    CutDimension(rows, part, &layout.kept);
    layout.outputs = layout.outputs / rows * part;
    layout.shape.front() = part;
  } else {
    CutDimension(rows, part, &layout.reduced);
    layout.elements = layout.elements / rows * part;
  }
  return layout;
}

// Makes `side` what of it goes with the shard: `count` elements from `first` on.
absl::Status CutSide(const char* field, std::int64_t first, std::int64_t count, const ArrayShard& shard,
                     const std::vector<ShardedSide>& sharded, SideArray* side) {
  const auto other =
      std::find_if(sharded.begin(), sharded.end(), [field](const ShardedSide& each) { return each.field == field; });
  side->count = count;
  if (other == sharded.end()) {
    side->array = From(side->array, first * RowOf(side->dtype).bytes);
    return absl::OkStatus();
  }
  for (const ArrayShard& each : other->array->shards()) {
    if (each.engine != shard.engine || each.first != first || each.count != count) continue;
    side->array = each.memory->array();
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: got an array that is cut otherwise than the one that is reduced; allowed: one that is cut "
                      "at the same elements, or in host memory",
                      field));
}

// The bits of a mask that go with the shard, from the first byte that has any.
absl::Status CutBits(const ArrayShard& shard, const std::vector<ShardedSide>& sharded, Mask* mask) {
  const std::int64_t first = mask->first_bit + shard.first;
  mask->first_bit = first % 8;
  return CutSide("where.bits", first / 8, (mask->first_bit + shard.count + 7) / 8, shard, sharded, &mask->array);
}

absl::Status CutOther(const char* field, std::int64_t rows, const ArrayShard& shard,
                      const std::vector<ShardedSide>& sharded, OtherArray* other) {
  std::vector<Dimension>& broadcast = other->broadcast;
  std::int64_t row = 0;  // elements of the other array for an index of dimension 0: none, if it has one for all
  if (broadcast.empty() || broadcast.front().stride != 0) row = other->array.count / rows;
  if (!broadcast.empty()) {
    CutDimension(rows, shard.rows, &broadcast);
    if (broadcast.size() == 1 && broadcast.front().stride == 1) broadcast.clear();
  }
  return row == 0 ? CutSide(field, 0, other->array.count, shard, sharded, &other->array)
                  : CutSide(field, shard.first_row * row, shard.rows * row, shard, sharded, &other->array);
}

}  // namespace

bool MergesOutputs(const Job& job) {
  return !job.partition.has_value() || job.partition->grouped() || !HasRows(job.partition->layout.kept, job.spec.count);
}

absl::Status CheckShardable(const Job& job, const ShardedArray& array, const std::vector<ShardedSide>& sides) {
  if (!job.partition.has_value()) return absl::OkStatus();
  if (const std::optional<Segments>& segments = job.partition->segments) {
    const absl::string_view field = segments->lengths ? "segments.lengths" : "segments.offsets";
    const bool sharded = std::any_of(sides.begin(), sides.end(), [&](const auto& side) { return side.field == field; });
    if (sharded || segments->bounds.array.space == MemorySpace::kDevice) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s: got an array in the memory of a GPU for an array that is cut over %s; allowed: one in "
                          "host memory",
                          field, array.DeviceNames()));
    }
  }
  if (!MergesOutputs(job)) return absl::OkStatus();
  for (const OpCall& call : job.spec.ops) {
    const std::string op = absl::StrFormat("op %s", RowOf(call.op).name);
    if (IsWeightedQuantile(call.op)) {
      return Unimplemented(array, op, "outputs that several of the devices have parts of", "axes without dimension 0");
    }
    for (const ArrayShard& shard : array.shards()) {
      if (IsMatrix(call.op) && shard.first % call.given().columns != 0) {
        return Unimplemented(array, op, "rows that the cut divides",
                             "an array of two dimensions, a row for each index");
      }
    }
  }
  return absl::OkStatus();
}

ShardSegments CutSegments(const std::vector<std::int64_t>& bounds, const ArrayShard& shard) {
  const std::int64_t begin = shard.first_row, end = begin + shard.rows, count = std::ssize(bounds) - 1;
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), begin) - bounds.begin();
  const auto last = std::lower_bound(bounds.begin(), bounds.end(), end) - bounds.begin();
  const std::int64_t first = std::clamp<std::int64_t>(after - 1, 0, std::max<std::int64_t>(count - 1, 0));
  const std::int64_t to = std::clamp<std::int64_t>(last, std::min(first + 1, count), count);
  ShardSegments segments{.first = first};
  for (std::int64_t i = first; i <= to; ++i) {
    segments.offsets.push_back(std::clamp(bounds[static_cast<std::size_t>(i)], begin, end) - begin);
  }
  return segments;
}

absl::StatusOr<Job> CutJob(const Job& whole, const ShardedArray& array, const ArrayShard& shard,
                           const std::vector<ShardedSide>& sides) {
  Job job = whole;
  job.array = shard.memory->array();
  job.spec.count = shard.count;
  for (OpCall& call : job.spec.ops) call = StartingAt(shard.first, call);
  if (!job.partition.has_value()) return job;
  Partition& partition = *job.partition;
  partition.layout = CutLayout(partition.layout, whole.spec.count, array.rows(), shard.rows);
  partition.rows = shard.rows;
  absl::Status status;
  if (std::optional<Keys>& keys = partition.keys) {
    status = CutSide("keys.keys", shard.first_row, shard.rows, shard, sides, &keys->keys);
  }
  if (std::optional<Mask>& mask = partition.mask; mask.has_value() && status.ok()) {
    status = mask->bits ? CutBits(shard, sides, &*mask)
                        : CutSide("where.elements", shard.first, shard.count, shard, sides, &mask->array);
  }
  if (job.y.has_value() && status.ok()) status = CutOther("y", array.rows(), shard, sides, &*job.y);
  if (job.weights.has_value() && status.ok()) status = CutOther("weights", array.rows(), shard, sides, &*job.weights);
  if (!status.ok()) return status;
  return job;
}

}  // namespace reduced::server
