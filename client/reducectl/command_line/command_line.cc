#include "client/reducectl/command_line/command_line.h"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/reducectl/command_line/flags.h"
#include "client/reducectl/output/printable.h"

namespace reduced::client {
namespace {

struct TextOption {
  const char* name;
  const char* variable;  // of the environment
  const char* type;
  const char* help;
  std::string CommonOptions::*value;
};

constexpr TextOption kTextOptions[] = {
    {"--server", "REDUCED_SERVER", "ADDRESS",
     "the server: host:port, unix:/path, dns:///name:port or another gRPC target; several: host:port,host:port; "
     "local:, for " REDUCECTL_LOCAL_COMMANDS ": none, the CPU engine runs in this process",
     &CommonOptions::server},
    {"--tls-ca", "REDUCED_TLS_CA", "FILE",
     "use TLS and check the server's certificate against the CA certificates in this PEM file; system: those that this "
     "machine trusts",
     &CommonOptions::tls_ca},
    {"--tls-cert", "REDUCED_TLS_CERT", "FILE", "PEM file of the client certificate", &CommonOptions::tls_cert},
    {"--tls-key", "REDUCED_TLS_KEY", "FILE", "PEM file of its private key", &CommonOptions::tls_key},
    {"--tls-server-name", "REDUCED_TLS_SERVER_NAME", "NAME",
     "the name that the server's certificate must have; default: the host of --server",
     &CommonOptions::tls_server_name},
    {"--token-file", "REDUCED_TOKEN_FILE", "FILE", "file of the token that is sent with every call",
     &CommonOptions::token_file},
};

std::string NameOf(const CLI::App* command) {
  const CLI::App* const parent = command->get_parent();
  if (parent == nullptr) return "";
  const std::string before = NameOf(parent);
  return absl::StrCat(before, before.empty() ? "" : " ", command->get_name());
}

// That an argument, empty if there is none, is no subcommand.
std::string NoSubcommand(const CLI::App* command, const std::string& got) {
  const std::string name = NameOf(command);
  const auto append_name = [](std::string* out, const CLI::App* each) { absl::StrAppend(out, each->get_name()); };
  return absl::StrCat(name, name.empty() ? "command" : ": subcommand", ": got ",
                      got.empty() ? "none" : absl::StrCat("\"", got, "\""),
                      "; allowed: ", absl::StrJoin(command->get_subcommands({}), ", ", append_name));
}

// The command that was named, as far as the arguments were parsed.
const CLI::App* NamedCommand(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

// "reducectl", "reducectl arrays".
std::string ProgramOf(const CLI::App* command) {
  const std::string name = NameOf(command);
  return absl::StrCat("reducectl", name.empty() ? "" : " ", name);
}

// Arguments that no part of `command` takes.
std::string LeftOver(const CLI::App* app, const CLI::App* command) {
  const std::string first = app->remaining(/*recurse=*/true).front();
  const std::string where = absl::StrCat(NameOf(command), command == app ? "" : ": ");
  if (absl::StartsWith(first, "-") && first.size() > 1) {
    return absl::StrCat(where, "option: got \"", first, "\"; allowed: those of ", ProgramOf(command), " --help");
  }
  if (!command->get_subcommands({}).empty()) return NoSubcommand(command, first);
  return absl::StrCat(where, "got \"", first, "\"; allowed: no further arguments");
}

ExitCode Misuse(const CLI::App* command, const std::string& what) {
  const std::string help = absl::StrCat(ProgramOf(command), " --help");
  const bool named = absl::EndsWith(what, help);
  std::cerr << "reducectl: " << Printable(what) << (named ? "" : "; see " + help) << "\n";
  return kUsage;
}

// The arguments, with the names of options as they are here: --tls_ca is --tls-ca, as `reduced` takes both.
std::vector<std::string> WithDashes(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument.rfind("--", 0) != 0) continue;
    const auto name_end = argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
    std::replace(argument.begin(), name_end, '_', '-');
  }
  return arguments;
}

// An argument as a shell takes it.
std::string ShellWord(const std::string& argument) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) return argument;
  return absl::StrCat("'", absl::StrReplaceAll(argument, {{"'", "'\\''"}}), "'");
}

}  // namespace

CommandLine::CommandLine() : app("Asks a `reduced` server what arrays reduce to.", "reducectl") {
  app.footer(kExitCodesHelp);
  app.require_subcommand(0, 1);  // ParseAndRun checks that there is one: CLI11 wouldn't name an unknown one
  app.fallthrough();             // common options may follow the command
  for (const TextOption& each : kTextOptions) {
    CLI::Option* option =
        app.add_option(each.name, common.*each.value, each.help)->envname(each.variable)->type_name(each.type);
    if (each.value == &CommonOptions::server) option->capture_default_str();
  }
  AddParsed(
      &app, "--timeout", ParseTimeout, &common.timeout,
      "the timeout of one call, like 500ms, 5s, 1m30s or inf; default: 5s, of ladder 10m, of health and doctor 2s, "
      "of health --watch inf; also of reading a FIFO, a device or standard input, default: inf")
      ->type_name("DURATION");
  app.add_flag("--json", common.json, "print JSON, one object per line");
}

CLI::App* CommandLine::Add(CLI::App* parent, const std::string& name, const std::string& help, Run run) {
  CLI::App* const command = parent->add_subcommand(name, help);
  command->footer(
      "Options of all commands, such as --server, --timeout and --json, and the exit codes: see reducectl --help");
  if (run != nullptr) runs[command] = std::move(run);
  return command;
}

ExitCode CommandLine::ParseAndRun(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) absl::StrAppend(&common.command_line, i == 0 ? "" : " ", ShellWord(argv[i]));
  std::vector<std::string> arguments = WithDashes(argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ExtrasError&) {
    // What comes first was to be a command.
    const CLI::App* const command = app.remaining(/*recurse=*/true).front() == argv[1] ? &app : NamedCommand(&app);
    return Misuse(command, LeftOver(&app, command));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return static_cast<ExitCode>(app.exit(error));  // --help, --version
    return Misuse(NamedCommand(&app), error.what());
  }
  common.server_given = app.get_option("--server")->count() > 0;

  const CLI::App* const command = NamedCommand(&app);
  const auto run = runs.find(command);
  return run != runs.end() ? run->second(common) : Misuse(command, NoSubcommand(command, ""));
}

}  // namespace reduced::client
