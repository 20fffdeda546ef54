// Peers: whose connection a call came over, as far as the kernel knows. What a caller without an identity uses counts
// as its peer's.
//
//   TCP            the address, which gRPC knows of every call
//   Unix sockets   the user (uid). gRPC does not know it, and has nothing of its own that tells two such connections
//                  apart. So a listener hands the connections of each user to gRPC through a slot: an external acceptor
//                  with its own credentials. Those of slot 0 are plain. The others write the name of the user into the
//                  connection's authentication context when its first call begins.
//
// The first user who connects gets slot 0, where calls cost nothing more; a slot is free again once its user has no
// connection.
#ifndef REDUCED_SERVER_SECURITY_PEERS_H_
#define REDUCED_SERVER_SECURITY_PEERS_H_

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"

namespace reduced::server {

// The name of an address in network order: "192.0.2.1", or the network "2001:db8::/64", since one host may have all
// addresses of an IPv6 network. `family`: AF_INET or AF_INET6.
std::string PeerName(int family, const void* address);

// The name of the peer of a TCP connection, from what gRPC calls it: "ipv4:192.0.2.1:1234", "ipv6:%5B::1%5D:1234".
// Anything else is its own name.
std::string PeerOfUri(std::string_view uri);

// The property of a connection's authentication context that names its peer: see connection_peer.h.
inline constexpr char kConnectionPeer[] = "reduced_connection_peer";

// The peer of a connection by that property; empty: it has none.
std::string ConnectionPeerOf(const grpc_auth_context* context);

// Thread-safe. Outlives the gRPC servers that have its credentials.
class UnixPeers {
 public:
  static constexpr int kSlots = 16;

  UnixPeers();

  // The slot of a new connection of `peer`: its own or, without one, the first that is not `connected`'s. If all are
  // taken, the last one, whose users count as one from then on.
  int Assign(const std::string& peer, absl::FunctionRef<bool(const std::string& peer)> connected);

  // The credentials of the connections of a slot but 0.
  std::shared_ptr<grpc::ServerCredentials> CredentialsOf(int slot);

  // The peer of a call over a Unix socket; empty: its connection was never assigned.
  std::string Of(const grpc::ServerContextBase& context) const;

 private:
  struct Slot {
    UnixPeers* peers = nullptr;
    std::string name{};  // of the peer; guarded by the mutex
  };

  static void Process(void* state, grpc_auth_context* context, const grpc_metadata* metadata, std::size_t count,
                      grpc_process_auth_metadata_done_cb done, void* user_data);

  mutable absl::Mutex mutex_;
  std::array<Slot, kSlots> slots_;
  std::atomic<bool> several_ = false;  // slots but 0 have been assigned
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_PEERS_H_
