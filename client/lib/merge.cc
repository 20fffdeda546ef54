// Merging states: Client::Merge by a server, MergeStates without one.
#include "reduced/merge.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/lib/answer.h"
#include "client/lib/convert.h"
#include "client/lib/names.h"
#include "client/lib/retry.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/merge.h"
#include "proto/codec/op_call.h"
#include "proto/codec/quantile_rounds.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

constexpr char kAsTheFirst[] = ", as the first is";

// The name of a state in error messages. `names`: empty: states[0], states[1], ...
std::string NameOfState(const std::vector<std::string>& names, std::size_t i) {
  return names.empty() ? absl::StrCat("states[", i, "]") : names[i];
}

// What of the whole is asked for.
struct Wanted {
  bool state = false;
  bool results = true;
};

// Parses a state of one result for each op. False: it is another, or none.
bool ParseState(const std::string& from, v1::State* state) {
  return !IsArrayState(from) && state->ParseFromString(from) && state->version() != 0;
}

absl::Status ToProto(const std::vector<std::string>& states, const std::vector<std::string>& names, Wanted wanted,
                     v1::MergeRequest* request) {
  if (states.empty()) return absl::InvalidArgumentError("states: got none; allowed: at least 1");
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (ParseState(states[i], request->add_states())) continue;
    const std::string name = NameOfState(names, i);
    if (IsArrayState(states[i])) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": got a state of arrays of results; allowed: of one result for each op", i == 0 ? "" : kAsTheFirst));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": got ", states[i].size(),
        " bytes that aren't a state; allowed: states of replies, as return_state or reducectl --state give them"));
  }
  request->set_return_state(wanted.state);
  request->set_omit_results(!wanted.results);
  request->set_op_errors(true);
  return absl::OkStatus();
}

// Makes states of floats those of the same elements as f64.
absl::Status WidenStates(v1::MergeRequest* request) {
  for (int i = 0; i < request->states_size(); ++i) {
    v1::State& state = *request->mutable_states(i);
    const std::optional<DType> dtype = DTypeFromNumber(state.dtype());
    if (!dtype.has_value() || !RowOf(*dtype).is_float) continue;
    if (state.has_extrema()) {
      return absl::InvalidArgumentError(
          absl::StrCat("states[", i, "].extrema: got them with as_f64; allowed: ops of sums and counts"));
    }
    state.set_dtype(v1::DTYPE_F64);
  }
  return absl::OkStatus();
}

MergeReply ReplyFromProto(const v1::MergeResponse& from) {
  MergeReply to{.results = client::FromProto(from.results()), .count = from.count()};
  if (from.has_state()) to.state = from.state().SerializeAsString();
  return to;
}

// The same of arrays.
absl::Status ToArrays(const std::vector<std::string>& states, const std::vector<std::string>& names, Wanted wanted,
                      v1::MergeRequest* request) {
  if (states.empty()) return absl::InvalidArgumentError("states: got none; allowed: at least 1");
  for (std::size_t i = 0; i < states.size(); ++i) {
    v1::ArraysState* const state = request->add_arrays();
    if (state->ParseFromString(states[i]) && state->has_question()) continue;
    const std::string name = NameOfState(names, i);
    if (v1::State other; ParseState(states[i], &other)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": got a state of one result for each op; allowed: of arrays of results", i == 0 ? "" : kAsTheFirst));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": got ", states[i].size(),
                     " bytes that aren't a state of arrays of results; allowed: states of such replies"));
  }
  request->set_return_state(wanted.state);
  request->set_omit_results(!wanted.results);
  request->set_op_errors(true);
  return absl::OkStatus();
}

// Takes the elements.
MergeArraysReply ArraysFromProto(const v1::MergeRequest& request, v1::MergeResponse& from) {
  MergeArraysReply to{.count = from.count()};
  for (v1::ArrayResult& result : *from.mutable_arrays()) to.results.push_back(client::FromProto(result));
  const auto& calls = request.arrays(0).question().calls();  // have parameters
  for (int i = 0; i < std::min(calls.size(), from.arrays_size()); ++i) {
    const absl::StatusOr<OpCall> call = ParseCall("calls", calls[i]);
    if (call.ok()) to.results[static_cast<std::size_t>(i)].op = OpText(*call, /*counts=*/false);
  }
  if (from.has_keys()) to.keys = client::FromProto(*from.mutable_keys());
  if (from.has_arrays_state()) to.state = from.arrays_state().SerializeAsString();
  return to;
}

// Has the server merge, and checks what it answers.
absl::Status AskServer(Connection& connection, const v1::MergeRequest& request, std::optional<absl::Duration> timeout,
                       v1::MergeResponse* response) {
  RETURN_IF_ERROR(CallAgainAndWait(connection, connection.parts.front(), timeout,
                                   &v1::Reduction::Stub::PrepareAsyncMerge, request, response));
  return WrongAnswer(connection.options.server, CheckAnswer(Asked(request), *response));
}

absl::Status CheckNames(const std::vector<std::string>& states, const std::vector<std::string>& names) {
  if (names.empty() || names.size() == states.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("names: got ", names.size(), "; allowed: none, or ", states.size(), ", one for each state"));
}

}  // namespace

absl::StatusOr<MergeArraysReply> Client::MergeArrays(const std::vector<std::string>& states,
                                                     const MergeOptions& options) {
  v1::MergeRequest request;
  v1::MergeResponse response;
  absl::Status status = ToArrays(states, /*names=*/{}, {options.return_state, options.results}, &request);
  if (status.ok()) status = AskServer(*connection_, request, options.timeout, &response);
  if (!status.ok()) return status;
  return ArraysFromProto(request, response);
}

absl::StatusOr<MergeArraysReply> MergeArrayStates(const std::vector<std::string>& states,
                                                  const MergeStatesOptions& options) {
  v1::MergeRequest request;
  absl::Status status = CheckNames(states, options.names);
  std::vector<std::string> names = options.names;  // or states[i], as of the parameter
  for (std::size_t i = names.size(); i < states.size(); ++i) names.push_back(absl::StrCat("states[", i, "]"));
  if (status.ok()) status = ToArrays(states, names, {options.return_state, options.results}, &request);
  v1::MergeResponse response;
  if (status.ok()) status = reduced::MergeStates(request, StateLimits(), names, &response, options.rows);
  if (!status.ok()) return status;
  return ArraysFromProto(request, response);
}

absl::StatusOr<QuantileRound> NextQuantileRound(const std::string& whole, const std::string& answer) {
  v1::ArraysState known, round;
  if (!known.ParseFromString(whole) || !known.has_question()) {
    return absl::InvalidArgumentError(
        "whole: got bytes that aren't a state of arrays; allowed: states of such replies");
  }
  if (!round.ParseFromString(answer) || round.has_question() == answer.empty()) {
    return absl::InvalidArgumentError(
        "answer: got bytes that aren't a state of arrays; allowed: none, or such a state");
  }
  ASSIGN_OR_RETURN(const std::vector<OpCall> calls, answer.empty() ? StartRounds(&known) : NextRound(round, &known));
  QuantileRound next{.state = known.SerializeAsString()};
  for (const OpCall& call : calls) next.ops.push_back(OpText(call, /*counts=*/true));
  return next;
}

absl::StatusOr<QuantileBrackets> BracketsOf(const std::vector<std::string>& states) {
  const absl::StatusOr<MergeArraysReply> whole = MergeArrayStates(states, {.return_state = true, .results = false});
  if (!whole.ok()) return whole.status();
  QuantileBrackets brackets;
  for (const auto& [largest, to] : {std::pair(false, &brackets.low), {true, &brackets.high}}) {
    v1::ArraysState bound;
    if (!bound.ParseFromString(whole->state)) return absl::InternalError("a merged state cannot be parsed");
    RETURN_IF_ERROR(ToBound(largest, &bound));
    ASSIGN_OR_RETURN(MergeArraysReply reply, MergeArrayStates({bound.SerializeAsString()}));
    for (int i = 0; i < bound.question().calls_size(); ++i) {
      const std::optional<Op> op = OpFromNumber(bound.question().calls(i).op());
      if (op.has_value() && IsQuantile(*op)) to->push_back(std::move(reply.results[static_cast<std::size_t>(i)]));
    }
  }
  return brackets;
}

bool IsArrayState(std::string_view state) {
  using google::protobuf::internal::WireFormatLite;
  if (state.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return false;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(state.data()),
                                            static_cast<int>(state.size()));
  for (std::uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) == v1::ArraysState::kQuestionFieldNumber) {  // a number in a State
      return WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    }
    if (!WireFormatLite::SkipField(&in, tag)) return false;
  }
  return false;
}

absl::StatusOr<MergeReply> Client::Merge(const std::vector<std::string>& states, const MergeOptions& options) {
  v1::MergeRequest request;
  v1::MergeResponse response;
  absl::Status status = ToProto(states, /*names=*/{}, {options.return_state, options.results}, &request);
  if (status.ok()) status = AskServer(*connection_, request, options.timeout, &response);
  if (!status.ok()) return status;
  return ReplyFromProto(response);
}

absl::StatusOr<MergeReply> MergeStates(const std::vector<std::string>& states, const MergeStatesOptions& options) {
  v1::MergeRequest request;
  absl::Status status = CheckNames(states, options.names);
  if (status.ok()) status = ToProto(states, options.names, {options.return_state, options.results}, &request);
  if (status.ok() && options.as_f64) status = WidenStates(&request);
  v1::MergeResponse response;
  if (status.ok()) status = reduced::MergeStates(request, StateLimits(), options.names, &response, options.rows);
  if (!status.ok()) return status;
  return ReplyFromProto(response);
}

}  // namespace reduced::client
