// The options that all commands share, the client that they describe, and the errors of its calls.
#ifndef REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_CLIENT_H_
#define REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_CLIENT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/reducectl/command_line/exit_code.h"
#include "reduced/client.h"

namespace reduced::client {

// The --server that is no server: this process reduces, by the CPU engine that a server has.
inline constexpr char kLocal[] = "local:";

// The commands that take it. It is a macro so that string literals can contain it.
#define REDUCECTL_LOCAL_COMMANDS "reduce, describe, histogram, compare, fingerprint, corr, info, ops and pipelines"

// What to do if no server answers.
inline constexpr char kNoServerAdvice[] =
    "start a server with `reduced`, or name another one with --server or REDUCED_SERVER; " REDUCECTL_LOCAL_COMMANDS
    " need none with --server local:";

struct CommonOptions {
  std::string server = ClientOptions().server;
  bool server_given = false;              // on the command line or in the environment
  std::optional<absl::Duration> timeout;  // absent: the default of the command
  bool json = false;
  std::string command_line{};  // all arguments, as a shell takes them
  // Those of ClientOptions.
  std::string tls_ca{}, tls_cert{}, tls_key{}, tls_server_name{}, token_file{};
};

ClientOptions ClientOptionsOf(const CommonOptions& common, absl::Duration default_timeout = ClientOptions().timeout,
                              int connections = ClientOptions().connections);

// Prints the error and returns null if the options don't describe a client, such as those with kLocal.
std::unique_ptr<Client> MakeClient(const CommonOptions& common,
                                   absl::Duration default_timeout = ClientOptions().timeout,
                                   int connections = ClientOptions().connections);

// Prints the error of a call and returns its exit code. `subject`: an input or a command.
ExitCode ReportCallError(absl::string_view subject, const absl::Status& status);

// Prints "reducectl: subject: message" and returns `code`.
ExitCode ReportError(absl::string_view subject, absl::string_view message, ExitCode code);

// Writes a file, or replaces it as a whole. Prints the error and returns kOutput if it cannot be written; the file then
// is as it was.
ExitCode WriteFile(const std::string& path, absl::string_view content);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_COMMAND_LINE_CLIENT_H_
