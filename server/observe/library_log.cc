#include "server/observe/library_log.h"

#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "server/observe/call_line.h"
#include "server/observe/repeats.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr std::size_t kMaxLoggedBytes = 1000;

// `fatal`: the library ends the process after this message.
void Log(const char* library, const char* file, int line, absl::string_view message, bool error, bool fatal) {
  static auto* const repeats = new Repeats(10, absl::Seconds(10));
  const std::string text =
      absl::StrCat(library, ": ", Printable({message.data(), message.size()}, kMaxLoggedBytes));  // may quote a client
  if (!error) return spdlog::debug("{}", text);
  const absl::Time now = absl::Now();
  for (const Repeats::Suppressed& each : repeats->TakeSuppressed(now)) {
    spdlog::warn("repeated {} more times: {}", each.count, each.kind);
  }
  if (fatal || repeats->Admit(absl::StrCat(library, " ", file, ":", line), now)) spdlog::warn("{}", text);
  if (fatal) spdlog::default_logger()->flush();
}

void LogGrpc(gpr_log_func_args* entry) {
  Log("grpc", entry->file, entry->line, entry->message, entry->severity == GPR_LOG_SEVERITY_ERROR,
      absl::StartsWith(entry->message, "assertion failed"));
}

void LogProtobuf(google::protobuf::LogLevel level, const char* file, int line, const std::string& message) {
  Log("protobuf", file, line, message, level >= google::protobuf::LOGLEVEL_ERROR,
      level == google::protobuf::LOGLEVEL_FATAL);
}

}  // namespace

void LogLibraries() {
  gpr_set_log_function(LogGrpc);
  google::protobuf::SetLogHandler(LogProtobuf);
}

}  // namespace reduced::server
