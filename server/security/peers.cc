#include "server/security/peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/security/listener_credentials.h"

namespace reduced::server {
namespace {

constexpr char kProperty[] = "reduced_peer";  // of an authentication context
constexpr char kOthers[] = "other users";     // the last slot, once it is shared

}  // namespace

std::string PeerName(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (family == AF_INET) {
    inet_ntop(AF_INET, address, text, sizeof(text));
    return text;
  }
  in6_addr ipv6{};
  std::memcpy(&ipv6, address, sizeof(ipv6));
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return PeerName(AF_INET, &ipv6.s6_addr[12]);
  std::memset(&ipv6.s6_addr[8], 0, 8);
  inet_ntop(AF_INET6, &ipv6, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

std::string PeerOfUri(std::string_view uri) {
  const std::size_t port = uri.rfind(':');
  if (absl::StartsWith(absl::string_view(uri.data(), uri.size()), "ipv4:") && port > 4) {
    return std::string(uri.substr(5, port - 5));
  }
  const std::size_t begin = uri.find("%5B");
  const std::size_t end = uri.find('%', begin == std::string_view::npos ? 0 : begin + 3);  // "%5D", or the scope
  in6_addr address{};
  if (begin == std::string_view::npos || end == std::string_view::npos) return std::string(uri);
  const std::string text(uri.substr(begin + 3, end - begin - 3));
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return std::string(uri);
  return PeerName(AF_INET6, &address);
}

std::string ConnectionPeerOf(const grpc_auth_context* context) {
  grpc_auth_property_iterator found = grpc_auth_context_find_properties_by_name(context, kConnectionPeer);
  const grpc_auth_property* const property = grpc_auth_property_iterator_next(&found);
  return property == nullptr ? "" : std::string(property->value, property->value_length);
}

UnixPeers::UnixPeers() {
  for (Slot& slot : slots_) slot.peers = this;
}

int UnixPeers::Assign(const std::string& peer, absl::FunctionRef<bool(const std::string& peer)> connected) {
  const absl::MutexLock lock(&mutex_);
  int free = kSlots - 1;
  for (int i = kSlots - 1; i >= 0; --i) {
    const std::string& name = slots_[i].name;
    if (name == peer) return i;
    if (name.empty() || (name != kOthers && !connected(name))) free = i;
  }
  std::string& name = slots_[free].name;
  const bool taken = free == kSlots - 1 && !name.empty() && (name == kOthers || connected(name));
  name = taken ? kOthers : peer;
  if (free > 0) several_.store(true);
  return free;
}

std::shared_ptr<grpc::ServerCredentials> UnixPeers::CredentialsOf(int slot) {
  grpc_server_credentials* const credentials = grpc_insecure_server_credentials_create();
  grpc_server_credentials_set_auth_metadata_processor(credentials, {&Process, nullptr, &slots_[slot]});
  return std::make_shared<ListenerCredentials>(credentials);
}

// Runs before each call. The calls of a connection share the context: one of them writes the name, before any reads it.
void UnixPeers::Process(void* state, grpc_auth_context* context, const grpc_metadata* /*metadata*/,
                        std::size_t /*count*/, grpc_process_auth_metadata_done_cb done, void* user_data) {
  const Slot& slot = *static_cast<const Slot*>(state);
  {
    const absl::MutexLock lock(&slot.peers->mutex_);
    grpc_auth_property_iterator found = grpc_auth_context_find_properties_by_name(context, kProperty);
    if (grpc_auth_property_iterator_next(&found) == nullptr) {
      grpc_auth_context_add_cstring_property(context, kProperty, slot.name.c_str());
    }
  }
  done(user_data, nullptr, 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
}

std::string UnixPeers::Of(const grpc::ServerContextBase& context) const {
  if (several_.load()) {
    const auto authentication = context.auth_context();
    if (authentication != nullptr) {
      const auto names = authentication->FindPropertyValues(kProperty);
      if (!names.empty()) return {names.front().data(), names.front().size()};
    }
  }
  const absl::MutexLock lock(&mutex_);
  return slots_[0].name;
}

}  // namespace reduced::server
