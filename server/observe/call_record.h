// What one call was: filled in once, where it ends, and read by everything that counts, logs or lists calls.
#ifndef REDUCED_SERVER_OBSERVE_CALL_RECORD_H_
#define REDUCED_SERVER_OBSERVE_CALL_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "kernels/algebra/spec.h"

namespace reduced::server {

// The kinds of calls. A request of a session is one, and so is the session.
enum class Rpc : std::uint8_t {
  kReduce,
  kReduceStream,
  kSession,
  kSessionReduce,
  kPutArray,
  kListArrays,
  kDeleteArray,
  kMerge,
  kLadder,
  kGetServerInfo,
};
inline constexpr std::array<std::string_view, 10> kRpcNames = {
    "reduce",      "reduce_stream", "session", "session_reduce", "put_array",
    "list_arrays", "delete_array",  "merge",   "ladder",         "get_server_info"};
constexpr std::string_view NameOf(Rpc rpc) { return kRpcNames[static_cast<std::size_t>(rpc)]; }
// True of the calls that are one reduction each.
constexpr bool IsReduction(Rpc rpc) {
  return rpc == Rpc::kReduce || rpc == Rpc::kReduceStream || rpc == Rpc::kSessionReduce;
}

// Where the elements of a reduction came from.
enum class Source : std::uint8_t { kNone, kInline, kStream, kArray, kRegion };
inline constexpr std::array<std::string_view, 5> kSourceNames = {"none", "inline", "stream", "array", "region"};
constexpr std::string_view NameOf(Source source) { return kSourceNames[static_cast<std::size_t>(source)]; }

// How a client and the server speak about a call.
struct CallTag {
  std::string request_id;   // the client's if it is a good one, else the server's; empty: request ids are off
  std::string traceparent;  // of the client, as W3C Trace Context has it; empty: none, or not a good one
};

// Valid while it is delivered: what it points to belongs to the call.
struct CallRecord {
  Rpc rpc = Rpc::kReduce;
  const CallTag* tag = nullptr;
  const grpc::ServerContextBase* context = nullptr;  // whose peer() is asked only where it is said; may be null
  const ReduceSpec* spec = nullptr;                  // null or without ops: the request was not understood
  Source source = Source::kNone;
  EngineKind engine = EngineKind::kAuto;  // kAuto: none was picked
  std::string_view pipeline{};            // that ran; empty: none did
  std::int64_t bytes = 0;                 // of the array
  std::optional<double> receive_us{};
  Timing timing{};
  double total_us = 0;
  absl::Status status{};
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_CALL_RECORD_H_
