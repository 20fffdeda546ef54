#include "client/lib/ring_plan.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/via.h"
#include "proto/ring/codec.h"

namespace reduced::client {

absl::StatusOr<RingPlan> MakeRingPlan(const ArrayView& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, absl::Duration timeout) {
  RingPlan plan{.timeout = options.timeout.value_or(timeout)};
  absl::Status status = CheckTimeout(plan.timeout);
  status.Update(ToProto(array, plan.request.mutable_array()));
  status.Update(CheckElements(array));
  status.Update(ToProto(ops, options, &plan.request));
  if (status.ok() && options.via != "auto" && options.via != kInline) {
    status =
        absl::InvalidArgumentError(absl::StrCat("via: got \"", options.via, "\" in a session; allowed: auto, inline"));
  }
  if (!status.ok()) return status;
  plan.data = array.data;
  plan.bytes = static_cast<std::uint64_t>(*ArrayBytes(array.dtype, array.shape));
  plan.elements = true;
  if (!ring::FitsFixedForm(plan.request)) plan.message = plan.request.SerializeAsString();
  return plan;
}

absl::StatusOr<RingPlan> MakeRingPlan(const RemoteArray& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, absl::Duration timeout) {
  RingPlan plan{.timeout = options.timeout.value_or(timeout)};
  absl::Status status = CheckTimeout(plan.timeout);
  status.Update(ToProto(array, &plan.request));
  status.Update(ToProto(ops, options, &plan.request));
  if (!status.ok()) return status;
  if (!ring::FitsFixedForm(plan.request)) plan.message = plan.request.SerializeAsString();
  return plan;
}

}  // namespace reduced::client
