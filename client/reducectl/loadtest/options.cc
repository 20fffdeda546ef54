#include "client/reducectl/loadtest/options.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/reducectl/output/render.h"
#include "reduced/ops.h"
#include "reduced/types.h"

namespace reduced::client {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

std::optional<std::int64_t> ParseBytes(absl::string_view text) {
  const std::optional<std::int64_t> bytes = ParseSize(text);
  return bytes.has_value() && *bytes >= 1 && *bytes <= kMaxSize ? bytes : std::nullopt;
}

bool Knows(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status CheckOneOf(absl::string_view field, const std::string& value, const std::vector<std::string>& allowed) {
  if (Knows(allowed, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": got \"", value, "\"; allowed: ", absl::StrJoin(allowed, ", ")));
}

// Throws Json::exception if a value has another type.
}  // namespace

absl::Status CheckLoadOp(const std::string& op) {
  if (OtherOperandName(op).empty()) return CheckOp(op);
  return absl::InvalidArgumentError(absl::StrCat("op: got ", op, "; allowed: ops about one array"));
}

namespace {

absl::StatusOr<Kind> ParseKind(const Json& json, const Kind& defaults) {
  Kind kind = defaults;
  absl::Status status;
  for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
    if (key == "weight") {
      value.get_to(kind.weight);
      if (!(kind.weight > 0) || !std::isfinite(kind.weight)) {
        status.Update(
            absl::InvalidArgumentError(absl::StrCat("weight: got ", kind.weight, "; allowed: numbers above 0")));
      }
    } else if (key == "op") {
      kind.ops = value.is_array() ? value.get<std::vector<std::string>>() : SplitOps(value.get<std::string>());
      if (kind.ops.empty()) status.Update(absl::InvalidArgumentError("op: got none; allowed: at least 1"));
      for (const std::string& op : kind.ops) status.Update(CheckLoadOp(op));
    } else if (key == "dtype") {
      status.Update(CheckOneOf("dtype", value.get_to(kind.dtype), DTypeNames()));
    } else if (key == "size") {
      absl::StatusOr<Sizes> sizes = ParseSizes(value.is_number() ? value.dump() : value.get<std::string>());
      status.Update(sizes.status());
      if (sizes.ok()) kind.sizes = *std::move(sizes);
    } else if (key == "engine") {
      status.Update(CheckOneOf("engine", value.get_to(kind.engine), EngineNames()));
    } else if (key == "pipeline") {
      value.get_to(kind.pipeline);
    } else if (key == "precision") {
      status.Update(CheckOneOf("precision", value.get_to(kind.precision), PrecisionNames()));
    } else if (key == "via") {
      status.Update(CheckOneOf("via", value.get_to(kind.via), LoadtestVias()));
    } else {
      status.Update(
          CheckOneOf("key", key, {"weight", "op", "dtype", "size", "engine", "pipeline", "precision", "via"}));
    }
  }
  if (!status.ok()) return status;
  return kind;
}

}  // namespace

std::vector<std::string> LoadtestVias() {
  std::vector<std::string> names;
  for (const ViaRow& row : kVias) names.emplace_back(row.name);
  return names;
}

const ViaRow& ViaOf(absl::string_view via) {
  return *std::find_if(std::begin(kVias), std::end(kVias), [via](const ViaRow& row) { return row.name == via; });
}

absl::StatusOr<Sizes> ParseSizes(const std::string& text) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat("size: got \"", text, "\"; allowed: like 4096, 4Ki,64Ki,1Mi (each equally often) or 1Ki..64Mi ",
                   "(log-uniform), from 1 byte to 1 TiB"));
  Sizes sizes;
  sizes.list.clear();
  const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits("..", 1));
  if (ends.first.size() != text.size()) {
    const std::optional<std::int64_t> low = ParseBytes(ends.first);
    const std::optional<std::int64_t> high = ParseBytes(ends.second);
    if (!low.has_value() || !high.has_value() || *high < *low) return error;
    sizes.low = *low;
    sizes.high = *high;
    return sizes;
  }
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::optional<std::int64_t> bytes = ParseBytes(item);
    if (!bytes.has_value()) return error;
    sizes.list.push_back(*bytes);
  }
  return sizes;
}

absl::StatusOr<std::vector<Kind>> ParseProfile(const std::string& text, const Kind& defaults) {
  std::vector<Kind> kinds;
  try {
    const Json json = Json::parse(text);
    for (const Json& each : json.at("mix")) {
      const absl::StatusOr<Kind> kind = ParseKind(each, defaults);
      if (!kind.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("kind ", kinds.size() + 1, ": ", kind.status().message()));
      }
      kinds.push_back(*kind);
    }
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a profile like {\"mix\": [{\"weight\": 1, \"size\": \"4Ki\"}]}: ", WhyNotJson(error)));
  }
  if (kinds.empty()) return absl::InvalidArgumentError("mix: got no kind of request; allowed: at least 1");
  return kinds;
}

absl::StatusOr<std::vector<Objective>> ParseObjectives(const std::string& text) {
  std::vector<Objective> objectives;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(item, absl::MaxSplits('=', 1));
    absl::string_view name = sides.first;
    Objective objective{.percent = 100, .text = std::string(item)};
    bool good = name == "max" || (absl::ConsumePrefix(&name, "p") && absl::SimpleAtod(name, &objective.percent) &&
                                  objective.percent > 0 && objective.percent < 100);
    absl::Duration bound;
    good = good && absl::ParseDuration(sides.second, &bound) && bound > absl::ZeroDuration() &&
           bound < absl::InfiniteDuration();
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("got \"", item, "\"; allowed: objectives like p99=2ms, p99.9=10ms or max=1s"));
    }
    objective.ms = absl::ToDoubleMilliseconds(bound);
    objectives.push_back(std::move(objective));
  }
  return objectives;
}

absl::StatusOr<double> ParsePercentage(const std::string& text) {
  absl::string_view digits = text;
  double percent = 0;
  if (absl::ConsumeSuffix(&digits, "%") && absl::SimpleAtod(digits, &percent) && percent >= 0 && percent <= 100) {
    return percent / 100;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("got \"", text, "\"; allowed: percentages from 0% to 100%, like 1% or 0.5%"));
}

}  // namespace reduced::client
