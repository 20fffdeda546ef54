#include "server/wire/response.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/partial.h"
#include "server/wire/request.h"
#include "server/wire/state.h"

namespace reduced::server {
namespace {

void FillTiming(const Timing& from, std::optional<double> receive_us, std::int64_t bytes, v1::Timing* to) {
  if (receive_us) to->set_receive_us(*receive_us);
  if (from.queue_us) to->set_queue_us(*from.queue_us);
  if (from.host_copy_us) to->set_host_copy_us(*from.host_copy_us);
  if (from.host_to_device_us) to->set_host_to_device_us(*from.host_to_device_us);
  if (from.scratch_copy_us) to->set_scratch_copy_us(*from.scratch_copy_us);
  if (from.kernel_us) to->set_kernel_us(*from.kernel_us);
  if (from.device_to_host_us) to->set_device_to_host_us(*from.device_to_host_us);
  to->set_bytes(bytes);
  if (bytes > 0 && from.kernel_us.value_or(0) > 0) {
    to->set_kernel_gb_per_s(static_cast<double>(bytes) / (*from.kernel_us * 1e3));
  }
}

void Add(const std::optional<double>& later, std::optional<double>* sum) {
  if (later.has_value()) *sum = sum->value_or(0) + *later;
}

}  // namespace

void Append(const EngineResult& later, EngineResult* total) {
  Combine(later.partial, &total->partial);
  if (later.exact != nullptr) {
    auto both = std::make_shared<ExactSums>(*later.exact);
    if (total->exact != nullptr) Merge(*total->exact, both.get());
    total->exact = std::move(both);
  }
  Add(later.timing.queue_us, &total->timing.queue_us);
  Add(later.timing.host_copy_us, &total->timing.host_copy_us);
  Add(later.timing.host_to_device_us, &total->timing.host_to_device_us);
  Add(later.timing.scratch_copy_us, &total->timing.scratch_copy_us);
  Add(later.timing.kernel_us, &total->timing.kernel_us);
  Add(later.timing.device_to_host_us, &total->timing.device_to_host_us);
  total->ran = later.ran;
}

absl::Status FillAnswer(const ReduceSpec& spec, const EngineResult& result, std::optional<double> receive_us,
                        std::int64_t bytes, bool return_state, v1::ReduceResponse* response) {
  const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result.partial, result.exact.get());
  if (!values.ok()) return values.status();
  for (std::size_t i = 0; i < values->size(); ++i) {
    v1::Result* const out = response->add_results();
    out->set_op(ToProto(spec.ops[i]));
    ToProto((*values)[i], out->mutable_value());
  }
  response->set_count(spec.count);
  v1::Execution* const execution = response->mutable_execution();
  execution->set_engine(ToProto(result.ran.engine));
  execution->set_device(result.ran.device);
  execution->set_pipeline(result.ran.pipeline);
  execution->set_precision(result.exact != nullptr ? v1::PRECISION_EXACT : v1::PRECISION_F64);
  FillTiming(result.timing, receive_us, bytes, response->mutable_timing());
  if (return_state) ToProto(spec, result.partial, result.exact.get(), response->mutable_state());
  return absl::OkStatus();
}

absl::Duration RetryAfter(const Engine& engine, std::int64_t bytes) {
  const Calibration calibration = engine.calibration();
  const DeviceInfo device = engine.info();
  const double one_us =
      calibration.fixed_us + static_cast<double>(bytes) / (std::max(calibration.host_gb_per_s, 0.1) * 1e3);
  const double ms = one_us * device.queue_limit / std::max(device.lanes, 1) / 2 / 1e3;
  return absl::Milliseconds(static_cast<int>(std::clamp(ms, 1.0, 1000.0)));
}

void AddRetryHint(absl::Duration after, grpc::CallbackServerContext* context) {
  context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(absl::ToInt64Milliseconds(after)));
}

}  // namespace reduced::server
