// Kinds of options that several commands have. The functions that parse return an error message, or an empty string.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_FLAGS_H_
#define REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/reducectl/command_line/command_line.h"

namespace reduced::client {

// "500ms", "1m30s", "inf": a positive duration.
std::string ParseTimeout(const std::string& text, std::optional<absl::Duration>* timeout);
// A whole number from 0 to 2^64 - 1.
std::string ParseSeed(const std::string& text, std::uint64_t* seed);
// A whole number from 0.
std::string ParseWholeNumber(const std::string& text, std::int64_t* number);
CLI::Validator OneOf(const std::vector<std::string>& names);
// Whole numbers from 1 to `limit`.
CLI::Validator Positive(int limit = std::numeric_limits<int>::max());

// An option whose value is one of `names`, or several of them. The help ends with the names.
template <class Field>
CLI::Option* AddChoice(CommandLine& line, CLI::App* command, const std::string& option, Field* field,
                       const std::string& help, const std::vector<std::string>& names) {
  line.choices[option] = names;
  return command->add_option(option, *field, absl::StrCat(help, ": ", absl::StrJoin(names, ", ")))
      ->check(OneOf(names))
      ->type_name("NAME");
}

// An option whose text is parsed by `parse`.
template <class Field>
CLI::Option* AddParsed(CLI::App* command, const std::string& option, std::string (*parse)(const std::string&, Field*),
                       Field* field, const std::string& help) {
  const auto set = [=](const std::string& text) {
    const std::string problem = parse(text, field);
    if (!problem.empty()) throw CLI::ValidationError(option, problem);
  };
  return command->add_option_function<std::string>(option, set, help);
}

// The ops of a list with commas between them: "sum,quantile(0.25,0.5)". Throws CLI::ValidationError of --op: one is
// none.
std::vector<std::string> ParseOps(const std::string& list);

// --ttl, of which the help begins with `what`, such as "they expire".
void AddTtl(CLI::App* command, absl::Duration* ttl, const std::string& what);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_FLAGS_H_
