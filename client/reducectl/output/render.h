// What reducectl prints: values, JSON and tables.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_RENDER_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_RENDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reduced/types.h"

namespace reduced::client {

using Json = nlohmann::ordered_json;

// Integers exactly. Floats as the shortest decimal that reads back as the same value of their dtype: an f32 of 0.1 is
// 0.1. "NaN", "Infinity" and "-Infinity", which JSON numbers can't be, are strings.
Json ToJson(const Value& value);
std::string ToText(const Value& value);

// Back again. The dtype is one of 64 bits, or bool, that prints the same.
// Throw Json::exception if it is no value, or no number.
Value ValueFromJson(const Json& json);
double DoubleFromJson(const Json& json);

// On one line. Not Json::dump(), whose decimals aren't always the shortest.
std::string Dump(const Json& json);

// Stages that did not happen are absent.
Json ToJson(const Timing& timing);
std::string ToText(const Timing& timing);

// Of the server at that address; without its ops and pipelines.
Json ToJson(const std::string& server, const ServerInfo& info);

// Three significant digits, two of them decimals at most; with a unit; as percent, with one decimal.
std::string FormatScaled(double value);
std::string FormatPercent(double fraction);
std::string FormatMicros(double us);
std::string FormatBytes(std::int64_t bytes);

// Columns aligned, two spaces between them, a line feed after each row. Columns from `right_from` on are aligned at
// their right.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows,
                        std::size_t right_from = std::numeric_limits<std::size_t>::max());

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_RENDER_H_
