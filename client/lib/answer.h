// Checks what a server answers before the library passes it on, so that the answer of a broken or hostile server is an
// error and never a result. A check takes time in proportion to the results and fields of the answer.
//
// The errors are INTERNAL and have the form `field: got X; allowed: A`; WrongAnswer adds the server. A number of an
// enum that this build doesn't know may be that of a newer server: it passes where the caller didn't choose the value.
#ifndef REDUCED_CLIENT_LIB_ANSWER_H_
#define REDUCED_CLIENT_LIB_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/algebra/op_call.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

inline constexpr std::size_t kMaxOwnerBytes = 64;  // of an array

// What the answer to a reduction must agree with, without the elements.
struct Asked {
  Asked() = default;
  explicit Asked(const v1::ReduceRequest& request);
  // The question of the first state; the elements of all of them.
  explicit Asked(const v1::MergeRequest& request);

  // Takes the dtype and the count of what names an array: v1::ReduceRequest, or v1::SideArray.
  template <class From>
  void SetArray(const From& from) {
    SetArray(from.has_array() ? &from.array() : nullptr);
  }
  void SetArray(const v1::ArraySpec* array);  // null: only the server knows it

  absl::InlinedVector<int, 8> ops{};  // numbers of v1::Op
  std::vector<OpCall> calls{};        // the same with their parameters, if there are any
  int dtype = 0;                      // of the array; 0: only the server knows
  std::optional<std::int64_t> count;  // of the elements; absent: only the server knows
  v1::ReduceOptions options{};
  bool return_state = false;
  bool results = true;
  bool op_errors = false;                  // results may have errors
  bool arrays = false;                     // the answer has arrays,
  bool partition = false;                  // of outputs, else of the whole array,
  bool keep = false;                       // which the server keeps,
  std::optional<std::int64_t> write_to{};  // or writes to a region from this byte on,
  bool keys = false;                       // and the keys of its outputs
  // The dtypes of y and the weights; 0: there are none, or only the server knows.
  int y = 0;
  int weights = 0;
};

// The same error with the server that sent the answer; OK stays OK.
absl::Status WrongAnswer(absl::string_view server, const absl::Status& status);

// One result for each op, in the order of the ops and of their types; the asked engine, device and pipeline; a state
// that is one, if it was asked for.
absl::Status CheckAnswer(const Asked& asked, const v1::ReduceResponse& answer);
absl::Status CheckAnswer(const Asked& asked, const v1::MergeResponse& answer);

// The array that was put, as it was sent.
absl::Status CheckAnswer(const v1::PutArrayHeader& asked, const v1::PutArrayResponse& answer);
// Arrays of the owner, no two with the same id.
absl::Status CheckAnswer(const v1::ListArraysRequest& asked, const v1::ListArraysResponse& answer);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_ANSWER_H_
