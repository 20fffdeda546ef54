// The sources of flags: a file and, each after a byte of 0, variables of the environment.
#include "server/config/configuration.h"

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/config/flags.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {
namespace {

// What the flags are with this file and these variables, from their defaults on.
absl::StatusOr<std::vector<server::FlagValue>> ConfigureWith(absl::string_view file,
                                                             std::vector<std::string> variables) {
  const int memory = memfd_create("configuration", MFD_CLOEXEC);
  Require(memory >= 0 && write(memory, file.data(), file.size()) == static_cast<ssize_t>(file.size()),
          "there is memory");
  variables.push_back(absl::StrCat("REDUCED_FLAG_CONFIG_FILE=/proc/self/fd/", memory));
  std::vector<char*> environment;
  environment.reserve(variables.size() + 1);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  auto values = server::Configure({}, environment.data());
  close(memory);
  return values;
}

}  // namespace

FUZZ_TARGET(configuration) {
  const absl::string_view file = input.TakeUntil('\0');
  std::vector<std::string> variables;
  while (!input.empty()) variables.emplace_back(input.TakeUntil('\0'));

  std::string text;
  std::vector<server::FlagValue> values;
  {
    const absl::FlagSaver saver;
    auto configured = ConfigureWith(file, variables);
    RequireGoodError(configured.status(), 2048);
    if (!configured.ok()) return;
    values = *std::move(configured);
    RequireGoodError(server::OptionsFromFlags().status(), 2048 + 5 * file.size());
    for (const server::FlagValue& value : values) {
      const bool secret = absl::StrContains(value.name, "token") || absl::StrContains(value.name, "key");
      Require(!secret || value.value.empty() || server::RedactedValue(value) == "***", "secrets are not shown");
    }
    text = server::ConfigurationText(values);
  }
  // What --print_config prints is a file that says the same; variables can hold what no file can.
  if (!variables.empty()) return;
  const absl::FlagSaver saver;
  const auto again = ConfigureWith(text, {});
  Require(again.ok() && again->size() == values.size(), "what is printed is a configuration", text);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == "config_file") continue;
    Require((*again)[i].value == values[i].value, "what is printed says the same", text);
  }
}

}  // namespace reduced::fuzz
