// The connection to a server's region socket: see proto/reduced/v1/regions.proto.
#ifndef REDUCED_CLIENT_LIB_REGION_CONNECTION_H_
#define REDUCED_CLIENT_LIB_REGION_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "reduced/shared.h"
#include "reduced/v1/regions.pb.h"

namespace reduced::client {

// Thread-safe. The server forgets what was shared when it is destroyed.
class Region::Connection {
 public:
  // FAILED_PRECONDITION: nobody answers there. DEADLINE_EXCEEDED: nobody does in time.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(const std::string& path, absl::Time deadline);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // One request and its reply, with a descriptor unless it is -1. An error of the reply is the status. UNAVAILABLE: the
  // connection is over. DEADLINE_EXCEEDED: no reply in time, and the connection is over too.
  absl::StatusOr<v1::RegionReply> Ask(const v1::RegionRequest& request, int file, absl::Time deadline);

  bool over();

 private:
  explicit Connection(int socket) : socket_(socket) {}

  absl::Mutex mutex_;
  int socket_ ABSL_GUARDED_BY(mutex_);  // -1: over
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_REGION_CONNECTION_H_
