#include "server/sources/closer.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/system/failpoint.h"

namespace reduced::server {
namespace {

// Users whose descriptors are closed at once; what others sent waits.
constexpr std::size_t kMaxProcesses = 8;
constexpr absl::Duration kEndTimeout = absl::Seconds(1);

void Interrupt(int /*signal*/) {}

// SIGALRM interrupts what a process that is forked from now on waits for. Set once, before the first is forked, since
// those of several servers in one process would get in each other's way.
void LetAlarmsInterrupt() {
  static const bool done = [] {
    struct sigaction action {};
    action.sa_handler = Interrupt;  // without SA_RESTART
    return sigaction(SIGALRM, &action, nullptr) == 0;
  }();
  static_cast<void>(done);
}

// The process, which ends by SIGKILL, or with the thread that started it. Any lock may have been held when it was
// forked, by other threads of the server, so that it makes plain system calls only: most functions that a sanitizer
// wraps, such as sigaction(), take locks, and so may what it adds to every access.
[[noreturn]] ABSL_ATTRIBUTE_NO_SANITIZE_THREAD void CloseForever(int socket) {
  syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  constexpr std::uint64_t kAlarm = std::uint64_t{1} << (SIGALRM - 1);  // the kernel's set of signals
  syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &kAlarm, nullptr, sizeof(kAlarm));
  constexpr itimerval kOff{};
  constexpr itimerval kEvery10Ms{.it_interval = {0, 10'000}, .it_value = {0, 10'000}};
  for (;;) {
    int files[Closer::kMaxFiles + 1];
    const std::int64_t bytes = syscall(SYS_recvfrom, socket, files, sizeof(files), 0, nullptr, nullptr);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) syscall(SYS_exit_group, 0);
    syscall(SYS_setitimer, ITIMER_REAL, &kEvery10Ms, nullptr);
    if (files[0] >= 0) syscall(SYS_recvfrom, files[0], nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
    for (std::size_t i = 1; i < static_cast<std::size_t>(bytes) / sizeof(int); ++i) syscall(SYS_close, files[i]);
    syscall(SYS_setitimer, ITIMER_REAL, &kOff, nullptr);
    while (syscall(SYS_sendto, socket, "", 1, MSG_NOSIGNAL, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace

Closer::~Closer() {
  const absl::Time end = absl::Now() + kEndTimeout;
  for (Poll(); Waits() && absl::Now() < end; Poll()) {
    std::vector<pollfd> polled;
    AddTo(&polled);
    poll(polled.data(), polled.size(), 10);
  }
  for (const Process& process : processes_) {
    kill(process.id, SIGKILL);
    if (!process.busy) waitpid(process.id, nullptr, __WALL);
    close(process.ours);
    close(process.its);
  }
}

void Closer::Close(uid_t user, std::vector<int> files, int discard) {
  if (files.empty() && discard < 0) return;
  files.insert(files.begin(), discard);
  batches_.push_back({user, std::move(files), 0});
  Poll();
}

bool Closer::IsBusy(uid_t user) const {
  return std::any_of(batches_.begin(), batches_.end(), [user](const Batch& batch) { return batch.user == user; });
}

void Closer::AddTo(std::vector<pollfd>* polled) const {
  for (const Process& process : processes_) polled->push_back({process.ours, POLLIN, 0});
}

void Closer::Poll() {
  for (auto process = processes_.begin(); process != processes_.end();) {
    char byte = 0;
    const bool done = process->busy && recv(process->ours, &byte, 1, MSG_DONTWAIT) == 1;
    const bool ended = waitpid(process->id, nullptr, __WALL | WNOHANG) != 0;  // somebody killed it
    if (done || ended) {
      batches_.remove_if([&](const Batch& batch) { return batch.process == process->id; });
      process->busy = false;
    }
    if (ended) {
      close(process->ours);
      close(process->its);
      process = processes_.erase(process);
    } else {
      ++process;
    }
  }
  std::set<uid_t> users;  // in turn: a later batch may have the socket that an earlier one discards from
  for (Batch& batch : batches_) {
    if (users.insert(batch.user).second && batch.process == 0) Start(batch);
  }
}

// Leaves it waiting if no process is idle and none can be started.
void Closer::Start(Batch& batch) {
  Process* const process = IdleProcess();
  if (process == nullptr) return;
  const std::size_t bytes = batch.files.size() * sizeof(int);
  if (send(process->ours, batch.files.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(bytes))
    return;
  process->busy = true;
  batch.process = process->id;
}

Closer::Process* Closer::IdleProcess() {
  for (Process& process : processes_) {
    if (!process.busy) return &process;
  }
  int ends[2];
  if (processes_.size() >= kMaxProcesses) return nullptr;
  if (FAILPOINT_ERRNO("regions/socketpair", EMFILE, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) != 0) {
    return nullptr;
  }
  LetAlarmsInterrupt();
  // As fork() but for the table of descriptors; its end raises no SIGCHLD, which is not ours to handle.
  const pid_t id =
      FAILPOINT_ERRNO("regions/helper", EAGAIN,
                      static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES, nullptr, nullptr, nullptr, nullptr)));
  if (id == 0) CloseForever(ends[1]);
  if (id < 0) {
    close(ends[0]);
    close(ends[1]);
    return nullptr;
  }
  processes_.push_back({.id = id, .ours = ends[0], .its = ends[1], .busy = false});
  return &processes_.back();
}

}  // namespace reduced::server
