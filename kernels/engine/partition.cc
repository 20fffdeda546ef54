#include "kernels/engine/partition.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/engine/pipelines.h"
#include "kernels/folds/elements.h"
#include "kernels/system/status_macros.h"

namespace reduced {
namespace {

absl::Status CheckVector(const char* field, std::span<const std::int64_t> side) {
  if (side.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: got an array of %d dimensions; allowed: 1", field, side.size()));
}

absl::Status WrongDType(const char* field, DType got, const char* allowed) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: got %s; allowed: %s", field, RowOf(got).name, allowed));
}

template <class T>
absl::Status CopyBoundsOf(const Segments& segments, const std::byte* elements, std::int64_t rows,
                          absl::FunctionRef<absl::Status()> why_stop, std::int64_t* to) {
  constexpr std::int64_t kBetweenStops = 1 << 16;
  const std::int64_t count = segments.count();
  const auto stop = [&](std::int64_t i) { return i % kBetweenStops == 0 ? why_stop() : absl::OkStatus(); };
  std::int64_t before = 0;
  if (!segments.lengths) {
    for (std::int64_t i = 0; i <= count; ++i) {
      RETURN_IF_ERROR(stop(i));
      const std::int64_t offset = ElementAt<T>(elements, i);
      if (offset < before || offset > rows) return BadOffset(i, offset, before, rows);
      to[i] = before = offset;
    }
    return absl::OkStatus();
  }
  to[0] = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(stop(i));
    const std::int64_t length = ElementAt<T>(elements, i);
    if (length < 0 || length > rows - before) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "segments.lengths[%d]: got %d; allowed: 0 to %d, what is left of dimension 0", i, length, rows - before));
    }
    to[i + 1] = before += length;
  }
  if (before == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("segments.lengths: got a sum of %d; allowed: %d, the size of dimension 0", before, rows));
}

std::int64_t CountOf(std::span<const std::int64_t> shape) {
  std::int64_t count = std::find(shape.begin(), shape.end(), 0) == shape.end() ? 1 : 0;
  for (const std::int64_t size : shape) count = count == 0 ? 0 : count * size;
  return count;
}

}  // namespace

absl::Status ReadSide(const SideArray& side, absl::FunctionRef<absl::Status()> why_stop, std::byte* to) {
  constexpr std::int64_t kBetweenStops = 1 << 20;  // bytes
  for (std::int64_t done = 0; done < side.bytes(); done += kBetweenStops) {
    RETURN_IF_ERROR(why_stop());
    const std::int64_t bytes = std::min(kBetweenStops, side.bytes() - done);
    RETURN_IF_ERROR(CopyElements(side.array, done, bytes, to + done));
  }
  return absl::OkStatus();
}

absl::Status Validate(const Segments& segments, std::span<const std::int64_t> side) {
  const char* const field = segments.lengths ? "segments.lengths" : "segments.offsets";
  if (const absl::Status status = CheckVector(field, side); !status.ok()) return status;
  const DType dtype = segments.bounds.dtype;
  if (dtype != DType::kI32 && dtype != DType::kI64) return WrongDType(field, dtype, "i32, i64");
  if (segments.count() >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError("segments.offsets: got none; allowed: 1 or more, one more than segments");
}

absl::Status BadOffset(std::int64_t i, std::int64_t offset, std::int64_t before, std::int64_t rows) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "segments.offsets[%d]: got %d; allowed: %d to %d, ascending within dimension 0", i, offset, before, rows));
}

absl::Status CopyBounds(const Segments& segments, const std::byte* elements, std::int64_t rows,
                        absl::FunctionRef<absl::Status()> why_stop, std::int64_t* to) {
  return segments.bounds.dtype == DType::kI32 ? CopyBoundsOf<std::int32_t>(segments, elements, rows, why_stop, to)
                                              : CopyBoundsOf<std::int64_t>(segments, elements, rows, why_stop, to);
}

absl::Status Validate(const Keys& keys, std::span<const std::int64_t> side, std::span<const std::int64_t> shape) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 32) - 2;  // rows and groups are counted in 32 bits
  if (const absl::Status status = CheckVector("keys.keys", side); !status.ok()) return status;
  const DType dtype = keys.keys.dtype;
  if (RowOf(dtype).is_float || dtype == DType::kBool) return WrongDType("keys.keys", dtype, "integers");
  if (keys.keys.count != shape.front() || keys.keys.count > kMost) {
    return absl::InvalidArgumentError(
        absl::StrFormat("keys.keys: got %d keys; allowed: as many as dimension 0 has items, %d, and at most %d",
                        keys.keys.count, shape.front(), kMost));
  }
  if (keys.groups >= 0 && keys.groups <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("keys.groups: got %d; allowed: 0 to %d", keys.groups, kMost));
}

absl::Status Validate(const Mask& mask, std::span<const std::int64_t> side, std::span<const std::int64_t> shape) {
  if (!mask.bits) {
    if (mask.array.dtype != DType::kBool) return WrongDType("where.elements", mask.array.dtype, "bool");
    if (mask.first_bit != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("where.first_bit: got %d without bits; allowed: 0", mask.first_bit));
    }
    if (std::equal(side.begin(), side.end(), shape.begin(), shape.end())) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("where.elements: got shape %s; allowed: %s, the array's", ShapeText(side), ShapeText(shape)));
  }
  if (const absl::Status status = CheckVector("where.bits", side); !status.ok()) return status;
  if (mask.array.dtype != DType::kU8) return WrongDType("where.bits", mask.array.dtype, "u8");
  const std::int64_t count = CountOf(shape);
  std::int64_t bits = 0;
  if (mask.first_bit < 0 || __builtin_add_overflow(mask.first_bit, count, &bits)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "where.first_bit: got %d; allowed: 0 or more, and with the elements less than 2^63", mask.first_bit));
  }
  const std::int64_t bytes = bits / 8 + (bits % 8 != 0 ? 1 : 0);
  if (mask.array.count >= bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("where.bits: got %d bytes; allowed: %d or more, for %d elements from bit %d on", mask.array.count,
                      bytes, count, mask.first_bit));
}

absl::Status Validate(const Partition& partition, const ReduceSpec& spec, bool op_errors) {
  ReduceSpec one = spec;  // about one output
  one.count = 1;
  if (absl::Status status = ValidateSpec(one, false, AnswerSource::kPartition); !status.ok()) return status;
  // Whether outputs that differ in how many elements they have are empty is found out later.
  if (partition.uniform() && partition.layout.elements == 0 && partition.layout.outputs > 0) {
    one.count = 0;
    if (absl::Status status = ValidateSpec(one, op_errors, AnswerSource::kPartition); !status.ok()) {
      return OutputError(partition.layout, 0, status);
    }
  }
  if (one.pipeline.empty() || !FindPipeline(one.pipeline)->rung) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat("pipeline: got %s for arrays of results; allowed: %s", one.pipeline,
                                                  DefaultPipeline(EngineKind::kCpu).name));
}

absl::StatusOr<std::vector<Dimension>> Broadcast(const char* field, std::span<const std::int64_t> other,
                                                 std::span<const std::int64_t> shape) {
  if (std::equal(other.begin(), other.end(), shape.begin(), shape.end())) return std::vector<Dimension>();
  std::vector<Dimension> dimensions;
  std::int64_t stride = 1;
  bool fits = other.size() <= shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {  // from the innermost
    const std::int64_t size = shape[shape.size() - 1 - i];
    const std::int64_t has = i < other.size() ? other[other.size() - 1 - i] : 1;
    fits = has == size || has == 1;
    if (size == 1) continue;
    const Dimension next{size, has == 1 ? 0 : stride};
    stride *= has;
    // Neighbouring dimensions are one where its elements go on.
    if (!dimensions.empty() &&
        next.stride == dimensions.back().stride * (next.stride == 0 ? 1 : dimensions.back().size)) {
      dimensions.back().size *= size;
    } else {
      dimensions.push_back(next);
    }
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: got shape %s; allowed: %s, the array's, or one that broadcasts to it: fewer dimensions "
                        "before its own, or 1 "
                        "in place of a dimension",
                        field, ShapeText(other), ShapeText(shape)));
  }
  std::reverse(dimensions.begin(), dimensions.end());
  if (dimensions.size() == 1 && dimensions.front().stride == 1) dimensions.clear();
  return dimensions;
}

std::int64_t BroadcastIndex(std::span<const Dimension> broadcast, std::int64_t index) {
  std::int64_t other = 0;
  for (std::size_t i = broadcast.size(); i-- > 0;) {
    other += index % broadcast[i].size * broadcast[i].stride;
    index /= broadcast[i].size;
  }
  return other;
}

}  // namespace reduced
