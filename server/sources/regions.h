// Regions: memory that other processes of this machine share with the server over a Unix socket that is only for this.
// proto/reduced/v1/regions.proto specifies the protocol.
//
// One thread serves the socket, and never waits for a client. A region keeps what it needs (a descriptor, a mapping, a
// registration with the GPU, an opened IPC handle, mapped pieces) until the connection that shared it releases it or
// ends, and the last reduction that reads it is done. One user (uid) has at most half of the connections and regions,
// so that there is room for others.
#ifndef REDUCED_SERVER_SOURCES_REGIONS_H_
#define REDUCED_SERVER_SOURCES_REGIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/engine/engines.h"
#include "kernels/system/gather.h"
#include "reduced/v1/reduced.pb.h"
#include "reduced/v1/regions.pb.h"
#include "server/config/options.h"
#include "server/sources/closer.h"
#include "server/sources/region_results.h"
#include "server/sources/ring_memory.h"

namespace reduced::server {

class Region;

// Thread-safe, except Start and Stop.
class Regions {
 public:
  // `engines` must outlive it.
  Regions(const Engines& engines, const RegionOptions& options);
  ~Regions();  // Stop()
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // Listens at `path`. Replaces the socket of a server that no longer runs; hold a SocketFolderLock if another server
  // may start at the same time. FAILED_PRECONDITION: the path is in use, or cannot be listened at.
  absl::Status Start(const std::string& path);
  // Closes the socket, the connections, and with them their regions, and removes the file.
  void Stop();

  // Where it listens; empty before Start.
  const std::string& path() const { return path_; }
  int count() const;
  // Connections closed at once, because their user has half of those of all users.
  std::uint64_t refused_connections() const { return refused_connections_.load(std::memory_order_relaxed); }

  // An array within a region, which keeps the region alive, and whose elements take the bytes of `span`, counted from
  // part.offset. NOT_FOUND: no region has the token. OUT_OF_RANGE: the region does not have all of these bytes.
  absl::StatusOr<HeldArray> Find(const v1::RegionPart& part, const ByteSpan& span) const;
  // `bytes` bytes of a region to write results to. INVALID_ARGUMENT: the offset is not that of results, or the part has
  // strides or a byte order. As Find otherwise; FAILED_PRECONDITION: the region is not writable.
  absl::StatusOr<WritablePart> FindWritable(const v1::RegionPart& part, std::int64_t bytes) const;

  // Lets whoever has the token, which is returned, take the descriptors of a ring, once; until WithdrawRing.
  // FAILED_PRECONDITION: there is no region socket.
  absl::StatusOr<std::string> OfferRing(std::shared_ptr<const RingMemory> ring);
  void WithdrawRing(const std::string& token);

 private:
  struct Connection;

  std::shared_ptr<const Region> FindRegion(const std::string& token) const;
  void Serve();
  bool Accept();
  absl::Duration EndIdle();
  bool HasToWait(const Connection& connection) const;
  void End(std::map<int, Connection>::iterator connection);
  bool Answer(Connection& connection);
  absl::StatusOr<v1::RegionReply> Handle(Connection& connection, const std::string& packet, std::vector<int>* files,
                                         std::shared_ptr<const RingMemory>* ring);
  std::shared_ptr<const RingMemory> TakeOffer(const std::string& token);
  absl::StatusOr<std::shared_ptr<const Region>> ShareMemory(const v1::ShareMemory& request, uid_t user,
                                                            int* file) const;
  absl::StatusOr<std::shared_ptr<const Region>> ShareDevice(Connection& connection, const v1::ShareDevice& request,
                                                            std::vector<int>* files);
  absl::StatusOr<SharedDeviceMemory> ImportPieces(Connection& connection, const v1::ShareDevice& request,
                                                  std::vector<int>* files);
  void CountPieces(Connection& connection, int more);
  absl::Status Release(Connection& connection, const std::string& token);
  void Forget(const Connection& connection);

  const Engines& engines_;
  const RegionOptions options_;
  std::string path_;
  int listener_ = -1;
  int stop_ = -1;            // an eventfd: readable when the thread shall end
  int max_all_regions_ = 0;  // of all connections; each region may keep a descriptor
  int max_all_connections_ = 0;

  // Only the thread uses these.
  struct User {
    int connections = 0;
    int regions = 0;
    int pieces = 0;                                 // of GPUs' memory
    absl::Time next_packet = absl::InfinitePast();  // none of this user's is received before
  };
  std::map<int, Connection> connections_;  // by descriptor
  std::map<uid_t, User> users_;            // those with a connection
  std::int64_t last_connection_ = 0;
  std::optional<Closer> closer_;

  struct Shared {
    std::int64_t connection = 0;  // its number
    std::shared_ptr<const Region> region;
  };
  mutable absl::Mutex mutex_;
  std::map<std::string, Shared> shared_ ABSL_GUARDED_BY(mutex_);                             // by token
  std::map<std::string, std::shared_ptr<const RingMemory>> offers_ ABSL_GUARDED_BY(mutex_);  // by token
  std::atomic<std::uint64_t> refused_connections_ = 0;
  std::thread thread_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_REGIONS_H_
