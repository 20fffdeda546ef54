// reducectl fingerprint.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/commands/pairs.h"
#include "client/reducectl/output/array_text.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr char kOp[] = "fingerprint";

struct FingerprintArguments {
  Question question{};
  bool quiet = false;
};

// An array of a source.
struct Printed {
  std::string name{}, dtype{};
  std::vector<std::int64_t> shape{};
  std::string fingerprint{};
};

absl::StatusOr<std::string> FingerprintOf(const ArrayView& array, const Place& place, const ReduceOptions& options) {
  ASSIGN_OR_RETURN(const Reply reply, place.Reduce(array, {kOp}, options));
  const HostArray* const words = reply.FindArray(kOp);
  if (words == nullptr || words->As<std::uint64_t>().size() != 2) {
    return absl::InternalError("got no fingerprint; allowed: two numbers of u64");
  }
  return ToJson(*words, /*fingerprints=*/true).get<std::string>();
}

// Of all arrays of a source, in whatever order and files they are: that of a text which has a line of JSON for each,
// [name, dtype, shape, fingerprint], in the order of the names' bytes. An array that has no name speaks for itself.
absl::StatusOr<std::string> FingerprintOfAll(std::vector<Printed> arrays, const Place& place,
                                             const ReduceOptions& options) {
  if (arrays.size() == 1 && arrays[0].name.empty()) return arrays[0].fingerprint;
  std::sort(arrays.begin(), arrays.end(), [](const Printed& a, const Printed& b) { return a.name < b.name; });
  std::string text;
  for (const Printed& each : arrays) {
    absl::StrAppend(&text, Json::array({each.name, each.dtype, each.shape, each.fingerprint}).dump(), "\n");
  }
  const ArrayView view{text.data(), "u8", {static_cast<std::int64_t>(text.size())}, {}};
  return FingerprintOf(view, place, options);
}

ExitCode PrintSource(const std::string& source, const FingerprintArguments& arguments, const Place& place,
                     const CommonOptions& common) {
  InputOptions input = arguments.question.input;
  input.timeout = common.timeout.value_or(absl::InfiniteDuration());
  input.arrays = arguments.question.arrays;
  input.raw_dtypes = true;
  ExitCode code = kOk;
  std::vector<std::string> notes;
  std::vector<Printed> arrays;
  for (const Input& each : ReadArrays(source, input, common.json, &code, &notes)) {
    const std::string& name = each.column.empty() ? each.array : each.column;
    const auto found = FingerprintOf(each.View(), place, arguments.question.options);
    if (!found.ok()) return ReportCallError(name.empty() ? source : absl::StrCat(source, ": ", name), found.status());
    arrays.push_back({name, each.raw_dtype.empty() ? each.layout.dtype : absl::AsciiStrToLower(each.raw_dtype),
                      each.layout.shape, *found});
  }
  std::optional<std::string> whole;
  if (code == kOk) {  // else some are not among them
    absl::StatusOr<std::string> found = FingerprintOfAll(arrays, place, arguments.question.options);
    if (!found.ok()) return ReportCallError(source, found.status());
    whole = *std::move(found);
  }
  if (common.json) {
    for (const Printed& each : arrays) {
      Json json = {{"source", source}};
      if (!each.name.empty()) json["array"] = each.name;
      json.update({{"dtype", each.dtype}, {"shape", each.shape}, {"fingerprint", each.fingerprint}});
      std::cout << Dump(json) << "\n";
    }
    Json json = {
        {"source", source}, {"arrays", arrays.size()}, {"fingerprint", whole.has_value() ? Json(*whole) : Json()}};
    if (!notes.empty()) json["notes"] = notes;
    std::cout << Dump(json) << "\n";
  } else {
    std::vector<std::vector<std::string>> rows;
    if (!arguments.quiet && (arrays.size() != 1 || !arrays[0].name.empty())) {
      for (const Printed& each : arrays) {
        rows.push_back(
            {each.fingerprint, each.name, each.dtype, absl::StrCat("(", absl::StrJoin(each.shape, ", "), ")")});
      }
    }
    std::cout << FormatTable(std::move(rows));
    if (whole.has_value()) std::cout << *whole << "  " << Printable(source) << "\n";
  }
  std::cout << std::flush;
  return code == kOk && !std::cout ? kOutput : code;
}

ExitCode RunFingerprint(const CommonOptions& common, const FingerprintArguments& arguments) {
  const std::optional<Place> place = PlaceOf(common, arguments.question);
  if (!place.has_value()) return kUsage;
  ExitCode failure = kOk;
  for (const std::string& source : arguments.question.sources) {
    KeepFirst(PrintSource(source, arguments, *place, common), &failure);
  }
  return failure;
}

}  // namespace

void AddFingerprint(CommandLine& line) {
  const auto arguments = std::make_shared<FingerprintArguments>();
  Question* const question = &arguments->question;
  CLI::App* command = line.Add("fingerprint",
                               "print a fingerprint of 128 bits of each array of files, such as the tensors of a "
                               "model, and one of all arrays of "
                               "each file together. It does not depend on where the elements are; it changes with any "
                               "bit of an element and with "
                               "their order. It finds accidents, not attacks",
                               [arguments](const CommonOptions& common) { return RunFingerprint(common, *arguments); });
  command->add_flag("-q,--quiet", arguments->quiet, "print only the fingerprint of each file");
  AddChoice(line, command, "--engine", &question->options.engine, "the engine", EngineNames())->capture_default_str();
  AddInput(line, command, &question->sources, &question->input).front()->required();
  AddArrayNames(command, &question->arrays);
  command->final_callback([question] { CheckInput(question->input); });
}

}  // namespace reduced::client
