#include "server/observe/log.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/observe/queued_sink.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    const std::string_view payload(message.payload.data(), message.payload.size());
    const std::string time =
        absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromChrono(message.time), absl::UTCTimeZone());
    const auto level = spdlog::level::to_string_view(message.level);
    const bool members = std::string_view(message.logger_name.data(), message.logger_name.size()) == kCallLogger;
    const std::string line =
        absl::StrCat("{\"time\":\"", time, "\",\"level\":\"", absl::string_view(level.data(), level.size()), "\",",
                     members ? std::string(payload) : JsonMessage(payload), "}\n");
    to.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

std::unique_ptr<spdlog::formatter> MakeJsonFormatter() { return std::make_unique<JsonFormatter>(); }

std::string JsonMessage(std::string_view text) {
  return absl::StrCat("\"message\":", nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                                                nlohmann::json::error_handler_t::replace));
}

void SetUpLog(bool json, const std::string& level) {
  const auto sink = std::make_shared<QueuedSink>(STDERR_FILENO);
  if (json) sink->set_formatter(MakeJsonFormatter());
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("reduced", sink));
  spdlog::set_level(spdlog::level::from_str(level));
}

std::uint64_t DroppedLogLines() {
  std::uint64_t dropped = 0;
  for (const spdlog::sink_ptr& sink : spdlog::default_logger()->sinks()) {
    if (const auto* const queued = dynamic_cast<const QueuedSink*>(sink.get())) dropped += queued->dropped();
  }
  return dropped;
}

}  // namespace reduced::server
