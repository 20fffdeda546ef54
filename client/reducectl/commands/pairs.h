// What commands about two arrays share: reading them, giving them dtypes that go together, and asking about both.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_PAIRS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_PAIRS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/side_files.h"
#include "client/reducectl/input/input.h"
#include "reduced/client.h"

namespace reduced::client {

// All arrays of a source, each as a whole in memory, in C order; missing elements are zeros (Missing::kZero). What
// cannot be read is reported, and *code, if it is kOk, becomes its exit code. Notes are printed, or with --json added
// to *notes.
std::vector<Input> ReadArrays(const std::string& source, InputOptions options, bool json, ExitCode* code,
                              std::vector<std::string>* notes);

// Of inputs that an op takes together: for each an array of f64 if it has integers beside floats, if any integer is
// missing, which is a NaN then, or if they are to have one dtype and have several; else an array without a dtype: the
// input stays as it is. INVALID_ARGUMENT: an integer is no f64.
absl::StatusOr<std::vector<HostArray>> AlikeDoubles(const std::vector<const Input*>& inputs, bool one_dtype = false);
// The array, if there is one, else the input.
ArrayView ViewOf(const Input& input, const HostArray& doubles);

// An input, and options in which y and the weights go with it.
struct Paired {
  std::vector<HostArray> doubles{};  // of AlikeDoubles
  ArrayView x{};
  PartitionOptions partition{};
};
// `options`: they refer to `sides`. Weights that have the dimensions that are reduced alone get all dimensions of the
// input, as numpy.average takes them. INVALID_ARGUMENT: they have as many dimensions as are reduced, and other sizes;
// integers are no f64, or would have to be for an op that takes neither y nor weights.
absl::Status PairUp(const Input& input, const SideFiles& sides, const std::vector<std::string>& ops,
                    const PartitionOptions& options, Paired* paired);

// The answer of an op about x, and y if the op takes it, as wholes.
absl::StatusOr<ArrayReply> AskWhole(const Place& place, const ArrayView& x, const std::optional<ArrayView>& y,
                                    const std::string& op, const ReduceOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_PAIRS_H_
