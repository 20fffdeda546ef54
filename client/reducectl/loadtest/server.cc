#include "client/reducectl/loadtest/server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kStartPatience = absl::Seconds(60);  // a GPU's context takes seconds
constexpr absl::Duration kStopPatience = absl::Seconds(5);
constexpr absl::Duration kPoll = absl::Milliseconds(5);

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Runs in the child between fork and exec: must not lock or allocate.
[[noreturn]] void RunServer(pid_t parent, int log, char* const* arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent has exited already
  setpgid(0, 0);                      // Ctrl-C at the terminal is for the parent, which stops this one in its turn
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::string> FindServer() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> folders = {self.parent_path().string()};
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
    folders.emplace_back(folder);
  }
  for (const std::string& folder : folders) {
    const std::string program = absl::StrCat(folder, "/reduced");
    if (!std::filesystem::is_directory(program, error) && access(program.c_str(), X_OK) == 0) return program;
  }
  return absl::NotFoundError(absl::StrCat("--server: got none, and there is no program `reduced` to start in ",
                                          folders.front(), " or in PATH"));
}

absl::StatusOr<std::unique_ptr<SpawnedServer>> SpawnedServer::Start(const std::string& program,
                                                                    const std::vector<std::string>& flags) {
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "reducectl.XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("can't create ", folder, ": ", std::strerror(errno)));
  }
  std::unique_ptr<SpawnedServer> server(new SpawnedServer);
  server->folder_ = folder;
  const std::string ready = folder + "/ready", log_path = folder + "/log";
  std::vector<std::string> words = {program, absl::StrCat("--listen=", server->address()),
                                    absl::StrCat("--ready_file=", ready), "--metrics_listen="};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const pid_t parent = getpid();
  server->pid_ = fork();
  if (server->pid_ == 0) RunServer(parent, log, arguments.data());
  close(log);
  if (server->pid_ < 0) return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
  const absl::Time deadline = absl::Now() + kStartPatience;
  while (!absl::EndsWith(TextOf(ready), "\n")) {
    if (!server->Ended() && absl::Now() < deadline) {
      absl::SleepFor(kPoll);
      continue;
    }
    return absl::UnavailableError(absl::StrCat(program, server->pid_ < 0 ? " exited: " : " wasn't ready in time: ",
                                               absl::StripAsciiWhitespace(TextOf(log_path))));
  }
  return server;
}

bool SpawnedServer::Ended() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

SpawnedServer::~SpawnedServer() {
  if (!Ended()) {
    kill(pid_, SIGTERM);
    const absl::Time deadline = absl::Now() + kStopPatience;
    while (!Ended() && absl::Now() < deadline) absl::SleepFor(kPoll);
  }
  if (!Ended()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code unused;
  std::filesystem::remove_all(folder_, unused);
}

}  // namespace reduced::client
