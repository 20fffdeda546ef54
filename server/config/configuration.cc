#include "server/config/configuration.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "server/config/listener.h"
#include "server/security/security.h"

namespace reduced::server {
namespace {

constexpr absl::string_view kPrefix = "REDUCED_FLAG_";
constexpr absl::string_view kBarePrefix = "REDUCED_";
// reducectl's own variables, which are there for the server, too, where both run in one container.
constexpr absl::string_view kOfTheClient[] = {"REDUCED_SERVER",  "REDUCED_TLS_CA",          "REDUCED_TLS_CERT",
                                              "REDUCED_TLS_KEY", "REDUCED_TLS_SERVER_NAME", "REDUCED_TOKEN_FILE"};
// Flags about the configuration itself make no sense within it.
constexpr absl::string_view kOfTheCommandLine[] = {"check_config", "print_config"};
constexpr absl::string_view kConfigFile = "config_file";
// Of Abseil.
constexpr absl::string_view kOtherSources[] = {"flagfile", "fromenv", "tryfromenv"};
constexpr absl::string_view kReadyFile = "ready_file";

using Flags = std::map<std::string, absl::CommandLineFlag*>;

template <class Names>
bool Has(const Names& names, absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The name in "--name=value", "-name" or "--name"; empty: there is none.
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

absl::Status UnknownFlag(absl::string_view where, absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: there is no flag '%s'; see reduced --help", where,
                                                    absl::CHexEscape(std::string(name.substr(0, 64)))));
}

// `where` says so: "FILE:LINE" or a variable.
absl::Status Set(const Flags& flags, absl::string_view name, absl::string_view value, const std::string& where,
                 std::map<std::string, std::string>* sources) {
  const auto found = flags.find(std::string(name));
  if (found == flags.end()) return UnknownFlag(where, name);
  std::string why;
  if (!found->second->ParseFrom(value, &why)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: --%s can't be '%s'%s%s", where, name,
                                                      absl::CHexEscape(std::string(value.substr(0, 256))),
                                                      why.empty() ? "" : ": ", why));
  }
  (*sources)[found->first] = where;
  return absl::OkStatus();
}

absl::Status ReadFile(const std::string& path, const Flags& flags, std::map<std::string, std::string>* sources) {
  std::ifstream file(path);
  std::string line;
  std::set<std::string> seen;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = absl::StrCat(absl::CHexEscape(path), ":", number);
    absl::string_view text = line;
    for (std::size_t at = text.find('#'); at != absl::string_view::npos; at = text.find('#', at + 1)) {
      if (at > 0 && !absl::ascii_isspace(static_cast<unsigned char>(text[at - 1]))) continue;
      text = text.substr(0, at);
      break;
    }
    text = absl::StripAsciiWhitespace(text);
    if (text.empty()) continue;
    const std::size_t equals = text.find('=');
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: '%s' is not of the form name = value", where,
                                                        absl::CHexEscape(std::string(text.substr(0, 256)))));
    }
    const absl::string_view name = absl::StripAsciiWhitespace(text.substr(0, equals));
    if (name == kConfigFile || Has(kOfTheCommandLine, name)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %s can't be set in a file", where, name));
    }
    if (!seen.emplace(name).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %s is there a second time", where, absl::CHexEscape(std::string(name.substr(0, 64)))));
    }
    const absl::Status status = Set(flags, name, absl::StripAsciiWhitespace(text.substr(equals + 1)), where, sources);
    if (!status.ok()) return status;
  }
  if (file.eof() && !file.bad()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("--config_file: cannot read %s: %s", absl::CHexEscape(path), std::strerror(errno)));
}

// A variable that is meant for a flag but lacks the prefix would say nothing, and nobody would know.
absl::Status CheckBare(absl::string_view variable, const Flags& flags) {
  if (Has(kOfTheClient, variable)) return absl::OkStatus();
  absl::string_view name = variable;
  if (!absl::ConsumePrefix(&name, kBarePrefix)) return absl::OkStatus();
  if (flags.count(absl::AsciiStrToLower(name)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s says nothing to reduced: --%s is set by %s%s", variable,
                                                    absl::AsciiStrToLower(name), kPrefix, name));
}

absl::Status ReadEnvironment(const std::map<std::string, std::string>& variables, const Flags& flags,
                             std::map<std::string, std::string>* sources) {
  for (const auto& [variable, value] : variables) {
    absl::string_view rest = variable;
    absl::Status status = CheckBare(variable, flags);
    if (status.ok() && absl::ConsumePrefix(&rest, kPrefix)) {
      const std::string name = absl::AsciiStrToLower(rest);
      if (Has(kOfTheCommandLine, name)) {
        return absl::InvalidArgumentError(absl::StrCat(variable, ": --", name, " can only be on the command line"));
      }
      status = rest == absl::AsciiStrToUpper(rest) ? Set(flags, name, value, variable, sources)
                                                   : UnknownFlag(variable, rest);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Unusable(absl::string_view flag, const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrFormat("--%s: %s: %s", flag, absl::CHexEscape(path), why));
}

// Whether a file can be made at `path`, or replaced.
absl::Status CheckWritable(absl::string_view flag, const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder.push_back('.');
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Unusable(flag, path, "a folder, not a file");
  // A link to itself is replaced; a name that is too long is nobody's.
  if (error == std::errc::filename_too_long) return Unusable(flag, path, error.message());
  return access(folder.c_str(), W_OK | X_OK) == 0
             ? absl::OkStatus()
             : Unusable(flag, path, absl::StrCat("its folder can't be written: ", std::strerror(errno)));
}

absl::Status CheckSocket(absl::string_view flag, const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    return Unusable(flag, path, "it exists and is not a socket");
  }
  return CheckWritable(flag, path);
}

}  // namespace

absl::Status CheckArguments(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (!Has(kOtherSources, NameOf(argument))) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s is not supported: --config_file takes lines of name = value, and the environment "
                        "%sNAME for each flag",
                        NameOf(argument), kPrefix));
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

  // The least first; each overrides what was there before.
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
    if (Has(kOfTheCommandLine, name)) continue;
    const auto source = sources.find(name);
    values.push_back({name, flag->CurrentValue(), source == sources.end() ? "default" : source->second});
  }
  return values;
}

std::string ToldValue(const FlagValue& flag) {
  for (const absl::string_view word : {"token", "key", "secret", "password"}) {
    if (absl::StrContains(flag.name, word) && !flag.value.empty()) return "***";
  }
  return flag.value;
}

absl::Status CheckFiles(const ServerOptions& options) {
  absl::Status status;
  const absl::StatusOr<std::unique_ptr<Security>> security = Security::Load(options.security);
  status.Update(security.status());
  if (!options.ready_file.empty()) status.Update(CheckWritable(kReadyFile, options.ready_file));
  for (const std::string& address : options.listen) {
    const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(address);
    status.Update(parsed.status());
    if (parsed.ok() && !parsed->unix_path.empty()) status.Update(CheckSocket("listen", parsed->unix_path));
    if (parsed.ok() && security.ok()) status.Update((*security)->CredentialsFor(*parsed).status());
  }
  if (!options.region_socket.empty() && options.region_socket != "auto") {
    status.Update(CheckSocket("region_socket", options.region_socket));
  }
  return status;
}

std::string ConfigurationText(const std::vector<FlagValue>& flags) {
  std::size_t width = 0;
  for (const FlagValue& flag : flags) width = std::max(width, flag.name.size() + flag.value.size());
  std::string text;
  for (const FlagValue& flag : flags) {
    // A file can't name itself.
    const std::string line = absl::StrCat(flag.name == kConfigFile ? "# " : "", flag.name, " = ", flag.value);
    absl::StrAppendFormat(&text, "%-*s  # %s\n", static_cast<int>(width + 3), line, flag.source);
  }
  return text;
}

std::optional<int> AnswerAboutConfiguration(const ServerOptions& options) {
  const Flags flags = ServerFlags();
  const auto asked = [&flags](const char* name) { return flags.at(name)->TryGet<bool>().value_or(false); };
  const bool print = asked("print_config");
  const bool check = asked("check_config");
  if (print) std::fputs(ConfigurationText(options.flags).c_str(), stdout);
  if (!check) return print ? std::optional<int>(EXIT_SUCCESS) : std::nullopt;
  const absl::Status status = CheckFiles(options);
  if (status.ok()) {
    if (!print) std::puts("ok");
    return EXIT_SUCCESS;
  }
  std::fprintf(stderr, "reduced: %s\n", std::string(status.message()).c_str());
  return EXIT_FAILURE;
}

}  // namespace reduced::server
