// Resident arrays on the wire: the header of a PutArray, and what clients are told of an array.
#ifndef REDUCED_SERVER_WIRE_ARRAYS_H_
#define REDUCED_SERVER_WIRE_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reduced/v1/reduced.pb.h"
#include "server/config/options.h"
#include "server/sources/arrays.h"

namespace reduced::server {

// The array that `caller` wants to store, without its memory and quota; its device is the one that the header names,
// which may be empty or unknown. INVALID_ARGUMENT: as in request.h. PERMISSION_DENIED: as OwnerFor.
absl::StatusOr<ResidentArray> ParsePut(const v1::PutArrayHeader& header, const RequestLimits& limits,
                                       absl::string_view caller);

// The part of the list that a ListArraysRequest asks for.
struct ArrayPage {
  std::string owner;               // empty: any
  std::uint64_t first_serial = 0;  // of ArrayDescription::serial
  std::size_t size = 0;            // the most arrays of the page
};

// INVALID_ARGUMENT: not a ListArraysRequest, or a size or a token that is not allowed.
absl::StatusOr<ArrayPage> ParsePage(const v1::ListArraysRequest& request);

void ToProto(const ArrayDescription& array, v1::ArrayInfo* info);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_ARRAYS_H_
