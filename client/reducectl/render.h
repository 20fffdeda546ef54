// What reducectl prints: values, JSON and tables.
#ifndef REDUCED_CLIENT_REDUCECTL_RENDER_H_
#define REDUCED_CLIENT_REDUCECTL_RENDER_H_

#include <cstdint>
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

// On one line. Not Json::dump(), whose decimals aren't always the shortest.
std::string Dump(const Json& json);

// Stages that did not happen are absent.
Json ToJson(const Timing& timing);
std::string ToText(const Timing& timing);

// Three significant digits and a unit.
std::string FormatMicros(double us);
std::string FormatBytes(std::int64_t bytes);

// Columns aligned, two spaces between them, a line feed after each row.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_RENDER_H_
