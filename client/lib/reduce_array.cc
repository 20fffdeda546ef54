// Client::ReduceArray and Client::GetArray.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
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
#include "client/lib/via.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

// Larger arrays are stored on the server for the time of the request.
constexpr std::int64_t kMaxSentBytes = std::int64_t{32} << 20;

absl::Status ToProto(const AxesOptions& axes, v1::ReduceRequest* request) {
  v1::EmptyPolicy empty = v1::EMPTY_POLICY_DEFAULT;
  const absl::Status status = Parse("empty", axes.empty, &empty);
  if (!status.ok()) return status;
  request->set_empty(empty);
  request->mutable_axes()->mutable_axis()->Add(axes.axis.begin(), axes.axis.end());
  request->mutable_axes()->set_keepdims(axes.keepdims);
  if (axes.keep.has_value()) {
    request->mutable_keep()->set_owner(axes.keep->owner);
    request->mutable_keep()->set_ttl_ms(absl::ToInt64Milliseconds(absl::Ceil(axes.keep->ttl, absl::Milliseconds(1))));
  }
  return absl::OkStatus();
}

HostArray FromProto(const v1::ArraySpec& from) {
  return {.dtype = NameOf(from.dtype()), .shape = {from.shape().begin(), from.shape().end()}};
}

absl::StatusOr<ArrayReply> CallReduce(const Connection& connection, const ReduceOptions& options,
                                      const v1::ReduceRequest& request, absl::string_view via) {
  v1::ReduceResponse response;
  ArrayReply reply{.via = std::string(via)};
  const absl::Status status =
      CallAgainAndWait(connection, connection.home, options.timeout, &v1::Reduction::Stub::PrepareAsyncReduce, request,
                       &response, options.interrupted, &reply.attempts);
  if (!status.ok()) return status;
  absl::StatusOr<Reply> rest = ToReply(connection.options.server, Asked(request), response, via);
  if (!rest.ok()) return rest.status();
  for (v1::ArrayResult& result : *response.mutable_arrays()) {
    ResultArray to{.op = NameOf(result.op()), .array = FromProto(result.array()), .id = result.kept().id()};
    if (result.has_data()) to.array.data = std::move(*result.mutable_data());
    reply.results.push_back(std::move(to));
  }
  reply.count = rest->count;
  reply.execution = std::move(rest->execution);
  reply.timing = rest->timing;
  return reply;
}

}  // namespace

std::vector<std::string> EmptyPolicyNames() { return NamesOf(v1::EmptyPolicy_descriptor()); }

absl::StatusOr<ArrayReply> Client::ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                               const AxesOptions& axes, const ReduceOptions& options) {
  v1::ReduceRequest request;
  absl::Status status = CheckTimeout(options.timeout.value_or(connection_->options.timeout));
  status.Update(client::ToProto(array, request.mutable_array()));
  status.Update(client::ToProto(ops, options, &request));
  status.Update(ToProto(axes, &request));
  status.Update(CheckElements(array, /*may_have_reader=*/true));
  if (!status.ok()) return status;
  const std::int64_t bytes = *ArrayBytes(array.dtype, array.shape);
  if (options.via != "auto" && options.via != kInline) {
    return absl::InvalidArgumentError(absl::StrCat("via: got ", options.via, " with axes; allowed: auto, inline"));
  }
  if (bytes > kMaxSentBytes && options.via == "auto") {
    PutOptions put{.device = "cpu",
                   .timeout = options.timeout,
                   .on_progress = options.on_progress,
                   .interrupted = options.interrupted};
    if (axes.keep.has_value()) put.owner = axes.keep->owner;
    const absl::StatusOr<ResidentArray> stored = Put(array, put);
    if (!stored.ok()) return stored.status();
    return ReduceArray(*stored, ops, axes, options);
  }
  request.mutable_inline_data()->resize(static_cast<std::size_t>(bytes));
  if (array.reader.read != nullptr) {
    status = array.reader.read(0, request.mutable_inline_data()->data(), bytes);
    if (!status.ok()) return status;
  } else if (bytes > 0) {
    request.set_inline_data(array.data, static_cast<std::size_t>(bytes));
  }
  return CallReduce(*connection_, options, request, kInline);
}

absl::StatusOr<ArrayReply> Client::ReduceArray(const RemoteArray& array, const std::vector<std::string>& ops,
                                               const AxesOptions& axes, const ReduceOptions& options) {
  v1::ReduceRequest request;
  absl::Status status = CheckTimeout(options.timeout.value_or(connection_->options.timeout));
  status.Update(client::ToProto(array, &request));
  status.Update(client::ToProto(ops, options, &request));
  status.Update(ToProto(axes, &request));
  if (!status.ok()) return status;
  return CallReduce(*connection_, options, request, array.id().empty() ? kRegion : kResident);
}

absl::StatusOr<HostArray> Client::GetArray(const std::string& id, std::optional<absl::Duration> timeout) {
  RpcState state(*connection_, connection_->home, timeout);
  if (const absl::Status status = CheckTimeout(state.timeout); !status.ok()) return status;
  v1::GetArrayRequest request;
  request.set_id(id);
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
      array = FromProto(part.array().array());
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
  const absl::Status status = state.Outcome(reader->Finish());
  if (right.ok() && !status.ok()) return status;
  if (right.ok() && (!started || array.data.size() != filled)) {
    right = absl::InternalError(absl::StrCat("chunks: got ", array.data.size(), " bytes; allowed: ", filled));
  }
  if (!right.ok()) return WrongAnswer(state.server, right);
  return array;
}

}  // namespace reduced::client
