// The connection to a server's region socket: see proto/reduced/v1/regions.proto.
#ifndef REDUCED_CLIENT_LIB_REGION_CONNECTION_H_
#define REDUCED_CLIENT_LIB_REGION_CONNECTION_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "reduced/shared.h"
#include "reduced/v1/regions.pb.h"

namespace reduced::client {

// The path of the region socket for this process; `path` is the one that `server` uses. If the two share no more than
// the folder of their sockets (two containers, for example), that folder may have another name here.
std::string RegionPath(const std::string& server, const std::string& path);

// Thread-safe. Destroying it ends the regions that were shared over it.
class Region::Connection {
 public:
  // FAILED_PRECONDITION: it can't be connected to. DEADLINE_EXCEEDED: not in time.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(const std::string& path, absl::Time deadline);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a request with descriptors, at most kMaxFiles, and returns the reply, or its error. UNAVAILABLE: the
  // connection is closed. DEADLINE_EXCEEDED: there was no reply in time, which closes the connection, too. `received`:
  // gets the descriptors that came with the reply, which the caller closes; null: there should be none.
  absl::StatusOr<v1::RegionReply> Ask(const v1::RegionRequest& request, const std::vector<int>& files,
                                      absl::Time deadline, std::vector<int>* received = nullptr);
  // Sends a ShareDevice with the pieces of `memory`, in as many requests as they need. The reply is the last one's.
  absl::StatusOr<v1::RegionReply> AskWithPieces(v1::RegionRequest request, const DeviceMemory& memory,
                                                absl::Time deadline);

  static constexpr std::size_t kMaxFiles = 128;

  // Whether either side has closed it.
  bool closed();

 private:
  explicit Connection(int socket) : socket_(socket) {}

  absl::Mutex pieces_mutex_;  // whose requests follow one another; locked before `mutex_`
  absl::Mutex mutex_;
  int socket_ ABSL_GUARDED_BY(mutex_);  // -1: closed
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_REGION_CONNECTION_H_
