// The tables of a ladder, and its CSV.
#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/ladder/run.h"
#include "client/reducectl/output/printable.h"

namespace reduced::client {
namespace {

constexpr int kWarp = 32;  // threads

std::string Times(double factor) { return FormatScaled(factor) + "x"; }

// "-" if the value is absent.
template <class Format>
std::string OrDash(const std::optional<double>& value, Format format) {
  return value.has_value() ? format(*value) : "-";
}

std::string SameBits(const LadderLine& line) {
  if (line.step->same_bits) return line.promised_bits ? "always" : "this time";
  return line.promised_bits ? "BROKEN" : "no";
}

struct Column {
  absl::string_view title;
  std::string (*cell)(const LadderLine&);
  bool rare = false;  // shown if a line has it
};

constexpr Column kTime = {"TIME", [](const LadderLine& line) { return FormatMicros(line.us.median); }};
constexpr Column kSpread = {"SPREAD", [](const LadderLine& line) { return "+-" + FormatPercent(line.us.Spread()); }};
constexpr Column kBandwidth = {"GB/s", [](const LadderLine& line) { return FormatScaled(line.rate); }};
constexpr Column kOperations = {"GFLOP/s", [](const LadderLine& line) { return FormatScaled(line.rate); }};
constexpr Column kRoofline = {"ROOFLINE", [](const LadderLine& line) { return OrDash(line.roofline, FormatPercent); }};
constexpr Column kPeak = {"PEAK", [](const LadderLine& line) { return OrDash(line.roofline, FormatPercent); }};
constexpr Column kScratchCopy = {
    "SCRATCH COPY", [](const LadderLine& line) { return OrDash(line.step->scratch_copy_us, FormatMicros); }};
constexpr Column kSameBits = {"SAME BITS", SameBits};
constexpr Column kResult = {
    "RESULT", [](const LadderLine& line) { return line.step->correct ? "ok" : "WRONG: " + line.step->value.Text(); }};

constexpr Column kLadder[] = {
    {"PIPELINE", [](const LadderLine& line) { return line.label; }},
    kTime,
    kSpread,
    {"STEP", [](const LadderLine& line) { return OrDash(line.step_up, Times); }},
    {"TOTAL", [](const LadderLine& line) { return Times(line.total_up); }},
    {"READS", [](const LadderLine& line) { return FormatBytes(ReadBytes(line)); }},
    kBandwidth,
    kRoofline,
    {"ACTIVE", [](const LadderLine& line) { return OrDash(line.step->active_threads, FormatPercent); }, true},
    kScratchCopy,
    kSameBits,
    kResult,
};

constexpr Column kProductResult = {
    "RESULT", [](const LadderLine& line) -> std::string { return line.step->correct ? "ok" : "WRONG"; }};

// Of matrix products.
constexpr Column kProducts[] = {
    {"PIPELINE", [](const LadderLine& line) { return line.label; }},
    kTime,
    kSpread,
    {"STEP", [](const LadderLine& line) { return OrDash(line.step_up, Times); }},
    {"TOTAL", [](const LadderLine& line) { return Times(line.total_up); }},
    kOperations,
    kPeak,
    {"CONFLICTS",
     [](const LadderLine& line) {
       const std::optional<int>& ways = line.step->bank_conflicts;
       return !ways.has_value() ? "-" : *ways == 1 ? "none" : absl::StrCat(*ways, "-way");
     }},
    kSameBits,
    kProductResult,
};

// Of rows with an occupancy.
constexpr Column kBlocks = {
    "BLOCKS/SM", [](const LadderLine& line) { return absl::StrCat(line.step->occupancy->blocks_per_multiprocessor); }};
constexpr Column kWarps = {"WARPS/SM", [](const LadderLine& line) {
                             const Occupancy& fit = *line.step->occupancy;
                             return absl::StrCat(fit.blocks_per_multiprocessor * fit.block_size / kWarp);
                           }};
constexpr Column kOccupancy = {"OCCUPANCY",
                               [](const LadderLine& line) { return OrDash(line.occupancy, FormatPercent); }};
constexpr Column kRegisters = {"REGISTERS",
                               [](const LadderLine& line) { return absl::StrCat(line.step->occupancy->registers); }};

constexpr Column kSweep[] = {
    {"BLOCK", [](const LadderLine& line) { return absl::StrCat(line.step->occupancy->block_size); }},
    kTime,
    kSpread,
    kBandwidth,
    kRoofline,
    kBlocks,
    kWarps,
    kOccupancy,
    kRegisters,
    {"SHARED", [](const LadderLine& line) { return FormatBytes(line.step->occupancy->shared_bytes); }},
    {"SHARED/SM",
     [](const LadderLine& line) {
       const Occupancy& fit = *line.step->occupancy;
       return FormatBytes(std::int64_t{fit.blocks_per_multiprocessor} * fit.shared_bytes);
     }},
    kSameBits,
    kResult,
};

// Of a product's pipeline with several blocks.
constexpr Column kProductSweep[] = {
    {"BLOCK",
     [](const LadderLine& line) {
       const std::optional<BlockShape>& block = line.step->block;
       return block.has_value() ? absl::StrCat(block->x, "x", block->y) : "-";
     }},
    kTime,
    kSpread,
    kOperations,
    kPeak,
    kBlocks,
    kWarps,
    kOccupancy,
    kRegisters,
    kSameBits,
    kProductResult,
};

template <class Columns>
std::string Table(const Columns& columns, const std::vector<LadderLine>& lines) {
  std::vector<std::vector<std::string>> rows(lines.size() + 1, {""});
  for (const Column& column : columns) {
    const auto has = [&column](const LadderLine& line) { return column.cell(line) != "-"; };
    if (column.rare && std::none_of(lines.begin(), lines.end(), has)) continue;
    rows.front().emplace_back(column.title);
    for (std::size_t i = 0; i < lines.size(); ++i) rows[i + 1].push_back(column.cell(lines[i]));
  }
  return FormatTable(rows, 2);
}

bool IsSweep(const std::vector<LadderLine>& lines) {
  for (const LadderLine& line : lines) {
    if (line.step->pipeline != lines.front().step->pipeline || !line.step->occupancy.has_value()) return false;
  }
  return lines.size() > 1;
}

template <class Number>
Json OrNull(const std::optional<Number>& number) {
  return number.has_value() ? Json(*number) : Json();
}

Json OrNull(const LadderLine& line, int Occupancy::*field) {
  return line.step->occupancy.has_value() ? Json(*line.step->occupancy.*field) : Json();
}

bool Product(const LadderLine& line) { return line.run->options.matmul.has_value(); }

Json OrNull(const LadderLine& line, std::int64_t MatmulOptions::*side) {
  return Product(line) ? Json((*line.run->options.matmul).*side) : Json();
}

constexpr struct {
  absl::string_view name;
  Json (*value)(const LadderLine&);  // null: an empty field
} kCsv[] = {
    {"op", [](const LadderLine& line) -> Json { return Product(line) ? "matmul" : line.run->options.op; }},
    {"dtype", [](const LadderLine& line) -> Json { return line.run->options.dtype; }},
    {"count", [](const LadderLine& line) { return Product(line) ? Json() : Json(line.run->options.count); }},
    {"bytes", [](const LadderLine& line) -> Json { return line.run->start.bytes; }},
    {"fill", [](const LadderLine& line) { return OrNull(line.run->options.fill); }},
    {"seed",
     [](const LadderLine& line) { return line.run->options.fill.has_value() ? Json() : Json(line.run->options.seed); }},
    {"pipeline", [](const LadderLine& line) -> Json { return line.step->pipeline; }},
    {"engine", [](const LadderLine& line) -> Json { return line.step->engine; }},
    {"device", [](const LadderLine& line) -> Json { return line.step->device; }},
    {"repeats", [](const LadderLine& line) -> Json { return line.step->kernel_us.size(); }},
    {"min_us", [](const LadderLine& line) -> Json { return line.us.min; }},
    {"lower_quartile_us", [](const LadderLine& line) -> Json { return line.us.lower_quartile; }},
    {"median_us", [](const LadderLine& line) -> Json { return line.us.median; }},
    {"upper_quartile_us", [](const LadderLine& line) -> Json { return line.us.upper_quartile; }},
    {"max_us", [](const LadderLine& line) -> Json { return line.us.max; }},
    {"scratch_copy_us", [](const LadderLine& line) { return OrNull(line.step->scratch_copy_us); }},
    {"step_up", [](const LadderLine& line) { return OrNull(line.step_up); }},
    {"total_up", [](const LadderLine& line) -> Json { return line.total_up; }},
    {"gb_per_s", [](const LadderLine& line) { return Product(line) ? Json() : Json(line.rate); }},
    {"read_gb_per_s", [](const LadderLine& line) { return OrNull(line.step->read_gb_per_s); }},
    {"roofline", [](const LadderLine& line) { return OrNull(line.roofline); }},
    {"same_bits", [](const LadderLine& line) -> Json { return line.step->same_bits; }},
    {"promised_bits", [](const LadderLine& line) -> Json { return line.promised_bits; }},
    {"correct", [](const LadderLine& line) -> Json { return line.step->correct; }},
    {"value", [](const LadderLine& line) { return Product(line) ? Json() : ToJson(line.step->value); }},
    {"block_size", [](const LadderLine& line) { return OrNull(line, &Occupancy::block_size); }},
    {"registers", [](const LadderLine& line) { return OrNull(line, &Occupancy::registers); }},
    {"shared_bytes", [](const LadderLine& line) { return OrNull(line, &Occupancy::shared_bytes); }},
    {"blocks_per_multiprocessor",
     [](const LadderLine& line) { return OrNull(line, &Occupancy::blocks_per_multiprocessor); }},
    {"occupancy", [](const LadderLine& line) { return OrNull(line.occupancy); }},
    {"m", [](const LadderLine& line) { return OrNull(line, &MatmulOptions::m); }},
    {"n", [](const LadderLine& line) { return OrNull(line, &MatmulOptions::n); }},
    {"k", [](const LadderLine& line) { return OrNull(line, &MatmulOptions::k); }},
    {"tile", [](const LadderLine& line) { return Product(line) ? Json(line.run->options.matmul->tile) : Json(); }},
    {"gflops", [](const LadderLine& line) { return Product(line) ? Json(line.rate) : Json(); }},
    {"peak_gflops", [](const LadderLine& line) { return OrNull(line.step->peak_gflops); }},
    {"bank_conflicts", [](const LadderLine& line) { return OrNull(line.step->bank_conflicts); }},
    {"block_x", [](const LadderLine& line) { return line.step->block ? Json(line.step->block->x) : Json(); }},
    {"block_y", [](const LadderLine& line) { return line.step->block ? Json(line.step->block->y) : Json(); }},
    {"read_bytes", [](const LadderLine& line) { return Product(line) ? Json() : Json(ReadBytes(line)); }},
    {"active_threads", [](const LadderLine& line) { return OrNull(line.step->active_threads); }},
};

std::string CsvField(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return Dump(value);
  const std::string text = Printable(value.get_ref<const std::string&>());
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string ToText(const LadderRun& run) {
  const std::vector<LadderLine> lines = LinesOf(run);
  const bool product = run.options.matmul.has_value();
  const bool sweep = IsSweep(lines);
  std::set<std::string> used;
  for (const LadderLine& line : lines) used.insert(line.step->device);
  std::vector<std::vector<std::string>> devices;
  for (const std::string& name : used) {
    const auto model = run.devices.find(name);
    devices.push_back({"", name, model == run.devices.end() ? "" : model->second});
    if (const double best = BestRate(run, name); best > 0) {
      absl::StrAppend(&devices.back().back(), product ? "; peak: " : "; fastest plain read: ", FormatScaled(best), " ",
                      RateUnit(run));
    }
  }
  const std::string expected = product ? "" : absl::StrCat(" = ", run.start.expected.Text());
  const std::string head = absl::StrCat(NameOf(run), " (", ArrayOf(run), ")", expected, "; medians of ",
                                        (product ? lines.back() : lines.front()).step->kernel_us.size(),
                                        sweep ? "; " + lines.front().step->pipeline : "");
  const std::string table = product ? (sweep ? Table(kProductSweep, lines) : Table(kProducts, lines))
                                    : (sweep ? Table(kSweep, lines) : Table(kLadder, lines));
  return absl::StrCat(Printable(head), "\n", FormatTable(devices), table);
}

std::string CsvHeader() {
  const auto name = [](std::string* out, const auto& column) { absl::StrAppend(out, column.name); };
  return absl::StrJoin(kCsv, ",", name) + "\n";
}

std::string ToCsv(const LadderRun& run) {
  std::string text;
  for (const LadderLine& line : LinesOf(run)) {
    const auto field = [&](std::string* out, const auto& column) {
      absl::StrAppend(out, CsvField(column.value(line)));
    };
    absl::StrAppend(&text, absl::StrJoin(kCsv, ",", field), "\n");
  }
  return text;
}

}  // namespace reduced::client
