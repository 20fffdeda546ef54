// What is said when a reduction is over.
#ifndef REDUCED_SERVER_WIRE_RESPONSE_H_
#define REDUCED_SERVER_WIRE_RESPONSE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "kernels/engine/engine.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::server {

// Everything of the response but Timing.total_us and Execution.reason. `bytes`: of the array. `return_state`: the state
// too. OUT_OF_RANGE, INVALID_ARGUMENT: what only the elements could tell.
absl::Status FillAnswer(const ReduceSpec& spec, const EngineResult& result, std::optional<double> receive_us,
                        std::int64_t bytes, bool return_state, v1::ReduceResponse* response);

// When a client that was refused may try again: when about half of what waits for the engine, taken to be arrays like
// its own, is done. From 1 ms to 1 s.
absl::Duration RetryAfter(const Engine& engine, std::int64_t bytes);
// The same of one whose identity has as many requests under way as it may.
inline constexpr absl::Duration kIdentityRetryAfter = absl::Milliseconds(100);
// Tells it so.
void AddRetryHint(absl::Duration after, grpc::CallbackServerContext* context);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_RESPONSE_H_
