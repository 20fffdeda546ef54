// Regions: memory that other processes of this machine share with the server, through a Unix socket of its own. The
// protocol is written down in proto/reduced/v1/regions.proto.
//
// One thread serves the socket. What a region holds (a descriptor, a mapping, a registration with the GPU, an opened
// IPC handle) is counted by its users: the connection that shared it, until that releases it or ends, and the
// reductions that read it.
#ifndef REDUCED_SERVER_SOURCES_REGIONS_H_
#define REDUCED_SERVER_SOURCES_REGIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/engine/engines.h"
#include "reduced/v1/reduced.pb.h"
#include "reduced/v1/regions.pb.h"
#include "server/config/options.h"

namespace reduced::server {

// Thread-safe, but for Start and Stop.
class Regions {
 public:
  // `engines` must outlive it.
  Regions(const Engines& engines, const RegionOptions& options);
  ~Regions();  // Stop()
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // Listens at `path`, replacing the socket of a server that is gone. FAILED_PRECONDITION: it can't.
  absl::Status Start(const std::string& path);
  // Closes the socket, the connections, and with them their regions, and removes the file.
  void Stop();

  // Where it listens; empty: nowhere.
  const std::string& path() const { return path_; }
  int count() const;

  // `bytes` of a region as an array. NOT_FOUND: no such token. OUT_OF_RANGE: the region ends before.
  absl::StatusOr<HeldArray> Find(const v1::RegionPart& part, std::int64_t bytes) const;

 private:
  class Region;
  struct Connection;

  void Serve();
  bool Accept();
  bool Answer(Connection& connection);
  absl::StatusOr<v1::RegionReply> Handle(const Connection& connection, const std::string& packet, int* file);
  absl::StatusOr<std::shared_ptr<const Region>> ShareMemory(const v1::ShareMemory& request, int* file) const;
  absl::StatusOr<std::shared_ptr<const Region>> ShareDevice(const v1::ShareDevice& request) const;
  absl::Status Release(const Connection& connection, const std::string& token);
  void Forget(const Connection& connection);

  const Engines& engines_;
  const RegionOptions options_;
  std::string path_;
  int listener_ = -1;
  int stop_ = -1;                          // an eventfd: readable once the thread is to end
  std::size_t max_all_regions_ = 0;        // of all connections: each may have a descriptor
  std::map<int, Connection> connections_;  // by descriptor; of the thread
  std::int64_t last_connection_ = 0;       // of the thread

  struct Shared {
    std::int64_t connection = 0;  // its number
    std::shared_ptr<const Region> region;
  };
  mutable absl::Mutex mutex_;
  std::map<std::string, Shared> shared_ ABSL_GUARDED_BY(mutex_);  // by token
  std::thread thread_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_REGIONS_H_
