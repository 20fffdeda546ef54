#include "kernels/algebra/validate.h"

#include <string>

#include "absl/strings/str_format.h"

namespace reduced {

absl::Status ValidateOps(const ReduceSpec& spec) {
  const auto wrong = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (spec.ops.empty()) return wrong("ops: got none; allowed: at least 1");
  if (spec.count < 0) return wrong(absl::StrFormat("count: got %d; allowed: at least 0", spec.count));
  if (spec.ddof < 0) return wrong(absl::StrFormat("ddof: got %d; allowed: at least 0", spec.ddof));
  for (const Op op : spec.ops) {
    if (!Supports(op, spec.dtype)) {
      return wrong(
          absl::StrFormat("op %s: got dtype %s; allowed: integers and bool", RowOf(op).name, RowOf(spec.dtype).name));
    }
    if (spec.count == 0 && spec.empty_policy == EmptyPolicy::kError && RowOf(op).error_if_empty) {
      return wrong(absl::StrFormat("op %s: got an empty array; allowed: at least 1 element", RowOf(op).name));
    }
  }
  return absl::OkStatus();
}

}  // namespace reduced
