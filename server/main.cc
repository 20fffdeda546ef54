// reduced: the daemon. Exit status: 0 after SIGTERM or SIGINT, 1 for a bad flag or a server that could not start.
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "grpc/support/log.h"
#include "server/server.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace {

constexpr char kUsage[] =
    "Usage: reduced [--flag=value]...\n"
    "Answers what arrays reduce to, on this machine's processors and GPUs, until SIGTERM or SIGINT.\n";

// --help and --version are ours: Abseil's list the flags of every library and exit with 1.
void AnswerAndExit(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      std::printf("%s\nFlags, with their defaults:\n%s", kUsage, reduced::FlagsHelp().c_str());
      std::exit(EXIT_SUCCESS);
    }
    if (argument == "--version") {
      std::printf("reduced %s\n", REDUCED_VERSION);
      std::exit(EXIT_SUCCESS);
    }
  }
}

int Fail(absl::string_view why) {
  std::fprintf(stderr, "reduced: %.*s\n", static_cast<int>(why.size()), why.data());
  return EXIT_FAILURE;
}

void LogOfGrpc(gpr_log_func_args* line) {
  spdlog::log(line->severity == GPR_LOG_SEVERITY_ERROR ? spdlog::level::warn : spdlog::level::debug, "grpc: {}",
              line->message);
}

}  // namespace

int main(int argc, char** argv) {
  // Buffers of messages come and go by the megabyte. By default glibc gives each back to the kernel and takes it anew,
  // page by page; keeping up to 32 MiB doubles the rate of large messages.
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);

#ifdef NDEBUG
  // Abseil's, which gRPC locks with, too. Debian's looks for deadlocks at every lock, which costs small requests 10 to
  // 20%.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif

  // Each connection and each region takes a descriptor; 1,024, the usual soft limit, is for programs that use select().
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }

  // Kernels are loaded at start, not by the first request that needs them.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);

  AnswerAndExit(argc, argv);
  absl::SetProgramUsageMessage(kUsage);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    return Fail(
        absl::StrCat("unexpected argument '", absl::CHexEscape(rest[1]), "': only flags are allowed, see --help"));
  }
  const absl::StatusOr<reduced::ServerOptions> options = reduced::OptionsFromFlags();
  if (!options.ok()) return Fail(options.status().message());
  // Not chmod(): no socket may be open to more for even a moment.
  if (options->socket_mode >= 0) umask(0777 & ~static_cast<unsigned>(options->socket_mode));

  spdlog::set_default_logger(spdlog::stderr_color_mt("reduced"));
  spdlog::set_level(spdlog::level::from_str(options->log_level));
  gpr_set_log_function(LogOfGrpc);

  // Before there is a second thread: none may be interrupted by what sigwait() below waits for.
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);

  const absl::StatusOr<std::unique_ptr<reduced::Server>> server = reduced::Server::Start(*options);
  if (!server.ok()) return Fail(server.status().message());

  int signal = 0;
  sigwait(&stop, &signal);
  spdlog::info("{}: draining for at most {}", strsignal(signal), absl::FormatDuration(options->drain_timeout));
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);  // a second signal ends the process at once
  (*server)->Shutdown(options->drain_timeout);
  return EXIT_SUCCESS;
}
