#include <algorithm>
#include <iterator>
#include <string>

#include "kernels/engine/pipelines.h"
#include "proto/codec/op_call.h"
#include "proto/codec/values.h"
#include "server/calls/calls.h"
#include "server/calls/simple_call.h"
#include "server/config/configuration.h"
#include "server/wire/encode.h"

namespace reduced::server {
namespace {

void FillDevice(const Engine& engine, const DeviceLinks& links, v1::DeviceInfo* out) {
  const DeviceInfo device = engine.info();
  out->set_name(device.name);
  out->set_engine(ToProto(engine.kind()));
  out->set_model(device.model);
  out->set_memory_bytes(device.memory_bytes);
  out->set_parallel_units(device.parallel_units);
  out->set_details(device.details);
  out->set_lanes(device.lanes);
  out->set_lanes_busy(device.lanes_busy);
  out->set_queue_limit(device.queue_limit);
  out->set_queue_length(device.queue_length);
  const Calibration calibration = engine.calibration();
  out->set_fixed_us(calibration.fixed_us);
  out->set_host_gb_per_s(calibration.host_gb_per_s);
  out->set_array_bytes(device.array_bytes);
  out->set_array_bytes_limit(device.array_bytes_limit);
  out->set_reductions(device.reductions);
  out->set_reduced_bytes(device.reduced_bytes);
  if (const auto found = links.find(device.name); found != links.end()) {
    out->mutable_links()->Add(found->second.begin(), found->second.end());
  }
}

void FillPipeline(const PipelineRow& row, v1::PipelineInfo* out) {
  out->set_name(std::string(row.name));
  out->set_engine(ToProto(row.engine));
  out->set_summary(std::string(row.summary));
  out->set_origin(std::string(row.origin));
  out->set_default_of_engine(&row == &DefaultPipeline(row.engine));
  for (const Op op : OpsOf(row)) out->add_ops(ToProto(op));
  for (const DType dtype : DTypesOf(row)) out->add_dtypes(ToProto(dtype));
  out->set_fused(!row.rung);
  out->set_fixed_order(row.fixed_order);
  out->set_exact(row.exact);
  if (row.block_sizes) out->mutable_block_sizes()->Add(kBlockSizes.begin(), kBlockSizes.end());
}

void FillServerInfo(const Backend& backend, v1::GetServerInfoResponse* info) {
  const Engines& engines = backend.engines;
  const RequestLimits& limits = backend.limits;
  info->set_version(REDUCED_VERSION);
  info->set_uptime_ms(absl::ToInt64Milliseconds(absl::Now() - backend.started));
  info->mutable_limits()->set_max_message_bytes(limits.max_message_bytes);
  info->mutable_limits()->set_max_elements(limits.max_elements);
  info->mutable_limits()->set_max_ops(limits.max_ops);
  info->mutable_limits()->set_max_operands(limits.max_operands);
  info->mutable_limits()->set_max_ladder_bytes(limits.max_ladder_bytes);
  info->mutable_limits()->set_max_result_bytes(limits.max_result_bytes);
  info->mutable_limits()->set_max_streams(limits.max_streams);
  info->mutable_limits()->set_max_session_requests(limits.max_session_requests);
  info->mutable_limits()->set_max_sessions(limits.max_sessions);
  info->mutable_limits()->set_max_ring_bytes(limits.max_ring_bytes);
  info->mutable_limits()->set_session_idle_timeout_ms(absl::ToInt64Milliseconds(limits.timeouts.session_idle));
  info->mutable_limits()->set_default_array_ttl_ms(absl::ToInt64Milliseconds(limits.array_ttl));
  info->mutable_limits()->set_max_array_ttl_ms(absl::ToInt64Milliseconds(limits.max_array_ttl));
  info->mutable_usage()->set_streams(static_cast<int>(backend.streams.taken()));
  info->mutable_usage()->set_sessions(static_cast<int>(backend.sessions.taken()));
  info->mutable_usage()->set_arrays(backend.arrays.count());
  info->mutable_usage()->set_regions(backend.regions.count());
  info->mutable_usage()->set_rings(backend.pollers.count());
  info->set_region_socket(backend.regions.path());
  for (const FlagValue& each : backend.flags) {
    v1::Flag* const flag = info->add_flags();
    flag->set_name(each.name);
    flag->set_value(RedactedValue(each));
    flag->set_source(each.source);
  }
  for (const auto& engine : engines.all()) FillDevice(*engine, backend.links, info->add_devices());
  info->set_no_cuda_reason(engines.no_cuda_reason());
  for (const LeftOutDevice& device : engines.left_out()) {
    v1::LeftOutDevice* const out = info->add_left_out();
    out->set_name(device.name);
    out->set_reason(device.reason);
  }

  for (const OpRow& row : kOps) {
    v1::OpInfo* const op = info->add_ops();
    op->set_op(ToProto(row.op));
    op->set_name(std::string(row.name));
    op->set_summary(std::string(row.summary));
    op->set_usage(std::string(OpUsage(row.op)));
    for (const DTypeRow& dtype : kDTypes) {
      if (Supports(row.op, dtype.dtype)) op->add_dtypes(ToProto(dtype.dtype));
    }
  }
  for (const DTypeRow& row : kDTypes) {
    v1::DTypeInfo* const dtype = info->add_dtypes();
    dtype->set_dtype(ToProto(row.dtype));
    dtype->set_name(std::string(row.name));
    dtype->set_bytes(row.bytes);
  }
  for (const PipelineRow& row : Pipelines()) FillPipeline(row, info->add_pipelines());
}

}  // namespace

grpc::ServerUnaryReactor* RunServerInfo(Backend& backend, grpc::CallbackServerContext* context,
                                        grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* const call = new SimpleCall(Rpc::kGetServerInfo, backend, context);
  v1::GetServerInfoRequest nothing;
  absl::Status status = call->Admit(*request);
  if (status.ok()) status = call->Decode(request, &nothing);
  if (!status.ok()) return call->End(status);
  v1::GetServerInfoResponse info;
  FillServerInfo(backend, &info);
  return call->End(call->Encode(info, response));
}

}  // namespace reduced::server
