#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/commands.h"

namespace reduced::client {
namespace {

// Options whose value is a list take the word apart at its last comma.
constexpr absl::string_view kScript = R"(# bash completion for reducectl; made by `reducectl completion bash`
_reducectl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command="" word
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      @COMMANDS_OR@) command=$word; break ;;
    esac
  done
  case $prev in
@CHOICES@
    @WITH_VALUE_OR@) return ;;
  esac
  if [[ $cur == -* ]]; then
    case $command in
@OPTIONS@
      *) mapfile -t COMPREPLY < <(compgen -W '@COMMON_OPTIONS@' -- "$cur") ;;
    esac
    return
  fi
  case $command in
    '') mapfile -t COMPREPLY < <(compgen -W '@COMMANDS@' -- "$cur") ;;
    reduce)
      compopt -o filenames 2>/dev/null || :  # fails if this is called by hand
      mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    completion) mapfile -t COMPREPLY < <(compgen -W 'bash' -- "$cur") ;;
  esac
}
complete -F _reducectl reducectl
)";

std::vector<std::string> LongNames(const CLI::App& app, bool only_with_value) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (only_with_value && option->get_items_expected_max() == 0) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

ExitCode PrintBashCompletion(const CLI::App& app, const std::map<std::string, std::vector<std::string>>& choices) {
  const std::vector<std::string> common = LongNames(app, false);
  std::vector<std::string> commands, with_value = LongNames(app, true), options_lines, choices_lines;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back(command->get_name());
    std::vector<std::string> options = LongNames(*command, false);
    for (const std::string& name : common) {
      if (std::find(options.begin(), options.end(), name) == options.end()) options.push_back(name);
    }
    options_lines.push_back(absl::StrCat("      ", command->get_name(), ") mapfile -t COMPREPLY < <(compgen -W '",
                                         absl::StrJoin(options, " "), "' -- \"$cur\") ;;"));
    for (const std::string& name : LongNames(*command, true)) {
      if (choices.count(name) == 0) with_value.push_back(name);
    }
  }
  for (const auto& [option, values] : choices) {
    const std::string words = absl::StrJoin(values, " ");
    choices_lines.push_back(
        option == "--op"
            ? absl::StrCat("    --op)\n      local before=\"\"\n      [[ $cur == *,* ]] && before=${cur%,*},\n",
                           "      mapfile -t COMPREPLY < <(compgen -P \"$before\" -W '", words,
                           "' -- \"${cur##*,}\")\n      return ;;")
            : absl::StrCat("    ", option, ") mapfile -t COMPREPLY < <(compgen -W '", words,
                           "' -- \"$cur\"); return ;;"));
  }
  std::cout << absl::StrReplaceAll(kScript, {{"@COMMANDS_OR@", absl::StrJoin(commands, "|")},
                                             {"@COMMANDS@", absl::StrJoin(commands, " ")},
                                             {"@CHOICES@", absl::StrJoin(choices_lines, "\n")},
                                             {"@WITH_VALUE_OR@", absl::StrJoin(with_value, "|")},
                                             {"@OPTIONS@", absl::StrJoin(options_lines, "\n")},
                                             {"@COMMON_OPTIONS@", absl::StrJoin(common, " ")}});
  return kOk;
}

}  // namespace reduced::client
