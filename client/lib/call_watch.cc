// One thread for the process watches all calls. It looks at them from time to time, so that a call costs no more than
// its place in a set; while there are none, it sleeps.
#include "client/lib/call_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(250);      // between two looks at the calls
constexpr absl::Duration kFastTick = absl::Milliseconds(50);   // the same while one is late
constexpr absl::Duration kPatience = absl::Milliseconds(100);  // gRPC's own time to end a call
constexpr absl::Duration kStuck = absl::Seconds(1);
constexpr int kIdleTicks = 8;  // without a call, after which the thread sleeps

// The far end of a socket, as Peers has it; empty: none, or not a socket.
std::string PeerOf(int file) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getpeername(file, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  if (storage.ss_family == AF_INET) return absl::StrCat(":", ntohs(reinterpret_cast<sockaddr_in&>(storage).sin_port));
  if (storage.ss_family == AF_INET6) {
    return absl::StrCat(":", ntohs(reinterpret_cast<sockaddr_in6&>(storage).sin6_port));
  }
  constexpr auto kHead = offsetof(sockaddr_un, sun_path);
  if (storage.ss_family != AF_UNIX || size <= kHead) return "";
  const absl::string_view path(reinterpret_cast<sockaddr_un&>(storage).sun_path, size - kHead);
  if (path[0] == '\0') return absl::StrCat("unix-abstract:", path.substr(1));
  return absl::StrCat("unix:", path.substr(0, path.find('\0')));
}

// Calls `see` with the descriptor of each socket of this process that is connected to one of the peers.
template <class See>
void ForEachConnection(const Peers& peers, See see) {
  DIR* const files = opendir("/proc/self/fd");
  if (files == nullptr) return;
  const absl::Cleanup close_files = [files] { closedir(files); };
  while (const dirent* const each = readdir(files)) {
    int file = -1;
    if (absl::SimpleAtoi(each->d_name, &file) && peers.contains(PeerOf(file))) see(file);
  }
}

// The peers of all clients that this process has had.
struct AllPeers {
  absl::Mutex mutex;
  Peers peers ABSL_GUARDED_BY(mutex);
  static AllPeers& Get() {
    static auto* const all = new AllPeers;
    return *all;
  }
};

// The sockets with bytes to send, by inode.
class Stuck {
 public:
  // Shuts down those connections to the peers that have been stuck for kStuck.
  void Look(const Peers& peers) {
    const absl::Time now = absl::Now();
    absl::flat_hash_map<ino_t, Seen> still;
    ForEachConnection(peers, [&](int file) {
      // The descriptor belongs to gRPC, which may close it meanwhile, so that the number is something else's. This copy
      // stays what it is.
      const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
      if (copy < 0) return;
      const absl::Cleanup close_copy = [copy] { close(copy); };
      struct stat known {};
      int unsent = 0;
      if (!peers.contains(PeerOf(copy)) || fstat(copy, &known) != 0 || ioctl(copy, SIOCOUTQ, &unsent) != 0 ||
          unsent == 0) {
        return;
      }
      Seen seen{unsent, now};
      const auto before = seen_.find(known.st_ino);
      if (before != seen_.end() && before->second.unsent == unsent) seen = before->second;
      if (now - seen.since >= kStuck) {
        shutdown(copy, SHUT_RDWR);
      } else {
        still.emplace(known.st_ino, seen);
      }
    });
    seen_ = std::move(still);
  }

  void Forget() { seen_.clear(); }

 private:
  struct Seen {
    int unsent = 0;  // bytes
    absl::Time since;
  };
  absl::flat_hash_map<ino_t, Seen> seen_;
};

}  // namespace

std::shared_ptr<const Peers> PeersOf(const Target& target) {
  auto peers = std::make_shared<Peers>();
  if (target.unix_socket) {
    peers->insert(absl::StrReplaceAll(target.uri, {{"unix://", "unix:"}}));
  } else {
    for (const absl::string_view each : absl::StrSplit(target.uri, ',')) {
      peers->insert(std::string(each.substr(each.rfind(':'))));
    }
  }
  AllPeers& all = AllPeers::Get();
  const absl::MutexLock lock(&all.mutex);
  all.peers.insert(peers->begin(), peers->end());
  return peers;
}

void DisconnectFork() {
  AllPeers& all = AllPeers::Get();
  const absl::MutexLock lock(&all.mutex);
  int ends[2];
  if (all.peers.empty() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  close(ends[1]);
  // Their numbers stay taken: gRPC still has them.
  ForEachConnection(all.peers, [&](int file) { dup3(ends[0], file, O_CLOEXEC); });
  close(ends[0]);
}

class CallWatch::Watcher {
 public:
  // Is never destroyed: its thread ends with the process. A fork has none of its parent's threads, but its own watcher.
  static Watcher& Get() {
    static std::atomic<Watcher*> watcher = new Watcher;
    [[maybe_unused]] static const int renewed = pthread_atfork(nullptr, nullptr, [] { watcher = new Watcher; });
    return *watcher;
  }

  void Start(CallWatch* call) {
    const absl::MutexLock lock(&mutex_);
    if (!std::exchange(runs_, true)) std::thread([this] { Run(); }).detach();
    if (call->state_ != State::kNew) return;
    call->state_ = State::kStarted;
    calls_.insert(call);
    if (asleep_) wake_.Signal();
  }

  void Cancel(CallWatch* call) {
    const absl::MutexLock lock(&mutex_);
    call->ends_ = std::min(call->ends_, absl::Now());
  }

  void End(CallWatch* call) {
    const absl::MutexLock lock(&mutex_);
    if (call->state_ == State::kStarted) calls_.erase(call);
    call->state_ = State::kEnded;
  }

 private:
  void Run() {
    const absl::MutexLock lock(&mutex_);
    Stuck stuck;
    for (int idle = 0;;) {
      if (idle == kIdleTicks) {
        asleep_ = true;
        while (calls_.empty()) wake_.Wait(&mutex_);
        asleep_ = false;
      }
      const Peers late = PeersOfLate();
      if (late.empty()) {
        stuck.Forget();
      } else {
        mutex_.Unlock();
        stuck.Look(late);
        mutex_.Lock();
      }
      wake_.WaitWithTimeout(&mutex_, late.empty() ? kTick : kFastTick);
      idle = calls_.empty() ? idle + 1 : 0;
    }
  }

  Peers PeersOfLate() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const absl::Time now = absl::Now();
    Peers peers;
    for (const CallWatch* const call : calls_) {
      if (call->ends_ + kPatience < now) peers.insert(call->peers_->begin(), call->peers_->end());
    }
    return peers;
  }

  absl::Mutex mutex_;
  absl::CondVar wake_;
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<CallWatch*> calls_ ABSL_GUARDED_BY(mutex_);
};

void CallWatch::Started() { Watcher::Get().Start(this); }

void CallWatch::Cancelled() { Watcher::Get().Cancel(this); }

void CallWatch::Ended() { Watcher::Get().End(this); }

}  // namespace reduced::client
