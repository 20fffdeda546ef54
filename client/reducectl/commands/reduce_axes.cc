#include "client/reducectl/commands/reduce_axes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/group_table.h"
#include "client/reducectl/commands/missing.h"
#include "client/reducectl/commands/pairs.h"
#include "client/reducectl/commands/text_partition.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/array_text.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/progress.h"
#include "client/reducectl/output/render.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

std::string ShapeText(const HostArray& array) {
  return absl::StrCat(array.dtype, " (", absl::StrJoin(array.shape, ", "), ")");
}

// The file for an array of results; empty: there is none.
std::string FileOf(const AxesArguments& arguments, const ResultArray& result) {
  return result.op.empty() ? arguments.out_keys : absl::StrReplaceAll(arguments.out, {{kOpPlaceholder, result.op}});
}

// Whether a result is one value, which is printed as such, or an error.
bool IsScalar(const AxesArguments& arguments, const ResultArray& result) {
  const std::size_t dimensions = IsFingerprint(result.op) ? 1 : 0;  // of one answer
  return !result.error.ok() || (result.array.shape.size() == dimensions && result.id.empty() &&
                                !result.written_at.has_value() && FileOf(arguments, result).empty());
}
std::string ScalarText(const ResultArray& result) {
  if (!IsFingerprint(result.op)) return result.array.At(0).Text();
  return ToJson(result.array, /*fingerprints=*/true).get<std::string>();
}
bool AreScalars(const AxesArguments& arguments, const std::vector<ResultArray>& results) {
  return std::all_of(results.begin(), results.end(),
                     [&](const ResultArray& result) { return IsScalar(arguments, result); });
}

// Whether a table has room for results, some of which may be of several numbers for each group.
bool IsNarrow(const std::vector<ResultArray>& results) {
  constexpr std::int64_t kMostColumns = 16;
  std::int64_t columns = 0;
  for (const ResultArray& result : results) {
    std::int64_t width = 1;
    for (std::size_t i = 1; i < result.array.shape.size(); ++i) width *= result.array.shape[i];
    columns += width;
  }
  return columns <= kMostColumns;
}

// Shared memory that has a name.
absl::StatusOr<Region> ShareForResults(Client& server, const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return absl::InvalidArgumentError(absl::StrCat("can't be opened for writing: ", std::strerror(errno)));
  const absl::Cleanup close_file = [file] { close(file); };
  return server.Share(file, {.writable = true});
}

class Reducer {
 public:
  // `session`: null, or what the inputs are sent over.
  Reducer(Place place, std::unique_ptr<Session> session, const CommonOptions& common, Question question,
          const AxesArguments& arguments, const SideFiles& sides)
      : place_(std::move(place)),
        session_(std::move(session)),
        common_(common),
        question_(std::move(question)),
        arguments_(arguments),
        sides_(sides) {}

  ExitCode Run() {
    for (const std::string& source : question_.sources) KeepFirst(ReduceSource(source), &failure_);
    if (question_.sources.empty()) {
      const absl::Status status = MakePartition(arguments_, sides_, nullptr, nullptr, &partition_);
      if (!status.ok()) return ReportError("reduce", status.message(), kData);
      for (const std::string& id : question_.arrays) {
        absl::StatusOr<ArrayReply> reply =
            place_.server->ReduceArray(RemoteArray::Resident(id), question_.ops, partition_.options, question_.options);
        KeepFirst(Print({.source = id}, Input(), std::move(reply)), &failure_);
      }
    }
    return failure_;
  }

 private:
  // Why the input can't be read, of which options may name columns.
  ExitCode ReportInput(const std::string& source, const absl::Status& status) const {
    std::string message(status.message());
    const auto add = [&](bool columns, const char* option, const std::string& given) {
      if (columns) absl::StrAppend(&message, "; ", option, " ", given, " is no file, and names columns of the input");
    };
    add(!sides_.key_columns.empty(), "--keys", arguments_.sides.keys);
    add(!sides_.mask_column.empty(), "--where", arguments_.sides.where);
    return ReportError(source, message, kData);
  }

  ExitCode ReduceSource(const std::string& source) {
    const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, question_.input);
    if (!reader.ok()) return ReportInput(source, reader.status());
    ExitCode failure = kOk;
    Notes notes(source, common_.json);
    for (bool first = true;; first = false) {
      const absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
      notes.Add(**reader);
      if (!piece.ok()) {
        KeepFirst(ReportInput(source, piece.status()), &failure);
        return failure;
      }
      if (!piece->has_value()) break;
      if (!first && !(arguments_.out.empty() && arguments_.write_to.empty() && arguments_.state.empty())) {
        return ReportError(source, "got several arrays; allowed: one with --out, --write-to or --state", kData);
      }
      const Input& input = (*piece)->input;
      if (!input.status.ok()) {
        KeepFirst(ReportUnread(source, input.status), &failure);
        continue;
      }
      notes.InLine(input.notes);
      absl::Status status = sides_.CheckMask(arguments_.sides, input.layout.shape);
      if (status.ok())
        status = MakePartition(arguments_, sides_, (*reader)->fields(), &input.layout.shape, &partition_);
      Answer answer = AnswerOf(source, input, **reader);
      AddNotes(source, &answer);
      KeepFirst(
          status.ok() ? Print(std::move(answer), input, Reduce(input)) : ReportError(source, status.message(), kData),
          &failure);
    }
    return failure;
  }

  // Of a server: shares the input if it is in memory that can be shared, else sends it.
  absl::StatusOr<ArrayReply> Reduce(const Input& input) {
    ReduceOptions options = question_.options;
    if (arguments_.options.y.has_value() || arguments_.options.weights.has_value()) return ReduceTwo(input, options);
    const PartitionOptions& partition_options = partition_.options;
    const auto reduce = [&](const ArrayView& array, const std::vector<std::string>& ops,
                            const PartitionOptions& partition) {
      return session_ != nullptr ? session_->ReduceArray(array, ops, partition, options)
                                 : place_.ReduceArray(array, ops, partition, options);
    };
    if (!input.missing.empty()) return ReduceMasked(input, question_.ops, partition_options, options, reduce);
    options.timeout = place_.TimeFor(input.View());
    if (const SharedBuffer* const buffer = input.memory.shared()) {
      const absl::StatusOr<Region> region = place_.server->Share(*buffer);
      const Layout& layout = input.layout;
      if (region.ok()) {
        return place_.server->ReduceArray(
            region->Array(layout.dtype, layout.shape, static_cast<std::int64_t>(layout.offset)), question_.ops,
            partition_options, options);
      }
      if (question_.via == Question::kRegion) return region.status();
    }
    UploadProgress progress(!common_.json);
    options.via = question_.via == "inline" ? question_.via : "auto";
    options.on_progress = progress.hook();
    return reduce(input.View(), question_.ops, partition_options);
  }

  absl::StatusOr<ArrayReply> ReduceTwo(const Input& input, ReduceOptions options) {
    Paired paired;
    RETURN_IF_ERROR(PairUp(input, sides_, question_.ops, partition_.options, &paired));
    options.via = question_.via == Question::kRegion ? "auto" : question_.via;
    return place_.ReduceArray(paired.x, question_.ops, paired.partition, options);
  }

  // What keys and masks of text are taken for, once for each source.
  void AddNotes(const std::string& source, Answer* answer) {
    answer->notes.insert(answer->notes.end(), partition_.notes.begin(), partition_.notes.end());
    if (std::exchange(noted_, source) == source || common_.json) return;
    for (const std::string& note : partition_.notes) {
      std::cerr << "reducectl: " << Printable(absl::StrCat(source, ": ", note)) << "\n";
    }
  }

  ExitCode Print(Answer answer, const Input& input, absl::StatusOr<ArrayReply> reply) {
    if (!reply.ok()) return ReportFailure(answer, input, reply.status());
    EndGroups(partition_, &*reply);
    ExitCode code =
        IsTableName(arguments_.out) ? WriteTable(answer, *reply) : WriteArrays(arguments_, reply->results, reply->keys);
    if (code == kOk && partition_.groups.has_value() && !arguments_.out_keys.empty()) code = WriteLabels(answer);
    if (code == kOk && !arguments_.state.empty()) code = WriteFile(arguments_.state, reply->state);
    if (code != kOk) return code;
    answer.notes.insert(answer.notes.end(), sides_.notes.begin(), sides_.notes.end());
    answer.reply.count = reply->count;
    answer.reply.via = reply->via;
    answer.reply.execution = reply->execution;
    answer.reply.timing = reply->timing;
    answer.reply.attempts = reply->attempts;
    std::cout << (common_.json ? Line(answer, *reply) : Text(answer, *reply)) << std::flush;
    return std::cout ? ReportErrors(SubjectOf(answer), ErrorsOf(reply->results)) : kOutput;
  }

  std::string Line(const Answer& answer, const ArrayReply& reply) const {
    Json results = Json::object(), more = Json::object();
    for (const ResultArray& result : reply.results) results[result.op] = ArrayJson(arguments_, result);
    if (!reply.keys.array.dtype.empty()) more["keys"] = ArrayJson(arguments_, reply.keys);
    if (partition_.groups.has_value()) {
      more["keys"] = LabelsJson(partition_.groups->labels);
      more["rows_without_key"] = partition_.groups->dropped;
    }
    AddErrors(ErrorsOf(reply.results), &more);
    return JsonLine(answer, std::move(results), more);
  }

  // For people; with --quiet the results, ids or files alone, and the name of one of several arrays.
  std::string Text(const Answer& answer, const ArrayReply& reply) const {
    const std::string results = partition_.groups.has_value() || IsTableName(arguments_.out)
                                    ? GroupsText(reply)
                                    : ArraysText(arguments_, reply.results, reply.keys);
    if (!arguments_.quiet) {
      const std::int64_t dropped = partition_.groups.has_value() ? partition_.groups->dropped : 0;
      return absl::StrCat(Printable(TitleOf(answer)), ": ", reply.count, " elements, ", FormatBytes(reply.timing.bytes),
                          dropped > 0 ? absl::StrCat(", ", dropped, " without a key left out") : "", ", ran on ",
                          Printable(reply.execution.device), ", ", FormatMicros(reply.timing.total_us.value_or(0)),
                          "\n", results);
    }
    if (!answer.several) return results;
    return absl::StrCat(Printable(NameOf(answer)), AreScalars(arguments_, reply.results) ? "\t" : "\n", results);
  }

  // Of groups that have names.
  std::string GroupsText(const ArrayReply& reply) const {
    if (IsTableName(arguments_.out)) {
      return absl::StrCat(arguments_.quiet ? "" : "written to ", Printable(arguments_.out), "\n");
    }
    const std::vector<LabelColumn>& labels = partition_.groups->labels;
    if (!arguments_.quiet && arguments_.out.empty() && arguments_.out_keys.empty() && IsNarrow(reply.results)) {
      return GroupTableText(labels, reply.results);
    }
    const std::string keys = arguments_.out_keys.empty() ? LabelsText(labels)
                                                         : absl::StrCat(arguments_.quiet ? "" : "written to ",
                                                                        Printable(arguments_.out_keys), "\n");
    return absl::StrCat(arguments_.quiet ? "" : "keys:\n", keys, ArraysText(arguments_, reply.results, ResultArray()));
  }

  ExitCode WriteTable(const Answer& answer, const ArrayReply& reply) const {
    const absl::StatusOr<std::string> table =
        GroupTableFile(arguments_.out, LabelsOf(partition_, reply), reply.results);
    if (!table.ok()) return ReportError(SubjectOf(answer), table.status().message(), kUsage);
    const ExitCode code = WriteFile(arguments_.out, *table);
    return code != kOk || arguments_.out_keys.empty() || partition_.groups.has_value()
               ? code
               : WriteNpy(arguments_.out_keys, reply.keys.array);
  }

  ExitCode WriteLabels(const Answer& answer) const {
    const std::vector<LabelColumn>& labels = partition_.groups->labels;
    const absl::StatusOr<std::string> file =
        labels.size() == 1 ? LabelsNpy(labels.front())
                           : absl::InvalidArgumentError(absl::StrCat("got --out-keys for ", labels.size(),
                                                                     " columns of keys; allowed: one, or --out to a "
                                                                     ".csv or .json file"));
    if (!file.ok()) return ReportError(SubjectOf(answer), file.status().message(), kUsage);
    return WriteFile(arguments_.out_keys, *file);
  }

  const Place place_;
  const std::unique_ptr<Session> session_;  // null: each input is a call of its own
  const CommonOptions& common_;
  const Question question_;
  const AxesArguments& arguments_;
  const SideFiles& sides_;
  TextPartition partition_;  // of the input that is reduced
  std::string noted_;        // the source whose notes about the partition were said
  ExitCode failure_ = kOk;
};

}  // namespace

// Whether results would take the place of what is reduced, or of what lies beside it.
bool ReplacesInput(const Question& question, const AxesArguments& arguments) {
  std::vector<std::string> outs = {arguments.out_keys};
  for (const std::string& op : question.ops) outs.push_back(absl::StrReplaceAll(arguments.out, {{kOpPlaceholder, op}}));
  std::vector<std::string> inputs = arguments.sides.files();
  inputs.insert(inputs.end(), question.sources.begin(), question.sources.end());
  std::error_code none;
  for (const std::string& out : outs) {
    for (const std::string& input : inputs) {
      if (!out.empty() && std::filesystem::equivalent(out, input, none)) return true;
    }
  }
  return false;
}

ExitCode ReduceAxes(const CommonOptions& common, Question question, const AxesArguments& arguments) {
  if (ReplacesInput(question, arguments)) {
    return ReportError("--out, --out-keys", "got the name of an input; allowed: other files", kUsage);
  }
  std::optional<Place> place = PlaceOf(common, question);
  if (!place.has_value()) return kUsage;
  InputOptions& input = question.input;
  input.timeout = common.timeout.value_or(absl::InfiniteDuration());
  input.one_piece = input.positions = true;  // the dimensions matter, and so does their order
  input.in_memory = place->local != nullptr || question.in_session();
  if (!question.sources.empty()) input.arrays = question.arrays;
  input.missing = MissingFor(question.ops, question.options, Missing::kZero);
  if (question.via == Question::kRegion) input.hold = Hold::kShare;
  AxesArguments own = arguments;
  if (!own.sides.keys.empty()) {
    own.options.keys.emplace();
    if (own.groups != AxesArguments().groups) {
      static_cast<void>(absl::SimpleAtoi(own.groups, &own.options.keys->groups));  // was looked at
    }
    own.options.keys->drop_outside = own.outside == "drop";
  }
  SideFiles sides;
  if (const ExitCode code = ReadSideFiles(own.sides, input, question.sources, &sides, &own.options); code != kOk)
    return code;
  const GroupByOptions& by = own.group_by;
  if (!own.sides.keys.empty() && !sides.encodes_keys() &&
      (!by.sort || by.bucket.has_value() || by.missing != GroupByOptions().missing)) {
    return ReportError("--sort, --missing-keys, --bucket",
                       absl::StrCat("got keys of ", own.sides.keys, "; allowed: columns of text"), kUsage);
  }
  input.fields = sides.key_columns;
  if (!sides.mask_column.empty()) input.fields.push_back(sides.mask_column);
  for (std::size_t i = 0; i < sides.notes.size() && !common.json; ++i)
    std::cerr << "reducectl: " << Printable(sides.notes[i]) << "\n";
  if (own.keep) {
    own.options.keep = own.kept;
    if (own.kept.owner.empty() && place->server != nullptr) own.options.keep->owner = place->server->DefaultOwner();
  }
  std::optional<Region> region;  // until the results are there
  if (!own.write_to.empty()) {
    own.options.write_to = RegionPlace{"", own.write_offset};
    if (place->server != nullptr) {
      absl::StatusOr<Region> shared = ShareForResults(*place->server, own.write_to);
      if (!shared.ok()) return ReportCallError(own.write_to, shared.status());
      region = *std::move(shared);
      own.options.write_to->token = region->token();
    }
  }
  std::unique_ptr<Session> session;
  if (question.in_session()) {
    absl::StatusOr<std::unique_ptr<Session>> opened = place->server->OpenSession({.via = question.via});
    if (!opened.ok()) return ReportCallError("reduce", opened.status());
    session = *std::move(opened);
  }
  return Reducer(*std::move(place), std::move(session), common, std::move(question), own, sides).Run();
}

ExitCode WriteArrays(const AxesArguments& arguments, const std::vector<ResultArray>& results, const ResultArray& keys) {
  if (!arguments.out.empty()) {
    for (const ResultArray& result : results) {
      if (!result.error.ok()) continue;
      const ExitCode code = WriteNpy(FileOf(arguments, result), result.array);
      if (code != kOk) return code;
    }
  }
  return arguments.out_keys.empty() || keys.array.dtype.empty() ? kOk : WriteNpy(arguments.out_keys, keys.array);
}

Json ArrayJson(const AxesArguments& arguments, const ResultArray& result) {
  if (!result.error.ok()) return {};
  if (IsScalar(arguments, result)) return ToJson(result.array, IsFingerprint(result.op));
  Json json = {{"dtype", result.array.dtype}, {"shape", result.array.shape}};
  if (!result.id.empty()) {
    json["id"] = result.id;
  } else if (result.written_at.has_value()) {
    json["file"] = arguments.write_to;
    json["written_at"] = *result.written_at;
  } else if (const std::string file = FileOf(arguments, result); !file.empty()) {
    json["file"] = file;
  } else {
    json["values"] = ToJson(result.array, IsFingerprint(result.op));
  }
  return json;
}

namespace {

// An array, or where it is, under the title `name`.
std::string ArrayLines(const AxesArguments& arguments, const std::string& name, const ResultArray& result) {
  const bool quiet = arguments.quiet;
  if (IsScalar(arguments, result) && result.error.ok()) {
    return absl::StrCat(quiet ? "" : name, quiet ? "" : ": ", ScalarText(result), "\n");
  }
  if (!result.error.ok()) return quiet ? "-\n" : absl::StrCat(name, ": -\n");
  const std::string title = quiet ? "" : absl::StrCat(name, ": ", ShapeText(result.array), "\n");
  if (!result.id.empty()) return absl::StrCat(title, quiet ? "" : "kept as ", Printable(result.id), "\n");
  if (result.written_at.has_value()) {
    const std::string where = absl::StrCat("written to ", Printable(arguments.write_to), " from byte ");
    return absl::StrCat(title, quiet ? "" : where, *result.written_at, "\n");
  }
  const std::string file = FileOf(arguments, result);
  if (file.empty()) return absl::StrCat(title, ArrayText(result.array, IsFingerprint(result.op)));
  return absl::StrCat(title, quiet ? "" : "written to ", Printable(file), "\n");
}

}  // namespace

std::string ArraysText(const AxesArguments& arguments, const std::vector<ResultArray>& results,
                       const ResultArray& keys) {
  if (AreScalars(arguments, results)) {
    std::vector<std::vector<std::string>> rows;
    for (const ResultArray& result : results) {
      rows.push_back({"", result.op, result.error.ok() ? ScalarText(result) : "-"});
    }
    if (!arguments.quiet) return FormatTable(rows);
    return absl::StrCat(absl::StrJoin(rows, "\t", [](std::string* out, const auto& row) { *out += row.back(); }), "\n");
  }
  std::string text;
  if (!keys.array.dtype.empty()) text = ArrayLines(arguments, "keys", keys);
  for (const ResultArray& result : results) text += ArrayLines(arguments, result.op, result);
  return text;
}

ExitCode WriteNpy(const std::string& path, const HostArray& array) {
  return WriteFile(path, absl::StrCat(NpyHeader(array.dtype, array.shape), array.data));
}

}  // namespace reduced::client
