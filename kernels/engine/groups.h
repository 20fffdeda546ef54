// Reductions whose outputs differ in how many elements they have: those of segments, of keys, and of what a mask
// leaves.
#ifndef REDUCED_KERNELS_ENGINE_GROUPS_H_
#define REDUCED_KERNELS_ENGINE_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/layout.h"
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

// Where the results go. `keys`: ascending, of each group, if they were to be found; else empty. They are elements of
// the dtype of the keys. Returns memory for each op: `outputs` results, row-major, at any address, which stays writable
// until the job is done.
using PlaceResults = absl::AnyInvocable<absl::StatusOr<std::vector<std::byte*>>(
                                            std::int64_t outputs, std::int64_t groups, const std::byte* keys) &&>;

struct Groups {
  // With segments or keys: of the whole array along dimension 0, so that each of them has layout.outputs outputs, one
  // for each column. Else those are the outputs.
  Layout layout{};
  std::int64_t rows = 0;               // the size of dimension 0
  std::optional<Segments> segments{};  // at most one of the two
  std::optional<Keys> keys{};
  std::optional<Mask> mask{};
};

// OK, or INVALID_ARGUMENT: why an array of that shape, `side`, is not what it is to be, with the name of its field.
// `shape`: of the array that is reduced.
absl::Status Validate(const Segments& segments, std::span<const std::int64_t> side);
absl::Status Validate(const Keys& keys, std::span<const std::int64_t> side, std::span<const std::int64_t> shape);
absl::Status Validate(const Mask& mask, std::span<const std::int64_t> side, std::span<const std::int64_t> shape);

// OK, or FAILED_PRECONDITION: a side array is in the memory of another CUDA device than `device`, that of the engine
// `engine`; kNoDevice: it has none.
absl::Status CheckSides(const Groups& groups, int device, std::string_view engine);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_GROUPS_H_
