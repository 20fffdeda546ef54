#include "client/reducectl/command_line/flags.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "reduced/ops.h"

namespace reduced::client {

std::string ParseTimeout(const std::string& text, std::optional<absl::Duration>* timeout) {
  if (absl::ParseDuration(text, &timeout->emplace()) && *timeout > absl::ZeroDuration()) return "";
  return absl::StrCat("got \"", text, "\"; allowed: positive durations like 500ms, 5s, 1m30s, inf");
}

// CLI11 itself would accept negative numbers and wrap them.
std::string ParseSeed(const std::string& text, std::uint64_t* seed) {
  if (absl::SimpleAtoi(text, seed)) return "";
  return absl::StrCat("got \"", text, "\"; allowed: whole numbers from 0 to 2^64 - 1");
}

std::string ParseWholeNumber(const std::string& text, std::int64_t* number) {
  if (absl::SimpleAtoi(text, number) && *number >= 0) return "";
  return absl::StrCat("got \"", text, "\"; allowed: whole numbers from 0");
}

CLI::Validator OneOf(const std::vector<std::string>& names) {
  const auto check = [names](const std::string& value) -> std::string {
    for (const std::string& name : names) {
      if (name == value) return "";
    }
    return absl::StrCat("got \"", value, "\"; allowed: ", absl::StrJoin(names, ", "));
  };
  return CLI::Validator(check, "");
}

CLI::Validator Positive(int limit) {
  const auto check = [limit](const std::string& text) -> std::string {
    int value = 0;
    if (absl::SimpleAtoi(text, &value) && value > 0 && value <= limit) return "";
    return absl::StrCat("got \"", text, "\"; allowed: whole numbers from 1",
                        limit < std::numeric_limits<int>::max() ? absl::StrCat(" to ", limit) : "");
  };
  return CLI::Validator(check, "");
}

std::vector<std::string> ParseOps(const std::string& list) {
  std::vector<std::string> ops = SplitOps(list);
  for (std::string& op : ops) {
    absl::StripAsciiWhitespace(&op);
    const absl::Status status = CheckOp(op);
    if (!status.ok()) throw CLI::ValidationError("--op", std::string(absl::StripPrefix(status.message(), "op: ")));
  }
  return ops;
}

void AddTtl(CLI::App* command, absl::Duration* ttl, const std::string& what) {
  const auto parse = [](const std::string& text, absl::Duration* parsed) -> std::string {
    if (absl::ParseDuration(text, parsed) && *parsed > absl::ZeroDuration()) return "";
    return absl::StrCat("got \"", text, "\"; allowed: positive durations like 90s, 10m, 1h30m");
  };
  AddParsed<absl::Duration>(
      command, "--ttl", parse, ttl,
      absl::StrCat(what, " when they are idle for this long, like 90s or 10m; default: that of the server"))
      ->type_name("DURATION");
}

}  // namespace reduced::client
