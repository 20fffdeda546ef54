#include "client/reducectl/command_line/command_line.h"

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/command_line/flags.h"

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
     "the server: host:port, unix:/path, dns:///name:port or another gRPC target; several: host:port,host:port",
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
      "of health --watch inf")
      ->type_name("DURATION");
  app.add_flag("--json", common.json, "print JSON, one object per line");
}

CLI::App* CommandLine::Add(CLI::App* parent, const std::string& name, const std::string& help, Run run) {
  CLI::App* const command = parent->add_subcommand(name, help);
  if (run != nullptr) runs[command] = std::move(run);
  return command;
}

ExitCode CommandLine::ParseAndRun(int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return static_cast<ExitCode>(app.exit(error));  // --help, --version
    std::cerr << "reducectl: " << error.what() << "; see reducectl --help\n";
    return kUsage;
  }
  common.server_given = app.get_option("--server")->count() > 0;

  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const auto run = runs.find(command);
  if (run != runs.end()) return run->second(common);
  const std::string name = NameOf(command);
  const auto append_name = [](std::string* out, const CLI::App* each) { absl::StrAppend(out, each->get_name()); };
  std::cerr << "reducectl: " << name << (name.empty() ? "command" : ": subcommand")
            << ": got none; allowed: " << absl::StrJoin(command->get_subcommands({}), ", ", append_name)
            << "; see reducectl --help\n";
  return kUsage;
}

}  // namespace reduced::client
