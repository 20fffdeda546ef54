// Formats values, JSON and tables.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_RENDER_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_RENDER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "reduced/types.h"

namespace reduced::client {

using Json = nlohmann::ordered_json;

// Integers are exact. Floats are the shortest decimal that reads back as the same value of their dtype: an f32 of 0.1
// is 0.1. NaN and infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
Json ToJson(const Value& value);

// The inverse. The dtype is f64, i64, u64 or bool. Throws Json::exception if `json` isn't a value, or a number.
Value ValueFromJson(const Json& json);
double DoubleFromJson(const Json& json);

// Why a text is no such JSON: what the library says, without its name for the error. It quotes what it last read, which
// can be most of the text: more than 256 bytes are cut off.
std::string WhyNotJson(const Json::exception& error);

// Formats JSON on one line. Json::dump() doesn't always write the shortest decimals.
std::string Dump(const Json& json);

// Without the stages that did not happen.
Json ToJson(const Timing& timing);
std::string ToText(const Timing& timing);

Json ToJson(const DeviceInfo& device);
// `server`: its address. Without ops and pipelines.
Json ToJson(const std::string& server, const ServerInfo& info);

// With three significant digits, at most two of them decimals; as a percentage with one decimal; with a unit.
std::string FormatScaled(double value);
std::string FormatPercent(double fraction);
std::string FormatMicros(double us);
std::string FormatBytes(std::int64_t bytes);
// Whole seconds: "1h2m5s", "0s".
std::string FormatSeconds(absl::Duration duration);
// "1000", "512Ki", "16MiB": a whole number from 0, of bytes or elements, with Ki, Mi, Gi or Ti, and B or not after
// that. Absent: it is none, or beyond 2^63 - 1.
std::optional<std::int64_t> ParseSize(absl::string_view text);

// Aligns the columns, with two spaces between them and a line feed after each row. Columns from `right_from` on are
// aligned to the right. Cells are made Printable().
std::string FormatTable(std::vector<std::vector<std::string>> rows,
                        std::size_t right_from = std::numeric_limits<std::size_t>::max());

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_RENDER_H_
