// Ladders on the wire.
#ifndef REDUCED_SERVER_WIRE_LADDER_H_
#define REDUCED_SERVER_WIRE_LADDER_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/algebra/spec.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"
#include "kernels/matmul/matmul.h"
#include "reduced/v1/reduced.pb.h"
#include "server/config/options.h"
#include "server/sources/generated_array.h"

namespace reduced::server {

// One pipeline to measure, with one block size.
struct LadderRung {
  Engine* engine = nullptr;
  ReduceSpec spec;
};

// One pipeline of matrix products to measure, with one block shape.
struct MatmulRung {
  Engine* engine = nullptr;
  MatmulSpec spec;
};

// Instead of reductions.
struct ParsedMatmul {
  MatmulSpec spec;  // common to all rungs
  bool source_fill = false;
  std::vector<MatmulRung> rungs = {};  // at least one

  std::int64_t bytes() const { return spec.bytes_a() + spec.bytes_b() + spec.bytes_c(); }
};

struct ParsedLadder {
  ReduceSpec spec;  // common to all rungs; of a matrix product: its elements of A, B and C, for the log
  Contents contents;
  int repeats = 0;
  std::vector<LadderRung> rungs;  // at least one, unless there is a product
  std::optional<ParsedMatmul> matmul;
};

// INVALID_ARGUMENT: as in request.h. UNIMPLEMENTED: a pipeline that does not support the op and dtype.
// FAILED_PRECONDITION: a pipeline of an engine that this server does not have.
absl::StatusOr<ParsedLadder> ParseLadder(const v1::LadderRequest& request, const Engines& engines,
                                         const RequestLimits& limits);

void ToProto(const Occupancy& occupancy, v1::Occupancy* out);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_LADDER_H_
