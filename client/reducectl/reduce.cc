#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/reducectl/commands.h"
#include "client/reducectl/input.h"
#include "client/reducectl/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

std::string Line(const std::string& source, const std::string& dtype, const Reply& reply, double round_trip_us) {
  Json results = Json::object();
  for (const Result& result : reply.results) results[result.op] = ToJson(result.value);
  Json timing = ToJson(reply.timing);
  timing["round_trip"] = round_trip_us;
  const Json json = {{"source", source},
                     {"dtype", dtype},
                     {"count", reply.count},
                     {"via", reply.via},
                     {"results", std::move(results)},
                     {"engine", reply.execution.engine},
                     {"device", reply.execution.device},
                     {"pipeline", reply.execution.pipeline},
                     {"precision", reply.execution.precision},
                     {"reason", reply.execution.reason},
                     {"timing_us", std::move(timing)},
                     {"bytes", reply.timing.bytes}};
  return Dump(json) + "\n";
}

std::string Table(const std::string& source, const Input& input, const Reply& reply, double round_trip_us) {
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) rows.push_back({"", result.op, ToText(result.value)});
  rows.push_back({"", "ran on",
                  absl::StrCat(reply.execution.device, ", pipeline ", reply.execution.pipeline, ", precision ",
                               reply.execution.precision, ", sent ", reply.via, ": ", reply.execution.reason)});
  rows.push_back({"", "time", absl::StrCat(ToText(reply.timing), "; round trip ", FormatMicros(round_trip_us))});
  return absl::StrCat(source, ": ", input.dtype, " (", absl::StrJoin(input.shape, ", "), "), ",
                      FormatBytes(reply.timing.bytes), "\n", FormatTable(rows));
}

ExitCode ReduceOne(Client& client, const std::string& source, bool json, const ReduceArguments& arguments) {
  const absl::StatusOr<Input> input = ReadInput(source, arguments.input);
  if (!input.ok()) {
    std::cerr << "reducectl: " << source << ": " << input.status().message() << "\n";
    return kData;
  }
  const absl::Time start = absl::Now();
  const absl::StatusOr<Reply> reply = client.Reduce(input->View(), arguments.ops, arguments.options);
  const double round_trip_us = absl::ToDoubleMicroseconds(absl::Now() - start);
  if (!reply.ok()) return ReportCallError(source, reply.status());
  std::cout << (json ? Line(source, input->dtype, *reply, round_trip_us) : Table(source, *input, *reply, round_trip_us))
            << std::flush;
  return kOk;
}

}  // namespace

ExitCode RunReduce(const CommonOptions& common, const ReduceArguments& arguments) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  ExitCode first_failure = kOk;
  for (const std::string& source : arguments.sources) {
    const ExitCode code = ReduceOne(*client, source, common.json, arguments);
    if (first_failure == kOk) first_failure = code;
  }
  return first_failure;
}

}  // namespace reduced::client
