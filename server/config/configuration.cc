#include "server/config/configuration.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "server/config/flags.h"

namespace reduced::server {
namespace {

constexpr absl::string_view kPrefix = "REDUCED_FLAG_";
constexpr absl::string_view kBarePrefix = "REDUCED_";
// Variables of reducectl, which may run in the same container.
constexpr absl::string_view kClientVariables[] = {"REDUCED_SERVER",  "REDUCED_TLS_CA",          "REDUCED_TLS_CERT",
                                                  "REDUCED_TLS_KEY", "REDUCED_TLS_SERVER_NAME", "REDUCED_TOKEN_FILE"};
// Flags about the configuration itself have no place in it.
constexpr absl::string_view kCommandLineOnly[] = {"check_config", "print_config"};
constexpr absl::string_view kConfigFile = "config_file";
// Abseil's own flags that read flags from elsewhere.
constexpr absl::string_view kOtherSources[] = {"flagfile", "fromenv", "tryfromenv"};

using Flags = std::map<std::string, absl::CommandLineFlag*>;

template <class Names>
bool Has(const Names& names, absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The name in "--name=value", "-name" or "--name"; empty if `argument` is no flag.
absl::string_view NameOf(absl::string_view argument) {
  if (!absl::ConsumePrefix(&argument, "-")) return "";
  absl::ConsumePrefix(&argument, "-");
  return argument.substr(0, argument.find('='));
}

std::set<std::string> NamedBy(const std::vector<std::string>& arguments, const Flags& flags) {
  std::set<std::string> named;
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    absl::string_view name = NameOf(argument);
    if (flags.count(std::string(name)) == 0) absl::ConsumePrefix(&name, "no");  // --nocuda
    if (flags.count(std::string(name)) > 0) named.emplace(name);
  }
  return named;
}

// Text from outside in an error: its begin, and nothing that a terminal takes for more than text.
std::string Shown(absl::string_view text, std::size_t most = 64) { return absl::CHexEscape(text.substr(0, most)); }
std::string ShownPath(absl::string_view path) { return Shown(path, 128); }

absl::Status UnknownFlag(absl::string_view where, absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: unknown flag %s; see reduced --help", where, Quoted(name)));
}

// What a flag allows: `why` has it from our own types, as its end; Abseil's types say nothing of it, and quote the
// value.
absl::string_view Allowed(const absl::CommandLineFlag& flag, absl::string_view why) {
  if (flag.IsOfType<bool>()) return "allowed: true or false";
  if (flag.IsOfType<std::int32_t>()) return "allowed: a whole number of 32 bits";
  if (flag.IsOfType<std::int64_t>()) return "allowed: a whole number of 64 bits";
  return why.substr(std::min(why.rfind("allowed: "), why.size()));
}

// Sets a flag. `where`: "FILE:LINE" or the variable that has the value.
absl::Status Set(const Flags& flags, absl::string_view name, absl::string_view value, const std::string& where,
                 std::map<std::string, std::string>* sources) {
  const auto found = flags.find(std::string(name));
  if (found == flags.end()) return UnknownFlag(where, name);
  std::string why;
  if (!found->second->ParseFrom(value, &why)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: --%s: got %s; %s", where, name, Quoted(value), Allowed(*found->second, why)));
  }
  (*sources)[found->first] = where;
  return absl::OkStatus();
}

absl::Status ReadFile(const std::string& path, const Flags& flags, std::map<std::string, std::string>* sources) {
  std::ifstream file(path);
  std::string line;
  std::set<std::string> seen;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = absl::StrCat(ShownPath(path), ":", number);
    absl::string_view text = line;
    // A comment begins where a word or the value would: "a#b" is a value.
    const std::size_t value_at = text.find('=') + 1;  // 0: there is none
    for (std::size_t at = text.find('#'); at != absl::string_view::npos; at = text.find('#', at + 1)) {
      if (at > 0 && at != value_at && !absl::ascii_isspace(static_cast<unsigned char>(text[at - 1]))) continue;
      text = text.substr(0, at);
      break;
    }
    text = absl::StripAsciiWhitespace(text);
    if (text.empty()) continue;
    const std::size_t equals = text.find('=');
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: got %s; allowed: name = value", where, Quoted(text)));
    }
    const absl::string_view name = absl::StripAsciiWhitespace(text.substr(0, equals));
    if (name == kConfigFile || Has(kCommandLineOnly, name)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %s is allowed on the command line only", where, name));
    }
    if (!seen.emplace(name).second) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %s is set a second time", where, Shown(name)));
    }
    RETURN_IF_ERROR(Set(flags, name, absl::StripAsciiWhitespace(text.substr(equals + 1)), where, sources));
  }
  if (file.eof() && !file.bad()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("--config_file: cannot read %s: %s", ShownPath(path), std::strerror(errno)));
}

// A variable that is meant for a flag but lacks the prefix must not be ignored silently.
absl::Status CheckBare(absl::string_view variable, const Flags& flags) {
  if (Has(kClientVariables, variable)) return absl::OkStatus();
  absl::string_view name = variable;
  if (!absl::ConsumePrefix(&name, kBarePrefix)) return absl::OkStatus();
  if (flags.count(absl::AsciiStrToLower(name)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s has no effect: the variable of --%s is %s%s", variable,
                                                    absl::AsciiStrToLower(name), kPrefix, name));
}

absl::Status ReadEnvironment(const std::map<std::string, std::string>& variables, const Flags& flags,
                             std::map<std::string, std::string>* sources) {
  for (const auto& [variable, value] : variables) {
    absl::string_view rest = variable;
    absl::Status status = CheckBare(variable, flags);
    if (status.ok() && absl::ConsumePrefix(&rest, kPrefix)) {
      const std::string name = absl::AsciiStrToLower(rest);
      if (Has(kCommandLineOnly, name)) {
        return absl::InvalidArgumentError(absl::StrCat(variable, ": ", name, " is allowed on the command line only"));
      }
      status = rest == absl::AsciiStrToUpper(rest) ? Set(flags, name, value, Shown(variable), sources)
                                                   : UnknownFlag(Shown(variable), rest);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArguments(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (!Has(kOtherSources, NameOf(argument))) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "--%s is not supported; use --config_file, or %sNAME in the environment", NameOf(argument), kPrefix));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FlagValue>> Configure(const std::vector<std::string>& arguments, char** environment) {
  const Flags flags = ServerFlags();
  std::map<std::string, std::string> sources, given, variables;
  for (const std::string& name : NamedBy(arguments, flags)) given[name] = flags.at(name)->CurrentValue();
  for (; *environment != nullptr; ++environment) {
    const absl::string_view text = *environment;
    const std::size_t equals = std::min(text.find('='), text.size());
    variables.emplace(text.substr(0, equals), text.substr(std::min(equals + 1, text.size())));
  }

  // In order of increasing precedence: each source overrides those before it.
  absl::Status status;
  std::string path;
  const std::string config_variable = absl::StrCat(kPrefix, absl::AsciiStrToUpper(kConfigFile));
  if (const auto found = variables.find(config_variable); found != variables.end()) path = found->second;
  if (const auto found = given.find(std::string(kConfigFile)); found != given.end()) path = found->second;
  if (!path.empty()) status = ReadFile(path, flags, &sources);
  if (status.ok()) status = ReadEnvironment(variables, flags, &sources);
  if (!status.ok()) return status;
  for (const auto& [name, value] : given) {
    status = Set(flags, name, value, absl::StrCat("--", name), &sources);
    if (!status.ok()) return status;
  }

  std::vector<FlagValue> values;
  for (const auto& [name, flag] : flags) {
    if (Has(kCommandLineOnly, name)) continue;
    const auto source = sources.find(name);
    values.push_back({name, flag->CurrentValue(), source == sources.end() ? "default" : source->second});
  }
  return values;
}

std::string RedactedValue(const FlagValue& flag) {
  for (const absl::string_view word : {"token", "key", "secret", "password"}) {
    if (absl::StrContains(flag.name, word) && !flag.value.empty()) return "***";
  }
  return flag.value;
}

std::string ConfigurationText(const std::vector<FlagValue>& flags) {
  std::size_t width = 0;
  for (const FlagValue& flag : flags) width = std::max(width, flag.name.size() + flag.value.size());
  std::string text;
  for (const FlagValue& flag : flags) {
    // A file can't set config_file.
    const std::string line = absl::StrCat(flag.name == kConfigFile ? "# " : "", flag.name, " = ", flag.value);
    absl::StrAppendFormat(&text, "%-*s  # %s\n", static_cast<int>(width + 3), line, flag.source);
  }
  return text;
}

}  // namespace reduced::server
