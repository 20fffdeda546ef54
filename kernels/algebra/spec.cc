#include "kernels/algebra/spec.h"

#include <algorithm>

#include "kernels/exact/answers.h"

namespace reduced {

bool AnsweredByAccumulators(const ReduceSpec& spec) {
  return std::all_of(spec.ops.begin(), spec.ops.end(), [](Op op) { return HasAccumulator(op); });
}

AccumulatorSet AccumulatorsFor(const ReduceSpec& spec) {
  AccumulatorSet set = 0;
  const bool exact = spec.precision == Precision::kExact;
  for (const Op op : spec.ops) {
    if (!exact || !IsExactOp(op, spec.dtype)) set |= AccumulatorsOf(op, spec.dtype);
  }
  const bool omit_nan = spec.nan_policy == NanPolicy::kOmit && RowOf(spec.dtype).is_float;
  return set != 0 && omit_nan ? set | SetOf(Accumulator::kCounts) : set;
}

}  // namespace reduced
