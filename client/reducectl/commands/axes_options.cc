// The options of reducectl reduce that are about arrays of results, and which of them go together.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/group_table.h"
#include "client/reducectl/commands/reduce_axes.h"

namespace reduced::client {
namespace {

std::string ParseSort(const std::string& text, bool* sort) {
  *sort = text == "true";
  return *sort || text == "false" ? "" : absl::StrCat("got \"", text, "\"; allowed: true, false");
}

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
  command
      ->add_option("--keys", sides->keys,
                   "group by these keys, one for each item of dimension 0: each group is an output. NAME,...: columns "
                   "of the input, of text, numbers or dates; FILE:NAME,...: of another text; else integers in a file "
                   "of one array or a resident array")
      ->type_name("NAME,...|FILE[:NAME,...]|@ID");
  line.choices["--sort"] = {"true", "false"};
  AddParsed(
      command, "--sort", ParseSort, &arguments->group_by.sort,
      "with --keys of text: groups ascend by key, numbers as numbers; false: they are in the order of their first "
      "rows: true, false")
      ->type_name("NAME")
      ->default_str("true");
  AddChoice(line, command, "--missing-keys", &arguments->group_by.missing,
            "with --keys of text: rows in which a key is missing are dropped, or a missing key is a group",
            MissingKeyNames())
      ->capture_default_str();
  line.choices["--bucket"] = BucketUnits();
  AddParsed(command, "--bucket", ParseBucket, &arguments->group_by.bucket,
            absl::StrCat("with --keys of dates in ISO 8601: group by ", absl::StrJoin(BucketUnits(), ", "),
                         ", or some hours, minutes or seconds that divide a day, such as 6h, 15m, 30s; weeks begin on "
                         "Monday; times with an offset are UTC"))
      ->type_name("UNIT");
  command
      ->add_option("--groups", arguments->groups,
                   "with --keys: the outputs are those of keys 0 to N - 1; any: of each distinct key, ascending")
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
  command
      ->add_option("--where", sides->where,
                   "leave out elements where this array is false: bool, of the shape of the input; or u8, whose bits "
                   "are the elements in order, the least significant one first, as in Arrow's validity bitmaps; or a "
                   "column of 0 and 1 or true and false. 'NAME OP VALUE': where a column of the input compares so with "
                   "a number or text; OP: <, <=, >, >=, ==, !=. A missing field never does")
      ->type_name("NAME|FILE[:NAME]|@ID|COMPARISON");
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
                   "'r-{op}.npy'; with --keys also as one table, to a .csv or .json file; default: print them, "
                   "abbreviated if they are long")
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
  const bool table = IsTableName(arguments.out);
  require(table, "--out to a .csv or .json file", keyed, "--keys");
  const GroupByOptions& by = arguments.group_by;
  for (const auto& [given, option] : {std::pair{!by.sort, "--sort false"},
                                      {by.missing != GroupByOptions().missing, "--missing-keys group"},
                                      {by.bucket.has_value(), "--bucket"}}) {
    require(given, option, keyed, "--keys");
    require(given, option, !arguments.plain_keys(), "no --groups, --keep, --write-to or --state");
  }
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
  const bool streams = !arguments.sides.y.empty() || !arguments.sides.weights.empty();
  if (question.via != "auto" && question.via != "inline" && question.via != Question::kRegion &&
      !question.in_session() && !(streams && question.via == "stream")) {
    throw CLI::ValidationError("--via", absl::StrCat("got ", question.via,
                                                     "; allowed: auto, inline, session, ring, region for arrays of "
                                                     "results, and stream with --y or --weights"));
  }
  if (arguments.out.empty() && arguments.write_to.empty()) return;
  const std::size_t inputs = question.sources.empty() ? question.arrays.size() : question.sources.size();
  if (inputs > 1) {
    throw CLI::ValidationError(arguments.out.empty() ? "--write-to" : "--out",
                               absl::StrCat("got ", inputs, " inputs; allowed: 1"));
  }
  if (arguments.out.empty()) return;
  if (question.ops.size() > 1 && !table && !absl::StrContains(arguments.out, kOpPlaceholder)) {
    throw CLI::ValidationError("--out", absl::StrCat("got \"", arguments.out, "\" for ", question.ops.size(),
                                                     " ops; allowed: a name with {op} in it"));
  }
}

}  // namespace reduced::client
