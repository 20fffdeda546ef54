// Ladders that have been run: what they measured, stored and shown.
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
  bool promised_bits = false;  // the pipeline says that its result has the same bits run after run
};

// As measured: everything else that is shown follows from it.
struct LadderRun {
  LadderOptions options{};  // all but the pipelines, the repeats and the timeout are stored
  LadderStart start{};
  std::string version{};                         // of the server
  std::map<std::string, std::string> devices{};  // the models, by the names that steps call them
  std::vector<LadderRow> rows{};                 // at least one, each with at least one time, all above 0
};

// OK, or what is missing that a LadderRun must have.
absl::Status Validate(const LadderRun& run);

// Whether the result of `op` depends on the order in which elements are combined, so that a pipeline has to promise
// one.
bool DependsOnOrder(absl::string_view op, absl::string_view dtype);

// What follows from one row, and from those before it.
struct LadderLine {
  const LadderRun* run = nullptr;
  const LadderStep* step = nullptr;
  bool promised_bits = false;
  std::string label{};  // the pipeline and, where sizes were asked for, the block size
  Summary us{};
  double gb_per_s = 0;                // bytes of the array in the median time
  std::optional<double> step_up{};    // how many times as fast as the row before, of the same engine
  double total_up = 1;                // how many times as fast as the first row of the same engine
  std::optional<double> roofline{};   // gb_per_s as a fraction of the fastest plain read of the device's memory
  std::optional<double> occupancy{};  // resident threads as a fraction of those that a multiprocessor can hold

  bool Good() const { return step->correct && (step->same_bits || !promised_bits); }
};
std::vector<LadderLine> LinesOf(const LadderRun& run);

// The fastest plain read of a device's memory that any row saw; 0 if none did.
double BestRead(const LadderRun& run, absl::string_view device);

// "sum of 16777216 i32"; "64.0 MiB, random, seed 1".
std::string NameOf(const LadderRun& run);
std::string ArrayOf(const LadderRun& run);

// As text: a table for each run; of a run of one pipeline with several block sizes, one of how they fill the device.
std::string ToText(const LadderRun& run);

// One object on one line, with every sample; and back, from any number of lines. INVALID_ARGUMENT: not such a text.
Json ToJson(const LadderRun& run);
absl::StatusOr<std::vector<LadderRun>> ParseLadderRuns(absl::string_view text);

// The header, and one line for each row of a run.
std::string CsvHeader();
std::string ToCsv(const LadderRun& run);

// A bar for each row, below one another for each run, as long as the logarithm of its GB/s. One self-contained
// document, for light and dark pages.
std::string ToSvg(const std::vector<LadderRun>& runs);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LADDER_RUN_H_
