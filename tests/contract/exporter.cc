#include "tests/contract/exporter.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"

namespace reduced::test {

Exporter::Exporter(std::int64_t bytes, std::int64_t offset, int busy_ms) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("ipc_exporter");
  std::string arguments[] = {program, std::to_string(bytes), std::to_string(offset), std::to_string(busy_ms)};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(), nullptr};
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    error_ = std::strerror(errno);
    return;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const int error = posix_spawn(&process_, program.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  std::string line;
  for (char next = 0; error == 0 && next != '\n';) {
    pollfd polled{out[0], POLLIN, 0};
    if (poll(&polled, 1, 60'000) != 1 || read(out[0], &next, 1) != 1) break;
    line += next;
  }
  close(out[0]);
  std::istringstream words(line);
  std::string handle;
  std::string uuid;
  std::string event;
  if (!(words >> handle >> uuid >> event)) {
    error_ = error != 0 ? program + ": " + std::strerror(error) : "the exporter said: " + line;
    return;
  }
  memory_ = {.handle = absl::HexStringToBytes(handle),
             .device_uuid = absl::HexStringToBytes(uuid),
             .offset = offset,
             .bytes = bytes,
             .event = absl::HexStringToBytes(event)};
}

void Exporter::Kill() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  process_ = -1;
  if (input_ >= 0) close(std::exchange(input_, -1));
}

}  // namespace reduced::test
