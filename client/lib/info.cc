// Client::GetServerInfo.
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/checks.h"
#include "client/lib/names.h"
#include "client/lib/retry.h"
#include "kernels/system/quoted.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

template <class Enums>
std::vector<std::string> NamesOfAll(const Enums& values, const google::protobuf::EnumDescriptor* type) {
  std::vector<std::string> names;
  for (const int value : values) names.push_back(NameOf(type, value));
  return names;
}

DeviceInfo FromProto(const v1::DeviceInfo& from) {
  return {.name = from.name(),
          .engine = NameOf(from.engine()),
          .model = from.model(),
          .memory_bytes = from.memory_bytes(),
          .parallel_units = from.parallel_units(),
          .details = from.details(),
          .lanes = from.lanes(),
          .lanes_busy = from.lanes_busy(),
          .queue_limit = from.queue_limit(),
          .queue_length = from.queue_length(),
          .fixed_us = from.fixed_us(),
          .host_gb_per_s = from.host_gb_per_s(),
          .array_bytes = from.array_bytes(),
          .array_bytes_limit = from.array_bytes_limit(),
          .reductions = from.reductions(),
          .reduced_bytes = from.reduced_bytes(),
          .links = {from.links().begin(), from.links().end()}};
}

ServerInfo FromProto(const v1::GetServerInfoResponse& from) {
  ServerInfo to{.version = from.version(),
                .uptime = absl::Milliseconds(from.uptime_ms()),
                .max_message_bytes = from.limits().max_message_bytes(),
                .max_elements = from.limits().max_elements(),
                .max_ops = from.limits().max_ops(),
                .max_ladder_bytes = from.limits().max_ladder_bytes(),
                .max_result_bytes = from.limits().max_result_bytes(),
                .max_streams = from.limits().max_streams(),
                .max_sessions = from.limits().max_sessions(),
                .max_ring_bytes = from.limits().max_ring_bytes(),
                .max_operands = from.limits().max_operands(),
                .max_session_requests = from.limits().max_session_requests(),
                .session_idle_timeout = absl::Milliseconds(from.limits().session_idle_timeout_ms()),
                .default_array_ttl = absl::Milliseconds(from.limits().default_array_ttl_ms()),
                .max_array_ttl = absl::Milliseconds(from.limits().max_array_ttl_ms()),
                .region_socket = from.region_socket(),
                .usage = {.streams = from.usage().streams(),
                          .sessions = from.usage().sessions(),
                          .arrays = from.usage().arrays(),
                          .regions = from.usage().regions(),
                          .rings = from.usage().rings()},
                .no_cuda_reason = from.no_cuda_reason()};
  for (const v1::DeviceInfo& device : from.devices()) to.devices.push_back(FromProto(device));
  for (const v1::LeftOutDevice& device : from.left_out()) to.left_out.push_back({device.name(), device.reason()});
  for (const v1::OpInfo& op : from.ops()) {
    to.ops.push_back({op.name(), op.summary(), NamesOfAll(op.dtypes(), v1::DType_descriptor()), op.usage()});
  }
  for (const v1::Flag& flag : from.flags()) to.flags.push_back({flag.name(), flag.value(), flag.source()});
  for (const v1::DTypeInfo& dtype : from.dtypes()) to.dtypes.push_back(dtype.name());
  for (const v1::PipelineInfo& pipeline : from.pipelines()) {
    to.pipelines.push_back({.name = pipeline.name(),
                            .engine = NameOf(pipeline.engine()),
                            .summary = pipeline.summary(),
                            .origin = pipeline.origin(),
                            .default_of_engine = pipeline.default_of_engine(),
                            .ops = NamesOfAll(pipeline.ops(), v1::Op_descriptor()),
                            .dtypes = NamesOfAll(pipeline.dtypes(), v1::DType_descriptor()),
                            .fused = pipeline.fused(),
                            .fixed_order = pipeline.fixed_order(),
                            .exact = pipeline.exact(),
                            .block_sizes = {pipeline.block_sizes().begin(), pipeline.block_sizes().end()}});
  }
  return to;
}

absl::Status CheckDevice(const v1::DeviceInfo& device) {
  absl::Status status = CheckName("name", device.name());
  if (device.engine() == v1::ENGINE_AUTO) status.Update(Wrong("engine", "auto", "cpu, cuda"));
  status.Update(CheckAmounts(device));
  return status;
}

absl::Status CheckPipeline(const v1::PipelineInfo& pipeline) {
  absl::Status status = CheckName("name", pipeline.name());
  if (pipeline.engine() == v1::ENGINE_AUTO) status.Update(Wrong("engine", "auto", "cpu, cuda"));
  for (const int threads : pipeline.block_sizes()) {
    if (threads < 1) status.Update(Wrong("block_sizes", threads, "1 and more"));
  }
  return status;
}

// Checks each item of a repeated field.
template <class Item>
absl::Status CheckEach(absl::string_view field, const google::protobuf::RepeatedPtrField<Item>& items,
                       absl::Status (*check)(const Item&)) {
  for (int i = 0; i < items.size(); ++i) {
    const absl::Status status = check(items[i]);
    if (!status.ok()) return Within(Element(field, i), status);
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::GetServerInfoResponse& answer) {
  absl::Status status = CheckName("version", answer.version());
  if (absl::StrContains(answer.region_socket(), '\0')) {
    status.Update(Wrong("region_socket", Quoted(answer.region_socket()), "paths"));
  }
  status.Update(CheckAmounts(answer));
  status.Update(Within("usage", CheckAmounts(answer.usage())));
  status.Update(Within("limits", CheckAmounts(answer.limits())));
  status.Update(CheckEach<v1::DeviceInfo>("devices", answer.devices(), CheckDevice));
  status.Update(
      CheckEach<v1::OpInfo>("ops", answer.ops(), [](const auto& op) { return CheckName("name", op.name()); }));
  status.Update(CheckEach<v1::DTypeInfo>("dtypes", answer.dtypes(),
                                         [](const auto& dtype) { return CheckName("name", dtype.name()); }));
  status.Update(CheckEach<v1::PipelineInfo>("pipelines", answer.pipelines(), CheckPipeline));
  return status;
}

}  // namespace

absl::StatusOr<ServerInfo> Client::GetServerInfo(std::optional<absl::Duration> timeout) {
  return AskServerInfo(*connection_, timeout);
}

absl::StatusOr<ServerInfo> AskServerInfo(const Connection& connection, std::optional<absl::Duration> timeout) {
  v1::GetServerInfoResponse response;
  absl::Status status =
      CallAgainAndWait(connection, connection.home, timeout, &v1::Reduction::Stub::PrepareAsyncGetServerInfo,
                       v1::GetServerInfoRequest(), &response);
  if (status.ok()) status = WrongAnswer(connection.options.server, Check(response));
  if (!status.ok()) return status;
  return FromProto(response);
}

}  // namespace reduced::client
