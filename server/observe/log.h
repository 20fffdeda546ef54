// The log: text, or one JSON object a line.
#ifndef REDUCED_SERVER_OBSERVE_LOG_H_
#define REDUCED_SERVER_OBSERVE_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "spdlog/formatter.h"

namespace reduced::server {

// The logger of lines about calls. If the log is JSON, its messages are members of the line's object.
inline constexpr char kCallLogger[] = "call";

// {"time":"2026-01-31T12:00:00.123456Z","level":"info","message":"..."}, in UTC.
std::unique_ptr<spdlog::formatter> MakeJsonFormatter();

// "message":"..." as a member of such an object.
std::string JsonMessage(std::string_view text);

// Replaces spdlog's default logger by one that writes to standard error, and never waits for it: see queued_sink.h. To
// flush it takes half a second at most. `level`: its name in spdlog.
void SetUpLog(bool json, const std::string& level);

// Lines that spdlog's default logger has dropped.
std::uint64_t DroppedLogLines();

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_LOG_H_
