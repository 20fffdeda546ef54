// The daemon as a process: flags, the ready file, signals, exit statuses.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/test_server.h"

extern char** environ;

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// As it was built, or as it was installed: beside the tests' directory.
std::string DaemonPath() {
  if (std::filesystem::exists(REDUCED_DAEMON)) return REDUCED_DAEMON;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../bin/reduced";
}

// `reduced` with these arguments; killed, if it still runs, when it goes out of scope.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DaemonPath());
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
  }
  ~Daemon() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Signal(int signal) const { kill(pid_, signal); }

  // Its exit status, -signal if one ended it, or -1000 if it still runs after kPatience.
  int Wait() {
    int status = 0;
    if (!Poll([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1000;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string Output() const { return ReadFile(output_); }

  template <class Condition>
  static bool Poll(Condition condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

 private:
  const TempDir dir_;
  const std::string output_ = dir_ / "output";
  pid_t pid_ = -1;
};

TEST(MainTest, ServesUntilASignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TempDir dir;
    const std::string ready = dir / "ready";
    const std::string socket = absl::StrCat("unix:", dir / "socket");
    Daemon daemon({"--cuda=false", "--log_level=debug", absl::StrCat("--ready_file=", ready),
                   absl::StrCat("--listen=127.0.0.1:0,", socket)});
    ASSERT_TRUE(Daemon::Poll([&] { return std::filesystem::exists(ready); })) << daemon.Output();
    EXPECT_THAT(ReadFile(ready), AllOf(HasSubstr("127.0.0.1:"), HasSubstr(socket + "\n")));
    v1::ReduceResponse response;
    EXPECT_TRUE(TestClient(socket).Reduce(RequestOf<double>(v1::DTYPE_F64, {1, 2}, {v1::OP_SUM}), &response).ok());
    daemon.Signal(SIGPIPE);  // ignored
    daemon.Signal(signal);
    EXPECT_EQ(daemon.Wait(), 0);
    EXPECT_FALSE(std::filesystem::exists(ready));
    EXPECT_FALSE(std::filesystem::exists(dir / "socket"));
    EXPECT_THAT(daemon.Output(), AllOf(HasSubstr("serves on 127.0.0.1:"), HasSubstr("ops=sum status=OK"),
                                       HasSubstr("draining for up to 10s"), HasSubstr("reduced stopped")));
  }
}

TEST(MainTest, HelpAndVersion) {
  Daemon help({"--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_THAT(help.Output(), AllOf(HasSubstr("Usage: reduced"), HasSubstr("--max_message_bytes=64MiB"),
                                   HasSubstr("Exit status:\n  0  ")));
  Daemon version({"--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_EQ(version.Output(), absl::StrCat("reduced ", REDUCED_VERSION, "\n"));
}

TEST(MainTest, BadArgumentsAreErrors) {
  const TempDir dir;
  std::ofstream(dir / "file") << "not a socket";
  for (const auto& [argument, says] : std::vector<std::pair<std::string, std::string>>{
           {"--no_such_flag=1", "no_such_flag"},
           {"stray", "argument: got 'stray'; allowed: flags only"},
           {"--max_message_bytes=many", "64MiB"},
           {"--queue_limit=0", "--queue_limit: got 0; allowed: 1"},
           {"--listen=localhost", "'localhost', which has no port"},
           {absl::StrCat("--listen=unix:", dir / "file"), "not a socket"}}) {
    Daemon daemon({"--cuda=false", argument});
    EXPECT_EQ(daemon.Wait(), 1) << argument;
    EXPECT_THAT(daemon.Output(), HasSubstr(says));
  }
}

#ifdef REDUCED_FAILPOINTS
TEST(MainTest, FaultsFromTheEnvironment) {
  ASSERT_EQ(setenv("REDUCED_FAILPOINTS", "nothing=1", /*overwrite=*/1), 0);
  Daemon wrong({"--cuda=false"});
  EXPECT_EQ(wrong.Wait(), 1);
  EXPECT_THAT(wrong.Output(), HasSubstr("REDUCED_FAILPOINTS: name: got 'nothing'; allowed: acceptor/accept, "));
  ASSERT_EQ(setenv("REDUCED_FAILPOINTS", "listener/bind=1;seed=7", 1), 0);
  const TempDir dir;
  Daemon armed({"--cuda=false", absl::StrCat("--listen=unix:", dir / "socket")});
  EXPECT_EQ(armed.Wait(), 1);
  EXPECT_THAT(armed.Output(), AllOf(HasSubstr("this test of the server has faults: listener/bind=1;seed=7"),
                                    HasSubstr("Address already in use")));
  unsetenv("REDUCED_FAILPOINTS");
}
#endif

}  // namespace
}  // namespace reduced::server
