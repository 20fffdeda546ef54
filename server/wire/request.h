// From the wire to the kernels: a ReduceRequest becomes a validated ReduceSpec and the array it is about, a
// PutArrayHeader what is to be kept, a LadderRequest what is to be measured, and answers become messages. Everything
// that can be wrong with a request, but for what only the elements can tell, is found here, before the request takes
// any resource.
#ifndef REDUCED_SERVER_WIRE_REQUEST_H_
#define REDUCED_SERVER_WIRE_REQUEST_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/status.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"
#include "proto/codec/values.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/backend.h"
#include "server/config/options.h"
#include "server/sources/arrays.h"
#include "server/sources/generated_array.h"

namespace reduced::server {

struct ParsedRequest {
  ReduceSpec spec;
  std::int64_t bytes = 0;  // of the elements
  // The elements. Inline ones are in the request's own memory: valid as long as the request is.
  HeldArray source;
};

// INVALID_ARGUMENT saying what is wrong, what was got and what is allowed. Text of the client is escaped and cut.
// NOT_FOUND: an array id or a token that `backend` doesn't know. PERMISSION_DENIED: an array that isn't `caller`'s.
// OUT_OF_RANGE: beyond the end of a region.
absl::StatusOr<ParsedRequest> ParseRequest(const v1::ReduceRequest& request, Backend& backend,
                                           absl::string_view caller);

// The same of a stream's header, which has no source: without an array.
absl::StatusOr<ParsedRequest> ParseHeader(const v1::ReduceRequest& header, const RequestLimits& limits);

// What can be seen to be wrong with a part without the array and the other parts: see Uploads::Join.
absl::Status CheckPart(const v1::StreamPart& part);

// An array to keep, but for its memory, and whose memory that is to be.
struct ParsedPut {
  KeptArray array;
  Engine* engine = nullptr;
};

// INVALID_ARGUMENT as above. PERMISSION_DENIED: an owner that `caller` isn't. FAILED_PRECONDITION: a device that isn't
// there.
absl::StatusOr<ParsedPut> ParsePut(const v1::PutArrayHeader& header, const Engines& engines,
                                   const RequestLimits& limits, absl::string_view caller);

// One pipeline to measure, with one block size.
struct LadderRung {
  Engine* engine = nullptr;
  ReduceSpec spec;
};

struct ParsedLadder {
  ReduceSpec spec;  // what all the rungs have in common
  Contents contents;
  int repeats = 0;
  std::vector<LadderRung> rungs;  // at least one
};

// INVALID_ARGUMENT as above. UNIMPLEMENTED: a pipeline that doesn't support the op and dtype; FAILED_PRECONDITION: one
// of an engine that isn't there.
absl::StatusOr<ParsedLadder> ParseLadder(const v1::LadderRequest& request, const Engines& engines,
                                         const RequestLimits& limits);

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_REQUEST_H_
