// Conversions that several RPCs need, between the library's plain structs and the messages of reduced.proto.
#ifndef REDUCED_CLIENT_LIB_CONVERT_H_
#define REDUCED_CLIENT_LIB_CONVERT_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/lib/answer.h"
#include "reduced/result_array.h"
#include "reduced/types.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// The dtype and the shape. INVALID_ARGUMENT: an unknown dtype or a bad shape.
absl::Status ToProto(const ArrayView& array, v1::ArraySpec* spec);

// INVALID_ARGUMENT: `array`, which is valid, has elements, but no memory that has them, nor a reader if the call can
// use one.
absl::Status CheckElements(const ArrayView& array, bool may_have_reader = false);

// The part of a region. INVALID_ARGUMENT: the strides are not as many as dimensions.
absl::Status ToProto(const RemoteArray& array, v1::RegionPart* region);

// The source of the elements; of an array in a region also its dtype and shape. To: a message that has a source,
// v1::ReduceRequest or v1::SideArray.
template <class To>
absl::Status ToProto(const RemoteArray& array, To* to) {
  if (!array.id().empty()) {
    to->set_array_id(array.id());
    return absl::OkStatus();
  }
  const absl::Status status = ToProto(array, to->mutable_region());
  if (!status.ok()) return status;
  return ToProto(array.elements(), to->mutable_array());
}

// The ops and the options. INVALID_ARGUMENT: there is no op, a name is unknown, or neither results nor a state are
// wanted.
absl::Status ToProto(const std::vector<std::string>& ops, const ReduceOptions& options, v1::ReduceRequest* request);

// What names the ops of a reply: how the caller wrote those of such a request, if they have parameters; else none.
std::vector<std::string> NamesFor(const v1::ReduceRequest& request, const std::vector<std::string>& ops);

// Copies the elements, of so many bytes, to the request. RESOURCE_EXHAUSTED: there is no memory. Errors of the array's
// reader.
absl::Status SetElements(const ArrayView& array, std::int64_t bytes, v1::ReduceRequest* request);

// OK, or INVALID_ARGUMENT, as the server would say it: an op has a parameter that it does not take, lacks one, or is
// not for the dtype. For those who store arrays before they send the request.
absl::Status CheckCalls(const v1::ReduceRequest& request);

// How a request gets the elements of an array beside the one that is reduced, whose dtype and shape `to` has already.
using SetSide = absl::FunctionRef<absl::Status(const ArrayView& side, v1::SideArray* to)>;
// The partition. INVALID_ARGUMENT: a name is unknown, or a side array is none, or has a reader if these may not. Errors
// of `set_side`, whose messages begin with the field.
absl::Status ToProto(const PartitionOptions& partition, v1::ReduceRequest* request, SetSide set_side,
                     bool may_have_readers = false);

Value FromProto(const v1::Value& from);
absl::Status FromProto(const v1::OpError& from);
HostArray FromProto(const v1::ArraySpec& from);  // without elements
ResultArray FromProto(v1::ArrayResult& from);    // takes the elements
std::vector<Result> FromProto(const google::protobuf::RepeatedPtrField<v1::Result>& from);
// Adds the answer of an op about a whole array: a value, if it has no dimensions. `name`: of the op; empty: it has one.
void AddAnswer(std::string name, ResultArray answer, Reply* to);

// INTERNAL: the response doesn't answer what was asked: see answer.h.
absl::StatusOr<Reply> ToReplyWithoutArrays(absl::string_view server, const Asked& asked, const v1::ReduceResponse& from,
                                           absl::string_view via);
// The same with the answers that are arrays. `names`: of the ops, if they have parameters.
// Takes the elements of arrays out of the response.
absl::StatusOr<Reply> ToReply(absl::string_view server, const Asked& asked, v1::ReduceResponse& from,
                              absl::string_view via, absl::Span<const std::string> names = {});
absl::StatusOr<Reply> ToReply(absl::string_view server, const Asked& asked, absl::StatusOr<v1::ReduceResponse> response,
                              absl::string_view via, absl::Span<const std::string> names = {});

// The answer to a partition: the arrays of `response`, whose elements this takes, and `rest`, which is the same
// response as ToReply gives it. `names`: of the ops.
ArrayReply ToArrayReply(Reply rest, absl::Span<const std::string> names, v1::ReduceResponse& response);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CONVERT_H_
