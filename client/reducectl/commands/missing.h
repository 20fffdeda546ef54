// Missing elements of dtypes that have no NaN: they are left out of what is reduced, and the results are those of an
// array that has NaNs in their places.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_MISSING_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_MISSING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/reducectl/input/input.h"
#include "reduced/client.h"

namespace reduced::client {

// What reading does with missing elements so that these ops can be answered: `left_out` if NaNs are omitted, or if all
// ops only count; else they are an error.
Missing MissingFor(const std::vector<std::string>& ops, const ReduceOptions& options, Missing left_out);

// Of a reduction of the elements without those at the ascending positions `missing`: adds them to counts, and makes
// indexes count them.
void CountMissing(const std::vector<std::uint64_t>& missing, const ReduceOptions& options, Reply* reply);

// Whether an op, with its parameters or without, answers with the indexes of elements.
bool AnswersIndexes(const std::string& op);

// Whether a state of the elements without the missing ones says all that these ops need.
bool StateLacksMissing(const std::vector<std::string>& ops, const ReduceOptions& options);

// Makes a call of ReduceArray.
using ReduceArrayCall = absl::FunctionRef<absl::StatusOr<ArrayReply>(
    const ArrayView& array, const std::vector<std::string>& ops, const PartitionOptions& partition)>;

// Reduces an input of one dimension whose missing elements are zeros (Missing::kZero) to arrays, by two calls or three:
// a group of which all elements are missing stays. INVALID_ARGUMENT also: results are kept or written to a region, or a
// mask or keys that would have to be read are resident arrays.
absl::StatusOr<ArrayReply> ReduceMasked(const Input& input, const std::vector<std::string>& ops,
                                        const PartitionOptions& partition, const ReduceOptions& options,
                                        ReduceArrayCall reduce);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_MISSING_H_
