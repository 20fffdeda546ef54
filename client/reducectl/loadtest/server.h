// A server of one's own, for as long as one needs it.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_SERVER_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace reduced::client {

// The program `reduced`: beside this one, or else where PATH has it. NOT_FOUND: nowhere.
absl::StatusOr<std::string> FindServer();

// Serves on a Unix socket in a private folder, which goes with it. It never outlives the thread that starts it: let
// that be the main one.
class SpawnedServer {
 public:
  // Waits until it serves. UNAVAILABLE: it ended, or wasn't ready in time; with the last lines that it logged.
  static absl::StatusOr<std::unique_ptr<SpawnedServer>> Start(const std::string& program,
                                                              const std::vector<std::string>& flags);
  // Has it drain; kills it if that takes more than 5 seconds.
  ~SpawnedServer();
  SpawnedServer(const SpawnedServer&) = delete;
  SpawnedServer& operator=(const SpawnedServer&) = delete;

  std::string address() const { return "unix:" + folder_ + "/socket"; }
  pid_t pid() const { return pid_; }

 private:
  SpawnedServer() = default;
  bool Ended();  // and reaped

  std::string folder_;
  pid_t pid_ = -1;  // of a child that isn't reaped, or -1
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_SERVER_H_
