// reducectl compare.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/commands/pairs.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"
#include "reduced/ops.h"

namespace reduced::client {
namespace {

struct CompareArguments {
  Question question{};
  double rtol = 0, atol = 0;
  bool equal_nan = false;
  bool quiet = false;
};

// The figures of ops::kComparisonFigures that are about one pair, and the index of that.
struct Greatest {
  std::size_t figure, index;
};
constexpr Greatest kGreatest[] = {{4, 5}, {6, 7}, {8, 9}};
constexpr std::size_t kMismatchesFigure = 0, kFirst = 1, kFirstX = 2, kFirstY = 3, kDifferentBitsFigure = 10,
                      kRmse = 11;

std::string NameOf(const Input& input) { return input.column.empty() ? input.array : input.column; }

std::string ShapeText(const Input& input) {
  return absl::StrCat(input.layout.dtype, " (", absl::StrJoin(input.layout.shape, ", "), ")");
}

// Element `index` in C order, of which a missing one is NaN.
Value ElementOf(const Input& input, std::int64_t index) {
  const auto position = static_cast<std::uint64_t>(index);
  if (std::binary_search(input.missing.begin(), input.missing.end(), position)) return {"f64", std::nan("")};
  const ArrayView view = input.View();
  const auto width = static_cast<std::size_t>(*DTypeBytes(view.dtype));
  const char* const at = static_cast<const char*>(view.data) + position * width;
  return HostArray{.dtype = view.dtype, .shape = {1}, .data = std::string(at, width)}.At(0);
}

// An index of C order as one of each dimension.
std::vector<std::int64_t> IndexOf(std::int64_t flat, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; flat /= shape[i]) index[i] = flat % shape[i];
  return index;
}

class Comparer {
 public:
  Comparer(Place place, const CommonOptions& common, const CompareArguments& arguments)
      : place_(std::move(place)), common_(common), arguments_(arguments) {}

  ExitCode Run() {
    std::vector<Input> arrays[2];
    ExitCode failure = kOk;
    for (std::size_t i = 0; i < 2; ++i) {
      InputOptions input = arguments_.question.input;
      input.timeout = common_.timeout.value_or(absl::InfiniteDuration());
      input.arrays = arguments_.question.arrays;
      input.missing = Missing::kZero;
      input.all_columns = true;
      input.raw_dtypes = true;
      input.texts = true;  // nothing of a file is left out of what is said to be equal
      arrays[i] = ReadArrays(Source(i), input, common_.json, &failure, &notes_);
      for (const Input& column : arrays[i]) {
        if (!column.words.has_value()) continue;
        failure = ReportError(Source(i),
                              absl::StrCat("column \"", Printable(column.column),
                                           "\": got texts; allowed: numbers; --column names the columns to compare"),
                              kData);
      }
    }
    if (failure != kOk) return failure;
    auto& [xs, ys] = arrays;
    // A source's only array needs no name, unless an archive gives it one.
    const bool unnamed = xs.size() == 1 && ys.size() == 1 && (xs[0].array.empty() || ys[0].array.empty());
    std::vector<bool> used(ys.size());
    for (const Input& x : xs) {
      std::size_t match = 0;
      while (match < ys.size() && (used[match] || (!unnamed && NameOf(x) != NameOf(ys[match])))) ++match;
      if (match == ys.size()) {
        Say(NameOf(x), absl::StrCat("only ", Source(0), " has it"));
        continue;
      }
      used[match] = true;
      KeepFirst(Compare(unnamed ? "" : NameOf(x), x, ys[match]), &failure);
    }
    for (std::size_t i = 0; i < ys.size(); ++i) {
      if (!used[i]) Say(NameOf(ys[i]), absl::StrCat("only ", Source(1), " has it"));
    }
    if (failure != kOk) return failure;
    if (!std::cout) return kOutput;
    return different_ ? kDifferent : kOk;
  }

 private:
  const std::string& Source(std::size_t i) const { return arguments_.question.sources[i]; }
  std::string Title(const std::string& name) const {
    return absl::StrCat(Printable(Source(0)), " and ", Printable(Source(1)), name.empty() ? "" : ": ", Printable(name));
  }

  // A difference that is no element's.
  void Say(const std::string& name, const std::string& what) {
    different_ = true;
    if (common_.json) {
      Json json = {{"sources", arguments_.question.sources}};
      if (!name.empty()) json["array"] = name;
      json.update({{"equal", false}, {"difference", what}});
      std::cout << Dump(json) << "\n";
    } else if (!arguments_.quiet) {
      std::cout << Title(name) << ": " << Printable(what) << "\n";
    }
  }

  ExitCode Compare(const std::string& name, const Input& x, const Input& y) {
    if (x.raw_dtype != y.raw_dtype) {  // what is compared are the bytes, as integers
      const auto dtype = [](const Input& input) {
        return input.raw_dtype.empty() ? input.layout.dtype : input.raw_dtype;
      };
      Say(name, absl::StrCat("the dtypes differ: ", dtype(x), " and ", dtype(y)));
      return kOk;
    }
    if (x.layout.shape != y.layout.shape) {
      Say(name, absl::StrCat("the shapes differ: ", ShapeText(x), " and ", ShapeText(y)));
      return kOk;
    }
    const absl::StatusOr<std::vector<HostArray>> doubles = AlikeDoubles({&x, &y});
    if (!doubles.ok()) return ReportError(Title(name), doubles.status().message(), kData);
    const absl::StatusOr<ArrayReply> reply =
        AskWhole(place_, ViewOf(x, (*doubles)[0]), ViewOf(y, (*doubles)[1]),
                 ops::Compare(arguments_.rtol, arguments_.atol, arguments_.equal_nan), arguments_.question.options);
    if (!reply.ok()) return ReportCallError(Title(name), reply.status());
    const ResultArray& result = reply->results[0];
    if (!result.error.ok()) return ReportCallError(Title(name), result.error);
    const std::span<const double> figures = result.array.As<double>();
    if (figures.size() != std::size(ops::kComparisonFigures)) {
      return ReportError(Title(name), absl::StrCat("got ", figures.size(), " figures; allowed: 12"), kServer);
    }
    const bool equal = figures[kMismatchesFigure] == 0;
    different_ = different_ || !equal;
    if (common_.json) {
      std::cout << Line(name, x, y, figures, *reply);
    } else if (!arguments_.quiet) {
      std::cout << Text(name, x, y, figures);
    }
    std::cout << std::flush;
    return kOk;
  }

  std::string Line(const std::string& name, const Input& x, const Input& y, std::span<const double> figures,
                   const ArrayReply& reply) const {
    Json results = Json::object(), json = {{"sources", arguments_.question.sources}};
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const bool whole = i == kMismatchesFigure || i == kFirst || i == kDifferentBitsFigure ||
                         std::any_of(std::begin(kGreatest), std::end(kGreatest),
                                     [i](const Greatest& each) { return each.index == i; });
      Json& to = results[std::string(ops::kComparisonFigures[i])];
      if (std::isnan(figures[i])) continue;  // null
      to = whole ? Json(static_cast<std::int64_t>(figures[i])) : ToJson(Value{"f64", figures[i]});
    }
    if (!std::isnan(figures[kFirst])) {
      const auto first = static_cast<std::int64_t>(figures[kFirst]);
      results["first_x"] = ToJson(ElementOf(x, first));
      results["first_y"] = ToJson(ElementOf(y, first));
      results["first_index"] = IndexOf(first, x.layout.shape);
    }
    if (!name.empty()) json["array"] = name;
    if (!x.raw_dtype.empty()) json["bytes_of"] = x.raw_dtype;
    json.update({{"dtypes", {x.layout.dtype, y.layout.dtype}},
                 {"shape", x.layout.shape},
                 {"count", reply.count},
                 {"equal", figures[kMismatchesFigure] == 0},
                 {"results", std::move(results)},
                 {"engine", reply.execution.engine},
                 {"device", reply.execution.device}});
    if (!notes_.empty()) json["notes"] = notes_;
    return Dump(json) + "\n";
  }

  std::string Text(const std::string& name, const Input& x, const Input& y, std::span<const double> figures) const {
    const auto count = *ArrayBytes("i8", x.layout.shape);
    const auto at = [&](double flat) {
      return absl::StrCat("[", absl::StrJoin(IndexOf(static_cast<std::int64_t>(flat), x.layout.shape), ", "), "]");
    };
    const auto number = [](double value) { return Value{"f64", value}.Text(); };
    const std::string dtypes = !x.raw_dtype.empty() ? absl::StrCat(", of the bytes of ", x.raw_dtype)
                               : x.layout.dtype == y.layout.dtype
                                   ? ""
                                   : absl::StrCat(", of ", x.layout.dtype, " and ", y.layout.dtype);
    const auto mismatches = static_cast<std::int64_t>(figures[kMismatchesFigure]);
    if (mismatches == 0 && figures[kDifferentBitsFigure] == 0) {
      return absl::StrCat(Title(name), ": equal, ", count, count == 1 ? " element" : " elements", dtypes, "\n");
    }
    std::string text =
        absl::StrCat(Title(name), ": ", mismatches == 0 ? "equal within the tolerances, " : "", mismatches, " of ",
                     count, count == 1 ? " element differs" : " elements differ", dtypes, "\n");
    std::vector<std::vector<std::string>> rows;
    if (mismatches > 0) {
      const auto first = static_cast<std::int64_t>(figures[kFirst]);
      rows.push_back(
          {"", "first",
           absl::StrCat(at(figures[kFirst]), ": ", ElementOf(x, first).Text(), " and ", ElementOf(y, first).Text())});
    }
    for (const auto& [figure, index] : kGreatest) {
      if (std::isnan(figures[figure])) continue;
      rows.push_back({"", std::string(ops::kComparisonFigures[figure]),
                      absl::StrCat(number(figures[figure]), figures[figure] == 0 ? "" : " at ",
                                   figures[figure] == 0 ? "" : at(figures[index]))});
    }
    rows.push_back({"", "different_bits", absl::StrCat(static_cast<std::int64_t>(figures[kDifferentBitsFigure]))});
    if (!std::isnan(figures[kRmse])) rows.push_back({"", "rmse", number(figures[kRmse])});
    return text + FormatTable(std::move(rows));
  }

  const Place place_;
  const CommonOptions& common_;
  const CompareArguments& arguments_;
  std::vector<std::string> notes_;
  bool different_ = false;
};

std::string ParseTolerance(const std::string& text, double* to) {
  if (absl::SimpleAtod(text, to) && *to >= 0) return "";
  return absl::StrCat("got \"", text, "\"; allowed: numbers from 0");
}

ExitCode RunCompare(const CommonOptions& common, const CompareArguments& arguments) {
  std::optional<Place> place = PlaceOf(common, arguments.question);
  if (!place.has_value()) return kUsage;
  return Comparer(*std::move(place), common, arguments).Run();
}

}  // namespace

void AddCompare(CommandLine& line) {
  const auto arguments = std::make_shared<CompareArguments>();
  Question* const question = &arguments->question;
  CLI::App* command = line.Add(
      "compare",
      "compare the arrays of two files, those of .npz and .safetensors files and columns of texts by name: the "
      "first that differ, and the greatest differences; exits with 1 if they differ",
      [arguments](const CommonOptions& common) { return RunCompare(common, *arguments); });
  const auto tolerance = [command](const char* option, double* to, const char* help) {
    AddParsed(command, option, ParseTolerance, to, help)->type_name("X")->default_str("0");
  };
  tolerance("--rtol", &arguments->rtol,
            "elements a and b match if |a - b| <= atol + rtol |b|, as in numpy.isclose; b is of the second file");
  tolerance("--atol", &arguments->atol, "see --rtol");
  command->add_flag("--equal-nan", arguments->equal_nan,
                    "NaN matches NaN, and what is missing in a text matches what is");
  command->add_flag("-q,--quiet", arguments->quiet, "print nothing: the exit code says whether they differ");
  AddChoice(line, command, "--engine", &question->options.engine, "the engine", EngineNames())->capture_default_str();
  AddInput(line, command, &question->sources, &question->input).front()->required()->expected(2);
  AddArrayNames(command, &question->arrays);
  command->final_callback([question] { CheckInput(question->input); });
}

}  // namespace reduced::client
