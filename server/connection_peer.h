// Tells gRPC the peer of each connection.
//
// gRPC checks the token of a call before any service sees it, and tells that check neither the address nor the user.
// But it gives it the authentication context of the connection. So the process has a
// grpc_auth_context_add_cstring_property() of its own, which libgrpc finds before its own one: when gRPC notes how a
// new connection is secured, this one notes the peer, too, as the property kConnectionPeer (security/peers.h). A
// plaintext connection is set up on the thread that hands it to gRPC; one with TLS, on the thread that has just read
// the last bytes of its handshake. In a process that links gRPC statically the peers are not known.
#ifndef REDUCED_SERVER_CONNECTION_PEER_H_
#define REDUCED_SERVER_CONNECTION_PEER_H_

#include <string>

namespace reduced::server {

// While it lives, plaintext connections that this thread hands to gRPC are the peer's.
class ConnectionPeer {
 public:
  explicit ConnectionPeer(const std::string& peer);
  ~ConnectionPeer();
  ConnectionPeer(const ConnectionPeer&) = delete;
  ConnectionPeer& operator=(const ConnectionPeer&) = delete;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONNECTION_PEER_H_
