// The commands that show what a server is and can do.
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
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Calls print with the server's description.
template <class Print>
ExitCode WithInfo(const CommonOptions& common, absl::string_view command, Print print) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  const absl::StatusOr<ServerInfo> info = client->GetServerInfo();
  if (!info.ok()) return ReportCallError(command, info.status());
  print(*info);
  return kOk;
}

void PrintInfoJson(const CommonOptions& common, const ServerInfo& info) {
  std::cout << Dump(ToJson(common.server, info)) << "\n";
}

void PrintInfo(const CommonOptions& common, const ServerInfo& info) {
  Rows rows = {
      {"server", absl::StrCat(common.server, ", version ", info.version, ", up ",
                              absl::FormatDuration(absl::Trunc(info.uptime, absl::Seconds(1))))},
      {"limits", absl::StrCat(FormatBytes(info.max_message_bytes), " a message, ", info.max_elements,
                              " elements an array, ", info.max_ops, " ops a request, ",
                              FormatBytes(info.max_ladder_bytes), " a ladder, ", info.max_streams, " streams, ",
                              info.max_sessions, " sessions of ", info.max_session_requests, " requests at once")},
      {"", absl::StrCat("arrays that are kept go when unused for ", absl::FormatDuration(info.default_array_ttl),
                        ", or ", absl::FormatDuration(info.max_array_ttl), " at most if asked")},
      {"in use", absl::StrCat(info.usage.streams, " streams, ", info.usage.sessions, " sessions, ", info.usage.arrays,
                              " arrays, ", info.usage.regions, " regions")},
      {"regions", info.region_socket.empty() ? "none: memory can't be shared" : info.region_socket}};
  for (const DeviceInfo& device : info.devices) {
    rows.push_back({device.name, absl::StrCat(device.model, ", ", FormatBytes(device.memory_bytes), ", ",
                                              device.parallel_units, device.engine == "cpu" ? " threads" : " SMs")});
    if (!device.details.empty()) rows.push_back({"", device.details});
    rows.push_back({"", absl::StrCat("lanes: ", device.lanes_busy, " of ", device.lanes,
                                     " busy; queue: ", device.queue_length, " of ", device.queue_limit)});
    rows.push_back(
        {"", absl::StrCat("arrays: ", FormatBytes(device.array_bytes), " of ", FormatBytes(device.array_bytes_limit))});
    rows.push_back({"", absl::StrFormat("calibration: %s + bytes at %.1f GB/s", FormatMicros(device.fixed_us),
                                        device.host_gb_per_s)});
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

// Texts that many rows of a table have in common, each printed once, below it.
class Footnotes {
 public:
  // What stands for the text in the table.
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

void PrintPipelines(const ServerInfo& info) {
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
  return WithInfo(common, "pipelines",
                  [&](const ServerInfo& info) { common.json ? PrintPipelinesJson(info) : PrintPipelines(info); });
}

}  // namespace reduced::client
