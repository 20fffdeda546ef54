#include "server/wire/response.h"

#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/pipelines.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/arrays_state.h"
#include "proto/codec/state_codec.h"
#include "proto/codec/values.h"

namespace reduced::server {
namespace {

// How the stages of kTimingStages are sent, in the same order.
constexpr void (v1::Timing::*kSetStage[])(double) = {
    &v1::Timing::set_queue_us,        &v1::Timing::set_host_copy_us, &v1::Timing::set_host_to_device_us,
    &v1::Timing::set_scratch_copy_us, &v1::Timing::set_kernel_us,    &v1::Timing::set_device_to_host_us};
static_assert(std::size(kSetStage) == std::size(kTimingStages));

void FillExecution(const Execution& ran, bool exact, v1::Execution* execution) {
  execution->set_engine(ToProto(ran.engine));
  execution->set_device(ran.device);
  execution->set_pipeline(ran.pipeline);
  execution->set_precision(exact ? v1::PRECISION_EXACT : v1::PRECISION_F64);
}

}  // namespace

void FillTiming(const Timing& from, std::optional<double> receive_us, std::int64_t bytes, v1::Timing* to) {
  if (receive_us) to->set_receive_us(*receive_us);
  for (std::size_t i = 0; i < std::size(kTimingStages); ++i) {
    const auto set = kSetStage[i];
    if (const std::optional<double>& micros = from.*kTimingStages[i].micros) (to->*set)(*micros);
  }
  to->set_bytes(bytes);
  if (bytes > 0 && from.kernel_us.value_or(0) > 0) {
    to->set_kernel_gb_per_s(static_cast<double>(bytes) / (*from.kernel_us * 1e3));
  }
}

absl::Status FillAnswer(const ReduceSpec& spec, const Answer& answer, std::optional<double> receive_us,
                        std::int64_t bytes, const Wanted& wanted, v1::ReduceResponse* response) {
  if (!AnsweredByAccumulators(spec)) {
    FillExecution(spec, answer, receive_us, bytes, response);
    return AnswerWhole(spec, answer.state,
                       {.state = wanted.state, .results = wanted.results, .op_errors = wanted.op_errors}, response);
  }
  if (wanted.results) {
    ASSIGN_OR_RETURN(const std::vector<absl::StatusOr<Value>> values,
                     FinalizeEach(spec, answer.state, wanted.op_errors));
    ToProto(spec, values, response->mutable_results());
  }
  response->set_count(spec.count);
  FillExecution(answer.ran, answer.state.exact != nullptr, response->mutable_execution());
  FillTiming(answer.timing, receive_us, bytes, response->mutable_timing());
  if (wanted.state) ToProto(spec, answer.state, response->mutable_state());
  return absl::OkStatus();
}

void FillExecution(const ReduceSpec& spec, const Answer& answer, std::optional<double> receive_us, std::int64_t bytes,
                   v1::ReduceResponse* response) {
  response->set_count(spec.count);
  FillExecution(answer.ran, WantsExactSums(spec), response->mutable_execution());
  FillTiming(answer.timing, receive_us, bytes, response->mutable_timing());
}

}  // namespace reduced::server
