// Parses what a ReduceRequest asks: one function, which the server and clients that reduce in their own process share,
// so that both understand the same question in the same way, and refuse the same with the same message. Every error
// that does not depend on the elements is found here, before the request takes any resource.
//
// Errors are INVALID_ARGUMENT unless something else is said, and name the field, what it has and what is allowed; text
// of the client is escaped and cut.
#ifndef REDUCED_PROTO_QUESTION_QUESTION_H_
#define REDUCED_PROTO_QUESTION_QUESTION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/algebra/spec.h"
#include "kernels/engine/partition.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// As many dimensions as NumPy's arrays can have: of resident arrays, which store their shape, and of arrays with a
// partition.
inline constexpr int kMaxDimensions = 64;

// What a response has in addition to what every one has.
struct Wanted {
  bool results = true;
  bool state = false;
  bool op_errors = false;  // an op that has no answer does not take the others with it
};

struct Question {
  ReduceSpec spec{};  // its count: of the whole array
  Wanted wanted{};
  std::optional<Partition> partition{};  // absent: of the whole array, which is answered with values, not with arrays
  // With a partition: the other operands, which the request has if and only if an op takes them.
  std::optional<OtherArray> y{};
  std::optional<OtherArray> weights{};
  // With a partition: the shape of the results; of segments and keys without their first dimension, which is how many
  // there are.
  std::vector<std::int64_t> shape{};
};

// The array that is asked about: valid as long as the message that describes it.
struct QuestionedArray {
  DType dtype = DType::kF32;
  std::int64_t count = 0;  // elements
  absl::Span<const std::int64_t> shape{};
};

// Finds the elements of an array beside the one that is reduced, and its shape. `field`: what errors begin with.
struct FoundSide {
  SideArray array{};
  std::vector<std::int64_t> shape{};
};
using FindSide = absl::FunctionRef<absl::StatusOr<FoundSide>(const char* field, const v1::SideArray& side)>;

// UNIMPLEMENTED: the pipeline has no such ops, dtype, policy, or partition. Errors of `find_side`, which is called for
// the bounds, the keys, the mask and the other operands.
absl::StatusOr<Question> ParseQuestion(const v1::ReduceRequest& request, const QuestionedArray& array, int max_ops,
                                       FindSide find_side);

// The field by which a request is answered with arrays: "axes", "segments", "keys" or "where", else "ops" or "calls",
// if an op is of the distribution. Null: it is answered with values.
const char* ArraysField(const v1::ReduceRequest& request);

}  // namespace reduced

#endif  // REDUCED_PROTO_QUESTION_QUESTION_H_
