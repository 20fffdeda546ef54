// What the commands have in common in how they are told things. Functions that parse give what is wrong with the text,
// if anything is.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMANDS_FLAGS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMANDS_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace reduced::client {

using Choices = std::map<std::string, std::vector<std::string>>;  // of options with a fixed set of values

std::string ParseTimeout(const std::string& text, std::optional<absl::Duration>* timeout);
std::string ParseSeed(const std::string& text, std::uint64_t* seed);
CLI::Validator OneOf(const std::vector<std::string>& names);
CLI::Validator Positive();

// An option whose value is one of some names, or several of them.
template <class Field>
CLI::Option* AddChoice(CLI::App* command, Choices* choices, const std::string& option, Field* field,
                       const std::string& help, const std::vector<std::string>& names) {
  (*choices)[option] = names;
  return command->add_option(option, *field, absl::StrCat(help, ": ", absl::StrJoin(names, ", ")))
      ->check(OneOf(names))
      ->type_name("NAME");
}

// An option whose text goes through `parse`.
template <class Field>
CLI::Option* AddParsed(CLI::App* command, const std::string& option, std::string (*parse)(const std::string&, Field*),
                       Field* field, const std::string& help) {
  const auto set = [=](const std::string& text) {
    const std::string problem = parse(text, field);
    if (!problem.empty()) throw CLI::ValidationError(option, problem);
  };
  return command->add_option_function<std::string>(option, set, help);
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMANDS_FLAGS_H_
