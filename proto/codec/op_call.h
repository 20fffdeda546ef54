// Ops with parameters: as messages, and as the texts in which reducectl and the client libraries write them.
//
//   median                         median(method=lower)
//   quantile(0.25,0.5)             quantile(0.5;method=nearest)
//   histogram(0,1,64)              LOW,HIGH,BINS; histogram(1,1000,30;scale=log), histogram(edges=0,1,2.5)
//   topk(10)                       likewise bottomk, argtopk and argbottomk
//   compare                        compare(rtol=1e-5,atol=1e-8,equal_nan=true)
//
// median and quantile also take bits, within_bits and within, which are the fields of KeyCounts: of states only.
// Arguments are separated by commas or semicolons; blanks do not matter.
#ifndef REDUCED_PROTO_CODEC_OP_CALL_H_
#define REDUCED_PROTO_CODEC_OP_CALL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/algebra/op_call.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// Whether an op of that number is of the distribution or of two arrays: what asks for it is answered with arrays.
constexpr bool IsOfDistribution(int op) { return op >= v1::OP_MEDIAN && op <= v1::Op_MAX; }

bool AsksForDistribution(const v1::ReduceRequest& request);

// The bytes of an op's answer for one output.
inline std::int64_t ResultBytes(const OpCall& op, DType dtype) {
  return AnswerElements(op) * RowOf(ResultDType(op, dtype)).bytes;
}

// Parses an op without parameters, and an op with them; bins of the same width or ratio become edges. INVALID_ARGUMENT:
// the op lacks parameters, or does not take those that it has.
absl::StatusOr<OpCall> ParseCall(absl::string_view field, v1::Op number);
absl::StatusOr<OpCall> ParseCall(absl::string_view field, const v1::OpCall& call);

// Writes an op with its parameters to an empty message; bins as their edges.
void ToProto(const OpCall& from, v1::OpCall* to);
// The text of the same, which ParseOpText reads. `counts`: with KeyCounts, on which no answer depends.
std::string OpText(const OpCall& call, bool counts);

// OK, or INVALID_ARGUMENT: a parameter has a value that the op does not take. The message names it below `field`, as
// "calls[0].quantile.q[2]: got 1.5; allowed: 0 to 1".
absl::Status ValidateCall(absl::string_view field, const OpCall& call, DType dtype);

// Parses calls, which messages name calls[i], and validates them if the dtype is known. INVALID_ARGUMENT: also more
// quantiles and edges, all of them together, than a request may have.
absl::StatusOr<std::vector<OpCall>> ParseCalls(const google::protobuf::RepeatedPtrField<v1::OpCall>& from,
                                               std::optional<DType> dtype);

// Parses the text of an op. INVALID_ARGUMENT: there is no such op, or its arguments are not as OpUsage says. Whether
// the parameters have values that the op takes is not looked at: ValidateCall does that.
absl::StatusOr<v1::OpCall> ParseOpText(absl::string_view text);

// How the text of an op with parameters looks: "topk(K)". Empty: the op has none.
absl::string_view OpUsage(Op op);

// Cuts a list at the commas that are outside of parentheses.
std::vector<std::string> SplitOps(absl::string_view list);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_OP_CALL_H_
