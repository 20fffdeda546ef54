// reduced: the daemon. Exit status: 0 after SIGTERM or SIGINT; 1 for a bad flag, a failed start or a hang at the end; 2
// after a device failed.
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/quoted.h"
#include "server/check_config.h"
#include "server/config/configuration.h"
#include "server/config/flags.h"
#include "server/lifetime.h"
#include "server/observe/library_log.h"
#include "server/observe/log.h"
#include "server/server.h"
#include "spdlog/spdlog.h"

namespace {

constexpr char kUsage[] =
    "Usage: reduced [--flag=value]...\n"
    "Serves reductions of arrays on this machine's processors and GPUs until SIGTERM or SIGINT.\n"
    "A flag is set by the command line, else by REDUCED_FLAG_NAME in the environment, else by --config_file.\n";

// Handles --help and --version: Abseil's list the flags of every library, and exit with 1.
void AnswerAndExit(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      constexpr char kExitStatus[] =
          "Exit status:\n"
          "  0  SIGTERM or SIGINT ended the server, after it drained\n"
          "  1  a flag is wrong, the server could not start, or something hung when it stopped\n"
          "  2  a device failed for good: start the server again\n";
      std::printf("%s\nFlags, with their defaults:\n%s\n%s", kUsage, reduced::server::FlagsHelp().c_str(), kExitStatus);
      std::exit(EXIT_SUCCESS);
    }
    if (argument == "--version") {
      std::printf("reduced %s\n", REDUCED_VERSION);
      std::exit(EXIT_SUCCESS);
    }
  }
}

constexpr int kMaxWaitMs = 500;

int Fail(absl::string_view why) {
  spdlog::default_logger()->flush();
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  if (poll(&error, 1, kMaxWaitMs) == 0) return EXIT_FAILURE;  // nobody reads it
  std::fprintf(stderr, "reduced: %.*s\n", static_cast<int>(why.size()), why.data());
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  // Message buffers are megabytes large. By default glibc returns each to the kernel and maps the next page by page;
  // keeping up to 32 MiB doubles the throughput of large messages.
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  // Each heap of glibc keeps up to M_TRIM_THRESHOLD of freed memory, which malloc_trim returns of the first heap only.
  // By default there are up to eight heaps for each core.
  mallopt(M_ARENA_MAX, 8);

#ifdef NDEBUG
  // Debian's Abseil, which gRPC uses, too, checks for deadlocks at every lock, which costs small requests 10 to 20%.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif

  // Each connection and each region uses a descriptor; the usual soft limit of 1,024 is meant for programs with
  // select().
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }

  // Loads kernels at start rather than with the first request that needs them.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);

  AnswerAndExit(argc, argv);
  reduced::server::NormalizeFlagNames(argc, argv);
  const absl::Status allowed = reduced::server::CheckArguments({argv + 1, argv + argc});
  if (!allowed.ok()) return Fail(allowed.message());
  absl::SetProgramUsageMessage(kUsage);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    return Fail(absl::StrCat("argument: got ", reduced::Quoted(rest[1]), "; allowed: flags only, see --help"));
  }
  absl::StatusOr<std::vector<reduced::server::FlagValue>> flags =
      reduced::server::Configure({argv + 1, argv + argc}, environ);
  if (!flags.ok()) return Fail(flags.status().message());
  absl::StatusOr<reduced::server::ServerOptions> options = reduced::server::OptionsFromFlags();
  if (!options.ok()) return Fail(options.status().message());
  options->flags = *std::move(flags);
  reduced::server::SetUpLog(options->log_format == "json", options->log_level);
  if (const std::optional<int> code = reduced::server::AnswerAboutConfiguration(*options)) return *code;

  const absl::StatusOr<std::string> faults = reduced::failpoint::ArmFromEnvironment();
  if (!faults.ok()) return Fail(faults.status().message());
  if (!faults->empty()) spdlog::warn("failpoints: this test of the server has faults: {}", *faults);

  reduced::server::LogLibraries();

  // Before other threads start: they inherit the mask, so that only ServeUntilStopped() receives these signals.
  std::signal(SIGPIPE, SIG_IGN);
  // By default these end a process at once, and some tools send them to daemons.
  for (const int signal : {SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
  const sigset_t stop = reduced::server::BlockStopSignals();

  options->engines.on_hang = &reduced::server::EndHung;
  const absl::StatusOr<std::unique_ptr<reduced::server::Server>> server = reduced::server::Server::Start(*options);
  if (!server.ok()) return Fail(server.status().message());
  return reduced::server::ServeUntilStopped(**server, stop, options->drain_delay, options->drain_timeout);
}
