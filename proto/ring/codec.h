// The slots of a ring as the messages of reduced.proto and back, so that one parser checks the requests of every
// transport, and one checker the answers. The library that servers and clients link.
#ifndef REDUCED_PROTO_RING_CODEC_H_
#define REDUCED_PROTO_RING_CODEC_H_

#include <string>

#include "absl/status/status.h"
#include "proto/ring/layout.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::ring {

// Whether the fixed form has a field for everything that the request says. Inline elements are no part of it: they go
// into the arena.
bool FitsFixedForm(const v1::ReduceRequest& request);

// Writes such a request into the fields from `source` to `ddof`, and `name`; of the flags kOpErrors. The source kArena,
// with its offset and bytes, is the caller's: a request with inline elements, or without a source, gets kMessage.
void ToSubmission(const v1::ReduceRequest& request, Submission* slot);

// The request of the fixed form, without the elements of kArena. INVALID_ARGUMENT: a source or a number of ops that no
// submission has, or an op whose answer is an array; everything else is checked as in any request.
absl::Status FromSubmission(const Submission& slot, v1::ReduceRequest* request);

// Writes a response of at most kMaxOps results, without a state, into the fields from `count` on but for those about a
// reply. Longer names and texts are cut, and so are messages of ops that have no room beside each other.
void ToCompletion(const v1::ReduceResponse& response, Completion* slot);
// An error. Its text is cut to what the slot holds.
void ToCompletion(const absl::Status& error, Completion* slot);

// The response of such a completion, a copy of which is OK and no message. Nothing of it is trusted: the response has
// at most kMaxOps results, and is to be checked like any other.
void FromCompletion(const Completion& slot, const v1::ReduceRequest& request, v1::ReduceResponse* response);
// The text of a completion.
std::string TextOf(const Completion& slot);

}  // namespace reduced::ring

#endif  // REDUCED_PROTO_RING_CODEC_H_
