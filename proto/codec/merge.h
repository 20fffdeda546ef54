// Merging states that are messages. It needs no server: the Merge RPC and the client library both use this.
#ifndef REDUCED_PROTO_CODEC_MERGE_H_
#define REDUCED_PROTO_CODEC_MERGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/codec/state_codec.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// INVALID_ARGUMENT: states of these two questions can't be merged; the message names what differs.
absl::Status CheckSameQuestion(const ReduceSpec& first, const ReduceSpec& spec);

// Where the elements of parts stand in the whole array, which is `count` rows of `length` elements. Each part has as
// many elements of every row, behind those of the parts before. In one row the parts are consecutive.
struct Rows {
  std::int64_t count = 1;
  std::int64_t length = 0;  // unused if count is 1
};

// INVALID_ARGUMENT: a part of so many elements has not as many of every row. `field`: their name.
absl::Status CheckRows(absl::string_view field, std::int64_t elements, const Rows& rows);
// Makes the indexes in the state of a part, of so many elements, those of the whole array. `before`: how many elements
// the parts before have.
void Place(const Rows& rows, std::int64_t before, std::int64_t elements, State* part);

// What of the whole is asked for: as the fields of MergeRequest say.
struct WantedOfMerge {
  bool state = false;
  bool results = true;
  bool op_errors = false;
};

// Merges the states of the parts of an array, one after the other. It keeps one state, however many there are. Not
// thread-safe.
class Merger {
 public:
  explicit Merger(const StateLimits& limits, const Rows& rows = {}) : limits_(limits), rows_(rows) {}

  // Appends the part that follows. `name`: the state's in error messages. INVALID_ARGUMENT: it is not a state, or does
  // not go with those before.
  absl::Status Append(const v1::State& part, absl::string_view name);
  // Fills in an empty response. INVALID_ARGUMENT, OUT_OF_RANGE: there is no state, or what a Reduce of the whole array
  // answers, if results are wanted.
  absl::Status Finish(const WantedOfMerge& wanted, v1::MergeResponse* response) const;

 private:
  const StateLimits limits_;
  const Rows rows_;
  std::optional<StateOfSpec> whole_;
};

// Answers a Merge of states or of arrays: fills an empty `response`. `names`: of the states in error messages, in
// order; empty: `states[0]`, `states[1]`..., or `arrays[0]`... `rows`: Rows.count, of each output. INVALID_ARGUMENT,
// OUT_OF_RANGE: see reduced.proto.
absl::Status MergeStates(const v1::MergeRequest& request, const StateLimits& limits,
                         const std::vector<std::string>& names, v1::MergeResponse* response, std::int64_t rows = 1);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_MERGE_H_
