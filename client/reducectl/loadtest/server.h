// A server that a load test starts for itself.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_SERVER_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace reduced::client {

// The program `reduced`, in the folder of this program or in PATH. NOT_FOUND: there is none.
absl::StatusOr<std::string> FindServer();

// A server process on a Unix socket in a private folder, which is deleted with it. The process ends with the thread
// that starts it, which should be the main thread.
class SpawnedServer {
 public:
  // Waits until the server is ready. UNAVAILABLE: it exited or wasn't ready in time; the message has its log.
  static absl::StatusOr<std::unique_ptr<SpawnedServer>> Start(const std::string& program,
                                                              const std::vector<std::string>& flags);
  // Drains the server, and kills it after 5 seconds.
  ~SpawnedServer();
  SpawnedServer(const SpawnedServer&) = delete;
  SpawnedServer& operator=(const SpawnedServer&) = delete;

  std::string address() const { return "unix:" + folder_ + "/socket"; }
  pid_t pid() const { return pid_; }

 private:
  SpawnedServer() = default;
  bool Ended();  // reaps it

  std::string folder_;
  pid_t pid_ = -1;  // of the child until it is reaped; else -1
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_SERVER_H_
