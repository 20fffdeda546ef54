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

// dtype: empty if only the server knows.
std::string Line(const std::string& source, const std::string& dtype, const Reply& reply, double round_trip_us) {
  Json results = Json::object();
  for (const Result& result : reply.results) results[result.op] = ToJson(result.value);
  Json timing = ToJson(reply.timing);
  timing["round_trip"] = round_trip_us;
  Json json = {{"source", source}};
  if (!dtype.empty()) json["dtype"] = dtype;
  json.update({{"count", reply.count},
               {"via", reply.via},
               {"results", std::move(results)},
               {"engine", reply.execution.engine},
               {"device", reply.execution.device},
               {"pipeline", reply.execution.pipeline},
               {"precision", reply.execution.precision},
               {"reason", reply.execution.reason},
               {"timing_us", std::move(timing)},
               {"bytes", reply.timing.bytes}});
  return Dump(json) + "\n";
}

// what: the source is.
std::string Table(const std::string& source, const std::string& what, const Reply& reply, double round_trip_us) {
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) rows.push_back({"", result.op, ToText(result.value)});
  rows.push_back({"", "ran on",
                  absl::StrCat(reply.execution.device, ", pipeline ", reply.execution.pipeline, ", precision ",
                               reply.execution.precision,
                               reply.via == "array" ? ", kept there" : absl::StrCat(", sent ", reply.via), ": ",
                               reply.execution.reason)});
  rows.push_back({"", "time", absl::StrCat(ToText(reply.timing), "; round trip ", FormatMicros(round_trip_us))});
  return absl::StrCat(source, ": ", what, ", ", FormatBytes(reply.timing.bytes), "\n", FormatTable(rows));
}

// Asks about an array and prints the answer. what: the array is, but for its size; empty: only its number of elements.
template <class Array>
ExitCode Ask(Client& client, const std::string& source, const Array& array, const std::string& dtype, std::string what,
             bool json, const ReduceArguments& arguments) {
  const absl::Time start = absl::Now();
  const absl::StatusOr<Reply> reply = client.Reduce(array, arguments.ops, arguments.options);
  const double round_trip_us = absl::ToDoubleMicroseconds(absl::Now() - start);
  if (!reply.ok()) return ReportCallError(source, reply.status());
  if (what.empty()) what = absl::StrCat(reply->count, " elements");
  std::cout << (json ? Line(source, dtype, *reply, round_trip_us) : Table(source, what, *reply, round_trip_us))
            << std::flush;
  return kOk;
}

ExitCode ReduceOne(Client& client, const std::string& source, bool json, const ReduceArguments& arguments) {
  const absl::StatusOr<Input> input = ReadInput(source, arguments.input);
  if (!input.ok()) {
    std::cerr << "reducectl: " << source << ": " << input.status().message() << "\n";
    return kData;
  }
  const std::string what = absl::StrCat(input->dtype, " (", absl::StrJoin(input->shape, ", "), ")");
  return Ask(client, source, input->View(), input->dtype, what, json, arguments);
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
  for (const std::string& id : arguments.arrays) {
    const ExitCode code = Ask(*client, id, RemoteArray::Kept(id), "", "", common.json, arguments);
    if (first_failure == kOk) first_failure = code;
  }
  return first_failure;
}

}  // namespace reduced::client
