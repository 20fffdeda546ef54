// The record of one call: filled in once, where the call ends, and read by everything that counts, logs or lists calls.
#ifndef REDUCED_SERVER_OBSERVE_CALL_RECORD_H_
#define REDUCED_SERVER_OBSERVE_CALL_RECORD_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "kernels/algebra/spec.h"
#include "server/config/rpc.h"
#include "server/security/identity.h"

namespace reduced::server {

// How the elements of a reduction reach the server: in a Reduce message, in the chunks of a ReduceStream, in a message
// of a Session, as a resident array, in a region of shared memory, or in the arena of a session's ring.
enum class Source : std::uint8_t { kNone, kInline, kStream, kSession, kResident, kRegion, kRing };
inline constexpr std::array<std::string_view, 7> kSourceNames = {"none",     "inline", "stream", "session",
                                                                 "resident", "region", "ring"};
constexpr std::string_view NameOf(Source source) { return kSourceNames[static_cast<std::size_t>(source)]; }

// The ids of a call, by which a client and the logs refer to it.
struct CallTag {
  std::string request_id;   // the client's if it is valid, else generated; empty: request ids are off
  std::string traceparent;  // the client's, in the format of W3C Trace Context; empty: none, or not valid
};

// The stages of a reduction on the server: `receive`, in which the request arrives; those of the engine, kTimingStages;
// `client`, the time in which the server had nothing to do but to wait for the client of a stream; and `total`, from
// the arrival to the response. Metrics, logs and the status page walk these names.
inline constexpr std::size_t kReceiveStage = 0;
inline constexpr std::size_t kClientStage = 1 + std::size(kTimingStages);
inline constexpr std::size_t kTotalStage = 1 + kClientStage;
inline constexpr std::size_t kStages = kTotalStage + 1;
inline constexpr std::array<std::string_view, kStages> kStageNames = [] {
  std::array<std::string_view, kStages> names{};
  names[kReceiveStage] = "receive";
  for (std::size_t i = 0; i < std::size(kTimingStages); ++i) names[i + 1] = kTimingStages[i].name;
  names[kClientStage] = "client";
  names[kTotalStage] = "total";
  return names;
}();

// Valid while Observer::End runs: the objects that it points to belong to the call.
struct CallRecord {
  Rpc rpc = Rpc::kReduce;
  const CallTag* tag = nullptr;
  const grpc::ServerContextBase* context = nullptr;  // for its peer, in the log; may be null
  const Caller* caller = nullptr;                    // null or without an account: it is not known
  // Null or without ops: the request could not be parsed. Of a ReduceMany that of the first operand, as engine and
  // source are, with the elements of all.
  const ReduceSpec* spec = nullptr;
  Source source = Source::kNone;
  EngineKind engine = EngineKind::kAuto;  // kAuto: none was chosen
  std::string_view pipeline{};            // empty: none ran
  std::int64_t bytes = 0;                 // of all arrays
  std::optional<double> receive_us{};
  Timing timing{};
  std::optional<double> client_us{};  // see kClientStage, of any call; absent: it has no such time
  double total_us = 0;
  absl::Status status{};

  // What the server took of total_us.
  double server_us() const { return std::max(0.0, total_us - client_us.value_or(0)); }

  // The time of a stage in us; nullopt if the reduction did not have the stage.
  std::optional<double> StageMicros(std::size_t stage) const {
    if (stage == kReceiveStage) return receive_us;
    if (stage == kClientStage) return client_us;
    if (stage == kTotalStage) return total_us;
    return timing.*kTimingStages[stage - 1].micros;
  }
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_CALL_RECORD_H_
