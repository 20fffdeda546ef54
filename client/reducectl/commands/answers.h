// What `reduce` and `describe` do: they ask the server, or the engine of this process, about every array of their
// inputs.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWERS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_ANSWERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/local/local.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/exit_code.h"
#include "client/reducectl/commands/answer.h"
#include "client/reducectl/input/input.h"
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
  // An op that an array has no answer to, such as the minimum of nothing, is no failure.
  bool lenient = false;
  InputOptions input{};
};

// Where arrays are reduced: one of these.
struct Place {
  std::unique_ptr<Client> server{};
  std::unique_ptr<LocalEngine> local{};
  std::optional<absl::Duration> timeout{};  // of --timeout

  // Of arrays that this process has, in the time that TimeFor gives them.
  absl::StatusOr<Reply> Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                               ReduceOptions options) const;
  absl::StatusOr<ArrayReply> ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                         const PartitionOptions& partition, ReduceOptions options) const;
  // That of --timeout; else, of a server, TimeoutOf the array.
  std::optional<absl::Duration> TimeFor(const ArrayView& array) const;
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
