// Entries of states as messages (StateEntries of reduced.proto).
#ifndef REDUCED_PROTO_CODEC_ENTRIES_CODEC_H_
#define REDUCED_PROTO_CODEC_ENTRIES_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/algebra/entries.h"
#include "kernels/algebra/spec.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced {

// Writes entries to an empty message.
void ToProto(const Entries& from, v1::StateEntries* to);

// Reads those of an op of the distribution, of as many elements as spec.count says, whose indexes are below
// `positions`. INVALID_ARGUMENT: no such elements have these entries. Takes memory for the entries that the message
// has.
absl::Status ParseEntries(const v1::StateEntries& from, const ReduceSpec& spec, const OpCall& call,
                          std::int64_t positions, Entries* to);

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_ENTRIES_CODEC_H_
