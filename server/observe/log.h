// The log: text for people, or one JSON object a line for programs.
#ifndef REDUCED_SERVER_OBSERVE_LOG_H_
#define REDUCED_SERVER_OBSERVE_LOG_H_

#include <memory>
#include <string>
#include <string_view>

#include "spdlog/formatter.h"

namespace reduced::server {

// The name of the logger whose messages, if the log is JSON, are members of the line's object already.
inline constexpr char kCallLogger[] = "call";

// {"time":"2026-01-31T12:00:00.123456Z","level":"info","message":...}: UTC, whatever the message has in it escaped.
std::unique_ptr<spdlog::formatter> MakeJsonFormatter();

// "message":"..." as a member of such an object.
std::string JsonMessage(std::string_view text);

// Makes spdlog's default logger one that writes to standard error. level: as spdlog names it.
void SetUpLog(bool json, const std::string& level);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_LOG_H_
