#include "client/lib/call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/lib/convert.h"
#include "client/lib/credentials.h"

namespace reduced::client {
namespace {

// Protobuf holds messages of less than 2 GiB; a MiB is left for everything but the elements.
constexpr std::int64_t kMaxInlineBytes = std::numeric_limits<std::int32_t>::max() - (std::int64_t{1} << 20);
// From here on a stream is faster than one message: tests/bench/bench_stream.
constexpr std::int64_t kStreamFromBytes = std::int64_t{512} << 10;
// From here on an array is worth several connections, if it may use them: tests/bench/bench_stream shows both by size.
constexpr std::int64_t kPartsFromBytes = std::int64_t{32} << 20;
// A part begins at a multiple of this: the server reduces stretches of so many bytes, or a power of two of it.
constexpr std::int64_t kPartBlockBytes = std::int64_t{4} << 20;

// UNAVAILABLE in words that help: no connection (why, without what gRPC puts before it), or the server's own words.
std::string WhyUnavailable(absl::string_view message, absl::string_view server) {
  absl::string_view why;
  if (absl::StrContains(message, "DNS resolution failed")) {
    why = "its name can't be resolved";
  } else if (absl::StrContains(message, "failed to connect to all addresses")) {
    const std::size_t last = message.rfind(": ");  // what comes last is the system's word
    why = last == absl::string_view::npos ? message : message.substr(last + 2);
    if (const std::size_t routine = why.find("SSL routines::"); routine != absl::string_view::npos) {
      return absl::StrCat("no TLS connection with ", server, " (",
                          why.substr(routine + absl::string_view("SSL routines::").size()), ")");
    }
    if (absl::StrContains(why, "in peer certificate")) {
      return absl::StrCat("no TLS connection with ", server, " (its certificate is for another name)");
    }
    if (absl::EqualsIgnoreCase(why, "Socket closed")) {
      return absl::StrCat(server, " closed the connection: it may want TLS, or a client certificate that it trusts");
    }
  } else {
    return absl::StrCat(server, ": ", message);
  }
  return absl::StrCat("no reduced server answers at ", server, " (", absl::AsciiStrToLower(why), ")");
}

}  // namespace

absl::Status CheckTimeout(absl::Duration timeout) {
  if (timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("timeout ", absl::FormatDuration(timeout), " is not allowed; it must be positive"));
}

absl::StatusOr<absl::string_view> ChooseVia(absl::string_view via, std::int64_t bytes) {
  if (via == "auto") return bytes < kStreamFromBytes ? kInline : kStream;
  if (via == kStream) return kStream;
  if (via != kInline) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown via \"", via, "\"; allowed: ", absl::StrJoin(ViaNames(), ", ")));
  }
  if (bytes <= kMaxInlineBytes) return kInline;
  return absl::InvalidArgumentError(absl::StrCat("the array has ", bytes, " bytes; an inline request can hold ",
                                                 kMaxInlineBytes, ", a stream any number"));
}

std::vector<std::int64_t> CutInParts(std::int64_t bytes, int connections) {
  const std::int64_t blocks = (bytes + kPartBlockBytes - 1) / kPartBlockBytes;
  const std::int64_t parts = bytes < kPartsFromBytes ? 1 : std::min<std::int64_t>(connections, blocks);
  std::vector<std::int64_t> cuts;
  for (std::int64_t i = 0; i < parts; ++i) cuts.push_back(blocks * i / parts * kPartBlockBytes);
  cuts.push_back(bytes);
  return cuts;
}

absl::Status ErrorOf(int code, const std::string& said, const std::string& server, absl::Duration timeout,
                     absl::string_view retry_after_ms) {
  const auto status_code = static_cast<absl::StatusCode>(code);
  std::string message = said;
  if (status_code == absl::StatusCode::kUnavailable) message = WhyUnavailable(said, server);
  if (status_code == absl::StatusCode::kDeadlineExceeded) {
    message = absl::StrCat("no answer from ", server, " within ", absl::FormatDuration(timeout));
  }
  if (absl::StrContains(message, "larger than max")) {  // gRPC's own: "... (bytes vs. limit)"
    message = absl::StrCat("the request is larger than ", server, " takes: ", message);
  }
  if (!retry_after_ms.empty()) absl::StrAppend(&message, "; try again in ", retry_after_ms, " ms");
  return absl::Status(status_code, message);
}

Reply ReplyOf(const v1::ReduceResponse& response, absl::string_view via) {
  Reply reply = FromProto(response);
  reply.via = std::string(via);
  return reply;
}

RpcState::RpcState(const Connection& to, std::optional<absl::Duration> own_timeout)
    : stub(to.stub), server(to.options.server), timeout(own_timeout.value_or(to.options.timeout)) {
  if (to.token != nullptr) context.AddMetadata("authorization", to.token->Authorization());
  if (timeout != absl::InfiniteDuration()) context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

absl::Status RpcState::Outcome(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto retry = metadata.find("grpc-retry-pushback-ms");
  return ErrorOf(status.error_code(), status.error_message(), server, timeout,
                 retry == metadata.end() ? "" : absl::string_view(retry->second.data(), retry->second.size()));
}

void Call::Cancel() {
  if (state_ != nullptr) state_->Cancel();
}

}  // namespace reduced::client
