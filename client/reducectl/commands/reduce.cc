#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/progress.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

// How the elements got there, as people say it.
std::string HowSent(absl::string_view via) {
  if (via == "array") return "kept there";
  if (via == kShmName) return "read in shared memory (shm)";
  return absl::StrCat("sent ", via);
}

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

// what: the source is; empty: only its number of elements is known.
std::string Table(const std::string& source, const std::string& what, const Reply& reply, double round_trip_us) {
  std::vector<std::vector<std::string>> rows;
  for (const Result& result : reply.results) rows.push_back({"", result.op, ToText(result.value)});
  rows.push_back({"", "ran on",
                  absl::StrCat(reply.execution.device, ", pipeline ", reply.execution.pipeline, ", precision ",
                               reply.execution.precision, ", ", HowSent(reply.via), ": ", reply.execution.reason)});
  rows.push_back({"", "time", absl::StrCat(ToText(reply.timing), "; round trip ", FormatMicros(round_trip_us))});
  return absl::StrCat(source, ": ", what.empty() ? absl::StrCat(reply.count, " elements") : what, ", ",
                      FormatBytes(reply.timing.bytes), "\n", FormatTable(rows));
}

// One question, and what came of it.
struct Item {
  // An input, read by now.
  Item(std::string from, const InputOptions& options) : source(std::move(from)), input(ReadInput(source, options)) {}
  // An array that the server keeps.
  explicit Item(std::string id) : source(std::move(id)), input(Input()) {}

  const std::string source;
  const absl::StatusOr<Input> input;
  const absl::Time start = absl::Now();  // of the request
  absl::StatusOr<Reply> reply;
  absl::Time end;
  absl::Notification answered;
};

ExitCode Print(const Item& item, bool json) {
  if (!item.input.ok()) {
    std::cerr << "reducectl: " << item.source << ": " << item.input.status().message() << "\n";
    return kData;
  }
  if (!item.reply.ok()) return ReportCallError(item.source, item.reply.status());
  const double round_trip_us = absl::ToDoubleMicroseconds(item.end - item.start);
  const auto& [dtype, shape, offset] = item.input->layout;
  const std::string what = dtype.empty() ? "" : absl::StrCat(dtype, " (", absl::StrJoin(shape, ", "), ")");
  std::cout << (json ? Line(item.source, dtype, *item.reply, round_trip_us)
                     : Table(item.source, what, *item.reply, round_trip_us))
            << std::flush;
  return kOk;
}

// What an input may take to be shared that may be sent just as well.
constexpr absl::Duration kSharePatience = absl::Seconds(1);

// Shares the input if it is where it can be; else sends it.
absl::StatusOr<Reply> ReduceInput(Client& client, const Input& input, const CommonOptions& common,
                                  const ReduceArguments& arguments) {
  ReduceOptions options = arguments.options;
  if (const SharedBuffer* const buffer = input.memory.shared()) {
    ShareOptions sharing;
    if (arguments.via != kShmName) {
      sharing.timeout = std::min(kSharePatience, common.timeout.value_or(kSharePatience));
    }
    const absl::StatusOr<Region> region = client.Share(*buffer, sharing);
    const auto& [dtype, shape, offset] = input.layout;
    if (region.ok()) {
      return client.Reduce(region->Array(dtype, shape, static_cast<std::int64_t>(offset)), arguments.ops, options);
    }
    if (arguments.via == kShmName) return region.status();
  }
  UploadProgress progress(!common.json);
  options.via = arguments.via;
  options.on_progress = progress.hook();
  return client.Reduce(input.View(), arguments.ops, options);
}

// One call for each input, or array that the server keeps.
ExitCode ReduceInCalls(Client& client, const CommonOptions& common, const ReduceArguments& arguments) {
  ExitCode first_failure = kOk;
  const auto print = [&](Item& item) {
    item.end = absl::Now();
    ExitCode code = Print(item, common.json);
    if (code == kOk && !arguments.state.empty()) code = WriteState(arguments.state, item.reply->state);
    if (first_failure == kOk) first_failure = code;
  };
  for (const std::string& source : arguments.sources) {
    Item item(source, arguments.input);
    if (item.input.ok()) item.reply = ReduceInput(client, *item.input, common, arguments);
    print(item);
  }
  for (const std::string& id : arguments.arrays) {
    Item item(id);
    item.reply = client.Reduce(RemoteArray::Kept(id), arguments.ops, arguments.options);
    print(item);
  }
  return first_failure;
}

// Of a session: inputs that are read and sent before the answer to the first of them is printed.
constexpr std::size_t kAhead = 8;

// One session for all inputs. What is printed has their order.
ExitCode ReduceInSession(Client& client, bool json, const ReduceArguments& arguments) {
  std::deque<Item> items;  // sent, in order; outlives the session, whose callbacks fill them in
  const absl::StatusOr<std::unique_ptr<Session>> session = client.OpenSession();
  if (!session.ok()) return ReportCallError("reduce", session.status());
  ExitCode first_failure = kOk;
  const auto print_first = [&] {
    items.front().answered.WaitForNotification();  // the request has a timeout
    const ExitCode code = Print(items.front(), json);
    if (first_failure == kOk) first_failure = code;
    items.pop_front();
  };
  for (const std::string& source : arguments.sources) {
    if (items.size() == kAhead) print_first();
    Item& item = items.emplace_back(source, arguments.input);
    const auto done = [&item](absl::StatusOr<Reply> reply) {
      item.end = absl::Now();
      item.reply = std::move(reply);
      item.answered.Notify();
    };
    if (item.input.ok()) {
      (*session)->ReduceAsync(item.input->View(), arguments.ops, arguments.options, done);
    } else {
      item.answered.Notify();
    }
  }
  while (!items.empty()) print_first();
  return first_failure;
}

}  // namespace

ExitCode RunReduce(const CommonOptions& common, ReduceArguments arguments) {
  const std::unique_ptr<Client> client = MakeClient(common, ClientOptions().timeout, arguments.connections);
  if (client == nullptr) return kUsage;
  arguments.options.return_state = !arguments.state.empty();
  if (arguments.via == kShmName) arguments.input.hold = Hold::kShare;
  if (arguments.via == "auto" && absl::StartsWith(common.server, "unix:")) arguments.input.hold = Hold::kShareLarge;
  return arguments.via == kSessionName ? ReduceInSession(*client, common.json, arguments)
                                       : ReduceInCalls(*client, common, arguments);
}

}  // namespace reduced::client
