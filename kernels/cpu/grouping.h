// Which rows of an array, its items along dimension 0, belong to which group: from the bounds of segments, and from
// keys; their rows are sorted by counting sort, which keeps those of a group in order.
#ifndef REDUCED_KERNELS_CPU_GROUPING_H_
#define REDUCED_KERNELS_CPU_GROUPING_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/engine/array.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/partition.h"
#include "oneapi/tbb/task_arena.h"

namespace reduced {

inline constexpr std::uint32_t kNoGroup = std::numeric_limits<std::uint32_t>::max();

// Keys whose groups are computed where they are needed. Each is one of the groups or kNoGroup, also while another
// process writes to the keys; but then two calls may give different groups for the same row. Thread-safe.
class KeysInPlace {
 public:
  virtual ~KeysInPlace() = default;

  // The groups of rows [begin, end), or kNoGroup.
  virtual void Ids(std::int64_t begin, std::int64_t end, std::uint32_t* ids) = 0;
  // OUT_OF_RANGE: the first key outside of the groups, of the rows that were looked at, unless they are to be dropped.
  virtual absl::Status Check() const = 0;
};

struct Grouping {
  std::int64_t groups = 0;
  std::unique_ptr<KeysInPlace> in_place{};  // with keys, if not null: gives the groups of rows while `ids` is null
  const std::uint32_t* ids = nullptr;       // with keys: the group of each row, or kNoGroup
  const std::int64_t* bounds = nullptr;     // groups + 1, ascending: group g has items bounds[g] to bounds[g + 1] - 1
  const std::uint32_t* rows = nullptr;      // of each item; null: item i is row i
  const std::byte* keys = nullptr;          // of each group, ascending, of the dtype of the keys; null: they were given
  std::vector<std::unique_ptr<ArrayMemory>> memory{};  // has the above, but for what SortRows adds
  std::vector<std::unique_ptr<ArrayMemory>> sorted{};  // has the bounds and rows by keys
  bool all_sorted = false;                             // whether these are of all groups
  bool in_order = false;  // with keys in ascending order: group g is rows bounds[g] to bounds[g + 1] - 1
};

// OUT_OF_RANGE: the key of `row`, as text in `key`, is not from 0 to groups - 1.
absl::Status BadKey(std::int64_t row, absl::string_view key, std::int64_t groups);

// What a grouping needs besides the array that tells the groups.
struct GroupingContext {
  ArrayBudget& budget;                         // of its memory
  tbb::task_arena& arena;                      // its threads
  absl::FunctionRef<absl::Status()> why_stop;  // asked every now and then; an error ends it. Thread-safe
  // Whether the grouping of keys that are to be found may be in_place or in_order. False: it has ids.
  bool lazily = false;
};

// `bounds`: the elements of segments.bounds. Errors: those of CopyBounds; RESOURCE_EXHAUSTED: there is no memory.
absl::StatusOr<Grouping> GroupBySegments(const Segments& segments, const std::byte* bounds, std::int64_t rows,
                                         const GroupingContext& context);

// `elements`: those of keys.keys. `kept`: whether a row is there at all, on any thread; others are in no group. Null:
// all are. The grouping has either ids or, of all rows of given groups, in_place, and no bounds; or of keys in order
// bounds alone. OUT_OF_RANGE: the first key outside of the groups, unless they are to be dropped; in_place->Check()
// says so later. RESOURCE_EXHAUSTED: there is no memory.
absl::StatusOr<Grouping> GroupByKeys(const Keys& keys, const std::byte* elements,
                                     const absl::FunctionRef<bool(std::int64_t)>* kept, const GroupingContext& context);

// Adds the bounds and rows of a grouping by keys, and its ids, unless it has those of all groups. `only`: not null:
// those of groups that are not among them are left out, as if they had no rows. OUT_OF_RANGE: as GroupByKeys.
absl::Status SortRows(std::int64_t rows, const GroupingContext& context, Grouping* grouping,
                      const std::vector<std::int64_t>* only = nullptr);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_GROUPING_H_
