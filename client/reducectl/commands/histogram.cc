// reducectl histogram.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/answers.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/commands/input_flags.h"
#include "client/reducectl/output/array_text.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/render.h"
#include "client/reducectl/output/svg.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/op_call.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

struct HistogramArguments {
  Question question{};
  int bins = 10;
  std::vector<double> edges{};  // empty: of `bins` from `range`
  std::vector<double> range{};  // empty: from the smallest element to the largest
  bool log = false;
  std::string svg{};  // the file; empty: none
};

struct Bins {
  std::vector<double> edges{};
  std::vector<std::int64_t> counts{};
  std::int64_t nans = 0;
  std::int64_t outside = 0;  // without the NaNs

  std::int64_t most() const { return *std::max_element(counts.begin(), counts.end()); }
};

std::string ParseNumbers(const std::string& text, std::vector<double>* numbers) {
  numbers->clear();
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    numbers->push_back(0);
    if (!absl::SimpleAtod(item, &numbers->back()) || !std::isfinite(numbers->back())) {
      return absl::StrCat("got \"", text, "\"; allowed: finite numbers with commas between them, such as 0,0.5,1");
    }
  }
  return "";
}

std::string NumberText(double number) { return Value{"f64", number}.Text(); }

// "[0.0, 0.5)"; the last bin has both of its edges.
std::string BinText(const Bins& bins, std::size_t bin) {
  return absl::StrCat("[", NumberText(bins.edges[bin]), ", ", NumberText(bins.edges[bin + 1]),
                      bin + 1 == bins.counts.size() ? "]" : ")");
}

// Asks about one array, wherever it is.
using ReduceCall = std::function<absl::StatusOr<Reply>(const std::vector<std::string>& ops)>;

// The doubles around the elements.
absl::StatusOr<std::pair<double, double>> RangeOf(const ReduceCall& reduce, bool log) {
  ASSIGN_OR_RETURN(const Reply reply, reduce({"count", "min", "max"}));
  const Value *const min = reply.Find("min"), *const max = reply.Find("max");
  if (min == nullptr || max == nullptr) return std::pair(log ? 1.0 : 0.0, log ? 10.0 : 1.0);  // as NumPy, of nothing
  const double low = min->AsDouble(), high = max->AsDouble();
  if (!std::isfinite(low) || !std::isfinite(high)) {
    return absl::InvalidArgumentError(absl::StrCat("--range: got none for elements from ", min->Text(), " to ",
                                                   max->Text(), "; allowed: finite numbers LOW,HIGH"));
  }
  if (log && low <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log: got elements from ", min->Text(), " on; allowed: positive ones, or a --range"));
  }
  if (low < high) return std::pair(low, high);
  return log ? std::pair(low / 2, high * 2) : std::pair(low - 0.5, high + 0.5);
}

absl::StatusOr<Bins> BinsOf(const ReduceCall& reduce, const HistogramArguments& arguments, Reply* reply) {
  std::string op = ops::Histogram(arguments.edges);
  if (arguments.edges.empty()) {
    std::pair<double, double> range;
    if (arguments.range.empty()) {
      ASSIGN_OR_RETURN(range, RangeOf(reduce, arguments.log));
    } else {
      range = {arguments.range.front(), arguments.range.back()};
    }
    op = arguments.log ? ops::LogHistogram(range.first, range.second, arguments.bins)
                       : ops::Histogram(range.first, range.second, arguments.bins);
  }
  const absl::StatusOr<v1::OpCall> call = ParseOpText(op);
  ASSIGN_OR_RETURN(const OpCall parsed, call.ok() ? ParseCall("histogram", *call) : call.status());
  ASSIGN_OR_RETURN(Reply answer, reduce({op, "count", "nan_count"}));
  const HostArray* const counts = answer.FindArray(op);
  const Value *const count = answer.Find("count"), *const nans = answer.Find("nan_count");
  if (counts == nullptr || count == nullptr || nans == nullptr) return absl::InternalError("an op has no answer");
  Bins bins{.edges = parsed.parameters->edges, .nans = nans->AsInt64().value_or(0)};
  for (const std::uint64_t each : counts->As<std::uint64_t>()) bins.counts.push_back(static_cast<std::int64_t>(each));
  bins.outside = count->AsInt64().value_or(0);  // NaNs are omitted
  for (const std::int64_t each : bins.counts) bins.outside -= each;
  *reply = std::move(answer);
  return bins;
}

std::string Line(const Answer& answer, const Bins& bins) {
  Json edges = Json::array();
  for (const double edge : bins.edges) edges.push_back(ToJson(Value{"f64", edge}));
  Answer whole = answer;
  whole.reply.results.clear();
  return JsonLine(
      whole,
      {{"edges", std::move(edges)}, {"counts", bins.counts}, {"outside", bins.outside}, {"nan_count", bins.nans}});
}

// A table with bars.
std::string Table(const Answer& answer, const Bins& bins) {
  constexpr double kWidth = 40;
  std::vector<std::vector<std::string>> rows;
  std::size_t widest = 0;
  for (std::size_t i = 0; i < bins.counts.size(); ++i) {
    widest = std::max(widest, absl::StrCat(bins.counts[i]).size());
  }
  for (std::size_t i = 0; i < bins.counts.size(); ++i) {
    const std::string count = absl::StrCat(bins.counts[i]);
    const double part = bins.most() == 0 ? 0 : static_cast<double>(bins.counts[i]) / static_cast<double>(bins.most());
    // What is not empty has a bar.
    const auto bar = static_cast<std::size_t>(std::ceil(part * kWidth));
    rows.push_back({"", BinText(bins, i), std::string(widest - count.size(), ' ') + count, std::string(bar, '#')});
  }
  std::string title = absl::StrCat(Printable(TitleOf(answer)), ": ", answer.reply.count, " elements");
  if (bins.outside > 0) absl::StrAppend(&title, ", ", bins.outside, " outside of the bins");
  if (bins.nans > 0) absl::StrAppend(&title, ", ", bins.nans, " NaN");
  return absl::StrCat(title, "\n", FormatTable(rows));
}

std::string Svg(const Answer& answer, const Bins& bins) {
  constexpr double kLeft = 60, kTop = 40, kWidth = 640, kHeight = 320;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\">\n"
      "<style>text{font:12px sans-serif}.end{text-anchor:end}.bar{fill:#76b900}.axis{stroke:#888}</style>\n",
      kLeft + kWidth + 40, kTop + kHeight + 40);
  svg += SvgText(kLeft, 20, "title", TitleOf(answer));
  const double width = kWidth / static_cast<double>(bins.counts.size());
  for (std::size_t i = 0; i < bins.counts.size(); ++i) {
    const double part = bins.most() == 0 ? 0 : static_cast<double>(bins.counts[i]) / static_cast<double>(bins.most());
    svg += absl::StrFormat(
        "<rect class=\"bar\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>%s: %d</title></rect>\n",
        kLeft + static_cast<double>(i) * width, kTop + (1 - part) * kHeight, std::max(width - 1, width * 0.9),
        part * kHeight, SvgEscape(BinText(bins, i)), bins.counts[i]);
  }
  svg += SvgHorizontalLine(kTop + kHeight, kLeft, kLeft + kWidth, "axis");
  svg += SvgText(kLeft, kTop + kHeight + 20, "start", NumberText(bins.edges.front()));
  svg += SvgText(kLeft + kWidth, kTop + kHeight + 20, "end", NumberText(bins.edges.back()));
  svg += SvgText(kLeft - 5, kTop + 10, "end", absl::StrCat(bins.most()));
  return svg + "</svg>\n";
}

class Drawer {
 public:
  Drawer(Place place, const CommonOptions& common, const HistogramArguments& arguments)
      : place_(std::move(place)), common_(common), arguments_(arguments) {}

  ExitCode Run() {
    for (const std::string& source : arguments_.question.sources) KeepFirst(DrawSource(source), &failure_);
    if (!arguments_.question.sources.empty()) return failure_;
    for (const std::string& id : arguments_.question.arrays) {
      const auto reduce = [&](const std::vector<std::string>& ops) {
        return place_.server->Reduce(RemoteArray::Resident(id), ops, Options());
      };
      KeepFirst(Draw({.source = id}, Input(), reduce), &failure_);
    }
    return failure_;
  }

 private:
  ReduceOptions Options() const {
    ReduceOptions options = arguments_.question.options;
    options.nan_policy = "omit";
    return options;
  }

  ExitCode DrawSource(const std::string& source) {
    InputOptions input = arguments_.question.input;
    input.timeout = common_.timeout.value_or(absl::InfiniteDuration());
    input.one_piece = input.in_memory = true;
    input.arrays = arguments_.question.arrays;
    input.missing = Missing::kDropped;
    const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, input);
    if (!reader.ok()) return ReportError(source, reader.status().message(), kData);
    Notes notes(source, common_.json);
    ExitCode failure = kOk;
    for (;;) {
      const absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
      notes.Add(**reader);
      if (!piece.ok()) return ReportError(source, piece.status().message(), kData);
      if (!piece->has_value()) return failure;
      const Input& read = (*piece)->input;
      if (!read.status.ok()) {
        KeepFirst(ReportUnread(source, read.status), &failure);
        continue;
      }
      notes.InLine(read.notes);
      const auto reduce = [&](const std::vector<std::string>& ops) {
        return place_.Reduce(read.View(), ops, Options());
      };
      KeepFirst(Draw(AnswerOf(source, read, **reader), read, reduce), &failure);
    }
  }

  ExitCode Draw(Answer answer, const Input& input, const ReduceCall& reduce) {
    absl::StatusOr<Bins> bins = BinsOf(reduce, arguments_, &answer.reply);
    if (!bins.ok()) return ReportFailure(answer, input, bins.status());
    bins->nans += static_cast<std::int64_t>(answer.missing.size());
    answer.reply.count += static_cast<std::int64_t>(answer.missing.size());
    std::cout << (common_.json ? Line(answer, *bins) : Table(answer, *bins)) << std::flush;
    if (arguments_.svg.empty()) return kOk;
    if (std::exchange(drawn_, true)) {
      return ReportError(answer.source, "got several arrays; allowed: one with --svg", kData);
    }
    return WriteFile(arguments_.svg, Svg(answer, *bins));
  }

  const Place place_;
  const CommonOptions& common_;
  const HistogramArguments& arguments_;
  ExitCode failure_ = kOk;
  bool drawn_ = false;  // the file of --svg
};

ExitCode RunHistogram(const CommonOptions& common, const HistogramArguments& arguments) {
  std::optional<Place> place = PlaceOf(common, arguments.question);
  if (!place.has_value()) return kUsage;
  return Drawer(*std::move(place), common, arguments).Run();
}

void CheckHistogram(const HistogramArguments& arguments) {
  CheckInput(arguments.question.input);
  if (arguments.question.sources.empty() && arguments.question.arrays.empty()) {
    throw CLI::RequiredError("FILE or --array");
  }
  if (!arguments.range.empty() && (arguments.range.size() != 2 || !(arguments.range[0] < arguments.range[1]))) {
    throw CLI::ValidationError("--range", "allowed: two numbers LOW,HIGH, LOW below HIGH");
  }
  if (arguments.log && !arguments.range.empty() && arguments.range[0] <= 0) {
    throw CLI::ValidationError(
        "--range", absl::StrCat("got ", NumberText(arguments.range[0]), " with --log; allowed: positive numbers"));
  }
}

}  // namespace

void AddHistogram(CommandLine& line) {
  const auto arguments = std::make_shared<HistogramArguments>();
  CLI::App* command = line.Add("histogram",
                               "count the elements of arrays in bins, and draw them; a bin has its lower edge, the "
                               "last one both; NaNs are in none",
                               [arguments](const CommonOptions& common) { return RunHistogram(common, *arguments); });
  CLI::Option* bins = command->add_option("--bins", arguments->bins, "how many bins of the same width")
                          ->check(Positive(kMaxBins))
                          ->type_name("N")
                          ->capture_default_str();
  CLI::Option* range = AddParsed(command, "--range", ParseNumbers, &arguments->range,
                                 "from where to where they are; default: from the smallest element to the largest")
                           ->type_name("LOW,HIGH");
  CLI::Option* log = command->add_flag("--log", arguments->log, "bins of the same ratio, for positive elements");
  AddParsed(command, "--edges", ParseNumbers, &arguments->edges, "the edges of the bins, ascending")
      ->type_name("X,...")
      ->excludes(bins)
      ->excludes(range)
      ->excludes(log);
  command->add_option("--svg", arguments->svg, "also draw the one array to this file")->type_name("FILE");
  AddChoice(line, command, "--engine", &arguments->question.options.engine, "the engine", EngineNames())
      ->capture_default_str();
  AddInput(line, command, &arguments->question.sources, &arguments->question.input);
  command
      ->add_option("--array", arguments->question.arrays,
                   "resident arrays instead of files; with files: the names of arrays in .npz and "
                   ".safetensors files")
      ->allow_extra_args(false)
      ->type_name("ID|NAME");
  command->final_callback([arguments] { CheckHistogram(*arguments); });
}

}  // namespace reduced::client
