#include "server/connection_peer.h"

#include <dlfcn.h>

#include <string_view>

#include "grpc/grpc_security.h"
#include "grpc/grpc_security_constants.h"
#include "server/frame_meter.h"
#include "server/security/peers.h"

namespace reduced::server {
namespace {

thread_local const std::string* handed_over = nullptr;  // the peer of a ConnectionPeer

[[maybe_unused]] std::string PeerOfNewConnection() {
  return handed_over != nullptr ? *handed_over : LastEncryptedPeer();
}

}  // namespace

ConnectionPeer::ConnectionPeer(const std::string& peer) { handed_over = &peer; }
ConnectionPeer::~ConnectionPeer() { handed_over = nullptr; }

}  // namespace reduced::server

// In the place of libgrpc's. Weak: where gRPC is linked statically, its own function is the only one.
extern "C" __attribute__((weak)) void grpc_auth_context_add_cstring_property(grpc_auth_context* context,
                                                                             const char* name, const char* value) {
  static auto* const next = reinterpret_cast<decltype(&grpc_auth_context_add_cstring_property)>(
      dlsym(RTLD_NEXT, "grpc_auth_context_add_cstring_property"));
  next(context, name, value);
  if (std::string_view(name) != GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) return;
  const std::string peer = reduced::server::PeerOfNewConnection();
  if (!peer.empty()) next(context, reduced::server::kConnectionPeer, peer.c_str());
}
