#include "client/reducectl/output/render.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/reducectl/output/printable.h"

namespace reduced::client {
namespace {

std::string DumpNumber(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // so that a float reads back as one
  return text;
}

}  // namespace

Json ToJson(const Value& value) {
  if (const double* number = std::get_if<double>(&value.value)) {
    const std::string text = value.Text();  // JSON has no infinities and NaNs
    if (!std::isfinite(*number)) return text;
    return std::strtod(text.c_str(), nullptr);
  }
  return std::visit([](auto exact) { return Json(exact); }, value.value);
}

std::string WhyNotJson(const Json::exception& error) {
  constexpr std::size_t kMostBytes = 256;
  absl::string_view why = error.what();
  if (const std::size_t name_end = why.find("] "); absl::StartsWith(why, "[json.exception.")) {
    why.remove_prefix(std::min(name_end + 2, why.size()));
  }
  return why.size() <= kMostBytes ? std::string(why) : absl::StrCat(why.substr(0, kMostBytes), "...");
}

double DoubleFromJson(const Json& json) {
  for (const double special : {NAN, INFINITY, -INFINITY}) {
    if (json == ToJson(Value{"f64", special})) return special;
  }
  return json.get<double>();
}

Value ValueFromJson(const Json& json) {
  if (json.is_boolean()) return {"bool", json.get<bool>()};
  if (json.is_number_unsigned()) return {"u64", json.get<std::uint64_t>()};
  if (json.is_number_integer()) return {"i64", json.get<std::int64_t>()};
  return {"f64", DoubleFromJson(json)};
}

std::string Dump(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object:
      return absl::StrCat("{",
                          absl::StrJoin(json.items(), ", ",
                                        [](std::string* out, const auto& item) {
                                          absl::StrAppend(out, Dump(item.key()), ": ", Dump(item.value()));
                                        }),
                          "}");
    case Json::value_t::array:
      return absl::StrCat(
          "[", absl::StrJoin(json, ", ", [](std::string* out, const Json& item) { absl::StrAppend(out, Dump(item)); }),
          "]");
    case Json::value_t::number_float:
      return DumpNumber(json.get<double>());
    default:  // file names may not be UTF-8
      return PrintableJson(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

Json ToJson(const Timing& timing) {
  Json json = Json::object();
  for (const auto& [name, us] : kTimingStages) {
    if ((timing.*us).has_value()) json[std::string(name)] = *(timing.*us);
  }
  return json;
}

std::string ToText(const Timing& timing) {
  std::vector<std::string> stages;
  for (const auto& [name, us] : kTimingStages) {
    if (!(timing.*us).has_value()) continue;
    stages.push_back(absl::StrCat(name, " ", FormatMicros(*(timing.*us))));
    if (us == &Timing::kernel_us && timing.kernel_gb_per_s.has_value()) {
      absl::StrAppend(&stages.back(), " (", FormatScaled(*timing.kernel_gb_per_s), " GB/s)");
    }
  }
  return absl::StrJoin(stages, ", ");
}

std::string FormatScaled(double value) {
  return absl::StrFormat("%.*f", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
}

std::string FormatPercent(double fraction) { return absl::StrFormat("%.1f%%", 100 * fraction); }

std::string FormatMicros(double us) {
  if (us < 999.5) return FormatScaled(us) + " us";
  if (us < 999.5e3) return FormatScaled(us / 1e3) + " ms";
  return FormatScaled(us / 1e6) + " s";
}

std::string FormatBytes(std::int64_t bytes) {
  constexpr absl::string_view kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto scaled = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (scaled >= 1023.5 && unit + 1 < std::size(kUnits)) {
    scaled /= 1024;
    ++unit;
  }
  return absl::StrCat(unit == 0 ? absl::StrCat(bytes) : FormatScaled(scaled), " ", kUnits[unit]);
}

std::string FormatSeconds(absl::Duration duration) {
  const absl::Duration whole = absl::Trunc(duration, absl::Seconds(1));
  return whole == absl::ZeroDuration() ? "0s" : absl::FormatDuration(whole);
}

std::optional<std::int64_t> ParseSize(absl::string_view text) {
  std::int64_t unit = 1;
  for (const auto& [suffix, bits] : {std::pair{"Ki", 10}, {"Mi", 20}, {"Gi", 30}, {"Ti", 40}}) {
    absl::string_view number = absl::StripSuffix(text, "B");
    if (!absl::ConsumeSuffix(&number, suffix)) continue;
    text = number;
    unit = std::int64_t{1} << bits;
    break;
  }
  std::int64_t size = 0;
  if (!absl::SimpleAtoi(text, &size) || size < 0 || __builtin_mul_overflow(size, unit, &size)) return std::nullopt;
  return size;
}

std::string FormatTable(std::vector<std::vector<std::string>> rows, std::size_t right_from) {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = Printable(cell);
  }
  // The characters of UTF-8: bytes but those that go on with one.
  const auto width = [](const std::string& cell) {
    return static_cast<std::size_t>(
        std::count_if(cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  };
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string table;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width(row[i]), ' ');
      absl::StrAppend(&line, i < right_from ? "" : padding, row[i], i < right_from ? padding : "", "  ");
    }
    absl::StrAppend(&table, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return table;
}

Json ToJson(const DeviceInfo& device) {
  return {{"name", device.name},
          {"engine", device.engine},
          {"model", device.model},
          {"memory_bytes", device.memory_bytes},
          {"parallel_units", device.parallel_units},
          {"details", device.details},
          {"lanes", device.lanes},
          {"lanes_busy", device.lanes_busy},
          {"queue_limit", device.queue_limit},
          {"queue_length", device.queue_length},
          {"fixed_us", device.fixed_us},
          {"host_gb_per_s", device.host_gb_per_s},
          {"array_bytes", device.array_bytes},
          {"array_bytes_limit", device.array_bytes_limit},
          {"reductions", device.reductions},
          {"reduced_bytes", device.reduced_bytes},
          {"links", device.links}};
}

Json ToJson(const std::string& server, const ServerInfo& info) {
  Json devices = Json::array();
  for (const DeviceInfo& device : info.devices) devices.push_back(ToJson(device));
  Json json = {{"server", server},
               {"version", info.version},
               {"uptime_s", absl::ToDoubleSeconds(info.uptime)},
               {"limits",
                {{"max_message_bytes", info.max_message_bytes},
                 {"max_elements", info.max_elements},
                 {"max_ops", info.max_ops},
                 {"max_ladder_bytes", info.max_ladder_bytes},
                 {"max_result_bytes", info.max_result_bytes},
                 {"max_streams", info.max_streams},
                 {"max_sessions", info.max_sessions},
                 {"max_ring_bytes", info.max_ring_bytes},
                 {"max_operands", info.max_operands},
                 {"max_session_requests", info.max_session_requests},
                 {"session_idle_timeout_s", absl::ToDoubleSeconds(info.session_idle_timeout)},
                 {"default_array_ttl_s", absl::ToDoubleSeconds(info.default_array_ttl)},
                 {"max_array_ttl_s", absl::ToDoubleSeconds(info.max_array_ttl)}}},
               {"region_socket", info.region_socket},
               {"usage",
                {{"streams", info.usage.streams},
                 {"sessions", info.usage.sessions},
                 {"arrays", info.usage.arrays},
                 {"regions", info.usage.regions},
                 {"rings", info.usage.rings}}},
               {"devices", std::move(devices)},
               {"dtypes", info.dtypes}};
  Json& flags = json["flags"] = Json::object();
  for (const ServerFlag& flag : info.flags) flags[flag.name] = {{"value", flag.value}, {"source", flag.source}};
  if (!info.no_cuda_reason.empty()) json["no_cuda_reason"] = info.no_cuda_reason;
  for (const LeftOutDevice& device : info.left_out) {
    json["left_out"].push_back({{"name", device.name}, {"reason", device.reason}});
  }
  return json;
}

}  // namespace reduced::client
