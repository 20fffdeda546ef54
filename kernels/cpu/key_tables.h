// Sums, sums of squares and extrema by key without sorting the rows: each thread adds its stretch of rows to a table
// with an entry for each group, and the tables are merged group by group.
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

  // Writes what was wanted, the numbers of elements and, of floats, of NaNs of groups [first, first + count), at most
  // kQuickOutputs. Positions are rows. A group without elements that count has the sum 0, and is said to have a NaN. On
  // any thread.
  virtual void Load(std::int64_t first, std::int64_t count, QuickFound* found, std::int64_t* counts) const = 0;
};

struct KeyTablesWanted {
  bool sums = false;
  bool squares = false;
  bool extrema = false;
  bool omit_nans = false;  // they are elements, but in no sum and no extremum
};

// Of the `rows` elements at `data`, by the keys of the grouping. Null: there are none for this dtype, or those of most
// threads would be larger than the sorted rows. An error of context.why_stop or of the grouping's Check;
// RESOURCE_EXHAUSTED: there is no memory.
absl::StatusOr<std::unique_ptr<KeyTables>> MakeKeyTables(DType dtype, const std::byte* data, std::int64_t rows,
                                                         const Grouping& grouping, KeyTablesWanted wanted,
                                                         const GroupingContext& context);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_KEY_TABLES_H_
