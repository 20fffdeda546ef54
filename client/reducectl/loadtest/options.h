// The options of a load test, and its profile.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_OPTIONS_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reducectl/loadtest/schedule.h"

namespace reduced::client {

// Sizes of arrays, in bytes: each of a list equally often, or log-uniform between two.
struct Sizes {
  std::vector<std::int64_t> list{4096};
  std::int64_t low = 0, high = 0;  // used instead of the list if `high` is above 0
};

// "4Ki", "4Ki,64Ki,1Mi", or "1Ki..1Mi" for the log-uniform sizes. INVALID_ARGUMENT: anything else.
absl::StatusOr<Sizes> ParseSizes(const std::string& text);

// One kind of request. A mixed load has several.
struct Kind {
  double weight = 1;  // relative to those of the other kinds
  std::vector<std::string> ops{"sum"};
  std::string dtype = "f32";
  Sizes sizes{};
  std::string engine = "auto";
  std::string pipeline{};
  std::string precision{};   // empty: the pipeline's default
  std::string via = "auto";  // one of kVias
};

// How a request and its elements reach the server.
struct ViaRow {
  absl::string_view name;
  // "sent" with the request; "resident"; "region": host memory that is shared with the server; "device_region": memory
  // of a GPU of this process, likewise.
  absl::string_view elements;
  // SessionOptions.via of the session that the request goes through; empty: a call of its own.
  absl::string_view session;
};
inline constexpr ViaRow kVias[] = {
    {"auto", "sent", ""},
    {"inline", "sent", ""},
    {"stream", "sent", ""},
    {"session", "sent", "session"},
    {"ring", "sent", "ring"},
    {"resident", "resident", ""},
    {"region", "region", ""},
    {"device_region", "device_region", ""},
    {"ring_resident", "resident", "ring"},
    {"ring_region", "region", "ring"},
    {"ring_device_region", "device_region", "ring"},
};
std::vector<std::string> LoadtestVias();
// `via`: the name of one.
const ViaRow& ViaOf(absl::string_view via);

// INVALID_ARGUMENT: a text is no op, or one about two arrays, which load tests do not make.
absl::Status CheckLoadOp(const std::string& op);

// The kinds of a file like
//   {"mix": [{"weight": 9, "op": ["sum", "mean"], "dtype": "f32", "size": "4Ki", "via": "session"},
//            {"weight": 1, "size": "1Mi..64Mi", "via": "region", "engine": "cpu", "pipeline": "tiled_simd"}]}
// `defaults` has the values that a kind leaves out. INVALID_ARGUMENT: the text isn't a profile; the message has the
// kind and the error.
absl::StatusOr<std::vector<Kind>> ParseProfile(const std::string& text, const Kind& defaults);

// An upper bound for a percentile of the latency from the planned send time.
struct Objective {
  double percent = 99;  // 100: the maximum
  double ms = 0;
  std::string text{};  // as the user wrote it: "p99=2ms"
};
absl::StatusOr<std::vector<Objective>> ParseObjectives(const std::string& text);  // "p99=2ms,max=50ms"

// "0.5%" is 0.005. INVALID_ARGUMENT: this isn't a percentage from 0% to 100%.
absl::StatusOr<double> ParsePercentage(const std::string& text);

struct LoadtestArguments {
  // Requests in flight; in an open loop one value, which is the limit. None: kConcurrency, or kOpenConcurrency.
  std::vector<double> concurrency{};
  std::vector<double> rates{};  // planned requests per second; none: a closed loop
  ArrivalKind arrivals = ArrivalKind::kConstant;
  absl::Duration warmup = absl::Seconds(1);
  std::optional<absl::Duration> duration{};  // default: kDuration, of a search kSearchDuration
  std::int64_t count = 0;                    // measured requests; 0: the duration counts
  double max_spread = 0.2;                   // of the windows of a stable run
  std::vector<Objective> objectives{};
  bool find_max = false;

  std::vector<std::vector<std::string>> op_sets{};  // used equally often; none: {"sum"}
  std::vector<std::string> dtypes{};                // likewise; none: f32
  Kind kind{};                                      // the options that have one value
  std::string profile{};                            // a file with kinds; the options are their defaults
  std::uint64_t seed = 1;
  bool include_fill = false;
  double verify = 0.01;  // the share of the results that are verified

  int connections = 1;
  int threads = 0;                          // 0: one for each request in flight, 64 at most
  std::vector<std::string> server_flags{};  // of the server that is started if none is named

  std::string json{}, csv{}, html{}, histogram{};  // files; empty: none
};

inline constexpr absl::Duration kDuration = absl::Seconds(10);
inline constexpr absl::Duration kSearchDuration = absl::Seconds(3);
inline constexpr double kConcurrency = 1;
inline constexpr double kOpenConcurrency = 64;
inline constexpr int kMaxThreads = 256;
inline constexpr int kMaxConcurrency = 4096;

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_OPTIONS_H_
