// Resident arrays: Put, ListArrays, DeleteArray, and the handle.
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/names.h"
#include "client/lib/retry.h"
#include "client/lib/stream.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

absl::Status ToProto(const ArrayView& array, const PutOptions& options, v1::PutArrayHeader* header) {
  RETURN_IF_ERROR(client::ToProto(array, header->mutable_array()));
  if (options.ttl < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ttl: got ", absl::FormatDuration(options.ttl), "; allowed: 0 and positive durations"));
  }
  header->set_device(options.device);
  header->set_owner(options.owner);
  header->set_ttl_ms(absl::ToInt64Milliseconds(absl::Ceil(options.ttl, absl::Milliseconds(1))));
  return absl::OkStatus();
}

ArrayInfo FromProto(const v1::ArrayInfo& from) {
  ArrayInfo to{.id = from.id(),
               .dtype = NameOf(from.array().dtype()),
               .shape = {from.array().shape().begin(), from.array().shape().end()},
               .bytes = from.bytes(),
               .device = from.device(),
               .owner = from.owner(),
               .age = absl::Milliseconds(from.age_ms()),
               .expires_in = absl::Milliseconds(from.expires_in_ms()),
               .users = from.users()};
  for (const v1::ArrayShard& shard : from.shards()) {
    to.shards.push_back({shard.device(), shard.first_index(), shard.indexes(), shard.count()});
  }
  return to;
}

absl::Status CallDelete(const Connection& connection, const std::string& id, const std::string& owner,
                        std::optional<absl::Duration> timeout) {
  v1::DeleteArrayRequest request;
  request.set_id(id);
  request.set_owner(owner);
  v1::DeleteArrayResponse response;
  int attempts = 1;
  const absl::Status status =
      CallAgainAndWait(connection, connection.home, timeout, &v1::Reduction::Stub::PrepareAsyncDeleteArray, request,
                       &response, /*interrupted=*/nullptr, &attempts);
  // An attempt whose answer was lost may have deleted it, or the server that had it is gone.
  return absl::IsNotFound(status) && attempts > 1 ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<ResidentArray> Client::Put(const ArrayView& array, const PutOptions& options) {
  v1::PutArrayRequest first;
  absl::Status status = CheckTimeout(options.timeout.value_or(connection_->options.timeout));
  status.Update(ToProto(array, options, first.mutable_header()));
  status.Update(CheckElements(array, /*may_have_reader=*/true));
  if (!status.ok()) return status;
  const StreamMessages messages(first, array, 0, *ArrayBytes(array.dtype, array.shape));  // of every attempt
  const absl::StatusOr<v1::PutArrayResponse> response = CallAgain(
      *connection_, connection_->home, options.timeout, options.interrupted, /*attempts=*/nullptr,
      [&](RpcState& state) { return PutArrayAndWait(state, messages, options.on_progress, options.interrupted); });
  if (!response.ok()) return response.status();
  status = WrongAnswer(connection_->options.server, CheckAnswer(first.header(), *response));
  if (!status.ok()) return status;
  return ResidentArray(connection_, FromProto(response->array()));
}

std::string Client::DefaultOwner() const {
  if (!connection_->options.token_file.empty() || !connection_->options.tls_cert.empty()) return "";
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
  std::array<char, 4096> names{};
  passwd user{};
  passwd* found = nullptr;
  getpwuid_r(geteuid(), &user, names.data(), names.size(), &found);
  const std::string name = found == nullptr ? absl::StrCat(geteuid()) : found->pw_name;
  return absl::StrCat(name, "@", host.data()).substr(0, kMaxOwnerBytes);
}

absl::StatusOr<std::vector<ArrayInfo>> Client::ListArrays(const std::string& owner,
                                                          std::optional<absl::Duration> timeout) {
  const absl::Time deadline = absl::Now() + timeout.value_or(connection_->options.timeout);
  std::vector<ArrayInfo> arrays;
  v1::ListArraysRequest request;
  request.set_owner(owner);
  do {
    v1::ListArraysResponse response;
    absl::Status status =
        CallAgainAndWait(*connection_, connection_->home, arrays.empty() ? timeout : TimeLeft(deadline),
                         &v1::Reduction::Stub::PrepareAsyncListArrays, request, &response);
    if (status.ok()) status = WrongAnswer(connection_->options.server, CheckAnswer(request, response));
    if (!status.ok()) return status;
    for (const v1::ArrayInfo& array : response.arrays()) arrays.push_back(FromProto(array));
    if (response.arrays().empty()) break;  // also of a server that repeats its token
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return arrays;
}

absl::StatusOr<ResidentArray> Client::Own(const ResultArray& kept, const std::string& owner) const {
  if (kept.id.empty()) {
    return absl::InvalidArgumentError("kept: got results without an id; allowed: results of PartitionOptions.keep");
  }
  ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(kept.array.dtype, kept.array.shape));
  return ResidentArray(connection_, {.id = kept.id,
                                     .dtype = kept.array.dtype,
                                     .shape = kept.array.shape,
                                     .bytes = bytes,
                                     .device = "cpu",
                                     .owner = owner});
}

absl::Status Client::DeleteArray(const std::string& id, const std::string& owner,
                                 std::optional<absl::Duration> timeout) {
  return CallDelete(*connection_, id, owner, timeout);
}

ResidentArray::ResidentArray(std::shared_ptr<const Connection> connection, ArrayInfo info)
    : connection_(std::move(connection)), info_(std::move(info)) {}
ResidentArray::ResidentArray(ResidentArray&& other) noexcept = default;  // leaves other.connection_ null
ResidentArray::~ResidentArray() { Delete(); }

ResidentArray& ResidentArray::operator=(ResidentArray&& other) noexcept {
  if (this == &other) return *this;
  Delete();
  connection_ = std::move(other.connection_);
  info_ = std::move(other.info_);
  return *this;
}

const std::string& ResidentArray::Release() {
  connection_.reset();
  return info_.id;
}

// Ignores errors: an array that isn't deleted expires.
void ResidentArray::Delete() {
  constexpr absl::Duration kTimeout = absl::Seconds(5);
  if (connection_ == nullptr) return;
  CallDelete(*connection_, info_.id, info_.owner, std::min(kTimeout, connection_->options.timeout)).IgnoreError();
  connection_.reset();
}

}  // namespace reduced::client
