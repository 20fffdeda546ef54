// An answer about one array, and what the commands that reduce inputs say beside it.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWER_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/reducectl/command_line/exit_code.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {

// About one array.
struct Answer {
  std::string source{};           // a file, or the id of a resident array
  std::string column{}, array{};  // in it; empty: it is one array
  std::string dtype{};            // empty: only the server knows
  std::vector<std::int64_t> shape{};
  std::vector<std::uint64_t> missing{};  // the positions of missing elements, which `shape` counts
  bool several = false;                  // its source has several arrays that were asked for
  std::vector<std::string> notes{};      // what was inferred or skipped and can change a number
  std::optional<Words> words{};          // instead of the reply, of a column without numbers
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

// The ops that have errors instead of results, in order.
struct OpError {
  std::string op{};
  absl::Status error{};
};
std::vector<OpError> ErrorsOf(const std::vector<Result>& results);
std::vector<OpError> ErrorsOf(const std::vector<ResultArray>& results);

// A value as text and as JSON; of an op that has an error "-" and null.
std::string TextOf(const Result& result);
Json JsonOf(const Result& result);
// Adds `errors`, by op, if there are any: {"sum": {"code": "OUT_OF_RANGE", "message": "integer overflow: ..."}}.
void AddErrors(const std::vector<OpError>& errors, Json* json);
// Prints them, and returns the exit code: kOk, if there are none.
ExitCode ReportErrors(const std::string& subject, const std::vector<OpError>& errors);

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

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWER_H_
