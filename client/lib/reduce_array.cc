// Client::ReduceArray and Client::GetArray.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/names.h"
#include "client/lib/retry.h"
#include "client/lib/stream.h"
#include "client/lib/via.h"
#include "kernels/algebra/layout.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

// Larger arrays are stored on the server for the time of the request.
constexpr std::int64_t kMaxSentBytes = std::int64_t{32} << 20;

// Arrays that were stored on the server for the time of a request.
using Stored = std::vector<ResidentArray>;

// How arrays are stored for the time of a request, whose time ends at `deadline`.
PutOptions PutFor(const PartitionOptions& partition, const ReduceOptions& options, absl::Time deadline) {
  PutOptions put{.device = "cpu", .timeout = TimeLeft(deadline), .interrupted = options.interrupted};
  if (partition.keep.has_value()) put.owner = partition.keep->owner;
  return put;
}

// The options of a request, after arrays were stored for it.
ReduceOptions Rest(ReduceOptions options, absl::Time deadline) {
  options.timeout = TimeLeft(deadline);
  return options;
}

// The partition. Large arrays beside the one that is reduced are stored on the server first.
absl::Status ToProto(Client& client, const PartitionOptions& partition, const ReduceOptions& options,
                     absl::Time deadline, v1::ReduceRequest* request, Stored* stored) {
  constexpr std::int64_t kMaxSideBytes = std::int64_t{8} << 20;  // in a message with others
  return client::ToProto(partition, request, [&](const ArrayView& side, v1::SideArray* to) {
    const std::int64_t bytes = *ArrayBytes(side.dtype, side.shape);
    if (bytes <= kMaxSideBytes) {
      to->set_inline_data(side.data, static_cast<std::size_t>(bytes));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(ResidentArray array, client.Put(side, PutFor(partition, options, deadline)));
    to->clear_array();
    to->set_array_id(array.id());
    stored->push_back(std::move(array));
    return absl::OkStatus();
  });
}

absl::StatusOr<ArrayReply> CallReduce(const Connection& connection, const ReduceOptions& options,
                                      const v1::ReduceRequest& request, const std::vector<std::string>& ops,
                                      absl::string_view via) {
  v1::ReduceResponse response;
  int attempts = 1;
  RETURN_IF_ERROR(CallAgainAndWait(connection, connection.home, options.timeout,
                                   &v1::Reduction::Stub::PrepareAsyncReduce, request, &response, options.interrupted,
                                   &attempts));
  ASSIGN_OR_RETURN(Reply rest, ToReplyWithoutArrays(connection.options.server, Asked(request), response, via));
  rest.attempts = attempts;
  return ToArrayReply(std::move(rest), ops, response);
}

// As a stream of the array, and of y and the weights.
absl::StatusOr<ArrayReply> ReduceArrayStream(const Connection& connection, const ArrayView& array,
                                             const std::vector<std::string>& ops, const PartitionOptions& partition,
                                             const ReduceOptions& options, v1::ReduceStreamRequest first) {
  v1::ReduceRequest& request = *first.mutable_header();
  const auto in_chunks = [](const ArrayView&, v1::SideArray*) { return absl::OkStatus(); };
  RETURN_IF_ERROR(client::ToProto(partition, &request, in_chunks, /*may_have_readers=*/true));
  // A stream has no axes. The results of all of them, in ascending order or not, are those of none.
  const absl::StatusOr<std::vector<bool>> reduced = ReducedDimensions(
      {request.axes().axis().data(), static_cast<std::size_t>(request.axes().axis_size())}, array.shape.size());
  const bool all = reduced.ok() && std::ranges::all_of(*reduced, [](bool axis) { return axis; });
  if (all && !request.axes().keepdims()) request.clear_axes();
  StreamMessages messages(first, array, 0, *ArrayBytes(array.dtype, array.shape));  // of every attempt
  for (const auto& [side, field] : {std::pair(&partition.y, +v1::ReduceStreamRequest::kYChunkFieldNumber),
                                    {&partition.weights, +v1::ReduceStreamRequest::kWeightsChunkFieldNumber}}) {
    const auto* const view = side->has_value() ? std::get_if<ArrayView>(&**side) : nullptr;
    if (view != nullptr) messages.Add(field, *view);
  }
  int attempts = 1;
  absl::StatusOr<v1::ReduceResponse> response = CallAgain(
      connection, connection.home, options.timeout, options.interrupted, &attempts,
      [&](RpcState& state) { return ReduceStreamAndWait(state, messages, options.on_progress, options.interrupted); });
  if (!response.ok()) return response.status();
  ASSIGN_OR_RETURN(Reply rest, ToReplyWithoutArrays(connection.options.server, Asked(request), *response, kStream));
  rest.attempts = attempts;
  return ToArrayReply(std::move(rest), ops, *response);
}

}  // namespace

std::vector<std::string> EmptyPolicyNames() { return NamesOf(v1::EmptyPolicy_descriptor()); }

absl::StatusOr<ArrayReply> Client::ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                               const PartitionOptions& partition, const ReduceOptions& options) {
  v1::ReduceRequest request;
  Stored stored;
  absl::Status status = CheckTimeout(options.timeout.value_or(connection_->options.timeout));
  status.Update(client::ToProto(array, request.mutable_array()));
  status.Update(client::ToProto(ops, options, &request));
  status.Update(CheckElements(array, /*may_have_reader=*/true));
  if (status.ok()) status = CheckCalls(request);  // before anything is stored
  if (!status.ok()) return status;
  const absl::Time deadline = absl::Now() + options.timeout.value_or(connection_->options.timeout);
  const std::int64_t bytes = *ArrayBytes(array.dtype, array.shape);
  if (options.via == kStream) {
    v1::ReduceStreamRequest first;
    first.mutable_header()->Swap(&request);
    return ReduceArrayStream(*connection_, array, ops, partition, options, std::move(first));
  }
  if (options.via != "auto" && options.via != kInline) {
    return absl::InvalidArgumentError(
        absl::StrCat("via: got ", options.via, " for arrays of results; allowed: auto, inline, stream"));
  }
  if (bytes > kMaxSentBytes && options.via == "auto") {
    PutOptions put = PutFor(partition, options, deadline);
    put.on_progress = options.on_progress;
    ASSIGN_OR_RETURN(const ResidentArray whole, Put(array, put));
    return ReduceArray(whole, ops, partition, Rest(options, deadline));
  }
  if (!ChooseVia(kInline, bytes).ok()) {
    return absl::InvalidArgumentError(absl::StrCat("via: got inline for an array of ", bytes, " bytes; allowed: auto"));
  }
  status = ToProto(*this, partition, options, deadline, &request, &stored);
  if (status.ok()) status = SetElements(array, bytes, &request);
  if (!status.ok()) return status;
  return CallReduce(*connection_, stored.empty() ? options : Rest(options, deadline), request, ops, kInline);
}

absl::StatusOr<ArrayReply> Client::ReduceArray(const RemoteArray& array, const std::vector<std::string>& ops,
                                               const PartitionOptions& partition, const ReduceOptions& options) {
  v1::ReduceRequest request;
  Stored stored;
  absl::Status status = CheckTimeout(options.timeout.value_or(connection_->options.timeout));
  status.Update(client::ToProto(array, &request));
  status.Update(client::ToProto(ops, options, &request));
  if (status.ok()) status = CheckCalls(request);
  if (!status.ok()) return status;
  const absl::Time deadline = absl::Now() + options.timeout.value_or(connection_->options.timeout);
  status = ToProto(*this, partition, options, deadline, &request, &stored);
  if (!status.ok()) return status;
  return CallReduce(*connection_, stored.empty() ? options : Rest(options, deadline), request, ops,
                    array.id().empty() ? kRegion : kResident);
}

namespace {

absl::StatusOr<HostArray> CallGetArray(RpcState& state, const v1::GetArrayRequest& request) {
  HostArray array;
  std::size_t filled = 0;
  bool started = false;
  absl::Status right;
  v1::GetArrayResponse part;
  const auto reader = state.backend.stub->GetArray(&state.context, request);
  state.watch.Started();
  const auto take = [&]() -> absl::Status {
    if (part.has_array() != !started) return absl::InternalError("part: got another; allowed: the array, then chunks");
    if (!std::exchange(started, true)) {
      array = client::FromProto(part.array().array());
      const absl::StatusOr<std::int64_t> bytes = ArrayBytes(array.dtype, array.shape);
      if (!bytes.ok()) return absl::InternalError(bytes.status().message());
      array.data.reserve(static_cast<std::size_t>(std::min(*bytes, std::int64_t{1} << 30)));
      filled = static_cast<std::size_t>(*bytes);
      return absl::OkStatus();
    }
    array.data += part.chunk();
    if (array.data.size() <= filled) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("chunk: got ", array.data.size(), " bytes; allowed: ", filled));
  };
  while (right.ok() && reader->Read(&part)) {
    right = take();
    if (!right.ok()) state.Cancel();
  }
  const absl::Status status = state.Outcome(state.Seen(reader->Finish()));
  if (right.ok() && !status.ok()) return status;
  if (right.ok() && (!started || array.data.size() != filled)) {
    right = absl::InternalError(absl::StrCat("chunks: got ", array.data.size(), " bytes; allowed: ", filled));
  }
  if (!right.ok()) return WrongAnswer(state.server, right);
  return array;
}

}  // namespace

absl::StatusOr<HostArray> Client::GetArray(const std::string& id, std::optional<absl::Duration> timeout) {
  v1::GetArrayRequest request;
  request.set_id(id);
  return CallAgain(*connection_, connection_->home, timeout, /*interrupted=*/nullptr, /*attempts=*/nullptr,
                   [&request](RpcState& state) { return CallGetArray(state, request); });
}

}  // namespace reduced::client
