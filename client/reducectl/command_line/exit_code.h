// The exit codes of reducectl.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_EXIT_CODE_H_
#define REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_EXIT_CODE_H_

namespace reduced::client {

// A command with several inputs or arrays tries all of them and exits with the code of the first failure.
enum ExitCode : int {
  kOk = 0,
  kOutput = 1,
  kDifferent = 1,
  kUsage = 2,
  kConnection = 3,
  kServer = 4,
  kData = 5,
  kWrong = 6,
  kMissed = 7,
  kUnstable = 8,
  kUnhealthy = 9,
  kInterrupted = 130,
};

inline void KeepFirst(ExitCode code, ExitCode* failure) {
  if (*failure == kOk) *failure = code;
}

// What --help says about them.
inline constexpr char kExitCodesHelp[] = R"(Exit codes:
  0  success
  1  standard output or an output file can't be written; compare: the arrays differ
  2  the command line is wrong
  3  no server answers at the address, or the server is draining
  4  the server refused the request or failed; loadtest: at least one request failed, or none
     was measured
  5  an input can't be read or isn't valid
  6  a pipeline gave a wrong result, or other bits in another run though it promises the same; loadtest: a result was
     wrong
  7  loadtest: an objective of --slo was missed, or compare found that the second run is worse
  8  loadtest: the load was not stable
  9  health: the server isn't SERVING; doctor: a check failed, such as that no server answers
130  loadtest: interrupted
If there are several inputs or arrays, all of them are tried, and the exit code is that of the first failure.)";

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_EXIT_CODE_H_
