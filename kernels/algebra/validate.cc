#include "kernels/algebra/validate.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reduced {

absl::Status ValidateOps(const ReduceSpec& spec) {
  const auto wrong = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (spec.ops.empty()) return wrong("ops: got none; allowed: at least 1");
  if (spec.count < 0) return wrong(absl::StrFormat("count: got %d; allowed: at least 0", spec.count));
  if (spec.ddof < 0) return wrong(absl::StrFormat("ddof: got %d; allowed: at least 0", spec.ddof));
  for (const OpCall& call : spec.ops) {
    if (absl::Status status = Validate(call, spec.dtype); !status.ok()) return status;
    if (spec.count == 0 && spec.empty_policy == EmptyPolicy::kError && LeastElements(call, spec.dtype) > 0) {
      return wrong(absl::StrFormat("op %s: got an empty array; allowed: at least %s", RowOf(call).name,
                                   LeastElements(call, spec.dtype) == 1
                                       ? "1 element"
                                       : absl::StrCat(LeastElements(call, spec.dtype), " elements")));
    }
  }
  return absl::OkStatus();
}

}  // namespace reduced
