// What `reduce` and `describe` do: they ask the server, or the engine of this process, about every array of their
// inputs.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWERS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/local/local.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/exit_code.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {

struct Question {
  // The values of `via` beside ViaNames(). Session: all inputs are sent over one session. Ring: over one whose requests
  // go through shared memory. Region: the server reads the inputs in shared memory.
  static constexpr char kSession[] = "session";
  static constexpr char kRing[] = "ring";
  static constexpr char kRegion[] = "region";

  std::vector<std::string> sources{};
  std::vector<std::string> arrays{};  // ids of resident arrays; if there are sources, names of arrays in .npz files
  std::vector<std::string> ops = {"sum", "min", "max", "mean"};
  ReduceOptions options{};
  std::string via = ReduceOptions().via;
  bool in_session() const { return via == kSession || via == kRing; }
  int connections = ClientOptions().connections;
  bool one = false;  // more than one array is an error
  // If a small or whole array has no answer to one of the ops, such as the minimum of nothing, it has to the others.
  bool each_op = false;
  InputOptions input{};
};

// About one array.
struct Answer {
  std::string source{};           // a file, or the id of a resident array
  std::string column{}, array{};  // in it; empty: it is one array
  std::string dtype{};            // empty: only the server knows
  std::vector<std::int64_t> shape{};
  std::vector<std::uint64_t> missing{};  // the positions of missing elements, which `shape` counts
  bool several = false;                  // its source has several arrays that were asked for
  std::vector<std::string> notes{};      // what was inferred or skipped and can change a number
  Reply reply{};
  std::optional<std::int64_t> nans{};  // in the array, if a result is NaN, and if that could be found out
  double read_us = 0;
  double round_trip_us = 0;
};

Answer AnswerOf(const std::string& source, const Input& input, const InputReader& reader);

// What an answer is about: of an error, "FILE: column x"; as a title, "FILE, column x"; beside the answers about other
// arrays of the same source, "x".
std::string SubjectOf(const Answer& answer);
std::string TitleOf(const Answer& answer);
std::string NameOf(const Answer& answer);

// One line of JSON, which all commands that reduce inputs print. `results`: an object, with an entry for each op.
// `more`: fields that only some answers have, beside it.
std::string JsonLine(const Answer& answer, Json results, const Json& more = Json::object());

// The notes of one source as it is read. In text each is printed once, as a line on standard error; with --json those
// of an array are in its line, and others are printed at the end.
class Notes {
 public:
  Notes(std::string source, bool json) : source_(std::move(source)), json_(json) {}
  ~Notes() { Print(); }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  // After each Next() of the reader.
  void Add(const InputReader& reader);
  // These are in a line of JSON.
  void InLine(const std::vector<std::string>& notes);

 private:
  void Print();

  const std::string source_;
  const bool json_;
  std::vector<std::string> notes_;
  std::set<std::string> said_;
};

// Prints why one of several arrays of a source could not be read, and returns the exit code.
ExitCode ReportUnread(const std::string& source, const absl::Status& status);

// Prints why there is no answer, and returns its exit code. An input that reading stopped has the reader's error; any
// other is the call's.
ExitCode ReportFailure(const Answer& answer, const Input& input, const absl::Status& status);

// Where arrays are reduced: one of these.
struct Place {
  std::unique_ptr<Client> server{};
  std::unique_ptr<LocalEngine> local{};
};

// Where the options say. Nothing: they contradict each other or the question, or describe no client, which is printed.
std::optional<Place> PlaceOf(const CommonOptions& common, const Question& question);

// Prints an answer; returns why that failed, or kOk.
using PrintAnswer = std::function<ExitCode(const Answer&)>;

// Asks about all arrays, in order, and prints what is left out on standard error. Returns the code of the first
// failure.
ExitCode Ask(const CommonOptions& common, Question question, const PrintAnswer& print);

// Without --timeout: 5 s, and a second more for each 64 MiB.
absl::Duration TimeoutOf(const ArrayView& array);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWERS_H_
