// reducectl completion.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/commands/commands.h"

namespace reduced::client {
namespace {

// Completes the last item of an option whose value is a list.
constexpr absl::string_view kScript = R"(# bash completion for reducectl; made by `reducectl completion bash`
_reducectl_files() {
  compopt -o filenames 2>/dev/null || :  # fails if this is called by hand
  mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
_reducectl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command="" word
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$command $word" in
      @COMMANDS_OR@) command=${command:+$command }$word ;;
    esac
  done
  case "$command $prev" in
@OWN_CHOICES@
  esac
  case $prev in
@CHOICES@
    @WITH_FILE_OR@) _reducectl_files; return ;;
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
@SUBCOMMANDS@
    @READS_FILES_OR@) _reducectl_files ;;
    completion) mapfile -t COMPREPLY < <(compgen -W 'bash' -- "$cur") ;;
  esac
}
complete -F _reducectl reducectl
)";

bool Any(const CLI::Option*) { return true; }
bool TakesValue(const CLI::Option* option) { return option->get_items_expected_max() != 0; }
bool TakesFile(const CLI::Option* option) { return option->get_type_name() == "FILE"; }

// The names of the options that are `wanted`.
std::set<std::string> LongNames(const CLI::App& app, bool (*wanted)(const CLI::Option*)) {
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!wanted(option)) continue;
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
  }
  return names;
}

// All commands and their subcommands.
struct Commands {
  // Adds `app`, whose full name is `name`, and its subcommands.
  void Add(const CLI::App& app, const std::string& name) {
    std::vector<std::string> subcommands;
    for (const CLI::App* command : app.get_subcommands({})) {
      subcommands.push_back(command->get_name());
      patterns.push_back(absl::StrCat("'", name, " ", command->get_name(), "'"));
      Add(*command, absl::StrCat(name, name.empty() ? "" : " ", command->get_name()));
    }
    if (!subcommands.empty()) {
      subcommand_lines.push_back(absl::StrCat("    '", name, "') mapfile -t COMPREPLY < <(compgen -W '",
                                              absl::StrJoin(subcommands, " "), "' -- \"$cur\") ;;"));
    }
    std::set<std::string> options = LongNames(app, Any);
    options.insert(common.begin(), common.end());
    if (!name.empty()) {
      options_lines.push_back(absl::StrCat("      '", name, "') mapfile -t COMPREPLY < <(compgen -W '",
                                           absl::StrJoin(options, " "), "' -- \"$cur\") ;;"));
    }
    if (app.get_option_no_throw("FILE") != nullptr) readers.push_back(absl::StrCat("'", name, "'"));
    with_value.merge(LongNames(app, TakesValue));
    with_file.merge(LongNames(app, TakesFile));
  }

  const std::set<std::string> common;  // options of every command
  std::set<std::string> with_value{}, with_file{};
  std::vector<std::string> patterns{}, options_lines{}, subcommand_lines{};
  std::vector<std::string> readers{};  // commands whose arguments are files
};

void Print(const CLI::App& app, const Choices& choices) {
  Commands commands{.common = LongNames(app, Any)};
  commands.Add(app, "");
  std::set<std::string>& with_value = commands.with_value;
  const std::set<std::string>& with_file = commands.with_file;
  std::vector<std::string> choices_lines, own_choices_lines;
  for (const std::string& option : with_file) with_value.erase(option);
  for (const auto& [option, values] : choices) {
    with_value.erase(option);
    const std::string words = absl::StrJoin(values, " ");
    if (absl::StrContains(option, ' ')) {  // of one command
      own_choices_lines.push_back(absl::StrCat("    '", option, "') mapfile -t COMPREPLY < <(compgen -W '", words,
                                               "' -- \"$cur\"); return ;;"));
      continue;
    }
    choices_lines.push_back(
        option == "--op"
            ? absl::StrCat("    --op)\n      local before=\"\"\n      [[ $cur == *,* ]] && before=${cur%,*},\n",
                           "      mapfile -t COMPREPLY < <(compgen -P \"$before\" -W '", words,
                           "' -- \"${cur##*,}\")\n      return ;;")
            : absl::StrCat("    ", option, ") mapfile -t COMPREPLY < <(compgen -W '", words,
                           "' -- \"$cur\"); return ;;"));
  }
  std::cout << absl::StrReplaceAll(kScript, {{"@READS_FILES_OR@", absl::StrJoin(commands.readers, "|")},
                                             {"@COMMANDS_OR@", absl::StrJoin(commands.patterns, "|")},
                                             {"@SUBCOMMANDS@", absl::StrJoin(commands.subcommand_lines, "\n")},
                                             {"@CHOICES@", absl::StrJoin(choices_lines, "\n")},
                                             {"@OWN_CHOICES@", absl::StrJoin(own_choices_lines, "\n")},
                                             {"@WITH_FILE_OR@", absl::StrJoin(with_file, "|")},
                                             {"@WITH_VALUE_OR@", absl::StrJoin(with_value, "|")},
                                             {"@OPTIONS@", absl::StrJoin(commands.options_lines, "\n")},
                                             {"@COMMON_OPTIONS@", absl::StrJoin(commands.common, " ")}});
}

}  // namespace

void AddCompletion(CommandLine& line) {
  const auto shell = std::make_shared<std::string>();
  line.Add("completion", "print a completion script for a shell",
           [&line, shell](const CommonOptions&) {
             Print(line.app, line.choices);
             return kOk;
           })
      ->add_option("SHELL", *shell, "the shell: bash")
      ->required()
      ->check(OneOf({"bash"}))
      ->type_name("");
}

}  // namespace reduced::client
