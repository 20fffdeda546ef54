// States of reductions to arrays as messages (ArraysState of reduced.proto), and merging them: the server writes them,
// and clients merge them without a server.
#ifndef REDUCED_PROTO_CODEC_ARRAYS_STATE_H_
#define REDUCED_PROTO_CODEC_ARRAYS_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/algebra/spec.h"
#include "kernels/algebra/state.h"
#include "proto/codec/merge.h"
#include "proto/codec/state_codec.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// Writes the state of a reduction by `spec`, whose count is that of the whole array, to a message without one: all but
// the shape and the keys. `outputs`: the state of each output. `positions`: as ArraysState.positions.
void ToProto(const ReduceSpec& spec, std::int64_t positions, const std::vector<State>& outputs, v1::ArraysState* to);
// What the state of an output takes at least, encoded.
std::int64_t LeastStateBytes(const ReduceSpec& spec);
// The bytes of the entries that a state has.
std::int64_t EntriesBytes(const State& state);
// Adds the state of one more output.
void AddOutput(const ReduceSpec& spec, const State& state, v1::ArraysState* to);

// Fills in the arrays of an empty response from the state of a whole array that has ops of the distribution, and
// `arrays_state` if it is wanted. Errors: those of ArraysMerger::Finish.
absl::Status AnswerWhole(const ReduceSpec& spec, const State& state, const WantedOfMerge& wanted,
                         v1::ReduceResponse* response);

// Merges the states of parts, one after the other. It keeps one state, however many there are, and what a part costs
// depends on its own outputs only. After an error it is of no use. Not thread-safe.
class ArraysMerger {
 public:
  // Is called after every so many outputs; its error ends the merge.
  using WhyStop = std::function<absl::Status()>;

  // `why_stop`: null: nothing stops it. `rows`: how the parts make up each output.
  explicit ArraysMerger(const StateLimits& limits, WhyStop why_stop = nullptr, const Rows& rows = {})
      : limits_(limits), why_stop_(std::move(why_stop)), part_rows_(rows) {}

  // Appends the part that follows. `name`: the state's in error messages. INVALID_ARGUMENT: it is not a state, or does
  // not go with those before.
  absl::Status Append(const v1::ArraysState& part, absl::string_view name);

  // How many outputs and keys all parts have together.
  std::int64_t outputs() const { return whole_.has_value() ? static_cast<std::int64_t>(whole_->outputs.size()) : 0; }
  std::int64_t keys() const { return static_cast<std::int64_t>(rows_.size()); }
  // Bytes that ops of the distribution take: their entries, and their answers, as a message and encoded.
  std::int64_t distribution_bytes() const;

  // Last, once: fills in an empty response. INVALID_ARGUMENT, OUT_OF_RANGE: there is no state, or what a Reduce of the
  // whole array answers, if results are wanted, with the first output that has an error. RESOURCE_EXHAUSTED: the
  // results do not fit into a message.
  absl::Status Finish(const WantedOfMerge& wanted, v1::MergeResponse* response);

 private:
  // The state of a part, or of all parts together.
  struct Whole {
    ReduceSpec question;  // its count: elements of the part
    std::int64_t positions = 0;
    std::vector<std::int64_t> shape;  // of the results
    // Of outputs by keys that were found: ascending, and their dtype; absent: they are by something else.
    std::optional<DType> key_dtype{};
    std::vector<__int128> keys{};
    std::vector<State> outputs{};
  };

  // WhyStop, of some outputs.
  absl::Status CheckStop(std::size_t output) const;
  absl::Status Parse(const v1::ArraysState& part, Whole* to) const;
  absl::Status CheckFollows(const Whole& part) const;
  absl::Status Add(Whole part);
  void SortByKeys();
  // Fills in the arrays of the response.
  absl::Status Answer(bool op_errors, v1::MergeResponse* response) const;

  const StateLimits limits_;
  const WhyStop why_stop_;
  const Rows part_rows_;
  // Until Finish its keys are those of rows_, and its outputs in the order in which their keys came.
  std::optional<Whole> whole_;
  std::int64_t entries_bytes_ = 0;               // of all outputs
  absl::btree_map<__int128, std::size_t> rows_;  // by key: which of the keys it is, in the order in which they came
};

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_ARRAYS_STATE_H_
