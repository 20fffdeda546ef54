// The commands that show what a server is and can do.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/commands.h"
#include "client/reducectl/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Calls print with the server's description.
template <class Print>
ExitCode WithInfo(const CommonOptions& common, absl::string_view command, Print print) {
  const absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Create({.server = common.server, .timeout = common.timeout});
  if (!client.ok()) {
    std::cerr << "reducectl: " << client.status().message() << "\n";
    return kUsage;
  }
  const absl::StatusOr<ServerInfo> info = (*client)->GetServerInfo();
  if (!info.ok()) return ReportCallError(command, info.status());
  print(*info);
  return kOk;
}

Json ToJson(const DeviceInfo& device) {
  return {{"name", device.name},
          {"engine", device.engine},
          {"model", device.model},
          {"memory_bytes", device.memory_bytes},
          {"parallel_units", device.parallel_units},
          {"details", device.details},
          {"lanes", device.lanes},
          {"lanes_busy", device.lanes_busy},
          {"queue_limit", device.queue_limit},
          {"queue_length", device.queue_length},
          {"fixed_us", device.fixed_us},
          {"host_gb_per_s", device.host_gb_per_s}};
}

void PrintInfoJson(const CommonOptions& common, const ServerInfo& info) {
  Json devices = Json::array();
  for (const DeviceInfo& device : info.devices) devices.push_back(ToJson(device));
  Json json = {
      {"server", common.server},
      {"version", info.version},
      {"uptime_s", absl::ToDoubleSeconds(info.uptime)},
      {"limits",
       {{"max_message_bytes", info.max_message_bytes}, {"max_elements", info.max_elements}, {"max_ops", info.max_ops}}},
      {"devices", std::move(devices)},
      {"dtypes", info.dtypes}};
  if (!info.no_cuda_reason.empty()) json["no_cuda_reason"] = info.no_cuda_reason;
  std::cout << Dump(json) << "\n";
}

void PrintInfo(const CommonOptions& common, const ServerInfo& info) {
  Rows rows = {{"server", absl::StrCat(common.server, ", version ", info.version, ", up ",
                                       absl::FormatDuration(absl::Trunc(info.uptime, absl::Seconds(1))))},
               {"limits", absl::StrCat(FormatBytes(info.max_message_bytes), " a message, ", info.max_elements,
                                       " elements an array, ", info.max_ops, " ops a request")}};
  for (const DeviceInfo& device : info.devices) {
    rows.push_back({device.name, absl::StrCat(device.model, ", ", FormatBytes(device.memory_bytes), ", ",
                                              device.parallel_units, device.engine == "cpu" ? " threads" : " SMs")});
    if (!device.details.empty()) rows.push_back({"", device.details});
    rows.push_back({"", absl::StrCat("lanes: ", device.lanes_busy, " of ", device.lanes,
                                     " busy; queue: ", device.queue_length, " of ", device.queue_limit)});
    rows.push_back({"", absl::StrFormat("calibration: %s + bytes at %.1f GB/s", FormatMicros(device.fixed_us),
                                        device.host_gb_per_s)});
  }
  if (!info.no_cuda_reason.empty()) rows.push_back({"no cuda", info.no_cuda_reason});
  std::cout << FormatTable(rows);
}

// "all", or the names.
std::string DTypes(const std::vector<std::string>& dtypes, const ServerInfo& info) {
  return dtypes.size() == info.dtypes.size() ? "all" : absl::StrJoin(dtypes, ",");
}

}  // namespace

ExitCode RunInfo(const CommonOptions& common) {
  return WithInfo(common, "info",
                  [&](const ServerInfo& info) { common.json ? PrintInfoJson(common, info) : PrintInfo(common, info); });
}

ExitCode RunOps(const CommonOptions& common) {
  return WithInfo(common, "ops", [&](const ServerInfo& info) {
    Rows rows = {{"OP", "RESULT", "DTYPES"}};
    for (const OpInfo& op : info.ops) {
      rows.push_back({op.name, op.summary, DTypes(op.dtypes, info)});
      const Json json = {{"op", op.name}, {"summary", op.summary}, {"dtypes", op.dtypes}};
      if (common.json) std::cout << Dump(json) << "\n";
    }
    if (!common.json) std::cout << FormatTable(rows);
  });
}

ExitCode RunPipelines(const CommonOptions& common) {
  return WithInfo(common, "pipelines", [&](const ServerInfo& info) {
    Rows rows = {{"PIPELINE", "ENGINE", "OPS", "DTYPES", "SUMMARY (ORIGIN)"}};
    for (const PipelineInfo& pipeline : info.pipelines) {
      rows.push_back({pipeline.name, absl::StrCat(pipeline.engine, pipeline.default_of_engine ? " (default)" : ""),
                      pipeline.ops.size() == info.ops.size() ? "all" : absl::StrJoin(pipeline.ops, ","),
                      DTypes(pipeline.dtypes, info), absl::StrCat(pipeline.summary, " (", pipeline.origin, ")")});
      const Json json = {
          {"pipeline", pipeline.name},   {"engine", pipeline.engine}, {"default_of_engine", pipeline.default_of_engine},
          {"summary", pipeline.summary}, {"origin", pipeline.origin}, {"ops", pipeline.ops},
          {"dtypes", pipeline.dtypes}};
      if (common.json) std::cout << Dump(json) << "\n";
    }
    if (!common.json) std::cout << FormatTable(rows);
  });
}

}  // namespace reduced::client
