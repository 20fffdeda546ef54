// What `reducectl loadtest` is told.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_OPTIONS_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reducectl/loadtest/schedule.h"

namespace reduced::client {

// Sizes of arrays, in bytes: each of a list alike often, or anything between two, of which the logarithm is uniform.
struct Sizes {
  std::vector<std::int64_t> list{4096};
  std::int64_t low = 0, high = 0;  // instead of the list, if high is above 0
};

// "4Ki", "4Ki,64Ki,1Mi", or "1Ki..1Mi" for the distribution. INVALID_ARGUMENT: something else.
absl::StatusOr<Sizes> ParseSizes(const std::string& text);

// Requests of one kind; one of them, in a mixed load.
struct Kind {
  double weight = 1;  // how often, against the other kinds
  std::vector<std::string> ops{"sum"};
  std::string dtype = "f32";
  Sizes sizes{};
  std::string engine = "auto";
  std::string pipeline{};
  std::string precision{};   // empty: the pipeline's own
  std::string via = "auto";  // one of kWays
};
inline constexpr absl::string_view kWays[] = {"auto", "inline", "stream", "session", "shm", "ipc", "put"};

// The kinds of a file like
//   {"mix": [{"weight": 9, "op": ["sum", "mean"], "dtype": "f32", "size": "4Ki", "via": "session"},
//            {"weight": 1, "size": "1Mi..64Mi", "via": "shm", "engine": "cpu", "pipeline": "tiled_simd"}]}
// What a kind leaves out is as in `defaults`. INVALID_ARGUMENT: the text isn't that; which kind, and what is wrong.
absl::StatusOr<std::vector<Kind>> ParseProfile(const std::string& text, const Kind& defaults);

// A bound on a percentile of the latency from the planned send time.
struct Objective {
  double percent = 99;  // 100: the maximum
  double ms = 0;
  std::string text{};  // as it was written: "p99=2ms"
};
absl::StatusOr<std::vector<Objective>> ParseObjectives(const std::string& text);  // "p99=2ms,max=50ms"

// "1%", "0.5%": the fraction. INVALID_ARGUMENT: not that, or not from 0% to 100%.
absl::StatusOr<double> ParsePercentage(const std::string& text);

struct LoadtestArguments {
  // Requests under way at once; in an open loop, one value: at most. None: kConcurrency, or kOpenConcurrency.
  std::vector<double> concurrency{};
  std::vector<double> rates{};  // planned requests a second; none: a closed loop
  ArrivalKind arrivals = ArrivalKind::kConstant;
  absl::Duration warmup = absl::Seconds(1);
  std::optional<absl::Duration> duration{};  // default: kDuration, of a search kSearchDuration
  std::int64_t count = 0;                    // measured requests, instead of the duration; 0: as the duration says
  double max_spread = 0.2;                   // of the windows, for a run to be called stable
  std::vector<Objective> objectives{};
  bool find_max = false;

  std::vector<std::vector<std::string>> op_sets{};  // each alike often; none: {"sum"}
  std::vector<std::string> dtypes{};                // likewise; none: f32
  Kind kind{};                                      // the rest of what there is one of
  std::string profile{};                            // a file with kinds; the flags fill in what they leave out
  std::uint64_t seed = 1;
  bool include_fill = false;
  double verify = 0.01;  // share of the answers

  int connections = 1;
  int threads = 0;                          // 0: one for each request under way, 64 at most
  std::vector<std::string> server_flags{};  // of the server that is started, if no address is given

  std::string json{}, csv{}, html{}, histogram{};  // files; empty: none

  std::vector<std::string> compared{};  // of `loadtest compare`: two files
};

inline constexpr absl::Duration kDuration = absl::Seconds(10);
inline constexpr absl::Duration kSearchDuration = absl::Seconds(3);
inline constexpr double kConcurrency = 1;
inline constexpr double kOpenConcurrency = 64;
inline constexpr int kMaxThreads = 256;
inline constexpr int kMaxConcurrency = 4096;

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_OPTIONS_H_
