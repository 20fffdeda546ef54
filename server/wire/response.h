// The response of a reduction.
#ifndef REDUCED_SERVER_WIRE_RESPONSE_H_
#define REDUCED_SERVER_WIRE_RESPONSE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/engine/engine.h"
#include "reduced/v1/reduced.pb.h"
#include "server/wire/request.h"

namespace reduced::server {

// Fills the response but for Timing.total_us and Execution.reason. `bytes`: of the array. OUT_OF_RANGE,
// INVALID_ARGUMENT: errors of results that depend on the elements, such as an overflow, but for those that the response
// has (wanted.op_errors).
absl::Status FillAnswer(const ReduceSpec& spec, const Answer& answer, std::optional<double> receive_us,
                        std::int64_t bytes, const Wanted& wanted, v1::ReduceResponse* response);

// The stages, and the bytes with their rate.
void FillTiming(const Timing& from, std::optional<double> receive_us, std::int64_t bytes, v1::Timing* to);

// The same of a reduction along axes, whose ArrayResults somebody else fills.
void FillExecution(const ReduceSpec& spec, const Answer& answer, std::optional<double> receive_us, std::int64_t bytes,
                   v1::ReduceResponse* response);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_RESPONSE_H_
