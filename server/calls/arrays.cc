#include "server/wire/arrays.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/calls/calls.h"
#include "server/calls/simple_call.h"
#include "server/security/identity.h"
#include "server/wire/encode.h"

namespace reduced::server {

// The response is encoded here: a message would exist until the client has read it, and takes ten times its encoding.
grpc::ServerUnaryReactor* RunListArrays(Backend& backend, grpc::CallbackServerContext* context,
                                        grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* const call = new SimpleCall(Rpc::kListArrays, backend, context);
  v1::ListArraysRequest list;
  absl::Status status = call->Admit(*request);
  if (status.ok()) status = call->Decode(request, &list);
  if (!status.ok()) return call->End(status);
  const absl::StatusOr<ArrayPage> page = ParsePage(list);
  if (!page.ok()) return call->End(page.status());
  const absl::StatusOr<std::string> owner = OwnerFor(page->owner, call->caller());
  if (!owner.ok()) return call->End(owner.status());
  // One more than the page has, which is the first of the next page.
  std::vector<ArrayDescription> arrays =
      backend.arrays.List(*owner, call->caller(), page->first_serial, page->size + 1);
  v1::ListArraysResponse answer;
  if (arrays.size() > page->size) {
    answer.set_next_page_token(absl::StrCat(arrays.back().serial));
    arrays.pop_back();
  }
  for (const ArrayDescription& array : arrays) ToProto(array, answer.add_arrays());
  return call->End(call->Encode(answer, response));
}

// Answers once the array has no users, whether or not the client waits: the call exists until then.
grpc::ServerUnaryReactor* RunDeleteArray(Backend& backend, grpc::CallbackServerContext* context,
                                         grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* const call = new SimpleCall(Rpc::kDeleteArray, backend, context);
  v1::DeleteArrayRequest array;
  absl::Status status = call->Admit(*request);
  if (status.ok()) status = call->Decode(request, &array);
  if (status.ok()) status = call->Encode(v1::DeleteArrayResponse(), response);
  if (!status.ok()) return call->End(status);
  const absl::StatusOr<std::string> owner = OwnerFor(array.owner(), call->caller());
  if (!owner.ok()) return call->End(owner.status());
  backend.arrays.Delete(
      array.id(), *owner, [call](const absl::Status& deleted) { call->End(deleted); }, std::string(call->caller()));
  return call;
}

}  // namespace reduced::server
