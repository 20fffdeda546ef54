// Operands: the array of a request, wherever its elements are.
#ifndef REDUCED_SERVER_CALLS_OPERAND_H_
#define REDUCED_SERVER_CALLS_OPERAND_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/engine/engine.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/backend.h"
#include "server/observe/call_record.h"
#include "server/sources/sharded_array.h"
#include "server/wire/request.h"

namespace reduced::server {

struct Operand {
  ArrayShape shape;
  // As the array has them: valid as long as the request and `elements` are.
  absl::Span<const std::int64_t> dimensions;
  // Inline elements are the request's own memory: valid as long as the request is.
  HeldArray elements;
  // Set, if more than one device has elements; then `elements` only keeps them.
  const ShardedArray* sharded = nullptr;
};

// Elements that came beside their request, in the arena of a ring.
struct OutsideElements {
  HeldArray elements{};
  std::int64_t bytes = 0;
};

// The source that a request, or an operand of one, names. `rpc`: what the request came by; inline elements of a
// session's request are kSession. `outside`: whether its elements came beside it, which are kRing.
Source SourceOf(Rpc rpc, const v1::ReduceRequest& request, bool outside = false);
Source SourceOf(Rpc rpc, const v1::SideArray& operand);

// Finds the array of a request. INVALID_ARGUMENT: as wire/request.h. NOT_FOUND: an unknown array id or region token.
// PERMISSION_DENIED: an array that is not `caller`'s. OUT_OF_RANGE: beyond the end of a region.
absl::StatusOr<Operand> ResolveOperand(const v1::ReduceRequest& request, Backend& backend, absl::string_view caller);
// Likewise, of an array beside the one that is reduced. `field`: what messages begin with.
absl::StatusOr<Operand> ResolveSide(const char* field, const v1::SideArray& side, Backend& backend,
                                    absl::string_view caller);
// Likewise, of a request without a source, whose elements are `outside`.
absl::StatusOr<Operand> ResolveOperand(const v1::ReduceRequest& request, OutsideElements outside,
                                       const RequestLimits& limits);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_OPERAND_H_
