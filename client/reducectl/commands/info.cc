// reducectl info, ops and pipelines: what a server is and can do.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/local/local.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string ModelOf(const DeviceInfo& device) {
  return absl::StrCat(device.model, ", ", FormatBytes(device.memory_bytes), ", ", device.parallel_units,
                      device.engine == "cpu" ? " threads" : " SMs");
}

// What the device has done since the server started, and its share of the bytes of all devices.
std::string WorkOf(const DeviceInfo& device, const ServerInfo& info) {
  double all = 0;
  for (const DeviceInfo& each : info.devices) all += static_cast<double>(each.reduced_bytes);
  return absl::StrFormat("work: %d reductions of %s, %.0f%%", device.reductions, FormatBytes(device.reduced_bytes),
                         all > 0 ? 100 * static_cast<double>(device.reduced_bytes) / all : 0.0);
}

std::string CalibrationOf(const DeviceInfo& device) {
  return absl::StrFormat("calibration: %s + bytes at %.1f GB/s", FormatMicros(device.fixed_us), device.host_gb_per_s);
}

// Of the engine in this process, which has no limits, sessions, resident arrays or flags.
void PrintLocal(const CommonOptions& common, const ServerInfo& info) {
  const DeviceInfo& cpu = info.devices.front();
  if (common.json) {
    std::cout << Dump({{"server", common.server},
                       {"version", info.version},
                       {"devices", Json::array({ToJson(cpu)})},
                       {"dtypes", info.dtypes}})
              << "\n";
    return;
  }
  std::cout << FormatTable({{"server", absl::StrCat("none: version ", info.version, " in this process")},
                            {cpu.name, ModelOf(cpu)},
                            {"", cpu.details},
                            {"", CalibrationOf(cpu)}});
}

void PrintInfo(const CommonOptions& common, const ServerInfo& info) {
  if (common.server == kLocal) return PrintLocal(common, info);
  if (common.json) {
    std::cout << Dump(ToJson(common.server, info)) << "\n";
    return;
  }
  Rows rows = {
      {"server", absl::StrCat(common.server, ", version ", info.version, ", up ", FormatSeconds(info.uptime))},
      {"limits", absl::StrCat(FormatBytes(info.max_message_bytes), " per message, ", info.max_elements,
                              " elements per array, ", info.max_ops, " ops per request, ",
                              FormatBytes(info.max_ladder_bytes), " per ladder, ", info.max_streams, " streams, ",
                              info.max_sessions, " sessions of ", info.max_session_requests, " requests")},
      {"", info.max_ring_bytes == 0
               ? "no rings"
               : absl::StrCat("a ring for each session, with an arena of at most ", FormatBytes(info.max_ring_bytes))},
      {"", absl::StrCat("resident arrays expire after ", absl::FormatDuration(info.default_array_ttl),
                        " idle, at most ", absl::FormatDuration(info.max_array_ttl), " with --ttl")},
      {"in use", absl::StrCat(info.usage.streams, " streams, ", info.usage.sessions, " sessions, ", info.usage.arrays,
                              " arrays, ", info.usage.regions, " regions, ", info.usage.rings, " rings")},
      {"regions", info.region_socket.empty() ? "none: memory can't be shared with this server" : info.region_socket}};
  for (const DeviceInfo& device : info.devices) {
    rows.push_back({device.name, ModelOf(device)});
    if (!device.details.empty()) rows.push_back({"", device.details});
    rows.push_back({"", absl::StrCat("lanes: ", device.lanes_busy, " of ", device.lanes,
                                     " busy; queue: ", device.queue_length, " of ", device.queue_limit)});
    rows.push_back(
        {"", absl::StrCat("arrays: ", FormatBytes(device.array_bytes), " of ", FormatBytes(device.array_bytes_limit))});
    rows.push_back({"", CalibrationOf(device)});
    rows.push_back({"", WorkOf(device, info)});
    for (const std::string& link : device.links) rows.push_back({"", link});
  }
  for (const ServerFlag& flag : info.flags) {
    if (flag.source == "default") continue;
    rows.push_back({absl::StrCat("flag ", flag.name), absl::StrCat(flag.value, " (", flag.source, ")")});
  }
  for (const LeftOutDevice& device : info.left_out) {
    rows.push_back({absl::StrCat(device.name, " left out"), device.reason});
  }
  if (!info.no_cuda_reason.empty()) rows.push_back({"no cuda", info.no_cuda_reason});
  std::cout << FormatTable(rows);
}

// "all", or the names.
std::string DTypes(const std::vector<std::string>& dtypes, const ServerInfo& info) {
  return dtypes.size() == info.dtypes.size() ? "all" : absl::StrJoin(dtypes, ",");
}

void PrintPipelinesJson(const ServerInfo& info) {
  for (const PipelineInfo& pipeline : info.pipelines) {
    const Json json = {{"pipeline", pipeline.name},
                       {"engine", pipeline.engine},
                       {"default_of_engine", pipeline.default_of_engine},
                       {"summary", pipeline.summary},
                       {"origin", pipeline.origin},
                       {"ops", pipeline.ops},
                       {"dtypes", pipeline.dtypes},
                       {"fused", pipeline.fused},
                       {"fixed_order", pipeline.fixed_order},
                       {"exact", pipeline.exact},
                       {"block_sizes", pipeline.block_sizes}};
    std::cout << Dump(json) << "\n";
  }
}

// Texts that many cells of a table have in common. Each is printed once, below the table.
class Footnotes {
 public:
  // The mark for the text in the table.
  std::string Mark(const std::string& text) {
    const auto found = std::find(texts_.begin(), texts_.end(), text);
    const auto index = found - texts_.begin();
    if (found == texts_.end()) texts_.push_back(text);
    return absl::StrCat("[", index + 1, "]");
  }
  Rows ToRows() const {
    Rows rows;
    for (std::size_t i = 0; i < texts_.size(); ++i) rows.push_back({absl::StrCat("[", i + 1, "]"), texts_[i]});
    return rows;
  }

 private:
  std::vector<std::string> texts_;
};

void PrintPipelines(const CommonOptions& common, const ServerInfo& info) {
  if (common.json) return PrintPipelinesJson(info);
  Footnotes notes;
  Rows rows = {{"PIPELINE", "ENGINE", "OPS", "AT ONCE", "DTYPES", "BLOCKS", "SAME BITS", "ORIGIN", "SUMMARY"}};
  for (const PipelineInfo& pipeline : info.pipelines) {
    const bool all_ops = pipeline.ops.size() == info.ops.size();
    const bool all_dtypes = pipeline.dtypes.size() == info.dtypes.size();
    rows.push_back({pipeline.name, absl::StrCat(pipeline.engine, pipeline.default_of_engine ? " (default)" : ""),
                    all_ops ? "all" : notes.Mark(absl::StrJoin(pipeline.ops, ", ")), pipeline.fused ? "any" : "one",
                    all_dtypes ? "all" : notes.Mark(absl::StrJoin(pipeline.dtypes, ", ")),
                    pipeline.block_sizes.empty() ? "-" : notes.Mark(absl::StrJoin(pipeline.block_sizes, ", ")),
                    pipeline.fixed_order ? "always" : "not of floats", notes.Mark(pipeline.origin), pipeline.summary});
  }
  std::cout << FormatTable(rows) << "\n" << FormatTable(notes.ToRows());
}

void PrintOps(const CommonOptions& common, const ServerInfo& info) {
  Rows rows = {{"OP", "RESULT", "DTYPES"}}, usages = {{"WITH PARAMETERS"}};
  for (const OpInfo& op : info.ops) {
    rows.push_back({op.name, op.summary, DTypes(op.dtypes, info)});
    if (!op.usage.empty()) usages.push_back({op.usage});
    Json json = {{"op", op.name}, {"summary", op.summary}, {"dtypes", op.dtypes}};
    if (!op.usage.empty()) json["usage"] = op.usage;
    if (common.json) std::cout << Dump(json) << "\n";
  }
  if (common.json) return;
  std::cout << FormatTable(rows);
  if (usages.size() > 1) std::cout << "\n" << FormatTable(usages);
}

absl::StatusOr<ServerInfo> InfoOf(Client* client) {
  return client == nullptr ? LocalEngine().Info() : client->GetServerInfo();
}

// Adds a command without options that calls `print` with the description of the server.
void AddWithInfo(CommandLine& line, const std::string& name, const std::string& help,
                 void (*print)(const CommonOptions&, const ServerInfo&)) {
  line.Add(name, help, [name, print](const CommonOptions& common) -> ExitCode {
    const bool local = common.server == kLocal;
    const std::unique_ptr<Client> client = local ? nullptr : MakeClient(common);
    if (client == nullptr && !local) return kUsage;
    const absl::StatusOr<ServerInfo> info = InfoOf(client.get());
    if (!info.ok()) return ReportCallError(name, info.status());
    print(common, *info);
    return kOk;
  });
}

}  // namespace

void AddInfo(CommandLine& line) {
  AddWithInfo(line, "info", "print the server's version, devices, limits, usage and calibration", PrintInfo);
}

void AddOps(CommandLine& line) {
  AddWithInfo(line, "ops", "print the ops, their results and the dtypes that they are defined for", PrintOps);
}

void AddPipelines(CommandLine& line) {
  AddWithInfo(line, "pipelines", "print the pipelines: techniques of reduction and where they come from",
              PrintPipelines);
}

}  // namespace reduced::client
