// Partitions: which elements of an array belong to which output. An array falls apart along axes, by segments or by
// keys of dimension 0, or not at all; a mask leaves elements out in each case.
#ifndef REDUCED_KERNELS_ENGINE_PARTITION_H_
#define REDUCED_KERNELS_ENGINE_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/spec.h"
#include "kernels/engine/array.h"

namespace reduced {

// An array beside the one that is reduced: in host memory, in a file, or in the memory of the CUDA device that reduces.
// Others may change it at any time: its elements are checked once they were copied.
struct SideArray {
  DType dtype = DType::kI64;
  std::int64_t count = 0;  // elements
  ArrayRef array{};        // stays readable until the job is done

  std::int64_t bytes() const { return count * RowOf(dtype).bytes; }
};

// Reads all of a side array that IsCopied. Errors: as CopyElements, or of `why_stop`, which is asked every now and
// then.
absl::Status ReadSide(const SideArray& side, absl::FunctionRef<absl::Status()> why_stop, std::byte* to);

// The other operand of ops about two arrays: y or weights. Its elements go with those of the array that is reduced.
struct OtherArray {
  SideArray array{};
  // Empty: it has an element for each of the array's, in the same order. Else the array's dimensions, from the
  // outermost, each with how far the elements of this array lie from each other along it: 0 where it has one for all.
  std::vector<Dimension> broadcast{};
};

// Consecutive stretches of dimension 0.
struct Segments {
  SideArray bounds{};    // i32 or i64
  bool lengths = false;  // bounds are the lengths of segments that begin at 0; else the S + 1 offsets of S segments

  std::int64_t count() const { return lengths ? bounds.count : bounds.count - 1; }
};

// What along dimension 0 has the same key.
struct Keys {
  SideArray keys{};         // integers, one for each element of dimension 0, fewer than 2^32
  std::int64_t groups = 0;  // of keys 0 to groups - 1; 0: of every key that there is, ascending
  bool drop = false;        // leaves out what has other keys, which is an error else
};

// What is there of an array; the rest does not exist, but that indexes count it.
struct Mask {
  SideArray array{};           // bool: an element for each of the array's; or u8, as bits of these
  bool bits = false;           // the least significant one of a byte first
  std::int64_t first_bit = 0;  // that of the array's element 0
};

// Where the results of a partition go. It is called once, unless there was an error before: by a lane, or before
// Engine::Reduce returns. `keys`: ascending, of each group, if they were to be found; else null. They are elements of
// the dtype of the keys. Returns memory for each op: `outputs` results, row-major, at any address, which stays writable
// until the job is done; none at all if states are wanted and no results.
using PlaceResults = std::function<absl::StatusOr<std::vector<std::byte*>>(std::int64_t outputs, std::int64_t groups,
                                                                           const std::byte* keys)>;

struct Partition {
  // With segments or keys: of the whole array along dimension 0, so that each of them has layout.outputs outputs, one
  // for each column. Else those are the outputs.
  Layout layout{};
  std::int64_t rows = 0;               // the size of dimension 0; with segments or keys
  std::optional<Segments> segments{};  // at most one of the two
  std::optional<Keys> keys{};
  std::optional<Mask> mask{};

  bool grouped() const { return segments.has_value() || keys.has_value(); }
  // Each output has layout.elements elements, where the layout says.
  bool uniform() const { return !grouped() && !mask.has_value(); }
  // Of each output's elements: where one can be, which is what indexes count. Segments: of all together.
  std::int64_t positions() const { return keys.has_value() ? rows : layout.elements; }
  // How many segments or keys there are, as far as is known before the array is read: 0 for keys to be found.
  std::int64_t groups() const { return segments.has_value() ? segments->count() : keys.has_value() ? keys->groups : 1; }
};

// OK, or INVALID_ARGUMENT: why an array of that shape, `side`, is not what it is to be, with the name of its field.
// `shape`: of the array that is reduced.
absl::Status Validate(const Segments& segments, std::span<const std::int64_t> side);
absl::Status Validate(const Keys& keys, std::span<const std::int64_t> side, std::span<const std::int64_t> shape);
absl::Status Validate(const Mask& mask, std::span<const std::int64_t> side, std::span<const std::int64_t> shape);

// INVALID_ARGUMENT: offset i is `offset`, less than `before`, the one before it, or more than `rows`.
absl::Status BadOffset(std::int64_t i, std::int64_t offset, std::int64_t before, std::int64_t rows);

// Writes the offsets of the segments of `rows` rows, one more than segments, to `to`. `elements`: those of
// segments.bounds, which others may change meanwhile. INVALID_ARGUMENT: the first of them that descends or leaves the
// rows. `why_stop` is asked every now and then; an error ends it.
absl::Status CopyBounds(const Segments& segments, const std::byte* elements, std::int64_t rows,
                        absl::FunctionRef<absl::Status()> why_stop, std::int64_t* to);

// How an array of shape `other` goes with one of shape `shape`: as NumPy broadcasts, but that the result has the shape
// of the latter. INVALID_ARGUMENT, with the name `field`: it does not.
absl::StatusOr<std::vector<Dimension>> Broadcast(const char* field, std::span<const std::int64_t> other,
                                                 std::span<const std::int64_t> shape);
// The index in the other array of what goes with element `index`.
std::int64_t BroadcastIndex(std::span<const Dimension> broadcast, std::int64_t index);

// OK, or what is wrong with a question about the outputs: as ValidateSpec, whose spec is about the whole array here;
// UNIMPLEMENTED also: a pipeline that reduces whole arrays only.
absl::Status Validate(const Partition& partition, const ReduceSpec& spec, bool op_errors = false);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_PARTITION_H_
