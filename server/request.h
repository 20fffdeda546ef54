// From the wire to the kernels: a ReduceRequest becomes a validated ReduceSpec and the bytes it is about, and answers
// become messages. Everything that can be wrong with a request, but for what only the elements can tell, is found here,
// before the request takes any resource.
#ifndef REDUCED_SERVER_REQUEST_H_
#define REDUCED_SERVER_REQUEST_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "reduced/v1/reduced.pb.h"
#include "server/options.h"

namespace reduced {

struct ParsedRequest {
  ReduceSpec spec;
  std::string_view data;  // the elements, in the request's own memory: valid as long as the request is
};

// INVALID_ARGUMENT saying what is wrong, what was got and what is allowed. Text of the client is escaped and cut.
absl::StatusOr<ParsedRequest> ParseRequest(const v1::ReduceRequest& request, const RequestLimits& limits);

// The numbers of the proto's enums are those of the kernels' enums: request.cc asserts it.
constexpr v1::DType ToProto(DType dtype) { return static_cast<v1::DType>(dtype); }
constexpr v1::Op ToProto(Op op) { return static_cast<v1::Op>(op); }
constexpr v1::Engine ToProto(EngineKind kind) { return static_cast<v1::Engine>(kind); }

void ToProto(const Value& value, v1::Value* out);

}  // namespace reduced

#endif  // REDUCED_SERVER_REQUEST_H_
