// Closes descriptors that other processes sent. Such a close may take as long as its sender likes: that of a socket
// with SO_LINGER and unsent data, or of a file in a FUSE file system, which asks a process. The kernel doesn't even let
// a process end while it waits for FUSE.
//
// Hence processes of their own close them: forks of this one that share its table of descriptors and nothing else. None
// is started before there is something to close, which honest clients never send. A close that can be interrupted is
// interrupted after 10 ms; the rest goes on in the background, as without SO_LINGER. For that, SIGALRM has a handler
// from then on, in the server, too, where it does nothing.
#ifndef REDUCED_SERVER_SOURCES_CLOSER_H_
#define REDUCED_SERVER_SOURCES_CLOSER_H_

#include <poll.h>
#include <sys/types.h>

#include <list>
#include <vector>

namespace reduced::server {

// For one thread, which must not end before it is destroyed.
class Closer {
 public:
  // The most descriptors that one packet of a Unix socket has (SCM_MAX_FD), and one more.
  static constexpr int kMaxFiles = 254;
  // How often to call Poll while Waits().
  static constexpr int kPollMs = 100;

  Closer() = default;
  // Gives the processes up to a second to finish. What is not closed by then stays open.
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  // Closes at most kMaxFiles descriptors that `user` sent. First discards the next packet of the socket `discard`,
  // unless that is -1.
  void Close(uid_t user, std::vector<int> files, int discard = -1);

  // Whether something that `user` sent isn't closed yet. Take nothing more of this user until it is.
  bool IsBusy(uid_t user) const;
  // Whether Poll has anything to wait for.
  bool Waits() const { return !batches_.empty(); }
  // What becomes readable when a process has closed what it was given.
  void AddTo(std::vector<pollfd>* polled) const;
  // Finds out what is closed, and starts to close what waits.
  void Poll();

 private:
  // What came in one packet.
  struct Batch {
    uid_t user;
    std::vector<int> files;  // the first is `discard`
    pid_t process;           // that closes it; 0: none yet
  };
  struct Process {
    pid_t id;
    int ours,
        its;  // the ends of a socket pair, both in the table that it shares: a batch goes there, a byte comes back
    bool busy;
  };

  void Start(Batch& batch);
  Process* IdleProcess();

  std::list<Batch> batches_;
  std::list<Process> processes_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_CLOSER_H_
