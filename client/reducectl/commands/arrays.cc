// reducectl arrays: the commands about resident arrays.
#include <cstddef>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/commands/reduce_axes.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/array_text.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/progress.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

struct PutArguments {
  std::vector<std::string> sources;
  PutOptions options;
  InputOptions input;
};

Json ToJson(const ArrayInfo& array) {
  Json json = {{"id", array.id},
               {"dtype", array.dtype},
               {"shape", array.shape},
               {"bytes", array.bytes},
               {"device", array.device},
               {"owner", array.owner},
               {"age_s", absl::ToDoubleSeconds(array.age)},
               {"expires_in_s", absl::ToDoubleSeconds(array.expires_in)},
               {"users", array.users}};
  for (const ArrayShard& shard : array.shards) {
    json["shards"].push_back({{"device", shard.device},
                              {"first_index", shard.first_index},
                              {"indexes", shard.indexes},
                              {"count", shard.count}});
  }
  return json;
}

absl::StatusOr<ResidentArray> Upload(Client& client, const Input& input, bool json, PutOptions options) {
  UploadProgress progress(!json);
  options.on_progress = progress.hook();
  if (!options.timeout.has_value()) options.timeout = TimeoutOf(input.View());
  return client.Put(input.View(), options);
}

ExitCode PutOne(Client& client, const Answer& about, const Input& input, bool json, const PutArguments& arguments) {
  absl::StatusOr<ResidentArray> array = Upload(client, input, json, arguments.options);
  if (!array.ok()) return ReportFailure(about, input, array.status());
  Json line = {{"source", about.source}};
  if (!about.column.empty()) line["column"] = about.column;
  if (!about.array.empty()) line["array"] = about.array;
  line.update(ToJson(array->info()));
  if (!about.notes.empty()) line["notes"] = about.notes;
  std::cout << (json ? Dump(line) : Printable(array->id())) << "\n" << std::flush;
  if (!std::cout) return kOutput;  // nobody has read the id: the handle deletes the array
  array->Release();
  return kOk;
}

// Puts all arrays of a source.
ExitCode PutAll(Client& client, const std::string& source, bool json, const PutArguments& arguments) {
  const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, arguments.input);
  if (!reader.ok()) return ReportError(source, reader.status().message(), kData);
  ExitCode failure = kOk;
  Notes notes(source, json);
  for (;;) {
    absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
    notes.Add(**reader);
    if (!piece.ok()) {
      const ExitCode code = ReportError(source, piece.status().message(), kData);
      return failure == kOk ? code : failure;
    }
    if (!piece->has_value()) return failure;
    const Input& input = (*piece)->input;
    if (input.status.ok()) notes.InLine(input.notes);
    const ExitCode code = input.status.ok() ? PutOne(client, AnswerOf(source, input, **reader), input, json, arguments)
                                            : ReportError(source, input.status.message(), kData);
    if (failure == kOk) failure = code;
  }
}

ExitCode RunPut(const CommonOptions& common, PutArguments arguments) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  if (arguments.options.owner.empty()) arguments.options.owner = client->DefaultOwner();
  arguments.input.timeout = common.timeout.value_or(absl::InfiniteDuration());
  arguments.input.one_piece = true;
  arguments.input.positions = true;  // of which any op may be asked later
  arguments.options.timeout = common.timeout;
  ExitCode failure = kOk;
  for (const std::string& source : arguments.sources) {
    KeepFirst(PutAll(*client, source, common.json, arguments), &failure);
  }
  return failure;
}

ExitCode RunList(const CommonOptions& common, const std::string& owner) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  const absl::StatusOr<std::vector<ArrayInfo>> arrays = client->ListArrays(owner);
  if (!arrays.ok()) return ReportCallError("arrays list", arrays.status());
  std::vector<std::vector<std::string>> rows = {
      {"ID", "DTYPE", "SHAPE", "SIZE", "DEVICE", "OWNER", "AGE", "EXPIRES IN", "USERS"}};
  for (const ArrayInfo& array : *arrays) {
    if (common.json) std::cout << Dump(ToJson(array)) << "\n";
    rows.push_back({array.id, array.dtype, absl::StrCat("(", absl::StrJoin(array.shape, ", "), ")"),
                    FormatBytes(array.bytes), array.device, absl::Utf8SafeCHexEscape(array.owner),
                    FormatSeconds(array.age), FormatSeconds(array.expires_in), absl::StrCat(array.users)});
  }
  if (!common.json) std::cout << FormatTable(rows);
  return kOk;
}

ExitCode RunGet(const CommonOptions& common, const std::string& id, const std::string& out) {
  constexpr absl::Duration kTimeout = absl::Minutes(10);  // an array of any size
  const std::unique_ptr<Client> client = MakeClient(common, kTimeout);
  if (client == nullptr) return kUsage;
  const absl::StatusOr<HostArray> array = client->GetArray(id);
  if (!array.ok()) return ReportCallError(id, array.status());
  if (!out.empty()) return WriteNpy(out, *array);
  if (common.json) {
    std::cout << Dump({{"id", id}, {"dtype", array->dtype}, {"shape", array->shape}, {"values", ToJson(*array)}})
              << "\n";
  } else {
    std::cout << array->dtype << " (" << absl::StrJoin(array->shape, ", ") << ")\n" << ArrayText(*array);
  }
  return kOk;
}

ExitCode RunDelete(const CommonOptions& common, const std::vector<std::string>& ids, const std::string& owner) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  const std::string of = owner.empty() ? client->DefaultOwner() : owner;
  ExitCode failure = kOk;
  for (const std::string& id : ids) {
    const absl::Status status = client->DeleteArray(id, of);
    if (!status.ok()) KeepFirst(ReportCallError(id, status), &failure);
  }
  return failure;
}

void AddPut(CommandLine& line, CLI::App* arrays) {
  const auto arguments = std::make_shared<PutArguments>();
  CLI::App* put = line.Add(arrays, "put", "store arrays from files on the server; prints their ids",
                           [arguments](const CommonOptions& common) { return RunPut(common, *arguments); });
  AddInput(line, put, &arguments->sources, &arguments->input).front()->required();
  AddArrayNames(put, &arguments->input.arrays);
  put->final_callback([arguments] { CheckInput(arguments->input); });
  put->add_option(
         "--device", arguments->options.device,
         "the device, like cpu or cuda:0: see `reducectl info`; 'cuda:*' cuts the array along its first dimension "
         "over all GPUs; default: the first GPU, if there is one")
      ->type_name("NAME");
  put->add_option("--owner", arguments->options.owner, "the owner; default: user@host")->type_name("NAME");
  AddTtl(put, &arguments->options.ttl, "the arrays expire");
}

void AddList(CommandLine& line, CLI::App* arrays) {
  const auto owner = std::make_shared<std::string>();
  line.Add(arrays, "list", "list the resident arrays",
           [owner](const CommonOptions& common) { return RunList(common, *owner); })
      ->add_option("--owner", *owner, "only those of this owner")
      ->type_name("NAME");
}

void AddGet(CommandLine& line, CLI::App* arrays) {
  const auto id = std::make_shared<std::string>();
  const auto out = std::make_shared<std::string>();
  CLI::App* get = line.Add(arrays, "get", "write a resident array to a .npy file, or print it",
                           [id, out](const CommonOptions& common) { return RunGet(common, *id, *out); });
  get->add_option("ID", *id, "an id from `arrays put`, `arrays list` or `reduce --keep`")->required()->type_name("");
  get->add_option("--out", *out, "the file; default: print the array, abbreviated if it is long")->type_name("FILE");
}

void AddDelete(CommandLine& line, CLI::App* arrays) {
  const auto ids = std::make_shared<std::vector<std::string>>();
  const auto owner = std::make_shared<std::string>();
  CLI::App* remove = line.Add(arrays, "delete", "delete resident arrays",
                              [ids, owner](const CommonOptions& common) { return RunDelete(common, *ids, *owner); });
  remove->add_option("ID", *ids, "ids from `arrays put` or `arrays list`")->required()->type_name("");
  remove->add_option("--owner", *owner, "their owner; default: user@host")->type_name("NAME");
}

}  // namespace

void AddArrays(CommandLine& line) {
  CLI::App* arrays =
      line.Add("arrays", "store arrays on the server, to reduce them any number of times", /*run=*/nullptr);
  arrays->require_subcommand(0, 1);
  AddPut(line, arrays);
  AddList(line, arrays);
  AddGet(line, arrays);
  AddDelete(line, arrays);
}

}  // namespace reduced::client
