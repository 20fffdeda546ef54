// The measurements of a ladder: stored, and shown as text, CSV and SVG.
#ifndef REDUCED_CLIENT_REDUCECTL_LADDER_RUN_H_
#define REDUCED_CLIENT_REDUCECTL_LADDER_RUN_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/output/render.h"
#include "client/reducectl/output/statistics.h"
#include "reduced/types.h"

namespace reduced::client {

struct LadderRow {
  LadderStep step{};
  bool promised_bits = false;  // the pipeline promises the same bits in every run
};

// What was measured. Everything else that is shown is computed from it.
struct LadderRun {
  LadderOptions options{};  // stored without the pipelines, the repeats and the timeout
  LadderStart start{};
  std::string version{};                         // of the server
  std::map<std::string, std::string> devices{};  // models by device name
  std::vector<LadderRow> rows{};                 // at least one, each with at least one time; all times are above 0
};

// INVALID_ARGUMENT: a condition above doesn't hold.
absl::Status Validate(const LadderRun& run);

// Whether the result of `op` depends on the order in which elements are combined, so that only pipelines with a fixed
// order promise the same bits.
bool DependsOnOrder(absl::string_view op, absl::string_view dtype);

// What is computed from one row and those before it.
struct LadderLine {
  const LadderRun* run = nullptr;
  const LadderStep* step = nullptr;
  bool promised_bits = false;
  std::string label{};  // the pipeline and, if blocks were given, the block
  Summary us{};
  double rate = 0;                    // in RateUnit(): ReadBytes(), or operations of a product, per median time
  std::optional<double> step_up{};    // the speed-up over the previous row, if that has the same engine
  double total_up = 1;                // the speed-up over the first row of the same engine
  std::optional<double> roofline{};   // the rate as a fraction of the device's best
  std::optional<double> occupancy{};  // resident threads as a fraction of those that a multiprocessor can hold

  bool Good() const { return step->correct && (step->same_bits || !promised_bits); }
};
std::vector<LadderLine> LinesOf(const LadderRun& run);
// LadderStep::read_bytes; those of the array if they were not stored.
std::int64_t ReadBytes(const LadderLine& line);

// "GB/s", or of matrix products "GFLOP/s".
std::string RateUnit(const LadderRun& run);
// The fastest plain read of a device's memory of any row, or what it multiplies and adds at best, in RateUnit(); 0 if
// there is none. And what that is: "plain read" or "peak".
double BestRate(const LadderRun& run, absl::string_view device);
std::string BestName(const LadderRun& run);

// "sum of 16777216 i32", "product of 2048 x 2048 and 2048 x 2048 f32"; "64.0 MiB, random, seed 1".
std::string NameOf(const LadderRun& run);
std::string ArrayOf(const LadderRun& run);

// A table. For a run of one pipeline with several blocks: how they fill the device.
std::string ToText(const LadderRun& run);

// One object on one line, with every sample; and the inverse, for any number of lines. INVALID_ARGUMENT: `text` isn't
// what ToJson gives.
Json ToJson(const LadderRun& run);
absl::StatusOr<std::vector<LadderRun>> ParseLadderRuns(absl::string_view text);

// The header, and one line for each row of a run.
std::string CsvHeader();
std::string ToCsv(const LadderRun& run);

// A bar for each row, whose length is the logarithm of its rate; the runs are below one another. A self-contained
// document for light and dark pages.
std::string ToSvg(const std::vector<LadderRun>& runs);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LADDER_RUN_H_
