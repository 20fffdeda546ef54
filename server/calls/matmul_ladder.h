// The part of a ladder that measures matrix products: what ladder.cc does with an array, here with two matrices.
//
// Both are generated in host memory, and so is the product to compare with unless it has a closed form. All of it
// counts against the server's memory budget first. Then engines measure rung by rung, on the ladders' only lane.
#ifndef REDUCED_SERVER_CALLS_MATMUL_LADDER_H_
#define REDUCED_SERVER_CALLS_MATMUL_LADDER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/why_stop.h"
#include "reduced/v1/reduced.pb.h"
#include "server/wire/ladder.h"

namespace reduced::server {

// Whose measurement it is.
struct MatmulCall {
  absl::Time deadline;
  CancelFlag cancelled;
  RunLimit limit{};  // has started
  MemoryPayer payer;
};

// Measures all rungs of ladder.matmul and writes the start and the steps. Blocks. `write` returns why the call ends, if
// it does. RESOURCE_EXHAUSTED: there is no memory for the matrices, with a retry hint; else as Engine::MeasureMatmul.
absl::Status ClimbMatmul(const ParsedLadder& ladder, Engine& cpu, const MatmulCall& call,
                         absl::FunctionRef<absl::Status(const v1::LadderReply&)> write);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_MATMUL_LADDER_H_
