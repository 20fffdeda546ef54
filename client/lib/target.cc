#include "client/lib/target.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/system/status_macros.h"
#include "reduced/options.h"

namespace reduced::client {
namespace {

struct HostPort {
  std::string host{};  // without the brackets of an IPv6 address
  int port = 0;
};

// "host:port" or "[ipv6]:port".
std::optional<HostPort> ParseHostPort(absl::string_view text) {
  const std::size_t colon = text.rfind(':');
  HostPort parsed;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &parsed.port)) return std::nullopt;
  if (parsed.port < 1 || parsed.port > 65535) return std::nullopt;
  absl::string_view host = text.substr(0, colon);
  const bool brackets = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || absl::StrContains(host, ':') != brackets) return std::nullopt;
  if (host.find_first_of("[]/, ") != absl::string_view::npos) return std::nullopt;
  parsed.host = std::string(host);
  return parsed;
}

// AF_INET or AF_INET6 if the host is an address, else nothing: it is a name.
std::optional<int> FamilyOf(const std::string& host) {
  in6_addr address{};
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, host.c_str(), &address) == 1) return family;
  }
  return std::nullopt;
}

// A name other than localhost may stand for any machine.
bool IsLoopback(const std::string& host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr ipv4{};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr ipv6{};
  return inet_pton(AF_INET6, host.c_str(), &ipv6) == 1 && IN6_IS_ADDR_LOOPBACK(&ipv6);
}

absl::Status NotATarget(absl::string_view server) {
  return absl::InvalidArgumentError(absl::StrCat(
      "server: got \"", server, "\"; allowed: host:port, [ipv6]:port, host:port,host:port,..., unix:/path, ",
      "unix-abstract:name, ipv4:address:port, ipv6:[address]:port, dns:///name:port"));
}

// The addresses of one host, as "address:port" or "[address]:port", for each of the families that a gRPC target can
// have.
struct Addresses {
  std::vector<std::string> ipv4, ipv6;
};

absl::StatusOr<Addresses> LookUp(absl::string_view server, const HostPort& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(at.host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("server: got \"", server, "\"; the name ", at.host, " can't be resolved: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Addresses found;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    if (each->ai_family == AF_INET) found.ipv4.push_back(absl::StrCat(text.data(), ":", at.port));
    if (each->ai_family == AF_INET6) found.ipv6.push_back(absl::StrCat("[", text.data(), "]:", at.port));
  }
  return found;
}

// "host:port,host:port,...": a gRPC target has addresses of one family, and no names.
absl::StatusOr<Target> ParseList(const std::string& server) {
  Target target{.loopback = true, .several = true};
  bool all_ipv4 = true, all_ipv6 = true;
  Addresses all;
  for (const absl::string_view item : absl::StrSplit(server, ',')) {
    const std::optional<HostPort> at = ParseHostPort(item);
    if (!at.has_value()) return NotATarget(server);
    target.loopback = target.loopback && IsLoopback(at->host);
    ASSIGN_OR_RETURN(const Addresses found, LookUp(server, *at));
    all_ipv4 = all_ipv4 && !found.ipv4.empty();
    all_ipv6 = all_ipv6 && !found.ipv6.empty();
    all.ipv4.insert(all.ipv4.end(), found.ipv4.begin(), found.ipv4.end());
    all.ipv6.insert(all.ipv6.end(), found.ipv6.begin(), found.ipv6.end());
  }
  if (!all_ipv4 && !all_ipv6) {
    return absl::InvalidArgumentError(absl::StrCat(
        "server: got \"", server, "\"; allowed: hosts that all have an IPv4 address, or all an IPv6 address"));
  }
  target.addresses = static_cast<int>(all_ipv4 ? all.ipv4.size() : all.ipv6.size());
  target.uri = all_ipv4 ? absl::StrCat("ipv4:", absl::StrJoin(all.ipv4, ","))
                        : absl::StrCat("ipv6:", absl::StrJoin(all.ipv6, ","));
  return target;
}

absl::StatusOr<Target> ParseUnix(const std::string& server, absl::string_view path) {
  if (path.empty()) return NotATarget(server);
  return Target{.uri = server, .unix_socket = true, .loopback = true};
}

// After "ipv4:" or "ipv6:": one address or several.
absl::StatusOr<Target> ParseAddresses(const std::string& server, absl::string_view list, int family) {
  Target target{.uri = server, .loopback = true, .several = absl::StrContains(list, ',')};
  for (const absl::string_view item : absl::StrSplit(list, ',')) {
    const std::optional<HostPort> at = ParseHostPort(item);
    if (!at.has_value() || FamilyOf(at->host) != family) return NotATarget(server);
    target.loopback = target.loopback && IsLoopback(at->host);
    ++target.addresses;
  }
  return target;
}

// One host. An address, or localhost, is one server; a name has as many as DNS says.
absl::StatusOr<Target> ParseHost(const std::string& server, absl::string_view host_port) {
  const std::optional<HostPort> at = ParseHostPort(host_port);
  if (!at.has_value()) return NotATarget(server);
  const bool loopback = IsLoopback(at->host);
  return Target{.uri = server, .loopback = loopback, .several = !loopback && !FamilyOf(at->host).has_value()};
}

// After "dns:": "host:port", "///host:port" or, with the address of a DNS server, "//address/host:port".
absl::StatusOr<Target> ParseDns(const std::string& server, absl::string_view rest) {
  if (absl::ConsumePrefix(&rest, "//")) {
    const std::size_t slash = rest.find('/');
    if (slash == absl::string_view::npos) return NotATarget(server);
    rest.remove_prefix(slash + 1);
  }
  return ParseHost(server, rest);
}

}  // namespace

absl::StatusOr<Target> ParseTarget(const std::string& server) {
  absl::string_view rest = server;
  if (absl::ConsumePrefix(&rest, "unix:") || absl::ConsumePrefix(&rest, "unix-abstract:")) {
    return ParseUnix(server, rest);
  }
  if (absl::ConsumePrefix(&rest, "ipv4:")) return ParseAddresses(server, rest, AF_INET);
  if (absl::ConsumePrefix(&rest, "ipv6:")) return ParseAddresses(server, rest, AF_INET6);
  if (absl::ConsumePrefix(&rest, "dns:")) return ParseDns(server, rest);
  if (absl::StrContains(server, ',')) return ParseList(server);
  return ParseHost(server, rest);
}

std::optional<std::string> UnixSocketPath(const std::string& server) {
  absl::string_view path = server;
  if (!absl::ConsumePrefix(&path, "unix:") || path.empty()) return std::nullopt;
  absl::ConsumePrefix(&path, "//");  // unix:///path
  return std::string(path);
}

}  // namespace reduced::client
