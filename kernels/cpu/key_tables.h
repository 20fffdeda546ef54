// Sums, sums of squares and extrema by key without sorting the rows: they are added to a table with an entry for each
// group.
//
// Where a table stays in a cache, each thread adds its stretch of rows to one of its own, and the tables are merged
// group by group. Where it does not, rows are first moved apart (key_parts.h), and each thread adds those of some
// groups, which are in the cache meanwhile, to the only table.
//
// An entry's sum is kept as in quick_sums.h, so that whatever adds up exactly has the same bits in any order; extrema
// compare by their keys, as in quick_extrema.h, and a tie is the first row's. What is not known so is to be reduced in
// the other way.
#ifndef REDUCED_KERNELS_CPU_KEY_TABLES_H_
#define REDUCED_KERNELS_CPU_KEY_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/algebra/dtype.h"
#include "kernels/cpu/grouping.h"
#include "kernels/cpu/quick_answers.h"

namespace reduced {

class KeyTables {
 public:
  virtual ~KeyTables() = default;

  // Writes what was wanted of groups [first, first + count), at most kQuickOutputs, and the numbers of their elements;
  // if these were not wanted, 1 in place of any but 0. Positions are rows. A group without elements that count has the
  // sum 0, and is said to have a NaN. On any thread.
  virtual void Load(std::int64_t first, std::int64_t count, QuickFound* found, std::int64_t* counts) const = 0;
};

struct KeyTablesWanted {
  bool counts = false;  // the numbers of elements and, of floats, of NaNs; found with sums and squares, too
  bool sums = false;
  bool squares = false;
  bool lowest = false;
  bool highest = false;
  bool omit_nans = false;  // they are elements, but in no sum and no extremum
};

// Of the `rows` elements at `data`, by the keys of the grouping. They take at most 16 bytes for each row, or 8 MiB, and
// up to 192 KiB of each thread. Null: there are none for this dtype, or they would take more. An error of
// context.why_stop or of the grouping's Check; RESOURCE_EXHAUSTED: there is no memory.
absl::StatusOr<std::unique_ptr<KeyTables>> MakeKeyTables(DType dtype, const std::byte* data, std::int64_t rows,
                                                         const Grouping& grouping, KeyTablesWanted wanted,
                                                         const GroupingContext& context);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_KEY_TABLES_H_
