// What Reduce and ReduceStream say when a reduction is over.
#ifndef REDUCED_SERVER_ANSWER_H_
#define REDUCED_SERVER_ANSWER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "kernels/engine.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// Everything of the response but Timing.total_us and Execution.reason. `bytes`: of the array. OUT_OF_RANGE,
// INVALID_ARGUMENT: what only the elements could tell.
absl::Status FillAnswer(const ReduceSpec& spec, const EngineResult& result, double receive_us, std::int64_t bytes,
                        v1::ReduceResponse* response);

// Tells a client that was refused when to try again: when about half of what waits for the engine, taken to be arrays
// like its own, is done.
void AddRetryHint(const Engine& engine, std::int64_t bytes, grpc::CallbackServerContext* context);

// The line of a finished call, at level debug. `engine`: null if none was picked. A spec without ops: the request was
// not understood.
void LogReduce(std::string_view rpc, const grpc::CallbackServerContext& context, const ReduceSpec& spec,
               const Engine* engine, const absl::Status& status, double total_us);

}  // namespace reduced

#endif  // REDUCED_SERVER_ANSWER_H_
