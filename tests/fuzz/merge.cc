// Encoded MergeRequests, in slices, against protobuf's own parser; and what merging promises.
//
// The input: how many cuts, the cuts, the message.
#include "proto/codec/merge.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "reduced/v1/reduced.pb.h"
#include "server/wire/decoded_bytes.h"
#include "server/wire/merge.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/slices.h"

namespace reduced::fuzz {
namespace {

constexpr StateLimits kMergeLimits{.max_elements = std::int64_t{1} << 40, .max_ops = 32};

absl::Status Merge(const v1::MergeRequest& request, v1::MergeResponse* response) {
  return MergeStates(request, kMergeLimits, {}, response);
}

// The states of all parts but the last, merged, then the last: the same state and the same answers.
void CheckPrefix(const v1::MergeRequest& request, const v1::MergeResponse& whole) {
  v1::MergeRequest prefix = request;
  prefix.mutable_states()->RemoveLast();
  prefix.set_return_state(true);
  prefix.set_omit_results(true);  // it may have none of its own: the minimum of nothing
  v1::MergeResponse before, after;
  const absl::Status merged = Merge(prefix, &before);
  Require(merged.ok(), "what merges, merges without the last state", merged.message());
  v1::MergeRequest rest;
  *rest.add_states() = before.state();
  *rest.add_states() = request.states(request.states_size() - 1);
  rest.set_return_state(request.return_state());
  rest.set_omit_results(request.omit_results());
  const absl::Status status = Merge(rest, &after);
  Require(status.ok(), "the state of a merge can be merged",
          absl::StrCat(status.message(), "\n", request.ShortDebugString()));
  Require(after.SerializeAsString() == whole.SerializeAsString(), "it does not matter in how many steps states merge",
          absl::StrCat(request.ShortDebugString(), "\n", whole.ShortDebugString(), "\n", after.ShortDebugString()));
}

}  // namespace

FUZZ_TARGET(merge) {
  const absl::string_view cuts = input.Take(input.Choice(32));
  const absl::string_view message = input.rest();
  v1::MergeResponse encoded;
  const absl::Status status = server::MergeEncoded(
      Sliced(message, cuts), kMergeLimits, [] { return absl::OkStatus(); },
      [](std::int64_t /*bytes*/) { return absl::OkStatus(); }, &encoded);
  RequirePrintableError(status);

  v1::MergeRequest request;
  v1::MergeResponse parsed;
  // Of unknown fields, which are skipped, protobuf's parser refuses more: tags of more bytes than they need.
  if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return;
  if (!server::DecodedBytes(message, *v1::MergeRequest::descriptor()).ok()) return;
  const absl::Status expected = Merge(request, &parsed);
  Require(status.code() == expected.code(), "the bytes have the answer of the message",
          absl::StrCat(status.message(), " / ", expected.message()));
  if (!status.ok()) return;
  Require(encoded.SerializeAsString() == parsed.SerializeAsString(), "the bytes have the answer of the message");
  if (request.states_size() >= 2) CheckPrefix(request, parsed);
}

}  // namespace reduced::fuzz
