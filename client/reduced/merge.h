// Merges states without a server: the results for a whole array from the Reply.state of each of its parts.
// Client::Merge asks a server for the same.
#ifndef REDUCED_MERGE_H_
#define REDUCED_MERGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reduced/result_array.h"
#include "reduced/types.h"

namespace reduced::client {

struct MergeStatesOptions {
  bool return_state = false;  // fills in MergeReply.state
  // Fills in MergeReply.results. Without them, states that have no answer by themselves can be merged, too: parts that
  // are all NaN, for min under "omit", or whose sum overflows, if those that follow take it back.
  bool results = true;
  // The names of the states in error messages, such as their files: none, or one for each state. None: states[0],
  // states[1], ...
  std::vector<std::string> names{};
  // 1: the parts are consecutive. Else they lie side by side, as blocks of an array that is cut along another than the
  // first of the dimensions that are reduced: as many rows as those before that dimension have together.
  std::int64_t rows = 1;
  // Of MergeStates: states of floats of several dtypes merge as those of the same elements as f64, which has all of
  // them. INVALID_ARGUMENT: an op answers with an element or its index, such as max.
  bool as_f64 = false;
};

// Merges the states of consecutive parts (Reply.state), in the order of the array, or of blocks side by side. Computes
// on the calling thread, about a microsecond per state. Thread-safe.
//
//   // of argmax of an array of 100 x 6, whose columns 0 to 3 and 4 to 5 were reduced
//   auto whole = MergeStates({left.state, right.state}, {.rows = 100});
//
// INVALID_ARGUMENT: there is no state, one is malformed, or one has another dtype, ops, precision, policies or ddof
// than the first, or not as many elements in each row; the message names it. Also the error of a Reduce of the whole
// array, if no op has a value: INVALID_ARGUMENT for min, max, argmin or argmax of an empty one, OUT_OF_RANGE for an
// integer result that overflows.
REDUCED_EXPORT absl::StatusOr<MergeReply> MergeStates(const std::vector<std::string>& states,
                                                      const MergeStatesOptions& options = {});

// The results of several parts of an array together, as arrays.
struct MergeArraysReply {
  std::vector<ResultArray> results{};  // one for each op of the states, as in ArrayReply
  ResultArray keys{};                  // of the outputs, without an op; no dtype: there were none to be found
  std::int64_t count = 0;              // elements in all parts
  std::string state{};                 // of all parts together; empty unless return_state is set
};

// The same for states of arrays of results (ArrayReply.state), of parts that follow each other along the first of the
// dimensions that are reduced, or along dimension 0 if they are grouped by keys. A key that a part lacks has no element
// there. Client::MergeArrays asks a server. Errors as MergeStates; the messages name the output. Also the error of
// median and quantile, whose states lack bits of the elements: see NextQuantileRound. RESOURCE_EXHAUSTED: the results
// have 2 GiB.
REDUCED_EXPORT absl::StatusOr<MergeArraysReply> MergeArrayStates(const std::vector<std::string>& states,
                                                                 const MergeStatesOptions& options = {});

// Exact quantiles of an array in parts that can be read again, in rounds. After the first one `whole` is the merged
// state of all parts, and there is no answer. Whoever asks then reduces every part by `ops` alone, with return_state
// and without results, and merges their states: that is the answer to the next call. No ops: MergeArrayStates({state})
// answers.
struct QuantileRound {
  std::string state{};             // all that is known
  std::vector<std::string> ops{};  // "median(bits=64;within_bits=20;within=...)"
};
// INVALID_ARGUMENT: there is no such state. ABORTED: the elements are others than in the rounds before.
REDUCED_EXPORT absl::StatusOr<QuantileRound> NextQuantileRound(const std::string& whole,
                                                               const std::string& answer = {});

// What the quantiles of states are at least and at most, where the elements cannot be read again.
struct QuantileBrackets {
  std::vector<ResultArray> low{}, high{};  // of each median and quantile of the states, in their order
};
// Of consecutive parts together, as MergeArrayStates. The bounds of a float that is neither subnormal nor next to 0 are
// within 2^-8 of each other; of integers of 32 and 64 bits they differ by up to 2^12 and 2^44. Those of 8 and 16 bits
// are equal. INVALID_ARGUMENT: as MergeArrayStates.
REDUCED_EXPORT absl::StatusOr<QuantileBrackets> BracketsOf(const std::vector<std::string>& states);

// Whether a state is one of arrays of results, for MergeArrayStates; else it is one for MergeStates, or none. Looks at
// its first bytes only: it may be malformed after them.
REDUCED_EXPORT bool IsArrayState(std::string_view state);

}  // namespace reduced::client

#endif  // REDUCED_MERGE_H_
