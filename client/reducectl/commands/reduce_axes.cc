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
#include "client/reducectl/commands/missing.h"
#include "client/reducectl/commands/pairs.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/array_text.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/progress.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

constexpr char kOp[] = "{op}";

// "0,2", "-1".
std::string ParseAxes(const std::string& text, std::vector<int>* axes) {
  axes->clear();
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    axes->push_back(0);
    if (!absl::SimpleAtoi(item, &axes->back())) {
      return absl::StrCat("got \"", text, "\"; allowed: whole numbers, separated by commas, such as 0,2 or -1");
    }
  }
  return "";
}

std::string ShapeText(const HostArray& array) {
  return absl::StrCat(array.dtype, " (", absl::StrJoin(array.shape, ", "), ")");
}

// The file for an array of results; empty: there is none.
std::string FileOf(const AxesArguments& arguments, const ResultArray& result) {
  return result.op.empty() ? arguments.out_keys : absl::StrReplaceAll(arguments.out, {{kOp, result.op}});
}

// Whether a result is one value, which is printed as such, or an error.
bool IsScalar(const AxesArguments& arguments, const ResultArray& result) {
  return !result.error.ok() || (result.array.shape.empty() && result.id.empty() && !result.written_at.has_value() &&
                                FileOf(arguments, result).empty());
}
bool AreScalars(const AxesArguments& arguments, const std::vector<ResultArray>& results) {
  return std::all_of(results.begin(), results.end(),
                     [&](const ResultArray& result) { return IsScalar(arguments, result); });
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
    for (const std::string& source : question_.sources) Keep(ReduceSource(source));
    if (question_.sources.empty()) {
      for (const std::string& id : question_.arrays) {
        Keep(Print({.source = id}, Input(),
                   place_.server->ReduceArray(RemoteArray::Resident(id), question_.ops, arguments_.options,
                                              question_.options)));
      }
    }
    return first_failure_;
  }

 private:
  void Keep(ExitCode code) {
    if (first_failure_ == kOk) first_failure_ = code;
  }

  ExitCode ReduceSource(const std::string& source) {
    const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, question_.input);
    if (!reader.ok()) return ReportError(source, reader.status().message(), kData);
    ExitCode failure = kOk;
    Notes notes(source, common_.json);
    for (bool first = true;; first = false) {
      const absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
      notes.Add(**reader);
      if (!piece.ok()) {
        const ExitCode code = ReportError(source, piece.status().message(), kData);
        return failure == kOk ? code : failure;
      }
      if (!piece->has_value()) break;
      if (!first && !(arguments_.out.empty() && arguments_.write_to.empty() && arguments_.state.empty())) {
        return ReportError(source, "got several arrays; allowed: one with --out, --write-to or --state", kData);
      }
      const Input& input = (*piece)->input;
      if (!input.status.ok()) {
        const ExitCode code = ReportUnread(source, input.status);
        if (failure == kOk) failure = code;
        continue;
      }
      notes.InLine(input.notes);
      const absl::Status status = sides_.CheckMask(arguments_.sides, input.layout.shape);
      Answer answer = AnswerOf(source, input, **reader);
      const ExitCode code =
          status.ok() ? Print(std::move(answer), input, Reduce(input)) : ReportError(source, status.message(), kData);
      if (failure == kOk) failure = code;
    }
    return failure;
  }

  // Of a server: shares the input if it is in memory that can be shared, else sends it.
  absl::StatusOr<ArrayReply> Reduce(const Input& input) {
    ReduceOptions options = question_.options;
    if (arguments_.options.y.has_value() || arguments_.options.weights.has_value()) return ReduceTwo(input, options);
    const auto reduce = [&](const ArrayView& array, const std::vector<std::string>& ops,
                            const PartitionOptions& partition) {
      if (place_.local != nullptr) return place_.local->ReduceArray(array, ops, partition, options);
      return session_ != nullptr ? session_->ReduceArray(array, ops, partition, options)
                                 : place_.server->ReduceArray(array, ops, partition, options);
    };
    if (place_.local != nullptr) options.timeout = common_.timeout;
    if (!input.missing.empty()) return ReduceMasked(input, question_.ops, arguments_.options, options, reduce);
    if (place_.local != nullptr) return reduce(input.View(), question_.ops, arguments_.options);
    if (!common_.timeout.has_value()) options.timeout = TimeoutOf(input.View());
    if (const SharedBuffer* const buffer = input.memory.shared()) {
      const absl::StatusOr<Region> region = place_.server->Share(*buffer);
      const Layout& layout = input.layout;
      if (region.ok()) {
        return place_.server->ReduceArray(
            region->Array(layout.dtype, layout.shape, static_cast<std::int64_t>(layout.offset)), question_.ops,
            arguments_.options, options);
      }
      if (question_.via == Question::kRegion) return region.status();
    }
    UploadProgress progress(!common_.json);
    options.via = question_.via == "inline" ? question_.via : "auto";
    options.on_progress = progress.hook();
    return reduce(input.View(), question_.ops, arguments_.options);
  }

  absl::StatusOr<ArrayReply> ReduceTwo(const Input& input, ReduceOptions options) {
    Paired paired;
    const absl::Status status = PairUp(input, sides_, question_.ops, arguments_.options, &paired);
    if (!status.ok()) return status;
    options.timeout = common_.timeout;
    if (place_.local != nullptr) {
      return place_.local->ReduceArray(paired.x, question_.ops, paired.partition, options);
    }
    if (!common_.timeout.has_value()) options.timeout = 2 * TimeoutOf(paired.x);
    options.via = question_.via == Question::kRegion ? "auto" : question_.via;
    return place_.server->ReduceArray(paired.x, question_.ops, paired.partition, options);
  }

  ExitCode Print(Answer answer, const Input& input, const absl::StatusOr<ArrayReply>& reply) {
    if (!reply.ok()) return ReportFailure(answer, input, reply.status());
    ExitCode code = WriteArrays(arguments_, reply->results, reply->keys);
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
    AddErrors(ErrorsOf(reply.results), &more);
    return JsonLine(answer, std::move(results), more);
  }

  // For people; with --quiet the results, ids or files alone, and the name of one of several arrays.
  std::string Text(const Answer& answer, const ArrayReply& reply) const {
    const std::string results = ArraysText(arguments_, reply.results, reply.keys);
    if (!arguments_.quiet) {
      return absl::StrCat(Printable(TitleOf(answer)), ": ", reply.count, " elements, ", FormatBytes(reply.timing.bytes),
                          ", ran on ", Printable(reply.execution.device), ", ",
                          FormatMicros(reply.timing.total_us.value_or(0)), "\n", results);
    }
    if (!answer.several) return results;
    return absl::StrCat(Printable(NameOf(answer)), AreScalars(arguments_, reply.results) ? "\t" : "\n", results);
  }

  const Place place_;
  const std::unique_ptr<Session> session_;  // null: each input is a call of its own
  const CommonOptions& common_;
  const Question question_;
  const AxesArguments& arguments_;
  const SideFiles& sides_;
  ExitCode first_failure_ = kOk;
};

}  // namespace

void AddAxes(CommandLine& line, CLI::App* command, AxesArguments* arguments) {
  AddParsed(command, "--axis", ParseAxes, &arguments->options.axis,
            "reduce along these dimensions only, so that each op has an array of results: from 0, or negative from the "
            "last one, which is -1")
      ->each([arguments](const std::string&) { arguments->axis = true; })
      ->type_name("N,...");
  const auto add_side = [command](const char* option, std::string* to, const char* help) {
    command->add_option(option, *to, help)->type_name("FILE[:NAME]|@ID");
  };
  SideArguments* const sides = &arguments->sides;
  add_side("--segments", &sides->segments,
           "reduce segments of dimension 0, which go from one of the offsets in this file to the next, as those of "
           "Arrow's lists and CSR do: i32 or i64, ascending. NAME: an array of a .npz file or a column of a text that "
           "has several; @ID: a resident array");
  add_side("--lengths", &sides->lengths, "the same, of these lengths, one after the other");
  add_side("--keys", &sides->keys,
           "group by the integers in this file, one for each item of dimension 0: each group is an output");
  command
      ->add_option("--groups", arguments->groups,
                   "with --keys: the outputs are those of keys 0 to N - 1; any: of each key that there is, ascending")
      ->type_name("N|any")
      ->capture_default_str();
  AddChoice(line, command, "--outside", &arguments->outside,
            "with --groups N: other keys are an error, or what has them is dropped", {"error", "drop"})
      ->capture_default_str();
  add_side(
      "--y", &sides->y,
      "the other array of ops about two, such as dot and corr, of the shape of the input, or one that broadcasts to "
      "it as in NumPy. A column of the same text will do: FILE:NAME");
  add_side("--weights", &sides->weights,
           "the same of weighted_mean and its like; with --axis it may have the reduced dimensions alone");
  add_side("--where", &sides->where,
           "leave out elements where this array is false: bool, of the shape of the input; or u8, whose bits are the "
           "elements in order, the least significant one first, as in Arrow's validity bitmaps");
  command->add_flag("--keepdims", arguments->options.keepdims,
                    "with --axis: results have dimensions of 1 in place of those that were reduced");
  AddChoice(line, command, "--empty", &arguments->options.empty,
            "with arrays of results: what min, max, argmin, argmax and range of no element are; fill: NaN for floats, "
            "what any element replaces for integers",
            EmptyPolicyNames())
      ->capture_default_str();
  command
      ->add_option("--out", arguments->out,
                   "write arrays of results to .npy files of this name, in which {op} is the op, such as "
                   "'r-{op}.npy'; default: print them, abbreviated if they are long")
      ->type_name("FILE");
  command
      ->add_option("--out-keys", arguments->out_keys, "with --keys and --groups any: write the keys to this .npy file")
      ->type_name("FILE");
  command->add_flag("--keep", arguments->keep,
                    "leave arrays of results on the server, as resident arrays whose ids are printed");
  command->add_option("--owner", arguments->kept.owner, "with --keep: their owner; default: user@host")
      ->type_name("NAME");
  AddTtl(command, &arguments->kept.ttl, "with --keep: they expire");
  command
      ->add_option(
          "--write-to", arguments->write_to,
          "let the server, on this machine, write arrays of results to this shared memory, such as a file in /dev/shm "
          "of which every page exists: one after the other, at multiples of 64 bytes that are printed")
      ->type_name("FILE");
  AddParsed(command, "--write-offset", ParseWholeNumber, &arguments->write_offset,
            "with --write-to: the byte where the first one begins, a multiple of 64")
      ->type_name("BYTES")
      ->default_str("0");
}

void CheckAxes(const Question& question, const AxesArguments& arguments) {
  const auto require = [](bool given, const char* option, bool condition, const char* needs) {
    if (given && !condition) throw CLI::ValidationError(option, absl::StrCat("requires ", needs));
  };
  const SideArguments& sides = arguments.sides;
  const bool keyed = !sides.keys.empty();
  if (!arguments.state.empty() && !(sides.segments.empty() && sides.lengths.empty())) {
    throw CLI::ExcludesError("--state", sides.segments.empty() ? "--lengths" : "--segments");
  }
  if (arguments.axis + !sides.segments.empty() + !sides.lengths.empty() + keyed > 1) {
    throw CLI::ValidationError("--axis, --segments, --lengths, --keys", "exclude each other");
  }
  const auto of_two = [&question](const char* option, const std::string& given, std::string_view operand) {
    const auto taker = std::find_if(question.ops.begin(), question.ops.end(),
                                    [operand](const std::string& op) { return OtherOperandName(op) == operand; });
    if (given.empty() && taker != question.ops.end())
      throw CLI::RequiredError(absl::StrCat("--op ", *taker, ": ", option));
    if (!given.empty() && taker == question.ops.end()) {
      const std::vector<std::string> ops = OpNames();
      const auto first = std::find_if(ops.begin(), ops.end(),
                                      [operand](const std::string& op) { return OtherOperandName(op) == operand; });
      throw CLI::ValidationError(option, absl::StrCat("requires an op like ", *first));
    }
  };
  of_two("--y", sides.y, "y");
  of_two("--weights", sides.weights, "weights");
  const bool any = arguments.groups == AxesArguments().groups;
  std::int64_t groups = 0;
  if (!any && (!absl::SimpleAtoi(arguments.groups, &groups) || groups < 1)) {
    throw CLI::ValidationError("--groups",
                               absl::StrCat("got \"", arguments.groups, "\"; allowed: any, or a number from 1 on"));
  }
  constexpr char kArrays[] = "--axis, --segments, --lengths, --keys, --where or an op like median";
  require(arguments.options.keepdims, "--keepdims", arguments.axis, "--axis");
  require(!any, "--groups", keyed, "--keys");
  require(arguments.outside != AxesArguments().outside, "--outside", keyed && !any, "--keys and --groups N");
  require(!arguments.out_keys.empty(), "--out-keys", keyed && any, "--keys and --groups any");
  require(!arguments.out_keys.empty(), "--out-keys", !arguments.keep, "no --keep");
  require(arguments.options.empty != PartitionOptions().empty, "--empty", arguments.given(), kArrays);
  require(arguments.keep, "--keep", arguments.given(), kArrays);
  require(!arguments.kept.owner.empty(), "--owner", arguments.keep, "--keep");
  require(arguments.kept.ttl != absl::ZeroDuration(), "--ttl", arguments.keep, "--keep");
  require(!arguments.out.empty(), "--out", arguments.given(), kArrays);
  require(!arguments.write_to.empty(), "--write-to", arguments.given(), kArrays);
  if (arguments.keep && !arguments.out.empty()) throw CLI::ExcludesError("--keep", "--out");
  require(arguments.write_offset != 0, "--write-offset", !arguments.write_to.empty(), "--write-to");
  if (!arguments.given()) return;
  if (!arguments.write_to.empty()) {
    if (arguments.keep) throw CLI::ExcludesError("--write-to", "--keep");
    if (!arguments.out.empty()) throw CLI::ExcludesError("--write-to", "--out");
    if (!arguments.out_keys.empty()) throw CLI::ExcludesError("--write-to", "--out-keys");
  }
  if (question.via != "auto" && question.via != "inline" && question.via != Question::kRegion &&
      !question.in_session()) {
    throw CLI::ValidationError(
        "--via",
        absl::StrCat("got ", question.via, "; allowed: auto, inline, session, ring, region for arrays of results"));
  }
  if (arguments.out.empty() && arguments.write_to.empty()) return;
  const std::size_t inputs = question.sources.empty() ? question.arrays.size() : question.sources.size();
  if (inputs > 1) {
    throw CLI::ValidationError(arguments.out.empty() ? "--write-to" : "--out",
                               absl::StrCat("got ", inputs, " inputs; allowed: 1"));
  }
  if (arguments.out.empty()) return;
  if (question.ops.size() > 1 && !absl::StrContains(arguments.out, kOp)) {
    throw CLI::ValidationError("--out", absl::StrCat("got \"", arguments.out, "\" for ", question.ops.size(),
                                                     " ops; allowed: a name with {op} in it"));
  }
}

// Whether results would take the place of what is reduced, or of what lies beside it.
bool ReplacesInput(const Question& question, const AxesArguments& arguments) {
  std::vector<std::string> outs = {arguments.out_keys};
  for (const std::string& op : question.ops) outs.push_back(absl::StrReplaceAll(arguments.out, {{kOp, op}}));
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
  if (const ExitCode code = ReadSideFiles(own.sides, input, &sides, &own.options); code != kOk) return code;
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
  return arguments.out_keys.empty() ? kOk : WriteNpy(arguments.out_keys, keys.array);
}

Json ArrayJson(const AxesArguments& arguments, const ResultArray& result) {
  if (!result.error.ok()) return {};
  if (IsScalar(arguments, result)) return ToJson(result.array);
  Json json = {{"dtype", result.array.dtype}, {"shape", result.array.shape}};
  if (!result.id.empty()) {
    json["id"] = result.id;
  } else if (result.written_at.has_value()) {
    json["file"] = arguments.write_to;
    json["written_at"] = *result.written_at;
  } else if (const std::string file = FileOf(arguments, result); !file.empty()) {
    json["file"] = file;
  } else {
    json["values"] = ToJson(result.array);
  }
  return json;
}

namespace {

// An array, or where it is, under the title `name`.
std::string ArrayLines(const AxesArguments& arguments, const std::string& name, const ResultArray& result) {
  const bool quiet = arguments.quiet;
  if (IsScalar(arguments, result) && result.error.ok()) {
    return absl::StrCat(quiet ? "" : name, quiet ? "" : ": ", result.array.At(0).Text(), "\n");
  }
  if (!result.error.ok()) return quiet ? "-\n" : absl::StrCat(name, ": -\n");
  const std::string title = quiet ? "" : absl::StrCat(name, ": ", ShapeText(result.array), "\n");
  if (!result.id.empty()) return absl::StrCat(title, quiet ? "" : "kept as ", Printable(result.id), "\n");
  if (result.written_at.has_value()) {
    const std::string where = absl::StrCat("written to ", Printable(arguments.write_to), " from byte ");
    return absl::StrCat(title, quiet ? "" : where, *result.written_at, "\n");
  }
  const std::string file = FileOf(arguments, result);
  if (file.empty()) return absl::StrCat(title, ArrayText(result.array));
  return absl::StrCat(title, quiet ? "" : "written to ", Printable(file), "\n");
}

}  // namespace

std::string ArraysText(const AxesArguments& arguments, const std::vector<ResultArray>& results,
                       const ResultArray& keys) {
  if (AreScalars(arguments, results)) {
    std::vector<std::vector<std::string>> rows;
    for (const ResultArray& result : results) {
      rows.push_back({"", result.op, result.error.ok() ? result.array.At(0).Text() : "-"});
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
