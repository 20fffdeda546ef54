// Ladders on the wire.
#ifndef REDUCED_SERVER_WIRE_LADDER_H_
#define REDUCED_SERVER_WIRE_LADDER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"
#include "reduced/v1/reduced.pb.h"
#include "server/config/options.h"
#include "server/sources/generated_array.h"

namespace reduced::server {

// One pipeline to measure, with one block size.
struct LadderRung {
  Engine* engine = nullptr;
  ReduceSpec spec;
};

struct ParsedLadder {
  ReduceSpec spec;  // common to all rungs
  Contents contents;
  int repeats = 0;
  std::vector<LadderRung> rungs;  // at least one
};

// INVALID_ARGUMENT: as in request.h. UNIMPLEMENTED: a pipeline that does not support the op and dtype.
// FAILED_PRECONDITION: a pipeline of an engine that this server does not have.
absl::StatusOr<ParsedLadder> ParseLadder(const v1::LadderRequest& request, const Engines& engines,
                                         const RequestLimits& limits);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_LADDER_H_
